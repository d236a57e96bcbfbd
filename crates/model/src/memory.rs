//! Where everything is, and every operation that changes it.
//!
//! This file is the door: options, ranges, device and host memory proper, notices. What the driver does
//! to the pages of one block is in `residency`; whole commands (migrate, discard) in `commands`; advice, and two copies of
//! a page, in `advice`; blocks that stay where they are preferred in `groups`; fault batches in `service`.

use crate::advice::SpaceLock;
use crate::cache::Cache;
use crate::chunks::Chunks;
use crate::engines::Engine;
pub(crate) use crate::error::ModelError;
use crate::groups::{Group, Groups};
use crate::notice::{Notice, PageOp};
use crate::pages::PageMask;
use crate::profile::Profile;
use crate::space::Space;
use crate::ssd::{Drive, Ssd};
use crate::totals::Totals;
use deepum_core::units::{AddrRange, Bytes, DeviceId, Nanos, Place, UmBlock};

/// What a run overrides or asks for beyond its [`Profile`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of identical devices; 0 counts as 1.
    pub devices: u8,
    /// Usable memory of each device (what a program can fill), instead of the card's less the context's share.
    pub memory: Option<Bytes>,
    /// Host memory that pinned memory and host copies of managed pages may take, instead of the profile's.
    pub host_memory: Option<Bytes>,
    /// What takes in what finds no room in host memory.
    pub ssd: Option<Ssd>,
    /// Whether to keep [`PageOp`]s (for devices with real bytes). They must then be taken.
    pub page_ops: bool,
}

impl Default for Options {
    /// One device, nothing overridden, no page operations.
    fn default() -> Self {
        Self { devices: 1, memory: None, host_memory: None, ssd: None, page_ops: false }
    }
}

/// What is known about a block apart from devices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) id: UmBlock,
    /// Pages whose contents are in host memory.
    pub(crate) host: PageMask,
    /// Pages whose contents were given up, wherever they are or are not (facts 4.3: the status is kept per page).
    pub(crate) discarded: PageMask,
    /// Of `host`, those whose contents are on the SSD.
    pub(crate) ssd: PageMask,
    /// Host pages that exist, whether or not they hold the contents (facts 4.6).
    pub(crate) host_pages: PageMask,
    /// Whether the host's page tables map any of it, so that taking it out of them is still to be paid.
    pub(crate) host_mapped: bool,
    /// Of `host`, the pages that the host's page tables map.
    pub(crate) mapped: PageMask,
    /// Whether pages that are copied stay where they were, too ([`crate::advice`]).
    pub(crate) duplicated: bool,
    /// Whose copies outlive the end of that; and where it stays, if its group does not migrate.
    pub(crate) preferred: Option<Place>,
    /// The range group it is in.
    pub(crate) group: Group,
    /// When the last copy into host memory ends.
    pub(crate) host_arrives: Nanos,
}

impl Block {
    const fn new(id: UmBlock) -> Self {
        Self {
            id,
            host: PageMask::EMPTY,
            ssd: PageMask::EMPTY,
            discarded: PageMask::EMPTY,
            host_pages: PageMask::EMPTY,
            host_mapped: false,
            mapped: PageMask::EMPTY,
            duplicated: false,
            preferred: None,
            group: Group::NONE,
            host_arrives: Nanos::ZERO,
        }
    }
}

/// A block's pages on one device.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct OnDevice {
    /// Pages whose contents are on the device, in flight or arrived.
    pub(crate) resident: PageMask,
    /// Of those, the ones whose copy has not ended, unless `arrives` has passed.
    pub(crate) in_flight: PageMask,
    /// Of `resident`, the pages that it may not write without a fault.
    pub(crate) read_only: PageMask,
    /// Pages of the host that it has mapped from afar ([`crate::afar`]): none of them is `resident`.
    pub(crate) afar: PageMask,
    /// When they have all arrived.
    pub(crate) arrives: Nanos,
    /// From when the chunk may be written: copies out of it, for this block or the one before, have ended.
    pub(crate) chunk_free: Nanos,
}

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) usable: Bytes,
    pub(crate) proper: Bytes,
    /// Bytes of managed pages here.
    pub(crate) managed: Bytes,
    pub(crate) chunks: Chunks,
    pub(crate) on: Vec<OnDevice>,
    pub(crate) h2d: Engine,
    pub(crate) d2h: Engine,
    pub(crate) batch: u32,
    pub(crate) totals: Totals,
}

impl Device {
    /// Root chunks that device memory proper leaves.
    pub(crate) fn chunk_capacity(&self) -> u64 {
        self.usable.saturating_sub(self.proper).0 / UmBlock::SIZE.0
    }
}

/// The memory of a node: GPUs, host, and managed memory over both.
#[derive(Debug)]
pub struct UnifiedMemory {
    pub(crate) profile: Profile,
    pub(crate) space: Space,
    pub(crate) blocks: Vec<Block>,
    pub(crate) devices: Vec<Device>,
    pub(crate) host_limit: Bytes,
    pub(crate) host_pinned: Bytes,
    pub(crate) host_copies: Bytes,
    pub(crate) drive: Option<Drive>,
    pub(crate) cache: Option<Cache>,
    pub(crate) lock: SpaceLock,
    pub(crate) groups: Groups,
    pub(crate) notices: Vec<Notice>,
    page_ops: Option<Vec<PageOp>>,
}

impl UnifiedMemory {
    /// A node with empty memories.
    #[must_use]
    pub fn new(profile: &Profile, options: &Options) -> Self {
        let usable = options.memory.unwrap_or(profile.memory - profile.context);
        let device = || Device {
            usable,
            proper: Bytes::ZERO,
            managed: Bytes::ZERO,
            chunks: Chunks::new(),
            on: Vec::new(),
            h2d: Engine::new(profile.h2d_bandwidth, profile.per_transfer),
            d2h: Engine::new(profile.d2h_bandwidth, profile.per_transfer),
            batch: 0,
            totals: Totals::default(),
        };
        Self {
            profile: profile.clone(),
            space: Space::default(),
            blocks: Vec::new(),
            devices: (0..options.devices.max(1)).map(|_| device()).collect(),
            host_limit: options.host_memory.unwrap_or(profile.host_memory),
            host_pinned: Bytes::ZERO,
            host_copies: Bytes::ZERO,
            drive: options.ssd.map(Drive::new),
            cache: options.ssd.filter(|ssd| ssd.cached).map(|_| Cache::default()),
            lock: SpaceLock::default(),
            groups: Groups::default(),
            notices: Vec::new(),
            page_ops: options.page_ops.then(Vec::new),
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
        let made = self.space.map(range).ok_or(ModelError::NotMappable { range })?;
        for (id, slot) in made {
            let slot = slot as usize;
            if slot >= self.blocks.len() {
                self.blocks.resize(slot + 1, Block::new(id));
                for device in &mut self.devices {
                    device.on.resize(slot + 1, OnDevice::default());
                    device.chunks.grow(slot + 1);
                }
            }
            self.blocks[slot] = Block::new(id);
        }
        Ok(())
    }

    /// Ends a managed range: chunks and host pages are free at once. `range` is as it was mapped.
    ///
    /// # Errors
    /// [`ModelError::NotManaged`].
    pub fn unmap_managed(&mut self, range: AddrRange) -> Result<(), ModelError> {
        let slots = self.space.unmap(range).ok_or(ModelError::NotManaged { range })?;
        for slot in slots {
            let slot = slot as usize;
            self.host_copies -= self.blocks[slot].host_pages.bytes();
            self.blocks[slot].group = Group::NONE;
            if let Some(cache) = &mut self.cache {
                cache.forget(slot);
            }
            for device in &mut self.devices {
                device.managed -= device.on[slot].resident.bytes();
                device.chunks.unlink(slot);
                device.on[slot] = OnDevice::default();
            }
        }
        Ok(())
    }

    /// Takes `bytes` of device memory proper (pinned; evicts managed blocks, facts 4.2); the answer is when
    /// the room is there.
    ///
    /// # Errors
    /// [`ModelError::OutOfMemory`] (on the host, if victims found no room there; some may have been evicted
    /// then), [`ModelError::NoDevice`].
    pub fn alloc_device(&mut self, device: DeviceId, bytes: Bytes, now: Nanos) -> Result<Nanos, ModelError> {
        let d = self.device_index(device)?;
        let free = self.devices[d].usable.saturating_sub(self.devices[d].proper);
        if bytes > free {
            return Err(ModelError::OutOfMemory { place: Place::Device(device), wanted: bytes, free });
        }
        self.devices[d].proper += bytes;
        let (mut cpu, mut ready) = (now, now);
        while self.devices[d].chunks.held() > self.devices[d].chunk_capacity() {
            match self.take_chunk(d, &mut cpu) {
                Ok(free_at) => ready = ready.max(free_at),
                Err(e) => {
                    self.devices[d].proper -= bytes;
                    return Err(e);
                }
            }
        }
        Ok(ready.max(cpu))
    }

    /// Gives back what [`Self::alloc_device`] took; more than was taken counts as all of it.
    pub fn free_device(&mut self, device: DeviceId, bytes: Bytes) {
        if let Some(device) = self.devices.get_mut(usize::from(device.0)) {
            device.proper = device.proper.saturating_sub(bytes);
        }
    }

    /// Takes pinned host memory.
    ///
    /// # Errors
    /// [`ModelError::OutOfMemory`].
    pub fn alloc_host(&mut self, bytes: Bytes) -> Result<(), ModelError> {
        self.host_room(bytes)?;
        self.host_pinned += bytes;
        Ok(())
    }

    /// Gives back what [`Self::alloc_host`] took; more than was taken counts as all of it.
    pub fn free_host(&mut self, bytes: Bytes) {
        self.host_pinned = self.host_pinned.saturating_sub(bytes);
    }

    /// What a program can fill on a device: memory less the context's share, or the override. Nothing for a
    /// device there is not.
    #[must_use]
    pub fn usable(&self, device: DeviceId) -> Bytes {
        self.devices.get(usize::from(device.0)).map_or(Bytes::ZERO, |d| d.usable)
    }

    /// What is physically free on a device: neither device memory proper nor a root chunk.
    #[must_use]
    pub fn free_on_device(&self, device: DeviceId) -> Bytes {
        self.devices.get(usize::from(device.0)).map_or(Bytes::ZERO, |d| {
            d.usable.saturating_sub(d.proper).saturating_sub(Bytes(d.chunks.held() * UmBlock::SIZE.0))
        })
    }

    /// Blocks that can still come to a device before one with contents has to leave. None for a device there is not.
    #[must_use]
    pub fn room_on_device(&self, device: DeviceId) -> u64 {
        let room = |d: &Device| d.chunk_capacity().saturating_sub(d.chunks.used());
        self.devices.get(usize::from(device.0)).map_or(0, room)
    }

    /// Host memory in use: pinned, and host copies of managed pages (which stay allocated after their pages
    /// moved to a GPU, until their range is freed: facts 4.6).
    #[must_use]
    pub fn host_in_use(&self) -> Bytes {
        self.host_pinned + self.host_copies
    }

    /// A plain copy between the host and a device's memory, on the copy engine of its direction. Answers
    /// when it begins and ends; at once for a device there is not.
    pub fn plain_copy(&mut self, device: DeviceId, to_device: bool, bytes: Bytes, now: Nanos) -> (Nanos, Nanos) {
        let Some(device) = self.devices.get_mut(usize::from(device.0)) else { return (now, now) };
        if to_device {
            device.totals.plain_bytes_in += bytes;
            device.h2d.copy(now, bytes)
        } else {
            device.totals.plain_bytes_out += bytes;
            device.d2h.copy(now, bytes)
        }
    }

    /// The pages of `block` that are at `place`, in flight or arrived.
    #[must_use]
    pub fn pages_at(&self, place: Place, block: UmBlock) -> PageMask {
        let Some(slot) = self.space.slot(block) else { return PageMask::EMPTY };
        match place {
            Place::Host => self.blocks[slot].host,
            Place::Device(device) => {
                self.devices.get(usize::from(device.0)).map_or(PageMask::EMPTY, |d| d.on[slot].resident)
            }
        }
    }

    /// The pages of `block` that the host's page tables map.
    #[must_use]
    pub fn mapped_on_host(&self, block: UmBlock) -> PageMask {
        self.space.slot(block).map_or(PageMask::EMPTY, |slot| self.blocks[slot].mapped)
    }

    /// The pages of `block` that the host has, and no device.
    #[must_use]
    pub fn only_on_host(&self, block: UmBlock) -> PageMask {
        let Some(slot) = self.space.slot(block) else { return PageMask::EMPTY };
        self.devices.iter().fold(self.blocks[slot].host, |pages, device| pages.without(device.on[slot].resident))
    }

    /// The pages of `block` that the host has, and a device that may not write them.
    #[must_use]
    pub fn with_two_copies(&self, block: UmBlock) -> PageMask {
        let Some(slot) = self.space.slot(block) else { return PageMask::EMPTY };
        let refused = self.devices.iter().fold(PageMask::EMPTY, |pages, device| pages | device.on[slot].read_only);
        self.blocks[slot].host & refused
    }

    /// Hands over the notices with a time up to `until`, in order of time (and of making, at equal times).
    pub fn take_notices(&mut self, until: Nanos, out: &mut Vec<Notice>) {
        let before = out.len();
        self.notices.retain(|notice| {
            let due = notice.at() <= until;
            if due {
                out.push(*notice);
            }
            !due
        });
        out[before..].sort_by_key(Notice::at);
    }

    /// Hands over the page operations so far, in order.
    pub fn take_page_ops(&mut self, out: &mut Vec<PageOp>) {
        if let Some(ops) = &mut self.page_ops {
            out.append(ops);
        }
    }

    /// Sums of one device; zeros for a device there is not.
    #[must_use]
    pub fn totals(&self, device: DeviceId) -> Totals {
        self.devices.get(usize::from(device.0)).map_or_else(Totals::default, |d| d.totals)
    }

    pub(crate) fn device_index(&self, device: DeviceId) -> Result<usize, ModelError> {
        let index = usize::from(device.0);
        (index < self.devices.len()).then_some(index).ok_or(ModelError::NoDevice { device })
    }

    pub(crate) fn host_room(&self, wanted: Bytes) -> Result<(), ModelError> {
        let free = self.host_limit.saturating_sub(self.host_in_use());
        if wanted > free {
            return Err(ModelError::OutOfMemory { place: Place::Host, wanted, free });
        }
        Ok(())
    }

    /// Notes a page operation, if anybody wants them and there are pages.
    pub(crate) fn op(&mut self, pages: PageMask, op: impl FnOnce(PageMask) -> PageOp) {
        if let Some(ops) = &mut self.page_ops
            && !pages.is_empty()
        {
            ops.push(op(pages));
        }
    }
}
