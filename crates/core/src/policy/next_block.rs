//! `next_block`: the simplest prefetcher there is. On a fault, all of that block, and the one after it.
//!
//! It knows no launches and no history. It helps streaming access and hurts everything else, which is what
//! makes it a baseline.

use super::{Policy, PolicyName};
use crate::command::{Command, Commands, Why};
use crate::known::Known;
use crate::residency::{Ask, Handle};
use crate::units::{LaunchSeq, UmBlock};

/// See the module.
#[derive(Debug)]
pub struct NextBlock;

impl Policy for NextBlock {
    fn name(&self) -> PolicyName {
        PolicyName::NextBlock
    }

    fn fault(&mut self, at: Handle, known: &mut Known, out: &mut Commands) {
        let block = known.residency.get(at).block;
        super::faults::fetch_now(at, known, out);
        let Some(next) = known.residency.find(UmBlock(block.0 + 1)) else { return };
        let state = known.residency.get(next);
        if state.whole() || state.ask() != Ask::None {
            return;
        }
        known.counters.prefetch_asked += 1;
        known.residency.set_ask(next, Ask::Predicted);
        known.residency.asked(next);
        // For no launch: none is known.
        out.push(Command::Fetch { block: UmBlock(block.0 + 1), why: Why::Predicted { by: LaunchSeq(0) } });
    }
}
