//! Who leaves, when the budget is below what the GPU could hold.
//!
//! Problem: the driver evicts only when its memory is full. A budget below that is ours to keep, so that
//! users can share a GPU, and so that pressure can be made on a real one without filling it (facts 10).
//! Idea: as soon as the blocks on the GPU and the next of those on their way exceed the budget, the least
//! recently migrated one that nobody expects is asked to leave: the driver's own order (facts 4.2), less the
//! blocks of the plan and of the executing launch. If everybody is expected, the one needed last leaves. Room is
//! made for [`HEADROOM`] coming blocks, not for all that are asked for: evictions go before fetches, and one
//! that the GPU waits for must not stand behind hundreds. Where nobody can leave, since every block on the GPU is
//! being moved, predicted fetches are taken back, those needed last first.
//!
//! Invariants: once what is asked for here is done, the next [`HEADROOM`] blocks can come without the budget
//! being exceeded; no block that is being moved is asked to leave.
//! Only a fault exceeds it, by the block the driver then brings in, until that is made good.
//! Blocks whose contents nobody needs go before all others (`invalidate`).
//! Not here: moving victims out before their room is needed.

use std::cmp::Reverse;

use crate::command::{Command, Commands};
use crate::invalidate::{self, Invalidate};
use crate::known::Known;
use crate::residency::{Ask, Block, Handle, Ticket};
use crate::units::UmBlock;

/// Coming blocks that room is made for: two calls of the mover at 32 MiB each (facts 4.1).
pub const HEADROOM: usize = 32;

/// Asks for evictions until what is on the GPU and what comes next fits the budget.
pub fn enforce(known: &mut Known, out: &mut Commands) {
    loop {
        let residency = &known.residency;
        let wanted = residency.blocks_staying() + residency.blocks_coming().min(HEADROOM);
        let Some(over @ 1..) = wanted.checked_sub(known.budget) else { return };
        if known.invalidate != Invalidate::No
            && let Some(free) = invalidate::victim(known)
        {
            match known.invalidate {
                Invalidate::Discard => invalidate::discard(free, known, out),
                _ => evict(free, known, out),
            }
            continue;
        }
        let Some(victim) = victim(known) else { return take_back(over, known, out) };
        evict(victim, known, out);
    }
}

/// Asks a block to leave.
fn evict(victim: Handle, known: &mut Known, out: &mut Commands) {
    let block = known.residency.get(victim);
    known.counters.prefetch_useless += u64::from(block.ask() == Ask::Unproven);
    out.push(Command::Evict { block: block.block });
    known.residency.set_ask(victim, Ask::Evict);
    known.counters.evict_asked += 1;
}

fn victim(known: &Known) -> Option<Handle> {
    let idle = |block: &Block| matches!(block.ask(), Ask::None | Ask::Unproven);
    let in_use = |block: &Block| known.window.uses(block.block);
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
        let rank = (!in_use, known.next_use(block));
        if protected.is_none_or(|(_, best)| rank > best) {
            protected = Some((at, rank));
        }
    }
    protected.map(|(at, _)| at)
}

/// Takes back up to `count` predicted fetches. One that is being carried out ends all the same, and makes room then.
fn take_back(count: usize, known: &Known, out: &mut Commands) {
    let coming = known.residency.coming().filter(|block| block.ask() == Ask::Predicted);
    let mut coming: Vec<(Ticket, UmBlock)> = coming.map(|block| (known.next_use(block), block.block)).collect();
    coming.sort_unstable_by_key(|&needed| Reverse(needed));
    for &(_, block) in coming.iter().take(count) {
        out.push(Command::Cancel { block });
    }
}
