//! The edge between C and Rust: how an exported function is made, and what its arguments may be.
//!
//! A function of the driver API is written as a body that may fail; [`api!`] makes it an exported C function that
//! answers a `CUresult`, says once that something is not supported, and turns a panic into `CUDA_ERROR_UNKNOWN`.
//!
//! Pointers of the caller are claims. The CUDA driver API reference says of each whether it may be null; beyond that the
//! caller promises that they are valid, and nothing can check it. The types here hold such a promise and do the one
//! access it is for.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use deepum_core::units::{AddrRange, Bytes, DevAddr};
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::say;
use parking_lot::Mutex;

/// Runs a body; what happens in it becomes a `CUresult`.
pub fn answer(name: &'static str, body: impl FnOnce() -> CuResult) -> i32 {
    let told = || {
        body().inspect_err(|error| {
            if *error == CuError::NotSupported {
                refuse(name)
            }
        })
    };
    match catch_unwind(AssertUnwindSafe(told)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error.code(),
        Err(_) => CuError::Unknown.code(),
    }
}

/// Says once that `name` was asked for something that is not supported, and counts it each time.
fn refuse(name: &'static str) {
    static SAID: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    if SAID.lock().insert(name) {
        say(&format!("{name}: what was asked is not supported by the emulated device"));
    }
    crate::emu::count_refusal();
}

/// Exported functions of the driver API.
macro_rules! api {
    ($($(#[doc = $doc:literal])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[doc = $doc])*
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "name and arguments are the driver API's")]
        pub extern "C" fn $name($($arg: $type),*) -> i32 {
            $crate::edge::answer(stringify!($name), move || -> deepum_emu_device::error::CuResult { $body })
        }
    )*};
}
pub(crate) use api;

/// Exported functions that are another one with other arguments: the twins for per-thread default streams
/// (`_ptsz`, `_ptds`), and older or newer forms.
macro_rules! twins {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) = $call:expr;)*) => {$(
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "name and arguments are the driver API's")]
        pub extern "C" fn $name($($arg: $type),*) -> i32 {
            $call
        }
    )*};
}
pub(crate) use twins;

/// A place for one result.
#[repr(transparent)]
#[derive(Debug)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Stores a result the caller must have asked for.
    pub fn put(self, value: T) -> CuResult {
        if self.0.is_null() {
            return Err(CuError::InvalidValue);
        }
        self.offer(value);
        Ok(())
    }

    /// Stores a result if the caller wants it.
    pub fn offer(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, so the caller promises a valid place for a T (CUDA driver API reference).
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// No place: nothing is wanted.
    pub fn none() -> Self {
        Self(std::ptr::null_mut())
    }

    /// Whether nothing is wanted.
    pub fn is_none(self) -> bool {
        self.0.is_null()
    }

    /// The same place, for another type: the one documented for what was asked.
    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// What is there before the call.
    pub fn get(self) -> CuResult<T>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }

    /// The place `n` further on.
    pub fn at(self, n: usize) -> Self {
        Self(self.0.wrapping_add(n))
    }
}

/// A value, or an array of values, of the caller.
#[repr(transparent)]
#[derive(Debug)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for In<T> {}

impl<T> In<T> {
    /// No value and no array.
    pub fn none() -> Self {
        Self(std::ptr::null())
    }

    /// The same place, for another type: the one documented for what was asked.
    pub fn cast<U>(self) -> In<U> {
        In(self.0.cast())
    }

    /// Whether there is none.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// What is ours, as an argument or to be read by the program.
impl<T> From<&T> for In<T> {
    fn from(ours: &T) -> Self {
        Self(ours)
    }
}

impl<T: Copy> In<T> {
    /// The value.
    pub fn get(self) -> CuResult<T> {
        self.nth(0)
    }

    /// The `n`-th value of an array.
    pub fn nth(self, n: usize) -> CuResult<T> {
        if self.0.is_null() {
            return Err(CuError::InvalidValue);
        }
        // SAFETY: not null, so the caller promises a readable array of at least n + 1 (CUDA driver API reference).
        Ok(unsafe { self.0.wrapping_add(n).read_unaligned() })
    }

    /// The first `n` values of an array.
    pub fn array(self, n: usize) -> CuResult<Vec<T>> {
        (0..n).map(|i| self.nth(i)).collect()
    }
}

/// A C string of the caller.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Text(*const c_char);

impl Text {
    /// The string.
    pub fn get<'a>(self) -> CuResult<&'a str> {
        if self.0.is_null() {
            return Err(CuError::InvalidValue);
        }
        // SAFETY: not null, so the caller promises a C string that stays valid during the call.
        unsafe { CStr::from_ptr(self.0) }.to_str().map_err(|_| CuError::InvalidValue)
    }
}

/// A buffer of the caller for text or bytes, with its length.
pub fn put_bytes(buffer: *mut u8, len: usize, bytes: &[u8]) -> CuResult {
    if buffer.is_null() {
        return Err(CuError::InvalidValue);
    }
    let n = bytes.len().min(len);
    // SAFETY: the caller promises a buffer of `len` bytes, of which no more than that are written.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer, n) };
    Ok(())
}

/// As C strings are returned: cut to the buffer, always terminated.
pub fn put_text(buffer: *mut u8, len: usize, text: &str) -> CuResult {
    let mut bytes: Vec<u8> = text.bytes().take(len.saturating_sub(1)).collect();
    bytes.push(0);
    put_bytes(buffer, len, &bytes)
}

/// An address argument as address.
pub fn addr(pointer: *const c_void) -> DevAddr {
    DevAddr(pointer.expose_provenance() as u64)
}

/// A range from C arguments.
pub fn range(start: u64, len: usize) -> AddrRange {
    AddrRange::new(DevAddr(start), Bytes(len as u64))
}

/// A C int from a number that fits by what it counts; saturates otherwise.
pub fn int(n: impl TryInto<i32>) -> i32 {
    n.try_into().unwrap_or(i32::MAX)
}

/// A length of ours as C's `size_t`.
#[expect(clippy::cast_possible_truncation, reason = "the device crate checks that words have 64 bits")]
pub fn size(n: Bytes) -> usize {
    n.0 as usize
}
