//! What the stand-in `libcuda.so.1` exports for the preloaded node, as plain functions of this process's machine.
//!
//! The node exists once the machine does (from `cuInit` on), as a driver's node exists once its module is loaded.

use super::caller::FileKey;
use super::{Backend, Mapping, NvStatus, Uvm, Wait, release, remote};
use crate::config::Pools;
use crate::error::CuError;
use crate::hands::Outcome;
use crate::machine::{Machine, machine};
use deepum_core::units::{AddrRange, Nanos, Place};
use deepum_emu_abi::forward::Node;
use deepum_model::{Advice, Group};
use std::ffi::{c_int, c_ulong, c_void};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};

static UVM: OnceLock<Arc<Uvm>> = OnceLock::new();

/// The module of this process, made when the first file is opened.
fn uvm(machine: &'static Machine) -> &'static Arc<Uvm> {
    UVM.get_or_init(|| {
        let uvm = Uvm::new(machine.config.driver, machine.config.devices);
        // A machine that is ending takes no sink, and needs none.
        let _ = machine.look(|state| {
            state.sink = Some(uvm.sink());
            Ok(())
        });
        if let Err(error) = remote::serve(&uvm, machine) {
            crate::say(&format!("no thread for requests of other processes on our files: {error}; they will fail"));
        }
        uvm
    })
}

/// Waits until requests that came from other processes before this call are over. For when their engine is gone: what it
/// asked for last happens before the program goes on without it, as a driver ends a dead process's calls before it
/// closes its files. Call with no lock held.
pub fn quiesce() {
    if let Some(uvm) = UVM.get() {
        remote::quiesce(uvm);
    }
}

impl Backend for Machine {
    fn now(&self) -> Nanos {
        self.now().unwrap_or(Nanos::ZERO)
    }
    fn rest(&self) {
        self.rest();
    }
    fn migrate(&self, range: AddrRange, to: Place, wait: Wait) -> Result<(), NvStatus> {
        match self.migrate_members(range, to, wait).map_err(status)? {
            Outcome::Done => Ok(()),
            Outcome::Skipped => Err(NvStatus::MORE_PROCESSING_REQUIRED),
        }
    }
    fn advise(&self, range: AddrRange, advice: Advice) -> Result<(), NvStatus> {
        self.advise(range, advice).map_err(status)
    }
    fn discard(&self, range: AddrRange, unmap: bool) -> Result<(), NvStatus> {
        self.discard(range, unmap).map_err(status)
    }
    fn make_pool(&self) -> Result<(), NvStatus> {
        (self.config.pools != Pools::Refused).then_some(()).ok_or(NvStatus::NO_MEMORY)
    }
    fn make_group(&self) -> Result<Group, NvStatus> {
        self.look(|state| Ok(state.memory.make_group())).map_err(status)
    }
    fn end_group(&self, group: Group) -> Result<(), NvStatus> {
        self.look(|state| Ok(state.memory.end_group(group)?)).map_err(status)
    }
    fn set_migratable(&self, groups: &[Group], migratable: bool) -> Result<(), NvStatus> {
        self.set_migratable(groups, migratable).map_err(|error| match error {
            // A member that is preferred nowhere: no address was named.
            CuError::InvalidValue => NvStatus::INVALID_ARGUMENT,
            error => status(error),
        })
    }
    fn join(&self, range: AddrRange, group: Group) -> Result<(), NvStatus> {
        self.join(range, group).map_err(status)
    }
    fn drain(&self) {
        self.drain();
    }
    fn flush(&self) {
        self.flush();
    }
}

fn status(error: CuError) -> NvStatus {
    match error {
        CuError::OutOfMemory => NvStatus::NO_MEMORY,
        CuError::InvalidDevice => NvStatus::INVALID_DEVICE,
        CuError::InvalidValue => NvStatus::INVALID_ADDRESS,
        CuError::NotFound => NvStatus::OBJECT_NOT_FOUND,
        CuError::NotSupported => NvStatus::NOT_SUPPORTED,
        _ => NvStatus::INVALID_STATE,
    }
}

/// `deepumEmuUvmOpen`: takes `fd` as a file of the VA space's node (`node` 0) or of the tools node (1), with `peer`, the
/// far end of its socket pair, which is ours from then on. 0, or an error number; then `peer` is still the caller's. Whether
/// there is a node at all can be asked with -1 for both: `EBADF` if there is, `ENOENT` if not.
///
/// # Safety
/// `peer` is -1, or a descriptor that nothing else uses or closes.
pub unsafe fn open(node: c_int, fd: RawFd, peer: RawFd) -> c_int {
    let Ok(machine) = machine() else { return libc::ENOENT };
    let node = match node {
        0 => Node::Uvm,
        1 if machine.config.tools => Node::Tools,
        _ => return libc::ENOENT,
    };
    let Some(key) = FileKey::of(fd).filter(|_| peer >= 0) else { return libc::EBADF };
    // SAFETY: ours from now on, by our contract.
    let peer = unsafe { OwnedFd::from_raw_fd(peer) };
    uvm(machine).open(node, key, peer);
    0
}

/// `deepumEmuUvmIoctl`: 0, or an error number below 0; `-ENOTTY` if `fd` is no file of this device.
///
/// # Safety
/// As for [`Uvm::ioctl`].
pub unsafe fn ioctl(fd: RawFd, request: c_ulong, arg: *mut c_void) -> c_int {
    let (Ok(machine), Some(key)) = (machine(), FileKey::of(fd)) else { return -libc::ENOTTY };
    // SAFETY: by our contract.
    unsafe { uvm(machine).ioctl(key, request, arg as usize, machine) }
}

/// `deepumEmuUvmMap`: `mmap` of a file; 0, or an error number below 0; `-ENOTTY` if `fd` is no file of this device.
///
/// # Safety
/// As for [`Uvm::map`].
pub unsafe fn map(fd: RawFd, address: u64, len: u64, how: Mapping) -> c_int {
    let (Ok(machine), Some(key)) = (machine(), FileKey::of(fd)) else { return -libc::ENOTTY };
    // SAFETY: by our contract.
    unsafe { uvm(machine).map(key, address, len, how) }
}

/// `deepumEmuUvmPoll`: 1 if a poll of the tools file finds it readable, 0 if not, `-ENOTTY` if it is no file of this device.
#[must_use]
pub fn poll(fd: RawFd) -> c_int {
    let (Ok(machine), Some(key)) = (machine(), FileKey::of(fd)) else { return -libc::ENOTTY };
    let uvm = uvm(machine);
    if uvm.has(key) { c_int::from(uvm.poll(key)) } else { -libc::ENOTTY }
}

/// `deepumEmuDriverRelease`: the release as `/sys/module/nvidia/version` has it, or nothing without a device.
#[must_use]
pub fn driver_release() -> Option<&'static str> {
    let config = &machine().ok()?.config;
    Some(config.release.as_deref().unwrap_or_else(|| release(config.driver)))
}
