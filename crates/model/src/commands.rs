//! Whole commands: migrate, discard.
//!
//! **Entries in the host's page tables** (facts 4.1, 4.9). A migration to the host enters each page there, one by one, in the calling thread. In one call the copies of all
//! blocks are ordered first. Then block after block is entered, each when its copy is over. So of a long call the entries take the time, and not the copies. What the
//! host has mapped already is not entered again; what the driver evicted, or what left as [`crate::groups`] has it, was never entered.

use crate::chunks::List;
use crate::memory::{ModelError, UnifiedMemory};
use crate::notice::PageOp;
use crate::pages::{PAGE, PAGES, PageMask};
use crate::residency::{Wanted, device_at};
use deepum_core::event::MigrationCause;
use deepum_core::units::{AddrRange, Nanos, Place, UmBlock};

/// When a migration is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Migrated {
    /// When the driver has done its own work and ordered all copies: an asynchronous call returns here.
    pub ordered: Nanos,
    /// When the last page has arrived; of a call that waits, when it returns.
    pub done: Nanos,
    /// Some of it is in a group that does not migrate, and is preferred elsewhere: it was passed by.
    pub skipped: bool,
}

impl UnifiedMemory {
    /// `UVM_MIGRATE` and the prefetch calls: moves every page of `range` (widened to whole pages) to `to`;
    /// pages that are nowhere are populated there. A block that is already on that device is put at the tail of
    /// the eviction order (facts 4.2). Discarded pages are not copied, and count as written from now on
    /// (facts 4.3). Costs the call, a block cost for each of which anything is missing, the copies, and on the host the entries (see the module). Of duplicated blocks nothing leaves
    /// where it was ([`crate::Advice`]). The call waits until all is done, and advice for as long; then it has the driver tell of all moves that are over.
    ///
    /// # Errors
    /// [`ModelError::NotManaged`], [`ModelError::NoDevice`], [`ModelError::OutOfMemory`] (blocks before the
    /// one that failed have moved, as in the driver).
    pub fn migrate(&mut self, range: AddrRange, to: Place, now: Nanos) -> Result<Migrated, ModelError> {
        let (moved, copies) = self.begin_copies(range, to, now)?;
        let there = if copies { self.awaited(moved.ordered, moved.done) } else { moved.done };
        self.lock.read_until(there);
        Ok(Migrated { done: there + self.profile.flush_cost, ..moved })
    }

    /// As [`Self::migrate`], by a call that returns when all is ordered: advice waits for no more than that.
    ///
    /// # Errors
    /// As [`Self::migrate`].
    pub fn begin(&mut self, range: AddrRange, to: Place, now: Nanos) -> Result<Migrated, ModelError> {
        self.begin_copies(range, to, now).map(|(moved, _)| moved)
    }

    /// And whether anything is copied to a device.
    fn begin_copies(&mut self, range: AddrRange, to: Place, now: Nanos) -> Result<(Migrated, bool), ModelError> {
        self.check(range)?;
        let device = match to {
            Place::Host => None,
            Place::Device(device) => Some(self.device_index(device)?),
        };
        let mut cpu = self.lock.reads(now) + self.profile.ioctl_cost;
        let (mut done, mut skipped, mut copies) = (cpu, false, false);
        let mut home = Vec::new();
        for block in range.blocks() {
            let Some(slot) = self.space.slot(block) else { continue };
            let pages = part_of(range, block);
            if self.stays(slot) {
                skipped |= self.blocks[slot].preferred != Some(to);
                continue;
            }
            let missing = pages.without(self.at(slot, device));
            if !missing.is_empty() {
                cpu += self.profile.block_cost;
            }
            copies |= device.is_some() && missing.meets(&self.blocks[slot].host);
            let arrives = match device {
                Some(d) => self.migrate_in(d, slot, pages, MigrationCause::User, &mut cpu)?,
                None => self.bring_home(slot, pages, MigrationCause::User, cpu)?,
            };
            if device.is_none() {
                home.push((slot, pages, arrives));
            }
            done = done.max(arrives);
        }
        // The driver does not come to enter anything if it passed something by.
        for (slot, pages, arrives) in home.into_iter().filter(|_| !skipped) {
            cpu = self.enter(slot, pages, arrives, cpu);
        }
        self.lock.read_until(cpu);
        Ok((Migrated { ordered: cpu, done: done.max(cpu), skipped }, copies))
    }

    /// When a thread that has nothing to do from `idle` on, and waits for copies, is told that they are over.
    pub(crate) fn awaited(&self, idle: Nanos, copied: Nanos) -> Nanos {
        if copied > idle { copied + self.profile.await_cost } else { idle }
    }

    /// Enters pages that have arrived, or arrive then, into the host's page tables. The answer is when that is done.
    fn enter(&mut self, slot: usize, pages: PageMask, arrives: Nanos, cpu: Nanos) -> Nanos {
        let block = &mut self.blocks[slot];
        let new = pages.without(block.mapped);
        if new.is_empty() {
            return cpu;
        }
        block.host_mapped = true;
        block.mapped = block.mapped | new;
        let cost = self.profile.host_map_cost.0 * u64::from(new.count()) / u64::from(PAGES);
        cpu.max(arrives) + Nanos(cost)
    }

    /// Brings pages that are asked for to a device, and marks its chunk as most recently used. The answer is when they have arrived.
    pub(crate) fn migrate_in(
        &mut self,
        d: usize,
        slot: usize,
        pages: PageMask,
        cause: MigrationCause,
        cpu: &mut Nanos,
    ) -> Result<Nanos, ModelError> {
        let on = &self.devices[d].on[slot];
        let (missing, arrives) = (pages.without(on.resident), on.arrives);
        if missing.is_empty() {
            self.devices[d].totals.touches += 1;
        }
        let wanted = Wanted { pages: missing, along: PageMask::EMPTY, written: PageMask::EMPTY };
        let arrived = self.bring_in(d, slot, wanted, cause, cpu)?;
        let discarded = &mut self.blocks[slot].discarded;
        *discarded = discarded.without(pages);
        Ok(arrived.max(arrives))
    }

    /// `UVM_DISCARD` (facts 4.3): gives up the contents of `range` (widened to whole pages). Answers when the
    /// call returns. Without `unmap` pages stay where they are and are not copied when they leave; with `unmap` they
    /// are nowhere from now on. Once all 512 pages of a block are discarded, populated or not, its chunks go to the
    /// unused list if nothing of it is left anywhere, else to the discarded list. Costs the call, and each block by itself (facts 4.3).
    ///
    /// # Errors
    /// [`ModelError::NotManaged`].
    pub fn discard(&mut self, range: AddrRange, unmap: bool, now: Nanos) -> Result<Nanos, ModelError> {
        self.check(range)?;
        let mut cpu = self.lock.reads(now) + self.profile.ioctl_cost;
        for block in range.blocks() {
            let Some(slot) = self.space.slot(block) else { continue };
            cpu += if unmap { self.profile.discard_cost } else { self.profile.block_cost };
            self.discard_in(block, slot, part_of(range, block), unmap);
        }
        self.lock.read_until(cpu);
        Ok(cpu)
    }

    fn discard_in(&mut self, block: UmBlock, slot: usize, pages: PageMask, unmap: bool) {
        let fresh = pages.without(self.blocks[slot].discarded);
        self.blocks[slot].discarded = self.blocks[slot].discarded | pages;
        let (mut changes, mut left) = (!fresh.is_empty(), false);
        if !unmap {
            // One copy is enough of what nobody needs.
            self.one_copy(slot, pages);
        }
        let devices = (0..self.devices.len()).map(Some);
        for at in devices.chain([None]) {
            let place = at.map_or(Place::Host, device_at);
            let resident = self.at(slot, at);
            let here = pages & resident;
            left |= !(if unmap { resident.without(here) } else { resident }).is_empty();
            if here.is_empty() {
                continue;
            }
            if !unmap {
                self.op(here & fresh, |pages| PageOp::Discarded { block, pages, place });
                continue;
            }
            changes = true;
            match at {
                Some(d) => {
                    let until = self.devices[d].on[slot].arrives;
                    self.devices[d].totals.bytes_discarded += here.bytes();
                    self.revoke(d, slot, here, until);
                }
                None => self.leave_host(slot, here),
            }
            self.op(here, |pages| PageOp::Dropped { block, pages, place });
        }
        if changes && self.blocks[slot].discarded.is_full() {
            let list = if left { List::Discarded } else { List::Unused };
            for device in self.devices.iter_mut().filter(|d| d.chunks.list_of(slot).is_some()) {
                device.chunks.put(slot, list);
            }
        }
    }

    pub(crate) fn check(&self, range: AddrRange) -> Result<(), ModelError> {
        self.space.covers(range).then_some(()).ok_or(ModelError::NotManaged { range })
    }
}

/// The pages of `block` of which `range` has at least one byte.
#[expect(clippy::cast_possible_truncation, reason = "clipped to the 512 pages of a block")]
pub(crate) fn part_of(range: AddrRange, block: UmBlock) -> PageMask {
    let base = block.start().0;
    let page = |addr: u64| (addr.saturating_sub(base) / PAGE).min(u64::from(PAGES)) as u32;
    PageMask::span(page(range.start.0), page(range.end().0.saturating_add(PAGE - 1)))
}
