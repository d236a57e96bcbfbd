//! Managed memory: prefetch, advise, discard.
//!
//! `cudaMemPrefetchAsync` and `cudaMemAdvise` changed their arguments under the same name: CUDA 12 takes a device number, CUDA 13 a
//! location (and flags); CUDA 12.2 and later have the new form as `_v2`. Both fit into integer registers, so the exported function
//! takes registers and reads them by its own version.

use super::export;
use crate::driver::drive;
use crate::layout::{Location, Stream};
use crate::version::{Major, major};
use std::ffi::{c_int, c_uint, c_void};

export! {
    /// CUDA 12: `device, stream`. CUDA 13: `location, flags, stream`.
    fn cudaMemPrefetchAsync(at: *const c_void, bytes: usize, a: u64, b: u64, c: u64) {
        let (location, flags, stream) = prefetch_arguments(a, b, c);
        drive!(cuMemPrefetchAsync(at, bytes, location, flags, stream))
    }

    fn cudaMemPrefetchAsync_ptsz(at: *const c_void, bytes: usize, a: u64, b: u64, c: u64) {
        let (location, flags, stream) = prefetch_arguments(a, b, c);
        drive!(cuMemPrefetchAsync(at, bytes, location, flags, stream.per_thread()))
    }

    fn cudaMemPrefetchAsync_v2, cudaMemPrefetchAsync_v2_ptsz on stream (
        at: *const c_void, bytes: usize, location: Location, flags: c_uint, stream: Stream
    ) {
        drive!(cuMemPrefetchAsync(at, bytes, location, flags, stream))
    }

    /// CUDA 12: a device number. CUDA 13: a location.
    fn cudaMemAdvise(at: *const c_void, bytes: usize, advice: c_int, place: u64) {
        let location = match major() {
            Some(Major::Thirteen) => Location::from_register(place),
            _ => Location::of_device(place),
        };
        drive!(cuMemAdvise(at, bytes, advice, location))
    }

    fn cudaMemAdvise_v2(at: *const c_void, bytes: usize, advice: c_int, location: Location) {
        drive!(cuMemAdvise(at, bytes, advice, location))
    }

    fn cudaMemPrefetchBatchAsync, cudaMemPrefetchBatchAsync_ptsz on stream (
        at: *mut *mut c_void, bytes: *mut usize, count: usize, locations: *mut Location, indices: *mut usize,
        location_count: usize, flags: u64, stream: Stream
    ) {
        drive!(cuMemPrefetchBatchAsync(at, bytes, count, locations, indices, location_count, flags, stream))
    }

    fn cudaMemDiscardBatchAsync, cudaMemDiscardBatchAsync_ptsz on stream (
        at: *mut *mut c_void, bytes: *mut usize, count: usize, flags: u64, stream: Stream
    ) {
        drive!(cuMemDiscardBatchAsync(at, bytes, count, flags, stream))
    }

    fn cudaMemDiscardAndPrefetchBatchAsync, cudaMemDiscardAndPrefetchBatchAsync_ptsz on stream (
        at: *mut *mut c_void, bytes: *mut usize, count: usize, locations: *mut Location, indices: *mut usize,
        location_count: usize, flags: u64, stream: Stream
    ) {
        drive!(cuMemDiscardAndPrefetchBatchAsync(at, bytes, count, locations, indices, location_count, flags, stream))
    }
}

/// The arguments after the size, by version.
fn prefetch_arguments(a: u64, b: u64, c: u64) -> (Location, c_uint, Stream) {
    match major() {
        Some(Major::Thirteen) => {
            let [f0, f1, f2, f3, ..] = b.to_le_bytes();
            (Location::from_register(a), c_uint::from_le_bytes([f0, f1, f2, f3]), Stream::from_register(c))
        }
        _ => (Location::of_device(a), 0, Stream::from_register(b)),
    }
}
