//! Moving pages and giving up their contents: `UVM_MIGRATE` and `UVM_DISCARD` on the process's address space.
//!
//! Whoever moves waits until the bytes are there, on a thread that has nothing else to do: in the driver, or by a look at a word that is written then ([`crate::semaphores`]).
//! What comes onto a GPU is asked for in several calls that do not wait themselves (`deepum_core::steps`).
//! Ask for 2 to 32 MiB at a time: a longer range cannot be called back when a fault overtakes it, a shorter one pays the
//! fixed cost too often (facts 4.1). For blocks that are where they shall be, the call is the touch
//! that makes the driver evict them last (facts 4.2).
//!
//! A discard is the form that unmaps (facts 4.3): the pages are nowhere afterwards, room is made without a copy, and whoever writes
//! there next gets fresh ones. The other form leaves pages mapped whose every later access is undefined; it is not offered.
//! That nobody uses the contents, nor begins to before the call returns, is the caller's to see to.

use crate::attach::{Gpu, place_of, uuid_table};
use crate::raw::{self, Kernel, Params, RequestError};
use crate::sys::{self, NvStatus, Uuid, request};
use crate::version::Support;
use deepum_core::units::{AddrRange, DeviceId, Place};
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A process's UVM address space.
#[derive(Debug)]
pub struct VaSpace {
    pub(crate) kernel: Arc<dyn Kernel>,
    fd: OwnedFd,
    pub(crate) gpus: Vec<Gpu>,
    discards: Result<(), String>,
    /// Whether the driver is known, or why it is not asked for its policies.
    pub(crate) known: Result<(), String>,
}

/// A migration that did not happen.
#[derive(Debug, thiserror::Error)]
#[error("cannot move {} at {:?} to {}: {why}", range.len, range.start, name(*to))]
pub struct MigrateError {
    /// What was to move.
    pub range: AddrRange,
    /// Where to.
    pub to: Place,
    /// Why it did not.
    pub why: MigrateFailure,
}

fn name(place: Place) -> String {
    match place {
        Place::Host => "host memory".to_owned(),
        Place::Device(id) => format!("GPU {}", id.0),
    }
}

/// Why a migration did not happen.
#[derive(Debug, thiserror::Error)]
pub enum MigrateFailure {
    /// Neither the GPU nor the host has room.
    #[error("no memory left there")]
    NoMemory,
    /// Part of it is no managed memory (any more): the program freed it meanwhile.
    #[error("not managed memory, or freed meanwhile")]
    NotManaged,
    /// The device is none of this process's.
    #[error("no such device in this address space")]
    NoDevice,
    /// Anything else.
    #[error("{0}")]
    Other(RequestError),
}

impl From<RequestError> for MigrateFailure {
    fn from(e: RequestError) -> Self {
        match e.status() {
            Some(NvStatus::NO_MEMORY) => Self::NoMemory,
            Some(NvStatus::INVALID_ADDRESS) => Self::NotManaged,
            Some(NvStatus::INVALID_DEVICE) => Self::NoDevice,
            _ => Self::Other(e),
        }
    }
}

/// A discard that did not happen.
#[derive(Debug, thiserror::Error)]
#[error("cannot give up the contents of {} at {:?}: {why}", range.len, range.start)]
pub struct DiscardError {
    /// Whose contents.
    pub range: AddrRange,
    /// Why they are still there, at least in part.
    pub why: DiscardFailure,
}

/// Why a discard did not happen.
#[derive(Debug, thiserror::Error)]
pub enum DiscardFailure {
    /// The driver was not asked: see [`VaSpace::discards`].
    #[error("{0}")]
    Driver(String),
    /// Part of it is no managed memory (any more): the program freed it meanwhile.
    #[error("not managed memory, or freed meanwhile")]
    NotManaged,
    /// Anything else.
    #[error("{0}")]
    Other(RequestError),
}

impl VaSpace {
    /// Takes `fds[uvm]`, and lets the other descriptors go.
    pub(crate) fn new(
        kernel: Arc<dyn Kernel>,
        mut fds: Vec<OwnedFd>,
        uvm: usize,
        gpus: &[Gpu],
        support: &Support,
    ) -> Self {
        Self {
            kernel,
            fd: fds.swap_remove(uvm),
            gpus: gpus.to_vec(),
            discards: support.can_discard(),
            known: support.can_duplicate(),
        }
    }

    /// Moves all of `range`, whole pages of managed memory, to `to`, and waits until it is there.
    ///
    /// # Errors
    /// [`MigrateError`]. Part of the range may have moved then.
    pub fn migrate(&self, range: AddrRange, to: Place) -> Result<(), MigrateError> {
        self.move_members(range, to, 0)
    }

    /// Moves all of `range`, whole pages of managed memory, to the host, which has mapped it when this returns: a call that does not wait waits for that (facts 4.1). The driver tells of it
    /// later.
    ///
    /// # Errors
    /// As [`Self::migrate`].
    pub fn migrate_home(&self, range: AddrRange) -> Result<(), MigrateError> {
        self.move_members(range, Place::Host, sys::MIGRATE_ASYNC)
    }

    fn move_members(&self, range: AddrRange, to: Place, flags: u32) -> Result<(), MigrateError> {
        match self.move_all(range, to, flags, None) {
            // It is in a group that stays where it is, of somebody who has ended since.
            Err(MigrateError { why: MigrateFailure::Other(e), .. })
                if e.status() == Some(NvStatus::MORE_PROCESSING_REQUIRED) =>
            {
                // If this fails, so does the next.
                let _ = self.tell(request::UNSET_PREFERRED_LOCATION, range, None);
                self.move_all(range, to, flags, None)
            }
            done => done,
        }
    }

    /// Has the driver move all of `range`, whole pages of managed memory, to a GPU, and does not wait for the copies. A kernel that comes sooner faults, and waits; a
    /// later request about a block waits for its copy.
    ///
    /// # Errors
    /// [`MigrateError`]. Part of the range may move then.
    pub fn begin(&self, range: AddrRange, to: DeviceId) -> Result<(), MigrateError> {
        self.move_all(range, Place::Device(to), sys::MIGRATE_ASYNC, None)
    }

    /// `semaphore`: the address of a word of a pool, and what is to be written there.
    pub(crate) fn move_all(
        &self,
        range: AddrRange,
        to: Place,
        flags: u32,
        semaphore: Option<(u64, u32)>,
    ) -> Result<(), MigrateError> {
        let fail = |why| MigrateError { range, to, why };
        let uuid = match to {
            Place::Host => Some(Uuid::CPU),
            Place::Device(id) => self.gpus.iter().find(|gpu| gpu.id == id).map(|gpu| gpu.uuid),
        };
        let uuid = uuid.ok_or_else(|| fail(MigrateFailure::NoDevice))?;
        let mut params = Params::default();
        params.put_u64(offset_of!(sys::Migrate, base), range.start.get());
        params.put_u64(offset_of!(sys::Migrate, length), range.len.get());
        params.put_uuid(offset_of!(sys::Migrate, destination_uuid), uuid);
        params.put_u32(offset_of!(sys::Migrate, flags), flags);
        if let Some((address, payload)) = semaphore {
            params.put_u64(offset_of!(sys::Migrate, semaphore_address), address);
            params.put_u32(offset_of!(sys::Migrate, semaphore_payload), payload);
        }
        // Any node of the host.
        params.put_u32(offset_of!(sys::Migrate, cpu_numa_node), u32::MAX);
        // SAFETY: the only addresses are of the program's managed memory, which the driver checks, as it moves pages between places and changes no byte of them; and of
        // a word of a pool, which it writes to nothing else for, and which is there as long as the address space.
        let done = unsafe {
            raw::call(&*self.kernel, self.fd.as_fd(), request::MIGRATE, &mut params, |p| {
                p.u32(offset_of!(sys::Migrate, rm_status))
            })
        };
        done.map_err(|e| fail(e.into()))
    }

    /// Whether this driver is asked to give up contents, or the line that says why not.
    ///
    /// # Errors
    /// The line.
    pub fn discards(&self) -> Result<(), &str> {
        self.discards.as_ref().map_err(String::as_str).copied()
    }

    /// Gives up the contents of all of `range`, whole pages of managed memory, wherever they are, without a copy. Its pages
    /// are nowhere when this returns; a write brings fresh ones.
    ///
    /// # Errors
    /// [`DiscardError`]. Part of the contents may be gone then. A driver that is not known to have the request is not asked.
    pub fn discard(&self, range: AddrRange) -> Result<(), DiscardError> {
        let fail = |why| DiscardError { range, why };
        self.discards().map_err(|why| fail(DiscardFailure::Driver(why.to_owned())))?;
        let mut params = Params::default();
        params.put_u64(offset_of!(sys::Discard, base), range.start.get());
        params.put_u64(offset_of!(sys::Discard, length), range.len.get());
        params.put_u64(offset_of!(sys::Discard, flags), sys::DISCARD_UNMAP);
        // SAFETY: the only addresses are of the program's managed memory, which the driver checks; nothing of Rust's lies
        // there. That nobody needs the bytes any more is the caller's part, as this function's documentation says.
        let done = unsafe {
            raw::call(&*self.kernel, self.fd.as_fd(), request::DISCARD, &mut params, |p| {
                p.u32(offset_of!(sys::Discard, rm_status))
            })
        };
        done.map_err(|e| {
            fail(match e.status() {
                Some(NvStatus::INVALID_ADDRESS) => DiscardFailure::NotManaged,
                _ => DiscardFailure::Other(e),
            })
        })
    }

    /// The file it is known by.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// How many processors can be ours: the GPUs and the host.
    pub(crate) fn processors(&self) -> usize {
        self.gpus.len() + 1
    }

    /// Whose bytes the processor indexes in notices mean; nothing for processors that are none of ours.
    ///
    /// # Errors
    /// [`RequestError`].
    pub(crate) fn places(&self) -> Result<Vec<Option<Place>>, RequestError> {
        let table = uuid_table(&*self.kernel, self.fd.as_fd())?;
        Ok(table.into_iter().map(|uuid| place_of(uuid, &self.gpus)).collect())
    }
}
