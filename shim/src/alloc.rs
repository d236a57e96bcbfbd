//! Device memory becomes managed memory, so that it can exceed the GPU.
//!
//! Large device allocations are made as managed ones, rounded up to whole UM blocks. What stays device memory: small
//! allocations (they would share UM blocks, facts 4.6), those of communication libraries (which export or pin them),
//! and those made during a graph capture. Stream-ordered pools and virtual memory management have no managed form; they pass
//! through ([`crate::kept`]).
//!
//! Not here: which allocations live, and whether one more may be promised ([`crate::registry`]).

use crate::abi::{DevPtr, Extent, OUT_OF_MEMORY, PitchedPtr, Ptr, SUCCESS, Status};
use crate::registry::{Released, adopt, fits, managed, release};
use crate::{launch, link, log, stage, symbols};
use deepum_core::units::{Bytes, DevAddr, UmBlock};
use deepum_protocol::shared::ShimCounter;
use std::ffi::{CStr, c_uint};

/// From this size on an allocation becomes managed.
const LARGE: Bytes = Bytes::mib(1);
/// Rows of pitched memory start at multiples of this. Assumption: that is what the driver itself pads to. CUDA promises only
/// that the pitch it reports suits the device.
const PITCH: usize = 512;
/// `CU_MEM_ATTACH_GLOBAL`, `cudaMemAttachGlobal`.
const ATTACH_GLOBAL: c_uint = 1;

fn count(counter: ShimCounter) {
    if let Some(ring) = link::ring() {
        ring.shared().add(counter, 1);
    }
}

/// Whether an allocation is to stay device memory. `caller` is the return address of the allocating call.
fn stays_device_memory(bytes: Bytes, caller: usize) -> bool {
    bytes < LARGE || launch::capturing() || is_communication_library(caller)
}

/// NCCL, NVSHMEM and UCX export or pin what they allocate.
fn is_communication_library(caller: usize) -> bool {
    // SAFETY: all zero is a valid Dl_info.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for; the result is ours.
    if unsafe { libc::dladdr(caller as *const _, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return false;
    }
    // SAFETY: on success the name is a C string of a loaded library.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes();
    let file = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
    const PREFIXES: [&[u8]; 7] =
        [b"libnccl", b"libnvshmem", b"nvshmem_", b"libucp.so", b"libuct.so", b"libucs.so", b"libucc"];
    PREFIXES.iter().any(|prefix| file.starts_with(prefix))
}

/// An allocation of `bytes`: managed by `make_managed(rounded, &mut address)`, or as it was by `make_device()`.
fn allocate(
    bytes: Bytes,
    caller: usize,
    make_managed: impl FnOnce(usize, &mut DevPtr) -> Option<Status>,
    make_device: impl FnOnce() -> Status,
) -> Result<DevPtr, Status> {
    let len = bytes.round_up_to_blocks();
    // Past the address space nothing is worth a second thought: the driver words the error.
    if stays_device_memory(bytes, caller) || bytes > Bytes(1 << 46) {
        count(ShimCounter::AllocationsKept);
        return Err(make_device());
    }
    link::start();
    if !stage::ready() {
        return Err(make_device());
    }
    if !fits(len) {
        count(ShimCounter::AllocationsRefused);
        log::once!(
            "{len} more managed memory would exceed GPU and usable host memory together ({} are in use): the program gets \
             CUDA's out-of-memory",
            managed()
        );
        return Err(OUT_OF_MEMORY);
    }
    let mut address = 0;
    match make_managed(usize::try_from(len.0).unwrap_or(usize::MAX), &mut address) {
        Some(SUCCESS) => {
            if address % UmBlock::SIZE.0 != 0 {
                log::once!("the driver placed managed memory at {address:#x}, not at the start of a UM block");
            }
            count(ShimCounter::AllocationsManaged);
            adopt(DevAddr(address), len);
            log::debug(|| format!("{len} of managed memory at {address:#x}"));
            Ok(address)
        }
        Some(OUT_OF_MEMORY) => Err(OUT_OF_MEMORY),
        failed => {
            log::once!(
                "the driver makes no managed memory ({}): this allocation and those like it stay device memory",
                failed.map_or("no such function".to_owned(), |status| format!("error {status}"))
            );
            count(ShimCounter::AllocationsKept);
            Err(make_device())
        }
    }
}

fn runtime_managed(len: usize, out: &mut DevPtr) -> Option<Status> {
    let make = symbols::genuine::cudaMallocManaged.get()?;
    let mut address: Ptr = std::ptr::null_mut();
    // SAFETY: the result is ours.
    let status = unsafe { make(&raw mut address, len, ATTACH_GLOBAL) };
    *out = address as DevPtr;
    Some(status)
}

fn driver_managed(len: usize, out: &mut DevPtr) -> Option<Status> {
    let make = symbols::genuine::cuMemAllocManaged.get()?;
    // SAFETY: the result is ours.
    Some(unsafe { make(out, len, ATTACH_GLOBAL) })
}

/// Bytes of a row of `width`, padded.
const fn pitch_of(width: usize) -> Option<usize> {
    width.checked_next_multiple_of(PITCH)
}

fn box_of(pitch: usize, height: usize, depth: usize) -> Bytes {
    Bytes(pitch.checked_mul(height).and_then(|n| n.checked_mul(depth)).unwrap_or(usize::MAX) as u64)
}

/// `cudaMalloc`.
pub struct RuntimeMalloc;

impl RuntimeMalloc {
    /// Managed if large.
    pub unsafe fn instead(
        real: unsafe extern "C" fn(*mut Ptr, usize) -> Status,
        caller: usize,
        out: *mut Ptr,
        bytes: usize,
    ) -> Status {
        // SAFETY: the program's own call.
        let device = || unsafe { real(out, bytes) };
        if out.is_null() {
            return device();
        }
        link::make_runtime_context();
        match allocate(Bytes(bytes as u64), caller, runtime_managed, device) {
            Ok(address) => {
                // SAFETY: not null, and the program's own place for the address.
                unsafe { *out = address as Ptr };
                SUCCESS
            }
            Err(status) => status,
        }
    }
}

/// `cudaMallocPitch`.
pub struct RuntimeMallocPitch;

impl RuntimeMallocPitch {
    /// Managed if large.
    pub unsafe fn instead(
        real: unsafe extern "C" fn(*mut Ptr, *mut usize, usize, usize) -> Status,
        caller: usize,
        out: *mut Ptr,
        pitch: *mut usize,
        width: usize,
        height: usize,
    ) -> Status {
        // SAFETY: the program's own call.
        let device = || unsafe { real(out, pitch, width, height) };
        let Some(row) = pitch_of(width).filter(|_| !out.is_null() && !pitch.is_null()) else { return device() };
        link::make_runtime_context();
        match allocate(box_of(row, height, 1), caller, runtime_managed, device) {
            Ok(address) => {
                // SAFETY: neither is null; the program's own places for both.
                unsafe { (*out, *pitch) = (address as Ptr, row) };
                SUCCESS
            }
            Err(status) => status,
        }
    }
}

/// `cudaMalloc3D`.
pub struct RuntimeMalloc3D;

impl RuntimeMalloc3D {
    /// Managed if large.
    pub unsafe fn instead(
        real: unsafe extern "C" fn(*mut PitchedPtr, Extent) -> Status,
        caller: usize,
        out: *mut PitchedPtr,
        extent: Extent,
    ) -> Status {
        // SAFETY: the program's own call.
        let device = || unsafe { real(out, extent) };
        let Some(row) = pitch_of(extent.width).filter(|_| !out.is_null()) else { return device() };
        link::make_runtime_context();
        match allocate(box_of(row, extent.height, extent.depth), caller, runtime_managed, device) {
            Ok(address) => {
                let made = PitchedPtr { ptr: address as Ptr, pitch: row, xsize: extent.width, ysize: extent.height };
                // SAFETY: not null, and the program's own place for the result.
                unsafe { *out = made };
                SUCCESS
            }
            Err(status) => status,
        }
    }
}

/// `cuMemAlloc`.
pub struct DriverAlloc;

impl DriverAlloc {
    /// Managed if large.
    pub unsafe fn instead(
        real: unsafe extern "C" fn(*mut DevPtr, usize) -> Status,
        caller: usize,
        out: *mut DevPtr,
        bytes: usize,
    ) -> Status {
        // SAFETY: the program's own call.
        let device = || unsafe { real(out, bytes) };
        if out.is_null() {
            return device();
        }
        match allocate(Bytes(bytes as u64), caller, driver_managed, device) {
            Ok(address) => {
                // SAFETY: not null, and the program's own place for the address.
                unsafe { *out = address };
                SUCCESS
            }
            Err(status) => status,
        }
    }
}

/// `cuMemAllocPitch`.
pub struct DriverAllocPitch;

impl DriverAllocPitch {
    /// Managed if large.
    pub unsafe fn instead(
        real: unsafe extern "C" fn(*mut DevPtr, *mut usize, usize, usize, c_uint) -> Status,
        caller: usize,
        out: *mut DevPtr,
        pitch: *mut usize,
        width: usize,
        height: usize,
        element: c_uint,
    ) -> Status {
        // SAFETY: the program's own call.
        let device = || unsafe { real(out, pitch, width, height, element) };
        // Elements of 4, 8 and 16 bytes are the only ones; the driver refuses others.
        let Some(row) = pitch_of(width).filter(|_| !out.is_null() && !pitch.is_null() && matches!(element, 4 | 8 | 16))
        else {
            return device();
        };
        match allocate(box_of(row, height, 1), caller, driver_managed, device) {
            Ok(address) => {
                // SAFETY: neither is null; the program's own places for both.
                unsafe { (*out, *pitch) = (address, row) };
                SUCCESS
            }
            Err(status) => status,
        }
    }
}

/// The program made managed memory itself; where it is, is known afterwards.
pub struct Made<T> {
    out: *mut T,
    len: Bytes,
}

macro_rules! managed_doors {
    ($($hook:ident($t:ty);)*) => {$(
        /// Memory that the program made managed itself.
        pub struct $hook;

        impl $hook {
            /// Large ones are watched; small ones share UM blocks.
            pub unsafe fn before(out: *mut $t, bytes: usize, _: c_uint) -> Option<Made<$t>> {
                let len = Bytes(bytes as u64);
                (len >= LARGE && !out.is_null()).then_some(Made { out, len })
            }
            /// Announced like any other.
            pub fn after(made: Made<$t>, status: Status) {
                if status == SUCCESS {
                    link::start();
                    // SAFETY: the driver has just written there, and the program waits for it in this very call.
                    let start = unsafe { *made.out };
                    adopt(DevAddr(start as u64), made.len);
                }
            }
        }
    )*};
}
managed_doors! {
    RuntimeManaged(Ptr);
    DriverManaged(DevPtr);
}

macro_rules! freeing_doors {
    ($($hook:ident($t:ty $(, $stream:ty)?);)*) => {$(
        /// The end of an allocation.
        pub struct $hook;

        impl $hook {
            /// Taken out first: its address may be given out again before the driver returns.
            pub unsafe fn before(ptr: $t $(, _: $stream)?) -> Option<Released> {
                release(DevAddr(ptr as u64))
            }
            /// Put back if refused.
            pub fn after(released: Released, status: Status) {
                released.settle(status);
            }
        }
    )*};
}
freeing_doors! {
    RuntimeFree(Ptr);
    DriverFree(DevPtr);
    RuntimeFreeAsync(Ptr, Ptr);
    DriverFreeAsync(DevPtr, Ptr);
}
