//! What launches will use: those issued have their points in the timeline, and the tables go on from there.
//!
//! What a launch uses is what its execution ID's table says; where that is not known yet, what its arguments reach. What it does with a block is known from hand-outs, since
//! the first launch that names memory that was handed out fills it, and from write faults; otherwise it is taken to read.
//! Not here: blocks that a table names and the program does not have yet. They are passed over, and fault.

use super::{ENOUGH, Horizon, MOST_TRUST, NOTED, STALE, STRAY, WALK, WRONG};
use crate::correlate::trail::Came;
use crate::correlate::{Places, StableBlock};
use crate::horizon::ranks::Class;
use crate::horizon::timeline::{Does, Nth, Point};
use crate::invalidate;
use crate::known::Known;
use crate::residency::{Ask, Block, Handle, Residency};
use crate::units::{ExecId, LaunchSeq, UmBlock};
use crate::window::Issued;

/// A launch is over that was to use a block. Answers after which launch its memory was handed back, if it is free.
pub(super) fn was_to_be_used(at: Handle, known: &mut Known) -> Option<(UmBlock, LaunchSeq)> {
    let Block { block, listed, empty, .. } = *known.residency.get(at);
    let free = if listed || empty { invalidate::free_since(block, known) } else { None };
    let Known { residency, counters, .. } = known;
    residency.get_mut(at).listed = listed && free.is_some();
    if residency.get(at).ask() == Ask::Unproven {
        counters.prefetch_useful += 1;
        residency.set_ask(at, Ask::None);
    }
    residency.note(at);
    free.map(|since| (block, since))
}

impl Horizon {
    /// A launch or copy of the window has its place in the future, behind so many that were left out if it was expected.
    pub(super) fn issue(&mut self, seq: LaunchSeq, exec: Option<ExecId>, left_out: Option<usize>, known: &mut Known) {
        if seq > self.timeline.last_issued.plus(1) {
            self.missing = LaunchSeq(seq.0 - 1);
        }
        self.moved = true;
        let had_predicted = self.timeline.has_predicted();
        let residency = &mut known.residency;
        let (nth, expected) = self.timeline.issue(seq, exec, left_out, |at| residency.note(at));
        known.counters.launches_mispredicted += u64::from(exec.is_some() && !expected && had_predicted);
        if let Some(launch) = known.window.get(seq) {
            self.habits.issued(launch);
        }
        if !self.timeline.point(nth).known {
            self.uses(nth, exec, Some(seq), known);
        }
        if self.fresh > 0 {
            self.births(nth, seq, known);
        }
    }

    /// The first launch that names memory that was handed out writes it; unless one of which nothing is known did before.
    fn births(&mut self, nth: Nth, seq: LaunchSeq, known: &mut Known) {
        let Known { window, residency, places, .. } = known;
        let Some(launch) = window.get(seq) else { return };
        for block in launch.blocks() {
            let Some(at) = residency.find(block) else { continue };
            let since = std::mem::take(&mut residency.get_mut(at).fresh);
            self.fresh -= usize::from(since > LaunchSeq(0));
            if since <= self.missing {
                continue;
            }
            self.timeline.add(nth, at, Does::Fills);
            residency.note(at);
            self.saw(launch, at, Does::Fills, residency, places);
        }
    }

    /// The executing launch was seen to write a block.
    pub(super) fn is_written_by_executing(&mut self, at: Handle, known: &mut Known) {
        let Known { window, residency, places, sequence, .. } = known;
        // It may be one of which nothing is known.
        if sequence.doubt() > LaunchSeq(0) {
            return;
        }
        if let Some(launch) = window.attribute(residency.get(at).block) {
            self.saw(launch, at, Does::Writes, residency, places);
        }
    }

    /// A launch is over: what was saved and still is, it has not written.
    pub(super) fn was_read(&mut self, launch: &Issued, known: &mut Known) {
        let Known { residency, places, .. } = known;
        if self.ranks.count(Class::Saved) == 0 {
            return;
        }
        let saved =
            |block: UmBlock| residency.find(block).filter(|&at| residency.get(at).saved && residency.get(at).on_device);
        let read: Vec<Handle> =
            self.habits.unknown(launch).filter_map(|range| range.blocks().find_map(saved)).collect();
        for at in read {
            self.saw(launch, at, Does::Reads, residency, places);
        }
    }

    fn saw(&mut self, launch: &Issued, at: Handle, does: Does, residency: &mut Residency, places: &Places) {
        let block = residency.get(at).block;
        if self.habits.saw(launch, block, places.number(block), does)
            && let Some(exec) = launch.exec
        {
            self.timeline.learn(at, exec, does);
            residency.note(at);
        }
    }

    /// A point is over. What had been handed back before its launch was issued, and still is, that did not use: its table has it from the arguments of an earlier one, whose small tensors, which
    /// an execution ID does not tell apart ([`pointer_key`](crate::exec_id::pointer_key)), lay there.
    pub(super) fn forget_unused(&mut self, point: &Point, handed_back: &[(UmBlock, LaunchSeq)], known: &Known) {
        let Some((exec, issued)) = point.exec.zip(point.ran()) else { return };
        let before = handed_back.iter().filter(|&&(_, since)| since < issued);
        let unused: Vec<StableBlock> = before.filter_map(|&(block, _)| known.places.number(block)).collect();
        let Some(table) = self.learner.tables.blocks_mut(exec).filter(|_| !unused.is_empty()) else { return };
        self.learner.tables.changes += u64::from(table.forget_named(&unused));
    }

    /// Notes what a launch uses: what is known of its execution ID, or what its arguments reach if it was issued.
    fn uses(&mut self, nth: Nth, exec: Option<ExecId>, seq: Option<LaunchSeq>, known: &mut Known) {
        let Known { residency, places, window, faults_visible, .. } = known;
        let (timeline, mut doing) = (&mut self.timeline, exec.map(|exec| self.habits.of(exec)));
        let mut before = None;
        let mut add = |block, number: Option<StableBlock>, unlikely: bool| {
            let number = || number.or_else(|| places.number(block));
            let does = doing.as_mut().map_or(Does::Uses, |doing| doing.with(block, number));
            let Some(at) = residency.find_next(before, block) else { return };
            before = Some(at);
            // While it is there nothing would tell that it is not used, and it would keep its place.
            if unlikely && residency.get(at).on_device {
                return;
            }
            if timeline.add(nth, at, does) {
                residency.note(at);
            }
        };
        let table = exec.and_then(|exec| self.learner.tables.blocks_mut(exec)).filter(|table| table.is_settled());
        let is_known = match (table, seq.and_then(|seq| window.get(seq))) {
            (Some(table), _) => {
                let kernel = exec.and_then(|exec| self.habits.kernel(exec));
                let (chain, proof) = table.chain_and_proof();
                let unlikely = self.doubt.leaves_out_always(proof, kernel, *faults_visible);
                let unlikely = |number| unlikely.as_ref().is_some_and(|unlikely| unlikely(number));
                let blocks = chain.iter().filter_map(|number| Some((places.block(number)?, number)));
                blocks.for_each(|(block, number)| add(block, Some(number), unlikely(number)));
                true
            }
            (None, Some(launch)) => {
                launch.blocks().for_each(|block| add(block, None, false));
                true
            }
            (None, None) => false,
        };
        self.timeline.point(nth).known |= is_known;
    }

    /// A launch comes: how many that were expected before it were left out, if it was expected.
    pub(super) fn follow(&mut self, exec: Option<ExecId>, known: &mut Known) -> Option<usize> {
        let by_table = self.learner.tables.exec.next(self.issued).filter(|_| self.trail.cursor().is_none());
        let came = self.trail.push(exec);
        if came == Came::Elsewhere && self.trail.cursor().is_some() {
            let residency = &mut known.residency;
            self.timeline.take_back(|at| residency.note(at));
        }
        let left_out = match came {
            Came::Expected { left_out } => usize::try_from(left_out).ok(),
            Came::Astray | Came::Elsewhere => (exec.is_some() && by_table == exec).then_some(0),
        };
        if exec.is_some() {
            self.trust = match (left_out, came) {
                (Some(_), _) => MOST_TRUST.min(self.trust + 1),
                (None, Came::Astray) => self.trust.saturating_sub(STRAY),
                (None, _) => self.trust.saturating_sub(WRONG),
            };
        }
        left_out
    }

    /// What is expected after all that is predicted, which it is from now on.
    fn next(&mut self) -> Option<ExecId> {
        let exec = match self.ahead {
            Some(at) => {
                let (place, exec) = self.trail.after(at)?;
                self.ahead = Some(place);
                exec
            }
            None => self.learner.tables.exec.next(self.predicted)?,
        };
        self.predicted.push(Some(exec));
        Some(exec)
    }

    /// What became known of launches since they were predicted is noted with them: now and then, for all of them are looked at.
    fn bring_up(&mut self, known: &mut Known) {
        let since = self.habits_known;
        let is_news = !self.taught.is_empty() || self.habits.version() > since;
        let pause = STALE.max((self.noted / NOTED) as u64);
        if !is_news || self.timeline.last_issued < self.brought_up.plus(pause) {
            return;
        }
        self.noted = 0;
        (self.brought_up, self.habits_known) = (self.timeline.last_issued, self.habits.version());
        let taught = std::mem::take(&mut self.taught);
        for nth in self.timeline.all() {
            let exec = self.timeline.point(nth).exec;
            let seq = self.timeline.issued_at(nth);
            if exec.is_some_and(|exec| taught.contains(&exec) || self.habits.has_changed(exec, since)) {
                self.uses(nth, exec, seq, known);
                self.noted += self.timeline.point(nth).added();
            }
        }
    }

    /// Goes on with what is expected.
    pub(super) fn walk(&mut self, known: &mut Known) {
        if self.trust < ENOUGH {
            let residency = &mut known.residency;
            self.timeline.take_back(|at| residency.note(at));
            return;
        }
        self.bring_up(known);
        for _ in 0..WALK {
            // Once around: what comes after that is known better later.
            let is_around = self.trail.period().is_some_and(|period| self.timeline.foresees(period));
            if is_around || !self.timeline.has_room() {
                return;
            }
            if !self.timeline.has_predicted() {
                (self.predicted, self.ahead) = (self.issued, self.trail.cursor());
            }
            let Some(exec) = self.next() else { return };
            let nth = self.timeline.push(exec);
            self.uses(nth, Some(exec), None, known);
        }
    }
}
