//! `deepum replay --table`: G10's Figures 11 and 15 (MICRO'23), as in life and in the world they were published from, side by side.
//!
//! `manifest` says which profiles, on what, and what was published; this replays them, several profiles at a time; `document` writes the tables.

mod document;
mod manifest;

use super::compat::{Compat, Mistake};
use super::life::{Life, Ready};
use super::policy::Policy;
use super::row::Row;
use super::trace::Trace;
use crate::progress::Progress;
use crate::say::say;
use crate::source::{commit, repository};
use anyhow::{Context, Result};
use clap::ValueEnum;
use deepum_core::policy::PolicyName;
use deepum_sim::published::World;
use deepum_trace::g10::{G10Name, Profile};
use document::FOLLOWED;
use manifest::Manifest;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The document, in the source tree.
const DOCUMENT: &str = "docs/results/g10-traces.md";

/// What came of a profile.
pub struct Point {
    name: G10Name,
    life: Vec<Row>,
    /// `horizon`, where the driver keeps no second copies of blocks. Only for Figure 11.
    one_copy: Option<Row>,
    /// With less host memory, if more lives at a time than that and the GPU have room for.
    spilled: Option<Vec<Row>>,
    compat: Vec<Row>,
    /// In the published world with all put right, and then less and less of it: rows by policy, of those that are followed. Only for Figure 11.
    steps: Vec<Vec<Row>>,
}

/// What is replayed.
struct Work {
    /// With host memory for everything, the same with one copy of a block, and with less host memory.
    machines: [Life; 3],
    /// Iterations that plans are carried out on.
    planned: u32,
    in_life: Vec<Policy>,
    in_compat: Vec<Policy>,
    /// Each with whether it is one of Figure 11; those that take longest first.
    points: Vec<(G10Name, bool)>,
}

impl Work {
    fn new(manifest: &Manifest, folder: &Path) -> Result<Self> {
        let mut points = Vec::new();
        for network in &manifest.networks {
            for batch in network.batches() {
                let name = network.profile(folder, batch)?;
                points.push((network.work(batch), name, batch == network.figure_11));
            }
        }
        points.sort_by_key(|(work, ..)| std::cmp::Reverse(*work));
        Ok(Self {
            machines: manifest.machines()?,
            planned: manifest.planned_iterations,
            in_life: manifest.in_life()?,
            in_compat: manifest.in_compat()?,
            points: points.into_iter().map(|(_, name, is)| (name, is)).collect(),
        })
    }

    fn point(&self, (name, of_figure_11): &(G10Name, bool)) -> Result<Point> {
        let mut quiet = |_: &str| ();
        let mut rows = |ready: &Ready<'_>| self.in_life.iter().map(|policy| ready.row(*policy, &mut quiet)).collect();
        let [machine, one_copy, small] = &self.machines;
        let trace = Trace::G10(name.clone());
        let ready = machine.ready(&trace, &mut |_| ())?.with_plans_on(&trace, self.planned)?;
        let life = rows(&ready);
        let ready = ready.on(one_copy);
        let one_copy = of_figure_11.then(|| ready.row(Policy::Core(PolicyName::Horizon), &mut |_| ()));
        let spilled = (!small.has_room_for(&ready)).then(|| rows(&ready.on(small)));
        let profile = Profile::read(name)?;
        let played = |right: &[Mistake], is_played: fn(&Policy) -> bool| -> Vec<Row> {
            let compat = Compat::new(&World::PUBLISHED, right);
            self.in_compat
                .iter()
                .filter(|policy| is_played(policy))
                .map(|policy| compat.row(&profile, *policy))
                .collect()
        };
        let is_followed = |policy: &Policy| FOLLOWED.iter().any(|(followed, _)| *followed == policy.to_string());
        let mistakes = Mistake::value_variants();
        let froms = (0..mistakes.len()).filter(|_| *of_figure_11);
        let steps = froms.map(|from| played(&mistakes[from..], is_followed)).collect();
        Ok(Point { name: name.clone(), life, one_copy, spilled, compat: played(&[], |_| true), steps })
    }
}

/// Replays all profiles of the manifest that are in `folder`, `jobs` at a time, and writes the document.
pub fn figures(folder: &Path, jobs: usize, document: Option<&Path>) -> Result<ExitCode> {
    let root = repository()?;
    let manifest = Manifest::read(&root.join("benches/g10/manifest.toml"))?;
    let work = Work::new(&manifest, folder)?;
    let began = Instant::now();
    let points = carry_out(&work, jobs)?;
    let setting = document::Setting { commit: commit(&root), jobs, took: began.elapsed() };
    let path = document.map_or_else(|| root.join(DOCUMENT), Path::to_owned);
    let text = document::document(&manifest, &points, &setting);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    say(&format!("{} profiles replayed in {} s; written: {}\n", points.len(), setting.took.as_secs(), path.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn carry_out(work: &Work, jobs: usize) -> Result<Vec<Point>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let worker = || {
        while let Some(point) = work.points.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = work.point(point);
            // One that cannot be read ends it all: the document is of all of them.
            if result.is_err() {
                next.store(work.points.len(), Ordering::Relaxed);
            }
            done.lock().expect("no panic holds it").push(result);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
        let mut progress = Progress::new();
        while !workers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(100));
            let count = done.lock().expect("no panic holds it").len();
            progress.say(&format!("{count} of {} profiles done", work.points.len()));
        }
    });
    done.into_inner().expect("no thread is left").into_iter().collect()
}
