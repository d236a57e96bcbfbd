//! Where C meets Rust: statuses instead of results, and no unwinding.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use deepum_emu_abi::client::{CuResult, NOT_INITIALIZED};

/// `cublasStatus_t`, the failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Status {
    NotInitialized = 1,
    AllocFailed = 3,
    InvalidValue = 7,
    ExecutionFailed = 13,
    InternalError = 14,
    NotSupported = 15,
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
            2 => Self::AllocFailed,
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
        return Err(Status::InvalidValue);
    }
    // SAFETY: not null, so valid by the caller's promise; C promises alignment no further than its own types.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

/// A size or count argument that may not be negative.
pub fn count(n: impl Into<i64>) -> Result<u64, Status> {
    u64::try_from(n.into()).map_err(|_| Status::InvalidValue)
}
