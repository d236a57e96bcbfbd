//! The fence between the program and us: our code runs at most one level deep on a thread, `errno` survives it, and a
//! panic in it ends our help and not the program.
//!
//! The thread's own state is a handful of plain cells without a destructor, so it exists in every thread at every
//! moment, also while a thread or the process ends.

use crate::stage;
use crate::streams::Place;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a thread remembers between hooks.
pub struct Here {
    /// Our own code is running: calls it makes pass straight on.
    inside: Cell<bool>,
    /// Stack position of the outermost launch in progress; 0 is none. See [`crate::launch`].
    pub launch_frame: Cell<usize>,
    /// The same for copies. See [`crate::copy`].
    pub copy_frame: Cell<usize>,
    /// Hash of the library operation in progress; 0 is none. See [`crate::ops`].
    pub op: Cell<u64>,
    /// This thread's number, for its own default stream; 0 is "not yet given". See [`crate::streams`].
    pub number: Cell<u64>,
    /// The stream this thread used last, and its slot. See [`crate::streams`].
    pub stream: Cell<(u64, Option<Place>)>,
}

thread_local! {
    static HERE: Here = const {
        Here {
            inside: Cell::new(false),
            launch_frame: Cell::new(0),
            copy_frame: Cell::new(0),
            op: Cell::new(0),
            number: Cell::new(0),
            stream: Cell::new((0, None)),
        }
    };
}

/// Looks at this thread's state.
pub fn here<R>(f: impl FnOnce(&Here) -> R) -> R {
    HERE.with(f)
}

/// Runs our own code. Nothing comes back if the shim is off, if our code is running on this thread already, or if it
/// panics, which turns the shim off. The first call, ever, finds out whether the shim is to be on.
#[inline]
pub fn ours<R>(f: impl FnOnce() -> R) -> Option<R> {
    if here(|h| h.inside.get()) { None } else { anywhere(f) }
}

/// As [`ours`], also where our code is running: for look-ups. The runtime, called by us, may be setting itself up, and is to have our functions
/// for good as if the program had called it.
#[inline]
pub fn anywhere<R>(f: impl FnOnce() -> R) -> Option<R> {
    if stage::is_off() {
        return None;
    }
    let inside = here(|h| h.inside.replace(true));
    // SAFETY: errno's address is valid for this thread as long as it runs.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let out = catch_unwind(AssertUnwindSafe(|| stage::ready().then(f)));
    // SAFETY: as above.
    unsafe { *errno = before };
    here(|h| h.inside.set(inside));
    // What there was to say, the panic hook has said. A panic's payload may panic again when dropped.
    out.map_err(std::mem::forget).ok().flatten()
}

/// Makes a panic in our code turn the shim off with one line, where Rust's own would be several; other threads' go the way they went.
pub fn turn_off_at_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !here(|h| h.inside.get()) {
            return before(info);
        }
        let place = info.location().map_or_else(String::new, |at| format!(" at {at}"));
        let words = info.payload_as_str().unwrap_or("no words");
        stage::turn_off(&format!("internal error{place}: {words}; DeepUM is off, the program goes on"));
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because a panic turns the shim off for the whole process.
    #[test]
    fn our_code_runs_one_level_deep_keeps_errno_and_may_panic_once() {
        assert_eq!(ours(|| ours(|| 1)), Some(None));
        assert_eq!(ours(|| (anywhere(|| ours(|| 1)), here(|h| h.inside.get()))), Some((Some(None), true)));
        assert_eq!(ours(|| 2), Some(2));

        // SAFETY: errno's address is valid for this thread as long as it runs.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        unsafe { *errno = 77 };
        ours(|| std::fs::read("/no/such/file").is_err());
        // SAFETY: as above.
        assert_eq!(unsafe { *errno }, 77);

        assert_eq!(ours(|| -> u8 { panic!("planted") }), None);
        assert!(!stage::ready(), "a panic turns us off");
        assert_eq!(ours(|| 3), None);
        assert!(!here(|h| h.inside.get()), "and leaves the thread as it was");
    }

    /// The test above, in a process of its own, whose stderr nobody else writes.
    #[test]
    fn a_panic_is_one_line() {
        let name = "fence::tests::our_code_runs_one_level_deep_keeps_errno_and_may_panic_once";
        let mut test = std::process::Command::new(std::env::current_exe().unwrap());
        let output = test.args(["--exact", name, "--nocapture"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && said.lines().count() == 1, "{said}");
        assert!(said.contains("fence.rs:") && said.contains("planted; DeepUM is off, the program goes on"), "{said}");
    }
}
