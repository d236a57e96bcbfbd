//! How long launches take on a GPU, by the progress words: a launch is over when its stream's word has reached its place.
//!
//! The words are looked at now and then. Those that ended between two looks share the time evenly, from when the stream was last seen to be free, or the
//! first of them was issued. So the sum over a few launches is right, and a single one as fine as the looks are close. A launch that waited for
//! memory took longer than it would have: times are what the trace says they are only if all fitted.

use deepum_core::units::{DeviceId, LaunchSeq, Nanos, StreamSlot};
use deepum_protocol::AtomicU64;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

/// Most launches that are remembered of a stream. Where progress is never written the oldest are forgotten.
const MOST: usize = 1 << 16;

/// A launch or copy that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Issued {
    /// Its place in its device's sequence.
    pub(super) seq: LaunchSeq,
    /// When it was issued.
    pub(super) at: Nanos,
    /// In whose trace, and its place there.
    pub(super) place: (DeviceId, LaunchSeq),
}

#[derive(Default, Debug)]
struct Slot {
    waiting: VecDeque<Issued>,
    /// When it was last seen to have nothing to do.
    free: Nanos,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Progress {
    words: &'static [AtomicU64],
    slots: BTreeMap<u16, Slot>,
}

impl Progress {
    pub(super) const fn new(words: &'static [AtomicU64]) -> Self {
        Self { words, slots: BTreeMap::new() }
    }

    /// Something was issued, in the order of places.
    pub(super) fn issued(&mut self, slot: StreamSlot, issued: Issued) {
        let waiting = &mut self.slots.entry(slot.0).or_default().waiting;
        if waiting.len() == MOST {
            waiting.pop_front();
        }
        waiting.push_back(issued);
    }

    /// Whether anything is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.slots.values().any(|slot| !slot.waiting.is_empty())
    }

    /// What is over by now, in order, with its time.
    pub(super) fn look(&mut self, now: Nanos, mut over: impl FnMut((DeviceId, LaunchSeq), Nanos)) {
        for (number, slot) in &mut self.slots {
            let Some(word) = self.words.get(usize::from(*number)) else { continue };
            let done = word.load(Ordering::Acquire);
            let ended = slot.waiting.iter().take_while(|issued| issued.seq.0 <= done).count();
            let Some(first) = slot.waiting.front().filter(|_| ended > 0) else { continue };
            let share = Nanos(now.saturating_sub(slot.free.max(first.at)).0 / ended as u64);
            slot.free = now;
            slot.waiting.drain(..ended).for_each(|issued| over(issued.place, share));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_that_ended_between_two_looks_share_the_time() {
        let words: &'static [AtomicU64] = Box::leak((0..2).map(|_| AtomicU64::new(0)).collect());
        let mut progress = Progress::new(words);
        let issue = |progress: &mut Progress, slot: u16, seq: u64, at: u64| {
            let place = (DeviceId(0), LaunchSeq(seq));
            progress.issued(StreamSlot(slot), Issued { seq: LaunchSeq(seq), at: Nanos(at), place });
        };
        let look = |progress: &mut Progress, now: u64| {
            let mut over = Vec::new();
            progress.look(Nanos(now), |(_, place), time| over.push((place.0, time.0)));
            over
        };
        for (slot, seq, at) in [(0, 1, 100), (0, 2, 110), (1, 3, 120), (0, 4, 130)] {
            issue(&mut progress, slot, seq, at);
        }
        assert_eq!(look(&mut progress, 200), []);
        // Two of stream 0 since 100, when the first of them was issued.
        words[0].store(2, Ordering::Release);
        assert_eq!(look(&mut progress, 500), [(1, 200), (2, 200)]);
        // One of stream 0 since the last look; one of stream 1 since it was issued.
        words[0].store(4, Ordering::Release);
        words[1].store(3, Ordering::Release);
        assert_eq!(look(&mut progress, 620), [(4, 120), (3, 500)]);
        assert!(!progress.is_busy());
        // Stream 0 was free from 620 to 900.
        issue(&mut progress, 0, 5, 900);
        words[0].store(5, Ordering::Release);
        assert_eq!(look(&mut progress, 950), [(5, 50)]);
    }
}
