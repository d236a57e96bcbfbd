//! `horizon`: whoever is needed last leaves, as far ahead as is known.
//!
//! Problem: `deepum` knows who is needed within a few hundred launches, and lets the others go by age. What a training step needs last
//! is not what it used longest ago: its backward pass goes the other way.
//! Idea: know of every block on the GPU when it is used next, an iteration ahead ([`Timeline`]), and how much room is needed by when
//! ([`Need`](crate::horizon::need::Need)); and let two pumps work, one for each direction of the link, each always on the most urgent thing there is:
//!
//! - *in*: what is needed first and is not there, as soon as it can have a place until it is used without anybody leaving for it;
//! - *out*: where at some launch ahead more room will be needed than there is, whoever is needed last, and later than that, leaves now: no sooner than it must be, and
//!   as long before as it can be. Whose contents nobody needs counts as free, and is given up without a copy when places run out.
//!
//! New contents need room and no transfer; they get their places some launches before ([`SOON`]).
//!
//! The future is, in order of certainty: launches issued and not over, with what their arguments reach where their table is not known; then what the
//! trail says comes next, or the execution-ID table. Where both end, what is used is not known any more, and blocks are taken to be needed last, those used longest ago first.
//!
//! **Saving.** Where the driver can keep two copies (`copies`), the way out is also used when nobody can leave yet: who is only read until
//! more room is needed than there is, and rests then, is copied to the host and stays until it can go, which takes no time then. Who was saved and is to be written soon is owned again
//! first. Who writes and who reads is known of kernels ([`Habits`]).
//!
//! **Gate.** The first launch issued that lacks something does not start, as long as anything is under way. If nothing is, nothing more can be done for it,
//! and it faults.
//! Launches before anything is lacking are *clear* of it: they begin without a look at the gate, which costs a call and time of the stream's.
//! Its parts: what launches will use (`foresee`), the way in (`fetch`), the way out (`room`), two copies (`save`). Here: what becomes of events, and where blocks belong.
//! Not here: times. What is needed first is asked for first, and nothing more urgent could be done with the link.

mod fetch;
mod foresee;
mod room;
mod save;

use super::faults::fetch_now;
use super::learner::Learner;
use super::{Policy, PolicyName, TableSizes};
use crate::command::Commands;
use crate::correlate::exec::History;
use crate::correlate::trail::{Position, Trail};
use crate::correlate::{Geometry, Tables};
use crate::doubt::Doubt;
use crate::horizon::habits::Habits;
use crate::horizon::ranks::{Class, NEVER, Ranks};
use crate::horizon::timeline::{Does, STRIDE, Timeline, ordinal};
use crate::known::Known;
use crate::mix::Set;
use crate::queues::BATCH;
use crate::residency::{Ask, Block, Handle, Ticket};
use crate::units::{AddrRange, Bytes, ExecId, LaunchSeq};
use crate::window::Issued;
use std::cell::Cell;

/// What is needed within so many launches is due; new contents get their places up to twice as many ahead.
const SOON: u64 = 16 * STRIDE;

/// What is elsewhere is fetched so many launches ahead.
const AHEAD: u64 = 4096 * STRIDE;

/// Most blocks on their way onto the GPU: two calls that are under way, and two that wait. Each takes a place from somebody who stays.
const COMING: usize = 4 * BATCH as usize;

/// Most blocks that leave by one call.
const TOGETHER: usize = 32;

/// Blocks kept free for what nobody expected, if that is no more than a sixteenth; and how many come together if they are not due: a call's.
const SPARE: usize = BATCH as usize;

/// While so many launches beyond those issued are known, the program is no more launches and copies ahead of the GPU.
const LEAD: u64 = 16;

/// Launches issued that use so many blocks together, 1 GiB, are heavy (optimizers touch hundreds of blocks with each launch): they take the GPU longer than the host needs for another, and what is handed out for those
/// further ahead has no use for its places until then. So one that waits behind the one that executes is lead enough, and new contents get their places [`SOON`] ahead.
const HEAVY: usize = 512;
const SHORT_LEAD: u64 = 2;

/// Launches that lack nothing are clear if nobody within so many behind them does: within so many it is still decided who leaves and what is given up. A choice of two: with 4 ResNet-152 within 50 and
/// 33 % takes 0.4 and 0.2 % longer.
const CLEAR: u64 = LEAD;

/// Who does not have what is needed, or will not have it any more.
const LACKING: [Class; 4] = [Class::Coming, Class::Away, Class::Unborn, Class::Leaving];

/// Trust in what is expected: one more for each launch that was, up to the first, [`STRAY`] less for one that was not, and [`WRONG`] less for one that sends the program elsewhere; nothing is predicted
/// with less than [`ENOUGH`]. A model that answers has new addresses for its cache with each token, and a tenth of its launches are strays.
const MOST_TRUST: u32 = 64;
const STRAY: u32 = 2;
const WRONG: u32 = 8;
const ENOUGH: u32 = 32;

/// So many launches later predictions are brought up to what is known, and it is looked anew for who is worth saving: either looks at everything.
const STALE: u64 = 32;

/// And one launch more for so many uses as were noted then: what every launch teaches may concern all of them. A choice; no other was tried.
const NOTED: usize = 1024;

/// It is looked for the latter, too, once so many blocks have another place or next use: an optimizer has not as many launches, and each uses hundreds of blocks.
const CHANGES: usize = 256;

/// Points walked at most for one event: many enough to get ahead of any program.
const WALK: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct Horizon {
    learner: Learner,
    timeline: Timeline,
    ranks: Ranks,
    /// What the host has, too, by when it is written.
    written: Ranks,
    /// Execution IDs issued, and those predicted after them: where in the trail that is, and by the table where it is in none.
    trail: Trail,
    ahead: Option<Position>,
    issued: History,
    predicted: History,
    /// Whose blocks became known of late, and the launch at which predictions were last brought up to that.
    taught: Set<ExecId>,
    brought_up: LaunchSeq,
    noted: usize,
    /// The newest launch of which nothing was heard.
    missing: LaunchSeq,
    /// How often what was expected of late came next.
    trust: u32,
    doubt: Doubt,
    /// What launches do with blocks, and the version of it that predictions know.
    habits: Habits,
    habits_known: u32,
    /// Blocks that were handed out since a launch named them.
    fresh: usize,
    worth: save::Worth,
    /// By when somebody is [`LACKING`] first, where that is known: it is asked after each launch, and most change nothing of it.
    lacking: Cell<Option<Ticket>>,
    /// Whether anything that decisions rest on has changed since the last.
    moved: bool,
}

impl Horizon {
    /// With tables of this geometry.
    pub fn new(geometry: Geometry) -> Self {
        Self {
            learner: Learner::new(geometry),
            timeline: Timeline::default(),
            ranks: Ranks::default(),
            written: Ranks::default(),
            issued: History::default(),
            predicted: History::default(),
            trail: Trail::default(),
            ahead: None,
            taught: Set::default(),
            brought_up: LaunchSeq(0),
            noted: 0,
            missing: LaunchSeq(0),
            trust: 0,
            doubt: Doubt::default(),
            habits: Habits::default(),
            habits_known: 0,
            fresh: 0,
            worth: save::Worth::default(),
            lacking: Cell::default(),
            moved: false,
        }
    }

    /// What may be done about a block.
    fn class(block: &Block) -> Option<Class> {
        match block.ask() {
            ask if ask.leaves() => Some(Class::Leaving),
            Ask::Save => Some(Class::Saving),
            Ask::Own => Some(Class::Coming),
            Ask::Populate | Ask::Urgent | Ask::Predicted if !block.on_device => Some(Class::Coming),
            Ask::None | Ask::Unproven => Some(match (block.on_device, block.empty) {
                (true, _) if block.listed && block.duplicated => Class::DeadSaved,
                (true, _) if block.listed => Class::Dead,
                (true, _) if block.saved => Class::Saved,
                (true, _) => Class::Only,
                (false, true) => Class::Unborn,
                (false, false) => Class::Away,
            }),
            _ => None,
        }
    }

    fn place(&mut self, at: Handle, class: Option<Class>, ticket: Ticket) {
        let now = class.map(|class| (class, ticket));
        let before = self.ranks.place(at, class, ticket);
        if before == now {
            return;
        }
        if [before, now].into_iter().flatten().any(|(class, _)| LACKING.contains(&class)) {
            self.lacking.set(None);
        }
        for (seat, places) in [(before, -1), (now, 1)] {
            if let Some(seat) = seat.filter(|&seat| room::is_absent(seat)) {
                self.timeline.need.add(ordinal(seat.1), places);
                if !matches!(seat.0, Class::Away | Class::Leaving) {
                    self.timeline.births.add(ordinal(seat.1), places);
                }
            }
        }
    }

    /// Puts a block where it belongs now.
    fn rank(&mut self, at: Handle, known: &Known) {
        let block = known.residency.get(at);
        let class = Self::class(block);
        let may_leave = matches!(class, Some(Class::Only | Class::Saved));
        let ticket = self.timeline.needed(at, may_leave).unwrap_or(NEVER);
        if let Some(class) = class {
            self.timeline.has_place(at, !matches!(class, Class::Away | Class::Unborn | Class::Leaving));
        }
        let by = lacked_by(block.ask(), block.on_device, ticket, || self.timeline.next_write(at, NEVER));
        self.place(at, class, by);
        let until = Ticket(self.timeline.front().0 + AHEAD);
        let written = match class {
            Some(Class::DeadSaved) => Some(ticket),
            Some(Class::Saved) => self.timeline.next_write(at, until),
            _ => None,
        };
        self.written.place(at, written.and(class), written.unwrap_or(NEVER));
    }
}

/// When a block is lacked that is used next then: who is there, and comes only to be owned, not before it is written.
fn lacked_by(ask: Ask, on_device: bool, used: Ticket, written: impl FnOnce() -> Option<Ticket>) -> Ticket {
    if ask == Ask::Own && on_device { written().unwrap_or(NEVER) } else { used }
}

impl Policy for Horizon {
    fn name(&self) -> PolicyName {
        PolicyName::Horizon
    }
    fn watches_launches(&self) -> bool {
        true
    }
    fn watches_blocks(&self) -> bool {
        true
    }
    fn populates(&self) -> bool {
        true
    }
    fn launch(&mut self, seq: LaunchSeq, known: &mut Known, _out: &mut Commands) {
        let Some(exec) = known.window.get(seq).map(|launch| launch.exec) else { return };
        let left_out = self.follow(exec, known);
        if let Some(exec) = exec {
            self.learner.tables.exec.learn(self.issued, exec);
        }
        self.issued.push(exec);
        self.issue(seq, exec, left_out, known);
        self.walk(known);
    }
    fn copy(&mut self, seq: LaunchSeq, known: &mut Known) {
        self.issue(seq, None, None, known);
    }
    fn finished(&mut self, launch: &Issued, known: &mut Known) {
        // Of the points that are over hardly any lacks a block.
        let mut lacking = Vec::new();
        loop {
            let mut unused = Vec::new();
            let used = |at: Handle| unused.extend(foresee::was_to_be_used(at, known));
            let Some(point) = self.timeline.pop(launch.seq, used) else { break };
            self.forget_unused(&point, &unused, known);
            lacking.extend(point.exec.filter(|_| !point.left_out.is_empty()).map(|exec| (exec, point.left_out)));
        }
        self.moved = true;
        let gone = ordinal(self.timeline.gone());
        self.ranks.begin(gone);
        self.written.begin(gone);
        let mut worthless = false;
        for (exec, left_out) in lacking {
            let kernel = self.habits.kernel(exec);
            worthless |= self.doubt.ended(exec, kernel, &left_out, known, &mut self.learner.tables);
        }
        if worthless {
            let residency = &mut known.residency;
            self.timeline.take_back(|at| residency.note(at));
        }
        self.taught.extend(self.learner.settle(launch, known));
        self.was_read(launch, known);
    }
    fn progressed(&mut self, known: &mut Known, _out: &mut Commands) {
        self.walk(known);
    }
    fn fault(&mut self, at: Handle, known: &mut Known, out: &mut Commands) {
        fetch_now(at, known, out);
        let block = known.residency.get(at).block;
        let Self { learner, timeline, doubt, habits, .. } = self;
        let taught = learner.fault(block, known, |seq, known| {
            let Some(nth) = timeline.point_of(seq) else { return false };
            // Until it is over it is not to be taken from it again.
            timeline.add(nth, at, Does::Uses);
            known.residency.note(at);
            let left_out = &mut timeline.point(nth).left_out;
            let Some(found) = left_out.iter().position(|&other| other == block) else { return false };
            left_out.swap_remove(found);
            doubt.used(timeline.point(nth).exec.and_then(|exec| habits.kernel(exec)), known);
            true
        });
        self.taught.extend(taught);
    }
    fn overwritten(&mut self, at: Handle, known: &mut Known, _out: &mut Commands) {
        self.is_written_by_executing(at, known);
    }
    fn handed_out(&mut self, range: AddrRange, known: &mut Known) {
        for block in range.blocks() {
            if let Some(at) = known.residency.find(block) {
                // Whoever names a block with others in it may mean those.
                if !range.covers(block) && !known.pt_blocks.is_alone(range.start, block.range()) {
                    continue;
                }
                let before =
                    std::mem::replace(&mut known.residency.get_mut(at).fresh, self.timeline.last_issued.plus(1));
                self.fresh += usize::from(before == LaunchSeq(0));
            }
        }
    }
    fn handed_back(&mut self, range: AddrRange, known: &mut Known) {
        let Known { residency, pt_blocks, sequence, .. } = known;
        let all = range.blocks().filter(|&block| range.covers(block) || pt_blocks.dead(block.range()).is_some());
        self.timeline.handed_back(sequence.issued(), all.filter_map(|block| residency.find(block)));
    }
    fn freed(&mut self, at: Handle, block: &Block, _front: Ticket) {
        self.fresh -= usize::from(block.fresh > LaunchSeq(0));
        self.timeline.forget(at);
        self.place(at, None, NEVER);
        self.written.place(at, None, NEVER);
    }
    fn heed(&mut self, known: &mut Known) {
        known.dying.unlist();
        while let Some(at) = known.residency.changed() {
            self.rank(at, known);
            self.worth.changed += 1;
            self.moved = true;
        }
        while let Some(at) = self.ranks.overdue() {
            self.rank(at, known);
        }
    }
    fn act(&mut self, known: &mut Known, out: &mut Commands) -> bool {
        if known.behind.is_some() {
            return false;
        }
        self.timeline.plan.places = room::signed(known.fits.saturating_sub(Self::spare(known) + COMING));
        if std::mem::take(&mut self.moved) {
            self.make_room(known, out);
            self.own(known, out);
            self.fetch(known, out);
            self.save(known, out);
        }
        true
    }
    fn sleep(&mut self, known: &mut Known, _out: &mut Commands) {
        let residency = &mut known.residency;
        self.timeline.clear(|at| residency.note(at));
        self.issued = History::default();
        self.trail.lose();
        self.learner.sleep();
    }
    fn gate(&mut self, known: &Known) -> Option<LaunchSeq> {
        let under_way = self.ranks.count(Class::Coming) + known.residency.blocks_leaving();
        if known.behind.is_some() || under_way == 0 {
            return None;
        }
        let lacking = [Class::Coming, Class::Away, Class::Unborn];
        let first = lacking.into_iter().filter_map(|class| self.ranks.first(class)).min()?.0;
        self.timeline.issued_at(self.timeline.find(first)?)
    }
    fn lead(&self, _known: &Known) -> Option<u64> {
        let lead = if self.timeline.issued_uses() < HEAVY { LEAD } else { SHORT_LEAD };
        self.timeline.foresees(LEAD).then_some(lead)
    }
    fn clear_until(&self, known: &Known) -> LaunchSeq {
        // What is foreseen of strays is nothing.
        if known.behind.is_some() || self.trust < MOST_TRUST {
            return LaunchSeq(0);
        }
        let looked = || LACKING.into_iter().filter_map(|class| self.ranks.first(class)).map(|(ticket, _)| ticket).min();
        let first = self.lacking.get().or_else(looked).unwrap_or(NEVER);
        self.lacking.set(Some(first));
        let seq = match first {
            NEVER => Some(self.timeline.seq_behind()),
            first => self.timeline.find(first).map(|nth| self.timeline.seq_of(nth)),
        };
        LaunchSeq(seq.map_or(0, |seq| seq.0.saturating_sub(CLEAR)))
    }
    fn learned(&self) -> Option<(u32, &Tables)> {
        Some((1, &self.learner.tables))
    }
    fn take_over(&mut self, tables: Tables) {
        self.learner.tables = tables;
    }
    fn tables(&self) -> TableSizes {
        let bytes =
            [self.timeline.bytes(), self.ranks.bytes(), self.written.bytes(), self.trail.bytes(), self.habits.bytes()];
        TableSizes { future_bytes: Bytes(bytes.into_iter().sum::<usize>() as u64), ..self.learner.sizes(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_launch_waits_for_who_is_there_to_be_owned_but_the_one_that_writes() {
        let by = |ask, on_device, written| lacked_by(ask, on_device, Ticket(3), || written);
        assert_eq!(by(Ask::Own, true, Some(Ticket(9))), Ticket(9));
        assert_eq!(by(Ask::Own, true, None), NEVER);
        assert_eq!([by(Ask::Own, false, Some(Ticket(9))), by(Ask::Predicted, true, None)], [Ticket(3); 2]);
    }
}
