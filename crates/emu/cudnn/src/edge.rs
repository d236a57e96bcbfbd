//! Where C meets Rust: statuses instead of results, and no unwinding.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use deepum_emu_abi::client::{CuResult, NOT_INITIALIZED};

/// `cudnnStatus_t` of cuDNN 9, the failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Status {
    NotInitialized = 1001,
    BadParam = 2000,
    NullPointer = 2002,
    NotFinalized = 2004,
    AttributeType = 2010,
    NotSupported = 3000,
    NotSupportedGraph = 3001,
    NotSupportedDataType = 3003,
    InternalError = 4000,
    DeviceAllocationFailed = 4004,
    ExecutionFailed = 5001,
}

pub type Outcome = Result<(), Status>;

/// Runs the body of an exported function.
pub fn edge(body: impl FnOnce() -> Outcome) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(status)) => status as c_int,
        Err(_) => Status::InternalError as c_int,
    }
}

impl From<CuResult> for Status {
    /// `CUDA_ERROR_OUT_OF_MEMORY` is 2.
    fn from(result: CuResult) -> Self {
        match result {
            NOT_INITIALIZED => Self::NotInitialized,
            2 => Self::DeviceAllocationFailed,
            _ => Self::ExecutionFailed,
        }
    }
}

/// Writes through a result pointer that must not be null.
///
/// # Safety
/// `out` is null or valid for writing a `T`.
pub unsafe fn put<T>(out: *mut T, value: T) -> Outcome {
    if out.is_null() {
        return Err(Status::NullPointer);
    }
    // SAFETY: not null, so valid by the caller's promise.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

/// The object behind a C pointer.
///
/// # Safety
/// `raw` is null or points to a live `T` that nobody is changing.
pub unsafe fn get<'a, T>(raw: *const T) -> Result<&'a T, Status> {
    // SAFETY: the caller's promise.
    unsafe { raw.as_ref() }.ok_or(Status::NullPointer)
}

/// `len` elements from a C array.
///
/// # Safety
/// `raw` is null or valid for reading `len` elements.
pub unsafe fn array<T: Copy>(raw: *const T, len: usize) -> Result<Vec<T>, Status> {
    if raw.is_null() && len > 0 {
        return Err(Status::NullPointer);
    }
    // SAFETY: the caller's promise.
    Ok((0..len).map(|i| unsafe { raw.add(i).read_unaligned() }).collect())
}

/// Allocates an object for C.
///
/// # Safety
/// `out` is null or valid for writing a pointer.
pub unsafe fn create<T>(out: *mut *mut T, object: T) -> Outcome {
    if out.is_null() {
        return Err(Status::NullPointer);
    }
    // SAFETY: not null, so valid by the caller's promise.
    unsafe { put(out, Box::into_raw(Box::new(object))) }
}

/// Frees an object made by [`create`].
///
/// # Safety
/// `object` is null or came from [`create`] and is not used again.
pub unsafe fn destroy<T>(object: *mut T) -> Outcome {
    if !object.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(object) });
    }
    Ok(())
}
