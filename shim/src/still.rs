//! A moment in which no thread of the program is giving the GPU work.
//!
//! Problem: memory that is exported changes its kind at its address ([`crate::ipc`]), and for a moment nothing is there. CUDA lets other
//! threads launch kernels that use it meanwhile; each launch and copy of managed memory would have to ask first, a million times a second.
//!
//! Idea: an operation already says in its slot that it is in the call, before the driver gets it ([`crate::issue`]). Behind that it loads one
//! word; where that is set it takes the note back and waits. Whoever wants the moment sets the word, makes every thread of the process pass a memory barrier
//! (`membarrier`, so that the operation itself needs none), and then waits until no slot is in a call. Whoever began before is waited for; whoever
//! begins later sees the word.
//!
//! Addresses that are free for a moment must not go to an allocation of another thread, either: allocations that we make or pass on hold a lock for reading
//! ([`allocating`]), and that moment holds it for writing. (What a driver allocates for itself, and a program's own managed memory, is left to chance.)
//!
//! An operation that cannot be followed has no slot; then there is no such moment, and so no export. A call that does not come back (it waits for the thread
//! that wants the moment) is waited for no longer than [`PATIENCE`].

use crate::page;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// The longest wait for calls that other threads are in.
const PATIENCE: Duration = Duration::from_secs(5);
const NAP: Duration = Duration::from_micros(50);

static WANTED: AtomicBool = AtomicBool::new(false);

static ALLOCATING: RwLock<()> = RwLock::new(());

/// Held around an allocation, one at a time on a thread.
pub fn allocating() -> RwLockReadGuard<'static, ()> {
    ALLOCATING.read().unwrap_or_else(PoisonError::into_inner)
}

/// While it is held, no other thread allocates.
pub fn nobody_allocates() -> RwLockWriteGuard<'static, ()> {
    ALLOCATING.write().unwrap_or_else(PoisonError::into_inner)
}

/// Whether an operation that has noted itself must take that back and [`wait`].
#[inline]
pub fn is_wanted() -> bool {
    // The barrier of whoever sets it puts the note before this load, for the processor; this does so for the compiler.
    compiler_fence(Ordering::SeqCst);
    WANTED.load(Ordering::Acquire)
}

/// Until the moment is over. A panic in it ends it, too.
#[cold]
pub fn wait() {
    while WANTED.load(Ordering::Acquire) {
        std::thread::sleep(NAP);
    }
}

/// The moment; dropping it ends it.
pub struct Still(());

impl Still {
    /// Waits for the moment. One at a time: the caller holds a lock for that.
    ///
    /// # Errors
    /// Why there is none.
    pub fn begin() -> Result<Self, &'static str> {
        let slots = page::in_flight().ok_or("there is no engine")?;
        WANTED.store(true, Ordering::SeqCst);
        let still = Self(());
        if !barrier_everywhere() {
            return Err("the system has no membarrier");
        }
        let since = Instant::now();
        while slots.any_in_call() {
            if since.elapsed() > PATIENCE {
                return Err("another thread stays in a launch or copy");
            }
            std::thread::sleep(NAP);
        }
        // Behind the barrier: whoever lost sight before is seen here, whoever does later saw the word first.
        if slots.is_blind() { Err("not every launch can be followed") } else { Ok(still) }
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        WANTED.store(false, Ordering::Release);
    }
}

/// Every thread of this process passes a full memory barrier.
fn barrier_everywhere() -> bool {
    /// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and its registration, which may be repeated.
    const EXPEDITED: i32 = 1 << 3;
    const REGISTER: i32 = 1 << 4;
    // SAFETY: no pointers.
    let call = |command: i32| unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } == 0;
    call(REGISTER) && call(EXPEDITED)
}
