//! The way out: room for what is to come, made as soon as it is known that somebody must have left, by whoever is needed last.
//!
//! Whose contents nobody needs has no place in this: it counts as free, and is given up when places are filled. Who leaves and will come back unchanged to leave once more leaves a copy
//! on the host (`copies`), if that is asked for.

use super::{Horizon, SOON, SPARE, TOGETHER};
use crate::command::Commands;
use crate::copies;
use crate::evict;
use crate::horizon::need::Ordinal;
use crate::horizon::ranks::{Class, NEVER};
use crate::horizon::timeline::{Does, STRIDE, ordinal};
use crate::invalidate::{self, Invalidate};
use crate::known::Known;
use crate::queues::BATCH;
use crate::residency::{Ask, Block, Handle, Ticket};
use crate::units::UmBlock;
use std::ops::Range;

/// While others are on the way out, room that is needed within so many launches is made by those who need no time on it.
const HASTE: Ordinal = 256;

/// For room that is needed later than this nobody leaves while a copy of the program's own goes to the host, which would have to wait for who leaves, and the program with it.
const CALM: Ordinal = 64;

/// Nobody is chosen while so many are still to leave: the later the choice, the later those are needed who leave, and a block that waits to leave has a place for nothing. The one that is left is what the
/// way out is busy with until it hears of the next.
const STILL: usize = 2;

/// Most blocks on their way off the GPU of which the host has a copy.
const QUICKLY: usize = 4 * TOGETHER;

/// Most places of the dead that are asked for at a time because launches are to have them soon.
const GIVEN_UP: usize = 8 * TOGETHER;

/// Who lies beside one that leaves goes along, in one call, though others that stay may be needed a little later: as many as are lacking, but these at least and at most, and needed sooner by no more than a quarter. Who needs no time on the link leaves in bunches as small as come.
const CALL: usize = TOGETHER / 2;
const NEAR: Ordinal = 4;

impl Horizon {
    /// Blocks kept free.
    pub(super) fn spare(known: &Known) -> usize {
        SPARE.min(known.fits / 16)
    }

    /// Places that nobody needs: those left free and those of the dead.
    pub(super) fn places(&self, known: &Known) -> i32 {
        let residency = &known.residency;
        let dead = self.ranks.count(Class::Dead) + self.ranks.count(Class::DeadSaved);
        let taken = residency.blocks_staying() + residency.blocks_coming();
        signed(known.fits + dead) - signed(taken)
    }

    /// The first launch by which somebody must have left, so that this many places are left free.
    pub(super) fn over(&mut self, spare: usize, known: &Known) -> Option<Ordinal> {
        self.timeline.need.first_over(ordinal(self.timeline.front()), self.places(known) - signed(spare))
    }

    /// Asks those to leave who must.
    pub(super) fn make_room(&mut self, known: &mut Known, out: &mut Commands) {
        self.give_up(known, out);
        loop {
            let from = ordinal(self.timeline.front());
            let Some(over) = self.over(Self::spare(known), known) else { return };
            if over > from && !known.preevict || over >= from + CALM && known.window.has_reading_copy() {
                return;
            }
            // New contents may come in bursts; what is fetched needs room for one bunch: its place is free when its time has come.
            let spare = signed(2 * Self::spare(known));
            let wanted = self.timeline.births.highest(from).saturating_add(spare).saturating_sub(self.places(known));
            if wanted <= 0 {
                return;
            }
            // For what is only to be left free nobody leaves who is needed soon.
            let is_needed = self.over(0, known).is_some_and(|needed| needed <= over);
            let bound = if is_needed { over } else { over.max(from + SOON / STRIDE) };
            let last = |class| self.ranks.last(class).filter(|&(ticket, _)| ordinal(ticket) > bound);
            let is_early = over >= from + SOON / STRIDE
                && self.places(known) >= spare.saturating_add(signed(2 * TOGETHER))
                && known.residency.blocks_coming() > 0;
            let saved = last(Class::Saved);
            // While the way in has enough to do, nobody leaves ahead of time who is not to leave as planned: they would have to come again.
            let only = last(Class::Only).filter(|&(_, at)| !is_early || self.timeline.leaves(at));
            // In haste, or soon and while others are on the way out, whoever needs no time on the link goes first; and otherwise not while there is time.
            let is_busy = known.residency.blocks_going() >= STILL;
            let is_hasty = over < from + SOON / STRIDE || is_busy && over < from + HASTE;
            let quick = saved.filter(|_| is_hasty);
            let Some((ticket, at)) = quick.or(only.max(saved.filter(|_| !is_early))) else { return };
            let (class, most, least) = match known.residency.get(at).saved {
                true => (Class::Saved, QUICKLY, BATCH as usize),
                false => (Class::Only, STILL, CALL),
            };
            if known.residency.blocks_going() >= most {
                return;
            }
            let last = ordinal(ticket);
            let after = bound.max(last - (last - from) / NEAR);
            let goes = |at| {
                self.ranks.of(at, class).is_some_and(|ticket| ordinal(ticket) > after)
                    && (!is_early || self.timeline.leaves(at))
            };
            let lacking = usize::try_from(wanted).unwrap_or(0).max(least).min(TOGETHER);
            let leaving = around(known.residency.get(at).block, lacking, goes, known);
            for block in leaving.map(UmBlock) {
                if let Some(at) = known.residency.find(block) {
                    self.leave(at, known, out);
                }
            }
        }
    }

    /// Asks for places of the dead, so that what comes next finds some.
    fn give_up(&mut self, known: &mut Known, out: &mut Commands) {
        let is_instant = match known.invalidate {
            Invalidate::No => return,
            Invalidate::EvictFirst => false,
            Invalidate::Discard => true,
        };
        let residency = &known.residency;
        let free = known.fits.saturating_sub(residency.blocks_staying() + residency.blocks_coming());
        let few = Self::spare(known) + TOGETHER;
        // What executes, or is to soon, does not wait for places that others are still to leave with a copy.
        let now = free.saturating_sub(residency.blocks_evicting());
        if free >= few && now >= GIVEN_UP {
            return;
        }
        let front = ordinal(self.timeline.front());
        let due = match is_instant {
            true => self.timeline.births.highest_within(front, front, front + SOON / STRIDE),
            false => 0,
        };
        let due = usize::try_from(due).unwrap_or(0).min(GIVEN_UP);
        if free >= few && now >= due {
            return;
        }
        let Some((wanted, _)) = self.next_wanted() else { return };
        let mut more = (2 * few).saturating_sub(free).max((due + Self::spare(known)).saturating_sub(now));
        while more > 0
            && let Some((_, at)) = self.last(Class::Dead, Class::DeadSaved).filter(|&(ticket, _)| ticket > wanted)
        {
            if invalidate::free_since(known.residency.get(at).block, known).is_none() {
                known.residency.get_mut(at).listed = false;
            } else {
                match is_instant {
                    true => invalidate::discard(at, known, out),
                    false => evict::leave(at, Ask::PreEvict, known, out),
                }
                more -= 1;
            }
            self.rank(at, known);
        }
    }

    fn leave(&mut self, at: Handle, known: &mut Known, out: &mut Commands) {
        let Block { block, saved, .. } = *known.residency.get(at);
        // Who was saved to see whether it is written comes back with its copy, or nothing is seen.
        let is_tried = saved && self.timeline.next_use(at).is_some_and(|(_, does)| does == Does::Uses);
        let worth = self.timeline.is_worth_a_copy(at).filter(|_| known.saving);
        let keeps = is_tried || worth.is_some_and(|doubtful| doubtful.is_none_or(|exec| self.may_try(exec, block)));
        if !(keeps && copies::drop_copy(at, known, out)) {
            evict::leave(at, Ask::PreEvict, known, out);
        }
        self.rank(at, known);
    }

    /// Who of two classes is needed last.
    fn last(&self, one: Class, other: Class) -> Option<(Ticket, Handle)> {
        self.ranks.last(one).max(self.ranks.last(other))
    }
}

/// Up to so many blocks that lie together, one of which is this, and of the others each one goes.
fn around(block: UmBlock, most: usize, goes: impl Fn(Handle) -> bool, known: &Known) -> Range<u64> {
    let goes = |block| known.residency.find(UmBlock(block)).is_some_and(&goes);
    let (mut first, mut end) = (block.0, block.0 + 1);
    let is_full = |first, end| end - first >= most as u64;
    while !is_full(first, end) && goes(end) {
        end += 1;
    }
    while !is_full(first, end) && first > 0 && goes(first - 1) {
        first -= 1;
    }
    first..end
}

/// As many, to be compared with fewer than none.
pub(super) fn signed(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Whether a block of this class, needed then, takes a place by that that it does not have now.
pub(super) fn is_absent((class, ticket): (Class, Ticket)) -> bool {
    ticket != NEVER && matches!(class, Class::Unborn | Class::Away | Class::Leaving | Class::Dead | Class::DeadSaved)
}
