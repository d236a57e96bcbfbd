//! Advice on whole blocks, and two copies of a page.
//!
//! Problem: what leaves a GPU unchanged need not be copied if its contents are on the host already; and whoever fetches it again may leave
//! them there.
//! Idea: the driver's *read duplication* (facts 4.7), a mode of each block. While it is on, what is copied stays where it was; no copy may be
//! written, so a write faults, and from then on the page is where it was written alone. The driver's own evictions copy only what the
//! host lacks.
//!
//! **A trap**, as the driver's source has it: `UVM_MIGRATE` to a GPU maps a page for writing if no processor maps it, also if the host keeps a copy. The
//! host maps what a migrate brought there, but not what the driver evicted. Whoever wants to rely on the mode migrates to the host
//! first, which then has nothing to copy, and so does `deepum_core::steps`. Here the page is not `read_only` then, and nobody hears of its writes.
//!
//! **Rights outlive the mode.** To end it leaves the GPU's pages as they were mapped: for reading. [`Advice::AccessedBy`] maps them anew.
//!
//! **The lock.** Advice takes the VA-space lock for writing: it waits for migrations, which hold it for reading until they return, and whoever
//! comes meanwhile waits for it: migrations, discards, and fault service.
//!
//! **Blocks that stay** ([`crate::groups`]). To prefer the host for one that is in a group that does not migrate moves it there; to prefer nothing takes it out of that group.
//!
//! Not modelled: advice on parts of blocks, which the driver splits; a preferred location beyond which copy outlives the mode; pages that a device reads
//! where another one has them; the time that a range takes to be split.

use crate::chunks::List;
use crate::groups::Group;
use crate::memory::{ModelError, UnifiedMemory};
use crate::notice::PageOp;
use crate::pages::{PAGES, PageMask};
use crate::residency::device_at;
use deepum_core::units::{AddrRange, DeviceId, Nanos, Place, UmBlock};

/// What the driver can be told of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// `UVM_ENABLE_READ_DUPLICATION`, or `DISABLE`: one copy of each page outlives it, that of the preferred device, else the host's.
    Duplicate(bool),
    /// `UVM_SET_PREFERRED_LOCATION`, or `UNSET`.
    Prefer(Option<Place>),
    /// `UVM_SET_ACCESSED_BY`, or `UNSET`: set, the device may write what it has, unless the mode is on.
    AccessedBy(DeviceId, bool),
}

/// The VA-space lock, which has no more state than until when it is held.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct SpaceLock {
    readers_until: Nanos,
    writer_until: Nanos,
}

impl SpaceLock {
    /// From when whoever comes at `now` has it for reading.
    pub(crate) fn reads(&self, now: Nanos) -> Nanos {
        now.max(self.writer_until)
    }
    /// From when whoever comes at `now` has it for writing.
    pub(crate) fn writes(&self, now: Nanos) -> Nanos {
        self.reads(now).max(self.readers_until)
    }
    /// A writer has it until then.
    pub(crate) fn write_until(&mut self, until: Nanos) {
        self.writer_until = until;
    }
    /// A reader has it until then.
    pub(crate) fn read_until(&mut self, until: Nanos) {
        self.readers_until = self.readers_until.max(until);
    }
}

impl UnifiedMemory {
    /// Tells the driver about the blocks of `range`. Answers when the call returns. Costs the call, and one block cost for each block whose copies or
    /// mappings change; and to prefer the host no more, the marking of each page that it has.
    ///
    /// # Errors
    /// [`ModelError::NotManaged`], [`ModelError::NoDevice`], [`ModelError::PartOfBlock`], [`ModelError::Stays`]: nothing has changed then.
    /// [`ModelError::OutOfMemory`], if blocks that stay had to move.
    pub fn advise(&mut self, range: AddrRange, advice: Advice, now: Nanos) -> Result<Nanos, ModelError> {
        let slots = self.whole_blocks(range)?;
        let mut stay: Vec<usize> = slots.iter().copied().filter(|&slot| self.stays(slot)).collect();
        if let Advice::Prefer(Some(Place::Device(device))) | Advice::AccessedBy(device, _) = advice {
            self.device_index(device)?;
        }
        if let (Advice::Prefer(Some(Place::Device(_))), false) = (advice, stay.is_empty()) {
            return Err(ModelError::Stays { range });
        }
        let mut cpu = self.lock.writes(now) + self.profile.ioctl_cost;
        for slot in slots {
            if advice == Advice::Prefer(None) && self.blocks[slot].preferred == Some(Place::Host) {
                let dirty = u64::from(self.blocks[slot].host.count());
                cpu += Nanos(self.profile.mark_dirty_cost.0 * dirty / u64::from(PAGES));
            }
            let changed = match advice {
                Advice::Duplicate(true) => self.begin_duplicating(slot),
                Advice::Duplicate(false) => self.end_duplicating(slot),
                Advice::Prefer(place) => self.prefer(slot, place),
                Advice::AccessedBy(device, true) => self.map_again(usize::from(device.0), slot),
                Advice::AccessedBy(_, false) => false,
            };
            if changed {
                cpu += self.profile.block_cost;
            }
        }
        if !matches!(advice, Advice::Prefer(Some(_))) {
            stay.clear();
        }
        Ok(self.go_home(stay, cpu)?.done)
    }

    /// The slots of the blocks that make up `range`.
    pub(crate) fn whole_blocks(&self, range: AddrRange) -> Result<Vec<usize>, ModelError> {
        self.check(range)?;
        if [range.start, range.end()].iter().any(|edge| !edge.0.is_multiple_of(UmBlock::SIZE.0)) {
            return Err(ModelError::PartOfBlock { range });
        }
        Ok(range.blocks().filter_map(|block| self.space.slot(block)).collect())
    }

    /// No mapping changes: who has the host's pages mapped from afar keeps them so.
    fn prefer(&mut self, slot: usize, place: Option<Place>) -> bool {
        let before = std::mem::replace(&mut self.blocks[slot].preferred, place);
        if before.is_some() && place.is_none() && self.stays(slot) {
            self.blocks[slot].group = Group::NONE;
        }
        false
    }

    /// Whether copies of the block's pages are kept where they were.
    #[must_use]
    pub fn is_duplicated(&self, block: UmBlock) -> bool {
        self.space.slot(block).is_some_and(|slot| self.blocks[slot].duplicated)
    }

    /// Where the block is preferred, if anywhere.
    #[must_use]
    pub fn preferred(&self, block: UmBlock) -> Option<Place> {
        self.blocks[self.space.slot(block)?].preferred
    }

    /// Takes the right to write from whoever has the block's pages.
    fn begin_duplicating(&mut self, slot: usize) -> bool {
        let mut revoked = false;
        if std::mem::replace(&mut self.blocks[slot].duplicated, true) {
            return revoked;
        }
        for device in &mut self.devices {
            let on = &mut device.on[slot];
            on.afar = PageMask::EMPTY;
            if !on.resident.is_empty() {
                on.read_only = on.resident;
                device.chunks.put(slot, List::Used);
                revoked = true;
            }
        }
        revoked
    }

    fn end_duplicating(&mut self, slot: usize) -> bool {
        std::mem::replace(&mut self.blocks[slot].duplicated, false) && self.one_copy(slot, PageMask::span(0, PAGES))
    }

    /// Of `pages` one copy is left: the preferred one, else the host's, else the first device's. Whether there was another one.
    pub(crate) fn one_copy(&mut self, slot: usize, pages: PageMask) -> bool {
        let preferred = self.blocks[slot].preferred.map(|place| match place {
            Place::Host => None,
            Place::Device(device) => Some(usize::from(device.0)),
        });
        let devices = (0..self.devices.len()).map(Some);
        let mut changed = false;
        for keep in preferred.into_iter().chain([None]).chain(devices) {
            let several = self.collapse(slot, pages, keep);
            if let Some(d) = keep.filter(|_| several) {
                self.devices[d].chunks.put(slot, List::Used);
            }
            changed |= several;
        }
        changed
    }

    /// Device `d` may write what it alone has of the block.
    fn map_again(&mut self, d: usize, slot: usize) -> bool {
        let mapped = std::mem::take(&mut self.devices[d].on[slot].read_only);
        if self.blocks[slot].duplicated {
            self.devices[d].on[slot].read_only = mapped;
            return false;
        }
        !mapped.is_empty()
    }

    /// A kernel on device `d` writes `pages`, which are there, where it may not: it may from now on, and they are nowhere else.
    pub(crate) fn overwritten(&mut self, d: usize, slot: usize, pages: PageMask, cpu: &mut Nanos) {
        if self.blocks[slot].mapped.meets(&pages) {
            *cpu += self.profile.host_unmap_cost;
        }
        self.collapse(slot, pages, Some(d));
        let device = &mut self.devices[d];
        let read_only = &mut device.on[slot].read_only;
        *read_only = read_only.without(pages);
        device.totals.pages_overwritten += u64::from(pages.count());
        device.chunks.put(slot, List::Used);
    }

    /// Those of `pages` that are at `keep` are nowhere else from now on. Whether any was.
    pub(crate) fn collapse(&mut self, slot: usize, pages: PageMask, keep: Option<usize>) -> bool {
        let block = self.blocks[slot].id;
        let kept = keep.map_or(Place::Host, device_at);
        let there = pages & self.at(slot, keep);
        let mut any = false;
        for other in (0..self.devices.len()).map(Some).chain([None]).filter(|other| *other != keep) {
            let here = there & self.at(slot, other);
            if here.is_empty() {
                continue;
            }
            any = true;
            match other {
                Some(o) => {
                    let until = self.devices[o].on[slot].arrives;
                    self.devices[o].totals.bytes_forgotten += here.bytes();
                    self.leave(o, slot, here, until);
                }
                None => self.leave_host(slot, here),
            }
            let place = other.map_or(Place::Host, device_at);
            self.op(here, |pages| PageOp::Forgotten { block, pages, place, kept });
        }
        if any && keep.is_none() {
            self.leaves_for_host(slot, false);
        }
        any
    }

    /// The block's pages on a device, or on the host.
    pub(crate) fn at(&self, slot: usize, place: Option<usize>) -> PageMask {
        place.map_or(self.blocks[slot].host, |d| self.devices[d].on[slot].resident)
    }
}
