//! The way out: room for what is to come, made by whoever is needed last and later than that.
//!
//! Nobody's contents leave first, for they need no copy; then what the host has, too; then the others, unless those are being saved for it and nobody waits.

use super::{AHEAD, Horizon, MOST_SOON, SOON, SPARE, UNDER_WAY, URGENT};
use crate::command::Commands;
use crate::copies;
use crate::evict;
use crate::horizon::ranks::{Class, NEVER};
use crate::invalidate::{self, Invalidate};
use crate::known::Known;
use crate::residency::{Ask, Handle, Ticket};

impl Horizon {
    /// What is to come next, and when it is needed: new contents and others, nearest first.
    fn wanted(&self) -> Vec<Ticket> {
        let front = self.timeline.front().0;
        let soon = self.ranks.nearest_first(Class::Unborn).take_while(|(ticket, _)| ticket.0 <= front + SOON);
        let ahead = self.ranks.nearest_first(Class::Away).take_while(|(ticket, _)| ticket.0 <= front + AHEAD);
        let mut wanted: Vec<Ticket> =
            soon.take(MOST_SOON).chain(ahead.take(UNDER_WAY)).map(|(ticket, _)| ticket).collect();
        wanted.sort_unstable();
        wanted
    }

    /// Blocks kept free.
    pub(super) fn spare(known: &Known) -> usize {
        SPARE.min(known.fits / 16)
    }

    /// Asks for room for what is to come.
    pub(super) fn make_room(&mut self, known: &mut Known, out: &mut Commands) {
        let residency = &known.residency;
        let free = known.fits.saturating_sub(residency.blocks_staying() + residency.blocks_coming());
        if free >= Self::spare(known) + MOST_SOON || residency.blocks_leaving() > UNDER_WAY / 2 {
            return;
        }
        let front = self.timeline.front().0;
        let mut wanted = self.wanted();
        let due = wanted.partition_point(|ticket| ticket.0 <= front + SOON);
        wanted.splice(due..due, std::iter::repeat_n(Ticket(front + SOON), Self::spare(known)));
        for bound in wanted.into_iter().skip(free) {
            if !self.leave(bound, known, out) {
                return;
            }
        }
    }

    /// Asks one block to leave that is needed later than `bound`.
    fn leave(&mut self, bound: Ticket, known: &mut Known, out: &mut Commands) -> bool {
        if known.invalidate != Invalidate::No {
            while let Some((_, at)) = self.last(Class::Dead, Class::DeadSaved).filter(|&(ticket, _)| ticket > bound) {
                if invalidate::free_since(known.residency.get(at).block, known).is_none() {
                    known.residency.get_mut(at).listed = false;
                    self.rank(at, known);
                    continue;
                }
                match known.invalidate {
                    Invalidate::Discard => invalidate::discard(at, known, out),
                    _ => evict::leave(at, Ask::PreEvict, known, out),
                }
                self.rank(at, known);
                return true;
            }
        }
        let saved = self.ranks.last(Class::Saved);
        if let Some((ticket, at)) = saved.filter(|&(ticket, _)| ticket > bound) {
            self.left(ticket);
            copies::drop_copy(at, known, out);
            self.rank(at, known);
            return true;
        }
        let urgent = bound.0 <= self.timeline.front().0 + URGENT;
        if self.saves && known.saving && !urgent || known.residency.blocks_evicting() >= UNDER_WAY {
            return false;
        }
        let Some((ticket, at)) = self.last(Class::Only, Class::Kept).filter(|&(ticket, _)| ticket > bound) else {
            return false;
        };
        self.left(ticket);
        evict::leave(at, Ask::PreEvict, known, out);
        self.rank(at, known);
        true
    }

    /// Who of two classes is needed last.
    fn last(&self, one: Class, other: Class) -> Option<(Ticket, Handle)> {
        self.ranks.last(one).max(self.ranks.last(other))
    }

    /// Somebody needed at this point leaves.
    fn left(&mut self, ticket: Ticket) {
        if ticket != NEVER {
            self.reach = ticket.0 - self.timeline.front().0;
        }
    }
}
