//! Recording real PyTorch on the emulated device: what is in the trace, what a replay makes of it, and what becomes of it when the program is killed,
//! forks, or names a file that cannot be.

use deepum_core::period;
use deepum_tests::{Run, Script, Torch, deepum, on_this_driver, root};
use deepum_trace::binary::{ReadError, Reader};
use deepum_trace::event::{Event, Header, Record};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// GPT-2, small, needs about 600 MiB.
const SMALL: &str = "v100-32g:memory=400MiB";

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.trace");
    (folder, path)
}

fn recorded(script: Script, path: &Path) -> Script {
    script.env("DEEPUM_RECORD", path.to_str().expect("UTF-8"))
}

fn gpt2(iterations: &str) -> Script {
    Script::new(Torch::Cu13, &["language_model.py", "gpt2", "--iterations", iterations]).gpu(&format!("emu:{SMALL}"))
}

/// What is in a trace, and why there is no more.
fn read(path: &Path) -> (Header, Vec<Record>, Option<ReadError>) {
    let mut reader = Reader::new(BufReader::new(File::open(path).expect("the trace"))).expect("a trace");
    let (mut records, mut why) = (Vec::new(), None);
    for record in &mut reader {
        match record {
            Ok(record) => records.push(record),
            Err(error) => why = Some(error),
        }
    }
    (reader.header().clone(), records, why)
}

fn replay(path: &Path, policy: &str) -> Vec<Value> {
    replay_on(SMALL, path, policy)
}

fn replay_on(gpu: &str, path: &Path, policy: &str) -> Vec<Value> {
    let gpu = ["--gpu", gpu, "--policy", policy, "--json"];
    let output =
        Command::new(deepum()).arg("replay").arg(path).args(gpu).output().expect("the deepum executable starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    json["rows"].as_array().expect("rows is a list").clone()
}

/// What the device did in the last iteration of a program that ends with one: ns, faults, bytes in and out.
fn last_iteration(run: &Run) -> [u64; 4] {
    let entries = &run.device.entries;
    let stream: Vec<u64> = entries.iter().map(|entry| entry.identity).collect();
    let length = period::find(&stream).expect("it repeats").length;
    let [to, from] = [entries.len() - 1, entries.len() - 1 - length].map(|launch| entries[launch]);
    [to.end - from.end, to.fault_entries - from.fault_entries, to.h2d - from.h2d, to.d2h - from.d2h]
}

#[test]
fn a_trace_has_all_that_was_done_and_replays_as_it_ran() {
    let (_folder, path) = folder();
    let run = recorded(gpt2("6").env("DEEPUM_POLICY", "demand"), &path).run();
    run.assert_clean();
    let (header, records, why) = read(&path);
    assert!(why.is_none(), "{why:?}");
    assert_eq!((&*header.device, header.budget.0), (&*on_this_driver(&format!("emu:{SMALL}")), 400 << 20));
    assert!(header.program.contains("language_model.py gpt2 --iterations 6"), "{}", header.program);
    assert_eq!(std::fs::metadata(&path).expect("the trace").permissions().mode() & 0o777, 0o600);

    let (mut launches, mut places, mut touched, mut timed) = (0, 0, BTreeSet::new(), BTreeSet::new());
    let mut tensors = 0i64;
    for record in &records {
        match &record.event {
            Event::Launch(_) => (launches, places) = (launches + 1, places + 1),
            Event::Copy { .. } => places += 1,
            Event::Touched { launch, .. } => assert!(touched.insert(launch.0), "told twice"),
            Event::Time { launch, .. } => assert!(timed.insert(launch.0), "told twice"),
            Event::PtBlock { active, .. } => tensors += if *active { 1 } else { -1 },
            Event::Lost { events } => panic!("{events} lost"),
            _ => {}
        }
    }
    assert_eq!(launches, run.device.totals.launches);
    // What had not begun when the program ended is not known.
    let last = *timed.last().expect("some");
    assert!(places - last < 16 && timed.len() as u64 == last && touched.len() as u64 >= launches - 16);
    assert!(tensors >= 0 && records.iter().any(|record| matches!(record.event, Event::Wait { .. })));

    // The same model of the same memory, fed with the same: fault by fault. Only of the host's time a little is left out.
    let row = &replay(&path, "demand")[0];
    let [ns, faults, h2d, d2h] = last_iteration(&run);
    let replayed = ["faults", "bytes_h2d", "bytes_d2h"].map(|figure| row[figure].as_u64().expect("a figure"));
    assert!(faults > 1000);
    assert_eq!(replayed, [faults, h2d, d2h]);
    let seconds = row["seconds"].as_f64().expect("seconds");
    assert!((seconds * 1e9 / ns as f64 - 1.0).abs() < 0.01, "{seconds} s, and {ns} ns on the device");

    let rows = replay(&path, "deepum,oracle");
    for row in &rows {
        let share = row["share_of_bound"].as_f64().expect("a bound");
        assert!(row["outcome"] == "ok" && share > 0.0 && share <= 1.0, "{row}");
        assert!(row["faults"].as_u64().expect("faults") < faults, "{row}");
    }
}

/// Nothing that the recorder does costs virtual time, wakes the engine, or changes what it decides. PyTorch leaves words of kernels' arguments to chance: so what
/// counts is that two runs can be the same, of which one is recorded.
#[test]
fn a_recorded_run_is_the_run_it_would_have_been() {
    let (_folder, path) = folder();
    let script = Script::new(Torch::Cu13, &["convnet.py"]).gpu("emu:v100-32g:memory=64MiB");
    let same = (0..3).any(|_| {
        let (plain, recorded) = (script.run(), recorded(script.clone(), &path).run());
        plain.assert_clean();
        recorded.assert_clean();
        assert!(plain.device.totals.fault_entries > 0);
        let launches = read(&path).1.iter().filter(|r| matches!(r.event, Event::Launch(_))).count();
        assert_eq!(launches as u64, recorded.device.totals.launches);
        plain.device.totals == recorded.device.totals
    });
    assert!(same, "never the same");
}

#[test]
fn a_program_that_is_killed_leaves_all_but_the_last_second() {
    let (_folder, path) = folder();
    let program = recorded(gpt2("1000000").without_status(), &path).start();
    let started = Instant::now();
    // Several chunks, and some iterations.
    while program.totals().launches < 2000 || std::fs::metadata(&path).map_or(0, |file| file.len()) < 150_000 {
        assert!(started.elapsed() < Duration::from_secs(300), "it never gets there");
        std::thread::sleep(Duration::from_millis(20));
    }
    program.kill();
    let (_, records, why) = read(&path);
    assert!(matches!(why, Some(ReadError::Cut { .. })), "{why:?}");
    assert!(records.iter().filter(|record| matches!(record.event, Event::Launch(_))).count() > 1000);
    assert_eq!(replay(&path, "demand")[0]["outcome"], "ok");
}

#[test]
fn each_process_has_a_trace_of_its_own_with_the_iterations_it_marks() {
    let (folder, path) = folder();
    let run = recorded(Script::new(Torch::Cu13, &["iterations.py", "--others"]), &path).run();
    run.assert_clean();
    let files: Vec<PathBuf> =
        std::fs::read_dir(&folder).expect("the folder").map(|file| file.expect("a file").path()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    let marks = |path: &Path| {
        let (_, records, why) = read(path);
        assert!(why.is_none(), "{why:?}");
        records.iter().filter(|record| record.event == Event::Iteration).count()
    };
    let other = files.iter().find(|file| **file != path).expect("the other's");
    assert!(other.to_str().is_some_and(|name| name.starts_with(path.to_str().expect("UTF-8"))), "{other:?}");
    assert_eq!((marks(&path), marks(other)), (5, 4));
    assert_eq!(replay(&path, "deepum,oracle")[1]["outcome"], "ok");
}

/// A request is an iteration, whatever its experts are; 8.8 GiB of weights of which nothing is on the host.
#[test]
fn a_mixture_of_experts_is_recorded_request_by_request() {
    let (_folder, path) = folder();
    let script = root().join("benches/llm/generate.py");
    let words = [script.to_str().expect("UTF-8"), "moe", "--requests", "2", "--tokens", "2", "--prompt", "16"];
    let run = recorded(Script::new(Torch::Cu13, &words), &path).run();
    run.assert_clean();
    let (_, records, why) = read(&path);
    assert!(why.is_none(), "{why:?}");
    assert_eq!(records.iter().filter(|record| record.event == Event::Iteration).count(), 3);
    let rows = replay_on("a100-40g:memory=6GiB", &path, "demand,oracle");
    assert!(rows.iter().all(|row| row["outcome"] == "ok"), "{rows:?}");
    assert!(rows[1]["bytes_h2d"].as_u64() < rows[0]["bytes_h2d"].as_u64(), "{rows:?}");
}

#[test]
fn a_file_that_cannot_be_costs_one_line_and_no_run() {
    let (folder, path) = folder();
    for (wrong, why) in
        [(folder.path().join("no/such/run.trace"), "No such file"), (folder.path().to_owned(), "Is a directory")]
    {
        let run = recorded(Script::new(Torch::Cu13, &["mlp.py"]), &wrong).run();
        run.assert_clean();
        let lines = run.said();
        let parts = ["DEEPUM_RECORD", wrong.to_str().expect("UTF-8"), why, "nothing is recorded"];
        assert!(lines.len() == 1 && parts.iter().all(|part| lines[0].contains(part)), "{lines:?}");
    }
    assert!(!path.exists());
}
