//! `deepum compare --table`: several networks, each with less and less of the memory that it needs, every way, and a document of it.
//!
//! `manifest` says which networks and how much memory, `plan` which runs that makes, `document` what came of them. What a network needs is
//! measured first, on a device with room for everything; how much memory the other runs get follows from that.

mod document;
mod manifest;
mod plan;
mod verdict;

use crate::runs::{self, Bench, Job, Made, Run, Store};
use crate::say::say;
use crate::source::repository;
use anyhow::{Context, Result};
use manifest::Manifest;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The document, in the folder of results.
const DOCUMENT: &str = "table.md";

/// What a person asks for.
#[derive(Debug)]
pub struct Asked<'a> {
    pub manifest: &'a Path,
    pub out: &'a Path,
    pub jobs: usize,
    pub python: Option<&'a Path>,
}

/// Measures what the manifest says, as far as that is not known already, and writes the document.
pub fn table(asked: &Asked<'_>) -> Result<ExitCode> {
    let root = repository()?;
    let manifest = Manifest::read(asked.manifest)?;
    let folder = asked.manifest.parent().map_or_else(PathBuf::new, Path::to_owned);
    let scripts = manifest.networks.iter().map(|network| network.script.as_str());
    let bench = Bench::open(&root, folder, scripts, asked.python)?;
    let store = Store::open(asked.out, &bench.build)?;

    let mut made = Made::default();
    let roomy = manifest.networks.iter().flat_map(|network| manifest.roomy(network));
    carry_out(roomy.collect(), &manifest, &bench, &store, asked.jobs, &mut made)?;
    let points = plan::points(&manifest, &made);
    let tight = points.iter().flat_map(plan::Point::runs).cloned();
    carry_out(tight.collect(), &manifest, &bench, &store, asked.jobs, &mut made)?;

    let command = format!("deepum compare --table {}", asked.manifest.display());
    let text = document::document(&manifest, &points, &made, &bench.setting(&root, command));
    let mut places = vec![asked.out.join(DOCUMENT)];
    if made.failures.is_empty() {
        places.extend(manifest.document.as_ref().map(|document| root.join(document)));
    }
    for place in &places {
        std::fs::write(place, &text).with_context(|| format!("cannot write {}", place.display()))?;
    }
    made.failures.iter().for_each(|failure| eprintln!("deepum: failed: {failure}"));
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    say(&format!("{} runs made, {} in all; written: {}\n", made.fresh, made.runs.len(), places.join(", ")))?;
    Ok(if made.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Makes runs, each once, unless they are known.
fn carry_out(
    wanted: BTreeSet<Run>,
    manifest: &Manifest,
    bench: &Bench,
    store: &Store,
    workers: usize,
    made: &mut Made,
) -> Result<()> {
    let mut jobs: Vec<Job<'_, Made>> = Vec::new();
    for run in &wanted {
        match store.get(run) {
            Some(known) => drop(made.runs.insert(run.clone(), known)),
            None => jobs.push(Job { cost: manifest.cost(run), work: Box::new(move || Made::make(run, bench, store)) }),
        }
    }
    let known = wanted.len() - jobs.len();
    for one in runs::carry_out(jobs, known, bench, workers)? {
        made.join(one);
    }
    Ok(())
}
