//! Two copies: who is saved ahead of need, and whose copy on the host is given up before it is written.
//!
//! A burst of new contents may need more room than the link can make in its time, and before it everybody is still in use. Who is only read until it is to leave, as planned, is copied to the host
//! meanwhile, and then leaves without a copy: as many as the burst needs, those needed last first. An optimizer that has written a moment for the last time gives it up so while others are still to come.

use super::{CHANGES, Horizon, SOON, STALE, TOGETHER};
use crate::command::Commands;
use crate::copies;
use crate::horizon::need::Ordinal;
use crate::horizon::ranks::{Class, Ranks};
use crate::horizon::timeline::{LONGEST, STRIDE, ordinal};
use crate::invalidate::{self, Invalidate};
use crate::known::Known;
use crate::residency::{Handle, Ticket};
use crate::units::{ExecId, UmBlock};
use std::cmp::Reverse;

/// Most blocks being saved: three calls (`queues`). What makes room goes before all but the first of them.
const SAVING: usize = 48;

/// Most blocks that are saved at a time to see whether they are written.
const TRIED: usize = 16;

/// Who is worth saving.
#[derive(Default, Debug)]
pub(super) struct Worth {
    /// When each is needed after its rest, the best of them last.
    blocks: Vec<(Ticket, Handle)>,
    /// The first launch when it was looked for them.
    looked: Ticket,
    /// Blocks of which anything has changed since.
    pub(super) changed: usize,
}

impl Worth {
    fn is_stale(&self, front: Ticket) -> bool {
        front.0 >= self.looked.0 + STALE * STRIDE || self.changed >= CHANGES
    }
}

impl Horizon {
    /// Copies to the host who will have to leave when there is no time for it.
    pub(super) fn save(&mut self, known: &mut Known, out: &mut Commands) {
        let is_able = known.saving && self.timeline.has_predicted();
        let is_busy = known.residency.blocks_going() > TOGETHER / 2 || self.ranks.count(Class::Saving) > SAVING / 2;
        if !is_able || is_busy {
            return;
        }
        let from = ordinal(self.timeline.front());
        let places = self.places(known);
        // Room for what is fetched is made at the pace at which it comes.
        let most = usize::try_from(self.timeline.births.highest(from) - places).unwrap_or(0);
        while self.ranks.count(Class::Saving) < SAVING
            && self.ranks.count(Class::Saving) + self.ranks.count(Class::Saved) < most
            && let Some(at) = self.worth_saving(known)
        {
            if Self::class(known.residency.get(at)) == Some(Class::Only) {
                if !copies::save(at, known, out) {
                    return;
                }
                self.rank(at, known);
            }
        }
    }

    /// When this iteration began, as far as is known.
    fn iteration(&self) -> Ordinal {
        ordinal(self.timeline.front()) / self.trail.period().unwrap_or(LONGEST as u64).max(1)
    }

    /// Whether a block may be given a second copy to see what launches of this execution ID do with it; counts that.
    pub(super) fn may_try(&mut self, exec: ExecId, block: UmBlock) -> bool {
        let since = self.iteration();
        self.habits.may_try(exec, block, since)
    }

    fn worth_saving(&mut self, known: &Known) -> Option<Handle> {
        let front = self.timeline.front();
        if self.worth.blocks.is_empty() && self.worth.is_stale(front) {
            (self.worth.looked, self.worth.changed) = (front, 0);
            let only = self.ranks.nearest_first(Class::Only);
            let since = self.iteration();
            let mut tried = 0..TRIED;
            self.worth.blocks.extend(only.filter_map(|(_, at)| {
                let (ticket, doubtful) = self.timeline.leaves_later(at)?;
                let block = known.residency.get(at).block;
                let mut may_try =
                    |exec| !tried.is_empty() && self.habits.may_try(exec, block, since) && tried.next().is_some();
                doubtful.is_none_or(&mut may_try).then_some((ticket, at))
            }));
            self.worth.blocks.sort_unstable_by_key(|&(ticket, at)| (ticket, Reverse(at.index())));
        }
        self.worth.blocks.pop().map(|(_, at)| at)
    }

    /// What is saved and soon written is made the only copy, so that the write does not fault.
    pub(super) fn own(&mut self, known: &mut Known, out: &mut Commands) {
        let front = self.timeline.front().0;
        for _ in 0..TOGETHER {
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
            // Further than it was looked before.
            if !known.residency.get(at).listed && self.timeline.next_write(at, Ticket(front + SOON)).is_none() {
                self.rank(at, known);
                continue;
            }
            let Some(by) = self.timeline.find(ticket).map(|nth| self.timeline.seq_of(nth)) else { return };
            if !copies::own(at, by, known, out) {
                return;
            }
            self.rank(at, known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_looked_anew_after_many_launches_or_many_changes() {
        let is_stale = |launches: u64, changed| {
            Worth { blocks: Vec::new(), looked: Ticket(7 * STRIDE), changed }.is_stale(Ticket((7 + launches) * STRIDE))
        };
        assert!(is_stale(32, 0) && is_stale(0, 256) && !is_stale(31, 255));
    }
}
