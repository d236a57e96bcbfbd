//! Errors: the runtime's codes, and the last one of each thread.
//!
//! Since CUDA 10.1 the driver's and the runtime's codes have the same numbers, so a driver result *is* a runtime result
//! (`driver_types.h` and `cuda.h` of CUDA 12.8 and 13.2; compared code by code).
//!
//! `cudaGetLastError` gives the thread's last error and forgets it, `cudaPeekAtLastError` keeps it. An error that destroyed the
//! context is *sticky*: nothing forgets it, in any thread (CUDA Runtime API, "Error Handling").

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

/// `cudaError_t`, `CUresult`: what crosses the edge.
pub type Status = i32;

/// A status that is not success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Error(Status);

/// What every body of an exported function returns.
pub type Result<T = ()> = std::result::Result<T, Error>;

impl Error {
    pub const INVALID_VALUE: Self = Self(1);
    pub const INVALID_CONFIGURATION: Self = Self(9);
    pub const INVALID_PITCH_VALUE: Self = Self(12);
    pub const INVALID_MEMCPY_DIRECTION: Self = Self(21);
    pub const INSUFFICIENT_DRIVER: Self = Self(35);
    pub const MISSING_CONFIGURATION: Self = Self(52);
    pub const INVALID_DEVICE_FUNCTION: Self = Self(98);
    pub const NO_DEVICE: Self = Self(100);
    pub const INVALID_DEVICE: Self = Self(101);
    /// The driver's `CUDA_ERROR_INVALID_CONTEXT`: no context is current.
    pub const DEVICE_UNINITIALIZED: Self = Self(201);
    pub const PEER_ACCESS_UNSUPPORTED: Self = Self(217);
    pub const INVALID_RESOURCE_HANDLE: Self = Self(400);
    pub const SYMBOL_NOT_FOUND: Self = Self(500);
    pub const NOT_SUPPORTED: Self = Self(801);
    const UNKNOWN: Self = Self(999);

    /// Whether it destroyed the context: faults of kernels, 700 to 719 without the refusals of single calls among them.
    const fn is_sticky(self) -> bool {
        matches!(self.0, 700 | 702 | 709 | 710 | 714..=719)
    }
}

/// A driver's or runtime's status as a result.
pub const fn check(status: Status) -> Result {
    if status == 0 { Ok(()) } else { Err(Error(status)) }
}

thread_local! {
    static LAST: Cell<Status> = const { Cell::new(0) };
}
/// The sticky error of the process, or 0.
static STICKY: AtomicI32 = AtomicI32::new(0);

/// Runs the body of an exported function: keeps its error, and a panic becomes `cudaErrorUnknown`.
pub fn entry(body: impl FnOnce() -> Result) -> Status {
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Error::UNKNOWN));
    match result {
        Ok(()) => 0,
        Err(error) => {
            LAST.set(error.0);
            if error.is_sticky() {
                STICKY.store(error.0, Ordering::Relaxed);
            }
            error.0
        }
    }
}

/// The last error of this thread, which stays.
pub fn peek() -> Status {
    match STICKY.load(Ordering::Relaxed) {
        0 => LAST.get(),
        sticky => sticky,
    }
}

/// The last error of this thread, which is forgotten unless it is sticky.
pub fn take() -> Status {
    let last = peek();
    LAST.set(0);
    last
}

/// One line on stderr. A closed stderr has no remedy.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "deepum-emu: {line}");
}

/// The error for something that is not there, said once per name.
pub fn unsupported(what: &'static str) -> Error {
    static SAID: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    if SAID.lock().is_ok_and(|mut said| said.insert(what)) {
        say(&format!("{what} is not supported by the emulated device"));
    }
    Error::NOT_SUPPORTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_is_kept_until_taken_and_a_panic_is_an_error() {
        assert_eq!(entry(|| Ok(())), 0);
        assert_eq!(entry(|| Err(Error::INVALID_VALUE)), 1);
        assert_eq!(entry(|| Ok(())), 0, "success does not forget an error");
        assert_eq!(peek(), 1);
        assert_eq!(std::thread::spawn(peek).join().unwrap(), 0, "errors belong to their thread");
        assert_eq!(take(), 1);
        assert_eq!(peek(), 0);
        assert_eq!(entry(|| panic!("planted")), 999);
        assert_eq!(take(), 999);
    }

    #[test]
    fn only_errors_that_destroy_the_context_are_sticky() {
        for sticky in [700, 719] {
            assert!(Error(sticky).is_sticky());
        }
        // Out of memory, not ready, peer access already enabled, host memory already registered, not supported.
        for plain in [2, 600, 701, 704, 712, 713, 720, 801] {
            assert!(!Error(plain).is_sticky());
        }
    }
}
