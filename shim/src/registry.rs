//! The managed allocations that live, and whether one more may be promised.
//!
//! Invariants: a live managed allocation is in the registry, in the block map, and announced to the engine; it leaves all
//! three before its address can be given out again. Registry and map change under one lock, which launches never take.
//! Before anything is promised, it must fit into the GPU, or else *all* of that GPU's managed memory into the host: a
//! page that once was on the host keeps its place there until it is freed (see [`deepum_config::host`]).

use crate::abi::{SUCCESS, Status};
use crate::map::BlockMap;
use crate::{apart, ipc, link, opt, pt, record};
use deepum_config::host;
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId};
use deepum_engine::recorder::Begun;
use deepum_protocol::ring::Record;
use deepum_protocol::shared::ShimCounter;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

static MAP: BlockMap = BlockMap::new();
static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    live: BTreeMap::new(),
    free_ordinals: BTreeSet::new(),
    next_ordinal: 0,
    managed: Bytes::ZERO,
    small_apart: 0,
    spare_at_start: None,
});

struct Registry {
    live: BTreeMap<DevAddr, Allocation>,
    free_ordinals: BTreeSet<u32>,
    next_ordinal: u32,
    managed: Bytes,
    /// Small allocations that share no chunk of addresses.
    small_apart: usize,
    /// Host memory that could be had when the first allocation was made.
    spare_at_start: Option<Bytes>,
}

#[derive(Clone, Copy)]
struct Allocation {
    range: AddrRange,
    /// What the program asked for, of that.
    asked: Bytes,
    /// Whether it shares no chunk of addresses with others ([`apart`]).
    apart: bool,
    device: DeviceId,
    /// The lowest number that was free, so that a program that allocates in the same order gets the same numbers.
    ordinal: u32,
    contents: Contents,
    /// Whether the program asked for device memory.
    ours: bool,
}

impl Allocation {
    fn is_small_apart(&self) -> bool {
        self.apart && apart::is_small(self.range.len)
    }
}

/// Whose the contents are, and so whether we can ever know that nobody needs them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// The program's, for good; or the memory shares UM blocks with other memory.
    Program,
    /// Of an allocation that we made, so of whole UM blocks, about which PyTorch has said nothing.
    Unknown,
    /// PyTorch's allocator hands it out piece by piece, and says so.
    HandedOut,
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

/// Small allocations that live and share no chunk of addresses.
pub fn small_apart() -> usize {
    registry().small_apart
}

/// Host memory that managed memory may use, all in all; nothing before the driver is set up.
pub fn host_allowance() -> Option<Bytes> {
    allowance(&mut registry())
}

fn allowance(registry: &mut Registry) -> Option<Bytes> {
    let gpus = link::gpus()?;
    if let Some(budget) = opt::config().host_budget {
        let whole = gpus.host.or_else(|| host::total(&host::here))?;
        return Some(budget.of(whole));
    }
    if gpus.host.is_some() {
        return gpus.host;
    }
    if registry.spare_at_start.is_none() {
        registry.spare_at_start = host::available(&host::here).map(|left| Bytes(left.bytes.0 / 100 * host::SHARE));
    }
    registry.spare_at_start
}

/// Whether `more` managed bytes may be promised. Two threads that ask at once may both hear yes; what the default leaves to
/// the program covers that.
pub fn fits(more: Bytes) -> bool {
    let Some(gpus) = link::gpus() else { return true };
    let mut registry = registry();
    let mut used: BTreeMap<u8, Bytes> = BTreeMap::new();
    for allocation in registry.live.values() {
        *used.entry(allocation.device.0).or_default() += allocation.range.len;
    }
    let exported = |device: u8| ipc::exported_bytes(DeviceId(device));
    // What may come to the host: all that a GPU has, once that is more than fits there.
    let on_host = |used: &BTreeMap<u8, Bytes>| {
        let spilling = used
            .iter()
            .filter(|&(&d, &bytes)| gpus.list.get(usize::from(d)).is_none_or(|g| bytes + exported(d) > g.budget));
        spilling.fold(Bytes::ZERO, |sum, (_, &bytes)| sum + bytes)
    };
    let before = on_host(&used);
    let device = link::current_device();
    let there = used.entry(device.0).or_default();
    *there += more;
    let most = gpus.list.get(usize::from(device.0)).and_then(|gpu| opt::config().most_on(gpu.budget));
    if most.is_some_and(|most| *there > most) {
        return false;
    }
    let after = on_host(&used);
    if after == before {
        return true;
    }
    // Where the host's memory cannot be read, the kernel is the only judge.
    let within_promise = allowance(&mut registry).is_none_or(|most| after <= most);
    let there_now =
        gpus.host.is_some() || host::available(&host::here).is_none_or(|now| after.saturating_sub(before) <= now.bytes);
    within_promise && there_now
}

/// Takes a new managed allocation into the registry, unless it is there.
pub fn adopt(start: DevAddr, asked: Bytes, contents: Contents, apart: bool) {
    put(new(start, asked, contents, true, apart));
}

/// The same of one that the program made itself.
pub fn adopt_own(start: DevAddr, asked: Bytes) {
    put(new(start, asked, Contents::Program, false, false));
}

fn new(start: DevAddr, asked: Bytes, contents: Contents, ours: bool, apart: bool) -> Allocation {
    let range = AddrRange::new(start, asked.round_up_to_blocks());
    Allocation { range, asked, apart, device: link::current_device(), ordinal: 0, contents, ours }
}

/// Takes it in, by an ordinal that is free now.
fn put(mut allocation: Allocation) {
    let Some(ring) = link::ring() else { return };
    let Allocation { range, device, .. } = allocation;
    let mut registry = registry();
    if range.start == DevAddr(0) || registry.live.contains_key(&range.start) {
        return;
    }
    allocation.ordinal = registry.free_ordinals.pop_first().unwrap_or_else(|| {
        registry.next_ordinal += 1;
        registry.next_ordinal - 1
    });
    registry.live.insert(range.start, allocation);
    registry.managed += range.len;
    registry.small_apart += usize::from(allocation.is_small_apart());
    MAP.insert(range, allocation.ordinal);
    ring.shared().add(ShimCounter::ManagedBytes, range.len.0);
    ring.push(device, &Record::Alloc { range });
    record::alloc(device, range);
}

/// Does `first`, then records every allocation that lives and every PT block that holds a tensor, while none comes or goes: for an
/// engine that knows nothing yet.
pub fn tell_again(first: &dyn Fn()) {
    let Some(ring) = link::ring() else { return };
    // In this order: whoever reports a PT block may ask here whose it is.
    let active = pt::active();
    let registry = registry();
    first();
    for allocation in registry.live.values() {
        ring.push(allocation.device, &Record::Alloc { range: allocation.range });
    }
    drop(registry);
    pt::tell_again(&active, ring);
}

/// An allocation that we made managed where the program had asked for memory of a device.
#[derive(Clone, Copy)]
pub struct Ours {
    pub range: AddrRange,
    /// What the program asked for, of that.
    pub asked: Bytes,
    pub device: DeviceId,
    /// Whether it shares no chunk of addresses with others ([`apart`]).
    pub apart: bool,
}

/// Ours around `at`.
pub fn made_by_us(at: DevAddr) -> Option<Ours> {
    ours_from(at).filter(|ours| ours.range.contains(at))
}

/// Ours that has `at` behind what the program knows of it.
pub fn lies_behind(at: DevAddr) -> bool {
    let is_behind = |ours: Ours| {
        let all = apart::chunks(ours.range);
        ours.apart && !ours.range.contains(at) && all.contains(at)
    };
    ours_from(at).is_some_and(is_behind)
}

/// The last of ours that begins at `at` or before, if no other allocation does after it.
fn ours_from(at: DevAddr) -> Option<Ours> {
    let registry = registry();
    let (_, &Allocation { range, asked, device, apart, ours, .. }) = registry.live.range(..=at).next_back()?;
    ours.then_some(Ours { range, asked, device, apart })
}

/// PyTorch's allocator hands out memory at `at`: the allocation it is in, if that is news and its contents can be followed.
pub fn first_handed_out(at: DevAddr) -> Option<AddrRange> {
    let mut registry = registry();
    let (_, allocation) = registry.live.range_mut(..=at).next_back()?;
    if allocation.contents != Contents::Unknown || !allocation.range.contains(at) {
        return None;
    }
    allocation.contents = Contents::HandedOut;
    Some(allocation.range)
}

/// Takes an allocation out, before the driver does, which `waits` for the GPU before it does.
pub fn release(start: DevAddr, waits: bool) -> Option<Released> {
    let begun = record::begin();
    let gone = take_out(start, waits)?;
    // From here on its addresses may become anything.
    pt::forget(gone.range);
    Some(Released(gone, begun))
}

fn take_out(start: DevAddr, waits: bool) -> Option<Allocation> {
    let mut registry = registry();
    let gone = registry.live.remove(&start)?;
    registry.free_ordinals.insert(gone.ordinal);
    registry.managed = registry.managed.saturating_sub(gone.range.len);
    registry.small_apart -= usize::from(gone.is_small_apart());
    MAP.remove(gone.range, gone.ordinal);
    if let Some(ring) = link::ring() {
        ring.shared().sub(ShimCounter::ManagedBytes, gone.range.len.0);
        ring.push(gone.device, &Record::Free { range: gone.range });
        record::free(gone.device, gone.range, waits);
    }
    Some(gone)
}

/// An allocation between the two halves of its freeing.
pub struct Released(Allocation, Option<Begun>);

impl Released {
    /// After the driver's answer: if it refused, all is as it was, but that what was known of PT blocks is gone, so that the contents
    /// must be left alone.
    pub fn settle(self, status: Status) {
        record::over(self.1);
        if status != SUCCESS {
            put(Allocation { contents: Contents::Program, ..self.0 });
        }
    }
}
