//! How much work is inside the engine: the number the emulated device waits for.
//!
//! Problem: virtual time may go on only when the engine has nothing left to do, whatever its threads are in the middle of.
//! Idea: work is counted by tokens. Whoever makes work takes a [`Token`] before the work can be seen, the token travels
//! with the work, and is dropped when the work is done and everything it led to has tokens of its own. So the count is
//! never 0 while something goes on, and since dropping is what counts down, also a panic or a closed
//! channel leaves it exact.

use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, Ordering};

/// The count.
#[derive(Debug, Default)]
pub struct Pending(AtomicU32);

impl Pending {
    /// One more piece of work.
    pub fn token(self: &Arc<Self>) -> Token {
        self.0.fetch_add(1, Ordering::AcqRel);
        Token(Arc::clone(self))
    }
    /// Pieces of work not yet done.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
    /// The word itself, for the device to look at.
    pub const fn word(&self) -> &AtomicU32 {
        &self.0
    }
}

/// A piece of work. Dropping it says that the work is done.
#[derive(Debug)]
pub struct Token(Arc<Pending>);

impl Drop for Token {
    fn drop(&mut self) {
        let before = self.0.0.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a token was dropped twice");
    }
}
