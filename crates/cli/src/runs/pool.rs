//! Jobs, several at a time; says how long they will still take.
//!
//! They are taken longest first, so that the cores end together. Interrupted, the running programs are killed and what was measured stays.

use super::bench::Bench;
use crate::progress::Progress;
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Something to be done, with an answer.
pub struct Job<'a, T> {
    /// Seconds it takes on an idle core, about.
    pub cost: f64,
    /// What is done.
    pub work: Box<dyn FnOnce() -> T + Send + 'a>,
}

impl<T> fmt::Debug for Job<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("cost", &self.cost).finish_non_exhaustive()
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

/// Does all jobs and collects the answers, in no order. `known`: how many runs need no job any more, for a person.
pub fn carry_out<T: Send>(mut jobs: Vec<Job<'_, T>>, known: usize, bench: &Bench, workers: usize) -> Result<Vec<T>> {
    jobs.sort_by(|a, b| b.cost.total_cmp(&a.cost));
    let total: f64 = jobs.iter().map(|job| job.cost).sum();
    let count = jobs.len();
    if count > 0 {
        eprintln!(
            "deepum: {count} jobs, {workers} at a time, about {} on idle cores; {known} runs are known already",
            spoken(total / workers as f64)
        );
    }

    let queue = Mutex::new(jobs.into_iter());
    let (answers, left) = (Mutex::new(Vec::new()), Mutex::new(Left { waiting: total, running: BTreeMap::new() }));
    let finished = AtomicUsize::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for worker in 0..workers.min(count) {
            let (queue, answers, left, finished) = (&queue, &answers, &left, &finished);
            scope.spawn(move || {
                while !bench.interrupted() {
                    let Some(job) = queue.lock().expect("no panic holds it").next() else { break };
                    left.lock().expect("no panic holds it").begin(worker, job.cost);
                    let answer = (job.work)();
                    left.lock().expect("no panic holds it").running.remove(&worker);
                    finished.fetch_add(1, Ordering::Relaxed);
                    answers.lock().expect("no panic holds it").push(answer);
                }
            });
        }
        let mut progress = Progress::new();
        while finished.load(Ordering::Relaxed) < count && !bench.interrupted() {
            std::thread::sleep(Duration::from_millis(200));
            let left = left.lock().expect("no panic holds it").seconds();
            let elapsed = started.elapsed().as_secs_f64();
            // By the estimates at first, by this machine's speed once it shows.
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
    if bench.interrupted() {
        bail!("interrupted; what was measured is kept, and the same command goes on from there");
    }
    Ok(answers.into_inner().expect("no thread is left"))
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
