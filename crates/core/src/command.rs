//! Everything the core can ask for: its only output.
//!
//! A command names *what* and *why*; *how* (an ioctl, a CUDA call, a line in a log) is the
//! mover's secret. Commands wait in [`crate::queues::Queues`] until the migration thread takes them.

use crate::units::{LaunchSeq, UmBlock};

/// One request to change where a block is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// Bring the whole block to the GPU. For a block already there this is the LRU touch that
    /// protects it from the driver's eviction (facts 4.2); the mover makes no difference.
    Fetch {
        /// Which block.
        block: UmBlock,
        /// Who wants it.
        why: Why,
    },
    /// Move the block to host memory, to keep residency within the budget.
    Evict {
        /// Which block.
        block: UmBlock,
    },
}

impl Command {
    /// The block it is about.
    pub const fn block(self) -> UmBlock {
        match self {
            Self::Fetch { block, .. } | Self::Evict { block } => block,
        }
    }
}

/// Why a block is fetched; decides its queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Why {
    /// The GPU is waiting for it now: fault queue.
    Fault,
    /// A launch is expected to touch it: prefetch queue.
    Predicted {
        /// The launch that will.
        by: LaunchSeq,
    },
    /// New memory that fits: populate it before its first touch. Prefetch queue.
    Populate,
}
