//! Memory and events of other processes (CUDA IPC).
//!
//! A handle of memory says whose it is and which descriptor of that process is its file ([`crate::space::shared`]); who opens it opens that
//! descriptor through `/proc`, which the system lets the same user do. What was opened is mapped at addresses of its own, and counts as memory of
//! the process that made it alone: each process has an emulated device of its own.
//!
//! Each process has a virtual clock of its own, too, so an event cannot tell another process *when*. A record of an event that other
//! processes may have therefore returns when it is reached, as if the GPU had been quick; so whoever learns in whatever way that it was recorded finds it over, and
//! an opened event is one that is over. (A record inside a graph does not wait.)
//!
//! Assumptions: what CUDA does with a handle of memory that is gone (`InvalidHandle`), and that an event is opened in its own process as memory is (`InvalidContext`).

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, UmBlock};

use crate::error::{CuError, CuResult};
use crate::machine::Call;
use crate::space::{Kind, shared};

/// Bytes of a handle, of memory or an event (`CU_IPC_HANDLE_SIZE`).
pub const HANDLE: usize = 64;
const MEMORY: u64 = u64::from_le_bytes(*b"emu-mem1");
const EVENT: u64 = u64::from_le_bytes(*b"emu-evt1");

/// What this process opened.
#[derive(Debug, Default)]
pub struct Opened {
    memory: BTreeMap<[u8; HANDLE], Open>,
}

#[derive(Debug)]
struct Open {
    at: DevAddr,
    mapped: AddrRange,
    times: u64,
}

fn bytes(words: [u64; 8]) -> [u8; HANDLE] {
    let mut handle = [0; HANDLE];
    for (to, word) in handle.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    handle
}

fn words(handle: &[u8; HANDLE]) -> [u64; 8] {
    let mut words = [0; 8];
    for (word, from) in words.iter_mut().zip(handle.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*from);
    }
    words
}

fn us() -> u64 {
    u64::from(std::process::id())
}

/// The file of another process's memory.
fn fetch(pid: u64, number: u64, inode: u64) -> CuResult<(OwnedFd, DeviceId, Bytes)> {
    let path = format!("/proc/{pid}/fd/{number}");
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(|_| CuError::InvalidHandle)?;
    match shared::look(file.as_fd()) {
        Some((device, len, found)) if found == inode => Ok((file.into(), device, len)),
        _ => Err(CuError::InvalidHandle),
    }
}

impl Call<'_> {
    /// The handle of the memory that `pointer` lies in.
    ///
    /// # Errors
    /// `InvalidValue` unless it is memory of a device that the program allocated plainly; `OutOfMemory`.
    pub fn ipc_memory(&mut self, pointer: DevAddr) -> CuResult<[u8; HANDLE]> {
        let space = &mut self.state.space;
        let found = *space.find(pointer).filter(|found| found.kind == Kind::Device).ok_or(CuError::InvalidValue)?;
        let (file, around) = space.share(found.range.start)?;
        let (_, _, inode) = shared::look(file.as_fd()).ok_or(CuError::Unknown)?;
        let number = u64::from(file.as_raw_fd().cast_unsigned());
        Ok(bytes([MEMORY, us(), number, inode, found.range.start.0 - around.start.0, found.range.len.0, found.id, 0]))
    }

    /// Maps the memory of another process. Opened again, it is where it is.
    ///
    /// # Errors
    /// `InvalidHandle` if it is none, or of memory that is gone; `InvalidContext` for memory of this process; `InvalidDevice`, `OutOfMemory`.
    pub fn open_memory(&mut self, handle: &[u8; HANDLE]) -> CuResult<DevAddr> {
        let [magic, pid, number, inode, offset, len, ..] = words(handle);
        if magic != MEMORY {
            return Err(CuError::InvalidHandle);
        }
        if pid == us() {
            return Err(CuError::InvalidContext);
        }
        if let Some(open) = self.state.opened.memory.get_mut(handle) {
            open.times += 1;
            return Ok(open.at);
        }
        let (file, device, whole) = fetch(pid, number, inode)?;
        if device.0 >= self.machine.config.devices {
            return Err(CuError::InvalidDevice);
        }
        if offset.checked_add(len).is_none_or(|end| end > whole.0) {
            return Err(CuError::InvalidHandle);
        }
        let space = &mut self.state.space;
        // A block behind it stays nobody's, so that it is never one allocation with what is mapped beside it.
        let reserved = space.reserve(whole + UmBlock::SIZE, 0, None)?;
        let mapped = AddrRange::new(reserved.start, whole);
        space.back_reserved(mapped, Some(Arc::new(file))).inspect_err(|_| space.unreserve(reserved))?;
        space.open_reserved(device, mapped);
        let at = mapped.start.offset(Bytes(offset));
        self.state.opened.memory.insert(*handle, Open { at, mapped, times: 1 });
        Ok(at)
    }

    /// Memory that was opened as often as it is closed is unmapped, once all work is done.
    ///
    /// # Errors
    /// `InvalidValue` if nothing was opened there.
    pub fn close_memory(&mut self, at: DevAddr) -> CuResult {
        let opened = &mut self.state.opened.memory;
        let (handle, open) = opened.iter_mut().find(|(_, open)| open.at == at).ok_or(CuError::InvalidValue)?;
        open.times -= 1;
        if open.times > 0 {
            return Ok(());
        }
        let (handle, mapped) = (*handle, open.mapped);
        opened.remove(&handle);
        for gpu in 0..self.machine.config.devices {
            self.synchronize(DeviceId(gpu))?;
        }
        self.state.space.clear_reserved(mapped);
        self.state.space.unreserve(AddrRange::new(mapped.start, mapped.len + UmBlock::SIZE));
        Ok(())
    }

    /// The handle of an event.
    ///
    /// # Errors
    /// `InvalidHandle` if there is none, or it was not made for other processes.
    pub fn ipc_event(&mut self, event: u32) -> CuResult<[u8; HANDLE]> {
        let found = self.state.events.get(event)?;
        if !found.shared {
            return Err(CuError::InvalidHandle);
        }
        Ok(bytes([EVENT, us(), u64::from(event), u64::from(found.device.0), 0, 0, 0, 0]))
    }

    /// An event of another process.
    ///
    /// # Errors
    /// `InvalidHandle` if it is none; `InvalidContext` for an event of this process; `InvalidDevice`.
    pub fn open_event(&mut self, handle: &[u8; HANDLE]) -> CuResult<u32> {
        let [magic, pid, _, device, ..] = words(handle);
        let device = u8::try_from(device).map_err(|_| CuError::InvalidHandle)?;
        match magic {
            EVENT if pid == us() => Err(CuError::InvalidContext),
            EVENT if device >= self.machine.config.devices => Err(CuError::InvalidDevice),
            EVENT => Ok(self.state.events.create(DeviceId(device), false, true)),
            _ => Err(CuError::InvalidHandle),
        }
    }
}
