//! Memory and events of other processes. Handles are the driver's.

use super::export;
use crate::driver::drive;
use crate::layout::{Handle, IpcHandle};
use std::ffi::{c_uint, c_void};

export! {
    fn cudaIpcGetMemHandle(out: *mut c_void, at: *mut c_void) {
        drive!(cuIpcGetMemHandle(out, at))
    }

    fn cudaIpcOpenMemHandle(out: *mut *mut c_void, handle: IpcHandle, flags: c_uint) {
        drive!(cuIpcOpenMemHandle(out, handle, flags))
    }

    fn cudaIpcCloseMemHandle(at: *mut c_void) {
        drive!(cuIpcCloseMemHandle(at))
    }

    fn cudaIpcGetEventHandle(out: *mut c_void, event: Handle) {
        drive!(cuIpcGetEventHandle(out, event))
    }

    fn cudaIpcOpenEventHandle(out: *mut Handle, handle: IpcHandle) {
        drive!(cuIpcOpenEventHandle(out, handle))
    }
}
