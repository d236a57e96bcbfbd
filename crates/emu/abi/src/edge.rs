//! Where C meets Rust in a stand-in library: statuses instead of results, no unwinding, pointers checked for null.
//!
//! Each library has its own status type; [`Failure`] says which of its values mean what, and gives it the rest.

use std::ffi::{CStr, CString, c_int};
use std::fmt::Arguments;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;

/// A library's status type, without its success (0).
pub trait Failure: Copy + Sized {
    /// A pointer that must not be null is.
    const NULL: Self;
    /// The library itself has failed: a panic.
    const INTERNAL: Self;
    /// Says once that something is not supported, and tells the driver each time: `refuse` of the generated refusals
    /// (`crates/emu/refuse.rs`).
    const REFUSE: fn(&CStr, &AtomicBool);

    /// The value C sees.
    fn code(self) -> c_int;

    /// Runs the body of an exported function.
    fn edge(body: impl FnOnce() -> Result<(), Self>) -> c_int {
        match catch_unwind(AssertUnwindSafe(body)) {
            Ok(Ok(())) => 0,
            Ok(Err(status)) => status.code(),
            Err(_) => Self::INTERNAL.code(),
        }
    }

    /// This status, after naming what it refuses; see [`refused!`](crate::refused).
    fn refused(self, said: &AtomicBool, what: Arguments<'_>) -> Self {
        if let Ok(what) = CString::new(what.to_string()) {
            Self::REFUSE(&what, said);
        }
        self
    }

    /// Writes through a result pointer that must not be null.
    ///
    /// # Errors
    /// Null.
    ///
    /// # Safety
    /// `out` is null or valid for writing a `T`.
    unsafe fn put<T>(out: *mut T, value: T) -> Result<(), Self> {
        if out.is_null() {
            return Err(Self::NULL);
        }
        // SAFETY: not null, so valid by the caller's promise; C promises alignment no further than its own types.
        unsafe { out.write_unaligned(value) };
        Ok(())
    }

    /// The object behind a C pointer.
    ///
    /// # Errors
    /// Null.
    ///
    /// # Safety
    /// `raw` is null or points to a live `T` that nobody is changing.
    unsafe fn get<'a, T>(raw: *const T) -> Result<&'a T, Self> {
        // SAFETY: the caller's promise.
        unsafe { raw.as_ref() }.ok_or(Self::NULL)
    }

    /// The object behind a C pointer, to be changed.
    ///
    /// # Errors
    /// Null.
    ///
    /// # Safety
    /// `raw` is null or points to a live `T` that nobody else is using now.
    unsafe fn get_mut<'a, T>(raw: *mut T) -> Result<&'a mut T, Self> {
        // SAFETY: the caller's promise.
        unsafe { raw.as_mut() }.ok_or(Self::NULL)
    }

    /// `len` elements from a C array.
    ///
    /// # Errors
    /// Null, unless `len` is 0.
    ///
    /// # Safety
    /// `raw` is null or valid for reading `len` elements.
    unsafe fn array<T: Copy>(raw: *const T, len: usize) -> Result<Vec<T>, Self> {
        if raw.is_null() && len > 0 {
            return Err(Self::NULL);
        }
        // SAFETY: the caller's promise.
        Ok((0..len).map(|i| unsafe { raw.add(i).read_unaligned() }).collect())
    }

    /// Allocates an object for C, unless there is nowhere to put its address.
    ///
    /// # Errors
    /// Null, or what making the object came to.
    ///
    /// # Safety
    /// `out` is null or valid for writing a pointer.
    unsafe fn create<T>(out: *mut *mut T, object: impl FnOnce() -> Result<T, Self>) -> Result<(), Self> {
        if out.is_null() {
            return Err(Self::NULL);
        }
        let object = Box::into_raw(Box::new(object()?));
        // SAFETY: not null, so valid by the caller's promise.
        unsafe { Self::put(out, object) }
    }

    /// Frees an object made by [`Failure::create`].
    ///
    /// # Errors
    /// None: the null object may be destroyed.
    ///
    /// # Safety
    /// `object` is null or came from [`Failure::create`] and is not used again.
    unsafe fn destroy<T>(object: *mut T) -> Result<(), Self> {
        if !object.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(object) });
        }
        Ok(())
    }
}

/// A status, after saying on stderr what it refuses: once for each place in the code, with the value met first.
///
/// `refused!(Status::NotSupported, "cuBLAS data type {value}")`
#[macro_export]
macro_rules! refused {
    ($status:expr, $($what:tt)+) => {{
        static SAID: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        $crate::edge::Failure::refused($status, &SAID, format_args!($($what)+))
    }};
}
