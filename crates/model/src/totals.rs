//! What a run cost, in sums.

use deepum_core::event::MigrationCause;
use deepum_core::units::{Bytes, Nanos};

/// Bytes by what caused their move.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ByCause {
    /// An API call or `UVM_MIGRATE`.
    pub user: Bytes,
    /// The faulted pages themselves.
    pub coherence: Bytes,
    /// Pages the driver's tree prefetcher added.
    pub prefetch: Bytes,
    /// Moved out to make room.
    pub eviction: Bytes,
}

impl ByCause {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> Bytes {
        self.user + self.coherence + self.prefetch + self.eviction
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user - earlier.user,
            coherence: self.coherence - earlier.coherence,
            prefetch: self.prefetch - earlier.prefetch,
            eviction: self.eviction - earlier.eviction,
        }
    }

    pub(crate) fn add(&mut self, cause: MigrationCause, bytes: Bytes) {
        *match cause {
            MigrationCause::User => &mut self.user,
            // Access counters are not modelled; a fault is the nearest true cause.
            MigrationCause::Coherence | MigrationCause::AccessCounters => &mut self.coherence,
            MigrationCause::Prefetch => &mut self.prefetch,
            MigrationCause::Eviction => &mut self.eviction,
        } += bytes;
    }
}

/// Sums of one device since the start.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Fault-buffer entries, duplicates included.
    pub fault_entries: u64,
    /// Fault batches served.
    pub fault_batches: u64,
    /// Managed bytes copied to this device (from the host or another device).
    pub bytes_in: ByCause,
    /// Managed bytes copied from this device to the host.
    pub bytes_out: ByCause,
    /// Of `bytes_in`, those that came from the SSD.
    pub bytes_ssd_in: Bytes,
    /// Of `bytes_out`, those that went to the SSD.
    pub bytes_ssd_out: Bytes,
    /// Bytes of plain copies (`cudaMemcpy`) to and from this device.
    pub plain_bytes_in: Bytes,
    /// See `plain_bytes_in`.
    pub plain_bytes_out: Bytes,
    /// Bytes first touched on this device: made as zeros, not copied.
    pub bytes_populated: Bytes,
    /// Bytes that did not have to be copied out because they had been discarded.
    pub bytes_discarded: Bytes,
    /// Bytes that left without a copy, since they were elsewhere, too.
    pub bytes_forgotten: Bytes,
    /// Pages there that a kernel wrote for the first time since they were duplicated: faults without a copy.
    pub pages_overwritten: u64,
    /// Root chunks taken from a block that still had pages on it.
    pub evictions: u64,
    /// Root chunks taken without a copy: unused or discarded ones, and those whose pages are all on the host, too.
    pub free_evictions: u64,
    /// Managed blocks migrated to this device that were already wholly there (an LRU touch).
    pub touches: u64,
    /// Time kernels waited for the driver's own work on fault batches.
    pub stall_fault_work: Nanos,
    /// Time kernels waited for copies (or for room) after that work was done.
    pub stall_copies: Nanos,
    /// Of `stall_copies`, time in which the chunk for the page that came last was not free yet: something was being copied out of it.
    pub stall_room: Nanos,
    /// Of `stall_copies`, time in which that page came from the SSD.
    pub stall_ssd: Nanos,
    /// Of `stall_copies`, time in which that page was on its way already, at somebody's earlier request.
    pub stall_late: Nanos,
    /// Time kernels computed.
    pub compute: Nanos,
    /// Most managed bytes resident at once.
    pub peak_managed: Bytes,
}

impl Totals {
    /// What came since `earlier`, sums of the same device. The peak is that since the start.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            fault_entries: self.fault_entries - earlier.fault_entries,
            fault_batches: self.fault_batches - earlier.fault_batches,
            bytes_in: self.bytes_in.since(&earlier.bytes_in),
            bytes_out: self.bytes_out.since(&earlier.bytes_out),
            bytes_ssd_in: self.bytes_ssd_in - earlier.bytes_ssd_in,
            bytes_ssd_out: self.bytes_ssd_out - earlier.bytes_ssd_out,
            plain_bytes_in: self.plain_bytes_in - earlier.plain_bytes_in,
            plain_bytes_out: self.plain_bytes_out - earlier.plain_bytes_out,
            bytes_populated: self.bytes_populated - earlier.bytes_populated,
            bytes_discarded: self.bytes_discarded - earlier.bytes_discarded,
            bytes_forgotten: self.bytes_forgotten - earlier.bytes_forgotten,
            pages_overwritten: self.pages_overwritten - earlier.pages_overwritten,
            evictions: self.evictions - earlier.evictions,
            free_evictions: self.free_evictions - earlier.free_evictions,
            touches: self.touches - earlier.touches,
            stall_fault_work: self.stall_fault_work - earlier.stall_fault_work,
            stall_copies: self.stall_copies - earlier.stall_copies,
            stall_room: self.stall_room - earlier.stall_room,
            stall_ssd: self.stall_ssd - earlier.stall_ssd,
            stall_late: self.stall_late - earlier.stall_late,
            compute: self.compute - earlier.compute,
            peak_managed: self.peak_managed,
        }
    }
}
