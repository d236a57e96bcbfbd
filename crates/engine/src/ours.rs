//! Threads of ours, in a process that is somebody else's.
//!
//! They take no signals: the program's handlers run on the program's threads. A panic on one of them says nothing by itself; whoever
//! started the thread hears of it, and says the one line there is to say. Panics of other threads go the way they went.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

thread_local! {
    static OURS: Cell<bool> = const { Cell::new(false) };
    static PANICKED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Whether the calling thread is one of the engine's.
pub fn is_ours() -> bool {
    OURS.try_with(Cell::get).unwrap_or(false)
}

/// Makes a panic on one of our threads say nothing by itself, but remember where it was; others go the way they went. The
/// one line is said by whoever started the thread.
pub fn quiet_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if is_ours() {
            PANICKED_AT.with(|at| *at.borrow_mut() = info.location().map(ToString::to_string));
        } else {
            before(info);
        }
    }));
}

/// Does `body` on the calling thread, which is the engine's for so long.
///
/// # Errors
/// If it panics: one line, in which it goes by `name`.
pub fn guard<R>(name: &str, body: impl FnOnce() -> R) -> Result<R, String> {
    let before = OURS.replace(true);
    let result = catch_unwind(AssertUnwindSafe(body)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let at = PANICKED_AT.take().map(|at| format!(" at {at}")).unwrap_or_default();
        let why = format!("internal error in {name}{at}: {}", text.unwrap_or("no words"));
        // A payload may panic again when it is dropped.
        std::mem::forget(panic);
        why
    });
    OURS.set(before);
    result
}

/// Starts a thread of ours; `failed` hears of its panic, on that thread.
///
/// # Errors
/// If the system gives no thread.
pub fn spawn(
    name: &'static str,
    body: impl FnOnce() + Send + 'static,
    failed: impl FnOnce(String) + Send + 'static,
) -> Result<(), String> {
    use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
    let mut before = SigSet::empty();
    // A thread inherits the mask of the one that makes it. Failing here is harmless and cannot happen with these arguments.
    let masked = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before)).is_ok();
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || {
        if let Err(why) = guard(name, body) {
            failed(why);
        }
    });
    if masked {
        let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
    }
    spawned.map(drop).map_err(|e| format!("cannot start the thread {name}: {e}"))
}
