//! Which launches and copies are still under way, told by words alone.
//!
//! Problem: the contents of a tensor that the program gave up may be thrown away only after the last kernel that was issued
//! before has finished. Records say what was issued, but records may be dropped; and the words that the GPU writes say what is
//! finished, but only if they are known to be in order.
//!
//! Idea: per stream slot two words beside the progress word. `issued` is the newest place in the device's sequence that was
//! taken for the stream, stored before the driver gets the operation. So everything up to `issued` is finished once the
//! progress word is there, provided that the stream got its operations in the order of their places. It does, unless two
//! threads are in a call for the same stream at once: whoever finds another one there marks the slot *muddled*
//! in `calls`, and the last to leave sets the *bound*: progress up to it proves nothing, progress past it does, because
//! whoever took a later place entered when nobody else was there.
//!
//! ```text
//! calls = bound (47 bits) | muddled (1 bit) | calls in progress (16 bits)
//! ```
//!
//! Invariants: `issued` is stored before the operation can run; a slot in use has its bit in `used`; an operation in a
//! stream without a slot sets `blind`, after which nothing is ever known to be finished. A call that is never left (a `longjmp` out
//! of it) leaves its slot muddled at the next one, which is safe.
//!
//! Not here: since when a finished operation counts for a piece of memory ([`crate::grace`]).

use crate::plant::{self, Plant};
use crate::sync::{AtomicU64, Ordering, look, update};
use deepum_core::units::{LaunchSeq, StreamSlot};

const CALLS: u64 = 0xffff;
const MUDDLED: u64 = 1 << 16;
const BOUND: u32 = 17;

/// The words, of which all but the last two are one per stream slot.
#[derive(Clone, Copy, Debug)]
pub struct InFlight<'a> {
    /// Written by the GPU: the newest place that is finished.
    pub progress: &'a [AtomicU64],
    /// The newest place that was taken for the stream.
    pub issued: &'a [AtomicU64],
    /// Calls in progress, and how far progress is to be distrusted.
    pub calls: &'a [AtomicU64],
    /// A bit for each slot in use.
    pub used: &'a [AtomicU64],
    /// Not 0 once an operation went into a stream without a slot.
    pub blind: &'a AtomicU64,
}

impl InFlight<'_> {
    /// A call that gives the stream an operation begins; before its place in the sequence is taken.
    pub fn enter(&self, slot: StreamSlot) {
        let Some(calls) = self.calls.get(usize::from(slot.0)) else { return };
        let more = |now: u64| {
            let others = now & CALLS != 0 && !plant::is(Plant::NoMuddle);
            Some((now + 1) | if others { MUDDLED } else { 0 })
        };
        let _ = update(calls, Ordering::AcqRel, Ordering::Relaxed, more);
    }

    /// The operation has its place; before the driver gets it. Answers what the newest place was until then.
    pub fn issue(&self, slot: StreamSlot, seq: LaunchSeq) -> LaunchSeq {
        let at = usize::from(slot.0);
        let Some(issued) = self.issued.get(at) else { return seq };
        let (word, bit) = (&self.used[at / 64], 1 << (at % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        LaunchSeq(issued.fetch_max(seq.0, Ordering::Relaxed))
    }

    /// The driver refused the operation: it never runs. `before` is what [`Self::issue`] answered. Where another call took a
    /// later place meanwhile, that one's progress will do.
    pub fn refused(&self, slot: StreamSlot, seq: LaunchSeq, before: LaunchSeq) {
        if let Some(issued) = self.issued.get(usize::from(slot.0)) {
            let _ = issued.compare_exchange(seq.0, before.0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The call ends: the stream has its operation and the progress write behind it. `newest` looks up the newest place
    /// taken on the stream's device.
    pub fn leave(&self, slot: StreamSlot, newest: impl Fn() -> LaunchSeq) {
        let Some(calls) = self.calls.get(usize::from(slot.0)) else { return };
        let less = |now: u64| {
            let last = now & CALLS == 1;
            // Looked up after the word showed that the others have left, so it is not before any place of theirs.
            Some(if last && now & MUDDLED != 0 { newest().0 << BOUND } else { now.saturating_sub(1) })
        };
        let _ = update(calls, Ordering::AcqRel, Ordering::Acquire, less);
    }

    /// An operation goes into a stream without a slot.
    pub fn lose_sight(&self) {
        if self.blind.load(Ordering::Relaxed) == 0 {
            self.blind.store(1, Ordering::Relaxed);
        }
    }

    /// Whether some operation could not be followed.
    pub fn is_blind(&self) -> bool {
        self.blind.load(Ordering::Relaxed) != 0
    }

    /// The slots in use, and the newest place taken for each.
    pub fn newest(&self) -> impl Iterator<Item = (StreamSlot, LaunchSeq)> + '_ {
        let slots = self.used.iter().enumerate().flat_map(|(i, word)| {
            let bits = word.load(Ordering::Relaxed);
            (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| i * 64 + bit)
        });
        slots.filter_map(|at| {
            let seq = LaunchSeq(self.issued.get(at)?.load(Ordering::Relaxed));
            Some((StreamSlot(u16::try_from(at).ok()?), seq))
        })
    }

    /// Whether all that the stream was given up to this place is finished. A "no" may be out of caution.
    pub fn is_done(&self, slot: StreamSlot, seq: LaunchSeq) -> bool {
        let at = usize::from(slot.0);
        let (Some(progress), Some(calls)) = (self.progress.get(at), self.calls.get(at)) else { return false };
        let done = progress.load(Ordering::Acquire);
        // After the progress word: whoever muddled the order of what it says had marked the slot by then.
        let calls = look(calls, Ordering::Acquire);
        done >= seq.0
            && calls & MUDDLED == 0
            && (done > calls >> BOUND || plant::is(Plant::NoBound))
            && !self.is_blind()
    }
}
