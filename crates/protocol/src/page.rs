//! The page: the words that shim, GPU and engine share beside the record ring. Layout in `docs/page.md`.
//!
//! Problem: how far the GPU is, how far it may go, and what may be thrown away are wanted at any moment, by processes that
//! may be two, one of which may die at any moment.
//! Idea: one mapping of plain words, each with one meaning for good, whose descriptor can be passed. The words that
//! the GPU reads and writes come first, alone on their system pages, so that no more than them is registered with the driver.
//!
//! Invariants: all words are 0 before [`Page::format`], except that gates are open; a page of another version or size is refused by
//! name. Nothing here owns the memory, so there is no `unsafe`.

use crate::gate::Gates;
use crate::grace::GraceWords;
use crate::handout::HandOuts;
use crate::inflight::InFlight;
use crate::shared::MAX_DEVICES;
use crate::sync::{AtomicU64, Ordering};
use deepum_core::units::LaunchSeq;
use std::fmt;
use std::ops::Range;

/// `"DEEPUMPG"`, first byte lowest.
pub const MAGIC: u64 = u64::from_le_bytes(*b"DEEPUMPG");
/// Version of the layout.
pub const VERSION: u64 = 6;
/// Streams that can be followed.
pub const SLOTS: usize = 512;
/// Epochs whose ends each slot keeps, a power of two: one for each of the 1,024 launches that CUDA queues, and room for copies (assumption; where operations of more epochs wait, releases wait for longer).
pub const ENDS: usize = 2048;
/// Words of hand-outs: UM blocks of 512 GiB of addresses, one after the other. What is beyond shares words, and most of it can never be given up without a copy.
pub const HAND_OUTS: usize = 1 << 18;
/// Words of the whole page.
pub const WORDS: usize = W_ENDS + SLOTS * ENDS;

const W_PROGRESS: usize = 0;
const W_GATES: usize = SLOTS;
/// The first words, two system pages, are the GPU's.
const GPU_WORDS: usize = 1024;
const W_MAGIC: usize = 1024;
const W_VERSION: usize = 1025;
const W_WORDS: usize = 1026;
const W_REACHED: usize = 1032;
const W_PENDING: usize = 1040;
const W_NUDGE: usize = 1048;
const W_EPOCH: usize = 1064;
const W_ENDED: usize = 1072;
const W_BLIND: usize = 1080;
const W_USED: usize = 1088;
const W_SEEN: usize = 1096;
const W_LEADS: usize = 1104;
const W_CLEAR: usize = 1120;
const W_ISSUED: usize = 1536;
const W_STREAMS: usize = W_ISSUED + SLOTS;
const W_EPOCHS: usize = W_STREAMS + SLOTS;
const W_HAND_OUTS: usize = 4096;
const W_ENDS: usize = W_HAND_OUTS + HAND_OUTS;

const _: () = assert!(
    W_GATES + MAX_DEVICES <= GPU_WORDS && W_LEADS + MAX_DEVICES <= W_CLEAR && W_CLEAR + MAX_DEVICES <= W_ISSUED
);
const _: () = assert!(W_EPOCHS + SLOTS <= W_HAND_OUTS && WORDS == 1_314_816);

/// Why a page cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageError {
    /// The memory is not of the size that this version has.
    Size {
        /// Words handed in.
        words: usize,
    },
    /// No page of ours.
    Magic {
        /// Word found in the place of the magic one.
        have: u64,
    },
    /// A page of another version.
    Version {
        /// Version found.
        have: u64,
    },
    /// The size by the header is not that of the memory.
    Words {
        /// Words by the header.
        have: u64,
    },
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Size { words } => write!(f, "shared page: {words} words given; {WORDS} are needed"),
            Self::Magic { have } => write!(f, "shared page: marked with {have:#x}, a page is marked with {MAGIC:#x}"),
            Self::Version { have } => write!(f, "shared page: version {have}; this program knows version {VERSION}"),
            Self::Words { have } => write!(f, "shared page: header says {have} words, the memory holds {WORDS}"),
        }
    }
}

impl std::error::Error for PageError {}

/// The page over somebody's memory. Copies are the same page.
#[derive(Clone, Copy)]
pub struct Page {
    words: &'static [AtomicU64],
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("reached", &self.is_reached()).finish_non_exhaustive()
    }
}

impl Page {
    /// Makes a page in `words`, all of which must be 0. Its gates are open.
    ///
    /// # Errors
    /// [`PageError::Size`].
    pub fn format(words: &'static [AtomicU64]) -> Result<Self, PageError> {
        let page = Self::sized(words)?;
        Gates::new(page.range(W_GATES..W_GATES + MAX_DEVICES));
        words[W_WORDS].store(WORDS as u64, Ordering::Relaxed);
        words[W_VERSION].store(VERSION, Ordering::Relaxed);
        words[W_MAGIC].store(MAGIC, Ordering::Release);
        Ok(page)
    }

    /// The page that somebody made in `words`.
    ///
    /// # Errors
    /// [`PageError`], naming what is not as it should be.
    pub fn open(words: &'static [AtomicU64]) -> Result<Self, PageError> {
        let page = Self::sized(words)?;
        let have = |at: usize| words[at].load(Ordering::Acquire);
        match (have(W_MAGIC), have(W_VERSION), have(W_WORDS)) {
            (MAGIC, VERSION, size) if size == WORDS as u64 => Ok(page),
            (MAGIC, VERSION, have) => Err(PageError::Words { have }),
            (MAGIC, have, _) => Err(PageError::Version { have }),
            (have, _, _) => Err(PageError::Magic { have }),
        }
    }

    const fn sized(words: &'static [AtomicU64]) -> Result<Self, PageError> {
        if words.len() == WORDS { Ok(Self { words }) } else { Err(PageError::Size { words: words.len() }) }
    }

    fn range(&self, range: Range<usize>) -> &'static [AtomicU64] {
        &self.words[range]
    }

    /// What the GPU is to see: registered with the driver, and nothing else.
    pub fn gpu_words(&self) -> &'static [AtomicU64] {
        self.range(0..GPU_WORDS)
    }

    /// Where among [`Self::gpu_words`] the progress word of a stream slot is.
    pub const fn progress_at(slot: usize) -> usize {
        W_PROGRESS + slot
    }

    /// Where among [`Self::gpu_words`] the gate word of a device is.
    pub const fn gate_at(ordinal: usize) -> usize {
        W_GATES + ordinal
    }

    /// The GPU sees its words from now on.
    pub fn set_reached(&self) {
        self.words[W_REACHED].store(1, Ordering::Release);
    }

    /// Whether the GPU sees its words.
    pub fn is_reached(&self) -> bool {
        self.words[W_REACHED].load(Ordering::Acquire) != 0
    }

    /// One word per stream slot, written by the GPU; none where it cannot see them.
    pub fn progress(&self) -> &'static [AtomicU64] {
        let count = if self.is_reached() { SLOTS } else { 0 };
        self.range(W_PROGRESS..W_PROGRESS + count)
    }

    /// The words that streams wait for; none where the GPU cannot see them.
    pub fn gates(&self) -> Gates {
        if self.is_reached() { Gates::over(self.range(W_GATES..W_GATES + MAX_DEVICES)) } else { Gates::none() }
    }

    /// How much work is inside the engine (ARCHITECTURE.md, section 5); only the lower half is used.
    pub fn pending(&self) -> &'static AtomicU64 {
        &self.words[W_PENDING]
    }

    /// Nudges given, for an engine in another process.
    pub fn nudge(&self) -> &'static AtomicU64 {
        &self.words[W_NUDGE]
    }

    /// Sum of the progress words at the engine's last look: while it is that of the words, a look at them would show nothing new, for they
    /// only grow.
    pub fn seen(&self) -> &'static AtomicU64 {
        &self.words[W_SEEN]
    }

    /// How many places of a device's sequence the program shall be ahead of its GPU at most; nothing if as many as the driver lets it.
    #[inline]
    pub fn lead(&self, ordinal: usize) -> Option<u64> {
        let word = self.range(W_LEADS..W_LEADS + MAX_DEVICES).get(ordinal)?;
        Some(word.load(Ordering::Relaxed)).filter(|&lead| lead > 0)
    }

    /// Says so.
    pub fn set_lead(&self, ordinal: usize, lead: Option<u64>) {
        if let Some(word) = self.range(W_LEADS..W_LEADS + MAX_DEVICES).get(ordinal) {
            word.store(lead.unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// Launches of a device before this place of its sequence lack nothing, as far as is foreseen: they need not wait for its gate.
    #[inline]
    pub fn clear_until(&self, ordinal: usize) -> LaunchSeq {
        let word = self.range(W_CLEAR..W_CLEAR + MAX_DEVICES).get(ordinal);
        LaunchSeq(word.map_or(0, |word| word.load(Ordering::Relaxed)))
    }

    /// Says so.
    pub fn set_clear_until(&self, ordinal: usize, LaunchSeq(seq): LaunchSeq) {
        if let Some(word) = self.range(W_CLEAR..W_CLEAR + MAX_DEVICES).get(ordinal) {
            word.store(seq, Ordering::Relaxed);
        }
    }

    /// Which operations are under way.
    pub fn in_flight(&self) -> InFlight<'static> {
        InFlight {
            progress: self.range(W_PROGRESS..W_PROGRESS + SLOTS),
            issued: self.range(W_ISSUED..W_ISSUED + SLOTS),
            streams: self.range(W_STREAMS..W_STREAMS + SLOTS),
            epochs: self.range(W_EPOCHS..W_EPOCHS + SLOTS),
            ends: self.range(W_ENDS..WORDS),
            used: self.range(W_USED..W_USED + SLOTS / 64),
            blind: &self.words[W_BLIND],
            grace: self.grace(),
        }
    }

    /// Epochs.
    pub fn grace(&self) -> GraceWords<'static> {
        GraceWords { epoch: &self.words[W_EPOCH], ended: &self.words[W_ENDED] }
    }

    /// What may be thrown away.
    pub fn hand_outs(&self) -> HandOuts<'static> {
        HandOuts::new(self.range(W_HAND_OUTS..W_ENDS), self.grace())
    }
}
