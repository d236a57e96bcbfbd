//! Statuses of cuBLAS, and where they come from.

use std::ffi::{CStr, c_int};
use std::sync::atomic::AtomicBool;

use deepum_emu_abi::client::{CuResult, NOT_INITIALIZED};
use deepum_emu_abi::edge::Failure;

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

impl Failure for Status {
    const NULL: Self = Self::InvalidValue;
    const INTERNAL: Self = Self::InternalError;
    const REFUSE: fn(&CStr, &AtomicBool) = crate::refusals::refuse;

    fn code(self) -> c_int {
        self as c_int
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

/// A size or count argument that may not be negative.
pub fn count(n: impl Into<i64>) -> Result<u64, Status> {
    u64::try_from(n.into()).map_err(|_| Status::InvalidValue)
}

/// Enumerations that change neither what is touched nor how much arithmetic it is, each with its highest value: checked.
pub fn check(flags: &[(c_int, c_int)]) -> Outcome {
    let known = flags.iter().all(|&(flag, highest)| (0..=highest).contains(&flag));
    if known { Ok(()) } else { Err(Status::InvalidValue) }
}
