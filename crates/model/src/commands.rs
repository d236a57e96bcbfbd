//! Whole commands: migrate, discard.

use crate::chunks::List;
use crate::memory::{ModelError, UnifiedMemory};
use crate::notice::PageOp;
use crate::pages::{PAGE, PAGES, PageMask};
use crate::residency::device_at;
use deepum_core::event::MigrationCause;
use deepum_core::units::{AddrRange, Nanos, Place, UmBlock};

/// When a migration is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Migrated {
    /// When the driver has done its own work and ordered all copies: an asynchronous call returns here.
    pub ordered: Nanos,
    /// When the last page has arrived: a synchronous call returns here.
    pub done: Nanos,
}

impl UnifiedMemory {
    /// `UVM_MIGRATE` and the prefetch calls: moves every page of `range` (widened to whole pages) to `to`;
    /// pages that are nowhere are populated there. A block that is already on that device is put at the tail of
    /// the eviction order (facts 4.2). Discarded pages are not copied, and count as written from now on
    /// (facts 4.3). Costs the call, one block cost each, and the copies.
    ///
    /// # Errors
    /// [`ModelError::NotManaged`], [`ModelError::NoDevice`], [`ModelError::OutOfMemory`] (blocks before the
    /// one that failed have moved, as in the driver).
    pub fn migrate(&mut self, range: AddrRange, to: Place, now: Nanos) -> Result<Migrated, ModelError> {
        self.check(range)?;
        let device = match to {
            Place::Host => None,
            Place::Device(device) => Some(self.device_index(device)?),
        };
        let mut cpu = now + self.profile.ioctl_cost;
        let mut done = cpu;
        for block in range.blocks() {
            let Some(slot) = self.space.slot(block) else { continue };
            let pages = part_of(range, block);
            cpu += self.profile.block_cost;
            done = done.max(match device {
                Some(d) => self.migrate_in(d, slot, pages, &mut cpu)?,
                None => self.migrate_home(slot, pages, cpu)?,
            });
        }
        Ok(Migrated { ordered: cpu, done: done.max(cpu) })
    }

    fn migrate_in(&mut self, d: usize, slot: usize, pages: PageMask, cpu: &mut Nanos) -> Result<Nanos, ModelError> {
        let on = &mut self.devices[d].on[slot];
        on.discarded = on.discarded.without(pages);
        let (missing, arrives) = (pages.without(on.resident), on.arrives);
        if missing.is_empty() {
            self.devices[d].totals.touches += 1;
        }
        let arrived = self.bring_in(d, slot, missing, PageMask::EMPTY, MigrationCause::User, cpu)?;
        Ok(arrived.max(arrives))
    }

    fn migrate_home(&mut self, slot: usize, pages: PageMask, cpu: Nanos) -> Result<Nanos, ModelError> {
        let done = self.bring_home(slot, pages, MigrationCause::User, cpu)?;
        let block = &mut self.blocks[slot];
        block.host_mapped = true;
        block.host_discarded = block.host_discarded.without(pages);
        Ok(done)
    }

    /// `UVM_DISCARD` (facts 4.3): gives up the contents of `range` (widened to whole pages). Answers when the
    /// call returns. Without `unmap` pages stay where they are and are not copied when they leave; a chunk all of
    /// whose 512 pages are discarded goes to the discarded list. With `unmap` they are nowhere from now on, and a
    /// chunk that holds nothing any more goes to the unused list.
    ///
    /// # Errors
    /// [`ModelError::NotManaged`].
    pub fn discard(&mut self, range: AddrRange, unmap: bool, now: Nanos) -> Result<Nanos, ModelError> {
        self.check(range)?;
        let mut cpu = now + self.profile.ioctl_cost;
        for block in range.blocks() {
            let Some(slot) = self.space.slot(block) else { continue };
            let pages = part_of(range, block);
            cpu += self.profile.block_cost;
            for d in 0..self.devices.len() {
                let on = &mut self.devices[d].on[slot];
                let here = pages & on.resident;
                let place = device_at(d);
                if here.is_empty() {
                } else if unmap {
                    let until = on.arrives;
                    self.devices[d].totals.bytes_discarded += here.bytes();
                    self.leave(d, slot, here, until);
                    self.op(here, |pages| PageOp::Dropped { block, pages, place });
                } else {
                    let news = here.without(on.discarded);
                    on.discarded = on.discarded | here;
                    if on.discarded.is_full() {
                        self.devices[d].chunks.put(slot, List::Discarded);
                    }
                    self.op(news, |pages| PageOp::Discarded { block, pages, place });
                }
            }
            let home = &mut self.blocks[slot];
            let here = pages & home.host;
            if unmap {
                home.host = home.host.without(here);
                home.host_discarded = home.host_discarded.without(here);
                self.op(here, |pages| PageOp::Dropped { block, pages, place: Place::Host });
            } else {
                let news = here.without(home.host_discarded);
                home.host_discarded = home.host_discarded | here;
                self.op(news, |pages| PageOp::Discarded { block, pages, place: Place::Host });
            }
        }
        Ok(cpu)
    }

    fn check(&self, range: AddrRange) -> Result<(), ModelError> {
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
