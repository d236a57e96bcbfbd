//! Managed memory becomes memory of its device, at the same address, with the same contents. Reserved are all addresses of the chunks that it lay in
//! alone ([`crate::apart`]): fewer than a chunk no driver has been seen to give where they were.
//!
//! The order is such that whatever can fail fails before anything is given up: that the driver gives addresses back that were just freed is
//! tried with others first; the memory, and that it can be exported, is there before the contents are copied; and they are copied before the managed
//! memory is freed. What is left to fail then are calls that have just succeeded. If one does, managed memory is asked for until it comes at
//! the old address, and the contents are copied back; if it never comes, the program is ended with one line: going on would lose what it computed.

use super::physical::{self, Physical, reserve_exactly};
use crate::abi::{Dev, DevPtr, OUT_OF_MEMORY, Ptr, SUCCESS, Status};
use crate::alloc::Driver;
use crate::apart::{self, chunks};
use crate::real::genuine;
use crate::still::Still;
use crate::{contexts, launch, link, log, registry, still, symbols};
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId};

/// How often managed memory is asked for that is to come at an address where it just was.
const TRIES: usize = 64;

/// Why memory stays what it is.
pub enum Stays {
    /// There is no room for it on its device.
    Full,
    /// In words.
    Because(String),
}

impl From<&str> for Stays {
    fn from(why: &str) -> Self {
        Self::Because(why.to_owned())
    }
}

fn failed(what: &str) -> impl FnOnce(Status) -> Stays + '_ {
    move |status| match status {
        OUT_OF_MEMORY => Stays::Full,
        _ => Stays::Because(format!("{what} failed with error {status}")),
    }
}

/// How many GPUs there are.
pub fn devices() -> u8 {
    link::gpus().map_or(1, |gpus| u8::try_from(gpus.list.len()).unwrap_or(u8::MAX))
}

/// Changes the allocation at `range`, a managed one of ours that lies apart, of the thread's own device. The caller holds the lock of exports.
pub fn to_device_memory(range: AddrRange, device: DeviceId) -> Result<Physical, Stays> {
    if launch::capturing() {
        return Err("a stream is being captured".into());
    }
    if contexts::others() {
        return Err("the program has contexts of its own".into());
    }
    let _still = Still::begin()?;
    idle_everywhere()?;
    rehearse(range.len)?;
    let memory = physical::create(device, range.len).map_err(failed("cuMemCreate"))?;
    let changed = with_memory(range, device, memory);
    if changed.is_err() {
        let _ = memory.release();
    }
    changed.map(|()| memory)
}

fn with_memory(range: AddrRange, device: DeviceId, memory: Physical) -> Result<(), Stays> {
    memory.export().map_err(failed("cuMemExportToShareableHandle"))?;
    let aside = physical::reserve(range.len, None).map_err(failed("cuMemAddressReserve"))?;
    let moved = by_way_of(aside, range, device, memory);
    let _ = physical::give_back(aside);
    moved
}

/// Changes it, with reserved addresses `aside` to copy by.
fn by_way_of(aside: AddrRange, range: AddrRange, device: DeviceId, memory: Physical) -> Result<(), Stays> {
    let free = symbols::genuine::cuMemFree_v2.get().ok_or("there is no cuMemFree")?;
    memory.map(aside, device, devices()).map_err(failed("cuMemMap"))?;
    // From here on nothing is thrown away, and the engine lets go.
    let released = registry::release(range.start, true);
    let copied = copy(aside.start, range.start, range.len);
    let unmapped = physical::unmap(aside);
    let done = copied.and(unmapped).map_err(failed("copying the memory"));
    // From here on the address must come to nobody else.
    let _alone = still::nobody_allocates();
    // SAFETY: a managed allocation that we made; the program has nobody under way who uses it, and whoever comes later finds its bytes there.
    let done = done.and_then(|()| match unsafe { free(range.start.0) } {
        SUCCESS => Ok(()),
        status => Err(failed("cuMemFree")(status)),
    });
    if let Err(why) = done {
        released.into_iter().for_each(|released| released.settle(1));
        return Err(why);
    }
    let whole = chunks(range);
    let there = reserve_exactly(whole).map_err(Stays::from).and_then(|()| {
        let mapped = memory.map(range, device, devices()).map_err(failed("cuMemMap"));
        mapped.inspect_err(|_| {
            let _ = physical::give_back(whole);
        })
    });
    if let Err(why) = there {
        put_back(aside, range, device, memory);
        released.into_iter().for_each(|released| released.settle(1));
        return Err(why);
    }
    released.into_iter().for_each(|released| released.settle(SUCCESS));
    Ok(())
}

/// The contents of `memory` become managed memory at `range` again, or the program ends.
fn put_back(aside: AddrRange, range: AddrRange, device: DeviceId, memory: Physical) {
    let copied = || {
        memory.map(aside, device, devices())?;
        let copied = copy(range.start, aside.start, range.len);
        physical::unmap(aside).and(copied)
    };
    if !managed_at(range) || copied().is_err() {
        log::error(&format!(
            "{} at {:#x} were to be exported to another process and cannot be put back where they were; the program ends here, as              what it has there is lost (DEEPUM=0 runs it without DeepUM)",
            range.len, range.start.0
        ));
        std::process::abort();
    }
}

/// Managed memory at exactly these addresses.
fn managed_at(range: AddrRange) -> bool {
    let mut others = Vec::new();
    let mut found = false;
    while !found && others.len() < TRIES {
        let mut at = 0;
        match managed(range.len, &mut at) {
            Some(SUCCESS) if at == range.start.0 => found = true,
            Some(SUCCESS) => others.push(at),
            _ => break,
        }
    }
    others.into_iter().for_each(free_quietly);
    found
}

fn managed(len: Bytes, out: &mut DevPtr) -> Option<Status> {
    apart::managed::<Driver>(len, true, out)
}

fn free_quietly(at: DevPtr) {
    if let Some(free) = symbols::genuine::cuMemFree_v2.get() {
        // SAFETY: managed memory that we have just made, and that nobody has heard of.
        unsafe { free(at) };
    }
}

/// Whether the driver gives addresses of as much managed memory again, once that is freed.
fn rehearse(len: Bytes) -> Result<(), Stays> {
    let mut at = 0;
    match managed(len, &mut at) {
        Some(SUCCESS) => {}
        Some(status) => return Err(failed("cuMemAllocManaged")(status)),
        None => return Err("there is no cuMemAllocManaged".into()),
    }
    free_quietly(at);
    let range = chunks(AddrRange::new(DevAddr(at), len));
    reserve_exactly(range)?;
    physical::give_back(range).map_err(failed("cuMemAddressFree"))
}

fn copy(to: DevAddr, from: DevAddr, len: Bytes) -> Result<(), Status> {
    let copy = genuine!(Cuda, "cuMemcpyDtoD_v2", fn(DevPtr, DevPtr, usize) -> Status).ok_or(1)?;
    // SAFETY: both are memory of ours of that length.
    match unsafe { copy(to.0, from.0, usize::try_from(len.0).unwrap_or(usize::MAX)) } {
        SUCCESS => idle_here(),
        failed => Err(failed),
    }
}

/// Waits for all work of the thread's context.
pub fn idle_here() -> Result<(), Status> {
    let wait = genuine!(Cuda, "cuCtxSynchronize", fn() -> Status).ok_or(1)?;
    // SAFETY: takes nothing.
    match unsafe { wait() } {
        SUCCESS => Ok(()),
        failed => Err(failed),
    }
}

/// Waits for all work of every device: managed memory may be used by each of them.
fn idle_everywhere() -> Result<(), Stays> {
    idle_here().map_err(failed("cuCtxSynchronize"))?;
    let state = genuine!(Cuda, "cuDevicePrimaryCtxGetState", fn(Dev, *mut u32, *mut i32) -> Status);
    let retain = genuine!(Cuda, "cuDevicePrimaryCtxRetain", fn(*mut Ptr, Dev) -> Status);
    let push = genuine!(Cuda, "cuCtxPushCurrent_v2", fn(Ptr) -> Status);
    let pop = genuine!(Cuda, "cuCtxPopCurrent_v2", fn(*mut Ptr) -> Status);
    let release = symbols::genuine::cuDevicePrimaryCtxRelease_v2.get();
    let others = (0..devices()).filter(|_| devices() > 1);
    let (Some(state), Some(retain), Some(push), Some(pop), Some(release)) = (state, retain, push, pop, release) else {
        return if devices() > 1 { Err("the driver lacks a basic function".into()) } else { Ok(()) };
    };
    for device in others.map(Dev::from) {
        let (mut flags, mut active, mut context) = (0, 0, std::ptr::null_mut());
        // SAFETY: the results are ours; an active context is retained, pushed, popped and released, so that all is as it was.
        unsafe {
            if state(device, &raw mut flags, &raw mut active) != SUCCESS || active == 0 {
                continue;
            }
            if retain(&raw mut context, device) == SUCCESS {
                let idle = if push(context) == SUCCESS {
                    let idle = idle_here();
                    pop(&raw mut context);
                    idle
                } else {
                    Err(1)
                };
                release(device);
                idle.map_err(failed("cuCtxSynchronize"))?;
            }
        }
    }
    Ok(())
}
