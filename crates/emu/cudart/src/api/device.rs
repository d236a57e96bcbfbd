//! Devices: which there are, which one is this thread's, what they are like.

use super::{export, put};
use crate::context;
use crate::driver::{ask, drive};
use crate::error::{Error, Result};
use crate::properties::{self, SIZE_11, SIZE_12, SIZE_13};
use crate::version::{Major, major};
use std::ffi::{c_char, c_int, c_uint};

/// `cudaInitDeviceFlagsAreValid`.
const FLAGS_ARE_VALID: c_uint = 1;

export! {
    /// No device: the count is 0 and the error says so.
    fn cudaGetDeviceCount(out: *mut c_int) {
        let mut count = 0;
        let asked = ask!(cuDeviceGetCount(&raw mut count));
        // SAFETY: the program's own result address.
        unsafe { put(out, count) }?;
        asked?;
        if count == 0 { Err(Error::NO_DEVICE) } else { Ok(()) }
    }

    fn cudaGetDevice(out: *mut c_int) {
        // SAFETY: the program's own result address.
        unsafe { put(out, context::device()?) }
    }

    fn cudaSetDevice(device: c_int) {
        context::set_device(device)
    }

    fn cudaInitDevice(device: c_int, device_flags: c_uint, flags: c_uint) {
        context::check_device(device)?;
        if flags & !FLAGS_ARE_VALID != 0 {
            return Err(Error::INVALID_VALUE);
        }
        if flags == FLAGS_ARE_VALID {
            ask!(cuDevicePrimaryCtxSetFlags(device, device_flags))?;
        }
        context::primary(device).map(|_| ())
    }

    fn cudaDeviceSynchronize() {
        drive!(cuCtxSynchronize())
    }

    fn cudaDeviceReset() {
        context::reset()
    }

    fn cudaSetDeviceFlags(flags: c_uint) {
        ask!(cuDevicePrimaryCtxSetFlags(context::device()?, flags))
    }

    fn cudaGetDeviceFlags(out: *mut c_uint) {
        let (mut flags, mut active) = (0, 0);
        ask!(cuDevicePrimaryCtxGetState(context::device()?, &raw mut flags, &raw mut active))?;
        // SAFETY: the program's own result address.
        unsafe { put(out, flags) }
    }

    fn cudaDeviceGetAttribute(out: *mut c_int, attribute: c_int, device: c_int) {
        ask!(cuDeviceGetAttribute(out, attribute, device))
    }

    /// CUDA 12 keeps CUDA 11's shorter structure under this name; CUDA 13 has its own.
    fn cudaGetDeviceProperties(out: *mut u8, device: c_int) {
        match major() {
            Some(Major::Thirteen) => properties(out, device, Major::Thirteen, SIZE_13),
            _ => properties(out, device, Major::Twelve, SIZE_11),
        }
    }

    fn cudaGetDeviceProperties_v2(out: *mut u8, device: c_int) {
        properties(out, device, Major::Twelve, SIZE_12)
    }

    fn cudaDeviceGetPCIBusId(out: *mut c_char, len: c_int, device: c_int) {
        ask!(cuDeviceGetPCIBusId(out, len, device))
    }

    fn cudaDeviceGetByPCIBusId(out: *mut c_int, id: *const c_char) {
        ask!(cuDeviceGetByPCIBusId(out, id))
    }

    fn cudaDeviceGetLimit(out: *mut usize, limit: c_int) {
        drive!(cuCtxGetLimit(out, limit))
    }

    fn cudaDeviceSetLimit(limit: c_int, value: usize) {
        drive!(cuCtxSetLimit(limit, value))
    }

    fn cudaDeviceGetCacheConfig(out: *mut c_int) {
        drive!(cuCtxGetCacheConfig(out))
    }

    fn cudaDeviceSetCacheConfig(config: c_int) {
        drive!(cuCtxSetCacheConfig(config))
    }

    fn cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        drive!(cuCtxGetStreamPriorityRange(least, greatest))
    }

    fn cudaDeviceCanAccessPeer(out: *mut c_int, device: c_int, peer: c_int) {
        ask!(cuDeviceCanAccessPeer(out, device, peer))
    }

    fn cudaDeviceGetP2PAttribute(out: *mut c_int, attribute: c_int, from: c_int, to: c_int) {
        ask!(cuDeviceGetP2PAttribute(out, attribute, from, to))
    }

    fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) {
        let peer = peer_context(peer)?;
        // Devices that cannot be peers are invalid ones to the runtime.
        drive!(cuCtxEnablePeerAccess(peer, flags))
            .map_err(|e| if e == Error::PEER_ACCESS_UNSUPPORTED { Error::INVALID_DEVICE } else { e })
    }

    fn cudaDeviceDisablePeerAccess(peer: c_int) {
        let peer = peer_context(peer)?;
        drive!(cuCtxDisablePeerAccess(peer))
    }
}

/// Stores the first `len` bytes of the properties of a version in the program's own structure.
fn properties(out: *mut u8, device: c_int, major: Major, len: usize) -> Result {
    context::check_device(device)?;
    let all = properties::of(device, major)?;
    if out.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: not null, so the program's own structure, of which this version has `len` bytes.
    unsafe { out.copy_from_nonoverlapping(all[..len].as_ptr(), len) };
    Ok(())
}

/// The primary context of another device than this thread's.
fn peer_context(peer: c_int) -> Result<crate::layout::Handle> {
    context::check_device(peer)?;
    if peer == context::device()? {
        return Err(Error::INVALID_DEVICE);
    }
    context::primary(peer)
}
