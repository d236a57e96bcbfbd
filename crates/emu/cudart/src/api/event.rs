//! Events.

use super::export;
use crate::driver::drive;
use crate::layout::{Handle, Stream};
use std::ffi::c_uint;

export! {
    fn cudaEventCreate(out: *mut Handle) {
        drive!(cuEventCreate(out, 0))
    }

    fn cudaEventCreateWithFlags(out: *mut Handle, flags: c_uint) {
        drive!(cuEventCreate(out, flags))
    }

    fn cudaEventDestroy(event: Handle) {
        drive!(cuEventDestroy(event))
    }

    fn cudaEventQuery(event: Handle) {
        drive!(cuEventQuery(event))
    }

    fn cudaEventRecord, cudaEventRecord_ptsz on stream (event: Handle, stream: Stream) {
        drive!(cuEventRecord(event, stream))
    }

    fn cudaEventRecordWithFlags, cudaEventRecordWithFlags_ptsz on stream (event: Handle, stream: Stream, flags: c_uint) {
        drive!(cuEventRecordWithFlags(event, stream, flags))
    }

    fn cudaEventSynchronize(event: Handle) {
        drive!(cuEventSynchronize(event))
    }

    fn cudaEventElapsedTime(milliseconds: *mut f32, start: Handle, end: Handle) {
        drive!(cuEventElapsedTime(milliseconds, start, end))
    }

    fn cudaEventElapsedTime_v2(milliseconds: *mut f32, start: Handle, end: Handle) {
        drive!(cuEventElapsedTime(milliseconds, start, end))
    }
}
