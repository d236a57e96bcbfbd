//! The launch gate: one word per GPU, moved by the engine, waited for by the program's streams.
//!
//! Problem: a kernel that starts before its blocks have arrived faults block after block, and each fault costs more than
//! the transfer it waits for. Only the GPU can wait without faulting.
//! Idea: before each launch the shim puts a wait for the word to reach the launch's number into the stream
//! (`cuStreamWaitValue64`, "greater or equal"). The word is the number of the last launch that may start; [`OPEN`], that of
//! none, unless blocks fetched for a launch are on their way.
//!
//! Nothing is lost if a word is moved too late: the launch starts early, and faults as it would without a gate. Everything
//! is if one stays low: so whoever stops moving words opens them ([`Gates::open`]), and once the mode is
//! [`Mode::Off`] they stay open.

use crate::shared::{Mode, Shared};
use crate::sync::{AtomicU64, Ordering, fence};
use deepum_core::units::LaunchSeq;

/// Every launch may start. The driver compares as signed numbers: `(int64_t)(word - value) >= 0` (CUDA driver API,
/// `CU_STREAM_WAIT_VALUE_GEQ`), so the largest unsigned one would hold everybody.
pub const OPEN: u64 = i64::MAX.cast_unsigned();

/// The words, by CUDA ordinal. None at all where the driver cannot wait for them.
#[derive(Clone, Copy, Debug)]
pub struct Gates {
    words: &'static [AtomicU64],
}

impl Gates {
    /// These words, opened.
    pub fn new(words: &'static [AtomicU64]) -> Self {
        let gates = Self::over(words);
        gates.open();
        gates
    }

    /// These words as they are.
    pub const fn over(words: &'static [AtomicU64]) -> Self {
        Self { words }
    }

    /// No gate: moving it does nothing.
    pub const fn none() -> Self {
        Self { words: &[] }
    }

    /// The word of a GPU, if there is one.
    pub fn word(&self, ordinal: usize) -> Option<&'static AtomicU64> {
        self.words.get(ordinal)
    }

    /// Lets launches before `first` start, or all; all in any case where the mode is off.
    pub fn set(&self, ordinal: usize, first: Option<LaunchSeq>, shared: &Shared<'_>) {
        let Some(word) = self.words.get(ordinal) else { return };
        word.store(first.map_or(OPEN, |first| first.0.saturating_sub(1)), Ordering::Relaxed);
        // Either we see the mode that another thread set before it opened, or it opens after us.
        fence(Ordering::SeqCst);
        if shared.mode() == Mode::Off {
            self.open();
        }
    }

    /// Lets every launch start. To keep it so, set the mode to off before.
    pub fn open(&self) {
        fence(Ordering::SeqCst);
        for word in self.words {
            word.store(OPEN, Ordering::Release);
        }
    }

    /// Whether some launch may not start.
    pub fn is_closed(&self) -> bool {
        self.words.iter().any(|word| word.load(Ordering::Relaxed) != OPEN)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ring::{HEADER_WORDS, Ring};

    fn words(count: usize) -> &'static [AtomicU64] {
        Box::leak((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    /// As the driver compares.
    fn passes(word: u64, launch: u64) -> bool {
        word.wrapping_sub(launch).cast_signed() >= 0
    }

    #[test]
    fn the_gate_lets_through_what_is_before_it_and_open_lets_through_all() {
        let ring = Ring::format(words(HEADER_WORDS + 64)).unwrap();
        let (page, shared) = (words(2), ring.shared());
        let gates = Gates::new(page);
        let word = |n: usize| page[n].load(Ordering::Relaxed);
        assert!(!gates.is_closed() && passes(word(0), 1) && passes(word(0), 1 << 62));
        gates.set(1, Some(LaunchSeq(7)), &shared);
        assert!(gates.is_closed() && passes(word(1), 6) && !passes(word(1), 7) && passes(word(0), 7));
        gates.set(1, None, &shared);
        assert!(passes(word(1), 1 << 62));
        gates.set(9, Some(LaunchSeq(7)), &shared);
        assert!(!gates.is_closed(), "no such GPU");
    }

    #[test]
    fn once_the_mode_is_off_it_cannot_be_closed() {
        let ring = Ring::format(words(HEADER_WORDS + 64)).unwrap();
        let gates = Gates::new(words(1));
        gates.set(0, Some(LaunchSeq(7)), &ring.shared());
        ring.shared().set_mode(Mode::Off);
        gates.open();
        gates.set(0, Some(LaunchSeq(8)), &ring.shared());
        assert!(!gates.is_closed());
    }
}
