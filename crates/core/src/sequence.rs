//! Which launches and copies of the device's sequence we were told of, and so can know the end of.
//!
//! Problem: contents may be given up only when whoever used them last is finished. Launches are not recorded while everything
//! fits, a full ring drops records, and streams beyond the progress page report no end. What is not known must not
//! be taken for finished.
//! Idea: numbers are taken without gaps, so whatever is missing between those told is a launch nobody told of. The newest of
//! them, and of those whose end will never be reported, is the *doubt*. PyTorch's allocator hands memory out again in the order of
//! its stream (or waits for the other streams' events). So a PT block that was handed out after the doubt, and whose users
//! since then are all told and finished, has no user left.
//!
//! Invariants: the doubt is at least as new as every number up to [`Sequence::told`] that was not told.
//! Not here: launches under way (`window`), PT blocks (`pt_blocks`).

use std::collections::VecDeque;

use crate::units::LaunchSeq;

/// Where in a list ordered by number the first is that has `seq` or a newer one; its length if none has. Numbers are taken
/// without gaps, so one look mostly does.
pub fn place<T>(list: &VecDeque<T>, seq: LaunchSeq, number: impl Fn(&T) -> LaunchSeq) -> usize {
    let Some(first) = list.front().map(&number).filter(|&first| first < seq) else { return 0 };
    let straight = usize::try_from(seq.0 - first.0).unwrap_or(usize::MAX);
    if list.get(straight).is_some_and(|there| number(there) == seq) {
        return straight;
    }
    if list.back().is_some_and(|last| number(last) < seq) {
        return list.len();
    }
    list.partition_point(|there| number(there) < seq)
}

/// Most gaps kept apart. A gap closes when a thread that took an earlier number writes its record later; beyond this the
/// oldest is taken for one that never closes.
const GAPS: usize = 64;

/// See the module.
#[derive(Default, Debug)]
pub struct Sequence {
    told: LaunchSeq,
    issued: LaunchSeq,
    /// Numbers below `told` that were not told, in order: first and last of each gap.
    gaps: Vec<(LaunchSeq, LaunchSeq)>,
    /// The newest number whose end will never be known.
    lost: LaunchSeq,
}

impl Sequence {
    /// A launch or copy was told.
    pub fn tell(&mut self, seq: LaunchSeq) {
        if seq <= self.told {
            return self.close(seq);
        }
        if seq.0 > self.told.0 + 1 {
            if self.gaps.len() == GAPS {
                let (_, last) = self.gaps.remove(0);
                self.lose(last);
            }
            self.gaps.push((self.told.plus(1), LaunchSeq(seq.0 - 1)));
        }
        self.told = seq;
        self.issued = self.issued.max(seq);
    }

    /// A record that comes late is no gap.
    fn close(&mut self, seq: LaunchSeq) {
        let Some(at) = self.gaps.iter().position(|&(first, last)| first <= seq && seq <= last) else { return };
        let (first, last) = self.gaps.remove(at);
        if seq < last {
            self.gaps.insert(at, (seq.plus(1), last));
        }
        if first < seq {
            self.gaps.insert(at, (first, LaunchSeq(seq.0 - 1)));
        }
    }

    /// The end of this one will never be known.
    pub fn lose(&mut self, seq: LaunchSeq) {
        self.lost = self.lost.max(seq);
    }

    /// All up to this one are finished, told or not.
    pub fn over(&mut self, seq: LaunchSeq) {
        self.gaps.retain_mut(|(first, last)| {
            *first = seq.plus(1).max(*first);
            first <= last
        });
        if self.lost <= seq {
            self.lost = LaunchSeq(0);
        }
    }

    /// Numbers up to this one are taken.
    pub fn issue(&mut self, seq: LaunchSeq) {
        self.issued = self.issued.max(seq);
    }

    /// The newest number told.
    pub fn told(&self) -> LaunchSeq {
        self.told
    }
    /// The newest number taken, as far as is known.
    pub fn issued(&self) -> LaunchSeq {
        self.issued
    }
    /// Whether a number between these two was not told, and may be under way.
    pub fn lacks_between(&self, after: LaunchSeq, before: LaunchSeq) -> bool {
        self.gaps.iter().any(|&(first, last)| first < before && after < last)
    }
    /// The newest number up to [`Self::told`] that may be under way without our knowing.
    pub fn doubt(&self) -> LaunchSeq {
        self.gaps.last().map_or(self.lost, |&(_, last)| last.max(self.lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_was_launched_while_nobody_listened_is_in_doubt() {
        let mut sequence = Sequence::default();
        sequence.tell(LaunchSeq(1000));
        assert_eq!((sequence.told(), sequence.doubt()), (LaunchSeq(1000), LaunchSeq(999)));
        sequence.tell(LaunchSeq(1001));
        assert_eq!(sequence.doubt(), LaunchSeq(999));
        sequence.lose(LaunchSeq(1001));
        assert_eq!(sequence.doubt(), LaunchSeq(1001));
    }

    #[test]
    fn what_is_over_is_not_in_doubt() {
        let mut sequence = Sequence::default();
        for seq in [3, 6, 9] {
            sequence.tell(LaunchSeq(seq));
        }
        sequence.lose(LaunchSeq(3));
        let mut doubt = |over| {
            sequence.over(LaunchSeq(over));
            sequence.doubt().0
        };
        assert_eq!([2, 6, 7, 8].map(&mut doubt), [8, 8, 8, 0], "7 and 8 are the last that were not told");
    }

    proptest! {
        #[test]
        fn a_place_is_the_first_not_before_the_number(
            numbers in prop::collection::btree_set(0u64..40, 0..30), seq in 0u64..45
        ) {
            let list: VecDeque<u64> = numbers.iter().copied().collect();
            let before = numbers.iter().filter(|&&number| number < seq).count();
            prop_assert_eq!(place(&list, LaunchSeq(seq), |&number| LaunchSeq(number)), before);
        }

        /// Against the set of everything told: the doubt is never older than the newest number missing, and the same while few are.
        #[test]
        fn the_doubt_covers_every_number_not_told(told in prop::collection::vec(1u64..80, 1..60)) {
            let (mut sequence, mut oracle) = (Sequence::default(), BTreeSet::new());
            let mut most_gaps = 0;
            for seq in told {
                sequence.tell(LaunchSeq(seq));
                oracle.insert(seq);
                let newest = *oracle.last().unwrap();
                let missing: Vec<u64> = (1..newest).filter(|n| !oracle.contains(n)).collect();
                most_gaps = most_gaps.max(missing.iter().filter(|n| !missing.contains(&(**n + 1))).count());
                prop_assert_eq!(sequence.told(), LaunchSeq(newest));
                let expected = missing.last().copied().unwrap_or(0);
                prop_assert!(sequence.doubt().0 >= expected);
                if most_gaps < GAPS {
                    prop_assert_eq!(sequence.doubt().0, expected);
                    let lacking = |after: u64| missing.iter().any(|&n| after < n && n < seq);
                    prop_assert!((0..seq).all(|after| sequence.lacks_between(LaunchSeq(after), LaunchSeq(seq)) == lacking(after)));
                }
            }
        }
    }
}
