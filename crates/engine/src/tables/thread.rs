//! Who saves when: the thread `deepum-tables`, and the end of the program.

use super::{Figures, Keeper, LOOK};
use crate::ours::spawn;
use crate::sync::{Arc, MutexGuard, lock, try_lock};
use crate::threads::Running;
use crate::world::World;
use std::thread;
use std::time::{Duration, Instant};

/// Longest time that the end of a program waits for the end of a turn. A turn takes microseconds; one that takes longer hangs.
pub const PARTING: Duration = Duration::from_millis(100);

impl Running {
    /// Starts the thread that saves learned tables. Without it they are saved at the end only.
    pub(crate) fn keep_tables(self: &Arc<Self>) {
        let running = Arc::clone(self);
        let body = move || {
            while let Some(keeper) = running.tables.get().filter(|_| running.is_off().is_none()) {
                thread::park_timeout(LOOK);
                let (world, now) = (lock(&running.world), Instant::now());
                let have = world.gpus.iter().map(|gpu| gpu.engine.changes()).collect();
                if keeper.is_due(have, now) {
                    running.save(keeper, world, now);
                }
            }
        };
        let say = self.say;
        let lost = move |why: String| say(&format!("{why}; learned tables are no longer saved, all else goes on"));
        if self.tables.get().is_some()
            && let Err(why) = spawn("deepum-tables", body, lost)
        {
            say(&why);
        }
    }

    fn save(&self, keeper: &Keeper, world: MutexGuard<'_, World>, now: Instant) {
        let files = keeper.collect(&world);
        drop(world);
        keeper.write(&files, now, self.say);
    }

    /// Saves what was learned since the last time, at the end of the program. Waits for the end of a turn, but not for longer
    /// than [`PARTING`].
    pub fn save_tables_at_end(&self) {
        let Some(keeper) = self.tables.get() else { return };
        let start = Instant::now();
        loop {
            match try_lock(&self.world) {
                Some(world) => return self.save(keeper, world, start),
                None if start.elapsed() < PARTING => thread::sleep(PARTING / 100),
                None => return,
            }
        }
    }

    /// What was done with saved tables.
    pub fn table_figures(&self) -> Figures {
        self.tables.get().map(Keeper::figures).unwrap_or_default()
    }
}
