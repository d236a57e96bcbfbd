//! What this process exported.
//!
//! From the first export on a thread of ours answers whoever has a handle. It makes a descriptor for each answer, with the context of the exporter, under the lock
//! that a free takes first: so nobody is given what is free. A forked child has no such thread, and exports nothing: the driver does not work there.

use super::Handle;
use super::change::{self, Stays, idle_here};
use super::physical::{self, Physical};
use crate::abi::{Ptr, SUCCESS, Status};
use crate::apart::{MOST, chunks};
use crate::map::BlockMap;
use crate::real::genuine;
use crate::registry::{self, Ours};
use crate::{fence, link, log};
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId};
use deepum_engine::exports::{Listener, Ticket};
use deepum_protocol::shared::MAX_DEVICES;
use deepum_protocol::status::folders;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which UM blocks are exported, for every free; written under the lock.
static WHERE: BlockMap = BlockMap::new();
static BYTES: [AtomicU64; MAX_DEVICES] = [const { AtomicU64::new(0) }; MAX_DEVICES];
static EXPORTS: Mutex<Exports> = Mutex::new(Exports { list: Vec::new(), listens: false, next: 1 });

struct Exports {
    list: Vec<Export>,
    listens: bool,
    next: u64,
}

struct Export {
    range: AddrRange,
    /// What the program asked for, of that.
    asked: Bytes,
    device: DeviceId,
    memory: Physical,
    ticket: Ticket,
    /// The exporting thread's, as a number: it is the program's.
    context: usize,
}

impl Export {
    fn handle(&self) -> Handle {
        Handle { pid: std::process::id(), len: self.asked, ticket: self.ticket }
    }
}

fn exports() -> MutexGuard<'static, Exports> {
    EXPORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bytes_of(device: DeviceId) -> Option<&'static AtomicU64> {
    BYTES.get(usize::from(device.0))
}

/// Exported bytes of a device.
pub fn bytes(device: DeviceId) -> Bytes {
    Bytes(bytes_of(device).map_or(0, |bytes| bytes.load(Ordering::Relaxed)))
}

/// Of all devices.
pub fn all_bytes() -> Bytes {
    Bytes(BYTES.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum())
}

/// Whether an address lies in exported memory.
pub fn holds(at: DevAddr) -> bool {
    WHERE.find(at).is_some()
}

/// What was asked for of the exported memory around `at`.
pub fn asked(at: DevAddr) -> Option<Bytes> {
    WHERE.find(at)?;
    exports().list.iter().find(|export| export.range.contains(at)).map(|export| export.asked)
}

/// The handle of the allocation around `at`, which is exported, or a managed one of ours.
pub fn export(at: DevAddr) -> Result<Handle, Stays> {
    let mut exports = exports();
    if let Some(export) = exports.list.iter().find(|export| export.range.contains(at)) {
        return Ok(export.handle());
    }
    let Ours { range, asked, device, apart } = registry::made_by_us(at).ok_or("it was freed")?;
    if !apart {
        return Err(Stays::Because(format!(
            "it lies beside others, as small memory does that is made while {MOST} other allocations below 20 MiB live"
        )));
    }
    if device != link::current_device() {
        return Err("it is another GPU's than the thread's".into());
    }
    let context = current_context().ok_or("the thread has no context")?;
    let ticket = Ticket { number: exports.next, secret: secret().ok_or("the system gives no random numbers")? };
    exports.listen()?;
    let memory = change::to_device_memory(range, device)?;
    exports.next += 1;
    WHERE.insert(range, 0);
    if let Some(bytes) = bytes_of(device) {
        bytes.fetch_add(range.len.0, Ordering::Relaxed);
    }
    log::debug(|| format!("{} at {:#x} became memory of the GPU, to be exported", range.len, range.start.0));
    let export = Export { range, asked, device, memory, ticket, context };
    let handle = export.handle();
    exports.list.push(export);
    Ok(handle)
}

impl Exports {
    /// Starts to answer, the first time.
    fn listen(&mut self) -> Result<(), Stays> {
        if self.listens {
            return Ok(());
        }
        // SAFETY: takes nothing, cannot fail.
        let folders = folders(unsafe { libc::getuid() });
        let listener = Listener::bind(&folders, std::process::id()).map_err(Stays::Because)?;
        let lost = |why: String| {
            log::error(&format!("{why}; memory that is exported can no longer be opened, all else goes on"))
        };
        listener.serve_always(open, lost).map_err(Stays::Because)?;
        self.listens = true;
        Ok(())
    }
}

/// A descriptor for whoever has the ticket. On our own thread.
fn open(ticket: &Ticket) -> Option<OwnedFd> {
    let exports = exports();
    let export = exports.list.iter().find(|export| export.ticket == *ticket)?;
    let set = genuine!(Cuda, "cuCtxSetCurrent", fn(Ptr) -> Status)?;
    // SAFETY: the context of an export that lives; where it is gone, the driver refuses it.
    unsafe { set(export.context as Ptr) };
    export.memory.export().ok()
}

/// Frees the allocation that starts at `at`. Nothing if that was not exported.
pub fn free(at: DevAddr) -> Option<Status> {
    if !holds(at) {
        return None;
    }
    // Where our code does not run any more, it stays where it is, and nobody gets it again.
    fence::ours(|| free_now(at)).unwrap_or(Some(SUCCESS))
}

fn free_now(at: DevAddr) -> Option<Status> {
    let mut exports = exports();
    // Nobody frees by another address than the first; the driver is to say so.
    let found = exports.list.iter().position(|export| export.range.start == at)?;
    let export = exports.list.swap_remove(found);
    WHERE.remove(export.range, 0);
    drop(exports);
    if let Some(bytes) = bytes_of(export.device) {
        bytes.fetch_sub(export.range.len.0, Ordering::Relaxed);
    }
    // As a free does. Others who have it open have it still.
    let idle = idle_here();
    let gone = physical::unmap(export.range).and(export.memory.release());
    let gone = gone.and(physical::give_back(chunks(export.range)));
    Some(idle.and(gone).err().unwrap_or(SUCCESS))
}

fn current_context() -> Option<usize> {
    let get = genuine!(Cuda, "cuCtxGetCurrent", fn(*mut Ptr) -> Status)?;
    let mut context = std::ptr::null_mut();
    // SAFETY: the result is ours.
    (unsafe { get(&raw mut context) } == SUCCESS && !context.is_null()).then_some(context as usize)
}

fn secret() -> Option<[u8; 16]> {
    let mut secret = [0; 16];
    // SAFETY: room for 16 bytes. So few come whole or not at all (getrandom(2)).
    let got = unsafe { libc::getrandom(secret.as_mut_ptr().cast(), secret.len(), 0) };
    (got == 16).then_some(secret)
}
