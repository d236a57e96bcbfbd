//! The host's memory, mapped on a GPU from afar.
//!
//! Where the host is preferred for a block, the driver does not bring what a GPU faults on: it maps the host's pages there, makes them on the host if they are nowhere, and takes
//! them there from another GPU (facts 4.9). The GPU then reads and writes them over the link, each time anew and without a notice, until the next migration. So whoever
//! leaves the host preferred has to bring such a block by a call.
//!
//! A block that keeps two copies is brought as always. Not modelled: what the driver's prefetcher would map along; bytes that go over the link so are in no total.
//! With an SSD behind the host, of which no driver knows, pages move as ever.

use crate::engines::time_of;
use crate::memory::{ModelError, UnifiedMemory};
use crate::pages::{PAGE, PageMask};
use deepum_core::event::MigrationCause;
use deepum_core::units::{Bytes, Nanos, Place};

impl UnifiedMemory {
    /// Whether a GPU that faults on the block is shown the host's pages.
    pub(crate) fn is_shown_from_afar(&self, slot: usize) -> bool {
        let block = &self.blocks[slot];
        block.preferred == Some(Place::Host) && !block.duplicated && self.drive.is_none()
    }

    /// Maps pages that device `d` does not have; from then on they are on the host. The answer is when they are there.
    pub(crate) fn show_from_afar(
        &mut self,
        d: usize,
        slot: usize,
        pages: PageMask,
        cpu: Nanos,
    ) -> Result<Nanos, ModelError> {
        let there = self.bring_home(slot, pages, MigrationCause::Coherence, cpu)?;
        let afar = &mut self.devices[d].on[slot].afar;
        *afar = *afar | pages;
        Ok(there.max(self.blocks[slot].host_arrives))
    }

    /// How much longer a kernel takes that touches so many pages from afar.
    pub(crate) fn walked_afar(&mut self, d: usize, pages: u64) -> Nanos {
        let time = time_of(Bytes(pages * PAGE), self.profile.h2d_bandwidth);
        self.devices[d].totals.stall_copies += time;
        time
    }
}
