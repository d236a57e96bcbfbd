//! What the driver does to the pages of one block: bring them to a device, to the host, or take the chunk away.
//!
//! All functions are given `cpu`, the clock of the driver thread that does the work, and advance it by what the
//! work costs that thread. Copies are only ordered: they start when their engine is free and their source and
//! destination are (facts 4.2 and 5: a copy in waits for the copy out of its chunk, the thread does not).

use crate::chunks::List;
use crate::engines::time_of;
use crate::groups::Group;
use crate::memory::{ModelError, OnDevice, UnifiedMemory};
use crate::notice::{Notice, PageOp};
use crate::pages::{PAGE, PAGES, PageMask};
use deepum_core::event::MigrationCause;
use deepum_core::units::{AddrRange, Bytes, DeviceId, Nanos, Place, UmBlock};

/// The device with this index. There are at most 255 of them.
#[expect(clippy::cast_possible_truncation, reason = "devices are counted in a u8 where they are made")]
pub(crate) fn device_at(index: usize) -> Place {
    Place::Device(DeviceId(index as u8))
}

/// Pages that are not on a device, and are to come there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// The ones that somebody asks for.
    pub(crate) pages: PageMask,
    /// The ones that come along; none of the others.
    pub(crate) along: PageMask,
    /// Those of them that are written.
    pub(crate) written: PageMask,
}

/// How pages are copied.
#[derive(Clone, Copy, Debug)]
struct Copying {
    cause: MigrationCause,
    /// Not before.
    earliest: Nanos,
    /// Those that stay where they were, too.
    kept: PageMask,
}

impl UnifiedMemory {
    /// Takes one root chunk from the block that is next in eviction order; the answer is from when the chunk
    /// may be written. Nothing has changed if there is none, or no room for its contents on the host.
    pub(crate) fn take_chunk(&mut self, d: usize, cpu: &mut Nanos) -> Result<Nanos, ModelError> {
        let device = &self.devices[d];
        let Some(victim) = device.chunks.victim() else {
            let place = device_at(d);
            return Err(ModelError::OutOfMemory { place, wanted: UmBlock::SIZE, free: Bytes::ZERO });
        };
        let on = device.on[victim];
        let dropped = on.resident & self.blocks[victim].discarded;
        let copied = on.resident.without(dropped).without(self.blocks[victim].host);
        let (to_ssd, room) = self.room_for_copies(victim, copied, *cpu)?;
        let block = self.blocks[victim].id;
        let mut free_at = on.chunk_free;
        if !on.resident.is_empty() {
            *cpu += self.profile.evict_cost;
            free_at = free_at.max(on.arrives);
        }
        if copied.is_empty() {
            self.devices[d].totals.free_evictions += 1;
        } else {
            self.devices[d].totals.evictions += 1;
            let (cause, earliest) = (MigrationCause::Eviction, free_at.max(*cpu).max(room));
            free_at = self.copy_out(d, victim, copied, to_ssd, Copying { cause, earliest, kept: PageMask::EMPTY });
        }
        self.op(dropped, |pages| PageOp::Dropped { block, pages, place: device_at(d) });
        self.devices[d].totals.bytes_discarded += dropped.bytes();
        self.revoke(d, victim, copied | dropped, free_at);
        // The driver does not tell what else has a copy: the host alone keeps one.
        self.collapse(victim, on.resident, None);
        let device = &mut self.devices[d];
        device.on[victim] = OnDevice { afar: on.afar, ..OnDevice::default() };
        device.chunks.unlink(victim);
        Ok(free_at)
    }

    /// Brings what is wanted to device `d` and marks its chunk as most recently used. `cause` is that of what was asked for; the rest came with the
    /// prefetcher. What comes is discarded no longer. Of a duplicated block only what is `written` leaves where it was, and what was discarded. The answer is when
    /// the last page has arrived.
    pub(crate) fn bring_in(
        &mut self,
        d: usize,
        slot: usize,
        Wanted { pages, along, written }: Wanted,
        cause: MigrationCause,
        cpu: &mut Nanos,
    ) -> Result<Nanos, ModelError> {
        if self.devices[d].chunks.list_of(slot).is_none() {
            let full = self.devices[d].chunks.held() >= self.devices[d].chunk_capacity();
            let free_at = if full { self.take_chunk(d, cpu)? } else { Nanos::ZERO };
            self.devices[d].on[slot].chunk_free = free_at;
        }
        self.devices[d].chunks.put(slot, List::Used);
        let wanted = pages | along;
        self.catch_up(*cpu);
        let block = &self.blocks[slot];
        let duplicated = block.duplicated;
        let kept = if duplicated { wanted.without(written).without(block.discarded) } else { PageMask::EMPTY };
        let others = (0..self.devices.len()).filter(|&o| o != d);
        let mapped = others.fold(block.mapped, |mapped, o| mapped | self.devices[o].on[slot].resident);
        let read_only = match cause {
            MigrationCause::User => kept & mapped,
            _ if duplicated => wanted.without(written),
            // The trap of facts 4.3.
            _ => self.given_up(slot, wanted).without(written),
        };
        if block.host_mapped && block.mapped.meets(&wanted.without(kept)) {
            *cpu += self.profile.host_unmap_cost;
            self.blocks[slot].host_mapped = false;
        }
        let earliest = self.devices[d].on[slot].chunk_free.max(*cpu);
        let mut arrives = earliest;
        for (set, cause) in [(pages, cause), (along, MigrationCause::Prefetch)] {
            if !set.is_empty() {
                arrives = arrives.max(self.bring_set(d, slot, set, Copying { cause, earliest, kept }));
            }
        }
        let discarded = &mut self.blocks[slot].discarded;
        *discarded = discarded.without(wanted);
        let device = &mut self.devices[d];
        let on = &mut device.on[slot];
        if on.arrives <= *cpu {
            on.in_flight = PageMask::EMPTY;
        }
        if !wanted.is_empty() {
            on.in_flight = on.in_flight | wanted;
            on.arrives = on.arrives.max(arrives);
        }
        on.resident = on.resident | wanted;
        on.read_only = on.read_only | read_only;
        device.managed += wanted.bytes();
        device.totals.peak_managed = device.totals.peak_managed.max(device.managed);
        if duplicated {
            self.collapse(slot, wanted & written, Some(d));
        }
        Ok(arrives)
    }

    /// Those of the pages whose contents were given up, and that are nowhere.
    fn given_up(&self, slot: usize, pages: PageMask) -> PageMask {
        let block = &self.blocks[slot];
        let gone = (pages & block.discarded).without(block.host);
        self.devices.iter().fold(gone, |gone, d| gone.without(d.on[slot].resident))
    }

    /// Pages from wherever they are: the host, other devices, or nowhere (then they become zeros). Those `kept` stay there.
    fn bring_set(&mut self, d: usize, slot: usize, set: PageMask, copying: Copying) -> Nanos {
        let Copying { cause, earliest, kept } = copying;
        let (id, group, to) = (self.blocks[slot].id, self.blocks[slot].group, device_at(d));
        let mut arrives = earliest;
        let mut nowhere = set;

        let from_host = set & self.blocks[slot].host;
        if !from_host.is_empty() {
            nowhere = nowhere.without(from_host);
            let block = &self.blocks[slot];
            let stale = from_host & block.discarded;
            let start = earliest.max(block.host_arrives);
            let copied = from_host.without(stale);
            let on_ssd = copied & block.ssd;
            for (set, reads) in [(copied.without(on_ssd), false), (on_ssd, true)] {
                for (first, len) in set.runs() {
                    let range = pages_of(id, first, len);
                    let device = &mut self.devices[d];
                    let (begin, mut end) = device.h2d.copy(start, range.len);
                    device.totals.bytes_in.add(cause, range.len);
                    if let Some(drive) = self.drive.as_mut().filter(|_| reads) {
                        end = drive.beside(true, begin, end, range.len);
                        device.totals.bytes_ssd_in += range.len;
                    }
                    arrives = arrives.max(end);
                    self.notices.push(Notice::Migration { range, from: Place::Host, to, cause, group, begin, end });
                }
            }
            if let Some(cache) = &mut self.cache {
                cache.returns(slot, earliest);
            }
            self.leave_host(slot, from_host.without(kept));
            self.op(copied.without(kept), |pages| PageOp::Moved { block: id, pages, from: Place::Host, to });
            self.op(copied & kept, |pages| PageOp::Copied { block: id, pages, from: Place::Host, to });
            self.op(stale, |pages| PageOp::MovedDiscarded { block: id, pages, from: Place::Host, to });
        }
        for other in (0..self.devices.len()).filter(|&o| o != d) {
            let here = nowhere & self.devices[other].on[slot].resident;
            if here.is_empty() {
                continue;
            }
            nowhere = nowhere.without(here);
            arrives = arrives.max(self.copy_across(other, d, slot, here, copying));
        }
        if !nowhere.is_empty() {
            // The driver clears new pages with the copy engine's memset (facts 4.3), at memory speed.
            arrives = arrives.max(earliest + time_of(nowhere.bytes(), self.profile.memory_bandwidth));
            self.devices[d].totals.bytes_populated += nowhere.bytes();
            self.op(nowhere, |pages| PageOp::Populated { block: id, pages, place: to });
        }
        arrives
    }

    /// Copies pages between devices: both ends are busy, at the speed of the link to the destination.
    fn copy_across(
        &mut self,
        source: usize,
        d: usize,
        slot: usize,
        pages: PageMask,
        Copying { cause, earliest, kept }: Copying,
    ) -> Nanos {
        let (id, from, to) = (self.blocks[slot].id, device_at(source), device_at(d));
        let group = self.blocks[slot].group;
        let stale = pages & self.blocks[slot].discarded;
        let copied = pages.without(stale);
        let mut arrives = earliest.max(self.devices[source].on[slot].arrives);
        for (first, len) in copied.runs() {
            let range = pages_of(id, first, len);
            let start = arrives.max(self.devices[source].d2h.free_at());
            let (begin, end) = self.devices[d].h2d.copy(start, range.len);
            self.devices[source].d2h.occupy(end);
            self.devices[d].totals.bytes_in.add(cause, range.len);
            arrives = end;
            self.notices.push(Notice::Migration { range, from, to, cause, group, begin, end });
        }
        self.op(copied.without(kept), |pages| PageOp::Moved { block: id, pages, from, to });
        self.op(copied & kept, |pages| PageOp::Copied { block: id, pages, from, to });
        self.op(stale, |pages| PageOp::MovedDiscarded { block: id, pages, from, to });
        self.leave(source, slot, pages.without(kept), arrives);
        let read_only = &mut self.devices[source].on[slot].read_only;
        *read_only = *read_only | (pages & kept);
        arrives
    }

    /// Brings pages to the host because somebody asked for it; nothing is mapped there. Of a duplicated block what is on a device stays there. The
    /// answer is when they have arrived.
    pub(crate) fn bring_home(
        &mut self,
        slot: usize,
        pages: PageMask,
        cause: MigrationCause,
        cpu: Nanos,
    ) -> Result<Nanos, ModelError> {
        let (to_ssd, room) = self.room_for_copies(slot, pages, cpu)?;
        let (id, duplicated) = (self.blocks[slot].id, self.blocks[slot].duplicated);
        let mut arrives = cpu;
        let mut nowhere = pages.without(self.blocks[slot].host);
        for d in 0..self.devices.len() {
            let on = self.devices[d].on[slot];
            let here = pages & on.resident;
            if here.is_empty() {
                continue;
            }
            nowhere = nowhere.without(here);
            let stale = here & self.blocks[slot].discarded;
            let start = cpu.max(on.arrives).max(on.chunk_free).max(room);
            let copied = here.without(stale).without(self.blocks[slot].host);
            let kept = if duplicated { copied } else { PageMask::EMPTY };
            let copying = Copying { cause, earliest: start, kept };
            let end = self.copy_out(d, slot, copied, to_ssd, copying);
            self.op(stale, |pages| PageOp::MovedDiscarded { block: id, pages, from: device_at(d), to: Place::Host });
            self.devices[d].totals.bytes_discarded += stale.bytes();
            if duplicated {
                self.leave(d, slot, stale, end);
                let read_only = &mut self.devices[d].on[slot].read_only;
                *read_only = *read_only | copied;
            } else {
                self.leave(d, slot, here, end);
            }
            arrives = arrives.max(end);
        }
        self.op(nowhere, |pages| PageOp::Populated { block: id, pages, place: Place::Host });
        let block = &mut self.blocks[slot];
        block.host = block.host | pages;
        block.discarded = block.discarded.without(pages);
        Ok(arrives)
    }

    /// Pages that were on a device are there no longer, its chunk being read until `until`.
    pub(crate) fn revoke(&mut self, d: usize, slot: usize, pages: PageMask, until: Nanos) {
        let device = &mut self.devices[d];
        let on = &mut device.on[slot];
        device.managed -= (on.resident & pages).bytes();
        on.resident = on.resident.without(pages);
        on.in_flight = on.in_flight.without(pages);
        on.read_only = on.read_only.without(pages);
        on.chunk_free = on.chunk_free.max(until);
    }

    /// Pages have moved away from a device. A chunk that holds nothing any more goes to the unused list (facts 4.1).
    pub(crate) fn leave(&mut self, d: usize, slot: usize, pages: PageMask, until: Nanos) {
        self.revoke(d, slot, pages, until);
        let device = &mut self.devices[d];
        if device.on[slot].resident.is_empty() && device.chunks.list_of(slot).is_some_and(|l| l != List::Unused) {
            device.chunks.put(slot, List::Unused);
        }
    }

    /// Copies pages to the host and records them there; what remains on the device is the caller's business.
    fn copy_out(
        &mut self,
        d: usize,
        slot: usize,
        pages: PageMask,
        to_ssd: bool,
        Copying { cause, earliest, kept }: Copying,
    ) -> Nanos {
        let (id, from) = (self.blocks[slot].id, device_at(d));
        let mut done = earliest;
        for (first, len) in pages.runs() {
            let range = pages_of(id, first, len);
            let device = &mut self.devices[d];
            let (begin, mut end) = device.d2h.copy(earliest, range.len);
            device.totals.bytes_out.add(cause, range.len);
            if let Some(drive) = self.drive.as_mut().filter(|_| to_ssd) {
                end = drive.beside(false, begin, end, range.len);
                device.totals.bytes_ssd_out += range.len;
            }
            done = end;
            let group = if cause == MigrationCause::Eviction { Group::NONE } else { self.blocks[slot].group };
            self.notices.push(Notice::Migration { range, from, to: Place::Host, cause, group, begin, end });
        }
        let block = &mut self.blocks[slot];
        block.host = block.host | pages;
        block.ssd = if to_ssd { block.ssd | pages } else { block.ssd.without(pages) };
        block.host_arrives = block.host_arrives.max(done);
        let to = Place::Host;
        self.op(pages.without(kept), |pages| PageOp::Moved { block: id, pages, from, to });
        self.op(pages & kept, |pages| PageOp::Copied { block: id, pages, from, to });
        done
    }

    /// Host pages for `pages`; those that exist already are used again (facts 4.6). From when there is room; and where there is none, whether they go to the SSD.
    fn room_for_copies(&mut self, slot: usize, pages: PageMask, now: Nanos) -> Result<(bool, Nanos), ModelError> {
        self.catch_up(now);
        let new = pages.without(self.blocks[slot].host_pages);
        let mut room = Nanos::ZERO;
        loop {
            match self.host_room(new.bytes()) {
                Ok(()) => {
                    self.leaves_for_host(slot, !pages.without(self.blocks[slot].host).is_empty());
                    self.host_copies += new.bytes();
                    self.blocks[slot].host_pages = self.blocks[slot].host_pages | new;
                    return Ok((false, room));
                }
                Err(full) if self.drive.is_none() => return Err(full),
                Err(_) => match self.drop_last(slot) {
                    Some(free) => room = room.max(free),
                    None => return Ok((true, Nanos::ZERO)),
                },
            }
        }
    }

    /// Contents are in host memory, or on the SSD, no longer. The driver keeps the host's pages; see [`crate::ssd`].
    pub(crate) fn leave_host(&mut self, slot: usize, pages: PageMask) {
        let block = &mut self.blocks[slot];
        block.host = block.host.without(pages);
        block.mapped = block.mapped.without(pages);
        for device in &mut self.devices {
            let afar = &mut device.on[slot].afar;
            *afar = afar.without(pages);
        }
        block.ssd = block.ssd.without(pages);
        if self.drive.is_some() {
            self.host_copies -= (block.host_pages & pages).bytes();
            block.host_pages = block.host_pages.without(pages);
        }
        if let Some(cache) = self.cache.as_mut().filter(|_| block.host.is_empty()) {
            cache.forget(slot);
        }
    }
}

/// The bytes of a run of pages.
pub(crate) fn pages_of(block: UmBlock, first: u32, len: u32) -> AddrRange {
    debug_assert!(first + len <= PAGES);
    AddrRange::new(block.start().offset(Bytes(u64::from(first) * PAGE)), Bytes(u64::from(len) * PAGE))
}
