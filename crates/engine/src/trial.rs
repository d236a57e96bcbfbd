//! Whether blocks had better leave mapped or unmapped, by what both take on this machine.
//!
//! Problem: the plain way out enters a block into the host's page tables, page by page, which takes a processor 117 us whatever the link does (facts 4.1), and more the first
//! time. The other way (`kmod-bridge/src/leave.rs`) does not, but waits three times until no migration is asked for, which may take longer on a slow link.
//! Idea: the first blocks leave in turn one way and the other, until enough has left each way. The way that took less time a block stays for good.

use deepum_core::units::Nanos;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Blocks each way after which it is decided: half a gigabyte, since one that leaves for the first time may take ten times as long for the host's own reasons.
const ENOUGH: u64 = 256;
/// A block whose contents no link carries in this time: nothing moved.
const NOTHING: Nanos = Nanos(20_000);

/// See the module.
#[derive(Debug, Default)]
pub struct Trial {
    /// By way: mapped, unmapped.
    blocks: [AtomicU64; 2],
    nanos: [AtomicU64; 2],
    /// 0: not decided; 1: mapped; 2: unmapped.
    verdict: AtomicU8,
}

impl Trial {
    /// One that is decided from the start.
    pub fn decided(unmapped: bool) -> Self {
        Self { verdict: AtomicU8::new(1 + u8::from(unmapped)), ..Self::default() }
    }

    fn left(&self) -> [u64; 2] {
        [0, 1].map(|way: usize| self.blocks[way].load(Ordering::Relaxed))
    }

    /// Whether what leaves next does so unmapped.
    pub fn is_unmapped(&self) -> bool {
        match self.verdict.load(Ordering::Relaxed) {
            0 => {
                let [mapped, unmapped] = self.left();
                unmapped <= mapped
            }
            verdict => verdict == 2,
        }
    }

    /// Whether nothing needs to be noted any more.
    pub fn is_over(&self) -> bool {
        self.verdict.load(Ordering::Relaxed) != 0
    }

    /// So many blocks left by one call, in such a time.
    pub fn note(&self, unmapped: bool, blocks: u64, time: Nanos) {
        if time.0 < blocks * NOTHING.0 {
            return;
        }
        self.blocks[usize::from(unmapped)].fetch_add(blocks, Ordering::Relaxed);
        self.nanos[usize::from(unmapped)].fetch_add(time.0, Ordering::Relaxed);
        let blocks = self.left();
        if blocks[0].min(blocks[1]) < ENOUGH {
            return;
        }
        // Each time for as many blocks as left the other way.
        let [mapped, unmapped] =
            [0, 1].map(|way: usize| u128::from(self.nanos[way].load(Ordering::Relaxed)) * u128::from(blocks[1 - way]));
        // It may have been refused meanwhile.
        let verdict = 1 + u8::from(unmapped < mapped);
        let _ = self.verdict.compare_exchange(0, verdict, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The other way did not do what it should.
    pub fn refuse(&self) {
        self.verdict.store(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After so many calls of four blocks, where a block takes `mapped` or `unmapped` nanoseconds; and how many calls were of the second kind.
    fn verdict(mapped: u64, unmapped: u64, calls: u64) -> (Option<bool>, u64) {
        let (trial, mut asked) = (Trial::default(), 0);
        for _ in 0..calls {
            let way = trial.is_unmapped();
            asked += u64::from(way);
            trial.note(way, 4, Nanos(4 * if way { unmapped } else { mapped }));
        }
        (trial.is_over().then(|| trial.is_unmapped()), asked)
    }

    #[test]
    fn both_ways_are_tried_in_turn_and_the_faster_stays() {
        // 64 calls each way are 256 blocks.
        assert_eq!(verdict(130_000, 64_000, 127), (None, 64));
        assert_eq!(verdict(130_000, 64_000, 128), (Some(true), 64));
        assert_eq!(verdict(205_000, 206_000, 128), (Some(false), 64));
        assert_eq!(verdict(130_000, 64_000, 400), (Some(true), 336), "none is mapped afterwards");
        assert_eq!(verdict(64_000, 130_000, 400), (Some(false), 64), "none is unmapped afterwards");
    }

    #[test]
    fn calls_of_many_blocks_count_as_many() {
        let trial = Trial::default();
        // 100 us a block in a few large calls, 50 in many small ones.
        (0..16).for_each(|_| trial.note(true, 16, Nanos(1_600_000)));
        (0..256).for_each(|_| trial.note(false, 1, Nanos(50_000)));
        assert!(trial.is_over() && !trial.is_unmapped());
    }

    #[test]
    fn what_moves_nothing_says_nothing_and_a_verdict_stands() {
        let trial = Trial::default();
        (0..1000).for_each(|_| trial.note(trial.is_unmapped(), 16, Nanos(150_000)));
        assert!(!trial.is_over());
        (0..32).for_each(|_| trial.note(trial.is_unmapped(), 16, Nanos(1_000_000)));
        assert!(trial.is_over() && !trial.is_unmapped(), "the same both ways: the plain one");
        (0..1000).for_each(|_| trial.note(false, 16, Nanos(100_000_000)));
        assert!(!trial.is_unmapped());
        let refused = Trial::decided(true);
        assert!(refused.is_unmapped());
        refused.refuse();
        assert!(refused.is_over() && !refused.is_unmapped());
    }
}
