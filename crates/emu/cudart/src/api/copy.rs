//! Copies and fills. The direction a program states picks the driver function; `cudaMemcpyDefault` leaves it to the addresses.

use super::export;
use crate::context;
use crate::driver::{ask, drive};
use crate::error::{Error, Result};
use crate::layout::{Copy2d, Copy2dSide, Stream};
use std::ffi::{c_int, c_void};

/// `cudaMemcpyKind`.
const HOST_TO_HOST: c_int = 0;
const HOST_TO_DEVICE: c_int = 1;
const DEVICE_TO_HOST: c_int = 2;
const DEVICE_TO_DEVICE: c_int = 3;
const DEFAULT: c_int = 4;

export! {
    fn cudaMemcpy(dst: *mut c_void, src: *const c_void, bytes: usize, kind: c_int) {
        copy(dst, src, bytes, kind)
    }

    fn cudaMemcpy_ptds(dst: *mut c_void, src: *const c_void, bytes: usize, kind: c_int) {
        copy_async(dst, src, bytes, kind, Stream::PER_THREAD)?;
        ask!(cuStreamSynchronize(Stream::PER_THREAD))
    }

    fn cudaMemcpyAsync, cudaMemcpyAsync_ptsz on stream (
        dst: *mut c_void, src: *const c_void, bytes: usize, kind: c_int, stream: Stream
    ) {
        copy_async(dst, src, bytes, kind, stream)
    }

    fn cudaMemcpy2D(
        dst: *mut c_void, dst_pitch: usize, src: *const c_void, src_pitch: usize, width: usize, height: usize, kind: c_int
    ) {
        let copy = rectangle(dst, dst_pitch, src, src_pitch, width, height, kind)?;
        drive!(cuMemcpy2DUnaligned(&raw const copy))
    }

    fn cudaMemcpy2DAsync, cudaMemcpy2DAsync_ptsz on stream (
        dst: *mut c_void, dst_pitch: usize, src: *const c_void, src_pitch: usize, width: usize, height: usize, kind: c_int,
        stream: Stream
    ) {
        let copy = rectangle(dst, dst_pitch, src, src_pitch, width, height, kind)?;
        drive!(cuMemcpy2DAsync(&raw const copy, stream))
    }

    fn cudaMemcpyPeer(dst: *mut c_void, dst_device: c_int, src: *const c_void, src_device: c_int, bytes: usize) {
        let (to, from) = (context_of(dst_device)?, context_of(src_device)?);
        drive!(cuMemcpyPeer(dst, to, src, from, bytes))
    }

    fn cudaMemcpyPeerAsync, cudaMemcpyPeerAsync_ptsz on stream (
        dst: *mut c_void, dst_device: c_int, src: *const c_void, src_device: c_int, bytes: usize, stream: Stream
    ) {
        let (to, from) = (context_of(dst_device)?, context_of(src_device)?);
        drive!(cuMemcpyPeerAsync(dst, to, src, from, bytes, stream))
    }

    fn cudaMemset(at: *mut c_void, value: c_int, bytes: usize) {
        if bytes == 0 { context::ensure() } else { drive!(cuMemsetD8(at, low_byte(value), bytes)) }
    }

    fn cudaMemset_ptds(at: *mut c_void, value: c_int, bytes: usize) {
        if bytes != 0 {
            drive!(cuMemsetD8Async(at, low_byte(value), bytes, Stream::PER_THREAD))?;
        }
        drive!(cuStreamSynchronize(Stream::PER_THREAD))
    }

    fn cudaMemsetAsync, cudaMemsetAsync_ptsz on stream (at: *mut c_void, value: c_int, bytes: usize, stream: Stream) {
        if bytes == 0 { context::ensure() } else { drive!(cuMemsetD8Async(at, low_byte(value), bytes, stream)) }
    }

    fn cudaMemset2D(at: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) {
        drive!(cuMemsetD2D8(at, pitch, low_byte(value), width, height))
    }

    fn cudaMemset2DAsync, cudaMemset2DAsync_ptsz on stream (
        at: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize, stream: Stream
    ) {
        drive!(cuMemsetD2D8Async(at, pitch, low_byte(value), width, height, stream))
    }
}

/// The byte that `memset` writes: the value's lowest, as in C.
const fn low_byte(value: c_int) -> u8 {
    value.to_le_bytes()[0]
}

/// A copy the host waits for. Copying nothing is allowed and reaches nobody.
fn copy(dst: *mut c_void, src: *const c_void, bytes: usize, kind: c_int) -> Result {
    check(kind)?;
    context::ensure()?;
    match kind {
        _ if bytes == 0 => Ok(()),
        HOST_TO_DEVICE => ask!(cuMemcpyHtoD(dst, src, bytes)),
        DEVICE_TO_HOST => ask!(cuMemcpyDtoH(dst, src, bytes)),
        DEVICE_TO_DEVICE => ask!(cuMemcpyDtoD(dst, src, bytes)),
        _ => ask!(cuMemcpy(dst, src, bytes)),
    }
}

/// A copy in the order of `stream`.
fn copy_async(dst: *mut c_void, src: *const c_void, bytes: usize, kind: c_int, stream: Stream) -> Result {
    check(kind)?;
    context::ensure()?;
    match kind {
        _ if bytes == 0 => Ok(()),
        HOST_TO_DEVICE => ask!(cuMemcpyHtoDAsync(dst, src, bytes, stream)),
        DEVICE_TO_HOST => ask!(cuMemcpyDtoHAsync(dst, src, bytes, stream)),
        DEVICE_TO_DEVICE => ask!(cuMemcpyDtoDAsync(dst, src, bytes, stream)),
        _ => ask!(cuMemcpyAsync(dst, src, bytes, stream)),
    }
}

/// Refuses a number that is no direction.
fn check(kind: c_int) -> Result {
    if (HOST_TO_HOST..=DEFAULT).contains(&kind) { Ok(()) } else { Err(Error::INVALID_MEMCPY_DIRECTION) }
}

/// The driver's description of a copy of `height` rows of `width` bytes.
fn rectangle(
    dst: *mut c_void,
    dst_pitch: usize,
    src: *const c_void,
    src_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
) -> Result<Copy2d> {
    use Copy2dSide as Side;
    let (from, to) = match kind {
        HOST_TO_HOST => (Side::HOST, Side::HOST),
        HOST_TO_DEVICE => (Side::HOST, Side::DEVICE),
        DEVICE_TO_HOST => (Side::DEVICE, Side::HOST),
        DEVICE_TO_DEVICE => (Side::DEVICE, Side::DEVICE),
        DEFAULT => (Side::UNIFIED, Side::UNIFIED),
        _ => return Err(Error::INVALID_MEMCPY_DIRECTION),
    };
    if width > dst_pitch.min(src_pitch) {
        return Err(Error::INVALID_PITCH_VALUE);
    }
    let (src, dst) = (Side::new(src, src_pitch, from), Side::new(dst, dst_pitch, to));
    Ok(Copy2d { src, dst, width, height })
}

/// The primary context of a device that exists.
fn context_of(device: c_int) -> Result<crate::layout::Handle> {
    context::check_device(device)?;
    context::primary(device)
}
