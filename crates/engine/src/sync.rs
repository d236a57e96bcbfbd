//! Locks and atomics of this package, in one place, so that loom can take theirs under `cfg(loom)`.
//!
//! `parking_lot`'s: to ring a bell that nobody waits for is no system call, and that is what most rings are. No lock is lost by a panic:
//! what it leaves behind is only ever read for reports, or thrown away.

#[cfg(loom)]
pub use loom::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(loom))]
pub use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub use std::sync::atomic;

pub use std::sync::Arc;
use std::time::Duration;

/// Locks.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(loom)]
    return mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    #[cfg(not(loom))]
    mutex.lock()
}

/// Locks, if that takes no waiting.
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    #[cfg(loom)]
    return mutex.try_lock().ok();
    #[cfg(not(loom))]
    mutex.try_lock()
}

/// Waits for the bell.
#[cfg(loom)]
pub fn wait<'a, T>(bell: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    bell.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Waits for the bell.
#[cfg(not(loom))]
pub fn wait<'a, T>(bell: &Condvar, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    bell.wait(&mut guard);
    guard
}

/// Waits for the bell, at most so long.
#[cfg(loom)]
pub fn wait_for<'a, T>(bell: &Condvar, guard: MutexGuard<'a, T>, time: Duration) -> MutexGuard<'a, T> {
    bell.wait_timeout(guard, time).unwrap_or_else(std::sync::PoisonError::into_inner).0
}

/// Waits for the bell, at most so long.
#[cfg(not(loom))]
pub fn wait_for<'a, T>(bell: &Condvar, mut guard: MutexGuard<'a, T>, time: Duration) -> MutexGuard<'a, T> {
    bell.wait_for(&mut guard, time);
    guard
}
