//! What waits in which lane, which way that goes, and what a mover is given of it.

use crate::steps::Way;
use crate::units::{AddrRange, Bytes, UmBlock};

/// Which lane a batch came from, and with it what to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lane {
    /// Give up the contents, without a copy.
    Discard,
    /// Give up the copy on the GPU; the host is believed to have one.
    Drop,
    /// Move to host memory.
    Evict,
    /// Copy to host memory.
    Save,
    /// Fetch: the GPU waits.
    Fault,
    /// Fetch what is believed to be there: touch.
    Keep,
    /// Fetch: wanted soon, or new memory. Or own.
    Predicted,
}

impl Lane {
    /// All of them; those of one direction in the order they are served.
    pub const ALL: [Self; 7] =
        [Self::Discard, Self::Drop, Self::Evict, Self::Save, Self::Fault, Self::Keep, Self::Predicted];

    /// As in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Discard => "discard",
            Self::Drop => "drop",
            Self::Evict => "evict",
            Self::Save => "save",
            Self::Fault => "fault",
            Self::Keep => "keep",
            Self::Predicted => "predicted",
        }
    }

    /// Which way it goes.
    pub const fn direction(self) -> Direction {
        match self {
            Self::Discard | Self::Drop | Self::Evict | Self::Save => Direction::Out,
            Self::Fault | Self::Keep | Self::Predicted => Direction::In,
        }
    }
}

/// Which way blocks move: each has a copy engine and half of the link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// Off the GPU.
    Out,
    /// Onto the GPU.
    In,
}

impl Direction {
    /// The other one.
    pub const fn opposite(self) -> Self {
        match self {
            Self::Out => Self::In,
            Self::In => Self::Out,
        }
    }
}

/// Who carries batches out, one at a time: a thread each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hand {
    /// Gives contents up, for which it waits and the link does not.
    GiveUp,
    /// Off the GPU.
    Out,
    /// Onto the GPU, likewise, while the other one waits for its batch to come.
    In2,
    /// Onto the GPU.
    In,
}

impl Hand {
    /// All of them. Where several may take something, the last of these does so first.
    pub const ALL: [Self; 4] = [Self::GiveUp, Self::Out, Self::In2, Self::In];

    /// Its lanes, in the order they are served unless predicted fetches are late ([`super::Queues`]).
    pub const fn lanes(self) -> &'static [Lane] {
        match self {
            Self::GiveUp => &[Lane::Discard],
            Self::Out => &[Lane::Drop, Lane::Evict, Lane::Save],
            Self::In | Self::In2 => &[Lane::Fault, Lane::Keep, Lane::Predicted],
        }
    }
    /// Which way it moves blocks.
    pub const fn direction(self) -> Direction {
        match self {
            Self::GiveUp | Self::Out => Direction::Out,
            Self::In | Self::In2 => Direction::In,
        }
    }
}

/// Consecutive blocks to move the same way: one call of the driver, or a few ([`Batch::steps`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// What to do.
    pub lane: Lane,
    /// What is known of the blocks.
    pub way: Way,
    /// The lowest block.
    pub first: UmBlock,
    /// How many from there; at least 1.
    pub count: u32,
}

impl Batch {
    /// The bytes to move.
    pub const fn range(self) -> AddrRange {
        AddrRange::new(self.first.start(), Bytes(UmBlock::SIZE.get() * self.count as u64))
    }
    /// Each block, lowest first.
    pub fn blocks(self) -> impl ExactSizeIterator<Item = UmBlock> {
        (0..self.count).map(move |n| UmBlock(self.first.0 + u64::from(n)))
    }
    pub(super) fn after(self) -> UmBlock {
        UmBlock(self.first.0 + u64::from(self.count))
    }
    pub(super) fn contains(self, block: UmBlock) -> bool {
        (self.first.0..self.first.0 + u64::from(self.count)).contains(&block.0)
    }
}
