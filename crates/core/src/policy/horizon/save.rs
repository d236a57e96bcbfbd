//! Two copies: who is saved ahead of need, and whose copy on the host is given up before it is written.

use super::{Horizon, SOON, UNDER_WAY};
use crate::command::Commands;
use crate::copies;
use crate::horizon::ranks::{Class, Ranks};
use crate::invalidate::{self, Invalidate};
use crate::known::Known;

impl Horizon {
    /// Copies blocks to the host that may have to leave, so that they can without a copy.
    pub(super) fn save(&mut self, known: &mut Known, out: &mut Commands) {
        if !self.saves || !known.saving || !known.crowded || self.ranks.count(Class::Saving) > UNDER_WAY / 2 {
            return;
        }
        while self.ranks.count(Class::Saving) < UNDER_WAY {
            let Some((ticket, at)) = self.ranks.last(Class::Only) else { return };
            if !self.timeline.rests(at, self.reach / 2) {
                self.ranks.place(at, Some(Class::Kept), ticket);
                continue;
            }
            if !copies::save(at, known, out) {
                return;
            }
            self.rank(at, known);
        }
    }

    /// What is saved and soon written is made the only copy, so that the write does not fault.
    pub(super) fn own(&mut self, known: &mut Known, out: &mut Commands) {
        let front = self.timeline.front().0;
        for _ in 0..UNDER_WAY {
            let Some((_, at)) = self.ranks.first(Class::DeadSaved).filter(|_| known.invalidate == Invalidate::Discard)
            else {
                break;
            };
            if invalidate::free_since(known.residency.get(at).block, known).is_some() {
                invalidate::discard(at, known, out);
            } else {
                known.residency.get_mut(at).listed = false;
            }
            self.rank(at, known);
        }
        let next = |ranks: &Ranks| {
            let classes = [Class::Saved, Class::DeadSaved];
            classes
                .into_iter()
                .filter_map(|class| ranks.first(class))
                .min()
                .filter(|(ticket, _)| ticket.0 <= front + SOON)
        };
        while let Some((ticket, at)) = next(&self.written) {
            let Some(by) = self.timeline.find(ticket).map(|nth| self.launch_at(nth)) else { return };
            if !copies::own(at, by, known, out) {
                return;
            }
            self.rank(at, known);
        }
    }
}
