//! Programs with results on the emulated device in data mode, run in several ways on the same seeds.
//!
//! Such a program takes a first seed and a count and prints one line per seed: the seed, a digest of what it computed, and how many
//! of its 1000th parts were finite numbers. `docs/data-mode.md` says which programs and ways there are.

use crate::{Driver, deepum, in_turn, root};
use deepum_emu_device::log::{FlightLog, Totals};
use deepum_protocol::status::Status;
use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Seeds of one process: tables and addresses outlive a seed, as in a long program.
const CHUNK: u64 = 10;
/// More requests of the storm than one process lives to see.
const ENDLESS: u64 = 1 << 40;

/// One way of running a program.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// What it is called.
    pub name: &'static str,
    /// The device, as `--gpu` says it after `emu:`, without the driver.
    pub gpu: &'static str,
    /// The drivers played, in turn, unless `TEST_DRIVER` asks for one.
    pub drivers: &'static [&'static str],
    /// Environment variables.
    pub env: &'static [(&'static str, &'static str)],
    /// Whether somebody asks for random migrations meanwhile.
    pub storm: bool,
    /// Part of the line that each of the moving threads may say once on stderr, and one of them must; if any.
    pub says: Option<&'static str>,
    /// It runs one in so many tens of seeds.
    pub every: u64,
}

impl Way {
    /// With `THIN=N`, the ways after the second run one in `N` times as many tens of seeds, for long runs.
    fn thinned(self, at: usize) -> Self {
        let thin = if at < 2 { 1 } else { number("THIN", 1) };
        Self { every: self.every * thin, ..self }
    }
}

/// The program and the storm, compiled.
#[derive(Debug)]
pub struct Bench {
    folder: tempfile::TempDir,
    program: &'static str,
    made: AtomicU64,
}

/// What one process left.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// A line per seed.
    pub lines: Vec<String>,
    /// The device's account.
    pub totals: Totals,
    /// What it ran on.
    pub driver: Driver,
    /// Migrations the driver granted to the storm.
    pub storm: u64,
    /// What the engine said of itself at the end; only of programs that ask.
    pub status: Option<Status>,
}

impl Bench {
    /// Compiles `tests/programs/PROGRAM.c` with these other sources.
    pub fn new(program: &'static str, sources: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // A program is linked against the runtime's name; which library that is, is decided when it starts.
        let runtime = root().join("target/release/libdeepum_emu_cudart.so");
        std::os::unix::fs::symlink(runtime, folder.path().join("libcudart.so.13")).expect("a link");
        let bench = Self { folder, program, made: AtomicU64::new(0) };
        bench.compile("libc10.so", &["libc10.c"], &["-shared", "-fPIC", "-Wl,-soname,libc10.so"]);
        let beside = format!("-Wl,-rpath,{}", bench.folder.path().display());
        let links = [
            "-l:libcudart.so.13",
            "-Wl,--no-as-needed",
            "-l:libc10.so",
            &beside,
            "-Wl,--allow-shlib-undefined",
            "-lpthread",
        ];
        bench.compile(program, sources, &links);
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
    pub fn run(&self, way: Way, first: u64, count: u64) -> Outcome {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let (log, status) = (self.path(&format!("{number}.log")), self.path(&format!("{number}.json")));
        let drivers = in_turn(way.drivers);
        let turn = usize::try_from(first / CHUNK).expect("a small number") % drivers.len();
        let gpu = format!("emu:{},{}", way.gpu, drivers[turn]);
        let off = way.env.contains(&("DEEPUM", "0"));
        let driver = match Driver::of(&gpu) {
            driver if off => driver.unheard(),
            driver if way.env.contains(&("DEEPUM_COPIES", "2")) => driver.of_copies(),
            driver => driver,
        };
        let mut command = Command::new(deepum());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DEEPUM")) {
            command.env_remove(name);
        }
        command.args(["run", "--gpu", &gpu, "--"]);
        if way.storm {
            // In front of the shim: the program's calls pass it first.
            command.args(["sh", "-c", r#"LD_PRELOAD="$0:$LD_PRELOAD" exec "$@""#]);
            command.arg(self.path("libstorm.so")).env("STORM", format!("{first},{ENDLESS}"));
        }
        let ask = "env -u LD_PRELOAD -u LD_LIBRARY_PATH \"$TO_ASK\" status --json $PPID > \"$STATUS\"";
        if !off {
            command.env("AT_END", ask).env("TO_ASK", deepum()).env("STATUS", &status);
        }
        command.arg(self.path(self.program)).args([first.to_string(), count.to_string()]);
        command.env("DEEPUM_EMU_LOG", &log).envs(way.env.iter().copied());
        let output = command.output().expect("the deepum executable starts");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let seeds = format!("{}, seeds {first} to {}", way.name, first + count - 1);
        assert!(output.status.success(), "{seeds}: {}\n{err}", output.status);
        let said = driver.said(&output.stderr);
        let (storms, said): (Vec<String>, Vec<String>) = said.into_iter().partition(|line| line.starts_with("storm: "));
        let expected = match way.says {
            None => said.is_empty(),
            Some(part) => said.len() == 1 && said[0].contains(part),
        };
        assert!(expected, "{seeds}: want {:?} on stderr, have\n{err}", way.says);
        let granted =
            |line: &String| line.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number of migrations");
        Outcome {
            lines: out.lines().map(str::to_owned).collect(),
            totals: totals(&log),
            driver,
            storm: storms.first().map_or(0, granted),
            status: asked(&status),
        }
    }

    /// Every way on these seeds, as many processes at a time as there are processors; outcomes by way, then by chunk.
    pub fn run_all(&self, ways: &[Way], seeds: Range<u64>) -> Outcomes {
        let chunks: Vec<u64> = seeds.clone().step_by(usize::try_from(CHUNK).expect("small")).collect();
        let jobs: Vec<(usize, u64)> =
            chunks.iter().flat_map(|&first| (0..ways.len()).map(move |way| (way, first))).collect();
        let ways: Vec<Way> = ways.iter().enumerate().map(|(at, way)| way.thinned(at)).collect();
        let jobs: Vec<_> =
            jobs.into_iter().filter(|&(way, first)| (first / CHUNK).is_multiple_of(ways[way].every)).collect();
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        let worker = || {
            while let Some(&(way, first)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let outcome = self.run(ways[way], first, CHUNK.min(seeds.end - first));
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
        let mut by_way = vec![Vec::new(); ways.len()];
        for (way, _, outcome) in done {
            by_way[way].push(outcome);
        }
        Outcomes { ways, by_way, seeds }
    }
}

fn totals(log: &Path) -> Totals {
    let totals = FlightLog::open(log).expect("the device keeps a flight log").totals;
    std::fs::remove_file(log).expect("the flight log is ours");
    totals
}

/// What a program was told of itself; nothing where DeepUM is off.
fn asked(status: &Path) -> Option<Status> {
    let all: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(status).ok()?).ok()?;
    Status::parse(&all["rows"][0].to_string()).ok()
}

/// All outcomes of [`Bench::run_all`]; the first way is the truth.
#[derive(Debug)]
pub struct Outcomes {
    ways: Vec<Way>,
    by_way: Vec<Vec<Outcome>>,
    seeds: Range<u64>,
}

impl Outcomes {
    /// Of one way.
    pub fn of(&self, name: &str) -> &[Outcome] {
        &self.by_way[self.ways.iter().position(|way| way.name == name).expect("a way")]
    }

    /// Whether any of the drivers that a way ran on can do this.
    pub fn can(&self, name: &str, what: fn(&Driver) -> bool) -> bool {
        self.of(name).iter().any(|outcome| what(&outcome.driver))
    }

    /// A figure of the device, over all processes of a way.
    pub fn sum(&self, name: &str, field: fn(&Totals) -> u64) -> u64 {
        self.of(name).iter().map(|outcome| field(&outcome.totals)).sum()
    }

    /// A counter of the engine, over all processes of a way.
    pub fn counted(&self, name: &str, counter: &str) -> u64 {
        let of = |outcome: &Outcome| {
            let status = outcome.status.as_ref().expect("the program asked for its status");
            *status.counters.get(counter).unwrap_or_else(|| panic!("no counter {counter}"))
        };
        self.of(name).iter().map(of).sum()
    }

    /// The truth is worth comparing with: every seed has a result of its own, of numbers, and nothing had to move. All other ways have
    /// the same results, and moved.
    pub fn assert_same_results(&self, memory: u64) {
        let lines = |way: usize| self.by_way[way].iter().flat_map(|outcome| &outcome.lines);
        let truth: Vec<&String> = lines(0).collect();
        assert_eq!(truth.len() as u64, self.seeds.end - self.seeds.start);
        let mut digests = HashSet::new();
        for (seed, line) in self.seeds.clone().zip(&truth) {
            let words: Vec<&str> = line.split(' ').collect();
            assert!(words.len() == 3 && words[0] == seed.to_string() && digests.insert(words[1]), "{line}");
            assert!(words[2].parse::<u64>().is_ok_and(|finite| finite >= 990), "too few finite numbers: {line}");
        }
        assert_eq!(self.sum(self.ways[0].name, |t| t.d2h_eviction + t.h2d_user + t.d2h_user), 0);
        for (way, Way { name, every, .. }) in self.ways.iter().enumerate() {
            let want: Vec<_> = self
                .seeds
                .clone()
                .zip(&truth)
                .filter(|(seed, _)| (seed / CHUNK).is_multiple_of(*every))
                .map(|(_, line)| *line)
                .collect();
            let wrong: Vec<_> = want.iter().zip(lines(way)).filter(|(want, have)| **want != *have).collect();
            assert!(wrong.is_empty() && lines(way).count() == want.len(), "{name}, (off, {name}): {wrong:#?}");
        }
        for outcome in self.by_way.iter().skip(1).flatten() {
            assert!(outcome.totals.peak_managed > memory, "the memory would have fitted: {:?}", outcome.totals);
        }
        for (way, outcomes) in self.ways.iter().zip(&self.by_way) {
            let storm = outcomes.iter().map(|outcome| outcome.storm).sum::<u64>();
            assert_eq!(way.storm, storm > 0, "{}: {storm} migrations by the storm", way.name);
            println!("{}: {storm} migrations by the storm", way.name);
        }
    }
}

/// The seeds that the environment wants: the first `SEEDS=1000`, or `SEEDS=1000..3000`, so that a long run can be made in pieces.
pub fn seeds(unless_said: u64) -> Range<u64> {
    let Ok(said) = std::env::var("SEEDS") else { return 0..unless_said };
    let (first, end) = said.split_once("..").unwrap_or(("0", &said));
    match (first.parse::<u64>(), end.parse::<u64>()) {
        (Ok(first), Ok(end)) if first < end && first.is_multiple_of(CHUNK) => first..end,
        _ => panic!(
            "SEEDS={said} is neither a number above 0 nor FIRST..END with FIRST a multiple of {CHUNK}, below END"
        ),
    }
}

/// A number in the environment, above 0.
fn number(name: &str, unless_said: u64) -> u64 {
    let said = std::env::var(name).ok();
    let number = said.as_ref().map_or(Some(unless_said), |said| said.parse().ok().filter(|&number| number > 0));
    number.unwrap_or_else(|| panic!("{name}={} is not a number above 0", said.unwrap_or_default()))
}
