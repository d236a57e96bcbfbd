//! Versions, errors, entry points of the driver, the profiler.

use super::{export, put};
use crate::driver;
use crate::error::{Error, check, peek, take};
use crate::error_text;
use crate::version::major;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

export! {
    fn cudaRuntimeGetVersion(out: *mut c_int) {
        let major = major().ok_or(Error::INSUFFICIENT_DRIVER)?;
        // SAFETY: the program's own result address.
        unsafe { put(out, major.version()) }
    }

    /// Without a driver the version is 0, and that is no error.
    fn cudaDriverGetVersion(out: *mut c_int) {
        let mut version = 0;
        match driver::ask!(cuDriverGetVersion(&raw mut version)) {
            Ok(()) | Err(Error::INSUFFICIENT_DRIVER) => {}
            Err(error) => return Err(error),
        }
        // SAFETY: the program's own result address.
        unsafe { put(out, version) }
    }

    /// For the version of this runtime.
    fn cudaGetDriverEntryPoint, cudaGetDriverEntryPoint_ptsz on flags (
        symbol: *const c_char, out: *mut *mut c_void, flags: EntryFlags, result: *mut c_int
    ) {
        let version = major().ok_or(Error::INSUFFICIENT_DRIVER)?.version();
        entry_point(symbol, out, version, flags, result)
    }

    fn cudaGetDriverEntryPointByVersion, cudaGetDriverEntryPointByVersion_ptsz on flags (
        symbol: *const c_char, out: *mut *mut c_void, version: c_uint, flags: EntryFlags, result: *mut c_int
    ) {
        let version = c_int::try_from(version).map_err(|_| Error::INVALID_VALUE)?;
        entry_point(symbol, out, version, flags, result)
    }

    /// Nothing profiles an emulated device: the calls mark a region for a profiler that is not there.
    fn cudaProfilerStart() {
        driver::get().map(|_| ())
    }

    fn cudaProfilerStop() {
        driver::get().map(|_| ())
    }
}

/// `cudaDriverEntryPointFlags`: 0 default, 1 legacy stream, 2 per-thread stream; the driver's numbers.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct EntryFlags(u64);

impl EntryFlags {
    /// The default means per-thread streams to code compiled for them.
    fn per_thread(self) -> Self {
        if self.0 == 0 { Self(2) } else { self }
    }
}

/// Asks the driver's door on the program's behalf. A name it does not have is an answer, not an error, if the program takes
/// reasons.
fn entry_point(
    symbol: *const c_char,
    out: *mut *mut c_void,
    version: c_int,
    flags: EntryFlags,
    result: *mut c_int,
) -> crate::error::Result {
    if symbol.is_null() || out.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let door = driver::get()?.door;
    let (mut address, mut reason) = (null_mut(), 0);
    // SAFETY: the program's C string, and two locals.
    let status = unsafe { door(symbol, &raw mut address, version, flags.0, &raw mut reason) };
    match check(status) {
        Ok(()) => {}
        Err(Error::SYMBOL_NOT_FOUND) => reason = reason.max(1),
        Err(error) => return Err(error),
    }
    // SAFETY: the program's own result address.
    unsafe { put(out, address) }?;
    if !result.is_null() {
        // SAFETY: the program's own result address.
        return unsafe { put(result, reason) };
    }
    if address.is_null() { Err(Error::SYMBOL_NOT_FOUND) } else { Ok(()) }
}

/// The last error of this thread, forgotten unless it is sticky.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetLastError() -> c_int {
    take()
}

/// The last error of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn cudaPeekAtLastError() -> c_int {
    peek()
}

/// The name of an error, a constant.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorName(status: c_int) -> *const c_char {
    error_text::name(status).as_ptr()
}

/// An error in words, a constant.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorString(status: c_int) -> *const c_char {
    error_text::message(status).as_ptr()
}
