//! `deepum measure` on the emulated device: its figures are what the device was told to cost, and what is lacking is said.

use deepum_tests::deepum;
use serde_json::Value;
use std::process::{Command, Output};

fn run(gpu: &str) -> Output {
    Command::new(deepum()).args(["measure", "--json", "--gpu", gpu]).output().expect("the deepum executable starts")
}

fn measured(gpu: &str) -> Value {
    let output = run(gpu);
    assert!(output.status.success(), "{gpu}: {}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((&said["schema"], &said["emulated"]), (&Value::from("deepum-measure/1"), &Value::from(true)));
    said
}

fn figure(said: &Value, name: &str) -> f64 {
    let figures = said["figures"].as_array().expect("figures");
    let found = figures.iter().find(|figure| figure["name"] == name).unwrap_or_else(|| panic!("no {name} in {said}"));
    found["median"].as_f64().expect("a number")
}

/// Whether each check holds; nothing: it could not be tried.
fn checks(said: &Value) -> Vec<(String, Option<bool>)> {
    let checks = said["checks"].as_array().expect("checks");
    checks.iter().map(|check| (check["name"].as_str().expect("text").to_owned(), check["holds"].as_bool())).collect()
}

#[test]
fn figures_are_what_the_device_costs() {
    let usual = measured("emu:v100-32g:data=1");
    // The profile's link carries 12.0 GB/s each way (crates/model/profiles), and a call costs something beside.
    for name in ["in_32mib_gb_s", "out_32mib_gb_s", "words_gb_s"] {
        let rate = figure(&usual, name);
        assert!((11.0..12.1).contains(&rate), "{name}: {rate}");
    }
    assert!(figure(&usual, "in_2mib_gb_s") < figure(&usual, "in_32mib_gb_s"));
    let slow = measured("emu:v100-32g:data=1,scale=h2d_gb_s*50,scale=stream_write_ns*1000,scale=ioctl_ns*200");
    let ratio = |name| figure(&slow, name) / figure(&usual, name);
    assert!((0.49..0.53).contains(&ratio("in_32mib_gb_s")), "{}", ratio("in_32mib_gb_s"));
    assert!((0.98..=1.0).contains(&ratio("out_32mib_gb_s")), "{}", ratio("out_32mib_gb_s"));
    let touch = figure(&slow, "touch_ns") - figure(&usual, "touch_ns");
    assert!((touch - 2400.0).abs() < 1.0, "a request costs 2.4 us more: {touch}");
    // 19.5 us instead of 1.95, beside which the host's own time goes on.
    assert!(ratio("stream_write_ns") > 8.0 && ratio("stream_write_host_ns") == 1.0, "{slow}");
    assert!(checks(&usual).iter().all(|(_, holds)| *holds == Some(true)), "{usual}");
}

#[test]
fn what_cannot_be_tried_is_said_and_a_failure_names_what_was_tried() {
    let said = measured("emu:v100-32g:driver=550,tools=missing");
    let untried = ["notices", "out unmapped", "words", "discard", "contents"].map(|name| (name.to_owned(), None));
    assert_eq!(checks(&said), untried);
    let output = run("emu:v100-32g:fail_migrate=7");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("while moving blocks: cannot move"), "{said}");
}
