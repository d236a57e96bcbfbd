//! When what was asked for will have come, as far as can be told.
//!
//! Problem: who waits for a block in a call of the driver holds the address space's lock, and whoever leaves meanwhile waits for that lock, three times for each call (`steps`).
//! Idea: wait outside of the driver until it should be there, and only then ask: the call returns at once. The link carries one piece after the other, so what the next one takes is what those before took.
//! The call is made a little early, so that it tells when that was.

use crate::units::Nanos;
use std::collections::VecDeque;

/// So much early, which is more than a call takes that has nothing to wait for (22 to 26 us for one block, facts 4.2).
const EARLY: Nanos = Nanos(30_000);
/// What a block is taken to take at most, 2 GB/s: nobody waits longer for it than that but in the driver, which knows.
const LONGEST: Nanos = Nanos(1_000_000);

/// Of one way of the link. See the module.
#[derive(Clone, Default, Debug)]
pub struct Arrivals {
    /// What a block takes; nothing is known at first.
    block: Nanos,
    /// Pieces under way, the oldest first: blocks, and when they should be there.
    pieces: VecDeque<(u64, Nanos)>,
    /// When the link is free, as far as is known.
    free: Nanos,
    /// Whether the last piece was later than a piece takes.
    was_late: bool,
}

impl Arrivals {
    /// Nothing is under way any more.
    pub fn forget(&mut self) {
        self.pieces.clear();
        self.free = Nanos::ZERO;
    }

    /// So many blocks were asked for.
    pub fn begun(&mut self, blocks: u64, now: Nanos) {
        self.free = self.free.max(now) + Nanos(self.block.0 * blocks);
        self.pieces.push_back((blocks, self.free));
    }

    /// When to ask for so many blocks, the oldest of those under way.
    #[must_use]
    pub fn ask_at(&self, blocks: u64) -> Nanos {
        self.expected(blocks).saturating_sub(EARLY)
    }

    /// When they should be there.
    fn expected(&self, blocks: u64) -> Nanos {
        let mut left = blocks;
        let is_part = |(piece, _): &&(u64, Nanos)| {
            let is_part = left > 0;
            left = left.saturating_sub(*piece);
            is_part
        };
        self.pieces.iter().take_while(is_part).last().map_or(Nanos::ZERO, |(_, at)| *at)
    }

    /// So many blocks, the oldest, are there: the call that asked for them returned.
    pub fn there(&mut self, blocks: u64, now: Nanos) {
        let expected = self.expected(blocks);
        let mut left = blocks;
        while left > 0
            && let Some((piece, _)) = self.pieces.pop_front()
        {
            left = left.saturating_sub(piece);
        }
        let (early, late) = (expected.saturating_sub(now), now.saturating_sub(expected));
        // Whoever is later than that waited for a lock, which says nothing of the link; unless the next is as late, though it had all that time to come.
        let is_late = late.0 > self.block.0 * blocks;
        let most = self.block.0 / 16;
        let block = match self.block {
            Nanos::ZERO => Nanos(late.0 / blocks.max(1)),
            block if is_late && self.was_late => block + Nanos(most),
            block if is_late => block,
            block => (block + Nanos((late.0 / (8 * blocks)).min(most)))
                .saturating_sub(Nanos((early.0 / (8 * blocks)).min(most))),
        };
        (self.block, self.was_late) = (block.min(LONGEST), is_late);
        if !is_late {
            self.pieces.iter_mut().for_each(|(_, at)| *at = (*at + late).saturating_sub(early));
        }
        self.free = self.pieces.back().map_or(now, |(_, at)| *at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link that carries a block in so long, and calls of two blocks, three of them under way; gives for how long calls waited in all, and when the last block was there.
    fn fetch(arrivals: &mut Arrivals, block: u64, pieces: u64, mut now: u64) -> (u64, u64) {
        let (mut free, mut there, mut waited) = (now, VecDeque::new(), 0);
        for n in 0..pieces + 2 {
            if n < pieces {
                arrivals.begun(2, Nanos(now));
                free = free.max(now) + 2 * block;
                there.push_back(free);
            }
            if n >= 2 {
                let called = now.max(arrivals.ask_at(2).0);
                now = called.max(there.pop_front().unwrap()) + 3_000;
                waited += now - called;
                arrivals.there(2, Nanos(now));
            }
        }
        (waited, now)
    }

    #[test]
    fn calls_learn_to_come_when_it_is_there() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.ask_at(1), Nanos::ZERO);
        // Then another link, or one that others use too.
        let mut now = 1_000_000;
        for block in [87_000, 200_000, 40_000] {
            now = fetch(&mut arrivals, block, 200, now).1 + 1_000_000;
            let (waited, end) = fetch(&mut arrivals, block, 64, now);
            let least = 128 * block;
            assert!(waited < 64 * (EARLY.0 + 10_000), "{block}: {} for a call", waited / 64);
            assert!(end - now < least + least / 20, "{block}: {} instead of {least}", end - now);
            now = end + 1_000_000;
        }
    }

    #[test]
    fn a_lock_that_was_waited_for_is_no_slow_link() {
        let mut arrivals = Arrivals::default();
        let (_, now) = fetch(&mut arrivals, 100_000, 200, 1_000_000);
        let known = arrivals.block;
        let begun = Nanos(now + 1_000_000);
        arrivals.begun(2, begun);
        arrivals.begun(2, begun);
        let next = arrivals.ask_at(4);
        arrivals.there(2, begun + Nanos(9_000_000));
        assert_eq!(arrivals.ask_at(2), next, "it is there by then");
        assert_eq!(arrivals.block, known);
        // One in three, for long.
        arrivals.forget();
        let mut now = now + 20_000_000;
        for n in 0..3000 {
            arrivals.begun(2, Nanos(now));
            let there = (now + 200_000).max(arrivals.ask_at(2).0);
            now = there + if n % 3 == 0 { 2_000_000 } else { 10_000 };
            arrivals.there(2, Nanos(now));
        }
        assert!(arrivals.block <= known + Nanos(known.0 / 8), "{:?}", arrivals.block);

        let mut arrivals = Arrivals::default();
        arrivals.begun(2, Nanos(1_000_000));
        arrivals.there(2, Nanos(5_001_000_000));
        arrivals.begun(2, Nanos(6_000_000_000));
        assert!(arrivals.ask_at(2) <= Nanos(6_002_000_000), "a first call that stood still for seconds");
    }

    #[test]
    fn what_was_begun_together_is_expected_one_after_the_other() {
        let mut arrivals = Arrivals { block: Nanos(100_000), ..Arrivals::default() };
        [2, 2, 1].into_iter().for_each(|blocks| arrivals.begun(blocks, Nanos(1_000_000)));
        let expected = |arrivals: &Arrivals, blocks| arrivals.expected(blocks).0 / 1000;
        assert_eq!([1, 2, 3, 4, 5].map(|blocks| expected(&arrivals, blocks)), [1200, 1200, 1400, 1400, 1500]);
        arrivals.there(2, Nanos(1_260_000));
        assert_eq!([2, 3].map(|blocks| expected(&arrivals, blocks)), [1460, 1560], "60 us late");
    }
}
