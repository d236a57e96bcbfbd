//! Periods of grace: since when is a piece of memory left alone by everything that was issued before it was given up?
//!
//! Problem: a block may be thrown away once every launch and copy issued before its release, on any stream of any GPU, is
//! finished. A release cannot note all of that, and places in different sequences cannot be compared.
//!
//! Idea: as read-copy-update does it. The engine numbers periods. To begin one it announces the number in `begun`, then
//! notes the newest place of every stream; the period has *ended* when all of them are finished. A release takes the
//! number it finds in `begun` as its stamp. If that is less than the number of a period that has ended, the release came before that
//! period's look at the streams, so all that was issued before the release is finished.
//!
//! ```text
//! release:  issue …; fence; stamp := begun          period:  begun := n; fence; note issued …
//! ```
//!
//! The two fences are the whole proof: a release that misses `begun := n` was before the look, which then sees what it issued.
//!
//! Invariants: both words only grow; what `ended` says stays true when the engine is replaced, so the next one goes on from them.
//! One begins with every turn before which something was issued, and many are open at once. So a release waits for what was issued before it, and for next to nothing more:
//! whoever is told of it in that turn, and asks once all issued until then is finished, finds its period ended.
//!
//! Not here: the stamps ([`crate::handout`]), whether a place is finished ([`crate::inflight`]).

use crate::inflight::InFlight;
use crate::plant::{self, Plant};
use crate::sync::{AtomicU64, Ordering, fence};
use deepum_core::units::{LaunchSeq, StreamSlot};
use std::collections::VecDeque;

/// Most periods that are open at once: one for each of the 1,024 launches that CUDA queues, and room for copies (assumption; more means that releases wait for longer).
const OPEN: usize = 4096;

/// The two words.
#[derive(Clone, Copy, Debug)]
pub struct GraceWords<'a> {
    /// The newest period that began.
    pub begun: &'a AtomicU64,
    /// The newest period that ended.
    pub ended: &'a AtomicU64,
}

impl GraceWords<'_> {
    /// The stamp of memory that is being given up: after everything that used it was issued.
    pub fn stamp(&self) -> u64 {
        if !plant::is(Plant::StampWithoutFence) {
            fence(Ordering::SeqCst);
        }
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether everything issued before the stamp was taken is finished.
    pub fn is_over(&self, stamp: u64) -> bool {
        let ended = self.ended.load(Ordering::Acquire);
        ended > stamp || plant::is(Plant::SamePeriod) && ended == stamp
    }
}

/// The engine's side: begins periods and sees them end.
#[derive(Debug)]
pub struct Grace<'a> {
    words: GraceWords<'a>,
    streams: InFlight<'a>,
    open: VecDeque<Period>,
    /// Sum of the newest places at the last beginning: how many operations there have been since.
    issued: u64,
}

#[derive(Debug)]
struct Period {
    number: u64,
    /// What must be finished yet.
    waits: Vec<(StreamSlot, LaunchSeq)>,
}

impl<'a> Grace<'a> {
    /// Goes on where an engine before this one may have stopped.
    pub fn new(words: GraceWords<'a>, streams: InFlight<'a>) -> Self {
        Self { words, streams, open: VecDeque::new(), issued: 0 }
    }

    /// The newest period that began, and the newest that ended.
    pub fn newest(&self) -> (u64, u64) {
        let [begun, ended] = [self.words.begun, self.words.ended].map(|word| word.load(Ordering::Relaxed));
        (begun, ended)
    }

    /// Looks at how far the GPUs are: to be called after progress was made.
    pub fn turn(&mut self) {
        self.end();
        let issued = self.streams.newest().fold(0u64, |sum, (_, seq)| sum.wrapping_add(seq.0));
        let due = issued != self.issued && self.open.len() < OPEN;
        if due || self.open.is_empty() {
            self.issued = issued;
            self.begin();
            self.end();
        }
    }

    fn begin(&mut self) {
        let number = self.words.begun.load(Ordering::Relaxed) + 1;
        let late = plant::is(Plant::PeriodTooLate);
        if !late {
            self.words.begun.store(number, Ordering::Relaxed);
        }
        if !plant::is(Plant::PeriodWithoutFence) {
            fence(Ordering::SeqCst);
        }
        let waits = self.streams.newest().collect();
        if late {
            self.words.begun.store(number, Ordering::Relaxed);
        }
        self.open.push_back(Period { number, waits });
    }

    /// In order, since a period cannot end before an older one.
    fn end(&mut self) {
        // An operation that could not be followed may have no slot to wait for. One that was issued before a release which misses the
        // period's beginning is seen here, behind the period's fence, as the places are.
        if self.streams.is_blind() {
            return;
        }
        while let Some(oldest) = self.open.front_mut() {
            // A thread's places only grow, but for one that the driver refused: that operation never runs.
            let last = |slot, seq: LaunchSeq| {
                if plant::is(Plant::RefusedForGood) { seq } else { seq.min(self.streams.issued(slot)) }
            };
            oldest.waits.retain(|&(slot, seq)| !self.streams.is_done(slot, last(slot, seq)));
            if !oldest.waits.is_empty() {
                return;
            }
            // Behind what the streams said, for whoever acts upon it on another thread.
            self.words.ended.store(oldest.number, Ordering::Release);
            self.open.pop_front();
        }
    }
}
