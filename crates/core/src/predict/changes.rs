//! What happens to blocks of the plan: they come into being, the GPU faults on them, they are evicted, their memory is given back.

use std::collections::hash_map::Entry;

use super::{Planned, Predict};
use crate::command::Commands;
use crate::correlate::{BlockTable, StableBlock, Tables};
use crate::known::Known;
use crate::residency::{Block, Handle, Ticket};
use crate::sequence::place;
use crate::units::{ExecId, LaunchSeq, UmBlock};
use crate::window::Issued;

impl Predict {
    /// The planned launch at `index` was issued, so that all it uses exists, and its arguments are known: asks for what did not, or were not, when
    /// it was predicted.
    pub(super) fn appeared(&mut self, index: usize, known: &mut Known, tables: &Tables, out: &mut Commands) {
        if known.behind.is_some() {
            // All is planned again when that is over.
            return;
        }
        for number in std::mem::take(&mut self.plan[index].missing) {
            self.no_longer_missing(number);
            match known.places.block(number).and_then(|block| known.residency.find(block)) {
                Some(at) if self.in_plan < known.fits => self.want(index, at, known, out),
                Some(_) => {}
                None => self.plan[index].stale.push(number),
            }
        }
        let Planned { seq, exec, complete, .. } = self.plan[index];
        let is_settled = exec.and_then(|exec| tables.blocks(exec)).is_some_and(BlockTable::is_settled);
        if is_settled || !complete {
            return;
        }
        // It was predicted before it ever ran to its end, and so walked as one that needs nothing.
        let mut reached = std::mem::take(&mut self.stand_in);
        reached.clear();
        reached.extend(known.window.get(seq).into_iter().flat_map(Issued::blocks));
        for &block in &reached {
            if self.in_plan >= known.plan_room() {
                break;
            }
            if let Some(at) = known.residency.find(block) {
                self.want(index, at, known, out);
            }
        }
        (self.stand_in, self.stands_in_for) = (reached, None);
    }

    /// A planned launch no longer waits for this block to exist.
    pub(super) fn no_longer_missing(&mut self, number: StableBlock) {
        if let Entry::Occupied(mut launches) = self.missing.entry(number) {
            *launches.get_mut() -= 1;
            if *launches.get() == 0 {
                launches.remove();
            }
        }
    }

    /// A copy took the place `seq`, so the launches predicted for it and for what comes after come one place later. It contradicts nothing.
    pub fn copy(&mut self, seq: LaunchSeq) {
        if seq <= self.last_issued {
            // Its record was late: the launches issued since have the places they have.
            return;
        }
        self.last_issued = seq;
        let at = place(&self.plan, seq, |planned| planned.seq);
        for planned in self.plan.range_mut(at..) {
            planned.seq = planned.seq.plus(1);
        }
    }

    /// The table of `exec` was taught something: a walk that has begun in its chain begins again.
    pub fn taught(&mut self, exec: ExecId, tables: &Tables) {
        let Some(last) = self.plan.back_mut().filter(|last| !last.complete && last.exec == Some(exec)) else { return };
        if tables.blocks(exec).is_some_and(BlockTable::is_settled) {
            last.walked = 0;
            last.left_out.clear();
            last.stale.clear();
            for number in std::mem::take(&mut last.missing) {
                self.no_longer_missing(number);
            }
        }
    }

    /// The driver evicted a block. If the plan needs it, it is fetched again, unless the plan fills the memory by
    /// itself.
    ///
    /// This is also what keeps touches honest. Blocks are needed in the order in which they were last, which is the
    /// order in which they are evicted; one touch that comes too late would be a transfer, push out the next
    /// block to be touched, and so on through all of them.
    pub fn evicted(&mut self, at: Handle, known: &mut Known, tables: &Tables, out: &mut Commands) {
        let state = known.residency.get(at);
        if !known.is_expected(state) || self.in_plan >= known.fits.midpoint(known.plan_room()) {
            return;
        }
        let block = state.block;
        let index = self.next_user(state, known, tables);
        let exec = self.plan[index].exec.filter(|_| index > 0);
        if exec.is_some_and(|exec| self.doubt.lets_go(at, exec, known, tables)) {
            known.counters.doubted += 1;
            self.plan[index].left_out.push(block);
            return;
        }
        self.want(index, at, known, out);
    }

    /// The index of the planned launch that needs an expected block next. Of its uses the block keeps the first and the last; once the first is over,
    /// which one is next is looked for.
    fn next_user(&self, state: &Block, known: &Known, tables: &Tables) -> usize {
        let index = |ticket: Ticket| usize::try_from(ticket.0 - known.front.0).expect("the plan is short");
        if state.next_use >= known.front {
            return index(state.next_use);
        }
        let last = index(state.last_use);
        let number = known.places.number(state.block);
        let uses = |planned: &Planned| match planned.exec.and_then(|exec| tables.blocks(exec)) {
            Some(table) if table.is_settled() => number.is_some_and(|number| table.holds(number)),
            _ => known.window.get(planned.seq).is_some_and(|launch| launch.reaches(state.block)),
        };
        self.plan.range(..last).position(uses).unwrap_or(last)
    }

    /// The launch `seq` faulted on `block`. Whether it had been left out for it.
    pub fn faulted(&mut self, seq: LaunchSeq, block: UmBlock, known: &mut Known) -> bool {
        let index = place(&self.plan, seq, |planned| planned.seq);
        let Some(planned) = self.plan.get_mut(index).filter(|planned| planned.seq == seq) else { return false };
        let Some(at) = planned.left_out.iter().position(|&other| other == block) else { return false };
        planned.left_out.swap_remove(at);
        self.doubt.used(None, known);
        true
    }

    /// The memory of `block` is being freed.
    pub fn freed(&mut self, block: &Block, known_front: Ticket) {
        if block.last_use >= known_front {
            self.planned(block.last_use, known_front).leaving -= 1;
            self.in_plan -= 1;
        }
    }
}
