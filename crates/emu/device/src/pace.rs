//! The device's side of the pace: virtual time waits for the engine (ARCHITECTURE section 5).
//!
//! On a GPU the engine races with the kernels. Here every notice, progress word and launch is a point at which the
//! device stands still, with no lock held, until the engine has looked at everything and has nothing left to do
//! but wait for the device. So what the engine decides never depends on how fast this machine is.
//!
//! *Settled*: the engine's count of work inside it equals the number of its threads that stand in our calls
//! ([`crate::hands`]), and no tools queue has unread entries.
//!
//! If the count stands still for a minute of real time, the engine is taken for dead: one line, it is told, and the
//! device goes on without it. A program must not hang because of us.

use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use std::{ptr, thread};

/// Between two looks at an engine that takes its time.
const DOZE: Duration = Duration::from_micros(100);
/// So often that an engine without a sign of life is taken for dead: a minute. Not a clock's minute: a process that was
/// stopped meanwhile has not missed it.
const PATIENCE: u32 = 600_000;

/// What an engine hands over with `deepumEmuDrive`; must stay valid until the process ends or it hands over null.
#[derive(Debug)]
#[repr(C)]
pub struct DeepumHooks {
    /// 3: each direction of movement is one piece of work.
    pub abi: u32,
    /// 0.
    pub reserved: u32,
    /// Work inside the engine.
    pub pending: *const AtomicU32,
    /// Look at everything now; adds one to `pending` before it returns.
    pub nudge: Option<unsafe extern "C" fn()>,
    /// Whether the calling thread is the engine's.
    pub is_engine_thread: Option<unsafe extern "C" fn() -> c_int>,
    /// May be null. Fills `blocks` with at most `cap` UM block numbers that the launch `seq` of its device was thought to
    /// touch, and answers how many there are. For reporting only.
    pub may_touch: Option<unsafe extern "C" fn(seq: u64, blocks: *mut u64, cap: usize) -> usize>,
    /// May be null. The engine was taken for dead, and is not waited for any more.
    pub given_up: Option<unsafe extern "C" fn()>,
}

/// Who drives, and how many of its threads stand in our calls.
#[derive(Debug, Default)]
pub struct Pace {
    hooks: AtomicPtr<DeepumHooks>,
    held: AtomicU32,
    settles: AtomicU64,
}

impl Pace {
    /// Takes `hooks` over (null: nobody drives any more); says whether they are acceptable.
    ///
    /// # Safety
    /// `hooks` is null or points to hooks that stay valid and unchanged for the rest of the process, with functions
    /// and a counter that may be used from any thread.
    pub unsafe fn drive(&self, hooks: *const DeepumHooks) -> bool {
        // SAFETY: valid hooks or null, by our own contract.
        if let Some(given) = unsafe { hooks.as_ref() }
            && (given.abi != 3 || given.reserved != 0 || given.pending.is_null() || given.nudge.is_none())
        {
            return false;
        }
        self.hooks.store(hooks.cast_mut(), Ordering::Release);
        true
    }

    fn hooks(&self) -> Option<&DeepumHooks> {
        // SAFETY: null, or valid for the rest of the process (contract of `drive`).
        unsafe { self.hooks.load(Ordering::Acquire).as_ref() }
    }

    /// Whether an engine drives.
    pub fn driven(&self) -> bool {
        self.hooks().is_some()
    }

    /// Whether the calling thread belongs to the engine that drives.
    pub fn is_engine_thread(&self) -> bool {
        let ask = self.hooks().and_then(|h| h.is_engine_thread);
        // SAFETY: may be called from any thread (contract of `drive`).
        ask.is_some_and(|ask| unsafe { ask() } != 0)
    }

    /// The blocks the shim named for launch `seq`, into `blocks`. False if it says nothing about that launch.
    pub fn may_touch(&self, seq: u64, blocks: &mut Vec<u64>) -> bool {
        let Some(ask) = self.hooks().and_then(|h| h.may_touch) else { return false };
        blocks.resize(blocks.capacity().max(1024), 0);
        loop {
            // SAFETY: the buffer has the length given; may be called from any thread.
            let count = unsafe { ask(seq, blocks.as_mut_ptr(), blocks.len()) };
            if count <= blocks.len() {
                blocks.truncate(count);
                return count > 0;
            }
            blocks.resize(count.min(1 << 24), 0);
            if count > blocks.len() {
                return false;
            }
        }
    }

    /// An engine thread enters (+1) or leaves a call that holds it. Call with the device's lock held.
    pub fn hold(&self, by: i32) {
        if by > 0 {
            self.held.fetch_add(1, Ordering::Release);
        } else {
            self.held.fetch_sub(1, Ordering::Release);
        }
    }

    /// How many threads of the engine that drives stand in a call.
    pub fn held(&self) -> u32 {
        self.held.load(Ordering::Acquire)
    }

    /// How often the device waited.
    pub fn settles(&self) -> u64 {
        self.settles.load(Ordering::Relaxed)
    }

    /// Lets the engine look and waits until it has settled. `unread` says whether a tools queue has entries. Call with
    /// no lock held.
    pub fn settle(&self, look: bool, unread: impl Fn() -> bool) {
        // A reader that leaves entries after having been told three times does not want them.
        for _ in 0..3 {
            let Some(hooks) = self.hooks() else { return };
            self.settles.fetch_add(1, Ordering::Relaxed);
            if look && let Some(nudge) = hooks.nudge {
                // SAFETY: may be called from any thread; no lock of ours is held.
                unsafe { nudge() };
            }
            if !self.wait(hooks) || !look || !unread() {
                return;
            }
        }
    }

    /// Waits until nothing moves inside the engine; false if it was given up.
    fn wait(&self, hooks: &DeepumHooks) -> bool {
        // SAFETY: `drive` refused null; valid for the rest of the process.
        let pending = unsafe { &*hooks.pending };
        let (mut turns, mut still, mut last) = (0u32, 0, 0);
        loop {
            // In this order: each thread held has been counted as work before, and only we let it go. The other way round a look in
            // progress would pass for a thread that came to us between the two.
            let held = self.held();
            let now = pending.load(Ordering::Acquire);
            if now == held {
                return true;
            }
            if !self.driven() {
                return false;
            }
            turns = turns.saturating_add(1);
            if turns < 2000 {
                thread::yield_now();
                continue;
            }
            thread::sleep(DOZE);
            still = if now == last { still + 1 } else { 0 };
            last = now;
            if still == PATIENCE {
                crate::say("the engine has not answered for a minute; the device goes on without it");
                self.give_up(hooks);
                return false;
            }
        }
    }

    fn give_up(&self, hooks: &DeepumHooks) {
        self.hooks.store(ptr::null_mut(), Ordering::Release);
        if let Some(given_up) = hooks.given_up {
            // SAFETY: may be called from any thread; no lock of ours is held.
            unsafe { given_up() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static PENDING: AtomicU32 = AtomicU32::new(0);
    static TOLD: AtomicU32 = AtomicU32::new(0);

    extern "C" fn nudge() {}
    extern "C" fn told() {
        TOLD.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn an_engine_that_is_given_up_is_told_and_drives_no_more() {
        let pace = Pace::default();
        let hooks = DeepumHooks {
            abi: 3,
            reserved: 0,
            pending: &raw const PENDING,
            nudge: Some(nudge),
            is_engine_thread: None,
            may_touch: None,
            given_up: Some(told),
        };
        // SAFETY: the hooks outlive `pace`, and their functions may be called from anywhere.
        assert!(unsafe { pace.drive(&raw const hooks) } && pace.driven());
        pace.give_up(&hooks);
        assert!(!pace.driven());
        assert_eq!(TOLD.load(Ordering::Relaxed), 1);
    }
}
