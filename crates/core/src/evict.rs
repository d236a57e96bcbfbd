//! Who leaves, when the budget is below what the GPU could hold.
//!
//! Problem: the driver evicts only when its memory is full. A budget below that is ours to keep, so that
//! users can share a GPU, and so that pressure can be made on a real one without filling it (facts 10, 8).
//! Idea: as soon as the blocks on the GPU and the next of those on their way exceed the budget, the least
//! recently migrated one that nobody expects is asked to leave: the driver's own order (facts 4.2), less the
//! blocks of the plan and of the executing launch. If everybody is expected, the one needed last leaves. Room is
//! made for [`HEADROOM`] coming blocks, not for all that are asked for: evictions go before fetches, and one
//! that the GPU waits for must not stand behind hundreds.
//!
//! Invariants: once what is asked for here is done, the next [`HEADROOM`] blocks can come without the budget
//! being exceeded, unless every block is already on its way somewhere; nothing is asked of a block that is.
//! Only a fault exceeds it, by the block the driver then brings in, until that is made good.
//! Not here: moving victims out before their room is needed, and giving up contents that are dead. Both
//! choose among the same blocks earlier; they get their own functions here.

use crate::command::{Command, Commands};
use crate::known::Known;
use crate::residency::{Ask, Block, Handle, Ticket};

/// Coming blocks that room is made for: two calls of the mover at 32 MiB each (facts 4.1).
pub const HEADROOM: usize = 32;

/// Asks for evictions until what is on the GPU and what comes next fits the budget.
pub fn enforce(known: &mut Known, out: &mut Commands) {
    let over = |known: &Known| {
        let residency = &known.residency;
        residency.blocks_staying() + residency.blocks_coming().min(HEADROOM) > known.budget
    };
    while over(known) {
        let Some(victim) = victim(known) else { return };
        let block = known.residency.get(victim);
        if block.ask() == Ask::Unproven {
            known.counters.prefetch_useless += 1;
        }
        out.push(Command::Evict { block: block.block });
        known.residency.set_ask(victim, Ask::Evict);
        known.counters.evict_asked += 1;
    }
}

fn victim(known: &Known) -> Option<Handle> {
    let executing = known.window.oldest();
    let idle = |block: &Block| matches!(block.ask(), Ask::None | Ask::Unproven);
    let in_use = |block: &Block| executing.is_some_and(|launch| launch.reaches(block.block));
    let mut protected: Option<(Handle, (bool, Ticket))> = None;
    for at in known.residency.oldest_first() {
        let block = known.residency.get(at);
        if !idle(block) {
            continue;
        }
        let in_use = in_use(block);
        if !in_use && !known.is_expected(block) {
            return Some(at);
        }
        // Blocks of the executing launch last of all; else the later the next use the better.
        let next = if block.next_use >= known.front { block.next_use } else { block.last_use };
        let rank = (!in_use, next);
        if protected.is_none_or(|(_, best)| rank > best) {
            protected = Some((at, rank));
        }
    }
    protected.map(|(at, _)| at)
}
