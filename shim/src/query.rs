//! What the program is told about memory.
//!
//! A program that sizes itself by `cudaMemGetInfo` would never use more than the GPU has. So, unless asked not to, every query
//! tells one story, which is also what allocations are held to ([`crate::registry::fits`]): there is as much as the GPU (what
//! the budget lets us fill of it) has, or the host memory that managed memory may use, if that is more, and no more than
//! the budget so many times (`DEEPUM_MAX_OVERSUBSCRIPTION`); what is not allocated of it, as managed memory or such that was exported, is free.

use crate::abi::{Dev, Status};
use crate::real::genuine;
use crate::{abi::SUCCESS, ipc, opt, registry, symbols};
use deepum_config::MemInfo;
use deepum_core::units::Bytes;
use std::ffi::c_int;

type Pair = unsafe extern "C-unwind" fn(*mut usize, *mut usize) -> Status;

/// What a GPU of `physical` bytes has by our story; nothing where the driver's own is wanted.
fn story(physical: Bytes) -> Option<Bytes> {
    if opt::config().meminfo == MemInfo::Physical {
        return None;
    }
    let budget = opt::config().budget_of(physical);
    let whole = budget.max(registry::host_allowance()?);
    Some(opt::config().most_on(budget).map_or(whole, |most| most.min(whole)))
}

fn usize_of(bytes: Bytes) -> usize {
    usize::try_from(bytes.0).unwrap_or(usize::MAX)
}

/// `cudaMemGetInfo`, `cuMemGetInfo`.
pub struct MemGetInfo;

impl MemGetInfo {
    /// The driver answers first: its errors, and its setting up, are the program's.
    pub unsafe fn instead(real: Pair, free: *mut usize, total: *mut usize) -> Status {
        // SAFETY: the program's own call.
        let status = unsafe { real(free, total) };
        if status != SUCCESS || free.is_null() || total.is_null() {
            return status;
        }
        // SAFETY: the driver has just written there.
        let physical = Bytes(unsafe { *total } as u64);
        if let Some(whole) = story(physical) {
            // SAFETY: the driver has just written there.
            unsafe {
                *total = usize_of(whole);
                *free = usize_of(whole.saturating_sub(registry::managed() + ipc::all_exported_bytes()));
            }
        }
        status
    }
}

/// `cuDeviceTotalMem`.
pub struct DeviceTotalMem;

impl DeviceTotalMem {
    /// As above.
    pub unsafe fn instead(
        real: unsafe extern "C-unwind" fn(*mut usize, Dev) -> Status,
        bytes: *mut usize,
        device: Dev,
    ) -> Status {
        // SAFETY: the program's own call.
        let status = unsafe { real(bytes, device) };
        if status == SUCCESS && !bytes.is_null() {
            // SAFETY: the driver has just written there.
            let physical = Bytes(unsafe { *bytes } as u64);
            if let Some(whole) = story(physical) {
                // SAFETY: as above.
                unsafe { *bytes = usize_of(whole) };
            }
        }
        status
    }
}

/// `cudaGetDeviceProperties`, in both its layouts.
pub struct DeviceProperties;

impl DeviceProperties {
    /// `cudaDeviceProp::totalGlobalMem`, behind name (256), uuid (16), luid (8) and node mask (4): the same place in CUDA 11,
    /// 12 and 13 (headers of `nvidia-cuda-runtime` 12.8.90 and 13.0.96).
    const TOTAL_GLOBAL_MEM: usize = 288;

    /// As above.
    pub unsafe fn instead(
        real: unsafe extern "C-unwind" fn(*mut u8, c_int) -> Status,
        props: *mut u8,
        device: c_int,
    ) -> Status {
        // SAFETY: the program's own call.
        let status = unsafe { real(props, device) };
        if status != SUCCESS || props.is_null() {
            return status;
        }
        // SAFETY: inside the structure that the runtime has just filled.
        let field = unsafe { props.add(Self::TOTAL_GLOBAL_MEM) }.cast::<usize>();
        // SAFETY: as above; the structure's own alignment is that of a word, and this takes any.
        let told = unsafe { field.read_unaligned() };
        // The runtime may have asked through a door of ours and told our story already; only the driver's own is changed.
        if physical_of(device).is_some_and(|physical| physical.0 == told as u64)
            && let Some(whole) = story(Bytes(told as u64))
        {
            // SAFETY: as above.
            unsafe { field.write_unaligned(usize_of(whole)) };
        }
        status
    }
}

fn physical_of(device: c_int) -> Option<Bytes> {
    let mut handle: Dev = 0;
    let get = genuine!(Cuda, "cuDeviceGet", fn(*mut Dev, c_int) -> Status)?;
    let total = symbols::genuine::cuDeviceTotalMem_v2.get()?;
    let mut bytes = 0;
    // SAFETY: the result is ours.
    if unsafe { get(&raw mut handle, device) } != SUCCESS {
        return None;
    }
    // SAFETY: as above.
    (unsafe { total(&raw mut bytes, handle) } == SUCCESS).then_some(Bytes(bytes as u64))
}
