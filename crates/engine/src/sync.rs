//! Locks and atomics of this package, in one place, so that loom can take theirs under `cfg(loom)`.

#[cfg(loom)]
pub use loom::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(loom))]
pub use std::sync::{Condvar, Mutex, MutexGuard, atomic};

pub use std::sync::Arc;
use std::sync::PoisonError;

/// Locks, also after a panic: what a panic leaves behind is only ever read for reports, or thrown away.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the bell, as above.
pub fn wait<'a, T>(bell: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    bell.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
