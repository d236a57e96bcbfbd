//! Versions and texts.

use std::ffi::{CStr, c_char, c_int};

use deepum_emu_abi::edge::Failure;

use crate::status::Status;

/// 9.26.0, which the torch 2.15.0 wheel asks for. PyTorch accepts any that is of its major version and not older than what it was
/// compiled with, so this serves the older wheels too.
const VERSION: [c_int; 3] = [9, 26, 0];

/// `cudnnGetVersion`.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetVersion() -> usize {
    usize::try_from(VERSION[0] * 10_000 + VERSION[1] * 100 + VERSION[2]).unwrap_or_default()
}

/// `cudnnGetProperty`: major, minor, patch level.
///
/// # Safety
/// `value` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetProperty(property: c_int, value: *mut c_int) -> c_int {
    Status::edge(|| {
        let known = usize::try_from(property).ok().and_then(|p| VERSION.get(p));
        // SAFETY: the caller's promise.
        unsafe { Status::put(value, *known.ok_or(Status::BadParam)?) }
    })
}

/// `cudnnGetCudartVersion`: cuDNN 9 comes built for CUDA 12 and 13; which one this process wants is told by the runtime it loaded.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetCudartVersion() -> usize {
    // SAFETY: a constant name, and nothing is loaded that was not; the handle is given back.
    unsafe {
        let twelve = libc::dlopen(c"libcudart.so.12".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if twelve.is_null() {
            return 13_020;
        }
        libc::dlclose(twelve);
        12_080
    }
}

fn text(status: c_int) -> &'static CStr {
    match status {
        0 => c"CUDNN_STATUS_SUCCESS",
        1001 => c"CUDNN_STATUS_NOT_INITIALIZED",
        2000 => c"CUDNN_STATUS_BAD_PARAM",
        2002 => c"CUDNN_STATUS_BAD_PARAM_NULL_POINTER",
        2004 => c"CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED",
        2010 => c"CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE",
        3000 => c"CUDNN_STATUS_NOT_SUPPORTED",
        3001 => c"CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN",
        3003 => c"CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE",
        4000 => c"CUDNN_STATUS_INTERNAL_ERROR",
        4004 => c"CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        5001 => c"CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER",
        _ => c"CUDNN_STATUS unknown",
    }
}

/// `cudnnGetErrorString`.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetErrorString(status: c_int) -> *const c_char {
    text(status).as_ptr()
}

/// `cudnnGetLastErrorString`: no more is known than the status said.
///
/// # Safety
/// `message` is null or valid for writing `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetLastErrorString(message: *mut c_char, bytes: usize) {
    let text = c"see the status, and stderr for functions the emulated device refuses".to_bytes_with_nul();
    if message.is_null() || bytes == 0 {
        return;
    }
    let n = text.len().min(bytes);
    // SAFETY: `n` is within both; the last byte written is made the terminator.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), message, n);
        message.add(n - 1).write(0);
    }
}
