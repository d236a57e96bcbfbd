//! What the engine learns from: driver notices, the record ring, the progress words.

use deepum_kmod_bridge::{Notice, QueueBroken, QueueStats, QueueWatch, ToolsQueue};
use deepum_protocol::AtomicU64;
use deepum_protocol::page::Page;
use deepum_protocol::ring::Ring;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where driver notices come from: the tools queue, or a script.
pub trait Notices: Send {
    /// Appends what is there now.
    ///
    /// # Errors
    /// [`QueueBroken`]: nothing will come from here again.
    fn drain(&mut self, into: &mut Vec<Notice>) -> Result<(), QueueBroken>;
    /// Tells any thread whether something waits to be read.
    fn watch(&self) -> Box<dyn Fn() -> bool + Send + Sync>;
    /// What came out so far.
    fn stats(&self) -> QueueStats;
}

impl Notices for ToolsQueue {
    fn drain(&mut self, into: &mut Vec<Notice>) -> Result<(), QueueBroken> {
        Self::drain(self, into)
    }
    fn watch(&self) -> Box<dyn Fn() -> bool + Send + Sync> {
        let watch: QueueWatch = Self::watch(self);
        Box::new(move || watch.unread())
    }
    fn stats(&self) -> QueueStats {
        Self::stats(self)
    }
}

/// The progress words, one per stream slot: the newest launch the GPU has finished there. They only grow.
#[derive(Debug)]
pub struct Progress {
    words: &'static [AtomicU64],
    done: Vec<u64>,
    seen: &'static AtomicU64,
}

impl Progress {
    /// Over the shim's page. What an engine before this one saw is news to this one.
    pub fn new(page: Page) -> Self {
        let (words, seen) = (page.progress(), page.seen());
        seen.store(0, Ordering::Release);
        Self { words, done: vec![0; words.len()], seen }
    }

    /// Calls `on` with slot and launch for each word that grew, lowest slot first.
    pub fn look(&mut self, mut on: impl FnMut(usize, u64)) {
        let mut sum = 0u64;
        for (slot, (word, done)) in self.words.iter().zip(&mut self.done).enumerate() {
            let now = word.load(Ordering::Acquire);
            sum = sum.wrapping_add(now);
            if now > *done {
                *done = now;
                on(slot, now);
            }
        }
        self.seen.store(sum, Ordering::Release);
    }

    /// Slots with progress, and how far they are.
    pub fn slots(&self) -> impl Iterator<Item = (usize, u64)> {
        self.done.iter().copied().enumerate().filter(|(_, done)| *done > 0)
    }
}

/// Whether a look at the words would show anything new; `seen` is their sum at the last one.
pub fn progressed(words: &[AtomicU64], seen: &AtomicU64) -> bool {
    let sum = words.iter().fold(0u64, |sum, word| sum.wrapping_add(word.load(Ordering::Acquire)));
    sum != seen.load(Ordering::Acquire)
}

/// Tells any thread whether a look would show anything new.
pub struct Watch {
    notices: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
    forgotten: AtomicBool,
    ring: Ring<'static>,
    words: &'static [AtomicU64],
    seen: &'static AtomicU64,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("notices", &self.notices()).finish_non_exhaustive()
    }
}

impl Watch {
    /// Over ring and progress words.
    pub fn new(ring: Ring<'static>, progress: &Progress) -> Self {
        let (words, seen) = (progress.words, progress.seen);
        Self { notices: OnceLock::new(), forgotten: AtomicBool::new(false), ring, words, seen }
    }

    /// And over driver notices, where there is a source of them.
    pub fn also(&self, unread: Box<dyn Fn() -> bool + Send + Sync>) {
        let _ = self.notices.set(unread);
    }

    /// How many streams can report progress.
    pub fn progress_words(&self) -> usize {
        self.words.len()
    }

    /// Whether driver notices wait.
    pub fn notices(&self) -> bool {
        self.notices.get().is_some_and(|unread| !self.forgotten.load(Ordering::Relaxed) && unread())
    }

    /// The source broke: what waits there will never be read.
    pub fn forget_notices(&self) {
        self.forgotten.store(true, Ordering::Relaxed);
    }

    /// Whether records wait or progress was made.
    pub fn life(&self) -> bool {
        self.ring.used() > 0 || progressed(self.words, self.seen)
    }
}
