//! Epochs: since when is a piece of memory left alone by everything that was issued before it was given up?
//!
//! Problem: a block may be thrown away once every launch and copy issued before its release, on any stream of any GPU, is
//! finished; and no later, for what is issued right behind the release may run for long. A release cannot note the places of all streams, and
//! places in different sequences cannot be compared.
//!
//! Idea: operations are counted in *epochs*. A release closes the epoch and takes its number as stamp; the next operation, whoever issues it,
//! begins another. Each slot notes with which place each epoch ended there ([`crate::inflight`]), so the engine finds of every slot the epoch of the
//! oldest operation that is not finished. `ended` is the least of them: all operations of epochs before it are finished. What was issued before a
//! release is finished once `ended` is greater than the stamp.
//!
//! ```text
//! epoch = number (63 bits) | closed (1 bit)
//!
//! release:    issue …; stamp := close epoch        engine:  now := epoch, another begun if it is closed
//! operation:  begin another if it is closed;                of each slot: issued, epoch, ends, progress
//!             note the epoch; note the place                ended := least of all slots', at most now
//! ```
//!
//! Why that holds. An operation X was issued before a release with stamp *s*, and the engine found `ended` > *s*. The epoch that X read is not above *s*: it read the word before it was closed.
//! The engine read a greater one, which somebody made of the word that the release had closed; all who change the word read and write it in one step, release what
//! they did before, and the engine acquires it. So it sees the place of X in its slot, and the ends of all epochs before the slot's. If X is not finished, the epoch that it found for the slot is that of X, or an older one.
//!
//! Invariants: both words only grow; what `ended` says stays true when the engine is replaced, so the next one goes on from them.
//!
//! Not here: who takes stamps ([`crate::handout`]), what a slot is ([`crate::inflight`]).

use crate::inflight::InFlight;
use crate::plant::{self, Plant};
use crate::sync::{AtomicU64, Ordering, look};

/// An epoch that is closed: no operation that begins from now on is of it.
const CLOSED: u64 = 1;

/// The two words.
#[derive(Clone, Copy, Debug)]
pub struct GraceWords<'a> {
    /// The newest epoch, and whether it is closed.
    pub epoch: &'a AtomicU64,
    /// All operations of epochs before this are finished.
    pub ended: &'a AtomicU64,
}

impl GraceWords<'_> {
    /// The stamp of memory that is being given up: after everything that used it was issued.
    pub fn stamp(&self) -> u64 {
        let order = if plant::is(Plant::LooseStamp) { Ordering::Relaxed } else { Ordering::AcqRel };
        self.epoch.fetch_or(CLOSED, order) >> 1
    }

    /// The epoch of an operation, before the driver gets it.
    #[inline]
    pub fn enter(&self) -> u64 {
        let now = look(self.epoch, Ordering::Relaxed);
        if now & CLOSED == 0 || plant::is(Plant::StayInEpoch) { now >> 1 } else { self.begin(now) }
    }

    /// Another epoch, after one that was found closed.
    fn begin(&self, closed: u64) -> u64 {
        let begun = self.epoch.compare_exchange(closed, closed + 1, Ordering::AcqRel, Ordering::Acquire);
        begun.map_or_else(|newer| newer >> 1, |_| (closed + 1) >> 1)
    }

    /// The newest epoch, an open one. Of every release with a lesser stamp it is seen what was issued before.
    fn newest(&self) -> u64 {
        let now = look(self.epoch, if plant::is(Plant::LooseLook) { Ordering::Relaxed } else { Ordering::Acquire });
        if now & CLOSED == 0 { now >> 1 } else { self.begin(now) }
    }

    /// Whether everything issued before the stamp was taken is finished.
    pub fn is_over(&self, stamp: u64) -> bool {
        let ended = self.ended.load(Ordering::Acquire);
        ended > stamp || plant::is(Plant::SameEpoch) && ended == stamp
    }

    /// The engine looks how far the GPUs are: to be called after progress was made.
    pub fn look(&self, streams: &InFlight<'_>) {
        // An operation that could not be followed has no slot. One that was issued before a release is seen here, as the places are.
        let late = plant::is(Plant::LateLook);
        let found = late.then(|| streams.finished_before());
        let newest = self.newest();
        let ended = found.unwrap_or_else(|| streams.finished_before()).min(newest);
        if ended > self.ended.load(Ordering::Relaxed) {
            // Behind what the streams said, for whoever acts upon it on another thread.
            self.ended.store(ended, Ordering::Release);
        }
    }
}
