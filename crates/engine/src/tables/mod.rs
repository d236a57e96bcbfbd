//! Learned tables from run to run: found by workload, taken over at the start, saved while the program runs and when it ends.
//!
//! A file for each GPU of a workload ([`workload`]) in one folder ([`folder`]); the bytes are the core's
//! (`deepum_core::correlate::saved`, `docs/tables.md`). Reading happens before the engine's threads start; writing on a thread of its
//! own, `deepum-tables`, which looks every [`LOOK`] whether anything new was learned, and saves it once learning has paused or [`LATEST`] after
//! the last time. The correlate thread waits for it only while the bytes are put together, between two turns.
//!
//! Invariants: nothing here makes a program fail or wait for a disk; a file that is not as it should be is said in one line and
//! not used; saved files are whole (written beside, then renamed).
//!
//! On the emulated device nothing is kept unless a folder is named, so that a run does not depend on those before it.

pub mod folder;
pub mod thread;
pub mod workload;

use crate::world::World;
use deepum_config::{Config, TablesIn};
use folder::Folder;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often it is looked whether anything new was learned.
pub const LOOK: Duration = Duration::from_secs(5);
/// Longest time from one save to the next while something new is learned all the time.
pub const LATEST: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug)]
pub struct Keeper {
    folder: Folder,
    workload: u64,
    state: Mutex<State>,
}

#[derive(Default, Debug)]
struct State {
    /// By GPU: the engine's count of changes when it was last saved or taken over, and when last looked.
    saved: Vec<u64>,
    seen: Vec<u64>,
    last: Option<Instant>,
    figures: Figures,
    failed: bool,
}

/// What was done with files so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Figures {
    /// Execution IDs known from earlier runs.
    pub taken_over: u64,
    /// Files written.
    pub written: u64,
}

impl Keeper {
    /// Keeps the tables of `workload` where the configuration says; nothing where it says that none are kept.
    ///
    /// # Errors
    /// Why the folder will not do, for the person.
    pub fn open(config: &Config, workload: u64, driven: bool) -> Result<Option<Self>, String> {
        let path = match &config.tables {
            TablesIn::Folder(path) => path.clone(),
            TablesIn::Usual if driven => return Ok(None),
            TablesIn::Usual => match TablesIn::usual(|name| std::env::var_os(name)) {
                Some(path) => path,
                None => return Ok(None),
            },
            TablesIn::Off => return Ok(None),
        };
        let folder =
            Folder::open(&path).map_err(|why| format!("{}: {why}; learned tables are not kept", path.display()))?;
        Ok(Some(Self { folder, workload, state: Mutex::default() }))
    }

    /// The file of a GPU.
    fn file(&self, gpu: u8) -> String {
        format!("{:016x}-{gpu}{}", self.workload, folder::SUFFIX)
    }

    /// Takes over what an earlier run learned. Before the world's first turn.
    pub(crate) fn load(&self, world: &mut World, say: impl Fn(&str)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for gpu in &mut world.gpus {
            let file = self.file(gpu.facts.id.0);
            let taken = match self.folder.read(&file) {
                Ok(None) => Ok(0),
                Ok(Some(bytes)) => gpu.engine.take_over(&bytes, self.workload).map_err(|why| why.to_string()),
                Err(why) => Err(why),
            };
            match taken {
                Ok(ids) => state.figures.taken_over += ids as u64,
                Err(why) => say(&format!("{}: {why}; this run learns anew", self.folder.path().join(&file).display())),
            }
            state.saved.push(gpu.engine.changes());
        }
        state.seen = state.saved.clone();
    }

    /// Whether it is time to save. `have` are the engines' counts of changes.
    pub(crate) fn is_due(&self, have: Vec<u64>, now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let paused = std::mem::replace(&mut state.seen, have.clone()) == have;
        let late = state.last.is_none_or(|last| now.duration_since(last) >= LATEST);
        have != state.saved && (paused || late)
    }

    /// What there is to save, by file; nothing if all of it is saved.
    pub(crate) fn collect(&self, world: &World) -> Vec<(String, Vec<u8>)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut files = Vec::new();
        for (at, gpu) in world.gpus.iter().enumerate() {
            let changes = gpu.engine.changes();
            if state.saved.get(at) == Some(&changes) {
                continue;
            }
            let mut bytes = Vec::new();
            if gpu.engine.save(self.workload, &mut bytes) {
                files.push((self.file(gpu.facts.id.0), bytes));
            }
            if let Some(saved) = state.saved.get_mut(at) {
                *saved = changes;
            }
        }
        files
    }

    /// Writes files, with no lock held. A failure is said once; the next time may go better.
    pub(crate) fn write(&self, files: &[(String, Vec<u8>)], now: Instant, say: impl Fn(&str)) {
        let mut written = 0;
        let mut failure = None;
        for (file, bytes) in files {
            match self.folder.write(file, bytes) {
                Ok(()) => written += 1,
                Err(why) => failure = Some(why),
            }
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last = Some(now);
        state.figures.written += written;
        if let Some(why) = failure.filter(|_| !std::mem::replace(&mut state.failed, true)) {
            say(&format!("{}: {why}; learned tables are not saved", self.folder.path().display()));
        }
    }

    /// What was done with files so far.
    pub fn figures(&self) -> Figures {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_time_when_learning_pauses_and_at_the_latest_half_a_minute_after_the_last_time() {
        let temp = tempfile::tempdir().unwrap();
        let tables = TablesIn::Folder(temp.path().join("tables"));
        let keeper = Keeper::open(&Config { tables, ..Config::default() }, 1, false).unwrap().unwrap();
        let start = Instant::now();
        let saved = |have: u64, now: Instant| {
            keeper.state.lock().unwrap().saved = vec![have];
            keeper.write(&[], now, |_| {});
        };
        saved(0, start);
        let due = |have: u64, after: Duration| keeper.is_due(vec![have], start + after);
        assert!(!due(0, LATEST * 2), "nothing was learned");
        assert!(!due(5, LOOK), "it learns just now");
        assert!(due(5, LOOK * 2), "it has paused");
        saved(5, start);
        assert!(!due(5, LOOK * 3), "all is saved");
        assert!(!due(6, LATEST - LOOK));
        assert!(due(7, LATEST), "it learns all the time");
    }
}
