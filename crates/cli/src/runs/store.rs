//! What has been measured, in a folder: an interrupted command goes on where it was, and rows share runs.
//!
//! `OUT/runs/BUILD/RUN.json`. BUILD is a hash of everything that decides a run's figures: the libraries that are preloaded or stand
//! in, `deepum` itself, which counts, the scripts, and the versions they run on; so what another build measured is never taken for this one's. A run that failed is not kept.

use super::bench::Bench;
use super::one::Measured;
use super::run::Run;
use crate::rows::Outcome;
use anyhow::{Context, Result};
use deepum_core::mix::Mix;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Results by run, in memory and in the folder.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    known: Mutex<BTreeMap<Run, Measured>>,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    run: Run,
    measured: Measured,
}

impl Store {
    /// The results of `build` in `out`, which is made if it is not there.
    pub fn open(out: &Path, build: &str) -> Result<Self> {
        let dir = out.join("runs").join(build);
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        // Now, rather than after the first run.
        tempfile::NamedTempFile::new_in(&dir).with_context(|| format!("cannot write into {}", dir.display()))?;
        Ok(Self { dir, known: Mutex::default() })
    }

    /// What a run measured, if it is known.
    pub fn get(&self, run: &Run) -> Option<Measured> {
        if let Some(found) = self.known().get(run) {
            return Some(found.clone());
        }
        let text = fs::read_to_string(self.path(run)).ok()?;
        // A file of another version of this program, or half of one, is as good as none.
        let kept: Kept = serde_json::from_str(&text).ok()?;
        (kept.run == *run).then(|| {
            self.known().insert(kept.run, kept.measured.clone());
            kept.measured
        })
    }

    /// Keeps what a run measured. One that failed is remembered until the end of this program only.
    pub fn put(&self, run: &Run, measured: Measured) -> Result<()> {
        if measured.outcome != Outcome::Failed {
            let path = self.path(run);
            let kept = Kept { run: run.clone(), measured: measured.clone() };
            let file = tempfile::NamedTempFile::new_in(&self.dir)?;
            serde_json::to_writer_pretty(&file, &kept)?;
            file.persist(&path).with_context(|| format!("cannot write {}", path.display()))?;
        }
        self.known().insert(run.clone(), measured);
        Ok(())
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<Run, Measured>> {
        self.known.lock().expect("nothing panics while it holds the lock")
    }

    fn path(&self, run: &Run) -> PathBuf {
        let text = serde_json::to_string(run).expect("a run is strings and numbers");
        self.dir.join(format!("{}-{:016x}.json", run.network, Mix::new().bytes(text.as_bytes()).end()))
    }
}

/// What became of the runs that were asked for.
#[derive(Debug, Default)]
pub struct Made {
    pub runs: BTreeMap<Run, Measured>,
    /// What failed, and why.
    pub failures: Vec<String>,
    /// Runs that were made, not found in the folder.
    pub fresh: usize,
}

impl Made {
    /// Makes a run, unless it is known.
    pub fn known_or_measured(&mut self, run: &Run, bench: &Bench, store: &Store) -> Result<Measured> {
        let measured = match store.get(run) {
            Some(known) => known,
            None => {
                let scratch = tempfile::tempdir()?;
                let measured = bench.measure(run, scratch.path()).with_context(|| run.described())?;
                store.put(run, measured.clone())?;
                self.fresh += 1;
                measured
            }
        };
        self.runs.insert(run.clone(), measured.clone());
        Ok(measured)
    }

    /// A run of a row: one that fails is said so, and the others go on, so that much work is not lost to one row.
    pub fn make(run: &Run, bench: &Bench, store: &Store) -> Self {
        let mut made = Self::default();
        match made.known_or_measured(run, bench, store) {
            Ok(measured) if measured.outcome == Outcome::Failed => {
                made.failures.push(format!("{}: {}", run.described(), measured.words));
            }
            Ok(_) => {}
            Err(error) => made.failures.push(format!("{error:#}")),
        }
        made
    }

    /// Adds what another job made.
    pub fn join(&mut self, other: Self) {
        self.runs.extend(other.runs);
        self.failures.extend(other.failures);
        self.failures.sort();
        self.fresh += other.fresh;
    }
}

/// A hash of the versions and of the files whose contents decide figures.
pub fn fingerprint(versions: &str, files: &[PathBuf]) -> Result<String> {
    let mut mix = Mix::new().bytes(versions.as_bytes());
    for file in files {
        mix = mix.bytes(&fs::read(file).with_context(|| format!("cannot read {}", file.display()))?);
    }
    Ok(format!("{:016x}", mix.end()))
}

#[cfg(test)]
mod tests {
    use super::super::run::Mode;
    use super::*;

    fn run(batch: u32) -> Run {
        Run {
            network: "n".to_owned(),
            script: "n.py".to_owned(),
            args: Vec::new(),
            batch,
            iterations: 6,
            warm_up: 2,
            device: "v100-32g".to_owned(),
            mode: Mode::DeepUm,
            env: BTreeMap::new(),
        }
    }

    fn measured(outcome: Outcome) -> Measured {
        Measured { outcome, seconds: Some(1.5), peak_managed: 7, ..Measured::default() }
    }

    #[test]
    fn results_outlive_the_program_but_not_the_build() {
        let out = tempfile::tempdir().unwrap();
        let store = Store::open(out.path(), "one").unwrap();
        assert_eq!(store.get(&run(1)), None);
        store.put(&run(1), measured(Outcome::Ok)).unwrap();
        store.put(&run(2), measured(Outcome::Failed)).unwrap();
        let again = Store::open(out.path(), "one").unwrap();
        assert_eq!(again.get(&run(1)), Some(measured(Outcome::Ok)));
        assert_eq!((store.get(&run(2)), again.get(&run(2))), (Some(measured(Outcome::Failed)), None));
        assert_eq!(again.get(&run(3)), None);
        assert_eq!(Store::open(out.path(), "two").unwrap().get(&run(1)), None);
    }

    #[test]
    fn half_a_file_is_none() {
        let out = tempfile::tempdir().unwrap();
        let store = Store::open(out.path(), "one").unwrap();
        store.put(&run(1), measured(Outcome::Ok)).unwrap();
        let path = store.path(&run(1));
        let text = fs::read(&path).unwrap();
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        assert_eq!(Store::open(out.path(), "one").unwrap().get(&run(1)), None);
    }

    #[test]
    fn the_fingerprint_is_of_the_contents_and_the_versions() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lib");
        fs::write(&file, "one").unwrap();
        let one = fingerprint("torch 1", std::slice::from_ref(&file)).unwrap();
        assert_eq!(fingerprint("torch 1", std::slice::from_ref(&file)).unwrap(), one);
        assert_ne!(fingerprint("torch 2", std::slice::from_ref(&file)).unwrap(), one);
        fs::write(&file, "two").unwrap();
        assert_ne!(fingerprint("torch 1", &[file]).unwrap(), one);
    }
}
