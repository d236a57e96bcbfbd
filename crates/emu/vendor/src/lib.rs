//! Stand-in for every other library PyTorch links: cuFFT, cuSPARSE(Lt), cuSOLVER, cuFile, CUPTI, NCCL, NVRTC, NVSHMEM, NVTX.
//!
//! PyTorch must load, and ordinary training on one GPU calls none of them, so nearly all of their functions are refusals
//! (`build.rs`). What is here is what must answer truthfully all the same: version queries, texts of statuses (a refusal would
//! be taken for a pointer), "not initialised", and NVTX marks, which without a profiler attached do nothing in the real library too.
//! cuRAND is here by name only: PyTorch's CUDA 12 wheels ask for the file, and import nothing from it.

use std::ffi::{CStr, c_char, c_int};

/// `NVTX_NO_PUSH_POP_TRACKING`: what ranges return while no tool is attached (NVTX 3 documentation).
const NO_TOOL: c_int = -2;

/// A mark on a profiler's time line; there is no profiler.
#[unsafe(no_mangle)]
pub extern "C" fn nvtxMarkA(_message: *const c_char) {}

/// Opens a range on a profiler's time line.
#[unsafe(no_mangle)]
pub extern "C" fn nvtxRangePushA(_message: *const c_char) -> c_int {
    NO_TOOL
}

/// Closes the innermost range.
#[unsafe(no_mangle)]
pub extern "C" fn nvtxRangePop() -> c_int {
    NO_TOOL
}

/// NCCL 2.30.7, which the torch 2.15.0 wheel asks for. Older wheels only print it.
///
/// # Safety
/// `version` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    const INVALID_ARGUMENT: c_int = 4;
    if version.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: not null, so valid by the caller's promise.
    unsafe { version.write(2 * 10_000 + 30 * 100 + 7) };
    0
}

/// Text of an `ncclResult_t`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(result: c_int) -> *const c_char {
    let text: &CStr = match result {
        0 => c"no error",
        5 => c"NCCL is not supported by the emulated device",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

/// Text of the last failure: always the same, as every call is refused.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(_communicator: *const c_char) -> *const c_char {
    c"NCCL is not supported by the emulated device".as_ptr()
}

/// Text of a `cusparseStatus_t`.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseGetErrorString(status: c_int) -> *const c_char {
    let text: &CStr = match status {
        0 => c"success",
        10 => c"cuSPARSE is not supported by the emulated device",
        _ => c"unknown status",
    };
    text.as_ptr()
}

/// Text of an `nvrtcResult`.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetErrorString(result: c_int) -> *const c_char {
    let text: &CStr = match result {
        0 => c"NVRTC_SUCCESS",
        11 => c"NVRTC is not supported by the emulated device",
        _ => c"NVRTC_ERROR unknown",
    };
    text.as_ptr()
}

/// Text of a `CUptiResult`.
///
/// # Safety
/// `text` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetResultString(result: c_int, text: *mut *const c_char) -> c_int {
    const INVALID_PARAMETER: c_int = 1;
    if text.is_null() {
        return INVALID_PARAMETER;
    }
    let name: &CStr = match result {
        0 => c"CUPTI_SUCCESS",
        27 => c"CUPTI_ERROR_NOT_SUPPORTED",
        _ => c"CUPTI_ERROR unknown",
    };
    // SAFETY: not null, so valid by the caller's promise.
    unsafe { text.write(name.as_ptr()) };
    0
}

/// NVSHMEM's state: 0, not initialised, as initialising is refused.
#[unsafe(no_mangle)]
pub extern "C" fn nvshmemid_init_status() -> c_int {
    0
}

include!(concat!(env!("OUT_DIR"), "/refusals.rs"));
