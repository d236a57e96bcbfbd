//! What is known right now, whatever the policy: the engine keeps it, policies read it and note in it.

use crate::counters::Counters;
use crate::exec_id::Interner;
use crate::pt_blocks::PtBlocks;
use crate::residency::{Block, Residency, Ticket};
use crate::window::Window;

/// See the module.
#[derive(Debug)]
pub struct Known {
    /// Where blocks are and what is asked for them.
    pub residency: Residency,
    /// Launches under way.
    pub window: Window,
    /// Bounds of pointers.
    pub pt_blocks: PtBlocks,
    /// Execution IDs given out.
    pub exec_ids: Interner,
    /// What is counted.
    pub counters: Counters,
    /// Blocks the budget allows on the GPU.
    pub budget: usize,
    /// Ticket of the launch at the front of the plan: uses before it are past.
    pub front: Ticket,
    /// Whether fault notices can be seen.
    pub faults_visible: bool,
}

impl Known {
    /// Whether a planned launch is expected to need the block.
    pub fn is_expected(&self, block: &Block) -> bool {
        block.last_use >= self.front
    }
}
