//! Memory: allocation on the device, on the host, managed; what memory there is; what an address is.

use super::{export, put};
use crate::driver::{ask, drive};
use crate::error::Error;
use crate::layout::{Extent, Handle, Pitched, PointerAttributes, PointerAttributes13};
use crate::version::{Major, major};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

export! {
    /// Nothing asked for is nothing given: the driver refuses what the runtime allows.
    fn cudaMalloc(out: *mut *mut c_void, bytes: usize) {
        if bytes == 0 {
            crate::context::ensure()?;
            // SAFETY: the program's own result address.
            return unsafe { put(out, null_mut()) };
        }
        drive!(cuMemAlloc(out, bytes))
    }

    fn cudaFree(at: *mut c_void) {
        if at.is_null() { crate::context::ensure() } else { drive!(cuMemFree(at)) }
    }

    fn cudaMallocManaged(out: *mut *mut c_void, bytes: usize, flags: c_uint) {
        drive!(cuMemAllocManaged(out, bytes, flags))
    }

    fn cudaMallocPitch(out: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize) {
        drive!(cuMemAllocPitch(out, pitch, width, height, PITCH_ELEMENT))
    }

    fn cudaMalloc3D(out: *mut Pitched, extent: Extent) {
        let (mut at, mut pitch) = (null_mut(), 0);
        let rows = extent.height.checked_mul(extent.depth).ok_or(Error::INVALID_VALUE)?;
        drive!(cuMemAllocPitch(&raw mut at, &raw mut pitch, extent.width, rows, PITCH_ELEMENT))?;
        // SAFETY: the program's own result address.
        unsafe { put(out, Pitched { ptr: at, pitch, width: extent.width, height: extent.height }) }
    }

    fn cudaHostAlloc(out: *mut *mut c_void, bytes: usize, flags: c_uint) {
        drive!(cuMemHostAlloc(out, bytes, flags))
    }

    fn cudaMallocHost(out: *mut *mut c_void, bytes: usize) {
        drive!(cuMemHostAlloc(out, bytes, 0))
    }

    fn cudaFreeHost(at: *mut c_void) {
        if at.is_null() { crate::context::ensure() } else { drive!(cuMemFreeHost(at)) }
    }

    fn cudaHostRegister(at: *mut c_void, bytes: usize, flags: c_uint) {
        drive!(cuMemHostRegister(at, bytes, flags))
    }

    fn cudaHostUnregister(at: *mut c_void) {
        drive!(cuMemHostUnregister(at))
    }

    fn cudaHostGetDevicePointer(out: *mut *mut c_void, host: *mut c_void, flags: c_uint) {
        drive!(cuMemHostGetDevicePointer(out, host, flags))
    }

    fn cudaHostGetFlags(out: *mut c_uint, host: *mut c_void) {
        drive!(cuMemHostGetFlags(out, host))
    }

    fn cudaMemGetInfo(free: *mut usize, total: *mut usize) {
        drive!(cuMemGetInfo(free, total))
    }

    /// An address the driver does not know is the program's own memory: `cudaMemoryTypeUnregistered`, on no device.
    fn cudaPointerGetAttributes(out: *mut c_void, at: *const c_void) {
        let found = describe(at)?;
        match major() {
            // SAFETY: the program's own structure, in the layout of its version.
            Some(Major::Thirteen) => unsafe {
                put(out.cast(), PointerAttributes13 { common: found, reserved: [0; 8] })
            },
            // SAFETY: as above.
            _ => unsafe { put(out.cast(), found) },
        }
    }

    fn cudaMemRangeGetAttribute(data: *mut c_void, bytes: usize, attribute: c_int, at: *const c_void, len: usize) {
        drive!(cuMemRangeGetAttribute(data, bytes, attribute, at, len))
    }

    fn cudaMemRangeGetAttributes(
        data: *mut *mut c_void,
        bytes: *mut usize,
        attributes: *const c_int,
        count: usize,
        at: *const c_void,
        len: usize,
    ) {
        drive!(cuMemRangeGetAttributes(data, bytes, attributes, count, at, len))
    }
}

/// The widest element the driver aligns a row for, in bytes (`cuMemAllocPitch`: 4, 8 or 16).
const PITCH_ELEMENT: c_uint = 16;

/// `cudaInvalidDeviceId`.
const NO_DEVICE: c_int = -2;

/// What `at` is, from the driver's attributes.
fn describe(at: *const c_void) -> crate::error::Result<PointerAttributes> {
    // CU_POINTER_ATTRIBUTE_MEMORY_TYPE, DEVICE_POINTER, HOST_POINTER, IS_MANAGED, DEVICE_ORDINAL.
    const ASKED: [c_int; 5] = [2, 3, 4, 8, 9];
    let (mut kind, mut managed, mut device): (c_int, c_uint, c_int) = (0, 0, NO_DEVICE);
    let (mut device_pointer, mut host_pointer): (Handle, Handle) = (null_mut(), null_mut());
    let mut answers: [*mut c_void; 5] = [
        (&raw mut kind).cast(),
        (&raw mut device_pointer).cast(),
        (&raw mut host_pointer).cast(),
        (&raw mut managed).cast(),
        (&raw mut device).cast(),
    ];
    crate::context::ensure()?;
    ask!(cuPointerGetAttributes(5, ASKED.as_ptr(), answers.as_mut_ptr(), at))?;
    // The driver's memory types 1 (host) and 2 (device) are the runtime's; managed memory is a type of the runtime alone.
    let kind = if managed & 0xff != 0 { 3 } else { kind };
    if kind == 0 {
        device = NO_DEVICE;
    }
    Ok(PointerAttributes { kind, device, device_pointer, host_pointer })
}
