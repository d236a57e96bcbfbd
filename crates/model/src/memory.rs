//! Where everything is, and every operation that changes it. (Bodies follow.)

use crate::notice::{Notice, PageOp};
use crate::pages::PageMask;
use crate::profile::Profile;
use crate::totals::Totals;
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, Nanos, Place, UmBlock};

/// What a run overrides or asks for beyond its [`Profile`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of identical devices, at least 1.
    pub devices: u8,
    /// Usable memory of each device (what a program can fill), instead of the card's less the context's share.
    pub memory: Option<Bytes>,
    /// Host memory that pinned memory and host copies of managed pages may take, instead of the profile's.
    pub host_memory: Option<Bytes>,
    /// Whether to keep [`PageOp`]s (for devices with real bytes). They must then be taken.
    pub page_ops: bool,
}

/// Why an operation was refused. Nothing has changed then.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModelError {
    /// The device or the host has no room left for this many bytes.
    #[error("out of memory on {place:?}: {wanted} asked for, {free} free")]
    OutOfMemory {
        /// Where.
        place: Place,
        /// How much was wanted.
        wanted: Bytes,
        /// How much there is.
        free: Bytes,
    },
    /// Not wholly inside managed ranges.
    #[error("{range:?} is not wholly managed memory")]
    NotManaged {
        /// What was named.
        range: AddrRange,
    },
    /// A range to be mapped that is empty, not made of whole UM blocks, or overlaps a managed range.
    #[error(
        "{range:?} cannot become managed memory: whole 2 MiB blocks that are not managed yet are needed"
    )]
    NotMappable {
        /// What was named.
        range: AddrRange,
    },
    /// No such device.
    #[error("no device {device:?}")]
    NoDevice {
        /// Which.
        device: DeviceId,
    },
}

/// When a migration is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Migrated {
    /// When the driver has done its own work and ordered all copies: an asynchronous call returns here.
    pub ordered: Nanos,
    /// When the last page has arrived: a synchronous call returns here.
    pub done: Nanos,
}

/// The memory of a node: GPUs, host, and managed memory over both.
#[derive(Debug)]
pub struct UnifiedMemory {
    profile: Profile,
}

impl UnifiedMemory {
    /// A node with empty memories.
    #[must_use]
    pub fn new(profile: &Profile, options: &Options) -> Self {
        let _ = options;
        Self {
            profile: profile.clone(),
        }
    }

    /// The profile it was made with.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Makes `range` managed memory; no page is populated.
    ///
    /// # Errors
    /// [`ModelError::NotMappable`].
    pub fn map_managed(&mut self, range: AddrRange) -> Result<(), ModelError> {
        let _ = range;
        todo!()
    }

    /// Ends a managed range: chunks and host pages are free at once. `range` is as it was mapped.
    ///
    /// # Errors
    /// [`ModelError::NotManaged`].
    pub fn unmap_managed(&mut self, range: AddrRange) -> Result<(), ModelError> {
        let _ = range;
        todo!()
    }

    /// The managed range around `addr`, as it was mapped.
    #[must_use]
    pub fn managed_range(&self, addr: DevAddr) -> Option<AddrRange> {
        let _ = addr;
        todo!()
    }

    /// Takes `bytes` of device memory proper (pinned; evicts managed blocks, facts 4.2); the answer is when
    /// the room is there.
    ///
    /// # Errors
    /// [`ModelError::OutOfMemory`], [`ModelError::NoDevice`].
    pub fn alloc_device(
        &mut self,
        device: DeviceId,
        bytes: Bytes,
        now: Nanos,
    ) -> Result<Nanos, ModelError> {
        let _ = (device, bytes, now);
        todo!()
    }

    /// Gives back what [`Self::alloc_device`] took.
    pub fn free_device(&mut self, device: DeviceId, bytes: Bytes) {
        let _ = (device, bytes);
        todo!()
    }

    /// Takes pinned host memory.
    ///
    /// # Errors
    /// [`ModelError::OutOfMemory`].
    pub fn alloc_host(&mut self, bytes: Bytes) -> Result<(), ModelError> {
        let _ = bytes;
        todo!()
    }

    /// Gives back what [`Self::alloc_host`] took.
    pub fn free_host(&mut self, bytes: Bytes) {
        let _ = bytes;
        todo!()
    }

    /// What a program can fill on a device: memory less the context's share, or the override.
    #[must_use]
    pub fn usable(&self, device: DeviceId) -> Bytes {
        let _ = device;
        todo!()
    }

    /// What is physically free on a device: neither device memory proper nor a root chunk.
    #[must_use]
    pub fn free_on_device(&self, device: DeviceId) -> Bytes {
        let _ = device;
        todo!()
    }

    /// Host memory in use: pinned, and host copies of managed pages (which stay allocated after their pages
    /// moved to a GPU, until their range is freed: facts 4.6).
    #[must_use]
    pub fn host_in_use(&self) -> Bytes {
        todo!()
    }

    /// `UVM_MIGRATE` and the prefetch calls: moves every populated page of `range` (whole pages) to `to` and
    /// populates the others there. A block that is already there is put at the tail of the eviction order
    /// (facts 4.2). Costs one call and one block cost each, and the copies.
    ///
    /// # Errors
    /// [`ModelError::NotManaged`], [`ModelError::NoDevice`], [`ModelError::OutOfMemory`] (blocks before the
    /// one that failed have moved, as in the driver).
    pub fn migrate(
        &mut self,
        range: AddrRange,
        to: Place,
        now: Nanos,
    ) -> Result<Migrated, ModelError> {
        let _ = (range, to, now);
        todo!()
    }

    /// `UVM_DISCARD` (facts 4.3): gives up the contents of `range` (whole pages). Answers when the call returns.
    ///
    /// # Errors
    /// [`ModelError::NotManaged`].
    pub fn discard(
        &mut self,
        range: AddrRange,
        unmap: bool,
        now: Nanos,
    ) -> Result<Nanos, ModelError> {
        let _ = (range, unmap, now);
        todo!()
    }

    /// The program's processor reads or writes `range`: its pages come to the host. Answers from when.
    ///
    /// # Errors
    /// [`ModelError::NotManaged`], [`ModelError::OutOfMemory`].
    pub fn host_access(
        &mut self,
        range: AddrRange,
        write: bool,
        now: Nanos,
    ) -> Result<Nanos, ModelError> {
        let _ = (range, write, now);
        todo!()
    }

    /// A plain copy between the host and a device's memory, on the copy engine of its direction. Answers
    /// `(begin, end)`.
    pub fn plain_copy(
        &mut self,
        device: DeviceId,
        to_device: bool,
        bytes: Bytes,
        now: Nanos,
    ) -> (Nanos, Nanos) {
        let _ = (device, to_device, bytes, now);
        todo!()
    }

    /// The pages of `block` that are at `place`, in flight or arrived.
    #[must_use]
    pub fn pages_at(&self, place: Place, block: UmBlock) -> PageMask {
        let _ = (place, block);
        todo!()
    }

    /// Hands over the notices with a time up to `until`, in order of time (and of making, at equal times).
    pub fn take_notices(&mut self, until: Nanos, out: &mut Vec<Notice>) {
        let _ = (until, out);
        todo!()
    }

    /// The time of the earliest notice not handed over yet.
    #[must_use]
    pub fn next_notice(&self) -> Option<Nanos> {
        todo!()
    }

    /// Hands over the page operations so far, in order.
    pub fn take_page_ops(&mut self, out: &mut Vec<PageOp>) {
        let _ = out;
        todo!()
    }

    /// Sums of one device; zeros for a device there is not.
    #[must_use]
    pub fn totals(&self, device: DeviceId) -> Totals {
        let _ = device;
        todo!()
    }
}
