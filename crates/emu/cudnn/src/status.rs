//! Statuses of cuDNN 9, and where they come from.

use std::ffi::{CStr, c_int};
use std::sync::atomic::AtomicBool;

use deepum_emu_abi::client::{CuResult, NOT_INITIALIZED};
use deepum_emu_abi::edge::Failure;

/// `cudnnStatus_t`, the failures.
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

impl Failure for Status {
    const NULL: Self = Self::NullPointer;
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
            2 => Self::DeviceAllocationFailed,
            _ => Self::ExecutionFailed,
        }
    }
}
