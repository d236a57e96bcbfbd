//! Small programs that must behave the same with and without the shim.
//!
//! Every `programs/same/NAME.c` is a program, every `lib*.c` there a library that some of them open. Those that use the runtime are
//! compiled against that of CUDA 13 and that of CUDA 12. Each runs on the emulated device in data mode in every [`Way`]; the truth is the program
//! without the shim. What it prints, how it ends and what is said on stderr must be equal, but for the lines that [`Special`] expects of the shim.
//! `scripts/gpu-check` runs the same programs on a GPU.
//!
//!     cargo test --release -p deepum-tests same::        ONLY=fork,spawn: those whose names contain one of these

use deepum_emu_device::log::FlightLog;
use deepum_tests::{Driver, deepum, on_this_driver, root};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How a program is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// The shim is not preloaded: the truth.
    Without,
    /// `DEEPUM=0`.
    Off,
    /// On a device with room for everything.
    Asleep,
    /// On a device of 8 MiB, which most of the programs do not fit.
    Tight,
    /// The same, where blocks leave unmapped, and calls wait for what comes.
    Unmapped,
    /// The same, by an engine that nobody runs.
    NoDaemon,
}

const WAYS: [Way; 6] = [Way::Without, Way::Off, Way::Asleep, Way::Tight, Way::Unmapped, Way::NoDaemon];

impl Way {
    /// Whether the shim does anything.
    const fn is_helped(self) -> bool {
        !matches!(self, Self::Without | Self::Off)
    }
}

/// What a program needs beyond the others: lines `//! gpus: 2`, `//! preload: NAME` (a library of the folder, behind the shim), `//! says: TEXT` (part of a line that
/// the shim must say, once), `//! may say: TEXT` (whether it is said depends on how far other threads have come) and `//! forgets: WHY` (part of it has an engine
/// whatever our variables say) at its beginning.
#[derive(Clone, Debug, Default)]
struct Special {
    gpus: Option<String>,
    preload: Option<String>,
    says: Vec<String>,
    may_say: Vec<String>,
    forgets: bool,
}

impl Special {
    fn of(source: &str) -> Self {
        let mut special = Self::default();
        for line in source.lines().map_while(|line| line.strip_prefix("//! ")) {
            match line.split_once(": ") {
                Some(("gpus", number)) => special.gpus = Some(number.to_owned()),
                Some(("preload", library)) => special.preload = Some(library.to_owned()),
                Some(("says", text)) => special.says.push(text.to_owned()),
                Some(("forgets", _)) => special.forgets = true,
                // Here each has a device of its own.
                Some(("alone", _)) => {}
                Some(("may say", text)) => special.may_say.push(text.to_owned()),
                _ => panic!("unknown line {line:?}"),
            }
        }
        special
    }
}

/// One compiled program.
#[derive(Clone, Debug)]
struct Program {
    name: String,
    cuda: u32,
    path: PathBuf,
    special: Special,
}

/// What is compared.
#[derive(PartialEq, Eq, Debug)]
struct Outcome {
    status: ExitStatus,
    out: String,
    err: String,
}

/// Everything compiled, in a folder for each runtime.
struct Bench {
    folder: tempfile::TempDir,
    programs: Vec<Program>,
}

fn sources() -> PathBuf {
    root().join("tests/programs/same")
}

/// As many at a time as there are processors.
fn at_once<T: Sync>(all: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let worker = || {
        while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(one);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(worker);
        }
    });
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let only = std::env::var("ONLY").unwrap_or_default();
        let mut sources: Vec<_> = fs::read_dir(sources())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "c"))
            .collect();
        sources.sort();
        // (source, runtime, what it becomes)
        let mut jobs: Vec<(PathBuf, u32, PathBuf)> = Vec::new();
        let mut programs = Vec::new();
        for cuda in [13, 12] {
            let at = folder.path().join(cuda.to_string());
            fs::create_dir(&at).unwrap();
            for (name, library) in [
                (format!("libcudart.so.{cuda}"), "libdeepum_emu_cudart.so"),
                ("libcuda.so.1".to_owned(), "libdeepum_emu_cuda.so"),
            ] {
                symlink(root().join("target/release").join(library), at.join(name)).unwrap();
            }
            for source in &sources {
                let name = source.file_stem().unwrap().to_str().unwrap().to_owned();
                let text = fs::read_to_string(source).unwrap();
                if name.starts_with("lib") {
                    jobs.push((source.clone(), cuda, at.join(format!("{name}.so"))));
                } else if (cuda == 13
                    || text.contains("runtime.h")
                    || text.contains("libcudart")
                    || text.contains("libworker"))
                    && only.split(',').any(|part| name.contains(part))
                {
                    let path = at.join(&name);
                    jobs.push((source.clone(), cuda, path.clone()));
                    programs.push(Program { name, cuda, path, special: Special::of(&text) });
                }
            }
        }
        at_once(&jobs, |(source, cuda, out)| compile(source, *cuda, out));
        Self { folder, programs }
    }

    /// Runs one to its end. `number` is a name for its files.
    fn run(&self, program: &Program, way: Way, number: usize) -> (Outcome, Option<FlightLog>) {
        let file = |what: &str| self.folder.path().join(format!("{number}.{what}"));
        let special = &program.special;
        let gpus = special.gpus.as_ref().map_or(String::new(), |number| format!(",devices={number}"));
        let memory = if way.is_helped() && way != Way::Asleep { ",memory=8MiB" } else { "" };
        let gpu = on_this_driver(&format!("emu:a100-40g:data=1{memory}{gpus}"));
        let beside = program.path.parent().unwrap();
        let mut command = Command::new(deepum());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DEEPUM")) {
            command.env_remove(name);
        }
        // The shim is the first of what is preloaded.
        let ours = if way == Way::Without { "${LD_PRELOAD#*:}" } else { "$LD_PRELOAD" };
        let more = special.preload.as_ref().map_or(String::new(), |name| format!(":{}", beside.join(name).display()));
        command.args(["run", "--gpu", &gpu, "--", "sh", "-c", &format!(r#"LD_PRELOAD="{ours}{more}" exec "$0""#)]);
        command.arg(&program.path).env("DEEPUM_EMU_LOG", file("log"));
        match way {
            Way::Off => command.env("DEEPUM", "0"),
            Way::Unmapped => command.env("DEEPUM_LEAVE", "unmapped").env("DEEPUM_AWAIT", "call"),
            Way::NoDaemon => command.env("DEEPUM_ENGINE", format!("daemon:{}", file("socket").display())),
            Way::Without | Way::Asleep | Way::Tight => &mut command,
        };
        let (out, err) = (file("out"), file("err"));
        command.stdin(Stdio::null()).stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        let mut child = command.spawn().unwrap();
        let since = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if since.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        (Outcome { status, out: read(&out), err: read(&err) }, FlightLog::open(&file("log")).ok())
    }
}

/// Compiles one of them, a library where the name says so.
fn compile(source: &Path, cuda: u32, out: &Path) {
    let at = out.parent().unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu17", "-O1", "-Wall", "-Wextra", "-Werror", &format!("-DCUDA={cuda}"), "-o"])
        .arg(out)
        .arg(source);
    if out.extension().is_some() {
        gcc.args(["-shared", "-fPIC"]);
    } else if fs::read_to_string(source).unwrap().contains("runtime.h") {
        gcc.arg(root().join("tests/programs/data_mode_kernels.c"));
    }
    gcc.arg("-L").arg(at).args(["-Wl,--as-needed", "-Wl,--allow-shlib-undefined", "-lm"]);
    gcc.args([format!("-l:libcudart.so.{cuda}"), "-l:libcuda.so.1".to_owned(), format!("-Wl,-rpath,{}", at.display())]);
    let done = gcc.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Takes the shim's expected lines out of what a program said; what is wrong with them, if anything.
fn take_expected(program: &Program, way: Way, outcome: &mut Outcome) -> Option<String> {
    let Special { says, may_say, forgets, .. } = &program.special;
    // Each process that has an engine says it.
    if *forgets && way != Way::Without || way.is_helped() && way != Way::NoDaemon {
        let driver = Driver::here();
        outcome.err = outcome.err.split_inclusive('\n').filter(|line| !driver.is_about(line)).collect();
    }
    if !way.is_helped() {
        return None;
    }
    let count =
        |part: &str| outcome.err.lines().filter(|line| line.starts_with("deepum: ") && line.contains(part)).count();
    let wrong = says
        .iter()
        .any(|part| count(part) != 1)
        .then(|| format!("the shim is to say {says:?}, each once: {}", outcome.err));
    // That nobody answers is said from a thread of its own, which a short program may not live to see.
    let nobody = |line: &str| way == Way::NoDaemon && line.starts_with("deepum: no deepumd: ");
    let known = |line: &str| says.iter().chain(may_say).any(|part| line.contains(part)) || nobody(line);
    outcome.err = outcome.err.split_inclusive('\n').filter(|line| !known(line)).collect();
    wrong
}

fn difference(truth: &str, have: &str) -> String {
    let (left, right): (Vec<_>, Vec<_>) = (truth.lines().collect(), have.lines().collect());
    let at = left.iter().zip(&right).take_while(|(a, b)| a == b).count();
    format!("line {}: {:?}, not {:?} ({} lines, not {})", at + 1, right.get(at), left.get(at), right.len(), left.len())
}

#[test]
fn programs_behave_the_same() {
    let bench = Bench::new();
    let number = AtomicUsize::new(0);
    let wrong = Mutex::new(String::new());
    let evicted = Mutex::new(Vec::new());
    let differing = AtomicUsize::new(0);
    // Those that say what the driver lacks, if anything.
    let told = AtomicUsize::new(0);
    at_once(&bench.programs, |program| {
        let run = |way| bench.run(program, way, number.fetch_add(1, Ordering::Relaxed));
        let (mut truth, mut mapped) = (None, 0);
        for way in WAYS {
            let (mut have, log) = run(way);
            let moved = log.as_ref().is_some_and(|log| log.totals.d2h_eviction + log.totals.d2h_user > 0);
            let driver_said = Driver::here().says.iter().all(|part| have.err.contains(part));
            let mut problems = Vec::from_iter(take_expected(program, way, &mut have));
            let Some(truth) = &truth else {
                if have.out.is_empty() || have.status.code() == Some(90) || have.err.contains("data_mode_kernels") {
                    let text = format!("{}, CUDA {}: no truth: {have:#?}\n", program.name, program.cuda);
                    wrong.lock().unwrap().push_str(&text);
                }
                truth = Some(have);
                continue;
            };
            if have.status != truth.status {
                problems.push(format!("ends with {}, not {}", have.status, truth.status));
            }
            if have.out != truth.out {
                problems.push(format!("prints {}", difference(&truth.out, &have.out)));
            }
            if have.err != truth.err {
                problems.push(format!("says {}", difference(&truth.err, &have.err)));
            }
            for problem in problems {
                writeln!(wrong.lock().unwrap(), "{}, CUDA {}, {way:?}: {problem}", program.name, program.cuda).unwrap();
            }
            let took = log.as_ref().map_or(0, |log| log.totals.virtual_ns);
            match way {
                Way::Tight => mapped = took,
                // What is not entered into the host's page tables takes another time, so the way has an effect.
                Way::Unmapped if took != mapped => _ = differing.fetch_add(1, Ordering::Relaxed),
                _ => {}
            }
            if way == Way::Tight && driver_said {
                told.fetch_add(1, Ordering::Relaxed);
            }
            if way == Way::Tight && moved {
                evicted.lock().unwrap().push(program.name.clone());
            }
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "\n{wrong}");
    let mut evicted = evicted.into_inner().unwrap();
    evicted.sort();
    evicted.dedup();
    println!(
        "{} programs; on the tight device these had to leave some of their memory: {evicted:?}",
        bench.programs.len()
    );
    if std::env::var_os("ONLY").is_none() {
        assert!(evicted.len() >= 25, "{evicted:?}");
        let told = told.into_inner();
        assert!(told >= 25, "{told} programs say {:?}", Driver::here().says);
        let differing = differing.into_inner();
        assert!(differing >= 25, "{differing} programs take another time where blocks leave unmapped");
    }
}
