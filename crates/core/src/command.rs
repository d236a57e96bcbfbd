//! Everything the core can ask for: its only output.
//!
//! A command names *what* and *why*; *how* (an ioctl, a CUDA call, a line in a log) is the
//! mover's secret. Commands wait in [`crate::queues::Queues`] until the migration thread takes them.

use crate::units::{LaunchSeq, UmBlock};

/// One request about where a block is to be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// Bring the whole block to the GPU. For a block already there this is the *touch* that moves it
    /// to the end of the driver's eviction list (facts 4.2); the mover makes no difference.
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
    /// Give up the contents of the block without a copy: every byte of it lies in PT blocks that hold no tensor, and whoever
    /// used it last is finished. The mover refuses if the block was handed out again meanwhile. Ends in
    /// [`crate::event::Event::Discarded`].
    Discard {
        /// Which block.
        block: UmBlock,
    },
    /// Copy the block to the host, and leave it on the GPU, too ([`crate::copies`]). Ends in [`crate::event::Event::Saved`].
    Save {
        /// Which block.
        block: UmBlock,
    },
    /// Give up the GPU's copy of a block; when it is fetched again, the host's is to stay. What the host has no copy of is copied.
    Drop {
        /// Which block.
        block: UmBlock,
    },
    /// As a predicted fetch, but for a launch that writes the block: afterwards the GPU's copy is the only one.
    Own {
        /// Which block.
        block: UmBlock,
        /// The launch that will write it.
        by: LaunchSeq,
    },
    /// Take back what still waits for the block, unless the GPU waits for it: a predicted fetch whose launch
    /// is over or was another one, an eviction that a fault overtook, anything about freed memory. Ends in
    /// the queues; the mover never sees it.
    Cancel {
        /// Which block.
        block: UmBlock,
    },
}

impl Command {
    /// The block it is about.
    pub const fn block(self) -> UmBlock {
        match self {
            Self::Fetch { block, .. }
            | Self::Evict { block }
            | Self::Discard { block }
            | Self::Save { block }
            | Self::Drop { block }
            | Self::Own { block, .. }
            | Self::Cancel { block } => block,
        }
    }
}

/// What the core asked for in answer to one event, in order. Keep one and reuse it.
#[derive(Default, Debug)]
pub struct Commands {
    list: Vec<Command>,
}

impl Commands {
    /// An empty list.
    pub const fn new() -> Self {
        Self { list: Vec::new() }
    }
    /// Asks for one more thing.
    pub fn push(&mut self, command: Command) {
        self.list.push(command);
    }
    /// What was asked for, oldest first.
    pub fn as_slice(&self) -> &[Command] {
        &self.list
    }
    /// Takes everything out, oldest first.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Command> {
        self.list.drain(..)
    }
    /// Whether nothing was asked for.
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
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
    /// It is believed to be there, is expected to be used, and might be evicted before: a touch. Touch
    /// queue, before the prefetch queue, for it costs little and helps only if it comes in time.
    Keep,
    /// It has no contents, and needs no more than a place before its first touch. Prefetch queue.
    Populate {
        /// The first launch that may touch it: the next one.
        by: LaunchSeq,
    },
}
