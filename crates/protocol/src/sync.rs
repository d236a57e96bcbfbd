//! The atomics of this crate, in one place, so that loom can take theirs under `cfg(loom)`.
//!
//! Words that are looked at and then changed go through [`look`] and [`update`]. Under loom a look is a change by nothing: loom
//! 0.7 remembers only the last access to a word, so a thread's own load before its change hides from the search that another
//! thread had loaded the word, and orders are left out.

#[cfg(loom)]
pub use loom::{
    sync::atomic::{AtomicU64, Ordering, fence},
    thread::yield_now,
    thread::yield_now as spin,
};
#[cfg(not(loom))]
pub use std::{
    hint::spin_loop as spin,
    sync::atomic::{AtomicU64, Ordering, fence},
    thread::yield_now,
};

/// Loads a word that the same thread may change next.
#[inline]
pub fn look(word: &AtomicU64, order: Ordering) -> u64 {
    #[cfg(loom)]
    return word.fetch_or(0, order);
    #[cfg(not(loom))]
    word.load(order)
}

/// Changes a word to what `to` makes of it, unless that is nothing; answers what it was. Loads with `seen`, stores with `set`.
#[inline]
pub fn update(word: &AtomicU64, set: Ordering, seen: Ordering, to: impl Fn(u64) -> Option<u64>) -> Result<u64, u64> {
    let mut now = look(word, seen);
    loop {
        let Some(next) = to(now) else { return Err(now) };
        match word.compare_exchange(now, next, set, seen) {
            Ok(_) => return Ok(now),
            Err(have) => now = have,
        }
    }
}
