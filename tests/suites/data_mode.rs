//! Programs with real results give the same bits whatever DeepUM moves, and whatever anybody else moves meanwhile.
//!
//! `programs/data_mode.c`, an ordinary CUDA program, runs a random workload per seed on the emulated device in data mode,
//! where kernels compute, page moves carry real bytes, and a page that left a place is poisoned there. The truth is what it
//! prints with the shim off and more memory than it needs. Every other way of running it must print the same, on a device
//! that cannot hold its buffers. `docs/data-mode.md` says what is in a workload and how long the long form takes.
//!
//! `SEEDS=1000` runs a thousand seeds.

use deepum_emu_device::log::{FlightLog, Totals};
use deepum_tests::{deepum, root};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// More than any workload needs.
const ROOMY: &str = "v100-32g:data=1";
/// Less than any workload has in buffers; half of what most have.
const TIGHT: &str = "v100-32g:data=1,memory=16MiB";
/// The drivers played, in turn.
const DRIVERS: [&str; 4] = ["580", "560", "550", "535"];
/// Seeds of one process: tables and addresses outlive a seed, as in a long program.
const CHUNK: u64 = 10;
/// More requests of the storm than one process lives to see.
const ENDLESS: u64 = 1 << 40;

/// One way of running the program.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    gpu: &'static str,
    env: &'static [(&'static str, &'static str)],
    storm: bool,
    /// Part of the one line it is to say on stderr, if any.
    says: Option<&'static str>,
}

const OFF: Way = Way { name: "off", gpu: ROOMY, env: &[("DEEPUM", "0")], storm: false, says: None };
const DEEPUM: Way = Way { name: "deepum", gpu: TIGHT, env: &[("DEEPUM_POLICY", "deepum")], ..OFF };
const DEMAND: Way = Way { name: "demand", env: &[("DEEPUM_POLICY", "demand")], ..DEEPUM };
const NEXT_BLOCK: Way = Way { name: "next_block", env: &[("DEEPUM_POLICY", "next_block")], ..DEEPUM };
const BUDGET: Way = Way { name: "budget", env: &[("DEEPUM_GPU_BUDGET", "8MiB")], ..DEEPUM };
/// Every fifth migration fails, every seventh notice is lost, and all notices are late.
const UNLUCKY: Way = Way {
    name: "unlucky",
    gpu: "v100-32g:data=1,memory=16MiB,fail_migrate=5,drop_notices=7,late_us=40",
    says: Some("the driver goes on by itself where we fail"),
    ..DEEPUM
};
const DEMAND_STORM: Way = Way { name: "storm on demand", storm: true, ..DEMAND };
const DEEPUM_STORM: Way = Way { name: "storm on deepum", storm: true, ..DEEPUM };

const WAYS: [Way; 8] = [OFF, DEMAND, NEXT_BLOCK, DEEPUM, BUDGET, UNLUCKY, DEMAND_STORM, DEEPUM_STORM];

/// The program and the storm, compiled.
struct Bench {
    folder: tempfile::TempDir,
    made: AtomicU64,
}

/// What one process left.
#[derive(Clone, Debug)]
struct Outcome {
    /// A line per seed.
    lines: Vec<String>,
    totals: Totals,
    /// Migrations the driver granted to the storm.
    storm: u64,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // A program is linked against the runtime's name; which library that is, is decided when it starts.
        let runtime = root().join("target/release/libdeepum_emu_cudart.so");
        std::os::unix::fs::symlink(runtime, folder.path().join("libcudart.so.13")).expect("a link");
        let bench = Self { folder, made: AtomicU64::new(0) };
        bench.compile("libc10.so", &["libc10.c"], &["-shared", "-fPIC", "-Wl,-soname,libc10.so"]);
        let beside = format!("-Wl,-rpath,{}", bench.folder.path().display());
        bench.compile(
            "data_mode",
            &["data_mode.c", "data_mode_kernels.c"],
            &["-l:libcudart.so.13", "-l:libc10.so", &beside, "-Wl,--allow-shlib-undefined"],
        );
        bench.compile("libstorm.so", &["storm.c"], &["-shared", "-fPIC", "-ldl", "-lpthread"]);
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn compile(&self, out: &str, sources: &[&str], flags: &[&str]) {
        let programs = root().join("tests/programs");
        let done = Command::new("gcc")
            .args(["-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(self.path(out))
            .args(sources.iter().map(|source| programs.join(source)))
            .arg("-L")
            .arg(self.folder.path())
            .args(flags)
            .output()
            .expect("gcc");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Runs the program for `count` seeds from `first` on.
    fn run(&self, way: Way, first: u64, count: u64) -> Outcome {
        let log = self.path(&format!("{}.log", self.made.fetch_add(1, Ordering::Relaxed)));
        let driver = DRIVERS[usize::try_from(first / CHUNK).expect("a small number") % DRIVERS.len()];
        let mut command = Command::new(deepum());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DEEPUM")) {
            command.env_remove(name);
        }
        command.args(["run", "--gpu", &format!("emu:{},driver={driver}", way.gpu), "--"]);
        if way.storm {
            // In front of the shim: the program's calls pass it first.
            command.args(["sh", "-c", r#"LD_PRELOAD="$0:$LD_PRELOAD" exec "$@""#]);
            command.arg(self.path("libstorm.so")).env("STORM", format!("{first},{ENDLESS}"));
        }
        command.arg(self.path("data_mode")).args([first.to_string(), count.to_string()]);
        command.env("DEEPUM_EMU_LOG", &log).envs(way.env.iter().copied());
        let output = command.output().expect("the deepum executable starts");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let seeds = format!("{}, seeds {first} to {}", way.name, first + count - 1);
        assert!(output.status.success(), "{seeds}: {}\n{err}", output.status);
        let (storms, said): (Vec<&str>, Vec<&str>) = err.lines().partition(|line| line.starts_with("storm: "));
        let expected = match way.says {
            None => said.is_empty(),
            Some(part) => said.len() == 1 && said[0].contains(part),
        };
        assert!(expected, "{seeds}: want {:?} on stderr, have\n{err}", way.says);
        let granted =
            |line: &&str| line.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number of migrations");
        Outcome {
            lines: out.lines().map(str::to_owned).collect(),
            totals: totals(&log),
            storm: storms.first().map_or(0, granted),
        }
    }

    /// Every way on seeds `0..seeds`, as many processes at a time as there are processors; outcomes by way, then by chunk.
    fn run_all(&self, seeds: u64) -> Vec<Vec<Outcome>> {
        let chunks: Vec<u64> = (0..seeds).step_by(usize::try_from(CHUNK).expect("small")).collect();
        let jobs: Vec<(usize, u64)> =
            chunks.iter().flat_map(|&first| (0..WAYS.len()).map(move |way| (way, first))).collect();
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        let worker = || {
            while let Some(&(way, first)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let outcome = self.run(WAYS[way], first, CHUNK.min(seeds - first));
                done.lock().expect("no worker panics holding it").push((way, first, outcome));
            }
        };
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(worker);
            }
        });
        let mut done = done.into_inner().expect("every worker has ended");
        done.sort_by_key(|&(way, first, _)| (way, first));
        let mut by_way = vec![Vec::new(); WAYS.len()];
        for (way, _, outcome) in done {
            by_way[way].push(outcome);
        }
        by_way
    }
}

fn totals(log: &Path) -> Totals {
    let totals = FlightLog::open(log).expect("the device keeps a flight log").totals;
    std::fs::remove_file(log).expect("the flight log is ours");
    totals
}

#[test]
fn results_are_the_same_bits_whatever_moves() {
    let seeds = std::env::var("SEEDS").map_or(40, |n| n.parse().expect("SEEDS is a number"));
    let outcomes = Bench::new().run_all(seeds);
    let lines = |way: usize| outcomes[way].iter().flat_map(|outcome| &outcome.lines);
    let sum = |name: &str, field: fn(&Totals) -> u64| -> u64 {
        let way = WAYS.iter().position(|way| way.name == name).expect("a way");
        outcomes[way].iter().map(|outcome| field(&outcome.totals)).sum()
    };

    // The truth is worth comparing with: every seed has a result of its own, of numbers, and nothing had to move.
    let truth: Vec<&String> = lines(0).collect();
    assert_eq!(truth.len() as u64, seeds);
    let mut digests = HashSet::new();
    for (seed, line) in (0u64..).zip(&truth) {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words.len() == 3 && words[0] == seed.to_string() && digests.insert(words[1]), "{line}");
        assert!(words[2].parse::<u64>().is_ok_and(|finite| finite >= 990), "too few finite numbers: {line}");
    }
    assert_eq!(sum("off", |t| t.d2h_eviction + t.h2d_user + t.d2h_user), 0);

    for (way, Way { name, .. }) in WAYS.iter().enumerate() {
        let wrong: Vec<_> = truth.iter().zip(lines(way)).filter(|(want, have)| *want != have).collect();
        assert!(wrong.is_empty() && lines(way).count() == truth.len(), "{name}, (off, {name}): {wrong:#?}");
    }

    // Each way moved what it is there to move.
    for outcome in outcomes.iter().skip(1).flatten() {
        assert!(outcome.totals.peak_managed > 16 << 20, "the buffers would have fitted: {:?}", outcome.totals);
    }
    assert!(sum("demand", |t| t.d2h_eviction) > 0 && sum("demand", |t| t.h2d_user) == 0);
    assert!(sum("next_block", |t| t.h2d_user) > 0);
    assert!(sum("deepum", |t| t.h2d_user) > 0 && sum("deepum", |t| t.d2h_eviction) > 0);
    assert!(sum("budget", |t| t.d2h_user) > 0 && sum("budget", |t| t.h2d_user) > 0);
    // Driver 580 has the first seeds.
    assert!(sum("budget", |t| t.discarded) > 0, "nothing was given up");
    assert!(sum("unlucky", |t| t.notices_dropped) > 0 && sum("unlucky", |t| t.h2d_user) > 0);
    for (way, outcomes) in WAYS.iter().zip(&outcomes) {
        let storm = outcomes.iter().map(|outcome| outcome.storm).sum::<u64>();
        assert_eq!(way.storm, storm > 0, "{}: {storm} migrations by the storm", way.name);
        println!("{}: {storm} migrations by the storm", way.name);
    }
}

#[test]
fn the_same_seeds_take_the_same_virtual_time() {
    let bench = Bench::new();
    for way in [DEEPUM, BUDGET, UNLUCKY] {
        let [one, two] = [(); 2].map(|()| bench.run(way, 20, 5));
        assert_eq!((one.lines, one.totals), (two.lines, two.totals), "{}", way.name);
    }
}
