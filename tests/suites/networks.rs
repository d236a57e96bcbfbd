//! `deepum compare --table`: its smoke manifest makes a whole document with real PyTorch, a second call finds everything measured, and what a person
//! may get wrong is said in one line. And the networks of the real manifest that are nowhere else train, all their launches known to the device.

use deepum_emu_device::log::FlightLog;
use deepum_tests::{deepum, on_this_driver, root};
use std::process::{Command, Output};

const SMOKE: &str = "benches/networks/smoke.toml";

fn compare(args: &[&str]) -> Output {
    // What the caller has set must not reach the runs.
    let mut command = Command::new(deepum());
    command.arg("compare").args(args).current_dir(root()).env("DEEPUM_DEGREE", "1").env("DEEPUM_POLICY", "demand");
    command.output().expect("the deepum executable starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The cells of the first line in which `name` stands alone in a cell.
#[track_caller]
fn line<'a>(document: &'a str, name: &str) -> Vec<&'a str> {
    let mut lines = document.lines().map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    lines.find(|cells| cells.get(1) == Some(&name)).unwrap_or_else(|| panic!("no line of {name} in:\n{document}"))
}

#[test]
fn the_smoke_manifest_makes_a_whole_document_and_is_kept() {
    let folder = tempfile::tempdir().expect("a folder for results");
    let out = folder.path().to_str().expect("temporary folders have plain names");
    let first = compare(&["--table", SMOKE, "--out", out]);
    assert!(first.status.success(), "{}\n{}", text(&first.stdout), text(&first.stderr));
    let document = std::fs::read_to_string(folder.path().join("table.md")).expect("it writes the document");
    assert!(document.contains(&format!("    deepum compare --table {SMOKE}\n")), "{document}");

    let seconds = |name: &str| {
        let cells = line(&document, name);
        cells[2].parse::<f64>().unwrap_or_else(|_| panic!("{cells:?} has no seconds:\n{document}"))
    };
    assert_eq!(line(&document, "`plain`")[2], "out of memory", "half of what it needs");
    let [bound, moves, demand, deepum, horizon, copies] =
        ["bound", "of moves alone", "`demand`", "`deepum`", "`horizon`", "`horizon, two copies`"].map(seconds);
    assert!(0.0 < bound && bound <= moves, "copies kept are never slower:\n{document}");
    assert!(moves < deepum && moves < horizon && bound < copies, "nobody is faster than what is proven:\n{document}");
    assert!(deepum < demand && horizon < demand && copies < demand, "{document}");
    // What crosses the link takes no longer than the iteration does.
    for name in ["`demand`", "`deepum`", "`horizon`", "`horizon, two copies`"] {
        let link = line(&document, name)[8].trim_end_matches(" %").parse::<f64>().expect("a share of the link");
        assert!(0.0 < link && link <= 100.0, "{document}");
    }

    let second = compare(&["--table", SMOKE, "--out", out]);
    assert!(second.status.success() && text(&second.stdout).starts_with("0 runs made, 10 in all;"), "{second:?}");
    let again = std::fs::read_to_string(folder.path().join("table.md")).expect("it writes the document again");
    assert_eq!(again, document);
}

#[test]
fn networks_that_are_in_no_other_table_train_and_are_known_to_the_device() {
    let python = root().join(".venv/bin/python");
    // T5 looks relative positions up by a gather, whose backward pass the device does not find again.
    let networks: [(&[&str], bool); 3] = [
        (&["vit.py", "--layers", "2", "--batch", "4"], true),
        (&["llama.py", "--size", "tiny", "--length", "64", "--batch", "2"], true),
        (&["t5.py", "--size", "tiny", "--length", "64", "--batch", "2"], false),
    ];
    let folder = tempfile::tempdir().expect("a folder for flight logs");
    for (words, exact) in networks {
        let (script, log) = (root().join("benches/networks").join(words[0]), folder.path().join(words[0]));
        let mut command = Command::new(deepum());
        command
            .args(["run", "--gpu", &on_this_driver("emu:v100-32g"), "--"])
            .arg(&python)
            .arg(script)
            .args(&words[1..]);
        command.args(["--iterations", "2"]).env("HF_HUB_OFFLINE", "1").env("DEEPUM_EMU_LOG", &log);
        let output = command.output().expect("deepum starts");
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        let totals = FlightLog::totals(&log).expect("the device keeps a flight log");
        let (known, all) = (totals.exact_launches, totals.launches);
        assert!(all > 100 && (known == all || !exact && known * 100 >= all * 97), "{words:?}: {known} of {all}");
    }
}

#[test]
fn what_cannot_be_is_refused_before_anything_runs() {
    let refused = |args: &[&str], wanted: &[&str]| {
        let output = compare(args);
        let said = text(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}: {}", text(&output.stdout));
        assert!(wanted.iter().all(|part| said.contains(part)), "{args:?}: {said}");
    };
    refused(&["--table", "/no/such.toml"], &["cannot read /no/such.toml"]);
    refused(&["--table", "benches/g10/manifest.toml"], &["benches/g10/manifest.toml is not a manifest"]);
    refused(&["--table", SMOKE, "--out", "/proc/nowhere"], &["cannot make /proc/nowhere"]);
    refused(&["--table", SMOKE, "--jobs", "0"], &["--jobs", "1..=64"]);
    refused(&["--table", SMOKE, "--policies", "demand"], &["--table", "--policies"]);
    refused(&["--out", "x", "--", "true"], &["--out", "CMD"]);
    refused(&["--python", "/no/such/python", "--table", SMOKE, "--out", "/proc/x"], &["cannot start /no/such/python"]);
}
