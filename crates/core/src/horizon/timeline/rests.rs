//! Rests: what lies between two uses of a block. Whether it is spent in place, as planned ([`Plan`](crate::horizon::plan::Plan)), and whether a copy on the host is worth having for it.

use super::uses::{NIL, Use};
use super::{Does, Timeline, ordinal};
use crate::horizon::need::Ordinal;
use crate::residency::{Handle, Ticket};
use crate::units::ExecId;

/// A rest of fewer launches is none, and no more new blocks than these are no burst: a copy kept for it costs more calls than it saves.
const SHORT: Ordinal = 64;
const BURST: i32 = 512;

/// Uses that are looked at for one that writes. A weight is used once a token; who is used more often than this as far as is foreseen seldom leaves.
const LOOKED: usize = 64;

impl Timeline {
    /// Whether a block is to leave before it is used next, as planned. One that is filled anew then is not: what is in there may be given up before.
    pub fn leaves(&self, at: Handle) -> bool {
        self.uses.get(self.first(at) as usize).is_some_and(|first| !first.in_place && first.does != Does::Fills)
    }
    /// Whether a block has a place now, or is about to. Where that changes, so does the plan until it is used next.
    pub fn has_place(&mut self, at: Handle, has: bool) {
        if std::mem::replace(&mut self.chain(at).absent, !has) != has {
            return;
        }
        let id = self.first(at);
        let Some(first) = self.uses.get(id as usize) else { return };
        let in_place = has && first.does != Does::Fills;
        if in_place != first.in_place {
            self.weigh(id, -1);
            self.uses[id as usize].in_place = in_place;
            self.weigh(id, 1);
        }
    }
    /// Whether there is a place for a block from the use before to this one.
    pub(super) fn has_place_until(&mut self, id: u32) -> bool {
        let Use { at, point, does, before, .. } = self.uses[id as usize];
        let (front, until) = (ordinal(self.front()), ordinal(point));
        let since = self.uses.get(before as usize).map(|before| ordinal(before.point) + 1);
        let is_there = since.is_some() || !self.chains[at.index()].absent;
        let since = since.map_or(front, |since| since.max(front));
        does != Does::Fills && is_there && (since >= until || self.plan.has_place(front, since, until - 1))
    }

    /// Where a block is only read until it is to leave, as planned, but is used before that: when it is used after that rest, and the first of those of whom it is not known that they only read.
    pub fn leaves_later(&self, at: Handle) -> Option<(Ticket, Option<ExecId>)> {
        let (first, mut doubtful) = (self.first(at), None);
        let mut id = first;
        while let Some(&Use { point, does, exec, in_place, after, .. }) = self.uses.get(id as usize) {
            if !in_place && id != first {
                return (does != Does::Fills).then_some((point, doubtful));
            }
            if does.writes() || exec == NIL {
                return None;
            }
            doubtful = doubtful.or((does == Does::Uses).then_some(ExecId(exec)));
            id = after;
        }
        None
    }

    /// Whether a copy on the host is worth having for a block that leaves: it is only read as far as is foreseen, or, once it has come back to be read, rests again while so many new contents
    /// come that somebody must leave for them. Then it can leave at once. Answers the first of those uses of which it is not known that they only read.
    pub fn is_worth_a_copy(&mut self, at: Handle) -> Option<Option<ExecId>> {
        self.rests_again(at).or_else(|| self.is_constant(at))
    }

    fn rests_again(&mut self, at: Handle) -> Option<Option<ExecId>> {
        let first =
            self.uses.get(self.first(at) as usize).filter(|first| first.does <= Does::Reads && first.exec != NIL)?;
        let next = self.uses.get(first.after as usize).filter(|next| next.does != Does::Fills)?;
        let (front, back, until) = (ordinal(self.front()), ordinal(first.point), ordinal(next.point));
        let mut highest = |last| self.births.highest_within(front, back, last);
        let rests = until >= back + SHORT && highest(until) > highest(back) + BURST;
        rests.then(|| (first.does == Does::Uses).then_some(ExecId(first.exec)))
    }

    /// Weights of a model that answers, or of which only adapters are trained: used twice at least, and never written.
    fn is_constant(&self, at: Handle) -> Option<Option<ExecId>> {
        let (mut id, mut doubtful) = (self.first(at), None);
        for nth in 0..LOOKED {
            match self.uses.get(id as usize) {
                None => return (nth > 1).then_some(doubtful),
                Some(&Use { does, exec, after, .. }) if does <= Does::Reads && exec != NIL => {
                    doubtful = doubtful.or((does == Does::Uses).then_some(ExecId(exec)));
                    id = after;
                }
                Some(_) => return None,
            }
        }
        None
    }
}
