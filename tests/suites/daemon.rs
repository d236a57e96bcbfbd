//! Real PyTorch with its engine in `deepumd`: the same as with its own, and no worse than without one when that dies.

use deepum_protocol::programs::{Program, Programs, socket_beside};
use deepum_tests::{Run, Script, Started, Torch, root};
use deepum_trace::binary::Reader;
use deepum_trace::event::{Event, Record};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Far beyond anything that happens here; only a failure takes so long.
const FOREVER: Duration = Duration::from_secs(300);
/// Launches of one iteration, roughly.
const ITERATION: u64 = 250;

/// Waits for something that must become true.
#[track_caller]
fn until<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = holds() {
            return found;
        }
        assert!(start.elapsed() < FOREVER, "never happens: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A daemon that is killed where it goes out of scope.
struct Daemon(Child);

impl Daemon {
    fn start(socket: &Path) -> Self {
        Self::with(socket, &["--no-tables".as_ref()])
    }

    fn with(socket: &Path, words: &[&OsStr]) -> Self {
        let exe = root().join("target/release/deepumd");
        assert!(exe.is_file(), "{} is missing: run scripts/setup first", exe.display());
        let mut command = Command::new(exe);
        command.arg("--socket").arg(socket).args(words).stderr(Stdio::null());
        let daemon = Self(command.spawn().expect("deepumd starts"));
        until("deepumd answers", || programs(socket));
        daemon
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the daemon at `socket` tells, if one is there.
fn programs(socket: &Path) -> Option<Vec<Program>> {
    let mut stream = UnixStream::connect(socket_beside(socket)).ok()?;
    stream.write_all(b"{\"get\":\"programs\"}\n").ok()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    serde_json::from_str::<Programs>(&line).ok().map(|told| told.programs)
}

fn served(socket: &Path, program: &Started) -> Option<Program> {
    programs(socket)?.into_iter().find(|one| one.pid == program.pid())
}

/// GPT-2, small, needs about 600 MiB; the device has 400.
fn gpt2(iterations: &str) -> Script {
    let words = ["language_model.py", "gpt2", "--iterations", iterations];
    Script::new(Torch::Cu13, &words).gpu("emu:v100-32g:memory=400MiB")
}

fn in_daemon(script: &Script, socket: &Path) -> Script {
    script.clone().env("DEEPUM_ENGINE", &format!("daemon:{}", socket.display()))
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder for the socket");
    let socket = folder.path().join("deepumd.sock");
    (folder, socket)
}

fn stdout(run: &Run) -> String {
    String::from_utf8_lossy(&run.output.stdout).into_owned()
}

fn stderr(run: &Run) -> String {
    String::from_utf8_lossy(&run.output.stderr).into_owned()
}

/// Sums over all of a run.
const fn sums(run: &Run) -> [u64; 7] {
    let all = &run.device.totals;
    let moved = (all.h2d_user, all.d2h_user, all.d2h_eviction);
    [all.virtual_ns, all.settles, all.notices, all.fault_entries, moved.0, moved.1, moved.2]
}

/// PyTorch hands words to kernels that it has not written, and what those name is chance, if rarely. So whether one engine does what the
/// other does is seen in two runs that are the same in all: no chance makes them that.
#[test]
fn every_launch_starts_and_ends_at_the_same_instant_with_either_engine() {
    let (_folder, socket) = folder();
    let _daemon = Daemon::start(&socket);
    let mut others = Vec::new();
    for _ in 0..3 {
        // A daemon has no other way to await what comes.
        let own = gpt2("4").env("DEEPUM_AWAIT", "call").run();
        let theirs = in_daemon(&gpt2("4"), &socket).run();
        own.assert_clean();
        theirs.assert_clean();
        assert_eq!(stdout(&own), stdout(&theirs));
        assert!(own.device.totals.h2d_user > 0, "there was something to fetch");
        let mut launches = own.device.entries.iter().zip(&theirs.device.entries).enumerate();
        match launches.find(|(_, (own, theirs))| own != theirs) {
            Some(first) => others.push(first.0),
            None => return assert_eq!(sums(&own), sums(&theirs)),
        }
    }
    panic!("never the same; the first launches that differ: {others:?}");
}

#[test]
fn a_program_of_the_daemon_is_recorded_by_itself() {
    let (folder, socket) = folder();
    let _daemon = Daemon::start(&socket);
    let path = folder.path().join("run.trace");
    let run = in_daemon(&gpt2("3"), &socket).env("DEEPUM_RECORD", path.to_str().expect("UTF-8")).run();
    run.assert_clean();
    assert!(run.device.totals.h2d_user > 0, "the daemon's engine was awake");
    let reader = Reader::new(BufReader::new(File::open(&path).expect("the trace"))).expect("a trace");
    let records: Vec<Record> = reader.collect::<Result<_, _>>().expect("it is whole");
    let count = |of: fn(&Event) -> bool| records.iter().filter(|record| of(&record.event)).count() as u64;
    assert_eq!(count(|event| matches!(event, Event::Launch(_))), run.device.totals.launches);
    assert!(count(|event| matches!(event, Event::Touched { .. })) + 16 > run.device.totals.launches);
}

#[test]
fn what_one_program_learned_is_taken_over_by_the_next_one_whose_worker_is_another() {
    let (folder, socket) = folder();
    let tables = folder.path().join("tables");
    let _daemon = Daemon::with(&socket, &["--tables".as_ref(), folder.path().join("usual").as_os_str()]);
    let script = in_daemon(&gpt2("2"), &socket).env("DEEPUM_WORKLOAD", "gpt2");
    let script = script.env("DEEPUM_TABLES", tables.to_str().expect("a temporary folder has a plain name"));
    let [first, second] = [(), ()].map(|()| {
        let run = script.run();
        run.assert_clean();
        // Its worker saves when the program is gone.
        until("its tables are there", || tables.read_dir().ok()?.flatten().find(|file| is_tables(&file.path())));
        until("its worker has ended", || programs(&socket)?.is_empty().then_some(()));
        run
    });
    let counted = |run: &Run, counter| run.shim.as_ref().expect("a clean run has it").counters[counter];
    assert_eq!(counted(&first, "tables_taken_over"), 0);
    assert!(counted(&second, "tables_taken_over") > 100, "{:?}", second.shim);
    let (first, second) = (first.device.totals.fault_entries, second.device.totals.fault_entries);
    println!("{first} fault entries, then {second}");
    assert!(second < first, "{second} fault entries, and {first} the first time");
}

fn is_tables(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == "tables")
}

#[test]
fn without_a_daemon_it_is_plain_unified_memory_and_one_line() {
    let (_folder, socket) = folder();
    let alone = in_daemon(&gpt2("2"), &socket).without_status().run();
    assert!(alone.output.status.success(), "{}", stderr(&alone));
    let about: Vec<String> = stderr(&alone).lines().filter(|l| l.starts_with("deepum:")).map(str::to_owned).collect();
    assert_eq!(about.len(), 1, "{about:?}");
    assert!(
        about[0].contains(socket.to_str().expect("ASCII")) && about[0].contains("plain unified memory"),
        "{about:?}"
    );
    let totals = alone.device.totals;
    assert!(totals.h2d_user == 0 && totals.fault_entries > 0 && totals.launches == totals.launches_done, "{totals:?}");
}

#[test]
fn a_daemon_that_is_killed_changes_no_result() {
    let (_folder, socket) = folder();
    let daemon = Daemon::start(&socket);
    let mut program = in_daemon(&gpt2("12"), &socket).without_status().start();
    until("two iterations with an engine", || (program.totals().launches > 2 * ITERATION).then_some(()));
    assert!(!program.has_ended() && program.totals().h2d_user > 0);
    drop(daemon);
    let run = program.wait();
    assert!(run.output.status.success(), "{}", stderr(&run));
    assert!(stderr(&run).contains("is gone; the program runs as plain unified memory"), "{}", stderr(&run));
    assert_eq!(stdout(&run), stdout(&gpt2("12").without_status().run()));
}

#[test]
fn a_daemon_that_is_back_serves_again_and_a_program_that_is_killed_leaves_nothing() {
    let (_folder, socket) = folder();
    let mut daemon = Daemon::start(&socket);
    let mut program = in_daemon(&gpt2("1000000"), &socket).start();
    let mut attachment = 0;
    for _ in 0..3 {
        let fetched = program.totals().h2d_user;
        let now = until("it is served", || served(&socket, &program).filter(|now| now.attachment > attachment));
        attachment = now.attachment;
        until("it is fetched for", || (program.totals().h2d_user > fetched).then_some(()));
        drop(daemon);
        until("its worker is gone", || (!Path::new(&format!("/proc/{}", now.worker)).exists()).then_some(()));
        let launches = program.totals().launches;
        until("it goes on without", || (program.totals().launches > launches + 2 * ITERATION).then_some(()));
        daemon = Daemon::start(&socket);
    }
    assert!(!program.has_ended());
    let last = until("it is served", || served(&socket, &program));
    program.kill();
    until("its worker is gone", || (!Path::new(&format!("/proc/{}", last.worker)).exists()).then_some(()));
    until("it is forgotten", || programs(&socket).filter(Vec::is_empty));
    drop(daemon);
}
