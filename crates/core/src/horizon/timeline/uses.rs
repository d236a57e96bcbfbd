//! Uses, and what changes with them: each is in its block's chain and in its point's list, and takes places by the curves of the timeline.
//!
//! A use belongs to a point from the front on or at the end, for points go from the front and are taken back from the end; so it leaves its chain at one of its ends. What follows in the chain
//! changes by that only where the rest before it is spent in place, or was to end contents.
//! Invariant: whatever a use was noted with in the curves is taken back before it changes, or goes.

use super::holds::{Hold, User};
use super::odds::{Came, Odds};
use super::{Does, Timeline, ordinal};
use crate::horizon::need::Ordinal;
use crate::residency::{Handle, Ticket};
use crate::units::LaunchSeq;

/// A use that is none.
pub(super) const NIL: u32 = u32::MAX;

/// Contents that a launch used last are given up when it is over, which takes a moment: what the next launch needs had better find another place.
const GIVING_UP: Ordinal = 1;

/// The point of a use that is none any more.
const GONE: Ticket = Ticket(u64::MAX);

#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) at: Handle,
    pub(super) point: Ticket,
    /// That of the point, or [`NIL`].
    pub(super) exec: u32,
    pub(super) does: Does,
    /// Whether the rest before it is spent in place, as planned.
    pub(super) in_place: bool,
    /// For how many launches more the block is held, once the next use is known to fill it anew ([`Holds`](super::holds::Holds)).
    pub(super) held: Option<Hold>,
    /// Whether the block was handed back after it.
    pub(super) handed_back: bool,
    /// Of the same block.
    pub(super) before: u32,
    pub(super) after: u32,
    /// The next of the same point; of a vacant one the next vacant one.
    pub(super) beside: u32,
}

/// There are tens of thousands, and each is looked at where it begins, where its block is used next, and where it ends: two in a cache line.
const _: () = assert!(size_of::<Use>() == 32);

#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub(super) first: u32,
    pub(super) last: u32,
    /// The one added or found last, from which the next is looked for: what became known is added to many launches one after the other, and a block may be used by each of them.
    pub(super) near: u32,
    /// Whether the block has no place now.
    pub(super) absent: bool,
    pub(super) odds: Odds,
    /// Who used it last, of those that are over.
    pub(super) over: User,
}

impl Timeline {
    pub(super) fn chain(&mut self, at: Handle) -> &mut Chain {
        if self.chains.len() <= at.index() {
            self.chains.resize(
                at.index() + 1,
                Chain { first: NIL, last: NIL, near: NIL, absent: false, odds: Odds::NEW, over: User::NONE },
            );
        }
        &mut self.chains[at.index()]
    }

    pub(super) fn first(&self, at: Handle) -> u32 {
        self.chains.get(at.index()).map_or(NIL, |chain| chain.first)
    }

    pub(super) fn is_after(&self, id: u32, ticket: Ticket) -> bool {
        id != NIL && self.uses[id as usize].point > ticket
    }

    pub(super) fn put(&mut self, new: Use) -> u32 {
        self.live += 1;
        if self.vacant == NIL {
            self.uses.push(new);
            return u32::try_from(self.uses.len() - 1).expect("memory would end before");
        }
        let id = self.vacant;
        self.vacant = std::mem::replace(&mut self.uses[id as usize], new).beside;
        id
    }

    /// Takes a use out of its block's chain, which it is the first or the last of, and its place back.
    pub(super) fn unlink(&mut self, id: u32) -> Handle {
        let Use { at, before, after, .. } = self.uses[id as usize];
        debug_assert!(before == NIL || after == NIL, "uses end from the front, and are taken back from the end");
        self.weigh(id, -1);
        let chain = &mut self.chains[at.index()];
        chain.near = if chain.near == id { NIL } else { chain.near };
        match before {
            NIL => self.chains[at.index()].first = after,
            before => self.uses[before as usize].after = after,
        }
        match after {
            NIL => self.chains[at.index()].last = before,
            after => self.is_first(after, id),
        }
        self.uses[id as usize].beside = self.vacant;
        self.vacant = id;
        self.live -= 1;
        at
    }

    /// A use is the first of its block now: the rest between the use before and it has no beginning any more.
    pub(super) fn is_first(&mut self, id: u32, before: u32) {
        let Use { point, does, in_place, .. } = self.uses[id as usize];
        self.uses[id as usize].before = NIL;
        if in_place {
            self.plan.opens(ordinal(self.uses[before as usize].point) + 1, ordinal(point));
        }
        if does == Does::Fills {
            self.ends(before, ordinal(point), -1);
        }
    }

    /// Notes, so many times, that contents end with a use and others begin at this launch: from where they are held no more nobody needs their place.
    pub(super) fn ends(&mut self, last: u32, at: Ordinal, times: i32) {
        let Use { point, held, .. } = self.uses[last as usize];
        let held = held.map_or(0, |held| Ordinal::from(held.launches()));
        let since = (ordinal(point) + 1 + held + GIVING_UP).min(at);
        for curve in [&mut self.need, &mut self.births] {
            curve.add(since, -times);
            curve.add(at, times);
        }
    }

    /// Takes every use of a point out. `over`: its launch, if that is over, and how it came.
    pub(super) fn unlink_all(&mut self, mut id: u32, over: Option<(LaunchSeq, Came)>, mut gone: impl FnMut(Handle)) {
        while id != NIL {
            let one = self.uses[id as usize];
            let beside = one.beside;
            // A freed block's use is in no chain any more.
            if one.point != GONE {
                if let Some((seq, came)) = over {
                    self.was_used(&one, seq, came);
                }
                gone(self.unlink(id));
            } else {
                self.uses[id as usize].beside = self.vacant;
                self.vacant = id;
                self.live -= 1;
            }
            id = beside;
        }
    }

    /// Notes, so many times, where a use and the rest before it take places. Where it fills its block anew, what was in there ended with the use before.
    pub(super) fn weigh(&mut self, id: u32, times: i32) {
        let Some(&Use { point, does, in_place, before, .. }) = self.uses.get(id as usize) else { return };
        let since = self.uses.get(before as usize).map(|before| ordinal(before.point) + 1);
        self.plan.note(since, ordinal(point), in_place, times);
        if since.is_some() && does == Does::Fills {
            self.ends(before, ordinal(point), times);
        }
    }

    /// A use does this, too. Returns whether that is news.
    pub(super) fn does_more(&mut self, id: u32, does: Does) -> bool {
        let before = self.uses[id as usize].does;
        if before >= does {
            return false;
        }
        if does < Does::Fills {
            self.uses[id as usize].does = does;
            return true;
        }
        self.weigh(id, -1);
        let same = &mut self.uses[id as usize];
        (same.does, same.in_place) = (does, false);
        self.ask_hold(id);
        self.weigh(id, 1);
        true
    }

    /// Takes a use out of its chain; its point loses it when it goes.
    pub(super) fn cut(&mut self, id: u32) {
        let beside = self.uses[id as usize].beside;
        let (vacant, live) = (self.vacant, self.live);
        self.unlink(id);
        (self.vacant, self.live) = (vacant, live);
        self.uses[id as usize].beside = beside;
        self.uses[id as usize].point = GONE;
    }
}
