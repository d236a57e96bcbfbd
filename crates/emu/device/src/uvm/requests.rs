//! What each request does: parameter structs at the offsets of facts 1.1, 2.1, 4.1, 4.3 and 4.7.
//!
//! As in the driver, a routed request returns 0 and its outcome is `rmStatus` inside the struct, which is copied in and
//! out whole; an unknown number is `EINVAL`, a bad pointer `EFAULT`.

use super::caller::{Caller, FileKey};
use super::params::{Params, groups, node, whole_pages};
use super::queue::Tracker;
use super::sys::{self, NvStatus, request};
use super::{Backend, File, Uvm, UvmFile, Wait, gpu_uuid};
use crate::say;
use deepum_core::units::{DeviceId, Place};
use deepum_model::{Advice, Group};
use std::sync::Once;

/// What `ioctl` answers when the request was not routed.
const UNKNOWN: i32 = -libc::EINVAL;
const BAD_POINTER: i32 = -libc::EFAULT;

impl Uvm {
    /// `ioctl(fd, request, arg)`: 0, or an error number below 0.
    ///
    /// # Safety
    /// Where the system forbids `process_vm_readv`, `arg` must point to the request's parameters. Memory handed over as
    /// a queue must, unless it is shared memory, stay mapped until the tools file is closed.
    pub unsafe fn ioctl(&self, key: FileKey, request: u64, arg: usize, backend: &dyn Backend) -> i32 {
        // SAFETY: our own contract.
        unsafe { self.carry_out(key, request, arg, &mut &self.memory, backend) }
    }

    /// As [`Self::ioctl`], for any caller.
    ///
    /// # Safety
    /// `arg` must point to the request's parameters, as far as `caller` relies on that, and so must what they point to.
    pub(super) unsafe fn carry_out(
        &self,
        key: FileKey,
        request: u64,
        arg: usize,
        caller: &mut dyn Caller,
        backend: &dyn Backend,
    ) -> i32 {
        let tools = match self.files.lock().open.get(&key) {
            Some(File::Tools(..)) => true,
            Some(File::Uvm(_)) => false,
            None => return -libc::ENOTTY,
        };
        // The C prototype has a wide request number, the driver's a 32-bit one.
        let request = request & 0xffff_ffff;
        if !tools && request == request::DEINITIALIZE {
            return 0;
        }
        let Some((len, status)) = self.shape(tools, request) else { return UNKNOWN };
        let mut params = Params { bytes: vec![0; len] };
        // SAFETY: by our own contract.
        if !unsafe { caller.read(arg, &mut params.bytes) } {
            return BAD_POINTER;
        }
        let outcome = if tools {
            self.of_tools(key, request, &mut params, caller)
        } else {
            self.of_uvm(key, request, &mut params, caller, backend)
        };
        params.put_u32(status, outcome.err().unwrap_or(NvStatus::OK).0);
        // SAFETY: by our own contract; the caller expects its parameters to be written.
        if unsafe { caller.write(arg, &params.bytes) } { 0 } else { BAD_POINTER }
    }

    /// Length of a request's struct and place of its status, if this driver knows the request on such a file.
    fn shape(&self, tools: bool, request: u64) -> Option<(usize, usize)> {
        let known = match (tools, request) {
            (false, request::INITIALIZE) => (16, 8),
            (false, request::CREATE_RANGE_GROUP | request::DESTROY_RANGE_GROUP) => (16, 8),
            (false, request::SET_RANGE_GROUP) => (32, 24),
            (false, request::PREVENT_MIGRATION_RANGE_GROUPS | request::ALLOW_MIGRATION_RANGE_GROUPS) => (272, 264),
            (false, request::REGISTER_GPU) => (40, 36),
            // From 550 on a NUMA node comes before the status.
            (false, request::SET_PREFERRED_LOCATION) => (40, if self.branch < 550 { 32 } else { 36 }),
            (false, request::SET_ACCESSED_BY | request::UNSET_ACCESSED_BY) => (40, 32),
            (
                false,
                request::UNSET_PREFERRED_LOCATION
                | request::ENABLE_READ_DUPLICATION
                | request::DISABLE_READ_DUPLICATION,
            ) => (24, 16),
            (false, request::MIGRATE) => (80, 72),
            (false, request::UUID_TABLE) => match self.branch {
                535 => (16, 12),
                550 => (24, 12),
                560 => (16, 12),
                _ => (16, 8),
            },
            (false, request::FLUSH_EVENTS) => (4, 0),
            (false, request::ALLOC_SEMAPHORE_POOL) => self.pool_shape(),
            (false, request::MM_INITIALIZE) => (8, 4),
            (false, request::UUID_TABLE_V2) if self.branch >= 565 => (16, 8),
            (false, request::DISCARD) if self.branch >= 580 => (32, 24),
            (true, request::INIT_EVENT_TRACKER) => match self.branch {
                550 => (64, 48),
                560 => (56, 52),
                _ => (56, 48),
            },
            (true, request::INIT_EVENT_TRACKER_V2) if self.branch >= 565 => (56, 48),
            (true, request::SET_NOTIFICATION_THRESHOLD) => (8, 4),
            (true, request::ENABLE_EVENTS | request::DISABLE_EVENTS) => (16, 8),
            _ => return None,
        };
        Some(known)
    }

    fn of_uvm(
        &self,
        key: FileKey,
        request: u64,
        params: &mut Params,
        caller: &mut dyn Caller,
        backend: &dyn Backend,
    ) -> Result<(), NvStatus> {
        match request {
            request::INITIALIZE => return self.initialise(key, params.u64(0)),
            request::MM_INITIALIZE => return self.initialise_mm(key, caller.file(params.fd(0))?),
            _ => {}
        }
        if !matches!(self.files.lock().open.get(&key), Some(File::Uvm(UvmFile::VaSpace { .. }))) {
            return Err(NvStatus::ILLEGAL_ACTION);
        }
        match request {
            request::REGISTER_GPU => {
                self.gpu(&params.uuid(0))?;
                // Not a NUMA system: no node.
                params.bytes[16] = 0;
                params.put_u32(20, u32::MAX);
                Ok(())
            }
            request::CREATE_RANGE_GROUP => {
                params.put_u64(0, backend.make_group()?.0);
                Ok(())
            }
            request::DESTROY_RANGE_GROUP => backend.end_group(Group(params.u64(0))),
            request::SET_RANGE_GROUP => backend.join(whole_pages(params.u64(8), params.u64(16))?, Group(params.u64(0))),
            request::PREVENT_MIGRATION_RANGE_GROUPS => {
                backend.set_migratable(&groups(params)?, false)?;
                backend.drain();
                Ok(())
            }
            request::ALLOW_MIGRATION_RANGE_GROUPS => backend.set_migratable(&groups(params)?, true),
            request::ALLOC_SEMAPHORE_POOL => self.make_pool(key, params, backend),
            request::MIGRATE => self.migrate(key, params, backend),
            request::SET_PREFERRED_LOCATION..=request::UNSET_ACCESSED_BY => self.advise(request, params, backend),
            request::DISCARD => {
                let unmap = match params.u64(16) {
                    0 => false,
                    1 => true,
                    _ => return Err(NvStatus::INVALID_ARGUMENT),
                };
                backend.discard(whole_pages(params.u64(0), params.u64(8))?, unmap)
            }
            request::FLUSH_EVENTS => {
                backend.flush();
                Ok(())
            }
            request::UUID_TABLE_V2 => self.uuid_table(params, caller, sys::PROCESSORS_V2),
            _ => match self.branch {
                // Only as many as there are, and says how many.
                535 => {
                    let count = u32::from(self.devices) + 1;
                    params.put_u32(8, count);
                    self.uuid_table(params, caller, count as usize)
                }
                // As many places as the caller says it has; a caller of before that sets nothing, and has 33.
                550 => {
                    let (version, places) = match params.u32(8) as usize {
                        0 => (1, sys::PROCESSORS),
                        n => (2, n.min(sys::PROCESSORS_V2)),
                    };
                    params.put_u32(8, u32::from(self.devices) + 1);
                    params.put_u32(16, version);
                    self.uuid_table(params, caller, places)
                }
                560 => match params.u32(8) {
                    1 => self.uuid_table(params, caller, sys::PROCESSORS),
                    2 => self.uuid_table(params, caller, sys::PROCESSORS_V2),
                    _ => Err(NvStatus::INVALID_ARGUMENT),
                },
                _ => self.uuid_table(params, caller, sys::PROCESSORS),
            },
        }
    }

    fn initialise(&self, key: FileKey, flags: u64) -> Result<(), NvStatus> {
        let mut files = self.files.lock();
        match files.open.get_mut(&key) {
            Some(File::Uvm(file @ UvmFile::Uninitialised)) => *file = UvmFile::VaSpace { flags },
            // A second time is fine with the same flags.
            Some(File::Uvm(UvmFile::VaSpace { flags: before })) if *before == flags => {}
            _ => return Err(NvStatus::INVALID_ARGUMENT),
        }
        Ok(())
    }

    fn initialise_mm(&self, key: FileKey, of: Option<FileKey>) -> Result<(), NvStatus> {
        let mut files = self.files.lock();
        let va_space = of.and_then(|key| files.open.get(&key));
        if !matches!(va_space, Some(File::Uvm(UvmFile::VaSpace { .. }))) {
            return Err(NvStatus::INVALID_ARGUMENT);
        }
        if of == Some(key) || !matches!(files.open.get(&key), Some(File::Uvm(UvmFile::Uninitialised))) {
            return Err(NvStatus::IN_USE);
        }
        if files.mm {
            return Err(NvStatus::INVALID_STATE);
        }
        files.mm = true;
        files.open.insert(key, File::Uvm(UvmFile::Mm));
        Ok(())
    }

    fn migrate(&self, key: FileKey, params: &Params, backend: &dyn Backend) -> Result<(), NvStatus> {
        let range = whole_pages(params.u64(0), params.u64(8))?;
        let (flags, semaphore, payload) = (params.u32(32), params.u64(40), params.u32(48));
        if flags & !1 != 0 {
            return Err(NvStatus::INVALID_ARGUMENT);
        }
        let wait = match (flags, semaphore) {
            (0, 0) => Wait::Here,
            (1, 0) if payload == 0 => Wait::Not(None),
            (1, at) if at != 0 => Wait::Not(Some(self.semaphore(key, at, payload)?)),
            _ => return Err(NvStatus::INVALID_ARGUMENT),
        };
        let uuid = params.uuid(16);
        let to = if uuid == sys::CPU_UUID {
            node(params.u32(52))?;
            Place::Host
        } else {
            Place::Device(self.gpu(&uuid)?)
        };
        backend.migrate(range, to, wait)
    }

    fn advise(&self, request: u64, params: &Params, backend: &dyn Backend) -> Result<(), NvStatus> {
        let range = whole_pages(params.u64(0), params.u64(8))?;
        let access = matches!(request, request::SET_ACCESSED_BY | request::UNSET_ACCESSED_BY);
        if access && params.uuid(16) == sys::CPU_UUID {
            static SAID: Once = Once::new();
            SAID.call_once(|| say("policies by which the host accesses are not emulated"));
            return Err(NvStatus::NOT_SUPPORTED);
        }
        let advice = match request {
            request::SET_PREFERRED_LOCATION if params.uuid(16) == sys::CPU_UUID => {
                if self.branch >= 550 {
                    node(params.u32(32))?;
                }
                Advice::Prefer(Some(Place::Host))
            }
            request::SET_PREFERRED_LOCATION => Advice::Prefer(Some(Place::Device(self.gpu(&params.uuid(16))?))),
            request::UNSET_PREFERRED_LOCATION => Advice::Prefer(None),
            request::ENABLE_READ_DUPLICATION => Advice::Duplicate(true),
            request::DISABLE_READ_DUPLICATION => Advice::Duplicate(false),
            _ => Advice::AccessedBy(self.gpu(&params.uuid(16))?, request == request::SET_ACCESSED_BY),
        };
        backend.advise(range, advice)
    }

    pub(super) fn gpu(&self, uuid: &[u8; 16]) -> Result<DeviceId, NvStatus> {
        (0..self.devices).map(DeviceId).find(|d| gpu_uuid(*d) == *uuid).ok_or(NvStatus::INVALID_DEVICE)
    }

    fn uuid_table(&self, params: &Params, caller: &mut dyn Caller, processors: usize) -> Result<(), NvStatus> {
        let mut table = vec![0; 16 * processors];
        let known = std::iter::once(sys::CPU_UUID).chain((0..self.devices).map(|n| gpu_uuid(DeviceId(n))));
        for (place, uuid) in table.chunks_exact_mut(16).zip(known) {
            place.copy_from_slice(&uuid);
        }
        let Ok(at) = usize::try_from(params.u64(0)) else { return Err(NvStatus::INVALID_ADDRESS) };
        // SAFETY: checked by the kernel, or promised to `carry_out`: the table is part of the request's parameters.
        let written = unsafe { caller.write(at, &table) };
        written.then_some(()).ok_or(NvStatus::INVALID_ADDRESS)
    }

    fn of_tools(
        &self,
        key: FileKey,
        request: u64,
        params: &mut Params,
        caller: &mut dyn Caller,
    ) -> Result<(), NvStatus> {
        match request {
            request::INIT_EVENT_TRACKER => {
                match self.branch {
                    550 => self.refuse_v2(params.u32(52))?,
                    560 => self.refuse_v2(params.u32(48))?,
                    _ => {}
                }
                self.init_tracker(key, params, caller, sys::ENTRY)?;
                if self.branch == 550 {
                    // The version granted is the one asked for.
                    params.put_u32(56, params.u32(52));
                }
                return Ok(());
            }
            request::INIT_EVENT_TRACKER_V2 => return self.init_tracker(key, params, caller, sys::ENTRY_V2),
            _ => {}
        }
        let mut files = self.files.lock();
        let Some(File::Tools(peer, Some(tracker))) = files.open.get_mut(&key) else {
            return Err(NvStatus::INVALID_ARGUMENT);
        };
        match request {
            request::SET_NOTIFICATION_THRESHOLD => {
                if tracker.set_threshold(params.u32(0)) {
                    peer.wake();
                }
            }
            request::ENABLE_EVENTS => {
                let mask = params.u64(0);
                if mask & !sys::event::ALL != 0 {
                    return Err(NvStatus::INVALID_ARGUMENT);
                }
                tracker.enable(mask);
            }
            _ => tracker.disable(params.u64(0)),
        }
        self.settle_wanted(&files);
        Ok(())
    }

    /// Version 1 is played; version 2 exists in this driver, in a layout of its own.
    fn refuse_v2(&self, version: u32) -> Result<(), NvStatus> {
        match version {
            1 => Ok(()),
            2 => {
                static SAID: Once = Once::new();
                SAID.call_once(|| say("V2 entries of driver 550 and 560 are not emulated; V1 is"));
                Err(NvStatus::NOT_SUPPORTED)
            }
            _ => Err(NvStatus::INVALID_ARGUMENT),
        }
    }

    fn init_tracker(
        &self,
        key: FileKey,
        params: &Params,
        caller: &mut dyn Caller,
        entry: usize,
    ) -> Result<(), NvStatus> {
        let of = caller.file(params.fd(44))?;
        let mut files = self.files.lock();
        match of.and_then(|of| files.open.get(&of)) {
            Some(File::Uvm(UvmFile::VaSpace { .. })) => {}
            Some(File::Uvm(_)) => return Err(NvStatus::ILLEGAL_ACTION),
            _ => return Err(NvStatus::INSUFFICIENT_PERMISSIONS),
        }
        let entries = params.u64(8);
        if entries == 0 {
            static SAID: Once = Once::new();
            SAID.call_once(|| say("counter trackers of /dev/nvidia-uvm-tools are not emulated"));
            return Err(NvStatus::NOT_SUPPORTED);
        }
        let count = u32::try_from(entries).ok().filter(|n| n.is_power_of_two() && *n >= 2);
        let count = count.ok_or(NvStatus::INVALID_ARGUMENT)?;
        let (ring, control) = (params.u64(0), params.u64(16));
        if ring == 0 || control == 0 || !ring.is_multiple_of(4096) || !control.is_multiple_of(4096) {
            return Err(NvStatus::INVALID_ADDRESS);
        }
        let mut pin = |at: u64, len: usize| {
            let at = usize::try_from(at).ok()?;
            // SAFETY: promised to `carry_out` by its caller.
            unsafe { caller.pin(at, len) }
        };
        let ring = pin(ring, count as usize * entry).ok_or(NvStatus::INVALID_ARGUMENT)?;
        let control = pin(control, sys::CONTROL).ok_or(NvStatus::INVALID_ARGUMENT)?;
        match files.open.get_mut(&key) {
            Some(File::Tools(_, tracker @ None)) => *tracker = Some(Tracker::new(ring, control, count, entry)),
            _ => return Err(NvStatus::INVALID_ARGUMENT),
        }
        Ok(())
    }
}
