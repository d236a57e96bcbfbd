//! Whether blocks had better leave mapped or unmapped, by what moves take on this machine.
//!
//! Problem: the plain way out enters a block into the host's page tables, page by page, which takes a processor 117 us whatever the link does (facts 4.1). The other way
//! (`kmod-bridge/src/leave.rs`) does not, but waits three times until no migration is under way, which a slow link makes long.
//! Idea: the way in has no entries to make, and carries as much. Where moves out take nearly as long as moves in, the link is what they wait for, and blocks leave mapped;
//! where they take much longer, unmapped. Both are looked at until enough has moved, and then it is decided for good.
//!
//! Where the line is, at 1.8 times, is an assumption: no card was measured but one, which is far beyond it.
//! On an H200 at PCIe 5 a block takes 2 to 4 times as long out as in (`docs/gpu-results/README.md`).

use deepum_core::units::Nanos;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Blocks each way after which it is decided: half a gigabyte.
const ENOUGH: u64 = 256;
/// A block whose contents no link carries in this time: nothing moved.
const NOTHING: Nanos = Nanos(20_000);

/// See the module. Both movers note what they did, at the same time.
#[derive(Debug, Default)]
pub struct Trial {
    /// By direction: out, in.
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

    /// Whether blocks leave unmapped.
    pub fn is_unmapped(&self) -> bool {
        self.verdict.load(Ordering::Relaxed) == 2
    }

    /// Whether nothing needs to be noted any more.
    pub fn is_over(&self) -> bool {
        self.verdict.load(Ordering::Relaxed) != 0
    }

    /// So many blocks were moved by one call, mapped, in such a time.
    pub fn note(&self, out: bool, blocks: u64, time: Nanos) {
        if time.0 < blocks * NOTHING.0 {
            return;
        }
        let at = usize::from(!out);
        self.blocks[at].fetch_add(blocks, Ordering::Relaxed);
        self.nanos[at].fetch_add(time.0, Ordering::Relaxed);
        let [out, back] =
            [0, 1].map(|at: usize| (self.nanos[at].load(Ordering::Relaxed), self.blocks[at].load(Ordering::Relaxed)));
        if out.1.min(back.1) < ENOUGH {
            return;
        }
        // More than 1.8 times as long a block.
        let [slow, fast] =
            [(out, back), (back, out)].map(|((nanos, _), (_, blocks))| u128::from(nanos) * u128::from(blocks));
        let unmapped = slow * 10 > fast * 18;
        // The other mover may have decided meanwhile.
        let _ = self.verdict.compare_exchange(0, 1 + u8::from(unmapped), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// It did not do what it should.
    pub fn refuse(&self) {
        self.verdict.store(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After so many calls of `out` and `back` nanoseconds a block, in turn.
    fn verdict(out: u64, back: u64, calls: u64) -> Option<bool> {
        let trial = Trial::default();
        for call in 0..calls {
            trial.note(call % 2 == 0, 4, Nanos(4 * if call % 2 == 0 { out } else { back }));
        }
        trial.is_over().then(|| trial.is_unmapped())
    }

    #[test]
    fn what_the_link_carries_as_fast_out_as_in_leaves_mapped() {
        // PCIe 3: the link takes 175 us a block, the entries 117, beside it but for those of the last.
        assert_eq!(verdict(205_000, 183_000, 200), Some(false));
        assert_eq!(verdict(179_000, 100_000, 200), Some(false), "just not");
        // An H200, in calls of 8 MiB.
        assert_eq!(verdict(130_000, 57_000, 200), Some(true));
        assert_eq!(verdict(181_000, 100_000, 200), Some(true), "just so");
        // 64 calls each way are 256 blocks.
        assert_eq!((verdict(130_000, 57_000, 127), verdict(130_000, 57_000, 128)), (None, Some(true)));
    }

    #[test]
    fn one_direction_alone_decides_nothing_and_a_verdict_stands() {
        let trial = Trial::default();
        (0..1000).for_each(|_| trial.note(true, 16, Nanos(1_000_000)));
        // Touches, and places for contents that there are none of yet.
        (0..1000).for_each(|_| trial.note(false, 16, Nanos(150_000)));
        assert!(!trial.is_over() && !trial.is_unmapped());
        (0..100).for_each(|_| trial.note(false, 16, Nanos(1_000_000)));
        assert!(trial.is_over() && !trial.is_unmapped());
        (0..100_000).for_each(|_| trial.note(true, 16, Nanos(10_000_000)));
        assert!(!trial.is_unmapped());
        let refused = Trial::decided(true);
        assert!(refused.is_unmapped());
        refused.refuse();
        assert!(refused.is_over() && !refused.is_unmapped());
    }
}
