//! How well it is known that an execution ID uses the blocks of its table.
//!
//! Problem: arguments name more than a kernel touches; of an embedding they name the whole table, of which a batch looks up a part. And
//! of what was used once nothing says that it is still used: once it is fetched ahead, no fault does.
//! Idea: now and then a block is left out ([`crate::doubt`]), and what happens is the truth: a fault proves that it is used, and a launch
//! that ran to its end without one proves that it is not. A block learned from arguments alone is *unproven*, and goes when it was not
//! used once; one that a fault brought in is *proven*, and becomes unproven first.
//! How often blocks are left out follows from what came of it before, for either kind by itself:
//!
//! ```text
//! not used to used     of unproven ones left out     of proven ones left out
//! 0 to 8 or more       1 of 2,048                    1 of 8,192
//! as they were         1 of 256                      1 of 1,024
//! 1 to 1               1 of 16                       1 of 1,024
//! 2 to 1               all                           1 of 16
//! 8 to 1               all                           all: faults alone say what is needed
//! ```
//!
//! An unproven block is left out once at most: then it is proven or gone. A proven one may be left out again and again, so more must
//! speak against those.
//!
//! While little is known of an execution ID, what came of it for its kernel or in the whole program stands in, and before that a
//! sample of 1 of 16. So a dense model pays with a few faults, and one of look-ups knows its wide launches after one or two iterations. Where
//! arguments say nothing, faults say less, too: proven ones are then left out 1 time of 4, and all from 4 to 1 on.
//! The word of others alone never has all be left out. If it did, look-ups would be known sooner in a program of little else, but iterations
//! 2 to 6 of DLRM (`benches/paper/dlrm.py`, batches of 229,376, V100 of 32 GB) take 0.9 to 2.3 s with it, and 1.1 without.
//!
//! Invariants: what came of it counts for the last times only, so that a kernel whose habits
//! change is followed. Not kept from run to run: what is taken over counts as proven, and is not doubted before its execution ID
//! ran here, for faults then would be those that it is to save.

use super::StableBlock;
use super::ranges::Ranges;

/// One of so many unproven blocks is left out while nothing speaks against them.
const UNPROVEN: u64 = 256;
/// The same of proven ones.
const PROVEN: u64 = 1024;
/// And of either kind where they are used less often than not.
const OFTEN: u64 = 16;
/// And of proven ones where arguments say nothing: each look-up elsewhere proves another block once.
const VERY_OFTEN: u64 = 4;
/// So many uses, and nothing else of late, are sure: so many times fewer are left out.
const SURE: u8 = 8;
const FEWER: u64 = 8;
/// Most outcomes that count.
const MEMORY: u8 = 16;
/// Fewest outcomes of an execution ID that say something about it.
const ENOUGH: u8 = 4;

/// What came of leaving blocks out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Precision {
    used: u8,
    unused: u8,
}

impl Precision {
    /// One more was left out.
    pub fn count(&mut self, used: bool) {
        *if used { &mut self.used } else { &mut self.unused } += 1;
        if self.used + self.unused > MEMORY {
            (self.used, self.unused) = (self.used / 2, self.unused / 2);
        }
    }
    /// Whether there is enough to say something.
    pub fn is_known(&self) -> bool {
        self.used + self.unused >= ENOUGH
    }
    /// One of how many is to be left out, where one of `calm` is while little speaks against them, and all are from `all` to 1 on.
    fn one_in(self, calm: u64, all: u8) -> u64 {
        match self.unused / (self.used + 1) {
            against if against >= all => 1,
            against if against * 4 >= all => OFTEN.min(calm),
            _ if calm > OFTEN && self.unused == 0 && self.used >= SURE => calm * FEWER,
            _ => calm,
        }
    }
}

/// See the module.
#[derive(Default, Debug)]
pub struct Proof {
    unproven: Ranges,
    of_unproven: Precision,
    of_proven: Precision,
    /// Taken over from another run, and not tried in this one.
    untried: bool,
}

impl Proof {
    /// Of a table that was taken over.
    pub(super) fn taken_over() -> Self {
        Self { untried: true, ..Self::default() }
    }
    /// The execution ID ran.
    pub(super) fn tried(&mut self) {
        self.untried = false;
    }
    /// Whether its blocks may be left out.
    pub fn is_tried(&self) -> bool {
        !self.untried
    }
    /// One of how many blocks like this one is to be left out. `all` is what came of it for others; without it a sample is taken.
    pub fn one_in(&self, block: StableBlock, all: Option<Precision>) -> u64 {
        let of_unproven = self.one_in_unproven(all);
        if self.is_proven(block) { self.one_in_proven(of_unproven) } else { of_unproven }
    }
    /// Whether all blocks of a kind are to be left out.
    pub fn leaves_all_out(&self, all: Option<Precision>) -> bool {
        let of_unproven = self.one_in_unproven(all);
        of_unproven == 1 || self.one_in_proven(of_unproven) == 1
    }
    fn one_in_unproven(&self, all: Option<Precision>) -> u64 {
        let own = self.of_unproven;
        if own.is_known() {
            own.one_in(UNPROVEN, 2)
        } else {
            all.map_or(OFTEN, |all| all.one_in(UNPROVEN, 2).max(OFTEN))
        }
    }
    fn one_in_proven(&self, of_unproven: u64) -> u64 {
        if of_unproven == 1 { self.of_proven.one_in(VERY_OFTEN, 4) } else { self.of_proven.one_in(PROVEN, 8) }
    }
    /// Whether a fault told of the block.
    pub fn is_proven(&self, block: StableBlock) -> bool {
        !self.unproven.has(block.0)
    }
    /// The block is known from arguments alone.
    pub(super) fn name(&mut self, block: StableBlock) {
        self.unproven.insert(block.0);
    }
    /// The block was faulted on. It counts for others if it had been left out.
    pub(super) fn used(&mut self, block: StableBlock, left_out: bool) {
        let unproven = self.unproven.remove(block.0);
        if left_out {
            let precision = if unproven { &mut self.of_unproven } else { &mut self.of_proven };
            precision.count(true);
        }
    }
    /// The block was left out, and not used. Returns whether it is to be forgotten.
    pub(super) fn unused(&mut self, block: StableBlock) -> bool {
        let unproven = self.unproven.remove(block.0);
        if unproven {
            self.of_unproven.count(false);
        } else {
            self.of_proven.count(false);
            self.unproven.insert(block.0);
        }
        unproven
    }
    /// The block is no more.
    pub(super) fn forget(&mut self, block: StableBlock) {
        self.unproven.remove(block.0);
    }
    /// Gives back room that nothing is in.
    pub(super) fn shrink(&mut self) {
        self.unproven.shrink();
    }
    /// Heap memory.
    pub(super) fn bytes(&self) -> usize {
        self.unproven.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: StableBlock = StableBlock(7);

    #[test]
    fn an_unproven_block_goes_when_it_is_not_used_and_a_proven_one_the_second_time() {
        let mut proof = Proof::default();
        proof.name(BLOCK);
        assert!(!proof.is_proven(BLOCK) && proof.unused(BLOCK), "known from arguments alone");
        assert!(proof.is_proven(BLOCK) && !proof.unused(BLOCK), "a fault told of it");
        assert!(!proof.is_proven(BLOCK));
        proof.used(BLOCK, true);
        assert!(proof.is_proven(BLOCK), "a fault told of it again");
    }

    #[test]
    fn blocks_are_left_out_the_more_often_the_less_they_are_used_and_it_comes_back() {
        let mut proof = Proof::default();
        let named = |n: u32| StableBlock(1000 + n);
        (0..100).for_each(|n| proof.name(named(n)));
        let program = Some(Precision::default());
        assert_eq!((proof.one_in(named(0), None), proof.one_in(BLOCK, None)), (16, 1024), "nothing is known");
        assert_eq!(proof.one_in(named(0), program), 256, "nothing speaks against arguments");
        let of_others = (0..4).fold(Precision::default(), |mut others, _| {
            others.count(false);
            others
        });
        assert_eq!(proof.one_in(named(0), Some(of_others)), 16, "what others name is not used");
        let mut rates: Vec<u64> = Vec::new();
        for n in 0..20 {
            proof.unused(named(n));
            rates.push(proof.one_in(named(99), program));
        }
        assert_eq!(rates[..8], [256, 256, 256, 1, 1, 1, 1, 1]);
        assert!(rates[8..].iter().all(|&rate| rate == 1), "{rates:?}");
        assert_eq!(proof.one_in(BLOCK, program), 4, "one fault does not say much either");
        let mut rates = Vec::new();
        for n in 0..5 {
            proof.unused(StableBlock(2000 + n));
            rates.push(proof.one_in(BLOCK, program));
        }
        assert_eq!(rates, [4, 4, 4, 1, 1], "never less often the more speaks against them");
        for n in 20..40 {
            proof.used(named(n), true);
        }
        assert_eq!(proof.one_in(named(99), program), 256, "used after all");
        for n in 40..60 {
            proof.used(named(n), true);
        }
        assert_eq!(proof.one_in(named(99), program), 2048, "each of late");
    }

    #[test]
    fn a_fault_on_what_was_not_left_out_proves_that_block_alone() {
        let mut proof = Proof::default();
        (0..20).for_each(|n| proof.name(StableBlock(n)));
        (0..8).for_each(|n| assert!(proof.unused(StableBlock(n))));
        assert_eq!(proof.one_in(StableBlock(19), Some(Precision::default())), 1);
        (8..18).for_each(|n| proof.used(StableBlock(n), false));
        assert_eq!(proof.one_in(StableBlock(19), Some(Precision::default())), 1, "late is not left out");
        assert!(proof.is_proven(StableBlock(8)));
    }

    #[test]
    fn what_was_taken_over_is_tried_once_it_ran() {
        let mut proof = Proof::taken_over();
        assert!(!proof.is_tried() && Proof::default().is_tried());
        proof.tried();
        assert!(proof.is_tried());
    }
}
