//! Stream-ordered memory and its pools. Handles, attributes and structures are the driver's.

use super::export;
use crate::driver::drive;
use crate::layout::{Handle, Stream};
use std::ffi::{c_int, c_void};

export! {
    fn cudaMallocAsync, cudaMallocAsync_ptsz on stream (out: *mut *mut c_void, bytes: usize, stream: Stream) {
        drive!(cuMemAllocAsync(out, bytes, stream))
    }

    fn cudaMallocFromPoolAsync, cudaMallocFromPoolAsync_ptsz on stream (
        out: *mut *mut c_void, bytes: usize, pool: Handle, stream: Stream
    ) {
        drive!(cuMemAllocFromPoolAsync(out, bytes, pool, stream))
    }

    fn cudaFreeAsync, cudaFreeAsync_ptsz on stream (at: *mut c_void, stream: Stream) {
        drive!(cuMemFreeAsync(at, stream))
    }

    fn cudaMemPoolTrimTo(pool: Handle, keep: usize) {
        drive!(cuMemPoolTrimTo(pool, keep))
    }

    fn cudaMemPoolGetAttribute(pool: Handle, attribute: c_int, value: *mut c_void) {
        drive!(cuMemPoolGetAttribute(pool, attribute, value))
    }

    fn cudaMemPoolSetAttribute(pool: Handle, attribute: c_int, value: *mut c_void) {
        drive!(cuMemPoolSetAttribute(pool, attribute, value))
    }

    fn cudaMemPoolSetAccess(pool: Handle, asked: *const c_void, count: usize) {
        drive!(cuMemPoolSetAccess(pool, asked, count))
    }

    fn cudaMemPoolGetAccess(flags: *mut c_int, pool: Handle, location: *mut c_void) {
        drive!(cuMemPoolGetAccess(flags, pool, location))
    }

    fn cudaMemPoolCreate(out: *mut Handle, properties: *const c_void) {
        drive!(cuMemPoolCreate(out, properties))
    }

    fn cudaMemPoolDestroy(pool: Handle) {
        drive!(cuMemPoolDestroy(pool))
    }

    fn cudaDeviceGetDefaultMemPool(out: *mut Handle, device: c_int) {
        drive!(cuDeviceGetDefaultMemPool(out, device))
    }

    fn cudaDeviceGetMemPool(out: *mut Handle, device: c_int) {
        drive!(cuDeviceGetMemPool(out, device))
    }

    fn cudaDeviceGetGraphMemAttribute(device: c_int, attribute: c_int, value: *mut c_void) {
        drive!(cuDeviceGetGraphMemAttribute(device, attribute, value))
    }

    fn cudaDeviceSetGraphMemAttribute(device: c_int, attribute: c_int, value: *mut c_void) {
        drive!(cuDeviceSetGraphMemAttribute(device, attribute, value))
    }

    fn cudaDeviceSetMemPool(device: c_int, pool: Handle) {
        drive!(cuDeviceSetMemPool(device, pool))
    }
}
