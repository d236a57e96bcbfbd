//! Everything that can happen: the only input of the core.
//!
//! Time, progress and outcomes enter as data, so that the same events always give the same
//! commands, whichever world they come from.

use crate::units::{AddrRange, Bytes, DevAddr, KernelId, LaunchKey, LaunchSeq, Nanos, Place, StreamSlot, UmBlock};

/// One thing that happened, in the order the engine saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// The program was given managed memory.
    Alloc {
        /// Where, and how much; whole UM blocks.
        range: AddrRange,
    },
    /// The program gave managed memory back.
    Free {
        /// As announced by `Alloc`.
        range: AddrRange,
    },
    /// PyTorch's caching allocator handed out (`active`) or took back a PT block.
    PtBlock {
        /// The PT block.
        range: AddrRange,
        /// Whether it now holds a tensor.
        active: bool,
    },
    /// The program issued a launch; the GPU may get there much later.
    Launch(Launch<'a>),
    /// The GPU finished every launch of `stream` up to and including `done`.
    Progress {
        /// Whose progress word it is.
        stream: StreamSlot,
        /// The newest launch finished there.
        done: LaunchSeq,
    },
    /// The GPU touched bytes that were not there. One event per UM block and fault batch.
    Fault(Fault),
    /// The driver says it moved bytes (at our request or its own).
    Migrated(Migration),
    /// The mover finished a command, one way or the other.
    MoveDone {
        /// Which block the command was about.
        block: UmBlock,
        /// Where it was to go.
        to: Place,
        /// Whether it did.
        ok: bool,
    },
    /// The mover copied a block to the host, or could not. It is where it was on the GPU.
    Saved {
        /// Which block the command was about.
        block: UmBlock,
        /// Whether the host has all of it.
        ok: bool,
    },
    /// The mover carried out a discard, or found that it must not.
    Discarded {
        /// Which block the command was about.
        block: UmBlock,
        /// What became of it.
        outcome: DiscardOutcome,
    },
    /// The program issued a copy or memset of managed memory by a call of CUDA. It has a place in the device's sequence, as a
    /// launch has, and [`Event::Progress`] tells that it is finished; but it has no execution ID, and nothing is learned from it.
    /// While it is not finished its blocks are in use.
    Copy {
        /// Its place in the device's sequence.
        seq: LaunchSeq,
        /// Which stream it went to.
        stream: StreamSlot,
        /// The managed bytes it reads or writes.
        range: AddrRange,
        /// Whether it writes them.
        write: bool,
    },
    /// Launches and copies up to this one were issued by now, whether or not each was told: some may never be.
    Issued {
        /// The newest place taken in the device's sequence.
        seq: LaunchSeq,
    },
    /// Launches and copies up to this one are finished, whether or not each was told: so nothing of them is in doubt any more.
    Over {
        /// A place in the device's sequence.
        seq: LaunchSeq,
    },
    /// From now on so many bytes of the GPU may be filled.
    Budget {
        /// How many; more than the GPU has counts as all of it.
        bytes: Bytes,
    },
    /// Fault notices can be seen from now on, or no longer. They are taken to be visible at the start.
    FaultSource {
        /// Whether they can.
        up: bool,
    },
    /// The driver dropped notices because our queue was full: what we know has holes.
    NoticesLost {
        /// How many, since the last such event.
        count: u64,
    },
}

/// A kernel or graph launch as the program issued it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Launch<'a> {
    /// Its place in the device's sequence of launches.
    pub seq: LaunchSeq,
    /// Which stream it went to.
    pub stream: StreamSlot,
    /// What it is.
    pub key: LaunchKey,
    /// Which kernel, or graph.
    pub kernel: KernelId,
    /// The managed pointers among its arguments, in argument order, repeats left out.
    pub pointers: &'a [DevAddr],
}

/// What became of a discard.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DiscardOutcome {
    /// The contents are gone, and with them the block's place.
    Done,
    /// The block was handed out again first: nothing happened.
    HandedOut,
    /// The driver refused.
    Failed,
}

/// A GPU page fault, aggregated to its UM block within one batch (facts 2.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The block touched.
    pub block: UmBlock,
    /// The driver's batch number; notices of one batch were served together.
    pub batch: u32,
    /// How many notices of the batch fell into this block, duplicates included.
    pub entries: u32,
    /// Whether any of them was a write or an atomic.
    pub write: bool,
    /// When the driver recorded the first of them.
    pub at: Nanos,
}

/// A piece of one UM block that changed place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Migration {
    /// The block.
    pub block: UmBlock,
    /// How many of its bytes moved.
    pub bytes: Bytes,
    /// From where.
    pub from: Place,
    /// To where.
    pub to: Place,
    /// Why.
    pub cause: MigrationCause,
    /// When the copy ended.
    pub at: Nanos,
}

/// Why the driver moved bytes (facts 2.4, `UvmEventMigrationCause`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MigrationCause {
    /// An API call or `UVM_MIGRATE`: us, or the program.
    User,
    /// The fault itself.
    Coherence,
    /// The driver's tree prefetcher.
    Prefetch,
    /// Room was needed.
    Eviction,
    /// Access counters.
    AccessCounters,
}
