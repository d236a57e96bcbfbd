//! A launch's number among launches, and its place among launches and copies.
//!
//! Problem: the emulated device counts a program's launches and asks for one by its number ([`crate::pace`]); in the sequence that
//! shim and engine use, copies have places, too.
//!
//! Idea: remember the places of the newest copies, and how many came before. Copies are told while the engine is awake; how many there were
//! until it woke, the ring's header says.
//!
//! Invariant: at most [`KEPT`] places are held; launches older than the oldest of them are over, and their answer does not matter.
//!
//! Not here: a copy whose record was dropped. Numbers are one off from there on, and only reports read them.

use deepum_core::units::LaunchSeq;
use std::collections::VecDeque;

/// As many places as the window of the core holds launches.
const KEPT: usize = deepum_core::window::LIMIT;

/// See the module.
#[derive(Debug, Default)]
pub struct Numbers {
    /// Places of copies, ascending.
    copies: VecDeque<u64>,
    /// Copies before those.
    before: u64,
    /// The newest place when the engine woke; older launches were never told.
    woke_at: u64,
}

impl Numbers {
    /// The engine wakes, and is told what comes after the place `newest`; `copies` were before.
    pub fn wake(&mut self, newest: LaunchSeq, copies: u64) {
        *self = Self { copies: VecDeque::new(), before: copies, woke_at: newest.0 };
    }

    /// A copy has this place. Told once for each of its ranges.
    pub fn copy(&mut self, seq: LaunchSeq) {
        let at = self.copies.partition_point(|&place| place < seq.0);
        if self.copies.get(at) == Some(&seq.0) {
            return;
        }
        self.copies.insert(at, seq.0);
        if self.copies.len() > KEPT {
            self.copies.pop_front();
            self.before += 1;
        }
    }

    /// A launch has this place. Where a copy had it, the driver refused that one.
    pub fn launch(&mut self, seq: LaunchSeq) {
        if self.copies.back().is_some_and(|&newest| newest >= seq.0)
            && let Ok(at) = self.copies.binary_search(&seq.0)
        {
            self.copies.remove(at);
        }
    }

    /// The place of the launch with this number, from 1; nothing for one issued before the engine woke.
    pub fn place(&self, number: u64) -> Option<LaunchSeq> {
        let mut place = number.saturating_add(self.before);
        for &copy in &self.copies {
            if copy > place {
                break;
            }
            place += 1;
        }
        (place > self.woke_at).then_some(LaunchSeq(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers and places of a sequence written as letters: `l` a launch, `c` a copy of two ranges, `r` one that is refused.
    fn check(what: &str) {
        let (mut numbers, mut place, mut launches) = (Numbers::default(), 0, Vec::new());
        for letter in what.chars() {
            let next = LaunchSeq(place + 1);
            match letter {
                'l' => {
                    numbers.launch(next);
                    launches.push(next);
                }
                _ => {
                    numbers.copy(next);
                    numbers.copy(next);
                }
            }
            place += u64::from(letter != 'r');
        }
        for (number, want) in (1..).zip(launches) {
            assert_eq!(numbers.place(number), Some(want), "launch {number} of {what}");
        }
    }

    #[test]
    fn every_launch_is_found_behind_the_copies_before_it() {
        for what in ["lll", "cl", "lcl", "cclcllccl", "lrl", "crlrrlcl", "llllc"] {
            check(what);
        }
    }

    #[test]
    fn copies_that_were_never_told_count_from_when_the_engine_woke() {
        let mut numbers = Numbers::default();
        // Asleep: launch, copy, copy, launch. Awake: copy, launch, launch.
        numbers.wake(LaunchSeq(4), 2);
        numbers.copy(LaunchSeq(5));
        assert_eq!([1, 2, 3, 4].map(|n| numbers.place(n)), [None, None, Some(LaunchSeq(6)), Some(LaunchSeq(7))]);
    }

    #[test]
    fn old_copies_are_forgotten_and_still_count() {
        let mut numbers = Numbers::default();
        for n in 1..=3 * KEPT as u64 {
            numbers.copy(LaunchSeq(2 * n));
        }
        assert_eq!(numbers.copies.len(), KEPT);
        for n in [2 * KEPT as u64 + 1, 3 * KEPT as u64] {
            assert_eq!(numbers.place(n), Some(LaunchSeq(2 * n - 1)));
        }
    }
}
