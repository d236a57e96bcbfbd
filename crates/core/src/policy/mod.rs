//! Policies: each decides what to ask for, on top of what the engine keeps for all of them.
//!
//! The engine first brings [`Known`] up to date, then tells the policy; afterwards it keeps the budget. A
//! policy never moves anything and has no clock, lock or randomness.

mod deepum;
mod deepum_paper;
mod demand;
mod faults;
mod horizon;
mod learner;
mod next_block;
mod restless;

use std::fmt;
use std::str::FromStr;

pub use deepum::Deepum;
pub use deepum_paper::DeepumPaper;
pub use demand::Demand;
pub use horizon::Horizon;
pub use next_block::NextBlock;
pub use restless::Restless;

use crate::command::Commands;
use crate::correlate::{Geometry, Tables};
use crate::known::Known;
use crate::residency::{Block, Handle, Ticket};
use crate::units::{AddrRange, Bytes, LaunchSeq};
use crate::window::Issued;

/// Decides; never does.
pub trait Policy: Send + fmt::Debug {
    /// Which of [`PolicyName`] it is.
    fn name(&self) -> PolicyName;
    /// Whether it needs launches and progress. The engine stays dormant for one that does not.
    fn watches_launches(&self) -> bool {
        false
    }
    /// Whether a launch whose pointers reach further than before is another one ([`crate::exec_id::reaching`]).
    fn tells_reaches_apart(&self) -> bool {
        true
    }
    /// Whether new memory is to be populated before its first touch, while everything fits.
    fn populates(&self) -> bool {
        false
    }
    /// Whether [`crate::residency::Residency::changed`] is to tell it which blocks changed.
    fn watches_blocks(&self) -> bool {
        false
    }
    /// A launch was issued; it is in the window.
    fn launch(&mut self, _seq: LaunchSeq, _known: &mut Known, _out: &mut Commands) {}
    /// A copy took a place in the sequence; it is in the window.
    fn copy(&mut self, _seq: LaunchSeq, _known: &mut Known) {}
    /// A launch or copy is over; it has just left the window.
    fn finished(&mut self, _launch: &Issued, _known: &mut Known) {}
    /// Everything one event finished was told.
    fn progressed(&mut self, _known: &mut Known, _out: &mut Commands) {}
    /// The budget is smaller than it was, or memory no longer fits; nobody was asked to leave for that yet.
    fn shrunk(&mut self, _known: &mut Known, _out: &mut Commands) {}
    /// The GPU faulted on the block `at`, which is managed.
    fn fault(&mut self, _at: Handle, _known: &mut Known, _out: &mut Commands) {}
    /// The GPU wrote to the block `at`, of which the host had a copy ([`crate::copies`]), and faulted for that; the block stays. Told for each such fault.
    fn overwritten(&mut self, _at: Handle, _known: &mut Known, _out: &mut Commands) {}
    /// The block `at` has just left the GPU, not at our request.
    fn evicted(&mut self, _at: Handle, _known: &mut Known, _out: &mut Commands) {}
    /// PyTorch handed memory out, and the engine is awake.
    fn handed_out(&mut self, _range: AddrRange, _known: &mut Known) {}
    /// PyTorch took memory back, the engine is awake, and contents may be given up.
    fn handed_back(&mut self, _range: AddrRange, _known: &mut Known) {}
    /// A block is about to be forgotten: its memory is freed.
    fn freed(&mut self, _at: Handle, _block: &Block, _front: Ticket) {}
    /// The engine goes dormant: nothing is needed any more.
    fn sleep(&mut self, _known: &mut Known, _out: &mut Commands) {}
    /// All that an event changed is known, and the engine is awake.
    fn heed(&mut self, _known: &mut Known) {}
    /// After [`Self::heed`], unless a move failed, which made no room and took none. Returns whether it decides itself who leaves the GPU, within what fits; if not,
    /// [`crate::evict`] does.
    fn act(&mut self, _known: &mut Known, _out: &mut Commands) -> bool {
        false
    }
    /// The first launch that had better not start yet, because blocks fetched for it are on their way.
    fn gate(&mut self, _known: &Known) -> Option<LaunchSeq> {
        None
    }
    /// How many launches and copies the program had better be ahead of the GPU at most; nothing if it does not matter.
    fn lead(&self, _known: &Known) -> Option<u64> {
        None
    }
    /// Launches before this one lack nothing, as far as is foreseen.
    fn clear_until(&self, _known: &Known) -> LaunchSeq {
        LaunchSeq(0)
    }
    /// The number of the rules it learns by, and what it has learned; nothing if it learns nothing.
    fn learned(&self) -> Option<(u32, &Tables)> {
        None
    }
    /// Goes on from what an earlier run learned by the same rules. Only asked of one that learns.
    fn take_over(&mut self, _tables: Tables) {}
    /// What it has learned, for people.
    fn tables(&self) -> TableSizes {
        TableSizes::default()
    }
}

/// Sizes of the correlation tables and of the plan.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct TableSizes {
    /// Records of the execution-ID table.
    pub exec_records: usize,
    /// Its memory.
    pub exec_bytes: Bytes,
    /// UM-block tables.
    pub block_tables: usize,
    /// Their memory.
    pub block_bytes: Bytes,
    /// Blocks that planned launches are expected to need.
    pub planned_blocks: usize,
    /// Memory of what is known of the future, beside the tables.
    pub future_bytes: Bytes,
}

impl TableSizes {
    /// All memory.
    pub fn bytes(&self) -> Bytes {
        self.exec_bytes + self.block_bytes + self.future_bytes
    }
}

/// The closed list of policies, by the name used in configuration and reports.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub enum PolicyName {
    /// Nothing is fetched ahead: the driver's own faults and eviction.
    Demand,
    /// On a fault, that block and the next one.
    NextBlock,
    /// Correlation tables, and a plan over what was issued and what they predict.
    Deepum,
    /// Whoever is needed last leaves, an iteration ahead.
    #[default]
    Horizon,
    /// Correlation tables and chaining exactly as in the paper (DeepUM, ASPLOS'23).
    DeepumPaper,
    /// Whatever may be asked, without reason: for tests.
    Restless,
}

/// A policy nobody knows.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown policy `{0}`; known are {known}", known = PolicyName::ALL.map(PolicyName::as_str).join(", "))]
pub struct UnknownPolicy(String);

impl PolicyName {
    /// All that programs can run under, plainest first.
    pub const ALL: [Self; 6] =
        [Self::Demand, Self::NextBlock, Self::Deepum, Self::Horizon, Self::DeepumPaper, Self::Restless];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Demand => "demand",
            Self::NextBlock => "next_block",
            Self::Deepum => "deepum",
            Self::Horizon => "horizon",
            Self::DeepumPaper => "deepum_paper",
            Self::Restless => "restless",
        }
    }

    /// Whether it asks for each block that a GPU faults on. Then blocks may leave in a way after which the driver brings none by itself.
    pub const fn brings_faults(self) -> bool {
        !matches!(self, Self::Demand | Self::Restless)
    }

    /// A fresh policy of this name.
    pub fn build(self, degree: u32, geometry: Geometry) -> Box<dyn Policy> {
        match self {
            Self::Demand => Box::new(Demand),
            Self::NextBlock => Box::new(NextBlock),
            Self::Deepum => Box::new(Deepum::new(degree, geometry)),
            Self::Horizon => Box::new(Horizon::new(geometry)),
            Self::DeepumPaper => Box::new(DeepumPaper::new(degree, geometry)),
            Self::Restless => Box::<Restless>::default(),
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PolicyName {
    type Err = UnknownPolicy;
    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|name| name.as_str() == text).ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways_and_an_unknown_one_lists_them() {
        for name in PolicyName::ALL {
            assert_eq!(name.as_str().parse(), Ok(name));
            assert_eq!(name.build(32, Geometry::default()).name(), name);
        }
        let error = "deepun".parse::<PolicyName>().unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown policy `deepun`; known are demand, next_block, deepum, horizon, deepum_paper, restless"
        );
    }
}
