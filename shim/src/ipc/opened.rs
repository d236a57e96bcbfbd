//! What this process has open of others.

use super::Handle;
use super::change::{devices, idle_here};
use super::physical;
use crate::abi::{SUCCESS, Status};
use crate::map::BlockMap;
use crate::{fence, link, log};
use deepum_core::units::{AddrRange, Bytes, DevAddr};
use deepum_engine::exports;
use deepum_protocol::status::folders;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which UM blocks are others' memory, for every close; written under the lock.
static WHERE: BlockMap = BlockMap::new();
static OPENED: Mutex<Vec<Opened>> = Mutex::new(Vec::new());

struct Opened {
    handle: Handle,
    at: AddrRange,
    times: usize,
}

fn opened() -> MutexGuard<'static, Vec<Opened>> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As CUDA answers: a context that may not have it, a handle of nothing.
const INVALID_CONTEXT: Status = 201;
const INVALID_HANDLE: Status = 400;

/// Maps the memory of another process, or says where it is.
pub fn open(handle: Handle) -> Result<DevAddr, Status> {
    if handle.pid == std::process::id() {
        return Err(INVALID_CONTEXT);
    }
    if handle.len == Bytes::ZERO {
        return Err(INVALID_HANDLE);
    }
    // Held while it is fetched, so that two threads do not open it twice.
    let mut list = opened();
    if let Some(open) = list.iter_mut().find(|open| open.handle == handle) {
        open.times += 1;
        return Ok(open.at.start);
    }
    // SAFETY: takes nothing, cannot fail.
    let folders = folders(unsafe { libc::getuid() });
    let file = exports::fetch(&folders, handle.pid, &handle.ticket).map_err(|why| {
        log::once!("memory that another process exported cannot be opened: {why}");
        INVALID_HANDLE
    })?;
    let memory = physical::import(file.as_fd())?;
    let mapped = physical::reserve(handle.len.round_up_to_blocks(), None).and_then(|at| {
        let mapped = memory.map(at, link::current_device(), devices());
        mapped.map(|()| at).inspect_err(|_| {
            let _ = physical::give_back(at);
        })
    });
    // The mapping keeps it.
    let _ = memory.release();
    let at = mapped?;
    WHERE.insert(at, 0);
    list.push(Opened { handle, at, times: 1 });
    Ok(at.start)
}

/// What was asked for of what is open around `at`.
pub fn asked(at: DevAddr) -> Option<Bytes> {
    WHERE.find(at)?;
    opened().iter().find(|open| open.at.contains(at)).map(|open| open.handle.len)
}

/// It is closed once more. Nothing if it is none of ours.
pub fn close(at: DevAddr) -> Option<Status> {
    WHERE.find(at)?;
    // Where our code does not run any more, it stays where it is.
    fence::ours(|| close_now(at)).unwrap_or(Some(SUCCESS))
}

fn close_now(at: DevAddr) -> Option<Status> {
    let mut list = opened();
    let found = list.iter().position(|open| open.at.start == at)?;
    list[found].times -= 1;
    if list[found].times > 0 {
        return Some(SUCCESS);
    }
    let gone = list.swap_remove(found);
    WHERE.remove(gone.at, 0);
    drop(list);
    // Work that uses it ends first.
    let idle = idle_here();
    Some(idle.and(physical::unmap(gone.at)).and(physical::give_back(gone.at)).err().unwrap_or(SUCCESS))
}
