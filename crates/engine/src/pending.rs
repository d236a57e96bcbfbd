//! How much work is inside the engine: the number the emulated device waits for.
//!
//! Problem: virtual time may go on only when the engine has nothing left to do, whatever its threads are in the middle of.
//! Idea: work is counted by tokens. Whoever makes work takes a [`Token`] before the work can be seen, the token travels
//! with the work, and is dropped when the work is done and everything it led to has tokens of its own. So the count is
//! never 0 while something goes on, and since dropping is what counts down, also a panic or a closed
//! channel leaves it exact.

//!
//! The count is this process's own, or a word of the page that the program shares with an engine in another process: then a
//! piece of work may be counted on one side and done on the other ([`Pending::adopt`]).

use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, Ordering};

/// The count.
#[derive(Debug)]
pub struct Pending(Word);

#[derive(Debug)]
enum Word {
    Own(AtomicU32),
    #[cfg(not(loom))]
    Shared(&'static AtomicU32),
}

impl Default for Pending {
    fn default() -> Self {
        Self(Word::Own(AtomicU32::new(0)))
    }
}

impl Pending {
    /// Counts in this word, which others may count in, too.
    #[cfg(not(loom))]
    pub const fn over(word: &'static AtomicU32) -> Self {
        Self(Word::Shared(word))
    }
    /// One more piece of work.
    pub fn token(self: &Arc<Self>) -> Token {
        self.word().fetch_add(1, Ordering::AcqRel);
        Token(Arc::clone(self))
    }
    /// A piece of work that somebody else has counted, and nobody else will drop.
    pub fn adopt(self: &Arc<Self>) -> Token {
        Token(Arc::clone(self))
    }
    /// Pieces of work not yet done.
    pub fn count(&self) -> u32 {
        self.word().load(Ordering::Acquire)
    }
    /// The word itself, for the device to look at.
    pub const fn word(&self) -> &AtomicU32 {
        match &self.0 {
            Word::Own(word) => word,
            #[cfg(not(loom))]
            Word::Shared(word) => word,
        }
    }
}

/// A piece of work. Dropping it says that the work is done.
#[derive(Debug)]
pub struct Token(Arc<Pending>);

impl Drop for Token {
    fn drop(&mut self) {
        let before = self.0.word().fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a token was dropped twice");
    }
}
