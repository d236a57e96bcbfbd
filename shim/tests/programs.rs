//! The C programs of `tests/programs`, each one situation, under the preload against the fake CUDA.

use deepum_trace::binary::Reader;
use deepum_trace::event::Event;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/programs");

/// The library under test: it lies beside this test's own executable, or one folder up.
fn library() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    here.ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join("libdeepum.so"))
        .find(|path| path.exists())
        .expect("cargo builds the library before its tests")
}

/// The folder of built programs.
fn programs() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("programs");
        let build = Command::new(format!("{SOURCES}/build")).arg(&out).output().unwrap();
        assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
        out
    })
}

/// A command under the preload.
fn preloaded(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library()).env("LD_LIBRARY_PATH", programs());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("DEEPUM") {
            command.env_remove(name);
        }
    }
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a program, which must find everything as it should be; gives what was said on stderr.
#[track_caller]
fn passes(name: &str, set: impl FnOnce(&mut Command)) -> String {
    let mut command = preloaded(programs().join(name));
    set(&mut command);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{name}: {:?}\n{}", output.status, stderr(&output));
    assert!(output.stdout.is_empty());
    stderr(&output)
}

fn plainly(_: &mut Command) {}

#[test]
fn every_door_is_one_launch_and_one_call() {
    passes("once", plainly);
}

#[test]
fn progress_is_written_and_the_gate_waited_for_while_awake() {
    let said = passes("awake", plainly);
    assert_eq!(said.matches("no 64-bit waits").count(), 1, "{said}");
    assert_eq!(said.matches("cannot write progress words").count(), 1, "{said}");
    passes("awake", |c| {
        c.arg("no-gate").env("DEEPUM_GATE", "0");
    });
}

#[test]
fn streams_that_nobody_uses_any_more_are_known_to_be_idle() {
    passes("idle", plainly);
}

#[test]
fn of_contexts_made_beside_the_devices_own_nothing_is_followed() {
    passes("contexts", plainly);
    for when in ["before", "affine", "green", "parameters"] {
        passes("contexts", |c| {
            c.arg(when);
        });
    }
}

#[test]
fn every_copy_of_managed_memory_is_one_place_in_the_sequence() {
    passes("copies", plainly);
    passes("copies12", plainly);
}

#[test]
fn large_device_memory_becomes_managed_and_the_rest_says_why_not() {
    let said = passes("alloc", plainly);
    for part in ["error 801", "stream-ordered pool", "cuMemCreate memory", "CUDA IPC"] {
        assert_eq!(said.matches(part).count(), 1, "{part:?} in\n{said}");
    }
    // And that nothing can be moved here.
    assert_eq!(said.lines().count(), 5, "{said}");
}

#[test]
fn host_memory_is_not_promised_twice() {
    let said = passes("limit", |c| {
        c.env("FAKE_MIB", "64").env("DEEPUM_HOST_BUDGET", "96MiB");
    });
    assert_eq!(said.matches("out-of-memory").count(), 1, "{said}");
    assert!(said.contains("8.00 MiB more") && said.contains("the 96.00 MiB in use"), "{said}");
    passes("limit", |c| {
        c.env("FAKE_MIB", "1024").env("DEEPUM_GPU_BUDGET", "64MiB").env("DEEPUM_HOST_BUDGET", "96MiB");
    });
    // 1.5 times what may be filled, however much host memory there is.
    let said = passes("limit", |c| {
        c.env("FAKE_MIB", "64").env("DEEPUM_HOST_BUDGET", "1GiB").env("DEEPUM_MAX_OVERSUBSCRIPTION", "1.5");
    });
    assert!(said.contains("more than 1.50 times"), "{said}");
    // What fits on the GPU needs no host.
    passes("limit", |c| {
        c.env("FAKE_MIB", "96").env("DEEPUM_HOST_BUDGET", "32MiB");
    });
}

#[test]
fn every_look_up_is_answered_from_the_table() {
    passes("doors", plainly);
}

#[test]
fn a_second_interposer_sees_each_call_once() {
    passes("chain", |c| {
        c.env("LD_PRELOAD", format!("{} {}", library().display(), programs().join("libnext.so").display()));
    });
}

#[test]
fn errno_is_the_programs() {
    passes("errno", plainly);
    // Also where there is something to say and nowhere to say it.
    let mut shell = preloaded("sh");
    shell.args(["-c", "exec \"$0\" 2>&-"]).arg(programs().join("errno")).env("DEEPUM_POLICY", "lru");
    assert!(shell.status().unwrap().success());
    let (_, nobody_reads) = std::io::pipe().unwrap();
    let mut program = preloaded(programs().join("errno"));
    program.env("DEEPUM_POLICY", "lru").stderr(nobody_reads);
    let status = program.status().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn forked_children_are_on_their_own() {
    passes("fork", plainly);
}

#[test]
fn a_runtime_opened_late_and_locally_is_found() {
    passes("late", plainly);
}

#[test]
fn threads_launch_and_allocate_at_once() {
    passes("threads", plainly);
}

/// Of eight threads at once each launch is there, and how long it took by its stream's progress word: as on a GPU, where nobody says what it touched.
#[test]
fn what_threads_do_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.trace");
    passes("threads", |c| {
        c.env("DEEPUM_RECORD", &path);
    });
    let reader = Reader::new(BufReader::new(File::open(&path).unwrap())).unwrap();
    assert_eq!(reader.header().budget.0, 1 << 30);
    let (mut launches, mut timed, mut allocations) = (0u64, BTreeSet::new(), (0, 0));
    for record in reader {
        match record.unwrap().event {
            Event::Launch(_) => launches += 1,
            Event::Time { launch, .. } => assert!(timed.insert(launch.0) && launch.0 <= launches),
            Event::Alloc { .. } => allocations.0 += 1,
            Event::Free { .. } => allocations.1 += 1,
            Event::Touched { .. } | Event::Lost { .. } => panic!("nobody could know, and there is room for all"),
            _ => {}
        }
    }
    assert_eq!((launches, timed.len() as u64, allocations), (16_001, 16_001, (160, 160)));
}

#[test]
fn the_end_of_the_program_is_quiet() {
    for _ in 0..5 {
        passes("exit", plainly);
    }
}

#[test]
fn a_launch_left_by_longjmp_leaves_no_trace() {
    passes("longjmp", plainly);
}

#[test]
fn a_library_that_is_not_there_gives_its_own_error() {
    assert_eq!(passes("missing", plainly), "");
}

#[test]
fn communication_libraries_keep_device_memory() {
    passes("nccl", plainly);
}

#[test]
fn pytorch_keeps_its_own_accounts() {
    passes("torch_blocks", plainly);
}

#[test]
fn what_is_handed_out_is_held_and_what_may_run_is_known() {
    let said = passes("hand_outs", plainly);
    assert_eq!(said.matches("reset a GPU").count(), 1, "{said}");
}

#[test]
fn off_is_a_true_no_op() {
    let quiet = passes("off", |c| {
        c.arg("never").env("DEEPUM", "0").env("DEEPUM_POLCY", "x");
    });
    assert_eq!(quiet, "");
}

#[test]
fn a_gpu_that_cannot_fault_or_has_no_memory_of_its_own_turns_it_off_with_one_line() {
    for (ill, word) in
        [("FAKE_NO_CONCURRENT", "concurrentManagedAccess"), ("FAKE_INTEGRATED", "shares the host's memory")]
    {
        let said = passes("off", |c| {
            c.env(ill, "1");
        });
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn a_bad_variable_costs_one_line_at_the_first_cuda_call() {
    let said = passes("nccl", |c| {
        c.env("DEEPUM_POLICY", "lru").env("DEEPUM_BUGET", "1");
    });
    assert_eq!(said.matches("DEEPUM_POLICY=lru is not allowed").count(), 1, "{said}");
    assert_eq!(said.matches("did you mean DEEPUM_").count(), 1, "{said}");
}

/// Programs that have nothing to do with CUDA run as if we were not there: same output, same threads and open files, no word of
/// ours, also with a variable that would be complained about.
#[test]
fn programs_without_cuda_do_not_notice() {
    const COMPILE: &str = "echo 'int x;' | gcc -x c -S -o - -";
    const LOOK: &str = "import os, subprocess; print(os.listdir('/proc/self/fd'), \
                        len(os.listdir('/proc/self/task')), subprocess.run(['true']))";
    for words in [&["ls", "/"][..], &["true"], &["sh", "-c", COMPILE], &["python3", "-c", LOOK]] {
        let plain = Command::new(words[0]).args(&words[1..]).output().unwrap();
        let under = preloaded(words[0]).args(&words[1..]).env("DEEPUM_POLCY", "x").output().unwrap();
        assert_eq!(plain, under, "{words:?}");
    }
}

/// What the library exports is the table, `dlsym`, and what programs may tell us, and nothing else.
#[test]
fn the_export_list_is_the_table() {
    let nm = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().unwrap();
    let mut exported: Vec<String> = String::from_utf8(nm.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| line.split_whitespace().last().map(str::to_owned))
        .collect();
    exported.sort();
    // A row is `kind Lib since name(`, of copies `copy Lib since [name, twin](`; the macro that makes the export is the one that
    // makes the table.
    let read = |file: &str| std::fs::read_to_string(format!("{}/src/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let mut table: Vec<String> = (read("symbols.rs") + &read("symbols/copies.rs") + &read("symbols/graphs.rs"))
        .lines()
        .filter_map(|line| {
            let mut words = line.trim_start().splitn(4, ' ');
            let kind = words.next()?;
            let names = words.nth(2)?.split('(').next()?.trim_matches(['[', ']']);
            let names = names.split(", ").map(str::to_owned).collect::<Vec<_>>();
            ["watch", "free", "replace", "look_up", "replace_by_caller", "copy"].contains(&kind).then_some(names)
        })
        .flatten()
        .chain(["dlsym".to_owned(), "deepumIteration".to_owned()])
        .collect();
    table.sort();
    assert!(table.len() > 200);
    assert_eq!(exported, table);
}
