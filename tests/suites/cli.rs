//! The command line as a newcomer meets it, mistakes included: each gets one message that names the thing and what is allowed.

use deepum_tests::deepum;
use std::process::{Command, Output};

fn run(words: &[&str]) -> (Output, String) {
    let output = Command::new(deepum()).args(words).output().expect("the deepum executable starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

#[track_caller]
fn refused(words: &[&str], parts: &[&str]) {
    let (output, said) = run(words);
    assert!(!output.status.success(), "{words:?} was accepted");
    for part in parts {
        assert!(said.contains(part), "{words:?}: no {part:?} in:\n{said}");
    }
}

#[test]
fn mistakes_are_named_with_what_is_allowed() {
    refused(&["run", "--policy", "magic", "--", "true"], &["magic", "demand", "next_block", "deepum"]);
    refused(&["run", "--budget", "lots", "--", "true"], &["lots", "GiB", "%"]);
    refused(&["run", "--gpu", "emu:gtx-9999", "--", "true"], &["gtx-9999", "v100-32g", "h200"]);
    refused(&["run", "--gpu", "emu:v100-32g:wings=2", "--", "true"], &["wings"]);
    refused(&["run", "--gpu", "cloud", "--", "true"], &["cloud", "real", "emu:PROFILE"]);
    refused(&["run"], &["CMD"]);
    refused(&["run", "--gpu", "emu:v100-32g", "--", "/no/such/program"], &["/no/such/program"]);
    refused(&["compare", "--gpu", "real", "--", "true"], &["emulated", "--gpu emu:"]);
    refused(&["compare", "--", "true"], &["never reached the emulated device"]);
    refused(&["status", "4194304"], &["4194304"]);
    refused(&["frobnicate"], &["frobnicate"]);
}

#[test]
fn a_program_keeps_its_exit_status_and_its_output() {
    let (output, said) = run(&["run", "--gpu", "emu:v100-32g", "--", "sh", "-c", "echo out; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"out\n");
    assert_eq!(said, "");
}

#[test]
fn help_lists_every_variable() {
    let (output, _) = run(&["--help"]);
    let help = String::from_utf8(output.stdout).expect("help is UTF-8");
    for variable in deepum_config::schema::VARIABLES {
        assert!(help.contains(variable.name), "{} is missing from --help", variable.name);
    }
}

#[test]
fn without_a_gpu_it_says_that_it_emulates_one() {
    if std::path::Path::new("/dev/nvidiactl").exists() {
        eprintln!("skipped: this machine has a GPU");
        return;
    }
    let (output, said) = run(&["run", "--", "true"]);
    assert!(output.status.success());
    assert!(said.contains("no NVIDIA GPU here") && said.contains("emu:v100-32g"), "{said}");
    refused(&["run", "--gpu", "real", "--", "true"], &["no NVIDIA GPU here", "--gpu emu:"]);
}
