//! What the model tells: notices (the driver's tools events, before they become bytes) and page operations
//! (what a device that keeps real bytes must do to them).

use crate::groups::Group;
use crate::pages::PageMask;
use deepum_core::event::MigrationCause;
use deepum_core::units::{AddrRange, DeviceId, Nanos, Place, UmBlock};

/// One thing the driver reports to tools, with its virtual time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The fault entries of one batch that fell into one block (facts 2.5: one event per entry and one per
    /// merged duplicate; all are reported before the block moves).
    GpuFault {
        /// Whose fault buffer.
        device: DeviceId,
        /// The block.
        block: UmBlock,
        /// Its faulted pages.
        pages: PageMask,
        /// Entries beyond the first of each page; spread over the pages, lowest first.
        duplicates: u32,
        /// Kind of access, and whether an SM or a copy engine made it.
        access: FaultAccess,
        /// The driver's batch number, per device, from 1.
        batch: u32,
        /// When the driver recorded them.
        at: Nanos,
    },
    /// A contiguous piece of one block was copied.
    Migration {
        /// The bytes.
        range: AddrRange,
        /// From where.
        from: Place,
        /// To where.
        to: Place,
        /// Why.
        cause: MigrationCause,
        /// The range group it was in then; none is told of an eviction.
        group: Group,
        /// When the copy began.
        begin: Nanos,
        /// When it ended.
        end: Nanos,
    },
    /// The faulting warps were told to try again.
    GpuFaultReplay {
        /// Which GPU.
        device: DeviceId,
        /// The batch served.
        batch: u32,
        /// When.
        at: Nanos,
    },
}

impl Notice {
    /// From when a tool can know of it: a copy is reported when it has ended.
    #[must_use]
    pub fn at(&self) -> Nanos {
        match *self {
            Self::GpuFault { at, .. } | Self::GpuFaultReplay { at, .. } => at,
            Self::Migration { end, .. } => end,
        }
    }
}

/// Who faulted and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultAccess {
    /// Whether it was a write.
    pub write: bool,
    /// Whether a copy engine faulted (non-replayable, client HUB) and not an SM.
    pub copy_engine: bool,
}

/// What happens to the bytes of some pages of one block, in the order given. Only handed out when
/// [`crate::Options::page_ops`] is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageOp {
    /// The pages now exist, as zeros, at `place`.
    Populated {
        /// The block.
        block: UmBlock,
        /// The pages.
        pages: PageMask,
        /// Where they are.
        place: Place,
    },
    /// Copied, and gone from where they were.
    Moved {
        /// The block.
        block: UmBlock,
        /// The pages.
        pages: PageMask,
        /// From where.
        from: Place,
        /// To where.
        to: Place,
    },
    /// Copied, and still where they were, too.
    Copied {
        /// The block.
        block: UmBlock,
        /// The pages.
        pages: PageMask,
        /// From where.
        from: Place,
        /// To where.
        to: Place,
    },
    /// One of several copies is no longer kept.
    Forgotten {
        /// The block.
        block: UmBlock,
        /// The pages.
        pages: PageMask,
        /// Where this copy was.
        place: Place,
        /// Where the one is that is kept.
        kept: Place,
    },
    /// Changed place without a copy, because the contents had been discarded: whatever is at `to` is what
    /// the program may read, and it must not rely on it.
    MovedDiscarded {
        /// The block.
        block: UmBlock,
        /// The pages.
        pages: PageMask,
        /// From where.
        from: Place,
        /// To where.
        to: Place,
    },
    /// The contents were given up; the pages stay where they are (discard without unmap).
    Discarded {
        /// The block.
        block: UmBlock,
        /// The pages.
        pages: PageMask,
        /// Where they are.
        place: Place,
    },
    /// The pages exist nowhere any more: discarded with unmap. (Freed ranges are not announced: their owner
    /// freed them.)
    Dropped {
        /// The block.
        block: UmBlock,
        /// The pages.
        pages: PageMask,
        /// Where they were.
        place: Place,
    },
}
