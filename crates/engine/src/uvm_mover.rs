//! The driver's own calls, as the moving threads make them: which way blocks leave, and how it is known that they have come.
//!
//! Here meet what the core knows of leaving ([`Trial`]), the clock of this world, and the requests (`deepum-kmod-bridge`).
//!
//! Who leaves unmapped leaves the host preferred, which saves a third of the time, if whatever a GPU faults on is brought by a call. When the engine ends it takes that back, since then only the
//! driver brings what faults.
//!
//! Of what comes the driver writes a word ([`Semaphores`]), for which nobody holds the address space's lock. It tells nobody of such moves by itself, as it does where a call waits for
//! them, so it is asked to when the word is written; meanwhile the other hand's blocks come.

use crate::migrate::Mover;
use crate::pace::{self, Clock};
use crate::sync::{Mutex, lock};
use crate::threads::Abilities;
use deepum_config::{Await, Config, Leave};
use deepum_core::trial::Trial;
use deepum_core::units::{AddrRange, DeviceId, Nanos, Place, UmBlock};
use deepum_kmod_bridge::{
    Advice, AdviseError, DiscardError, MigrateError, MigrateFailure, NoSemaphores, Semaphores, Stay, VaSpace,
};
use deepum_protocol::ring::Ring;
use deepum_protocol::status::Pace;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// See the module.
#[derive(Debug)]
pub struct UvmMover {
    space: Arc<VaSpace>,
    /// Where the program says whether it looks at managed memory.
    ring: Ring<'static>,
    /// How blocks had better leave.
    trial: Mutex<Trial>,
    /// What that takes is measured by this.
    clock: Clock,
    /// How they leave unmapped, if the driver has that; asked at the first.
    stay: OnceLock<Result<Stay, String>>,
    /// The words by which it is known that blocks have come; asked for at the first.
    words: OnceLock<Option<Semaphores>>,
    /// Blocks for which the host is preferred, or was.
    preferred: Mutex<BTreeSet<UmBlock>>,
    /// Whether one was not written: they are not relied on any more.
    lost: AtomicBool,
    how: How,
    say: fn(&str),
}

/// How blocks are moved.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Off the GPU.
    pub leave: Leave,
    /// Onto it.
    pub await_by: Await,
    /// Whether anybody hears what the driver tells of moves.
    pub told: bool,
    /// Whether who leaves may leave the host preferred: whatever a GPU faults on is brought by a call.
    pub prefers: bool,
}

impl How {
    /// As this configuration and this driver have it, which tells of moves and faults or does not.
    pub fn of(config: &Config, await_by: Await, can: &Abilities, told: bool) -> Self {
        // Who has two copies leaves mapped.
        let saves = config.two_copies && can.duplicates.is_ok();
        Self { leave: config.leave, await_by, told, prefers: told && !saves && config.policy.brings_faults() }
    }
}

impl UvmMover {
    /// Of this address space of the program that the ring is of.
    pub fn new(space: Arc<VaSpace>, ring: Ring<'static>, how: How, pace: Pace, say: fn(&str)) -> Self {
        let trial = match how.leave {
            Leave::Mapped => Trial::decided(false),
            Leave::Unmapped => Trial::decided(true),
            Leave::Measured => Trial::measured(how.prefers),
        };
        let (stay, words) = (OnceLock::new(), OnceLock::new());
        let lost = AtomicBool::new(false);
        let (trial, preferred) = (Mutex::new(trial), Mutex::default());
        Self { space, ring, trial, clock: Clock::of(pace), stay, words, preferred, lost, how, say }
    }

    /// Nothing if it is not to leave unmapped.
    fn leave_unmapped(&self, range: AddrRange) -> Option<Result<(), MigrateError>> {
        if !lock(&self.trial).is_unmapped() {
            return None;
        }
        let stay = self.stay.get_or_init(|| self.space.stay().map_err(|why| why.to_string()));
        let left = match stay {
            Ok(stay) => self.ring.shared().unlooked(|| {
                if !self.how.prefers {
                    return self.space.leave(range, *stay);
                }
                let is_told = {
                    let mut preferred = lock(&self.preferred);
                    range.blocks().filter(|&block| preferred.insert(block)).count() == 0
                };
                let leave = if is_told { VaSpace::leave_again } else { VaSpace::leave_preferred };
                leave(&self.space, range, *stay)
            }),
            Err(why) => {
                self.refused(why);
                None
            }
        };
        if let Some(Err(MigrateError { why: MigrateFailure::Other(why), .. })) = &left {
            self.refused(&why.to_string());
            return None;
        }
        left
    }

    /// They leave mapped from now on. One thread takes what goes off the GPU, so it is said once.
    fn refused(&self, why: &str) {
        lock(&self.trial).refuse();
        // Who did not ask for it misses nothing that was promised.
        if self.how.leave == Leave::Unmapped {
            (self.say)(&format!("DEEPUM_LEAVE=unmapped: {why}; blocks leave mapped"));
        }
    }

    /// Onto a GPU. Nothing if it is not by words that its end is known.
    fn with_words(&self, range: AddrRange, to: DeviceId) -> Option<Result<(), MigrateError>> {
        let words = self.words.get_or_init(|| {
            let asked = (self.how.await_by == Await::Word).then(|| self.space.semaphores());
            asked.and_then(|words| match words {
                Ok(words) => Some(words),
                // That it is used with care was said.
                Err(NoSemaphores::Unknown) => None,
                Err(NoSemaphores::Request(why)) => {
                    self.without_words(&why.to_string());
                    None
                }
            })
        });
        let words = words.as_ref().filter(|_| !self.lost.load(Ordering::Relaxed))?;
        let moved = self.space.migrate_with(range, to, words, self.how.told, |word| self.clock.until(word));
        if let Ok(false) = moved
            && !self.lost.swap(true, Ordering::Relaxed)
        {
            self.without_words("one was not written in time");
        }
        Some(moved.map(|_| ()))
    }

    fn without_words(&self, why: &str) {
        (self.say)(&format!(
            "DEEPUM_AWAIT=word: {why}; calls of the driver wait for what comes to the GPU, and what leaves waits for these"
        ));
    }
}

impl Mover for UvmMover {
    fn migrate(&self, range: AddrRange, to: Place) -> Result<(), MigrateError> {
        match to {
            Place::Host => self.space.migrate_home(range),
            Place::Device(gpu) => self.with_words(range, gpu).unwrap_or_else(|| self.space.migrate(range, to)),
        }
    }
    fn leave(&self, range: AddrRange) -> Result<(), MigrateError> {
        let begun = self.clock.now();
        let left = self.leave_unmapped(range);
        let unmapped = left.is_some();
        left.unwrap_or_else(|| self.space.migrate_home(range))?;
        if let Some(begun) = begun
            && let Some(now) = self.clock.now()
        {
            lock(&self.trial).note(unmapped, range.len.0 / UmBlock::SIZE.0, now.saturating_sub(begun));
        }
        Ok(())
    }
    fn advise(&self, range: AddrRange, advice: Advice) -> Result<(), AdviseError> {
        self.space.advise(range, advice)
    }
    fn discard(&self, range: AddrRange) -> Result<(), DiscardError> {
        self.space.discard(range)
    }
    fn settle(&self) {
        self.space.forget_preferences(&std::mem::take(&mut *lock(&self.preferred)));
    }
    fn rest(&self) {
        pace::rest();
    }
    fn now(&self) -> Option<Nanos> {
        self.clock.now()
    }
}
