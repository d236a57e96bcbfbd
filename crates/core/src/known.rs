//! What is known right now, whatever the policy: the engine keeps it, policies read it and note in it.

use crate::command::{Command, Commands};
use crate::correlate::Places;
use crate::counters::Counters;
use crate::exec_id::Interner;
use crate::invalidate::{Dying, Invalidate};
use crate::pt_blocks::PtBlocks;
use crate::residency::{Ask, Block, Handle, Residency, Ticket};
use crate::sequence::Sequence;
use crate::units::LaunchSeq;
use crate::window::{Issued, Window};

/// See the module.
#[derive(Debug)]
pub struct Known {
    /// Where blocks are and what is asked for them.
    pub residency: Residency,
    /// Launches under way.
    pub window: Window,
    /// Which of them we were told of.
    pub sequence: Sequence,
    /// The first launch or copy told of since the engine woke, until it is over, if others were issued before it: those may be
    /// executing, and what they use is not known.
    pub behind: Option<LaunchSeq>,
    /// PT blocks taken back, and what their contents are worth.
    pub dying: Dying,
    /// Whether blocks are moved out before their room is needed.
    pub preevict: bool,
    /// The front of the plan at which nobody was found to leave early.
    pub nobody_leaves: Option<Ticket>,
    /// What is done about contents that nobody needs.
    pub invalidate: Invalidate,
    /// Whether the driver can keep two copies of a block ([`crate::copies`]).
    pub saving: bool,
    /// Bounds of pointers.
    pub pt_blocks: PtBlocks,
    /// Numbers of blocks, which the tables know them by.
    pub places: Places,
    /// Execution IDs given out.
    pub exec_ids: Interner,
    /// What is counted.
    pub counters: Counters,
    /// Blocks the budget allows on the GPU.
    pub budget: usize,
    /// Blocks that really fit: the budget, or what is there when the driver has to evict, if less ([`Self::was_full`]). Contexts,
    /// workspaces and other programs take memory that we do not see.
    pub fits: usize,
    /// What the driver's last evictions found.
    pub found_less: FoundLess,
    /// Whether there is more managed memory than is sure to fit. Until there is, nobody is evicted.
    pub crowded: bool,
    /// Ticket of the launch at the front of the plan: uses before it are past.
    pub front: Ticket,
    /// Whether fault notices can be seen.
    pub faults_visible: bool,
}

/// The driver's evictions, one after the other, at which less was known to be there than is believed to fit.
#[derive(Debug, Default)]
pub struct FoundLess {
    evictions: usize,
    /// The most blocks that one of them found.
    most: usize,
}

/// Evictions one after the other that must have found less there before it is believed that less fits; where few blocks fit, one for each 64 of
/// them.
const BELIEVED: usize = 64;

impl Known {
    /// The driver evicted a block for room, so the GPU was full. What is known to be there may be less than that, since notices of what
    /// has just come may be on their way or lost; and who then asks for no more never finds out. So one eviction is not believed: what fits is
    /// the most that one of many found.
    pub fn was_full(&mut self) {
        let there = self.residency.blocks_on_device();
        let found = &mut self.found_less;
        found.most = found.most.max(there);
        found.evictions += 1;
        if there >= self.fits || found.evictions >= BELIEVED.min(self.fits.div_ceil(64)) {
            self.fits = found.most.clamp(1, self.budget.max(1));
            self.found_less = FoundLess::default();
        }
    }
    /// Something became resident: at least what is there fits.
    pub fn holds(&mut self) {
        self.fits = self.fits.max(self.residency.blocks_on_device()).min(self.budget);
    }
    /// Whether a block may come without another one leaving.
    pub fn has_free_room(&self) -> bool {
        self.residency.blocks_staying() + self.residency.blocks_coming() < self.fits
    }
    /// Takes back the predicted fetch of a block, if one is on its way. It counts as ended from now on, so that the block may be asked for again by
    /// the same event; one that is being carried out brings the block all the same.
    pub fn take_back(&mut self, at: Handle, out: &mut Commands) {
        let block = self.residency.get(at);
        if block.ask() == Ask::Predicted {
            out.push(Command::Cancel { block: block.block });
            self.counters.prefetch_dropped += 1;
            self.residency.set_ask(at, Ask::None);
        }
    }
    /// Without notices: what a finished launch may have used is there, if only in part.
    pub fn used(&mut self, launch: &Issued) {
        for block in launch.blocks() {
            if let Some(at) = self.residency.find(block) {
                self.residency.arrive(at);
            }
        }
    }
    /// Whether a launch that nobody told of may be executing where this one is expected to.
    pub fn follows_untold(&self, launch: &Issued) -> bool {
        self.sequence.lacks_between(self.window.done(launch.stream), launch.seq)
    }
    /// Blocks that the plan may fill.
    ///
    /// The more of those that leave we choose ourselves, the less of the memory the driver's choice by age must be given, so that it
    /// finds none of the plan there. The parts are measured (`tests/model.rs`): half where the driver alone chooses, five eighths where room
    /// is made ahead, three quarters where free blocks are given up or leave first, of which there are then
    /// always some.
    pub fn plan_room(&self) -> usize {
        let eighths = match (self.preevict, self.invalidate) {
            (_, Invalidate::Discard) | (true, Invalidate::EvictFirst) => 6,
            (true, Invalidate::No) => 5,
            (false, Invalidate::No | Invalidate::EvictFirst) => 4,
        };
        self.fits / 8 * eighths + self.fits % 8 * eighths / 8
    }
    /// Whether a planned launch is expected to need the block.
    pub fn is_expected(&self, block: &Block) -> bool {
        block.last_use >= self.front
    }
    /// The planned launch that needs an expected block next, as far as is known.
    pub fn next_use(&self, block: &Block) -> Ticket {
        if block.next_use >= self.front { block.next_use } else { block.last_use }
    }
}
