//! Every driver that we say we know, and those that we cannot know: a program that does not fit trains the same way, and what a driver lacks is said.
//!
//! `scripts/drivers` runs the other suites under each of them, too; here is what differs by driver.

use deepum_protocol::status::{State, Status};
use deepum_tests::{Run, Script, Torch};

/// GPT-2, small, needs about 600 MiB; the device has 400.
fn run(driver: &str) -> Run {
    let run = Script::new(Torch::Cu13, &["language_model.py", "gpt2"])
        .gpu(&format!("emu:v100-32g:memory=400MiB,{driver}"))
        .run();
    let (shim, device) = (run.assert_clean().shim.as_ref().expect("a clean run has it"), &run.device.totals);
    assert_eq!(shim.state, State::Awake, "{driver}");
    assert!(device.d2h_eviction > 0, "{driver}: it fitted: {device:?}");
    assert!(shim.sources.tools_queue.attached && shim.devices[0].faults > 0, "{driver}: {shim:?}");
    assert!(shim.prefetch.useful > 0, "{driver}: {shim:?}");
    run
}

fn shim(run: &Run) -> &Status {
    run.shim.as_ref().expect("a clean run has it")
}

/// Our lines on stderr.
fn said(run: &Run) -> String {
    let said = String::from_utf8_lossy(&run.output.stderr);
    said.lines().filter(|line| line.starts_with("deepum:")).collect::<Vec<_>>().join("\n")
}

#[test]
fn all_that_are_known_tell_of_faults_and_those_that_can_drop_contents() {
    for (driver, release, discards) in [
        ("driver=535", "535.183.01", false),
        ("driver=550", "550.54.14", false),
        ("driver=560", "560.35.03", false),
        ("driver=580", "580.65.06", true),
        ("driver=595", "595.45.04", true),
    ] {
        let run = run(driver);
        assert_eq!(shim(&run).sources.driver.as_deref(), Some(release));
        assert_eq!(run.device.totals.discarded > 0, discards, "{driver}: {:?}", run.device.totals);
        assert_eq!(said(&run), "", "{driver}");
    }
}

#[test]
fn the_file_that_pins_the_memory_map_is_not_taken_for_the_address_space() {
    for driver in ["driver=535,mm=first", "driver=595,mm=first"] {
        assert_eq!(said(&run(driver)), "", "{driver}");
    }
}

#[test]
fn one_that_is_newer_or_nameless_is_used_with_care_and_one_that_is_older_is_not() {
    for (driver, words) in [("release=700.10.01", "700.10.01 is newer"), ("release=none", "does not")] {
        let run = run(driver);
        assert_eq!(run.device.totals.discarded, 0, "{driver}");
        assert_eq!(said(&run).matches(words).count(), 1, "{driver}: {}", said(&run));
    }
    let run = Script::new(Torch::Cu13, &["language_model.py", "gpt2"])
        .gpu("emu:v100-32g:memory=400MiB,release=470.256.02")
        .run();
    let shim = run.assert_clean().shim.as_ref().expect("a clean run has it");
    assert!(!shim.sources.tools_queue.attached && shim.prefetch.useful == 0, "{shim:?}");
    assert!(said(&run).contains("470.256.02 is not supported"), "{}", said(&run));
}
