//! A notice of the model as the driver's event entries: V1, 64 bytes, the same from 515 to 595, and V2, 72 bytes, as
//! from driver 565 (facts 2.4).

use super::sys::{ENTRY, ENTRY_V2, event};
use deepum_core::event::MigrationCause;
use deepum_core::units::{DeviceId, Place};
use deepum_model::Notice;

/// `UvmEventFaultTypeInvalidPte`, what a page that is not there raises.
const INVALID_PTE: u8 = 2;
const ACCESS_READ: u8 = 1;
const ACCESS_WRITE: u8 = 2;
const CLIENT_GPC: u8 = 1;
const CLIENT_HUB: u8 = 2;

/// An entry being filled; the longest kind, of which V1 uses the head.
struct Entry([u8; ENTRY_V2]);

impl Entry {
    fn new(kind: u8) -> Self {
        let mut bytes = [0; ENTRY_V2];
        bytes[0] = kind;
        Self(bytes)
    }
    fn byte(mut self, at: usize, value: u8) -> Self {
        self.0[at] = value;
        self
    }
    fn half(mut self, at: usize, value: u16) -> Self {
        self.0[at..at + 2].copy_from_slice(&value.to_le_bytes());
        self
    }
    fn word(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self
    }
    fn long(mut self, at: usize, value: u64) -> Self {
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
        self
    }
}

/// A processor's index: 0 is the CPU, GPUs follow.
fn index(place: Place) -> u8 {
    match place {
        Place::Host => 0,
        Place::Device(DeviceId(n)) => n.saturating_add(1),
    }
}

fn access(write: bool) -> u8 {
    if write { ACCESS_WRITE } else { ACCESS_READ }
}

/// Calls `put` with type and bytes of every entry that `notice` becomes. The GPU's own clock is taken to agree with
/// the host's.
pub(super) fn encode(notice: &Notice, wide: bool, put: &mut dyn FnMut(u8, &[u8])) {
    let len = if wide { ENTRY_V2 } else { ENTRY };
    let mut put = |entry: &Entry| put(entry.0[0], &entry.0[..len]);
    match *notice {
        Notice::GpuFault { device, block, pages, duplicates, access: how, batch, at } => {
            let gpu = index(Place::Device(device));
            let client = if how.copy_engine { CLIENT_HUB } else { CLIENT_GPC };
            let entry = Entry::new(event::GPU_FAULT).byte(1, INVALID_PTE);
            let entry = if wide {
                entry.half(2, u16::from(gpu)).byte(36, client).byte(37, access(how.write))
            } else {
                entry.byte(2, access(how.write)).byte(3, gpu).byte(36, client)
            };
            let mut entry = entry.long(16, at.0).long(24, at.0).word(32, batch);
            let mut left = duplicates;
            let count = pages.count().max(1);
            for page in pages.iter() {
                entry = entry.long(8, block.start().0 + u64::from(page) * 4096);
                // Duplicates follow the entry they were merged into, spread evenly, lowest pages first.
                let here = duplicates.div_ceil(count).min(left);
                left -= here;
                for _ in 0..=here {
                    put(&entry);
                }
            }
        }
        Notice::Migration { range, from, to, cause, group, begin, end } => {
            let cause = match cause {
                MigrationCause::User => 1,
                MigrationCause::Coherence => 2,
                MigrationCause::Prefetch => 3,
                MigrationCause::Eviction => 4,
                MigrationCause::AccessCounters => 5,
            };
            let entry = Entry::new(event::MIGRATION).byte(1, cause);
            // In V2 places are wider, NUMA nodes follow (0 for the host, -1 for a GPU), and the rest moves up by 8.
            let node = |place| if place == Place::Host { 0 } else { u32::MAX };
            let (entry, at) = if wide {
                let places = entry.half(4, u16::from(index(from))).half(6, u16::from(index(to)));
                (places.word(8, node(from)).word(12, node(to)), 16)
            } else {
                (entry.byte(2, index(from)).byte(3, index(to)), 8)
            };
            put(&entry
                .long(at, range.start.0)
                .long(at + 8, range.len.0)
                .long(at + 16, begin.0)
                .long(at + 24, end.0)
                .long(at + 32, group.0)
                .long(at + 40, begin.0)
                .long(at + 48, end.0));
        }
        Notice::GpuFaultReplay { device, batch, at } => {
            let gpu = index(Place::Device(device));
            let entry = Entry::new(event::GPU_FAULT_REPLAY);
            let entry = if wide {
                entry.byte(1, CLIENT_GPC).half(2, u16::from(gpu))
            } else {
                entry.byte(1, gpu).byte(2, CLIENT_GPC)
            };
            put(&entry.word(4, batch).long(8, at.0).long(16, at.0));
        }
    }
}
