//! The functions of stream-ordered memory, and those that may end it.

use super::{Outcome, Stream, allocate, forget, free_or_leave, give_back, idle, owns, pools, rules, say_kept};
use crate::abi::{DevPtr, OUT_OF_MEMORY, PoolProperties, Ptr, SUCCESS, Status};
use crate::alloc::{self, Door};
use crate::launch::Default;
use crate::pools::order::Free as Number;
use crate::real::genuine;
use crate::record::Waiting;
use crate::registry::Released;
use crate::{ipc, link};
use deepum_core::units::{Bytes, DeviceId};
use std::collections::BTreeSet;
use std::ffi::{c_int, c_uint, c_void};
use std::marker::PhantomData;

/// More than any address space has: asked for it, the driver says "out of memory" in each of its ways.
const IMPOSSIBLE: usize = 1 << 62;

/// # Safety
/// `out` is null or the program's own place for the address.
unsafe fn hand_out<D: Door>(
    out: *mut DevPtr,
    bytes: usize,
    pool: Option<Ptr>,
    stream: Stream,
    caller: usize,
    real: impl Fn(usize) -> Status,
) -> Status {
    let len = Bytes(bytes as u64);
    let drivers = out.is_null() || bytes == 0 || len > Bytes(1 << 46) || alloc::is_communication_library(caller);
    if drivers || stream.is_captured() {
        alloc::count_kept();
        return real(bytes);
    }
    D::make_context();
    // SAFETY: not null, and by contract the program's own place.
    match allocate(pool.map(|pool| pool as usize), len, stream, |at| unsafe { *out = at }) {
        Outcome::Ours(OUT_OF_MEMORY) => {
            real(IMPOSSIBLE);
            OUT_OF_MEMORY
        }
        Outcome::Ours(status) => status,
        Outcome::Drivers(loud) => {
            alloc::count_kept();
            let status = real(bytes);
            if loud && status == SUCCESS {
                say_kept();
            }
            status
        }
    }
}

/// `cudaMallocAsync`, `cuMemAllocAsync`.
pub struct MallocAsync<D, S>(PhantomData<(D, S)>);

impl<D: Door, S: Default> MallocAsync<D, S> {
    /// Of the current pool.
    pub unsafe fn instead(
        real: unsafe extern "C-unwind" fn(*mut DevPtr, usize, Ptr) -> Status,
        caller: usize,
        out: *mut DevPtr,
        bytes: usize,
        stream: Ptr,
    ) -> Status {
        let of = Stream { handle: stream, per_thread: S::PER_THREAD };
        // SAFETY: the program's own call, but for the size, and its own place for the result.
        unsafe { hand_out::<D>(out, bytes, None, of, caller, |bytes| real(out, bytes, stream)) }
    }
}

/// `cudaMallocFromPoolAsync`, `cuMemAllocFromPoolAsync`.
pub struct FromPool<D, S>(PhantomData<(D, S)>);

impl<D: Door, S: Default> FromPool<D, S> {
    /// Of the pool named.
    pub unsafe fn instead(
        real: unsafe extern "C-unwind" fn(*mut DevPtr, usize, Ptr, Ptr) -> Status,
        caller: usize,
        out: *mut DevPtr,
        bytes: usize,
        pool: Ptr,
        stream: Ptr,
    ) -> Status {
        let of = Stream { handle: stream, per_thread: S::PER_THREAD };
        // SAFETY: as above.
        unsafe { hand_out::<D>(out, bytes, Some(pool), of, caller, |bytes| real(out, bytes, pool, stream)) }
    }
}

/// What the driver is asked to free in place of an address of ours that is not to be freed: none that it ever handed out, so that it
/// says what is wrong in each of its ways.
fn wrong(at: DevPtr) -> DevPtr {
    at | 1
}

/// The end of an allocation: `cudaFree`, `cuMemFree`.
pub struct Free;

impl Free {
    /// A block of ours, or exported memory.
    pub unsafe fn ours(real: unsafe extern "C-unwind" fn(DevPtr) -> Status, at: DevPtr) -> Option<Status> {
        if let Some(freed) = ipc::free(at) {
            return Some(freed);
        }
        let freed = owns(at).then(|| free_or_leave(at, None))?;
        // SAFETY: an address that the driver did not hand out is refused.
        Some(freed.filter(|&status| status == SUCCESS).unwrap_or_else(|| unsafe { real(wrong(at)) }))
    }
    /// As if there were no pools.
    pub unsafe fn before(at: DevPtr) -> Option<Released> {
        // SAFETY: the program's own argument.
        unsafe { alloc::Free::before(at) }
    }
    /// As above.
    pub fn after(released: Released, status: Status) {
        alloc::Free::after(released, status);
    }
}

/// The same in stream order.
pub struct FreeAsync<S>(PhantomData<S>);

impl<S: Default> FreeAsync<S> {
    /// As [`Free`].
    pub unsafe fn ours(
        real: unsafe extern "C-unwind" fn(DevPtr, Ptr) -> Status,
        at: DevPtr,
        stream: Ptr,
    ) -> Option<Status> {
        if let Some(freed) = ipc::free(at) {
            return Some(freed);
        }
        let freed = owns(at).then(|| free_or_leave(at, Some((stream, S::PER_THREAD))))?;
        // SAFETY: as above.
        Some(freed.filter(|&status| status == SUCCESS).unwrap_or_else(|| unsafe { real(wrong(at), stream) }))
    }
    /// As [`Free`].
    pub unsafe fn before(at: DevPtr, stream: Ptr) -> Option<Released> {
        // SAFETY: the program's own arguments.
        unsafe { alloc::FreeAsync::before(at, stream) }
    }
    /// As [`Free`].
    pub fn after(released: Released, status: Status) {
        alloc::FreeAsync::after(released, status);
    }
}

/// `cuMemPoolTrimTo`.
pub struct Trim;

impl Trim {
    /// Nothing is known before.
    pub unsafe fn before(pool: Ptr, keep: usize) -> Option<(usize, Bytes)> {
        Some((pool as usize, Bytes(keep as u64)))
    }
    /// Ours, too.
    pub fn after((pool, keep): (usize, Bytes), status: Status) {
        if status == SUCCESS {
            let gone = pools().shrink(|of| (of.handle == Some(pool)).then_some(keep));
            give_back(gone);
        }
    }
}

/// `RESERVED_MEM_CURRENT` to `USED_MEM_HIGH`, as `CUmemPool_attribute` numbers them.
const RESERVED: c_int = 5;
const RESERVED_HIGH: c_int = 6;
const USED: c_int = 7;
const USED_HIGH: c_int = 8;

/// `cuMemPoolGetAttribute`.
pub struct GetAttribute;

impl GetAttribute {
    /// What the driver's pool has, and ours. Of the most that each ever had the sum is told, which is exact while only one of them has any.
    pub unsafe fn instead(
        real: unsafe extern "C-unwind" fn(Ptr, c_int, *mut c_void) -> Status,
        pool: Ptr,
        which: c_int,
        out: *mut c_void,
    ) -> Status {
        // SAFETY: the program's own call.
        let status = unsafe { real(pool, which, out) };
        let mut pools = pools();
        let Some(ours) = pools.pool(pool as usize).filter(|_| status == SUCCESS && !out.is_null()) else {
            return status;
        };
        let more = match which {
            RESERVED => ours.books.reserved.now,
            RESERVED_HIGH => ours.books.reserved.high,
            USED => ours.books.used.now,
            USED_HIGH => ours.books.used.high,
            _ => return status,
        };
        let out = out.cast::<u64>();
        // SAFETY: the driver has just written there, 64 bits for these attributes.
        unsafe { out.write_unaligned(out.read_unaligned() + more.0) };
        status
    }
}

/// `cuMemPoolSetAttribute`.
pub struct SetAttribute;

impl SetAttribute {
    /// Nothing is known before.
    pub unsafe fn before(pool: Ptr, which: c_int, _: *mut c_void) -> Option<(usize, c_int)> {
        Some((pool as usize, which))
    }
    /// What the driver accepted holds for ours.
    pub fn after((pool, which): (usize, c_int), status: Status) {
        let mut pools = pools();
        let Some(ours) = pools.pool(pool).filter(|_| status == SUCCESS) else { return };
        match which {
            RESERVED_HIGH => ours.books.reserved.reset(),
            USED_HIGH => ours.books.used.reset(),
            _ => ours.rules = rules(pool),
        }
    }
}

/// `cuMemPoolCreate`.
pub struct Create;

impl Create {
    /// Whether it is to be ours, too: plain memory of one device.
    pub unsafe fn before(out: *mut Ptr, properties: *const PoolProperties) -> Option<(*mut Ptr, DeviceId, Bytes)> {
        if out.is_null() || properties.is_null() {
            return None;
        }
        // SAFETY: not null, and the program's own structure for the driver to read.
        let asked = unsafe { properties.read_unaligned() };
        let device = DeviceId(u8::try_from(asked.location[1]).ok()?);
        asked.is_plain().then_some((out, device, Bytes(asked.max as u64)))
    }
    /// It is there.
    pub fn after((out, device, max): (*mut Ptr, DeviceId, Bytes), status: Status) {
        if status == SUCCESS {
            // SAFETY: the driver has just written there.
            pools().add(unsafe { *out } as usize, device, max);
        }
    }
}

/// `cuMemPoolDestroy`.
pub struct Destroy;

impl Destroy {
    /// Nothing is known before.
    pub unsafe fn before(pool: Ptr) -> Option<usize> {
        Some(pool as usize)
    }
    /// What it handed out lives on until it is freed. Slabs go back at the next synchronisation: nobody is to wait here.
    pub fn after(pool: usize, status: Status) {
        if status == SUCCESS
            && let Some(ours) = pools().pool(pool)
        {
            ours.handle = None;
        }
    }
}

/// A stream is destroyed: its handle may come to mean another.
pub fn stream_gone(stream: Ptr) {
    let mut guard = pools();
    let super::Pools { all, order } = &mut *guard;
    for (old, new) in order.destroy(stream) {
        all.iter_mut().for_each(|pool| pool.books.rename(old, new));
    }
}

/// A device's own context may be gone.
pub fn context_gone() {
    let Some(ask) = genuine!(Cuda, "cuDevicePrimaryCtxGetState", fn(c_int, *mut c_uint, *mut c_int) -> Status) else {
        return;
    };
    let devices: BTreeSet<DeviceId> = pools().all.iter().map(|pool| pool.device).collect();
    for device in devices {
        let (mut flags, mut active) = (0, 1);
        // SAFETY: the results are ours.
        if unsafe { ask(c_int::from(device.0), &raw mut flags, &raw mut active) } == SUCCESS && active == 0 {
            forget(device);
        }
    }
}

/// A wait for all of the thread's context, between the two halves of its hook.
pub struct All {
    recorded: Option<Waiting>,
    upto: Option<Number>,
}

/// `cuCtxSynchronize`.
pub struct Synchronize;

impl Synchronize {
    /// What was freed before is free after it.
    pub unsafe fn before() -> Option<All> {
        Some(All { recorded: Waiting::begin(None), upto: Some(pools().order.newest()) })
    }
    /// Pools that have more than they are to keep give it back.
    pub fn after(all: All, status: Status) {
        if let Some(waiting) = all.recorded {
            waiting.end();
        }
        if let Some(upto) = all.upto.filter(|_| status == SUCCESS && link::gpus().is_some()) {
            idle(upto);
        }
    }
}

/// `cuCtxSynchronize_v2`.
pub struct SynchronizeOne;

impl SynchronizeOne {
    /// As above, if it is the thread's own.
    pub unsafe fn before(context: Ptr) -> Option<All> {
        let mut own = std::ptr::null_mut();
        let get = genuine!(Cuda, "cuCtxGetCurrent", fn(*mut Ptr) -> Status);
        // SAFETY: the result is ours.
        let known = get.is_some_and(|get| unsafe { get(&raw mut own) } == SUCCESS);
        let upto = (known && own == context).then(|| pools().order.newest());
        Some(All { recorded: Waiting::begin(None), upto })
    }
    /// As above.
    pub fn after(all: All, status: Status) {
        Synchronize::after(all, status);
    }
}
