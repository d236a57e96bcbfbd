//! What the program is told of an address: what it would hear without us.
//!
//! Device memory that is managed beneath must not be called managed. Who hears that takes it for memory that the host may look at (MPI, UCX), and would: while a block
//! leaves the GPU the host must not (`kmod-bridge/src/leave.rs`), and at any other time it would move it. The attribute that says whether other
//! machines' devices may reach the memory is left as the driver says it: they may not. How large an allocation is, is what was asked for; the driver may have been asked
//! for more ([`crate::apart`]).

use crate::abi::{DevPtr, Ptr, SUCCESS, Status};
use crate::{ipc, registry};
use deepum_core::units::{Bytes, DevAddr};
use std::ffi::{c_int, c_uint, c_void};

/// `CU_POINTER_ATTRIBUTE_HOST_POINTER`, `CU_POINTER_ATTRIBUTE_IS_MANAGED`, `CU_POINTER_ATTRIBUTE_RANGE_SIZE` (`cuda.h`).
const HOST_POINTER: c_int = 4;
const IS_MANAGED: c_int = 8;
const RANGE_SIZE: c_int = 12;
/// `CUDA_ERROR_INVALID_VALUE`, which the driver answers where device memory is asked for its address on the host.
const INVALID_VALUE: Status = 1;
/// `CUDA_ERROR_NOT_FOUND`, which it answers of an address in no allocation.
const NOT_FOUND: Status = 500;

/// Whether the program takes it for device memory, or for nobody's, and the driver says that it is managed.
fn is_ours(at: DevPtr) -> bool {
    registry::made_by_us(DevAddr(at)).is_some() || registry::lies_behind(DevAddr(at))
}

/// What was asked for of the memory around an address, where the driver may say something else.
fn asked(at: DevPtr) -> Option<Bytes> {
    registry::made_by_us(DevAddr(at)).map(|ours| ours.asked).or_else(|| ipc::asked(DevAddr(at)))
}

/// Puts one answer of an address right.
///
/// # Safety
/// `out` is null, or the driver has just written the attribute `which` there.
unsafe fn correct(out: *mut c_void, which: c_int, at: DevPtr) {
    if out.is_null() {
        return;
    }
    match which {
        RANGE_SIZE => {
            if let Some(asked) = asked(at) {
                // SAFETY: by contract; a `size_t` is there.
                unsafe { out.cast::<u64>().write_unaligned(asked.0) };
            }
        }
        _ if !is_ours(at) => {}
        // SAFETY: by contract; an address is there.
        HOST_POINTER => unsafe { out.cast::<Ptr>().write_unaligned(std::ptr::null_mut()) },
        // SAFETY: by contract; a truth value is there, the first byte of which says it all.
        IS_MANAGED => unsafe { out.cast::<u8>().write(0) },
        _ => {}
    }
}

type One = unsafe extern "C-unwind" fn(*mut c_void, c_int, DevPtr) -> Status;

/// `cuPointerGetAttribute`.
pub struct Attribute;

impl Attribute {
    /// One question about one address.
    pub unsafe fn instead(real: One, out: *mut c_void, which: c_int, at: DevPtr) -> Status {
        // SAFETY: the program's own call.
        let status = unsafe { real(out, which, at) };
        if status != SUCCESS || !matches!(which, HOST_POINTER | IS_MANAGED | RANGE_SIZE) {
            return status;
        }
        // SAFETY: the call succeeded.
        unsafe { correct(out, which, at) };
        if which == HOST_POINTER && is_ours(at) { INVALID_VALUE } else { SUCCESS }
    }
}

type Many = unsafe extern "C-unwind" fn(c_uint, *const c_int, *mut *mut c_void, DevPtr) -> Status;

/// `cuPointerGetAttributes`, which the runtime asks, too.
pub struct Attributes;

impl Attributes {
    /// Several questions about one address; what does not apply is zero and no error.
    pub unsafe fn instead(
        real: Many,
        count: c_uint,
        which: *const c_int,
        outs: *mut *mut c_void,
        at: DevPtr,
    ) -> Status {
        // SAFETY: the program's own call.
        let status = unsafe { real(count, which, outs, at) };
        if status == SUCCESS && !which.is_null() && !outs.is_null() {
            for n in 0..count as usize {
                // SAFETY: the driver has just read so many of both, and written where the second points.
                unsafe { correct(outs.add(n).read(), which.add(n).read(), at) };
            }
        }
        status
    }
}

type Range = unsafe extern "C-unwind" fn(*mut DevPtr, *mut usize, DevPtr) -> Status;

/// `cuMemGetAddressRange`.
pub struct AddressRange;

impl AddressRange {
    /// Where the allocation around an address begins, and how large it is.
    pub unsafe fn instead(real: Range, base: *mut DevPtr, bytes: *mut usize, at: DevPtr) -> Status {
        if registry::lies_behind(DevAddr(at)) {
            return NOT_FOUND;
        }
        // SAFETY: the program's own call.
        let status = unsafe { real(base, bytes, at) };
        if status == SUCCESS
            && !bytes.is_null()
            && let Some(asked) = asked(at)
        {
            // SAFETY: not null, and the program's own place for the result.
            unsafe { bytes.write(usize::try_from(asked.0).unwrap_or(usize::MAX)) };
        }
        status
    }
}

/// The first part of `cudaPointerAttributes`, the same since CUDA 11.
#[repr(C)]
pub struct Found {
    kind: c_int,
    device: c_int,
    on_device: Ptr,
    on_host: Ptr,
}

type Runtime = unsafe extern "C-unwind" fn(*mut Found, Ptr) -> Status;

/// `cudaPointerGetAttributes`, of whichever runtime: it may look by a way of its own.
pub struct Described;

impl Described {
    /// What an address is.
    pub unsafe fn instead(real: Runtime, out: *mut Found, at: Ptr) -> Status {
        /// `cudaMemoryTypeDevice` and `cudaMemoryTypeManaged`.
        const DEVICE: c_int = 2;
        const MANAGED: c_int = 3;
        // SAFETY: the program's own call.
        let status = unsafe { real(out, at) };
        if status == SUCCESS && !out.is_null() && is_ours(at as u64) {
            // SAFETY: the runtime has just written there.
            let found = unsafe { &mut *out };
            if found.kind == MANAGED {
                (found.kind, found.on_host) = (DEVICE, std::ptr::null_mut());
            }
        }
        status
    }
}
