//! Policies of memory: whether it may have two copies, where it is preferred, who accesses it.
//!
//! `UVM_ENABLE_READ_DUPLICATION` and its like, of whole blocks. All of them take the driver's VA-space lock for writing: they wait for migrations under
//! way, and fault service waits for them (facts 4.7). What they are good for together is `deepum_core::steps`'s.
//!
//! The one struct that changed is that of `UVM_SET_PREFERRED_LOCATION`: from 550 on a NUMA node lies where the status was, and the status behind it. One buffer serves
//! both: both words are 1, which is no status that occurs, and no node is looked at where a GPU is preferred; afterwards the first word is the
//! status if it changed, else the second.

use crate::attach::Gpu;
use crate::migrate::{MigrateFailure, VaSpace};
use crate::raw::{self, Params, RequestError};
use crate::sys::{self, NvStatus, Uuid, request};
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId};
use std::mem::offset_of;

/// What the driver is told of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Whether what is copied stays where it was, too.
    Duplicate(bool),
    /// The GPU where it had better be, if any.
    Prefer(Option<DeviceId>),
    /// Whether this GPU accesses it: its pages there are mapped for writing, if they have one copy.
    AccessedBy(DeviceId, bool),
}

/// Advice that was not taken.
#[derive(Debug, thiserror::Error)]
#[error("cannot tell the driver {advice:?} of {} at {:?}: {why}", range.len, range.start)]
pub struct AdviseError {
    /// About what.
    pub range: AddrRange,
    /// What.
    pub advice: Advice,
    /// Why it was not.
    pub why: MigrateFailure,
}

/// Nobody's memory: the page behind the first.
const NOBODYS: AddrRange = AddrRange::new(DevAddr(0x1000), Bytes(0x1000));

impl VaSpace {
    /// Tells the driver about all of `range`, whole blocks of managed memory.
    ///
    /// # Errors
    /// [`AdviseError`]. It may hold for part of the range then.
    pub fn advise(&self, range: AddrRange, advice: Advice) -> Result<(), AdviseError> {
        let fail = |why| AdviseError { range, advice, why };
        let uuid = |device| {
            let gpu = self.gpus.iter().find(|gpu: &&Gpu| gpu.id == device);
            gpu.map(|gpu| gpu.uuid).ok_or_else(|| fail(MigrateFailure::NoDevice))
        };
        let (number, uuid) = match advice {
            Advice::Duplicate(true) => (request::ENABLE_READ_DUPLICATION, None),
            Advice::Duplicate(false) => (request::DISABLE_READ_DUPLICATION, None),
            Advice::Prefer(None) => (request::UNSET_PREFERRED_LOCATION, None),
            Advice::Prefer(Some(device)) => (request::SET_PREFERRED_LOCATION, Some(uuid(device)?)),
            Advice::AccessedBy(device, true) => (request::SET_ACCESSED_BY, Some(uuid(device)?)),
            Advice::AccessedBy(device, false) => (request::UNSET_ACCESSED_BY, Some(uuid(device)?)),
        };
        self.tell(number, range, uuid).map_err(|e| {
            fail(match e.status() {
                Some(NvStatus::NO_MEMORY) => MigrateFailure::NoMemory,
                Some(NvStatus::INVALID_ADDRESS) => MigrateFailure::NotManaged,
                Some(NvStatus::INVALID_DEVICE) => MigrateFailure::NoDevice,
                _ => MigrateFailure::Other(e),
            })
        })
    }

    /// Whether the driver can keep two copies of memory, or the line that says why not. Asks it: about memory that is nobody's, which it must say.
    ///
    /// # Errors
    /// The line.
    pub fn duplicates(&self) -> Result<(), String> {
        self.known.clone()?;
        match self.tell(request::DISABLE_READ_DUPLICATION, NOBODYS, None) {
            Err(e) if e.status() == Some(NvStatus::INVALID_ADDRESS) => Ok(()),
            Err(e) => Err(format!("this driver cannot be asked to keep two copies of memory: {e}")),
            Ok(()) => Err("this driver keeps two copies of memory that is nobody's; it is not asked to".to_owned()),
        }
    }

    pub(crate) fn tell(&self, number: u32, range: AddrRange, uuid: Option<Uuid>) -> Result<(), RequestError> {
        let mut params = Params::default();
        params.put_u64(offset_of!(sys::Policy, base), range.start.get());
        params.put_u64(offset_of!(sys::Policy, length), range.len.get());
        if let Some(uuid) = uuid {
            params.put_uuid(offset_of!(sys::PolicyOf, uuid), uuid);
        }
        let first = offset_of!(sys::Prefer515, rm_status);
        if number == request::SET_PREFERRED_LOCATION {
            params.put_u32(first, 1);
            params.put_u32(offset_of!(sys::Prefer550, rm_status), 1);
        }
        // SAFETY: the only addresses are of the program's managed memory, or nobody's, which the driver checks: it changes mappings, and gives up
        // copies of pages of which it has others.
        unsafe {
            raw::call(&*self.kernel, self.descriptor(), number, &mut params, |p| match number {
                request::SET_PREFERRED_LOCATION if p.u32(first) == 1 => p.u32(offset_of!(sys::Prefer550, rm_status)),
                request::SET_PREFERRED_LOCATION => p.u32(first),
                _ if uuid.is_some() => p.u32(offset_of!(sys::PolicyOf, rm_status)),
                _ => p.u32(offset_of!(sys::Policy, rm_status)),
            })
        }
    }
}
