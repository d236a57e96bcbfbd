//! Stage 3 of 7: fault. The driver's notices become events.
//!
//! The driver reports every entry of its fault buffer, so one missing UM block gives dozens of notices. What is worth
//! knowing is the first of them, and in which batch: the notices of one batch are folded to one
//! [`Fault`] per UM block, in the order in which the blocks first appear.
//!
//! ```text
//! notices of batch 7:  40 40 41 40 57 41   ->   Fault 40 (3 entries), Fault 41 (2), Fault 57 (1)
//! ```
//!
//! A batch can arrive in two readings. Blocks of it that were already reported are not reported again; their notices are
//! counted (`late_entries`). Faults and migrations leave in the order of their first notice.
//!
//! Invariants: reads at most `capacity` entries a time, whatever the indexes say; an index outside the queue ends the
//! source, and so does the first senseless entry from a driver nobody has looked at; an entry that makes no sense from
//! a known driver is counted and left out; nothing is reported twice; what the driver dropped is reported as lost.
//! Sources: facts 2.2 (rules of the queue), 2.4 (layouts), 2.5 (what a notice means).

use crate::attach::Tracker;
use crate::migrate::VaSpace;
use crate::raw::{Entry, QueueMemory};
use crate::sys::{self, access, cause, event};
use deepum_core::event::{Event, Fault, Migration, MigrationCause};
use deepum_core::mix::Map;
use deepum_core::units::{Bytes, DevAddr, DeviceId, Nanos, Place, UmBlock};
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One thing the driver said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notice {
    /// The GPU it is about: the one that faulted, or the one that bytes moved to (or else from). Nothing for losses.
    pub device: Option<DeviceId>,
    /// What happened: a fault, a migration, or notices lost.
    pub event: Event<'static>,
}

/// What came out of the queue, since it was attached.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QueueStats {
    /// Entries read.
    pub entries: u64,
    /// Entries that said a GPU faulted.
    pub fault_entries: u64,
    /// Fault entries whose block had been reported by an earlier reading of the same batch.
    pub late_entries: u64,
    /// Migrations.
    pub migrations: u64,
    /// Faults the driver could not serve; the program dies of them.
    pub fatal_faults: u64,
    /// Pages the driver saw bouncing between processors.
    pub thrashing: u64,
    /// Pages the driver mapped where they were, instead of moving them.
    pub remote_maps: u64,
    /// Entries about processors that are none of ours.
    pub foreign: u64,
    /// Of the migrations, those of memory in a group: what left unmapped (`leave`).
    pub unmapped: u64,
    /// Entries that make no sense.
    pub malformed: u64,
    /// Notices the driver dropped because the queue was full.
    pub lost: u64,
}

/// The queue can no longer be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QueueBroken {
    /// An index lies outside.
    #[error(
        "the driver's queue of notices says {index}, it has {capacity} entries; GPU faults stay unseen from here on"
    )]
    Index {
        /// The index found.
        index: u32,
        /// Number of entries.
        capacity: u32,
    },
    /// An unknown driver sent an entry we cannot read.
    #[error(
        "a notice of an unknown driver version makes no sense (event type {event_type}); GPU faults stay unseen from here on"
    )]
    Nonsense {
        /// Byte 0 of the entry.
        event_type: u8,
    },
}

/// The reading end of an attached tools queue.
#[derive(Debug)]
pub struct ToolsQueue {
    tracker: Tracker,
    space: Arc<VaSpace>,
    /// By processor index in notices.
    places: Vec<Option<Place>>,
    /// Whether the driver is one whose layouts nobody has checked.
    wary: bool,
    get: u32,
    /// Number of the current reading.
    reading: u64,
    batch: Batch,
    dropped: [u64; sys::EVENT_TYPES],
    stats: QueueStats,
    broken: Option<QueueBroken>,
}

/// Tells other threads whether a queue has entries nobody has read.
#[derive(Clone, Debug)]
pub struct QueueWatch {
    memory: Arc<QueueMemory>,
}

impl QueueWatch {
    pub(crate) fn over(memory: &Arc<QueueMemory>) -> Self {
        Self { memory: Arc::clone(memory) }
    }

    /// Whether something waits to be read; two loads, no system call.
    pub fn unread(&self) -> bool {
        let put = self.memory.control_u32(offset_of!(sys::Control, put_behind)).load(Ordering::Acquire);
        let get = self.memory.control_u32(offset_of!(sys::Control, get_behind)).load(Ordering::Acquire);
        put != get
    }
}

/// The fault batch being folded: which of its blocks were reported, and where in the current reading.
#[derive(Default, Debug)]
struct Batch {
    /// Processor index, kind of client, and the driver's number; they number their batches apart.
    of: Option<(u8, u8, u32)>,
    /// Blocks seen: in which reading, and where in its output their event is.
    blocks: Map<UmBlock, (u64, usize)>,
}

impl ToolsQueue {
    pub(crate) fn new(tracker: Tracker, space: Arc<VaSpace>, wary: bool) -> Self {
        Self {
            tracker,
            space,
            places: Vec::new(),
            wary,
            get: 0,
            reading: 0,
            batch: Batch::default(),
            dropped: [0; sys::EVENT_TYPES],
            stats: QueueStats::default(),
            broken: None,
        }
    }

    /// Whether there is nothing to read; two loads, no system call.
    pub fn is_empty(&self) -> bool {
        self.broken.is_some() || self.put() == self.get
    }

    /// A view for other threads.
    pub fn watch(&self) -> QueueWatch {
        QueueWatch::over(&self.tracker.memory)
    }

    /// To wait for notices with `poll(2)`; always with a timeout, as the driver can lose a wake-up (facts 2.2).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.tracker.fd()
    }

    /// What came out so far.
    pub const fn stats(&self) -> QueueStats {
        self.stats
    }

    fn put(&self) -> u32 {
        self.tracker.memory.control_u32(offset_of!(sys::Control, put_behind)).load(Ordering::Acquire)
    }

    /// Reads what is there now, appends its events to `out`, and gives the room back to the driver.
    ///
    /// # Errors
    /// [`QueueBroken`], now and ever after; events up to there are in `out`.
    pub fn drain(&mut self, out: &mut Vec<Notice>) -> Result<(), QueueBroken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let result = self.read(out);
        self.broken = result.err();
        self.lost(out);
        result
    }

    fn read(&mut self, out: &mut Vec<Notice>) -> Result<(), QueueBroken> {
        let capacity = self.tracker.memory.capacity();
        let put = self.put();
        if put >= capacity {
            return Err(QueueBroken::Index { index: put, capacity });
        }
        if put == self.get {
            return Ok(());
        }
        self.refresh_places();
        self.reading += 1;
        let mut result = Ok(());
        while self.get != put {
            let entry = self.tracker.memory.entry(self.get);
            self.get = (self.get + 1) & (capacity - 1);
            self.stats.entries += 1;
            result = self.take(&entry, out);
            if result.is_err() {
                break;
            }
        }
        self.give_back();
        result
    }

    /// Both indexes, with release: our reads of the entries are over before the driver may write there again.
    fn give_back(&self) {
        let control = |at| self.tracker.memory.control_u32(at);
        control(offset_of!(sys::Control, get_ahead)).store(self.get, Ordering::Release);
        control(offset_of!(sys::Control, get_behind)).store(self.get, Ordering::Release);
    }

    /// GPUs join the address space one by one, so the table is read again while some GPU of ours is not in it.
    fn refresh_places(&mut self) {
        let complete = self.places.iter().flatten().count() >= self.space.processors();
        if !complete && let Ok(places) = self.space.places() {
            self.places = places;
        }
    }

    fn take(&mut self, entry: &Entry, out: &mut Vec<Notice>) -> Result<(), QueueBroken> {
        let event_type = entry.u8(0);
        let understood = match event_type {
            event::GPU_FAULT => self.fault(entry, out),
            event::MIGRATION => self.migration(entry, out),
            event::FATAL_FAULT => count(&mut self.stats.fatal_faults),
            event::THRASHING => count(&mut self.stats.thrashing),
            event::MAP_REMOTE => count(&mut self.stats.remote_maps),
            _ => None,
        };
        if understood.is_none() {
            self.stats.malformed += 1;
            if self.wary {
                return Err(QueueBroken::Nonsense { event_type });
            }
        }
        Ok(())
    }

    /// Nothing if the entry makes no sense.
    fn fault(&mut self, entry: &Entry, out: &mut Vec<Notice>) -> Option<()> {
        let index = entry.u8(offset_of!(sys::GpuFault, gpu_index));
        let access = entry.u8(offset_of!(sys::GpuFault, access_type));
        if !(access::READ..=access::PREFETCH).contains(&access) {
            return None;
        }
        self.stats.fault_entries += 1;
        let Some(Place::Device(device)) = self.place(index) else {
            return count(&mut self.stats.foreign);
        };
        let write = access == access::WRITE || access == access::ATOMIC;
        let number = entry.u32(offset_of!(sys::GpuFault, batch_id));
        let of = (index, entry.u8(offset_of!(sys::GpuFault, client_type)), number);
        if self.batch.of != Some(of) {
            self.batch.of = Some(of);
            self.batch.blocks.clear();
        }
        let block = UmBlock::containing(DevAddr(entry.u64(offset_of!(sys::GpuFault, address))));
        match self.batch.blocks.entry(block) {
            Occupied(seen) => match *seen.get() {
                (reading, at) if reading == self.reading => {
                    if let Event::Fault(fault) = &mut out[at].event {
                        fault.entries += 1;
                        fault.write |= write;
                    }
                }
                _ => self.stats.late_entries += 1,
            },
            Vacant(new) => {
                new.insert((self.reading, out.len()));
                let at = Nanos(entry.u64(offset_of!(sys::GpuFault, time_stamp)));
                let fault = Fault { block, batch: number, entries: 1, write, at };
                out.push(Notice { device: Some(device), event: Event::Fault(fault) });
            }
        }
        Some(())
    }

    /// Nothing if the entry makes no sense.
    fn migration(&mut self, entry: &Entry, out: &mut Vec<Notice>) -> Option<()> {
        let cause = match entry.u8(offset_of!(sys::Migration, cause)) {
            cause::USER => MigrationCause::User,
            // Nobody touched it: somebody asked, by the group it is in (`leave`).
            cause::COHERENCE if entry.u64(offset_of!(sys::Migration, range_group_id)) != 0 => MigrationCause::User,
            cause::COHERENCE => MigrationCause::Coherence,
            cause::PREFETCH => MigrationCause::Prefetch,
            cause::EVICTION => MigrationCause::Eviction,
            cause::ACCESS_COUNTERS => MigrationCause::AccessCounters,
            _ => return None,
        };
        let address = DevAddr(entry.u64(offset_of!(sys::Migration, address)));
        let bytes = Bytes(entry.u64(offset_of!(sys::Migration, bytes)));
        let block = UmBlock::containing(address);
        // A piece never leaves its block (facts 2.5).
        let room = UmBlock::SIZE.0 - address.get() % UmBlock::SIZE.0;
        if bytes == Bytes::ZERO || bytes.get() > room {
            return None;
        }
        self.stats.migrations += 1;
        self.stats.unmapped += u64::from(entry.u64(offset_of!(sys::Migration, range_group_id)) != 0);
        let from = self.place(entry.u8(offset_of!(sys::Migration, src_index)));
        let to = self.place(entry.u8(offset_of!(sys::Migration, dst_index)));
        let (Some(from), Some(to)) = (from, to) else {
            return count(&mut self.stats.foreign);
        };
        let device = match (to, from) {
            (Place::Device(id), _) | (Place::Host, Place::Device(id)) => Some(id),
            (Place::Host, Place::Host) => None,
        };
        let at = Nanos(entry.u64(offset_of!(sys::Migration, end_time_stamp)));
        out.push(Notice { device, event: Event::Migrated(Migration { block, bytes, from, to, cause, at }) });
        Some(())
    }

    fn place(&self, index: u8) -> Option<Place> {
        self.places.get(usize::from(index)).copied().flatten()
    }

    /// Reports what the driver dropped since the last reading.
    fn lost(&mut self, out: &mut Vec<Notice>) {
        let mut count = 0u64;
        for (i, before) in self.dropped.iter_mut().enumerate() {
            let at = offset_of!(sys::Control, dropped) + i * 8;
            let now = self.tracker.memory.control_u64(at).load(Ordering::Relaxed);
            // The counter only grows; if it did not, somebody else wrote it, and there is nothing to learn from it.
            count = count.saturating_add(now.saturating_sub(*before));
            *before = now;
        }
        if count > 0 {
            self.stats.lost = self.stats.lost.saturating_add(count);
            out.push(Notice { device: None, event: Event::NoticesLost { count } });
        }
    }
}

/// One more, and the entry is understood.
fn count(counter: &mut u64) -> Option<()> {
    *counter += 1;
    Some(())
}
