//! The fence between the program and us: our code runs at most one level deep on a thread, `errno` survives it, and a
//! panic in it ends our help and not the program.
//!
//! The thread's own state is a handful of plain cells without a destructor, so it exists in every thread at every
//! moment, also while a thread or the process ends.

use crate::stage;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a thread remembers between hooks.
pub struct Here {
    /// Our own code is running: calls it makes pass straight on.
    inside: Cell<bool>,
    /// Stack position of the outermost launch in progress; 0 is none. See [`crate::launch`].
    pub launch_frame: Cell<usize>,
    /// Hash of the library operation in progress; 0 is none. See [`crate::ops`].
    pub op: Cell<u64>,
    /// This thread's number, for its own default stream; 0 is "not yet given". See [`crate::streams`].
    pub number: Cell<u64>,
}

thread_local! {
    static HERE: Here = const {
        Here { inside: Cell::new(false), launch_frame: Cell::new(0), op: Cell::new(0), number: Cell::new(0) }
    };
}

/// Looks at this thread's state.
pub fn here<R>(f: impl FnOnce(&Here) -> R) -> R {
    HERE.with(f)
}

/// Runs our own code for the function `what`. Nothing comes back if the shim is off, if our code is running on this thread
/// already, or if it panics, which turns the shim off.
#[inline]
pub fn ours<R>(what: &'static str, f: impl FnOnce() -> R) -> Option<R> {
    if !stage::ready() || here(|h| h.inside.replace(true)) {
        return None;
    }
    // SAFETY: errno's address is valid for this thread as long as it runs.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let out = catch_unwind(AssertUnwindSafe(f));
    // SAFETY: as above.
    unsafe { *errno = before };
    here(|h| h.inside.set(false));
    out.map_err(|panic| {
        let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        stage::turn_off(&format!(
            "internal error at {what}: {}; DeepUM is off, the program goes on",
            said.unwrap_or("?")
        ));
        // A panic's payload may panic again when dropped.
        std::mem::forget(panic);
    })
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because a panic turns the shim off for the whole process.
    #[test]
    fn our_code_runs_one_level_deep_keeps_errno_and_may_panic_once() {
        assert_eq!(ours("outer", || ours("inner", || 1)), Some(None));
        assert_eq!(ours("again", || 2), Some(2));

        // SAFETY: errno's address is valid for this thread as long as it runs.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        unsafe { *errno = 77 };
        ours("failing", || std::fs::read("/no/such/file").is_err());
        // SAFETY: as above.
        assert_eq!(unsafe { *errno }, 77);

        assert_eq!(ours("broken", || -> u8 { panic!("planted") }), None);
        assert!(!stage::ready(), "a panic turns us off");
        assert_eq!(ours("afterwards", || 3), None);
        assert!(!here(|h| h.inside.get()), "and leaves the thread as it was");
    }
}
