//! Streams. Capture is not supported, so no stream is ever capturing; the driver says so itself.

use super::{export, put};
use crate::driver::{ask, drive};
use crate::error::{Result, unsupported};
use crate::layout::{Handle, Stream};
use std::ffi::{c_int, c_uint, c_void};

export! {
    fn cudaStreamCreate(out: *mut Stream) {
        drive!(cuStreamCreate(out, 0))
    }

    fn cudaStreamCreateWithFlags(out: *mut Stream, flags: c_uint) {
        drive!(cuStreamCreate(out, flags))
    }

    fn cudaStreamCreateWithPriority(out: *mut Stream, flags: c_uint, priority: c_int) {
        drive!(cuStreamCreateWithPriority(out, flags, priority))
    }

    fn cudaStreamDestroy(stream: Stream) {
        drive!(cuStreamDestroy(stream))
    }

    fn cudaStreamQuery, cudaStreamQuery_ptsz on stream (stream: Stream) {
        drive!(cuStreamQuery(stream))
    }

    fn cudaStreamSynchronize, cudaStreamSynchronize_ptsz on stream (stream: Stream) {
        drive!(cuStreamSynchronize(stream))
    }

    fn cudaStreamWaitEvent, cudaStreamWaitEvent_ptsz on stream (stream: Stream, event: Handle, flags: c_uint) {
        drive!(cuStreamWaitEvent(stream, event, flags))
    }

    fn cudaStreamGetPriority, cudaStreamGetPriority_ptsz on stream (stream: Stream, out: *mut c_int) {
        drive!(cuStreamGetPriority(stream, out))
    }

    fn cudaStreamGetFlags, cudaStreamGetFlags_ptsz on stream (stream: Stream, out: *mut c_uint) {
        drive!(cuStreamGetFlags(stream, out))
    }

    fn cudaStreamGetId, cudaStreamGetId_ptsz on stream (stream: Stream, out: *mut u64) {
        drive!(cuStreamGetId(stream, out))
    }

    fn cudaStreamGetDevice, cudaStreamGetDevice_ptsz on stream (stream: Stream, out: *mut c_int) {
        drive!(cuStreamGetDevice(stream, out))
    }

    /// The status the callback is given has the same numbers in both interfaces.
    fn cudaStreamAddCallback, cudaStreamAddCallback_ptsz on stream (
        stream: Stream, callback: *const c_void, data: *mut c_void, flags: c_uint
    ) {
        drive!(cuStreamAddCallback(stream, callback, data, flags))
    }

    fn cudaLaunchHostFunc, cudaLaunchHostFunc_ptsz on stream (stream: Stream, function: *const c_void, data: *mut c_void) {
        drive!(cuLaunchHostFunc(stream, function, data))
    }

    fn cudaStreamAttachMemAsync, cudaStreamAttachMemAsync_ptsz on stream (
        stream: Stream, at: *mut c_void, bytes: usize, flags: c_uint
    ) {
        drive!(cuStreamAttachMemAsync(stream, at, bytes, flags))
    }

    fn cudaStreamIsCapturing, cudaStreamIsCapturing_ptsz on stream (stream: Stream, status: *mut c_int) {
        drive!(cuStreamIsCapturing(stream, status))
    }

    /// CUDA 12 has three arguments, CUDA 13 seven; those after the status are written only while capturing.
    fn cudaStreamGetCaptureInfo, cudaStreamGetCaptureInfo_ptsz on stream (stream: Stream, status: *mut c_int) {
        capture_info(stream, status)
    }

    fn cudaStreamGetCaptureInfo_v2, cudaStreamGetCaptureInfo_v2_ptsz on stream (stream: Stream, status: *mut c_int) {
        capture_info(stream, status)
    }

    fn cudaStreamGetCaptureInfo_v3, cudaStreamGetCaptureInfo_v3_ptsz on stream (stream: Stream, status: *mut c_int) {
        capture_info(stream, status)
    }

    fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_int) {
        ask!(cuThreadExchangeStreamCaptureMode(mode))
    }
}

/// The status of a stream that is not capturing.
fn capture_info(stream: Stream, status: *mut c_int) -> Result {
    let mut now = 0;
    drive!(cuStreamIsCapturing(stream, &raw mut now))?;
    if now != 0 {
        return Err(unsupported("cudaStreamGetCaptureInfo of a capturing stream"));
    }
    // SAFETY: the program's own result address.
    unsafe { put(status, now) }
}
