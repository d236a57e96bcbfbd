//! The command line as a newcomer meets it, mistakes included: each gets one message that names the thing and what is allowed.

use deepum_tests::{Torch, deepum, python};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

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
    refused(&["status", "4194305"], &["there is no process 4194305"]);
    refused(&["status", &std::process::id().to_string()], &["does not run under DeepUM"]);
    refused(&["frobnicate"], &["frobnicate"]);
}

#[test]
fn a_program_that_cannot_be_started_is_said_as_shells_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("train.py");
    std::fs::write(&script, "").expect("a file");
    let script = script.to_str().expect("UTF-8");
    let (output, said) = run(&["run", "--gpu", "emu", "--", script]);
    assert_eq!(output.status.code(), Some(126));
    assert!(said.contains(&format!("deepum run -- python {script}")), "{said}");
    let (output, _) = run(&["run", "--gpu", "emu", "--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(127));
}

#[test]
fn what_is_preloaded_already_stays_and_no_runtime_folder_is_needed() {
    let output = Command::new(deepum())
        .args(["run", "--gpu", "emu", "--", "sh", "-c", "echo $LD_PRELOAD"])
        .env("LD_PRELOAD", "libm.so.6")
        .env("XDG_RUNTIME_DIR", "/no/such/folder")
        .output()
        .expect("the deepum executable starts");
    let preload = String::from_utf8(output.stdout).expect("paths are UTF-8");
    let names: Vec<&str> = preload.trim().split(':').map(|path| path.rsplit('/').next().unwrap_or("")).collect();
    assert_eq!(names, ["libdeepum.so", "libdeepum_emu_node.so", "libm.so.6"]);
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

/// A program that has used its GPU and waits until its standard input is closed.
fn waiting_program() -> Child {
    let mut child = Command::new(deepum())
        .args(["run", "--gpu", "emu:a100-40g", "--"])
        .arg(python(Torch::Cu13))
        .args(["-c", "import sys, torch; torch.ones(1, device='cuda'); print('ready', flush=True); sys.stdin.read()"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the deepum executable starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("text");
    assert_eq!(line, "ready\n");
    child
}

#[test]
fn status_shows_each_program_and_one_that_is_asked_for() {
    let mut programs = [waiting_program(), waiting_program()];
    let [one, two] = [0, 1].map(|n| programs[n].id());
    let pids = |words: &[&str], runtime: &str| {
        let output = Command::new(deepum())
            .args([&["status", "--json"], words].concat())
            .env("XDG_RUNTIME_DIR", runtime)
            .output()
            .expect("the deepum executable starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let answer: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert_eq!(answer["schema"], "deepum-status-rows/1");
        let rows = answer["rows"].as_array().expect("rows is a list").clone();
        assert!(rows.iter().all(|row| row["schema"] == "deepum-status/1" && row["devices"][0]["launches"].is_u64()));
        rows.iter().filter_map(|row| row["pid"].as_u64()).collect::<Vec<_>>()
    };
    let own = std::env::var("XDG_RUNTIME_DIR").unwrap_or_default();
    let all = pids(&[], &own);
    assert!(all.contains(&u64::from(one)) && all.contains(&u64::from(two)), "{all:?}");
    assert_eq!(pids(&[&one.to_string()], &own), [u64::from(one)]);
    let (page, _) = run(&["status", &two.to_string()]);
    let page = String::from_utf8(page.stdout).expect("UTF-8");
    assert!(page.starts_with(&format!("process {two}  policy horizon  dormant")), "{page}");
    for program in &mut programs {
        drop(program.stdin.take());
        assert!(program.wait().expect("it ends").success());
    }
    assert!(!pids(&[], &own).contains(&u64::from(one)));
}

#[test]
fn an_interrupted_comparison_leaves_nothing_running_and_no_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let pids = folder.path().join("pids");
    let program = r#"sleep 1000 & echo $$ $! > "$0.new"; mv "$0.new" "$0"; wait"#;
    let mut compare = Command::new(deepum())
        .args(["compare", "--", "sh", "-c", program])
        .arg(&pids)
        .env("TMPDIR", folder.path())
        .spawn()
        .expect("the deepum executable starts");
    while !pids.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let started = std::fs::read_to_string(&pids).expect("two process IDs");
    let stopped = Command::new("kill").args(["-TERM", &compare.id().to_string()]).status().expect("kill");
    assert!(stopped.success() && !compare.wait().expect("it ends").success());
    for pid in started.split_whitespace() {
        // Nobody may have collected it yet; then it is a zombie.
        let gone =
            || std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).map_or(true, |s| s.contains(") Z "));
        while !gone() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let left = std::fs::read_dir(folder.path()).expect("the folder").count();
    assert_eq!(left, 1, "only what the program wrote itself");
}

#[test]
fn what_is_carried_to_another_machine_needs_no_newer_libc_than_ubuntu_22_04_has() {
    const NEWEST: u32 = 35;
    let release = deepum().parent().expect("a folder").to_owned();
    for file in ["deepum", "deepumd", "libdeepum.so", "libdeepum_emu_node.so"] {
        let bytes = std::fs::read(release.join(file)).expect("it is built");
        let text = String::from_utf8_lossy(&bytes);
        let versions = text
            .split("GLIBC_2.")
            .skip(1)
            .filter_map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u32>().ok());
        let newest = versions.max().expect("it uses the C library");
        assert!(newest <= NEWEST, "{file} needs GLIBC_2.{newest}");
    }
}
