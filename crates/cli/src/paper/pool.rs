//! Carries runs out, several at a time, and says how long that will still take.
//!
//! Jobs are taken longest first, so that the cores end together. One that fails is remembered and the others go on: an evaluation of
//! an hour is not lost to one row. Interrupted, the running programs are killed and what was measured stays.

use super::manifest::{Largest, Manifest};
use super::one::{Bench, Measured};
use super::plan::{Row, Section};
use super::run::{Mode, Run};
use super::search::{self, Found};
use super::store::Store;
use crate::progress::Progress;
use crate::rows::Outcome;
use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What a run in which nothing moves costs of one in which much does.
const UNMANAGED: f64 = 0.3;

/// What became of everything that was asked for.
#[derive(Debug, Default)]
pub struct Done {
    pub runs: BTreeMap<Run, Measured>,
    /// By row ID.
    pub largest: BTreeMap<String, Found>,
    /// What failed, and why: runs and searches.
    pub failures: Vec<String>,
    /// Runs that were made, not found in the folder.
    pub fresh: usize,
}

enum Job<'a> {
    Run(Run),
    Search(&'a Row, &'a Largest),
}

impl Job<'_> {
    /// Seconds it takes on an idle core, about: work grows with what moves.
    fn cost(&self, manifest: &Manifest) -> f64 {
        match self {
            Job::Run(run) => {
                let network = manifest.network(&run.network);
                let share = match run.mode {
                    Mode::Plain | Mode::Unlimited => UNMANAGED,
                    Mode::Demand | Mode::DeepUm | Mode::AsInPaper => {
                        f64::from(run.iterations) / f64::from(manifest.iterations(network))
                    }
                };
                network.seconds * share * f64::from(run.batch) / f64::from(network.batch.unwrap_or(run.batch))
            }
            Job::Search(row, _) => manifest.network(&row.network).search_seconds,
        }
    }
}

/// Seconds of work on idle cores that are left, about.
struct Left {
    /// Of the jobs that nobody has begun.
    waiting: f64,
    /// When the others began, and what they were to cost, by worker.
    running: BTreeMap<usize, (Instant, f64)>,
}

impl Left {
    fn begin(&mut self, worker: usize, cost: f64) {
        self.waiting -= cost;
        self.running.insert(worker, (Instant::now(), cost));
    }
    fn seconds(&self) -> f64 {
        let left = |(began, cost): &(Instant, f64)| (cost - began.elapsed().as_secs_f64()).max(0.0);
        self.waiting + self.running.values().map(left).sum::<f64>()
    }
}

/// Carries out what `rows` need and is not known.
pub fn carry_out(manifest: &Manifest, rows: &[Row], bench: &Bench<'_>, store: &Store, workers: usize) -> Result<Done> {
    let mut done = Done::default();
    let mut jobs = Vec::new();
    let mut wanted = BTreeSet::new();
    for row in rows {
        let table = match row.section {
            Section::Tab3 => manifest.tab3.as_ref(),
            Section::Tab7 => manifest.tab7.as_ref(),
            _ => None,
        };
        jobs.extend(table.map(|table| Job::Search(row, table)));
        for run in &row.runs {
            if !wanted.insert(run.clone()) {
                continue;
            }
            match store.get(run) {
                Some(known) => drop(done.runs.insert(run.clone(), known)),
                None => jobs.push(Job::Run(run.clone())),
            }
        }
    }
    jobs.sort_by(|a, b| b.cost(manifest).total_cmp(&a.cost(manifest)));
    let total: f64 = jobs.iter().map(|job| job.cost(manifest)).sum();
    let count = jobs.len();
    if count > 0 {
        let kept = done.runs.len();
        eprintln!(
            "deepum: {count} jobs, {workers} at a time, about {} on idle cores; {kept} runs are known already",
            spoken(total / workers as f64)
        );
    }

    let queue = Mutex::new(jobs.into_iter());
    let (done, left) = (Mutex::new(done), Mutex::new(Left { waiting: total, running: BTreeMap::new() }));
    let finished = AtomicUsize::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for worker in 0..workers.min(count) {
            let (queue, done, left, finished) = (&queue, &done, &left, &finished);
            scope.spawn(move || {
                loop {
                    if bench.interrupted.load(Ordering::Relaxed) {
                        break;
                    }
                    let Some(job) = queue.lock().expect("no panic holds it").next() else { break };
                    left.lock().expect("no panic holds it").begin(worker, job.cost(manifest));
                    let result = carry_out_one(&job, manifest, bench, store);
                    left.lock().expect("no panic holds it").running.remove(&worker);
                    finished.fetch_add(1, Ordering::Relaxed);
                    let mut done = done.lock().expect("no panic holds it");
                    match result {
                        Ok(one) => {
                            done.fresh += one.fresh;
                            done.runs.extend(one.runs);
                            done.largest.extend(one.largest);
                            done.failures.extend(one.failures);
                        }
                        Err(error) => done.failures.push(format!("{error:#}")),
                    }
                }
            });
        }
        let mut progress = Progress::new();
        while finished.load(Ordering::Relaxed) < count && !bench.interrupted.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(200));
            let left = left.lock().expect("no panic holds it").seconds();
            let elapsed = started.elapsed().as_secs_f64();
            // By the manifest's seconds at first, by this machine's speed once it shows.
            let (speed, on) = match total - left > 0.05 * total {
                true => ((total - left) / elapsed, ""),
                false => (workers as f64, " on idle cores"),
            };
            progress.say(&format!(
                "{} of {count} jobs done; about {} left{on}",
                finished.load(Ordering::Relaxed),
                spoken(left / speed)
            ));
        }
    });
    if bench.interrupted.load(Ordering::Relaxed) {
        bail!("interrupted; what was measured is kept, and the same command goes on from there");
    }
    let mut done = done.into_inner().expect("no thread is left");
    done.failures.sort();
    Ok(done)
}

fn carry_out_one(job: &Job<'_>, manifest: &Manifest, bench: &Bench<'_>, store: &Store) -> Result<Done> {
    let mut done = Done::default();
    match job {
        Job::Run(run) => {
            let measured = known_or_measured(run, bench, store, &mut done)?;
            if measured.outcome == Outcome::Failed {
                bail!("{}: {}", run.described(), measured.words);
            }
        }
        Job::Search(row, table) => {
            let network = manifest.network(&row.network);
            let room = super::host_memory(&table.device)? as f64;
            let first = network.first_guess().expect("the manifest was checked for one");
            let mut searched = |first: &[u32], run: &dyn Fn(u32) -> Result<Run>| {
                search::largest(network.step, first, room, &mut |batch| {
                    known_or_measured(&run(batch)?, bench, store, &mut done)
                })
            };
            // What the card on which nothing moves says is then tried on the device itself.
            let found = searched(&[first], &|batch| manifest.roomy_probe(network, table, batch)).and_then(|likely| {
                searched(&[likely.largest, likely.refused], &|batch| Ok(manifest.probe(network, table, batch)))
            });
            match found {
                Ok(found) => drop(done.largest.insert(row.id.clone(), found)),
                Err(error) => done.failures.push(format!("{}: {error:#}", row.id)),
            }
        }
    }
    Ok(done)
}

fn known_or_measured(run: &Run, bench: &Bench<'_>, store: &Store, done: &mut Done) -> Result<Measured> {
    let measured = match store.get(run) {
        Some(known) => known,
        None => {
            let scratch = tempfile::tempdir()?;
            let measured = bench
                .measure(run, scratch.path())
                .map_err(|error| anyhow::anyhow!("{}: {error:#}", run.described()))?;
            store.put(run, measured.clone())?;
            done.fresh += 1;
            measured
        }
    };
    done.runs.insert(run.clone(), measured.clone());
    Ok(measured)
}

/// `75 s`, `12 min`, `1 h 05 min`.
pub fn spoken(seconds: f64) -> String {
    let seconds = Duration::from_secs_f64(seconds.max(0.0) + 0.5).as_secs();
    match seconds {
        0..=89 => format!("{seconds} s"),
        90..=5399 => format!("{} min", (seconds + 30) / 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_under_way_is_left_until_it_took_what_it_was_to_cost() {
        let mut left = super::Left { waiting: 1e9, running: Default::default() };
        left.begin(0, 4e8);
        left.begin(1, 0.0);
        // Less what passes meanwhile, which is no ten years.
        assert!((6e8..=1e9).contains(&left.seconds()));
        left.running.remove(&0);
        assert!((left.seconds() - 6e8).abs() < 1.0, "one that takes longer than it should is not less than nothing");
    }

    #[test]
    fn times_are_said_as_people_say_them() {
        let said: Vec<String> = [0.2, 75.0, 90.0, 725.0, 5400.0, -3.0].map(super::spoken).into();
        assert_eq!(said, ["0 s", "75 s", "2 min", "12 min", "1 h 30 min", "0 s"]);
    }
}
