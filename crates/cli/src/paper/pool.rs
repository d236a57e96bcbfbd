//! What the rows of the evaluation need done: their runs, and searches for largest batches.

use super::manifest::{Largest, Manifest};
use super::plan::{Row, Section};
use super::search::{self, Found};
use crate::runs::{self, Bench, Job, Made, Mode, Run, Store, host_memory};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};

/// What a run in which nothing moves costs of one in which much does.
const UNMANAGED: f64 = 0.3;

/// What became of everything that was asked for.
#[derive(Debug, Default)]
pub struct Done {
    pub made: Made,
    /// By row ID.
    pub largest: BTreeMap<String, Found>,
}

/// Seconds a run takes on an idle core, about: work grows with what moves.
fn cost(run: &Run, manifest: &Manifest) -> f64 {
    let network = manifest.network(&run.network);
    let share = match run.mode {
        Mode::Plain | Mode::Unlimited | Mode::Bound => UNMANAGED,
        Mode::Demand | Mode::DeepUm | Mode::Horizon | Mode::TwoCopies | Mode::AsInPaper => {
            f64::from(run.iterations) / f64::from(manifest.iterations(network))
        }
    };
    network.seconds * share * f64::from(run.batch) / f64::from(network.batch.unwrap_or(run.batch))
}

/// Carries out what `rows` need and is not known.
pub fn carry_out(manifest: &Manifest, rows: &[Row], bench: &Bench, store: &Store, workers: usize) -> Result<Done> {
    let mut done = Done::default();
    let mut jobs: Vec<Job<'_, Done>> = Vec::new();
    let mut wanted = BTreeSet::new();
    for row in rows {
        let table = match row.section {
            Section::Tab3 => manifest.tab3.as_ref(),
            Section::Tab7 => manifest.tab7.as_ref(),
            _ => None,
        };
        jobs.extend(table.map(|table| Job {
            cost: manifest.network(&row.network).search_seconds,
            work: Box::new(move || searched(row, table, manifest, bench, store)),
        }));
        for run in &row.runs {
            if !wanted.insert(run) {
                continue;
            }
            match store.get(run) {
                Some(known) => drop(done.made.runs.insert(run.clone(), known)),
                None => jobs.push(Job {
                    cost: cost(run, manifest),
                    work: Box::new(move || Done { made: Made::make(run, bench, store), ..Done::default() }),
                }),
            }
        }
    }
    for one in runs::carry_out(jobs, done.made.runs.len(), bench, workers)? {
        done.made.join(one.made);
        done.largest.extend(one.largest);
    }
    Ok(done)
}

/// Looks for the largest batch of a row.
fn searched(row: &Row, table: &Largest, manifest: &Manifest, bench: &Bench, store: &Store) -> Done {
    let mut done = Done::default();
    let network = manifest.network(&row.network);
    let found = host_memory(&table.device).and_then(|room| {
        let first = network.first_guess().expect("the manifest was checked for one");
        let mut searched = |first: &[u32], run: &dyn Fn(u32) -> Result<Run>| {
            search::largest(network.step, first, room as f64, &mut |batch| {
                done.made.known_or_measured(&run(batch)?, bench, store)
            })
        };
        // What the card on which nothing moves says is then tried on the device itself.
        let likely = searched(&[first], &|batch| manifest.roomy_probe(network, table, batch))?;
        searched(&[likely.largest, likely.refused], &|batch| Ok(manifest.probe(network, table, batch)))
    });
    match found {
        Ok(found) => drop(done.largest.insert(row.id.clone(), found)),
        Err(error) => done.made.failures.push(format!("{}: {error:#}", row.id)),
    }
    done
}
