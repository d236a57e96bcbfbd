//! The way in: what is needed first and is not there, as soon as it has room.
//!
//! What comes alone takes a call of its own, so what is not due waits until several can come. Now and then a block is left out, to see whether it is used at all (`doubt`).

use super::{AHEAD, COMING, HEAVY, Horizon, SOON};
use crate::command::{Command, Commands, Why};
use crate::copies;
use crate::horizon::ranks::Class;
use crate::horizon::timeline::{Nth, ordinal};
use crate::known::Known;
use crate::residency::{Ask, Block, Handle, Ticket};

impl Horizon {
    /// Asks for what has room.
    pub(super) fn fetch(&mut self, known: &mut Known, out: &mut Commands) {
        if known.residency.blocks_coming() > COMING / 2 {
            return;
        }
        let front = self.timeline.front().0;
        // What comes alone takes a call of its own.
        let mut bunch = Self::spare(known);
        while known.residency.blocks_coming() < COMING {
            let residency = &known.residency;
            let free = known.fits.saturating_sub(residency.blocks_on_device() + residency.blocks_coming());
            let Some((ticket, at)) = self.next_wanted() else { return };
            let due = ticket.0 <= front + SOON;
            let (spare, bunch) = if due { (0, 1) } else { (Self::spare(known), std::mem::take(&mut bunch)) };
            // It has a place until it is used, and nobody has to leave for that.
            let has_place = self.over(spare + 1, known).is_none_or(|over| over >= ordinal(ticket));
            if free < spare + bunch.max(1) || !has_place {
                return;
            }
            let Some(nth) = self.timeline.find(ticket) else { return };
            if self.is_left_out(nth, at, known) {
                continue;
            }
            let by = self.timeline.seq_of(nth);
            known.counters.prefetch_asked += 1;
            let Block { block, duplicated, empty, .. } = *known.residency.get(at);
            // What has no contents is going to be written.
            if !(duplicated && (empty || self.is_written(at)) && copies::own(at, by, known, out)) {
                let why = if empty { Why::Populate { by } } else { Why::Predicted { by } };
                out.push(Command::Fetch { block, why });
                known.residency.set_ask(at, Ask::Predicted);
                known.residency.asked(at);
            }
            self.rank(at, known);
        }
    }

    /// Who is to come next: new contents and others.
    pub(super) fn next_wanted(&self) -> Option<(Ticket, Handle)> {
        let front = self.timeline.front().0;
        // A call with what is far ahead may be under way when new contents are due. Heavy launches leave time enough for that.
        let soon = if self.timeline.issued_uses() < HEAVY { 2 * SOON } else { SOON };
        let unborn = self.ranks.first(Class::Unborn).filter(|(ticket, _)| ticket.0 <= front + soon);
        let away = self.ranks.first(Class::Away).filter(|(ticket, _)| ticket.0 <= front + AHEAD);
        unborn.into_iter().chain(away).min_by_key(|&(ticket, _)| ticket)
    }

    /// Whether the next user of a block writes it, as far as is known.
    fn is_written(&self, at: Handle) -> bool {
        self.timeline.next_use(at).is_some_and(|(_, does)| does.writes())
    }

    /// Whether a block is not brought for its next user, to see whether that uses it.
    fn is_left_out(&mut self, nth: Nth, at: Handle, known: &mut Known) -> bool {
        let point = self.timeline.point(nth);
        let block = known.residency.get(at).block;
        let kernel = point.exec.and_then(|exec| self.habits.kernel(exec));
        let table = point.exec.and_then(|exec| self.learner.tables.blocks(exec)).filter(|table| table.is_settled());
        let Some(number) = known.places.number(block) else { return false };
        let left_out = match table {
            Some(table) => self.doubt.leaves_out_known(number, table.proof(), kernel, at, known),
            None => self.doubt.leaves_out_reached(at, known),
        };
        if left_out {
            known.counters.doubted += 1;
            point.left_out.push(block);
            self.timeline.skip(at);
            self.rank(at, known);
        }
        left_out
    }
}
