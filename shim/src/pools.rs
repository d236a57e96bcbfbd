//! Stream-ordered memory as managed memory, so that it can exceed the GPU: pools of our own, in front of the driver's.
//!
//! Problem: the memory of a driver's pool is device memory, and no pool before CUDA 13 can be of managed memory (facts 4.6). A program may allocate
//! and free a thousand times a second there, which managed allocations are far too dear for.
//!
//! Idea: for each pool of the driver's that is plain memory of one device there is one of ours, which takes managed *slabs*, the way
//! large allocations are made ([`alloc::managed_memory`]), and hands out blocks of them, small ones, too: as in PyTorch's own allocator they share
//! slabs with small ones alone. The books are [`deepum_core::pool`]; which stream is how far, [`order`]. A block is a PT block:
//! it is held ([`pt`]) from before the program has it until the program frees it, so that contents of freed memory are thrown away instead of moved.
//! That is safe for the reason it is safe there. What uses a block was issued before the call that frees it: CUDA forbids later uses even
//! of a block that is freed in stream order (facts 4.8), and nothing is thrown away until all is over that was issued before it was
//! given up. A block of captured work is pinned. All else in a slab was never handed out.
//!
//! Where there is no room for a slab: first a block that other streams freed, for which the stream is made to wait, if the program permits that; then
//! slabs go back that nobody uses; then it is out of memory.
//!
//! Slabs go back to the driver where it does not have to wait for the GPU: at a synchronisation of the whole context, if there are more
//! than the pool's release threshold. Besides when the program trims the pool, and instead of an out-of-memory. At a synchronisation of
//! one stream or event nothing goes back: freeing managed memory waits for all streams, one of which may wait for the program.
//!
//! The driver's are: pools whose memory can be exported, or is not one device's; what is allocated in a stream that is captured, and a slab that would have to be
//! made while any is; programs with contexts beside the devices' own; streams and pools of another device than the thread's; NCCL and its like.
//!
//! Invariants: an address inside a slab is ours to free, in every stage ([`owns`]): once the shim is off, what is freed stays where it
//! is, and nobody gets it again. The lock is not held where we may wait: for a discard, or in the driver's free.

use crate::abi::{DevPtr, OUT_OF_MEMORY, Ptr, SUCCESS, Status};
use crate::alloc::{self, Granted};
use crate::map::BlockMap;
use crate::real::genuine;
use crate::{contexts, fence, launch, link, log, pt, registry, stage, streams, symbols};
use deepum_core::pool::{Pool, StreamKey};
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId};
use order::{Free, Order};
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub mod hooks;
mod order;

/// Which UM blocks are slabs.
static SLABS: BlockMap = BlockMap::new();
static POOLS: Mutex<Pools> = Mutex::new(Pools { all: Vec::new(), order: Order::new() });

struct Pools {
    all: Vec<Ours>,
    order: Order,
}

/// One of ours.
struct Ours {
    /// The driver's pool; none once that is destroyed.
    handle: Option<usize>,
    device: DeviceId,
    /// The most it may have; 0 is no limit.
    max: Bytes,
    rules: Rules,
    books: Pool<Free>,
}

/// What the program set of the driver's pool.
#[derive(Clone, Copy)]
struct Rules {
    opportunistic: bool,
    internal: bool,
    threshold: Bytes,
}

fn pools() -> MutexGuard<'static, Pools> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether an address is one that we handed out of, whatever became of it.
pub fn owns(at: DevPtr) -> bool {
    SLABS.find(DevAddr(at)).is_some()
}

/// A stream as the program named it.
#[derive(Clone, Copy)]
struct Stream {
    handle: Ptr,
    per_thread: bool,
}

impl Stream {
    /// By its name in the API that knows both default streams.
    fn name(self) -> Ptr {
        if self.is_threads_own() { streams::PER_THREAD as Ptr } else { self.handle }
    }

    fn is_threads_own(self) -> bool {
        self.handle as u64 == streams::PER_THREAD || self.per_thread && self.handle.is_null()
    }

    fn key(self, device: DeviceId) -> StreamKey {
        StreamKey(streams::key(device, self.handle as u64, self.per_thread))
    }

    fn is_captured(self) -> bool {
        launch::capturing() && launch::captures(self.handle, self.per_thread)
    }

    /// Whether it is of the thread's own context, which is its device's own.
    fn is_here(self) -> bool {
        if contexts::others() {
            return false;
        }
        if link::gpus().is_none_or(|gpus| gpus.list.len() <= 1) {
            return true;
        }
        let of = genuine!(Cuda, "cuStreamGetCtx", fn(Ptr, *mut Ptr) -> Status);
        let current = genuine!(Cuda, "cuCtxGetCurrent", fn(*mut Ptr) -> Status);
        let (mut its, mut mine) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the stream is the program's own argument; the results are ours.
        let known = of.zip(current).is_some_and(|(of, current)| unsafe {
            of(self.name(), &raw mut its) == SUCCESS && current(&raw mut mine) == SUCCESS
        });
        known && its == mine
    }
}

/// What is to become of a wish for memory.
enum Outcome {
    /// It is ours to answer.
    Ours(Status),
    /// The driver's, and whether that is worth a line.
    Drivers(bool),
}

/// A block of `len` bytes for `stream`, handed to `put`.
fn allocate(pool: Option<usize>, len: Bytes, stream: Stream, put: impl FnOnce(DevPtr)) -> Outcome {
    link::start();
    if !stage::ready() || link::gpus().is_none() {
        return Outcome::Drivers(false);
    }
    let device = link::current_device();
    if !stream.is_here() {
        return Outcome::Drivers(true);
    }
    let Some(handle) = pool.or_else(|| current_pool(device)) else { return Outcome::Drivers(true) };
    if !pools().knows(handle, device) {
        return Outcome::Drivers(true);
    }
    let key = stream.key(device);
    match block(handle, device, len, key, stream.name()) {
        Ok(block) => {
            pt::came(block, device);
            put(block.start.0);
            Outcome::Ours(SUCCESS)
        }
        Err(Without::Room) => Outcome::Ours(OUT_OF_MEMORY),
        Err(Without::Slab) => Outcome::Drivers(!launch::capturing()),
    }
}

/// Why there is no block.
enum Without {
    /// There is no more memory, or the pool may not have it.
    Room,
    /// The driver makes no slab, or must not be asked for one now.
    Slab,
}

fn block(handle: usize, device: DeviceId, len: Bytes, key: StreamKey, stream: Ptr) -> Result<AddrRange, Without> {
    let mut shrunk = false;
    loop {
        let mut guard = pools();
        if let Some(block) = guard.take(handle, len, key) {
            return Ok(block);
        }
        if launch::capturing() {
            return Err(Without::Slab);
        }
        let slab = Pool::<Free>::slab_for(len);
        let allowed = guard
            .pool(handle)
            .is_some_and(|pool| pool.max == Bytes::ZERO || pool.books.reserved.now + slab <= pool.max);
        drop(guard);
        let made = if allowed { alloc::managed_memory::<alloc::Driver>(slab, false) } else { Granted::Full };
        let mut guard = pools();
        match made {
            Granted::At(start) => {
                let slab = AddrRange::new(start, slab);
                SLABS.insert(slab, 0);
                // Gone meanwhile only where the program destroys a pool that it allocates from.
                let pool = guard.pool(handle).ok_or(Without::Room)?;
                pool.books.grow(slab, len);
                return pool.books.take(len, key).ok_or(Without::Room);
            }
            Granted::Cannot(_) => return Err(Without::Slab),
            Granted::Full | Granted::TooMuch => {}
        }
        if let Some(block) = guard.take_of_others(handle, len, key, stream) {
            return Ok(block);
        }
        let gone = guard.shrink(|pool| (pool.device == device).then_some(Bytes::ZERO));
        drop(guard);
        if gone.is_empty() || shrunk {
            if matches!(made, Granted::TooMuch) {
                alloc::refuse(slab);
            }
            return Err(Without::Room);
        }
        shrunk = true;
        give_back(gone);
    }
}

/// Ends slabs, which are in no books any more. The driver waits until the GPU is idle.
fn give_back(slabs: Vec<AddrRange>) {
    let Some(free) = symbols::genuine::cuMemFree_v2.get() else { return };
    for slab in slabs {
        SLABS.remove(slab, 0);
        if let Some(released) = registry::release(slab.start, true) {
            // SAFETY: a managed allocation of ours, of which no block is handed out, so that nobody uses it.
            released.settle(unsafe { free(slab.start.0) });
        }
    }
}

/// A block is given back: in stream order, or at once, which the program vouches for. Not ours to answer is nothing.
fn free(at: DevAddr, stream: Option<Stream>) -> Option<Status> {
    /// `CUDA_ERROR_INVALID_VALUE`, as the driver says of addresses that it did not hand out.
    const INVALID: Status = 1;
    let mut guard = pools();
    let Pools { all, order } = &mut *guard;
    let found = all.iter_mut().find(|pool| pool.books.block(at).is_some_and(|block| block.start == at));
    let Some((pool, block)) = found.and_then(|pool| pool.books.block(at).map(|block| (pool, block))) else {
        return Some(INVALID);
    };
    let freed = match stream {
        None => None,
        // A node of a graph frees memory of graphs alone (facts 4.8).
        Some(stream) if stream.is_captured() => return None,
        Some(stream) if !stream.is_here() || link::current_device() != pool.device => {
            Some(order.free_elsewhere(stream.name()))
        }
        Some(stream) if stream.is_threads_own() => Some(order.free_of_thread(stream.key(pool.device), stream.name())),
        Some(stream) => Some(order.free(stream.key(pool.device), stream.handle)),
    };
    // Before anybody can be given it again.
    pt::gone(block, pool.device);
    pool.books.give(at, freed);
    Some(SUCCESS)
}

impl Pools {
    fn pool(&mut self, handle: usize) -> Option<&mut Ours> {
        self.all.iter_mut().find(|pool| pool.handle == Some(handle))
    }

    /// Whether there is one of ours in front of a driver's pool. A device's default pool is known once it is asked for.
    fn knows(&mut self, handle: usize, device: DeviceId) -> bool {
        if let Some(pool) = self.pool(handle) {
            return pool.device == device;
        }
        let is_default = default_pool(device) == Some(handle);
        if is_default {
            self.add(handle, device, Bytes::ZERO);
        }
        is_default
    }

    fn add(&mut self, handle: usize, device: DeviceId, max: Bytes) {
        self.all.push(Ours { handle: Some(handle), device, max, rules: rules(handle), books: Pool::default() });
    }

    fn take(&mut self, handle: usize, len: Bytes, key: StreamKey) -> Option<AddrRange> {
        let pool = self.pool(handle)?;
        let opportunistic = pool.rules.opportunistic;
        if let Some(block) = pool.books.take(len, key) {
            return Some(block);
        }
        if opportunistic {
            self.pass(Some(key));
        }
        self.pool(handle)?.books.take(len, key)
    }

    /// Memory that other streams freed, for which `stream` waits.
    fn take_of_others(&mut self, handle: usize, len: Bytes, key: StreamKey, stream: Ptr) -> Option<AddrRange> {
        let Self { all, order } = self;
        let pool = all.iter_mut().find(|pool| pool.handle == Some(handle) && pool.rules.internal)?;
        let taken = pool.books.take_of_others(len, key)?;
        if order.wait(stream, &taken.behind) {
            return Some(taken.block);
        }
        // It is lost: others may use it still, and nobody would know when they are done.
        let never = order.never();
        pool.books.give(taken.block.start, Some(never));
        None
    }

    /// What streams have passed is everybody's. Of one's `own`, who has it back anyway, nothing is asked.
    fn pass(&mut self, own: Option<StreamKey>) {
        let mut waiting: BTreeSet<StreamKey> = self.all.iter().flat_map(|pool| pool.books.waiting()).collect();
        self.order.keep(&waiting);
        waiting.retain(|&key| Some(key) != own);
        self.order.look(&waiting);
        for pool in &mut self.all {
            pool.books.pass(|key, free| self.order.passed(key, free));
        }
    }

    /// Slabs that nobody uses leave the books of each pool while it has more than `keep` says.
    fn shrink(&mut self, keep: impl Fn(&Ours) -> Option<Bytes>) -> Vec<AddrRange> {
        self.pass(None);
        let gone = self.all.iter_mut().filter_map(|pool| Some(pool.books.shrink(keep(pool)?))).flatten().collect();
        self.all.retain(|pool| pool.handle.is_some() || pool.books.reserved.now > Bytes::ZERO);
        gone
    }
}

/// The context of `device` is gone, and with it all slabs.
fn forget(device: DeviceId) {
    let mut guard = pools();
    let pools = guard.all.iter_mut().filter(|pool| pool.device == device);
    let gone: Vec<AddrRange> =
        pools.flat_map(|pool| std::mem::take(&mut pool.books).slabs().collect::<Vec<_>>()).collect();
    drop(guard);
    for slab in gone {
        SLABS.remove(slab, 0);
        // Nothing is left to be freed.
        registry::release(slab.start, true);
    }
}

/// The host has waited until the device of its context was idle, which it began after the free `upto`.
fn idle(upto: Free) {
    let device = link::current_device();
    let mut guard = pools();
    let Pools { all, order } = &mut *guard;
    for pool in all.iter_mut().filter(|pool| pool.device == device) {
        pool.books.pass(|key, free| order.passed_when_idle(key, free, upto));
    }
    let keep = |pool: &Ours| if pool.handle.is_some() { pool.rules.threshold } else { Bytes::ZERO };
    let gone = guard.shrink(|pool| (pool.device == device).then(|| keep(pool)));
    drop(guard);
    give_back(gone);
}

/// The pool that `cuMemAllocAsync` takes from on `device`.
fn current_pool(device: DeviceId) -> Option<usize> {
    let get = genuine!(Cuda, "cuDeviceGetMemPool", fn(*mut Ptr, c_int) -> Status)?;
    let mut pool = std::ptr::null_mut();
    // SAFETY: the result is ours.
    (unsafe { get(&raw mut pool, c_int::from(device.0)) } == SUCCESS).then_some(pool as usize)
}

fn default_pool(device: DeviceId) -> Option<usize> {
    let get = genuine!(Cuda, "cuDeviceGetDefaultMemPool", fn(*mut Ptr, c_int) -> Status)?;
    let mut pool = std::ptr::null_mut();
    // SAFETY: the result is ours.
    (unsafe { get(&raw mut pool, c_int::from(device.0)) } == SUCCESS).then_some(pool as usize)
}

/// What the program set of a driver's pool; CUDA's defaults where it cannot be asked.
fn rules(handle: usize) -> Rules {
    let get = symbols::genuine::cuMemPoolGetAttribute.get();
    let ask = |which: c_int, otherwise: u64| {
        // Room for either width: a flag is 32 bits, a threshold 64.
        let mut value = 0u64;
        // SAFETY: the pool is one the program has; the result is ours, and wide enough for every attribute.
        let known = get.is_some_and(|get| unsafe { get(handle as Ptr, which, (&raw mut value).cast()) } == SUCCESS);
        if known { value } else { otherwise }
    };
    Rules { opportunistic: ask(2, 1) != 0, internal: ask(3, 1) != 0, threshold: Bytes(ask(4, 0)) }
}

/// Says once what stays the driver's.
fn say_kept() {
    log::once!(
        "memory of a stream-ordered pool that is not plain memory of the thread's own GPU (exportable, of the host, of another GPU or \
         context) stays the driver's and cannot exceed the GPU"
    );
}

/// For the free of an address that [`owns`] knows. Nothing: the driver is to refuse it.
pub fn free_or_leave(at: DevPtr, stream: Option<(Ptr, bool)>) -> Option<Status> {
    let stream = stream.map(|(handle, per_thread)| Stream { handle, per_thread });
    // Where our code does not run any more, it is nobody's from now on.
    fence::ours(|| free(DevAddr(at), stream)).unwrap_or(Some(SUCCESS))
}
