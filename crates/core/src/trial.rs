//! Whether blocks had better leave mapped or unmapped, by what both take on this machine now.
//!
//! Problem: the plain way out enters a block into the host's page tables, page by page, which takes a processor 117 us whatever the link does (facts 4.1), and more the first
//! time. The other way (`kmod-bridge/src/leave.rs`) does not, but waits two or three times until no migration is asked for, which takes longer than that on a slow link, and the longer the more comes meanwhile.
//! Idea: the first blocks leave in turn one way and the other, until enough has left each way. From then on the way that took less time a block of late is taken, and the other one tried now and then: so rarely that
//! it costs less than a sixty-fourth of the time. Where who leaves unmapped ends a preference, something is counted as well that is not seen in what leaving takes: it lets nobody ask for anything for a third of
//! that time (facts 4.9).

use crate::units::Nanos;

/// Blocks each way after which the faster is taken: half a gigabyte, since one that leaves for the first time may take ten times as long for the host's own reasons.
const ENOUGH: u64 = 256;
/// A block whose contents no link carries in this time: nothing moved.
const NOTHING: Nanos = Nanos(20_000);
/// To leave unmapped must take less by this part of its time where the preference for the host ends with it: on an H200 25 of 72 us a block are under a lock then that holds up what comes. An eighth is a choice, not a measurement.
const LOCKED: u64 = 8;
/// Calls after which the other way is tried again, if it takes as long; more if it takes longer.
const AGAIN: u64 = 64;
/// Calls that count as of late.
const LATE: u64 = 16;

/// See the module.
#[derive(Clone, Copy, Default, Debug)]
pub struct Trial {
    /// By way: mapped, unmapped.
    ways: [Way; 2],
    /// Calls by the faster way since the other was taken.
    since: u64,
    /// Whether unmapped, if that is not to be found out.
    verdict: Option<bool>,
    /// Whether who leaves unmapped ends a preference.
    locks: bool,
}

/// What left one way.
#[derive(Clone, Copy, Default, Debug)]
struct Way {
    blocks: u64,
    /// Of late: blocks, in parts of [`LATE`], and what they took, likewise.
    late: u64,
    nanos: u64,
}

impl Way {
    fn note(&mut self, blocks: u64, time: Nanos) {
        self.blocks += blocks;
        self.late = self.late - self.late / LATE + blocks * LATE;
        self.nanos = self.nanos - self.nanos / LATE + time.0 * LATE;
    }
    /// For a block, of late.
    fn time(&self) -> u64 {
        self.nanos / self.late.max(1)
    }
}

impl Trial {
    /// Nothing is known yet. `prefers`: whether the host stays preferred for who leaves unmapped.
    #[must_use]
    pub fn measured(prefers: bool) -> Self {
        Self { locks: !prefers, ..Self::default() }
    }

    /// One way for good.
    #[must_use]
    pub fn decided(unmapped: bool) -> Self {
        Self { verdict: Some(unmapped), ..Self::default() }
    }

    /// Whether what leaves next does so unmapped.
    #[must_use]
    pub fn is_unmapped(&self) -> bool {
        let [mapped, unmapped] = self.ways;
        self.verdict.unwrap_or_else(|| match self.faster() {
            None => unmapped.blocks <= mapped.blocks,
            Some(faster) => {
                let [used, other] = [faster, !faster].map(|way| self.ways[usize::from(way)].time().max(1));
                let is_due = self.since >= AGAIN.saturating_mul(other) / used;
                faster != is_due
            }
        })
    }

    /// Which of late, once enough has left both ways.
    fn faster(&self) -> Option<bool> {
        let [mapped, unmapped] = self.ways;
        let beside = if self.locks { unmapped.time() / LOCKED } else { 0 };
        (mapped.blocks.min(unmapped.blocks) >= ENOUGH).then(|| unmapped.time() + beside < mapped.time())
    }

    /// So many blocks left by one call, in such a time.
    pub fn note(&mut self, unmapped: bool, blocks: u64, time: Nanos) {
        if time.0 < blocks * NOTHING.0 {
            return;
        }
        self.since = if self.faster() == Some(unmapped) { self.since + 1 } else { 0 };
        self.ways[usize::from(unmapped)].note(blocks, time);
    }

    /// The other way did not do what it should.
    pub fn refuse(&mut self) {
        self.verdict = Some(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After so many calls of four blocks, where a block takes `mapped` or `unmapped` nanoseconds: how many were of the second kind.
    fn calls(trial: &mut Trial, [mapped, unmapped]: [u64; 2], calls: u64) -> u64 {
        let mut asked = 0;
        for _ in 0..calls {
            let way = trial.is_unmapped();
            asked += u64::from(way);
            trial.note(way, 4, Nanos(4 * if way { unmapped } else { mapped }));
        }
        asked
    }

    #[test]
    fn both_ways_are_tried_in_turn_and_the_faster_is_taken() {
        let trial = &mut Trial::measured(false);
        // 64 calls each way are 256 blocks.
        assert_eq!(calls(trial, [130_000, 65_000], 128), 64);
        // Mapped takes twice as long: it is tried after about 128 calls.
        assert_eq!([120, 20, 100].map(|some| calls(trial, [130_000, 65_000], some)), [120, 19, 100]);
        let trial = &mut Trial::measured(false);
        assert_eq!(calls(trial, [64_000, 130_000], 128), 64);
        assert_eq!(calls(trial, [64_000, 130_000], 64), 0, "none is unmapped");
        // An eighth counts beside, where a preference ends.
        for (prefers, unmapped, calls_unmapped) in
            [(false, 70_000, 50), (false, 72_000, 0), (true, 79_000, 50), (true, 81_000, 0)]
        {
            let trial = &mut Trial::measured(prefers);
            calls(trial, [80_000, unmapped], 128);
            assert_eq!(calls(trial, [80_000, unmapped], 50), calls_unmapped, "{prefers} {unmapped}");
        }
    }

    #[test]
    fn trying_the_slower_way_costs_less_than_a_sixty_fourth() {
        for slower in [73_000, 130_000, 1_000_000] {
            let trial = &mut Trial::measured(false);
            calls(trial, [slower, 64_000], 128);
            let many = 100_000;
            let mapped = many - calls(trial, [slower, 64_000], many);
            assert!(mapped > 0 && (slower - 64_000) * mapped * 64 < 64_000 * many, "{slower}: {mapped}");
        }
    }

    #[test]
    fn what_becomes_faster_is_taken_from_then_on() {
        let trial = &mut Trial::measured(false);
        calls(trial, [130_000, 65_000], 128);
        // Something comes all the time now, and what leaves unmapped waits for it.
        let unmapped = calls(trial, [130_000, 150_000], 2000);
        assert!(unmapped < 400, "{unmapped}");
        let unmapped = calls(trial, [130_000, 65_000], 4000);
        assert!(unmapped > 2000, "{unmapped}");
    }

    #[test]
    fn calls_of_many_blocks_count_as_many() {
        let mut trial = Trial::measured(false);
        // 100 us a block in a few large calls, 120 in many small ones.
        (0..16).for_each(|_| trial.note(true, 16, Nanos(1_600_000)));
        (0..256).for_each(|_| trial.note(false, 1, Nanos(120_000)));
        (0..16).for_each(|_| trial.note(true, 1, Nanos(110_000)));
        assert!(trial.is_unmapped());
    }

    #[test]
    fn what_moves_nothing_says_nothing_and_a_verdict_stands() {
        let mut trial = Trial::measured(false);
        (0..1000).for_each(|_| trial.note(trial.is_unmapped(), 16, Nanos(150_000)));
        assert_eq!(trial.ways[0].blocks + trial.ways[1].blocks, 0);
        let mut decided = Trial::decided(true);
        assert_eq!(calls(&mut decided, [64_000, 640_000], 1000), 1000);
        decided.refuse();
        assert_eq!(calls(&mut decided, [640_000, 64_000], 1000), 0);
    }
}
