//! Words that migrations are to be followed by, until their time has come.

use crate::uvm::Semaphore;
use deepum_core::units::Nanos;
use std::collections::BTreeSet;

/// See the module. The soonest first; of one instant in the order in which they were asked for.
#[derive(Debug, Default)]
pub struct Releases {
    due: BTreeSet<(Nanos, u64, Semaphore)>,
    asked: u64,
}

impl Releases {
    /// One more, for then.
    pub(crate) fn add(&mut self, at: Nanos, semaphore: Semaphore) {
        self.asked += 1;
        self.due.insert((at, self.asked, semaphore));
    }

    /// When the next is due.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.due.first().map(|(at, ..)| *at)
    }

    /// The next, if it is due by then.
    pub(crate) fn take(&mut self, now: Nanos) -> Option<Semaphore> {
        let is_due = self.next().is_some_and(|at| at <= now);
        if is_due { self.due.pop_first().map(|(.., semaphore)| semaphore) } else { None }
    }

    /// The last one to the word at this address, if one is due yet.
    pub(crate) fn take_of(&mut self, address: u64) -> Option<Semaphore> {
        let last = self.due.iter().rev().find(|(.., semaphore)| semaphore.address == address).copied()?;
        self.due.remove(&last);
        Some(last.2)
    }

    /// When the last one to the word at this address is due, if one is.
    pub(crate) fn last(&self, address: u64) -> Option<Nanos> {
        self.due.iter().rev().find(|(.., semaphore)| semaphore.address == address).map(|(at, ..)| *at)
    }
}
