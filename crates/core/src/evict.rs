//! Who leaves the GPU, and when.
//!
//! Problem: what is fetched needs room. At the GPU's memory the driver makes it, but only when a fetch has begun, which then waits for a
//! copy the other way; and it chooses by age alone. A budget below the memory is ours to keep, so that users can share a GPU, and so that
//! pressure can be made on a real one without filling it (facts 10).
//! Idea: one choice of victims, for three reasons to choose:
//!
//! 1. *free* blocks (`invalidate`): their contents are given up, which costs no copy now or later;
//! 2. the least recently migrated one that nobody expects: the driver's own order (facts 4.2), less the blocks of the plan and of
//!    what is executing;
//! 3. where everybody is expected and the budget must be kept, the one needed last.
//!
//! **The budget** ([`enforce`]): as soon as the blocks on the GPU and the next of those on their way exceed it, somebody is asked to
//! leave. Room is made for [`HEADROOM`] coming blocks, not for all that are asked for: one that the GPU waits for must not stand
//! behind hundreds of evictions. Where nobody can leave, since every block on the GPU is being moved, predicted fetches
//! are taken back, those needed last first.
//!
//! **Ahead** ([`ahead`], the paper's pre-eviction): room for *all* blocks that are asked for and have none, made while the way
//! out has nothing else to do. So the watermark is what is observed: the fetches under way, against what has been seen to
//! fit. Only those leave early whom nobody expects (1 and 2): they are the ones the driver would evict for these fetches, a little later. At most
//! [`HEADROOM`] are asked at a time, so that the choice is made with what is known when the way out is free.
//!
//! While launches of which nobody told may be executing ([`Known::behind`]) nobody leaves early, for what they use looks unexpected.
//!
//! Invariants: once what [`enforce`] asks for is done, the next [`HEADROOM`] blocks can come without the budget being exceeded; no
//! block that is being moved is asked to leave; no expected block is asked to leave by [`ahead`].
//! Only a fault exceeds the budget, by the block the driver then brings in, until that is made good.

use std::cmp::Reverse;

use crate::command::{Command, Commands};
use crate::invalidate::{self, Invalidate};
use crate::known::Known;
use crate::residency::{Ask, Block, Handle, Ticket};
use crate::units::UmBlock;

/// Coming blocks that room is made for, and evictions that wait: two calls of the mover at 32 MiB each (facts 4.1).
pub const HEADROOM: usize = 32;

/// Most blocks looked at for one that leaves early. The oldest are those of which touches keep the expected ones away (`predict`), so
/// one is found at once or hardly at all.
const LOOKS: usize = 64;

/// Asks for evictions until what is on the GPU and what comes next fits the budget.
pub fn enforce(known: &mut Known, out: &mut Commands) {
    let over = |known: &Known| {
        let wanted = known.residency.blocks_staying() + known.residency.blocks_coming().min(HEADROOM);
        wanted.saturating_sub(known.budget)
    };
    while over(known) > 0 && free_leaves(known, out) {}
    // A budget may shrink by half at once: all victims are found in one pass.
    let victims = victims(over(known), known);
    for victim in victims {
        leave(victim, Ask::Evict, known, out);
    }
    take_back(over(known), known, out);
}

/// Asks for room for what is on its way. See the module.
pub fn ahead(known: &mut Known, out: &mut Commands) {
    if known.nobody_leaves == Some(known.front) {
        return;
    }
    loop {
        let residency = &known.residency;
        let wanted = residency.blocks_staying() + residency.blocks_coming();
        if wanted <= known.fits {
            return;
        }
        if free_leaves(known, out) {
            continue;
        }
        if !known.preevict || known.behind.is_some() || is_busy(known) {
            return;
        }
        let Some(victim) = unexpected(known) else {
            // Until another launch is over nobody else will do.
            known.nobody_leaves = Some(known.front);
            return;
        };
        leave(victim, Ask::PreEvict, known, out);
    }
}

/// Whether as many blocks are asked to leave with a copy as shall be at a time.
fn is_busy(known: &Known) -> bool {
    known.residency.blocks_evicting() >= HEADROOM
}

/// Asks a free block to leave, if there is one.
fn free_leaves(known: &mut Known, out: &mut Commands) -> bool {
    if known.invalidate == Invalidate::No || known.invalidate == Invalidate::EvictFirst && is_busy(known) {
        return false;
    }
    let Some(free) = invalidate::victim(known) else { return false };
    match known.invalidate {
        Invalidate::Discard => invalidate::discard(free, known, out),
        _ => leave(free, Ask::Evict, known, out),
    }
    true
}

/// Asks a block to leave with a copy.
pub fn leave(victim: Handle, ask: Ask, known: &mut Known, out: &mut Commands) {
    let block = known.residency.get(victim);
    known.counters.prefetch_useless += u64::from(block.ask() == Ask::Unproven);
    out.push(Command::Evict { block: block.block });
    known.residency.set_ask(victim, ask);
    match ask {
        Ask::PreEvict => known.counters.preevict_asked += 1,
        _ => known.counters.evict_asked += 1,
    }
}

/// Whether nothing is on its way for the block.
fn is_idle(block: &Block) -> bool {
    matches!(block.ask(), Ask::None | Ask::Unproven)
}

/// The least recently migrated block that nobody expects, if it is among the oldest.
fn unexpected(known: &Known) -> Option<Handle> {
    known.residency.oldest_first().take(LOOKS).find(|&at| {
        let block = known.residency.get(at);
        is_idle(block) && !known.is_expected(block) && !known.window.uses(block.block)
    })
}

/// So many that must leave: those that nobody expects, oldest first, then the others, those needed last first.
fn victims(count: usize, known: &Known) -> Vec<Handle> {
    let (mut victims, mut protected) = (Vec::new(), Vec::new());
    for at in known.residency.oldest_first() {
        if victims.len() == count {
            return victims;
        }
        let block = known.residency.get(at);
        if !is_idle(block) {
            continue;
        }
        let in_use = known.window.uses(block.block);
        if !in_use && !known.is_expected(block) {
            victims.push(at);
        } else {
            // Blocks of the executing launch last of all; else the later the next use the better.
            protected.push((Reverse((!in_use, known.next_use(block))), at));
        }
    }
    protected.sort_by_key(|&(rank, _)| rank);
    victims.extend(protected.into_iter().map(|(_, at)| at).take(count - victims.len()));
    victims
}

/// Takes back up to `count` predicted fetches.
fn take_back(count: usize, known: &mut Known, out: &mut Commands) {
    if count == 0 {
        return;
    }
    let coming = known.residency.coming().filter(|block| block.ask() == Ask::Predicted);
    let mut coming: Vec<(Ticket, UmBlock)> = coming.map(|block| (known.next_use(block), block.block)).collect();
    coming.sort_unstable_by_key(|&needed| Reverse(needed));
    for &(_, block) in coming.iter().take(count) {
        if let Some(at) = known.residency.find(block) {
            known.take_back(at, out);
        }
    }
}
