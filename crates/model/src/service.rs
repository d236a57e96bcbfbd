//! Serving one fault batch, as the driver's bottom half does (facts 2.5 and 5).
//!
//! Order inside a batch: entries are fetched and sorted by block; per block the faults are reported, then the
//! block is served (prefetcher asked, room made, copies ordered); when all copies have ended, the faulting
//! warps are replayed. Under the default policy the rest of the fault buffer is flushed, so that pages left
//! out fault again.

use crate::memory::{ModelError, UnifiedMemory};
use crate::notice::{FaultAccess, Notice};
use crate::pages::PageMask;
use crate::prefetch;
use crate::residency::Wanted;
use deepum_core::event::MigrationCause;
use deepum_core::units::{DeviceId, Nanos};

/// The faults of one batch that fell into one block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faulted {
    pub(crate) slot: usize,
    pub(crate) pages: PageMask,
    /// Those of them that are written.
    pub(crate) written: PageMask,
}

/// What the page of a batch that arrives last waits for.
#[derive(Clone, Copy)]
enum Awaited {
    /// Nothing but its copy.
    Link,
    /// It was on its way before.
    Late,
    /// Its chunk was not free before, and from then on its copy.
    Room(Nanos),
    /// The same, and its copy came from the SSD.
    Ssd(Nanos),
}

/// What serving a batch came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) batch: u32,
    pub(crate) noticed: Nanos,
    pub(crate) resume_at: Nanos,
}

impl UnifiedMemory {
    /// Distinct pages whose entries fill one batch.
    pub(crate) fn batch_pages(&self) -> u32 {
        (self.profile.batch_entries * 100 / self.profile.entries_per_page_percent).max(1)
    }

    /// Serves `faults`, which happened at `at`. Pages that are already on their way are reported like the
    /// others, and waited for, but not ordered again.
    ///
    /// # Errors
    /// [`ModelError::OutOfMemory`]: no chunk could be had; the blocks before have been served.
    pub(crate) fn serve(
        &mut self,
        device: DeviceId,
        faults: &[Faulted],
        copy_engine: bool,
        at: Nanos,
    ) -> Result<Served, ModelError> {
        let d = self.device_index(device)?;
        let extra = u64::from(self.profile.entries_per_page_percent.saturating_sub(100));
        let duplicates_of = |pages: PageMask| u64::from(pages.count()) * extra / 100;
        self.devices[d].batch = self.devices[d].batch.wrapping_add(1);
        let batch = self.devices[d].batch;
        let entries: u64 = faults.iter().map(|f| u64::from(f.pages.count()) + duplicates_of(f.pages)).sum();
        let totals = &mut self.devices[d].totals;
        totals.fault_batches += 1;
        totals.fault_entries += entries;

        let mut cpu = self.lock.reads(at) + self.profile.batch_cost + Nanos(self.profile.entry_cost.0 * entries);
        let mut noticed = cpu;
        // The last to arrive, and what it waits for.
        let mut last = (cpu, Awaited::Link);
        for fault in faults {
            let block = self.blocks[fault.slot].id;
            #[expect(clippy::cast_possible_truncation, reason = "at most a few per page of one block")]
            let duplicates = duplicates_of(fault.pages) as u32;
            let access = FaultAccess { write: !fault.written.is_empty(), copy_engine };
            self.notices.push(Notice::GpuFault {
                device,
                block,
                pages: fault.pages,
                duplicates,
                access,
                batch,
                at: cpu,
            });
            noticed = cpu;
            cpu += self.profile.block_cost;
            let on = self.devices[d].on[fault.slot];
            if fault.pages.meets(&on.in_flight) && on.arrives > last.0 {
                last = (on.arrives, Awaited::Late);
            }
            let refused = fault.written & on.read_only;
            if !refused.is_empty() {
                // The trap of facts 4.3. What a page with two copies takes was not measured; a memset of what was given up took a quarter.
                if !copy_engine && !self.blocks[fault.slot].duplicated {
                    cpu += Nanos(self.profile.rewrite_cost.0 * u64::from(refused.count()));
                }
                self.overwritten(d, fault.slot, refused, &mut cpu);
            }
            let missing = fault.pages.without(on.resident).without(on.afar);
            if missing.is_empty() {
                continue;
            }
            if self.is_shown_from_afar(fault.slot) {
                let end = self.show_from_afar(d, fault.slot, missing, cpu)?;
                if end > last.0 {
                    last = (end, Awaited::Link);
                }
                continue;
            }
            let threshold = self.profile.prefetch_threshold_percent;
            let along = prefetch::along_with(missing, on.resident, threshold);
            let cause = MigrationCause::Coherence;
            let from_ssd = missing.meets(&self.blocks[fault.slot].ssd);
            let wanted = Wanted { pages: missing, along, written: fault.written };
            let end = self.bring_in(d, fault.slot, wanted, cause, &mut cpu)?;
            if end > last.0 {
                let free = self.devices[d].on[fault.slot].chunk_free;
                last = (end, if from_ssd { Awaited::Ssd(free) } else { Awaited::Room(free) });
            }
        }
        self.lock.read_until(cpu);
        let (arrived, awaited) = last;
        let resume_at = cpu.max(arrived);
        let totals = &mut self.devices[d].totals;
        totals.stall_fault_work += cpu - at;
        totals.stall_copies += resume_at - cpu;
        match awaited {
            Awaited::Link => {}
            Awaited::Late => totals.stall_late += resume_at - cpu,
            Awaited::Room(free) => totals.stall_room += free.min(resume_at).saturating_sub(cpu),
            Awaited::Ssd(free) => {
                let room = free.min(resume_at).saturating_sub(cpu);
                totals.stall_room += room;
                totals.stall_ssd += resume_at - cpu - room;
            }
        }
        self.notices.push(Notice::GpuFaultReplay { device, batch, at: resume_at });
        Ok(Served { batch, noticed, resume_at })
    }
}
