//! Device memory becomes managed memory, so that it can exceed the GPU.
//!
//! Large device allocations are made as managed ones, rounded up to whole UM blocks. What stays device memory: small
//! allocations (they would share UM blocks, facts 4.6), those of communication libraries (which export or pin them),
//! and those made during a graph capture. Memory of stream-ordered pools is handed out of large allocations of ours ([`crate::pools`]);
//! virtual memory management has no managed form and passes through ([`crate::kept`]). An allocation of the program's own may have to be exported one day, so it
//! keeps apart from others ([`apart`]).
//!
//! Not here: which allocations live, and whether one more may be promised ([`crate::registry`]).

use crate::abi::{DevPtr, Extent, OUT_OF_MEMORY, PitchedPtr, Ptr, SUCCESS, Status};
use crate::real::{LastError, file_of};
use crate::registry::{Contents, Released, adopt, adopt_own, fits, host_allowance, managed, release};
use crate::{apart, launch, link, log, opt, registry, stage, still, symbols};
use deepum_core::units::{Bytes, DevAddr, UmBlock};
use deepum_protocol::shared::ShimCounter;
use std::ffi::c_uint;
use std::marker::PhantomData;

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

/// Memory stays what it would be without us.
pub fn count_kept() {
    count(ShimCounter::AllocationsKept);
}

/// Whether an allocation is to stay device memory. `caller` is the return address of the allocating call.
fn stays_device_memory(bytes: Bytes, caller: usize) -> bool {
    bytes < LARGE || launch::capturing() || is_communication_library(caller)
}

/// NCCL, NVSHMEM and UCX export or pin what they allocate. `caller` is the return address of the allocating call.
pub fn is_communication_library(caller: usize) -> bool {
    const PREFIXES: [&[u8]; 7] =
        [b"libnccl", b"libnvshmem", b"nvshmem_", b"libucp.so", b"libuct.so", b"libucs.so", b"libucc"];
    file_of(caller as *const _).is_some_and(|(file, _)| PREFIXES.iter().any(|prefix| file.starts_with(prefix)))
}

/// The API that an allocation comes by.
pub trait Door {
    /// Gives the thread the context that this API would give it.
    fn make_context();
    /// Makes `len` bytes of managed memory; nothing if there is no such function.
    fn managed(len: usize, out: &mut DevPtr) -> Option<Status>;
}

/// The runtime API.
pub enum Runtime {}

impl Door for Runtime {
    fn make_context() {
        link::make_runtime_context();
    }
    fn managed(len: usize, out: &mut DevPtr) -> Option<Status> {
        let make = symbols::genuine::cudaMallocManaged.get()?;
        let last_error = LastError::now();
        // SAFETY: the result is ours.
        let status = unsafe { make(out, len, ATTACH_GLOBAL) };
        // Out of memory is for the program to hear; any other failure is ours, and there is another way.
        if status != SUCCESS && status != OUT_OF_MEMORY {
            last_error.restore();
        }
        Some(status)
    }
}

/// The driver API.
pub enum Driver {}

impl Door for Driver {
    fn make_context() {}
    fn managed(len: usize, out: &mut DevPtr) -> Option<Status> {
        let make = symbols::genuine::cuMemAllocManaged.get()?;
        // SAFETY: the result is ours.
        Some(unsafe { make(out, len, ATTACH_GLOBAL) })
    }
}

/// What became of a wish for managed memory.
pub enum Granted {
    /// It is there.
    At(DevAddr),
    /// More than may be promised.
    TooMuch,
    /// The driver has no more.
    Full,
    /// The driver makes none.
    Cannot(Option<Status>),
}

/// Managed memory for `asked` bytes, in whole UM blocks, where they may be promised. `exportable`: whether it may have to be exported.
pub fn managed_memory<D: Door>(asked: Bytes, exportable: bool) -> Granted {
    let len = asked.round_up_to_blocks();
    if !fits(len) {
        return Granted::TooMuch;
    }
    let apart = exportable && (!apart::is_small(len) || registry::small_apart() < apart::MOST);
    let mut address = 0;
    let made = {
        let _allocating = still::allocating();
        apart::managed::<D>(len, apart, &mut address)
    };
    match made {
        Some(SUCCESS) => {
            if address % UmBlock::SIZE.0 != 0 {
                log::once!("the driver placed managed memory at {address:#x}, not at the start of a UM block");
            }
            count(ShimCounter::AllocationsManaged);
            let whole = address % UmBlock::SIZE.0 == 0;
            adopt(DevAddr(address), asked, if whole { Contents::Unknown } else { Contents::Program }, apart);
            log::debug(|| format!("{len} of managed memory at {address:#x}"));
            Granted::At(DevAddr(address))
        }
        Some(OUT_OF_MEMORY) => Granted::Full,
        failed => Granted::Cannot(failed),
    }
}

/// The program hears that there is no more memory, although the driver would give it some.
pub fn refuse(len: Bytes) {
    count(ShimCounter::AllocationsRefused);
    let most = opt::config().most.map_or(String::new(), |times| {
        format!(", or is more than {times} times what may be filled of it (DEEPUM_MAX_OVERSUBSCRIPTION)")
    });
    log::once!(
        "{len} more managed memory fits neither on the GPU nor, with the {} in use, in the host memory that may be used \
         ({}){most}: the program gets CUDA's out-of-memory",
        managed(),
        host_allowance().unwrap_or(Bytes::ZERO)
    );
}

/// An allocation of `bytes`: managed, and handed to `put`, or as it was by `device`.
fn allocate<D: Door>(bytes: Bytes, caller: usize, put: impl FnOnce(DevPtr), device: impl FnOnce() -> Status) -> Status {
    /// More than any address space has.
    const IMPOSSIBLE: usize = 1 << 62;
    // Past the address space nothing is worth a second thought: the driver words the error.
    if stays_device_memory(bytes, caller) || bytes > Bytes(1 << 46) {
        count_kept();
        let _allocating = still::allocating();
        return device();
    }
    D::make_context();
    link::start();
    if !stage::ready() {
        return device();
    }
    match managed_memory::<D>(bytes, true) {
        Granted::At(address) => {
            put(address.0);
            SUCCESS
        }
        Granted::TooMuch => {
            refuse(bytes.round_up_to_blocks());
            // Asked for what cannot be, CUDA says so in each of its ways: also as the runtime's last error.
            D::managed(IMPOSSIBLE, &mut 0);
            OUT_OF_MEMORY
        }
        Granted::Full => OUT_OF_MEMORY,
        Granted::Cannot(failed) => {
            let status = device();
            // Where there is no device memory either, the error is the program's, and nothing is lost with us.
            if status == SUCCESS {
                log::once!(
                    "the driver makes no managed memory ({}): this allocation and those like it stay device memory",
                    failed.map_or("no such function".to_owned(), |status| format!("error {status}"))
                );
                count_kept();
            }
            status
        }
    }
}

/// Bytes of a row of `width`, padded.
const fn pitch_of(width: usize) -> Option<usize> {
    width.checked_next_multiple_of(PITCH)
}

fn box_of(pitch: usize, height: usize, depth: usize) -> Bytes {
    Bytes(pitch.checked_mul(height).and_then(|n| n.checked_mul(depth)).unwrap_or(usize::MAX) as u64)
}

/// `cudaMalloc`, `cuMemAlloc`.
pub struct Malloc<D>(PhantomData<D>);

impl<D: Door> Malloc<D> {
    /// Managed if large.
    pub unsafe fn instead(
        real: unsafe extern "C-unwind" fn(*mut DevPtr, usize) -> Status,
        caller: usize,
        out: *mut DevPtr,
        bytes: usize,
    ) -> Status {
        // SAFETY: the program's own call.
        let device = || unsafe { real(out, bytes) };
        if out.is_null() {
            return device();
        }
        // SAFETY: not null, and the program's own place for the address.
        let put = |address| unsafe { *out = address };
        allocate::<D>(Bytes(bytes as u64), caller, put, device)
    }
}

/// `cudaMallocPitch`.
pub struct MallocPitch;

impl MallocPitch {
    /// Managed if large.
    pub unsafe fn instead(
        real: unsafe extern "C-unwind" fn(*mut DevPtr, *mut usize, usize, usize) -> Status,
        caller: usize,
        out: *mut DevPtr,
        pitch: *mut usize,
        width: usize,
        height: usize,
    ) -> Status {
        // SAFETY: the program's own call, and its own places for the results.
        unsafe { pitched::<Runtime>(caller, out, pitch, width, height, || real(out, pitch, width, height)) }
    }
}

/// `cuMemAllocPitch`.
pub struct DriverAllocPitch;

impl DriverAllocPitch {
    /// Managed if large.
    pub unsafe fn instead(
        real: unsafe extern "C-unwind" fn(*mut DevPtr, *mut usize, usize, usize, c_uint) -> Status,
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
        if !matches!(element, 4 | 8 | 16) {
            return device();
        }
        // SAFETY: the program's own places for the results.
        unsafe { pitched::<Driver>(caller, out, pitch, width, height, device) }
    }
}

/// Rows of `width`, padded.
///
/// # Safety
/// `out` and `pitch` are null or places for the results.
unsafe fn pitched<D: Door>(
    caller: usize,
    out: *mut DevPtr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    device: impl FnOnce() -> Status,
) -> Status {
    let Some(row) = pitch_of(width).filter(|_| !out.is_null() && !pitch.is_null()) else { return device() };
    // SAFETY: neither is null; by contract they are places for the results.
    let put = |address| unsafe { (*out, *pitch) = (address, row) };
    allocate::<D>(box_of(row, height, 1), caller, put, device)
}

/// `cudaMalloc3D`.
pub struct Malloc3D;

impl Malloc3D {
    /// Managed if large.
    pub unsafe fn instead(
        real: unsafe extern "C-unwind" fn(*mut PitchedPtr, Extent) -> Status,
        caller: usize,
        out: *mut PitchedPtr,
        extent: Extent,
    ) -> Status {
        // SAFETY: the program's own call.
        let device = || unsafe { real(out, extent) };
        let Some(row) = pitch_of(extent.width).filter(|_| !out.is_null()) else { return device() };
        let put = |address| {
            let made = PitchedPtr { ptr: address as Ptr, pitch: row, xsize: extent.width, ysize: extent.height };
            // SAFETY: not null, and the program's own place for the result.
            unsafe { *out = made };
        };
        allocate::<Runtime>(box_of(row, extent.height, extent.depth), caller, put, device)
    }
}

/// The program made managed memory itself; where it is, is known afterwards.
pub struct Made {
    out: *mut DevPtr,
    len: Bytes,
}

/// `cudaMallocManaged`, `cuMemAllocManaged`.
pub struct Managed;

impl Managed {
    /// Large ones are watched; small ones share UM blocks.
    pub unsafe fn before(out: *mut DevPtr, bytes: usize, _: c_uint) -> Option<Made> {
        let len = Bytes(bytes as u64);
        link::host_looks();
        (len >= LARGE && !out.is_null()).then_some(Made { out, len })
    }
    /// Announced like any other.
    pub fn after(made: Made, status: Status) {
        if status == SUCCESS {
            link::start();
            // SAFETY: the driver has just written there, and the program waits for it in this very call.
            adopt_own(DevAddr(unsafe { *made.out }), made.len);
        }
    }
}

/// The end of an allocation: `cudaFree`, `cuMemFree`.
pub struct Free;

impl Free {
    /// Taken out first: its address may be given out again before the driver returns.
    pub unsafe fn before(ptr: DevPtr) -> Option<Released> {
        release(DevAddr(ptr), true)
    }
    /// Put back if refused.
    pub fn after(released: Released, status: Status) {
        released.settle(status);
    }
}

/// The same in stream order.
pub struct FreeAsync;

impl FreeAsync {
    /// As [`Free`].
    pub unsafe fn before(ptr: DevPtr, _: Ptr) -> Option<Released> {
        release(DevAddr(ptr), false)
    }
    /// As [`Free`].
    pub fn after(released: Released, status: Status) {
        released.settle(status);
    }
}
