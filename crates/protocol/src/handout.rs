//! Hand-outs: whether the contents of a UM block may be thrown away now. One word per block, moved by shim and engine.
//!
//! Problem: a block that holds no tensor may be discarded instead of copied to the host. But PyTorch may hand its memory out
//! again at any moment, on any thread, and a discard that comes after the first write to the new tensor destroys it. Records come
//! too late to prevent that, and may be dropped.
//!
//! Idea: the word is the truth. A discard needs a word in which nobody holds the block, and claims it by
//! compare-and-swap; a hold adds itself first, so that no discard can begin, then waits for the one that has. So a block
//! that was handed out is never discarded, and a hand-out waits for at most one call of the driver.
//!
//! ```text
//! word = stamp (38 bits) | tag (10) | discarding (1) | pinned (1) | open (1) | holders (13)
//! ```
//!
//! - *Open*: the block belongs whole to an allocation that PyTorch's allocator has begun to hand out. What was never opened, as
//!   all memory of others, cannot be discarded: a word of zeros is closed.
//! - *Tag*: blocks whose numbers are equal modulo the number of words share one. The first to open it owns it until it is
//!   closed; the others stay closed.
//! - *Holders*: PT blocks that hold a tensor and overlap the block.
//! - *Pinned*: a captured graph may use the block whenever it is launched, whoever holds it.
//! - *Stamp*: what was issued before the last release may still be running; it is finished once the stamp's grace is over
//!   ([`crate::grace`]).
//!
//! Who calls what: the shim opens, holds, releases, pins and closes; the engine begins and ends discards. Whoever
//! learns that the engine's process is gone, so that none of its calls is in the driver any more, clears what it left.
//!
//! Not here: who decides what to discard (`deepum-core`), and which tensors there are (the shim).

use crate::grace::GraceWords;
use crate::plant::{self, Plant};
use crate::sync::{self, AtomicU64, Ordering, look, update};
use deepum_core::units::UmBlock;

const HOLDERS: u64 = (1 << 13) - 1;
const OPEN: u64 = 1 << 13;
const PINNED: u64 = 1 << 14;
const DISCARDING: u64 = 1 << 15;
const TAG: u32 = 16;
const TAGS: u64 = 1 << 10;
const STAMP: u32 = 26;

/// The words of one program. Copies are the same words.
#[derive(Clone, Copy, Debug)]
pub struct HandOuts<'a> {
    words: &'a [AtomicU64],
    grace: GraceWords<'a>,
}

impl<'a> HandOuts<'a> {
    /// Over these words, whose number is a power of two.
    pub fn new(words: &'a [AtomicU64], grace: GraceWords<'a>) -> Self {
        debug_assert!(words.len().is_power_of_two(), "{} words", words.len());
        Self { words, grace }
    }

    /// The block's word and tag; nothing for a block past those that tags tell apart (2^28 of them: 49 bits of address).
    #[expect(clippy::cast_possible_truncation, reason = "below the number of words, which is a usize")]
    fn word(&self, block: UmBlock) -> Option<(&'a AtomicU64, u64)> {
        let count = self.words.len() as u64;
        let tag = block.0 / count;
        (tag < TAGS).then(|| (&self.words[(block.0 % count) as usize], tag << TAG))
    }

    /// The word, if the block owns it. If it does not any more, the discards of its time are over.
    fn owned(&self, block: UmBlock) -> Option<&'a AtomicU64> {
        let (word, tag) = self.word(block)?;
        owns(look(word, Ordering::Acquire), tag).then_some(word)
    }

    /// The block lies whole in memory that PyTorch's allocator hands out, and holds nothing yet. False if another block owns
    /// the word: then this one can never be discarded.
    pub fn open(&self, block: UmBlock) -> bool {
        let Some((word, tag)) = self.word(block) else { return false };
        let new = OPEN | tag | stamped(self.grace.stamp());
        match word.compare_exchange(0, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => true,
            Err(have) => owns(have, tag),
        }
    }

    /// The block's memory is given back to the driver: whatever lies there next is not ours to throw away. Waits for a
    /// discard in flight.
    pub fn close(&self, block: UmBlock) {
        if let Some((word, tag)) = self.word(block)
            && owns(look(word, Ordering::Acquire), tag)
        {
            add_holder(word);
            until_not_discarding(word);
            // Unless all words were pinned meanwhile.
            let free = |now: u64| (owns(now, tag) || plant::is(Plant::CloseFreesAll)).then_some(0);
            let _ = update(word, Ordering::Release, Ordering::Relaxed, free);
        }
    }

    /// Whether the block was opened and owns its word.
    pub fn is_open(&self, block: UmBlock) -> bool {
        self.owned(block).is_some()
    }

    /// A tensor begins to live in the block. On return no discard of it is in flight, and none begins.
    pub fn hold(&self, block: UmBlock) {
        if let Some(word) = self.owned(block)
            && add_holder(word) & DISCARDING != 0
        {
            until_not_discarding(word);
        }
    }

    /// The stamp of a release at this moment: after everything that used the memory was issued.
    pub fn stamp(&self) -> u64 {
        self.grace.stamp()
    }

    /// A tensor in the block ends, by the [stamp](Self::stamp) of that moment.
    pub fn release(&self, block: UmBlock, stamp: u64) {
        let Some(word) = self.owned(block) else { return };
        let less = |now: u64| {
            let rest = now & ((1 << STAMP) - 1);
            // Another thread may have taken its stamp later and be here before.
            (now & HOLDERS != 0).then(|| (rest - 1) | stamped(stamp.max(now >> STAMP)))
        };
        let order = if plant::is(Plant::LooseRelease) { Ordering::Relaxed } else { Ordering::Release };
        let _ = update(word, order, Ordering::Relaxed, less);
    }

    /// A graph being captured may use the block from now on, until the memory is given back. Waits for a discard in flight.
    pub fn pin(&self, block: UmBlock) {
        if let Some(word) = self.owned(block)
            && word.fetch_or(PINNED, Ordering::Acquire) & DISCARDING != 0
        {
            until_not_discarding(word);
        }
    }

    /// Whether a captured graph may use the block.
    pub fn is_pinned(&self, block: UmBlock) -> bool {
        self.owned(block).is_some_and(|word| look(word, Ordering::Relaxed) & PINNED != 0)
    }

    /// Nobody will say any more who holds what: on return no discard is in flight, and none begins for good. Every word becomes *pinned*
    /// alone, so that it is nobody's and stays so, whatever other threads open and close meanwhile. Waits for discards in flight.
    pub fn pin_all(&self) {
        // All of them before the first wait, so that it is for those in flight by now and no others.
        let left_out = |word| plant::is(Plant::ClosedAreLeftOut) && look(word, Ordering::Relaxed) == 0;
        for word in self.words.iter().filter(|word| !left_out(word)) {
            word.fetch_or(PINNED, Ordering::Relaxed);
        }
        let seal = |now: u64| Some(if now & DISCARDING == 0 { PINNED } else { now | PINNED });
        for word in self.words.iter().filter(|word| !left_out(word)) {
            while update(word, Ordering::Acquire, Ordering::Acquire, seal).is_ok_and(|before| before & DISCARDING != 0)
            {
                until_not_discarding(word);
            }
        }
    }

    /// Whether a discard of the block may begin: nobody holds it, and nothing that used it is running. Then it has begun, and
    /// must be ended.
    pub fn begin_discard(&self, block: UmBlock) -> bool {
        let Some((word, tag)) = self.word(block) else { return false };
        let now = look(word, Ordering::Relaxed);
        let free = now & (PINNED | DISCARDING) == 0 && (now & HOLDERS == 0 || plant::is(Plant::NoCount));
        let order = if plant::is(Plant::LooseRelease) { Ordering::Relaxed } else { Ordering::Acquire };
        owns(now, tag)
            && free
            && self.grace.is_over(now >> STAMP)
            && word.compare_exchange(now, now | DISCARDING, order, Ordering::Relaxed).is_ok()
    }

    /// The driver has done with the block, whatever it said.
    pub fn end_discard(&self, block: UmBlock) {
        if let Some((word, _)) = self.word(block) {
            let order = if plant::is(Plant::LooseEnd) { Ordering::Relaxed } else { Ordering::Release };
            word.fetch_and(!DISCARDING, order);
        }
    }

    /// Ends the discards of an engine that is gone. Only when its process has closed its files: then no call of it is in the
    /// driver.
    pub fn clear_discards(&self) {
        for word in self.words {
            if look(word, Ordering::Relaxed) & DISCARDING != 0 {
                word.fetch_and(!DISCARDING, Ordering::Release);
            }
        }
    }
}

const fn owns(word: u64, tag: u64) -> bool {
    word & OPEN != 0 && word & (TAGS - 1) << TAG == tag
}

/// The bits of a stamp; one that has no room pins the block.
const fn stamped(stamp: u64) -> u64 {
    if stamp < 1 << (u64::BITS - STAMP) { stamp << STAMP } else { PINNED }
}

/// Answers the word as it was. More tensors than can be counted pin the block.
fn add_holder(word: &AtomicU64) -> u64 {
    let more = |now: u64| Some(if now & HOLDERS == HOLDERS { now | PINNED } else { now + 1 });
    let order = if plant::is(Plant::LooseHold) { Ordering::Relaxed } else { Ordering::Acquire };
    update(word, order, Ordering::Relaxed, more).unwrap_or_else(|have| have)
}

/// Waits until the discard in flight is over: the rest of one call of the driver.
fn until_not_discarding(word: &AtomicU64) {
    /// Turns of the loop before the processor is given away: some microseconds, as long as a short call takes (assumption).
    const SPINS: u32 = 256;
    let order = if plant::is(Plant::LooseHold) { Ordering::Relaxed } else { Ordering::Acquire };
    let mut turns = 0;
    while look(word, order) & DISCARDING != 0 && !plant::is(Plant::NoWait) {
        turns += 1;
        if turns < SPINS {
            sync::spin();
        } else {
            sync::yield_now();
        }
    }
}
