//! `deepum doctor` on the emulated device: what is wrong with it, and with the process that asks, is named.

use deepum_tests::{Torch, deepum, python};
use serde_json::Value;
use std::process::Command;

/// Checks that are not `ok`, with their verdicts, and whether all is well.
fn ask(gpu: &str, limit: &str, env: &[(&str, &str)], program: &[&str]) -> (Vec<(String, String)>, bool) {
    // The limits of this process are not to matter.
    let script = format!("{limit}; exec \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script, "sh"])
        .arg(deepum())
        .args(["doctor", "--json", "--gpu", gpu, "--"])
        .args(program)
        .envs(env.iter().copied())
        .output()
        .expect("a shell starts");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    });
    assert_eq!(said["schema"], "deepum-doctor/1");
    let rows = said["rows"].as_array().expect("rows");
    let text = |row: &Value, field: &str| row[field].as_str().expect("text").to_owned();
    for row in rows.iter().filter(|row| ["costs", "stops"].contains(&text(row, "verdict").as_str())) {
        assert!(!text(row, "cost").is_empty() && !text(row, "remedy").is_empty(), "{row}");
    }
    let ill = rows.iter().filter(|row| row["verdict"] != "ok").map(|row| (text(row, "check"), text(row, "verdict")));
    (ill.collect(), output.status.success())
}

fn named(found: &[(&str, &str)]) -> Vec<(String, String)> {
    found.iter().map(|&(check, verdict)| (check.to_owned(), verdict.to_owned())).collect()
}

#[test]
fn a_driver_that_has_everything_is_well_and_so_is_pytorch_on_it() {
    for torch in [Torch::Cu13, Torch::Cu12] {
        let python = python(torch);
        let program = [python.to_str().expect("UTF-8"), "train.py"];
        assert_eq!(ask("emu:rtx4090", ":", &[], &program), (vec![], true));
    }
}

#[test]
fn what_the_driver_lacks_is_named() {
    let costs = |checks: &[&str]| named(&checks.iter().map(|&check| (check, "costs")).collect::<Vec<_>>());
    for (spec, checks) in [
        ("tools=missing", &["notices"][..]),
        ("driver=535", &["discard"]),
        ("driver=550", &["discard"]),
        ("driver=560,tools=missing", &["notices", "discard"]),
        ("driver=580,mm=first", &[]),
        ("driver=595", &[]),
        ("release=700.10.01", &["discard", "two-copies"]),
        ("release=none", &["discard", "two-copies"]),
    ] {
        let well = checks.is_empty();
        assert_eq!(ask(&format!("emu:v100-32g:{spec}"), ":", &[], &[]), (costs(checks), well), "{spec}");
    }
}

#[test]
fn limits_variables_and_programs_that_stand_in_the_way_are_named() {
    let of = |limit, env: &[(&str, &str)], program: &[&str]| ask("emu:v100-32g", limit, env, program).0;
    assert_eq!(of("ulimit -l 64", &[], &[]), named(&[("memlock", "costs")]));
    assert_eq!(
        of(":", &[("CUDA_LAUNCH_BLOCKING", "1"), ("DEEPUM_POLCY", "x")], &[]),
        named(&[("environment", "costs"), ("configuration", "costs")])
    );
    assert_eq!(of(":", &[("DEEPUM", "0")], &[]), named(&[("configuration", "stops")]));
    assert_eq!(of(":", &[], &["/no/such/program"]), named(&[("program", "stops")]));
}
