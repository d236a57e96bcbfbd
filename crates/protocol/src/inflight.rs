//! Which launches and copies are still under way, told by words alone.
//!
//! Problem: the contents of a tensor that the program gave up may be thrown away only after the last kernel that was issued
//! before has finished. Records say what was issued, but records may be dropped; and the words that the GPU writes say what is
//! finished, but only if they are known to be in order. All this is asked of every launch, also while nobody wants to know.
//!
//! Idea: each thread has a slot of its own for each stream it gives operations to. What one thread gives one stream is in the order
//! of its places, so everything up to a place is finished once the slot's progress word is there; and a word that one thread alone
//! writes needs plain stores. `issued` is the newest place that the thread took for the stream, stored before the driver gets the operation.
//!
//! ```text
//! issued = in the call (1 bit) | bare (1 bit) | place (62 bits)
//! ```
//!
//! - *In the call*: the driver may not have the operation yet.
//! - *Bare*: no progress write is behind it, because the engine slept. If the stream is idle when it wakes, whoever asks the driver writes
//!   the progress word in the GPU's stead ([`InFlight::finished`]); so a stream that is never used again holds nobody up.
//!
//! `ends` says with which place each of the last epochs ([`crate::grace`]) ended in the slot: what it was given up to there is of that epoch or an older one. It is written before the slot's
//! newest epoch is; an entry that is overwritten by a later epoch's is greater, so whoever reads it takes less for finished.
//!
//! Invariants: `issued` is stored before the operation can run; a slot in use has its bit in `used`; an operation without a slot
//! sets `blind`, after which nothing is ever known to be finished, and so does one that begins inside another of its slot, whose
//! progress would be written too early. (So does one after a call that was never left, by a `longjmp` out of it.)
//!
//! Not here: since when a finished operation counts for a piece of memory ([`crate::grace`]); who has which slot (the shim).

use crate::grace::GraceWords;
use crate::plant::{self, Plant};
use crate::sync::{AtomicU64, Ordering, look};
use deepum_core::units::{LaunchSeq, StreamSlot};

const IN_CALL: u64 = 1 << 63;
const BARE: u64 = 1 << 62;
const SEQ: u64 = BARE - 1;

/// The words, one per stream slot unless it is said otherwise.
#[derive(Clone, Copy, Debug)]
pub struct InFlight<'a> {
    /// Written by the GPU: the newest place that is finished.
    pub progress: &'a [AtomicU64],
    /// The newest place that was taken, and how it is with it.
    pub issued: &'a [AtomicU64],
    /// The number by which records call the slot's stream, plus 1.
    pub streams: &'a [AtomicU64],
    /// The epoch of the newest operation.
    pub epochs: &'a [AtomicU64],
    /// As many for each slot: the newest place of each of its last epochs, by the epoch's number modulo how many there are.
    pub ends: &'a [AtomicU64],
    /// A bit for each slot in use.
    pub used: &'a [AtomicU64],
    /// Not 0 once an operation could not be followed.
    pub blind: &'a AtomicU64,
    /// In which epoch operations begin.
    pub grace: GraceWords<'a>,
}

/// What a slot said before an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Before(u64);

impl InFlight<'_> {
    /// A slot is going to be used, for a stream that records call by this number.
    pub fn claim(&self, slot: StreamSlot, stream: StreamSlot) {
        let at = usize::from(slot.0);
        if let (Some(word), Some(number)) = (self.used.get(at / 64), self.streams.get(at)) {
            number.store(u64::from(stream.0) + 1, Ordering::Relaxed);
            word.fetch_or(1 << (at % 64), Ordering::Release);
        }
    }

    /// What records call the slot's stream.
    pub fn stream(&self, slot: StreamSlot) -> StreamSlot {
        let number = self.streams.get(usize::from(slot.0)).map_or(0, |word| word.load(Ordering::Relaxed));
        number.checked_sub(1).and_then(|number| u16::try_from(number).ok()).map_or(slot, StreamSlot)
    }

    /// The slot's thread has a place for an operation; before the driver gets it.
    #[inline]
    pub fn issue(&self, slot: StreamSlot, seq: LaunchSeq) -> Before {
        let Some(issued) = self.issued.get(usize::from(slot.0)) else { return Before(seq.0) };
        let before = look(issued, Ordering::Relaxed);
        if before & IN_CALL != 0 {
            self.lose_sight();
        }
        self.enter(slot, before & SEQ);
        issued.store(seq.0 | IN_CALL, Ordering::Relaxed);
        Before(before)
    }

    /// Notes the epoch of an operation of the slot, whose newest place so far is this.
    #[inline]
    fn enter(&self, slot: StreamSlot, newest: u64) {
        let Some(word) = self.epochs.get(usize::from(slot.0)) else { return };
        let (now, last) = (self.grace.enter(), look(word, Ordering::Relaxed));
        if now == last {
            return;
        }
        if plant::is(Plant::EpochBeforeEnds) {
            word.store(now, Ordering::Release);
        }
        let ends = self.ends(slot);
        for epoch in last.max(now.saturating_sub(ends.len() as u64))..now {
            at(ends, epoch).store(newest, Ordering::Relaxed);
        }
        word.store(now, Ordering::Release);
    }

    fn ends(&self, slot: StreamSlot) -> &[AtomicU64] {
        let each = self.ends.len() / self.epochs.len();
        &self.ends[usize::from(slot.0) * each..][..each]
    }

    /// All operations of epochs before this are finished, as far as the slots say.
    pub fn finished_before(&self) -> u64 {
        if self.is_blind() {
            return 0;
        }
        self.slots().map(|(slot, issued)| self.slot_finished_before(slot, issued)).min().unwrap_or(u64::MAX)
    }

    fn slot_finished_before(&self, slot: StreamSlot, issued: &AtomicU64) -> u64 {
        let newest = LaunchSeq(issued.load(Ordering::Acquire) & SEQ);
        // Who has no words is never found finished.
        let Some(epoch) = self.epochs.get(usize::from(slot.0)).map(|word| word.load(Ordering::Acquire)) else {
            return 0;
        };
        if self.reached(slot, newest) {
            return u64::MAX;
        }
        let ends = self.ends(slot);
        let first = epoch.saturating_sub(ends.len() as u64);
        let (mut before, mut end) = (first, epoch);
        while before < end {
            let middle = before + (end - before) / 2;
            if self.reached(slot, LaunchSeq(at(ends, middle).load(Ordering::Relaxed))) {
                before = middle + 1;
            } else {
                end = middle;
            }
        }
        // Of epochs before the first nothing is known any more.
        if before == first { 0 } else { before }
    }

    /// The driver has the operation, and the progress write behind it if it is `followed` by one.
    #[inline]
    pub fn given(&self, slot: StreamSlot, seq: LaunchSeq, followed: bool) {
        if let Some(issued) = self.issued.get(usize::from(slot.0)) {
            // Whoever sees this finds the operation in the stream.
            issued.store(seq.0 | if followed { 0 } else { BARE }, Ordering::Release);
        }
    }

    /// The driver refused the operation: it never runs.
    pub fn refused(&self, slot: StreamSlot, before: Before) {
        if let Some(issued) = self.issued.get(usize::from(slot.0)) {
            let restored = if plant::is(Plant::RefusedForGood) { issued.load(Ordering::Relaxed) } else { before.0 };
            issued.store(restored, Ordering::Release);
        }
    }

    /// An operation cannot be followed.
    #[cold]
    pub fn lose_sight(&self) {
        if self.blind.load(Ordering::Relaxed) == 0 {
            self.blind.store(1, Ordering::Relaxed);
        }
    }

    /// Whether any thread is in a call whose operation the driver may not have yet.
    pub fn any_in_call(&self) -> bool {
        self.slots().any(|(_, word)| word.load(Ordering::Acquire) & IN_CALL != 0)
    }

    /// Whether some operation could not be followed.
    pub fn is_blind(&self) -> bool {
        self.blind.load(Ordering::Relaxed) != 0
    }

    fn slots(&self) -> impl Iterator<Item = (StreamSlot, &AtomicU64)> + '_ {
        let slots = self.used.iter().enumerate().flat_map(|(i, word)| {
            let bits = word.load(Ordering::Relaxed);
            (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| i * 64 + bit)
        });
        slots.filter_map(|at| Some((StreamSlot(u16::try_from(at).ok()?), self.issued.get(at)?)))
    }

    /// The slots in use, and the newest place taken for each.
    pub fn newest(&self) -> impl Iterator<Item = (StreamSlot, LaunchSeq)> + '_ {
        self.slots().map(|(slot, word)| (slot, LaunchSeq(word.load(Ordering::Relaxed) & SEQ)))
    }

    /// The newest place of a slot whose last operation the driver has, with a progress write behind it.
    #[inline]
    pub fn followed(&self, slot: StreamSlot) -> Option<LaunchSeq> {
        let word = self.issued.get(usize::from(slot.0))?.load(Ordering::Relaxed);
        (word & (IN_CALL | BARE) == 0 && !self.is_blind()).then_some(LaunchSeq(word))
    }

    /// How far the slot's stream is, whichever threads gave it its operations.
    pub fn stream_is_at(&self, slot: StreamSlot) -> LaunchSeq {
        let stream = self.stream(slot);
        let words = self.slots().filter(|&(other, _)| self.stream(other) == stream);
        let places = words.filter_map(|(other, _)| self.progress.get(usize::from(other.0)));
        LaunchSeq(places.map(|word| word.load(Ordering::Relaxed)).max().unwrap_or(0))
    }

    /// The slots whose last operation the driver has, and nothing says that it is finished. A stream that is idle after this look has
    /// finished what it says ([`Self::finished`]).
    pub fn bare(&self) -> impl Iterator<Item = (StreamSlot, LaunchSeq)> + '_ {
        self.slots().filter_map(|(slot, word)| {
            let word = word.load(Ordering::Acquire);
            let seq = LaunchSeq(word & SEQ);
            let ready = word & IN_CALL == 0 || plant::is(Plant::AskedInCall);
            let bare = word & BARE != 0 || plant::is(Plant::AskedInCall);
            (ready && bare && !self.reached(slot, seq)).then_some((slot, seq))
        })
    }

    /// The driver said that the slot's stream has finished everything up to this place. The GPU may write meanwhile.
    pub fn finished(&self, slot: StreamSlot, seq: LaunchSeq) {
        if let Some(progress) = self.progress.get(usize::from(slot.0)) {
            progress.fetch_max(seq.0, Ordering::AcqRel);
        }
    }

    fn reached(&self, slot: StreamSlot, seq: LaunchSeq) -> bool {
        self.progress.get(usize::from(slot.0)).is_some_and(|word| word.load(Ordering::Acquire) >= seq.0)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "less than how many there are")]
fn at(ends: &[AtomicU64], epoch: u64) -> &AtomicU64 {
    &ends[(epoch % ends.len() as u64) as usize]
}
