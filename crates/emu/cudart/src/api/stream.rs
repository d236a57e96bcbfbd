//! Streams.

use super::export;
use crate::driver::drive;
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
}
