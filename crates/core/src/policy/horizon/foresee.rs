//! What launches will use: those issued have their points in the timeline, and the tables go on from there.
//!
//! What a launch uses is what its execution ID's table says; where that is not known yet, what its arguments reach. What it does with a block is known from hand-outs, since
//! the first launch that names memory that was handed out fills it, and from write faults; otherwise it is taken to read.
//! Not here: blocks that a table names and the program does not have yet. They are passed over, and fault.

use super::{ENOUGH, Horizon, WALK};
use crate::correlate::Places;
use crate::horizon::timeline::{Does, Nth};
use crate::known::Known;
use crate::residency::{Handle, Residency};
use crate::units::{AddrRange, ExecId, LaunchSeq};
use crate::window::Issued;

impl Horizon {
    /// A launch or copy of the window has its place in the future.
    pub(super) fn issue(&mut self, seq: LaunchSeq, exec: Option<ExecId>, known: &mut Known) {
        self.last_issued = self.last_issued.max(seq);
        self.moved = true;
        let had_predicted = self.timeline.has_predicted();
        let residency = &mut known.residency;
        let (nth, expected) = self.timeline.issue(seq, exec, |at| residency.note(at));
        known.counters.launches_mispredicted += u64::from(exec.is_some() && !expected && had_predicted);
        if !self.timeline.point(nth).known {
            self.uses(nth, exec, Some(seq), known);
        }
        if self.fresh > 0 {
            self.births(nth, seq, known);
        }
        let Known { window, residency, places, .. } = known;
        if let Some(launch) = window.get(seq) {
            self.apply_habits(launch, residency, places);
        }
    }

    /// The first launch that names memory that was handed out writes it.
    fn births(&mut self, nth: Nth, seq: LaunchSeq, known: &mut Known) {
        let Known { window, residency, places, .. } = known;
        let Some(launch) = window.get(seq) else { return };
        for block in launch.blocks() {
            let Some(at) = residency.find(block).filter(|&at| residency.get(at).fresh) else { continue };
            residency.get_mut(at).fresh = false;
            self.fresh -= 1;
            self.timeline.add(nth, at, Does::Fills);
            residency.note(at);
            if let Some((exec, number)) = launch.exec.zip(places.number(block)) {
                let known = self.writes.entry(exec).or_default().blocks.insert(number, Does::Fills);
                if known != Some(Does::Fills) {
                    self.timeline.learn(at, exec, Does::Fills);
                }
            }
            self.habits.writes_block(launch, block);
        }
    }

    /// The executing launch was seen to write a block.
    pub(super) fn is_written_by_executing(&mut self, at: Handle, known: &mut Known) {
        let block = known.residency.get(at).block;
        let Some(launch) = known.window.attribute(block) else { return };
        if self.habits.writes_block(launch, block) {
            let Known { window, residency, places, .. } = known;
            let Some(kernel) = window.attribute(block).map(|launch| launch.kernel) else { return };
            // Of those that are issued later it is known when they are.
            for launch in window.launches().filter(|launch| launch.kernel == kernel) {
                self.apply_habits(launch, residency, places);
            }
        }
    }

    /// Takes over what is known of a launch's kernel, if that is more than last time.
    pub(super) fn apply_habits(&mut self, launch: &Issued, residency: &mut Residency, places: &Places) {
        let Some(exec) = launch.exec else { return };
        if self.writes.get(&exec).map_or(0, |writes| writes.version) == self.habits.version() {
            return;
        }
        let writes = self.writes.entry(exec).or_default();
        writes.version = self.habits.version();
        for block in self.habits.of(launch).flat_map(AddrRange::blocks) {
            let Some((at, number)) = residency.find(block).zip(places.number(block)) else { continue };
            let does = writes.blocks.entry(number).or_default();
            if *does == Does::Reads {
                *does = Does::Writes;
                self.timeline.learn(at, exec, Does::Writes);
                residency.note(at);
            }
        }
    }

    /// Notes what a launch uses: what is known of its execution ID, or what its arguments reach if it was issued.
    fn uses(&mut self, nth: Nth, exec: Option<ExecId>, seq: Option<LaunchSeq>, known: &mut Known) {
        let Known { residency, places, window, .. } = known;
        let timeline = &mut self.timeline;
        let writes = exec.and_then(|exec| self.writes.get(&exec));
        let mut add = |block| {
            let does = writes.zip(places.number(block)).and_then(|(writes, number)| writes.blocks.get(&number));
            if let Some(at) = residency.find(block)
                && timeline.add(nth, at, does.copied().unwrap_or_default())
            {
                residency.note(at);
            }
        };
        let table = exec.and_then(|exec| self.learner.tables.blocks_mut(exec)).filter(|table| table.is_settled());
        let is_known = match (table, seq.and_then(|seq| window.get(seq))) {
            (Some(table), _) => {
                table.chain().iter().filter_map(|number| places.block(number)).for_each(&mut add);
                true
            }
            (None, Some(launch)) => {
                launch.blocks().for_each(&mut add);
                true
            }
            (None, None) => false,
        };
        self.timeline.point(nth).known |= is_known;
    }

    /// Goes on with what the tables say follows.
    pub(super) fn walk(&mut self, known: &mut Known) {
        if self.trust < ENOUGH {
            let residency = &mut known.residency;
            self.timeline.take_back(|at| residency.note(at));
            return;
        }
        for _ in 0..WALK {
            if !self.timeline.has_room() {
                return;
            }
            if !self.timeline.has_predicted() {
                self.predicted = self.issued;
            }
            let Some(exec) = self.learner.tables.exec.next(self.predicted) else { return };
            self.predicted.push(Some(exec));
            let nth = self.timeline.push(exec);
            self.uses(nth, Some(exec), None, known);
        }
    }
}
