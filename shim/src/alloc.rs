//! Device memory becomes managed memory, so that it can exceed the GPU.
//!
//! Large device allocations are made as managed ones, rounded up to whole UM blocks. What stays device memory: small
//! allocations (they would share UM blocks, facts 4.6), those of communication libraries (which export or pin them),
//! and those made during a graph capture. Stream-ordered pools and virtual memory management have no managed form; they pass
//! through, and that is said once.
//!
//! Before anything is promised, it must fit into what GPUs and host have together; otherwise the program gets CUDA's
//! out-of-memory, as from a full GPU (see [`crate::host`]).
//!
//! Invariants: a live managed allocation is in the registry, in the block map, and announced to the engine; it leaves all
//! three before its address can be given out again. Registry and map change under one lock, which launches never take.

use crate::abi::{DevPtr, Extent, OUT_OF_MEMORY, PitchedPtr, Ptr, SUCCESS, Status};
use crate::host;
use crate::map::BlockMap;
use crate::{launch, link, log, opt, stage, symbols};
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, UmBlock};
use deepum_protocol::ring::Record;
use deepum_protocol::shared::ShimCounter;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_uint};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// From this size on an allocation becomes managed.
const LARGE: Bytes = Bytes::mib(1);
/// Rows of pitched memory start at multiples of this: what the driver itself uses on every GPU since Kepler (assumption;
/// CUDA promises only that it suits the device's texture pitch, which is at most 512 there).
const PITCH: usize = 512;
/// `CU_MEM_ATTACH_GLOBAL`, `cudaMemAttachGlobal`.
const ATTACH_GLOBAL: c_uint = 1;
/// Share of the host's available memory that may be promised by default, in percent (assumption): the rest is the program's own.
const HOST_SHARE: u64 = 90;

static MAP: BlockMap = BlockMap::new();
static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    live: BTreeMap::new(),
    free_ordinals: BTreeSet::new(),
    next_ordinal: 0,
    managed: Bytes::ZERO,
    spare_at_start: None,
});

struct Registry {
    live: BTreeMap<DevAddr, Allocation>,
    free_ordinals: BTreeSet<u32>,
    next_ordinal: u32,
    managed: Bytes,
    /// Host memory that could be had when the first allocation was made.
    spare_at_start: Option<Bytes>,
}

#[derive(Clone, Copy)]
struct Allocation {
    range: AddrRange,
    device: DeviceId,
    /// The lowest number that was free, so that a program that allocates in the same order gets the same numbers.
    ordinal: u32,
}

/// The block map, for launches.
pub fn map() -> &'static BlockMap {
    &MAP
}

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Managed bytes that live.
pub fn managed() -> Bytes {
    registry().managed
}

fn count(counter: ShimCounter) {
    if let Some(ring) = link::ring() {
        ring.shared().add(counter, 1);
    }
}

/// Host memory that managed memory may use, all in all; nothing before the driver is set up.
pub fn host_allowance() -> Option<Bytes> {
    allowance(&mut registry())
}

fn allowance(registry: &mut Registry) -> Option<Bytes> {
    let gpus = link::gpus()?;
    if let Some(budget) = opt::config().host_budget {
        let whole = gpus.host.or_else(host::total)?;
        return Some(budget.of(whole));
    }
    if gpus.host.is_some() {
        return gpus.host;
    }
    if registry.spare_at_start.is_none() {
        registry.spare_at_start = host::available().map(|b| Bytes(b.0 / 100 * HOST_SHARE));
    }
    registry.spare_at_start
}

/// Whether `more` managed bytes may be promised.
fn fits(more: Bytes) -> bool {
    let Some(gpus) = link::gpus() else { return true };
    let mut registry = registry();
    let used: BTreeSet<u8> = registry.live.values().map(|a| a.device.0).chain([link::current_device().0]).collect();
    let on_gpus = used.iter().filter_map(|&d| gpus.list.get(usize::from(d))).fold(Bytes::ZERO, |sum, g| sum + g.budget);
    let after = Bytes(registry.managed.0.saturating_add(more.0));
    let on_host = after.saturating_sub(on_gpus);
    if on_host == Bytes::ZERO {
        return true;
    }
    // Where the host's memory cannot be read, the kernel is the only judge.
    let within_promise = allowance(&mut registry).is_none_or(|most| on_host <= most);
    let new_on_host = on_host.min(more);
    let there_now = gpus.host.is_some() || host::available().is_none_or(|now| new_on_host <= now);
    within_promise && there_now
}

/// Takes a new managed allocation into the registry, unless it is there.
fn adopt(start: DevAddr, len: Bytes) {
    let range = AddrRange::new(start, len.round_up_to_blocks());
    let Some(ring) = link::ring() else { return };
    let device = link::current_device();
    let mut registry = registry();
    if start == DevAddr(0) || registry.live.contains_key(&start) {
        return;
    }
    let ordinal = registry.free_ordinals.pop_first().unwrap_or_else(|| {
        registry.next_ordinal += 1;
        registry.next_ordinal - 1
    });
    registry.live.insert(start, Allocation { range, device, ordinal });
    registry.managed += range.len;
    MAP.insert(range, ordinal);
    ring.shared().add(ShimCounter::ManagedBytes, range.len.0);
    ring.push(device, &Record::Alloc { range });
}

/// Takes an allocation out, before the driver does.
fn release(start: DevAddr) -> Option<Released> {
    let mut registry = registry();
    let gone = registry.live.remove(&start)?;
    registry.free_ordinals.insert(gone.ordinal);
    registry.managed = registry.managed.saturating_sub(gone.range.len);
    MAP.remove(gone.range, gone.ordinal);
    if let Some(ring) = link::ring() {
        ring.shared().sub(ShimCounter::ManagedBytes, gone.range.len.0);
        ring.push(gone.device, &Record::Free { range: gone.range });
    }
    Some(Released(gone.range))
}

/// An allocation between the two halves of its freeing.
pub struct Released(AddrRange);

impl Released {
    /// The driver refused: it is as it was.
    fn settle(&self, status: Status) {
        if status != SUCCESS {
            adopt(self.0.start, self.0.len);
        }
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

macro_rules! passed_through {
    ($($hook:ident($($t:ty),*): $line:literal;)*) => {$(
        #[doc = concat!("Passed through: ", $line, ".")]
        pub struct $hook;

        impl $hook {
            /// Said once, if it works.
            pub unsafe fn before($(_: $t),*) -> Option<()> {
                Some(())
            }
            /// Device memory it is.
            pub fn after((): (), status: Status) {
                if status == SUCCESS {
                    log::once!($line);
                }
            }
        }
    )*};
}
passed_through! {
    Pool(*mut Ptr, usize, Ptr): "cudaMallocAsync memory stays device memory and cannot exceed the GPU";
    FromPool(*mut Ptr, usize, Ptr, Ptr): "memory of cudaMallocFromPoolAsync stays device memory and cannot exceed the GPU";
    DriverPool(*mut DevPtr, usize, Ptr): "cuMemAllocAsync memory stays device memory and cannot exceed the GPU";
    DriverFromPool(*mut DevPtr, usize, Ptr, Ptr): "memory of cuMemAllocFromPoolAsync stays device memory and cannot exceed the GPU";
    Vmm(*mut u64, usize, Ptr, u64): "cuMemCreate memory (PyTorch: expandable_segments:True) stays device memory and cannot exceed the GPU; unset it for DeepUM to help";
}

macro_rules! ipc_doors {
    ($($hook:ident($t:ty);)*) => {$(
        /// An export to another process.
        pub struct $hook;

        impl $hook {
            /// Only managed memory is of interest.
            pub unsafe fn before(_: Ptr, ptr: $t) -> Option<()> {
                MAP.find(DevAddr(ptr as u64)).map(drop)
            }
            /// A failure is ours to explain.
            pub fn after((): (), status: Status) {
                if status != SUCCESS {
                    log::once!("managed memory cannot be shared between processes by CUDA IPC (error {status}); DEEPUM=0 runs this program without DeepUM");
                }
            }
        }
    )*};
}
ipc_doors! {
    RuntimeIpc(Ptr);
    DriverIpc(DevPtr);
}

fn reset(status: Status) {
    if status == SUCCESS {
        stage::turn_off(
            "the program reset a GPU, which takes its memory and contexts away; DeepUM is off from here on",
        );
    }
}

/// `cudaDeviceReset`.
pub struct Reset;

impl Reset {
    /// Nothing is known before.
    pub unsafe fn before() -> Option<()> {
        Some(())
    }
    /// The end of our help.
    pub fn after((): (), status: Status) {
        reset(status);
    }
}

/// `cuDevicePrimaryCtxReset`.
pub struct DriverReset;

impl DriverReset {
    /// Nothing is known before.
    pub unsafe fn before(_: crate::abi::Dev) -> Option<()> {
        Some(())
    }
    /// The end of our help.
    pub fn after((): (), status: Status) {
        reset(status);
    }
}
