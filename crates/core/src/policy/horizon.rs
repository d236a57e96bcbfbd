//! `horizon`: whoever is needed last leaves, as far ahead as is known.
//!
//! Problem: `deepum` knows who is needed within a few hundred launches, and lets the others go by age. What a training step needs last
//! is not what it used longest ago: its backward pass goes the other way.
//! Idea: know of every block on the GPU when it is used next, an iteration ahead ([`Timeline`]), and let two pumps work, one for each direction of the
//! link, each always on the most urgent thing there is:
//!
//! - *in*: what is needed first and is not there, as soon as it has room;
//! - *out*: whoever is needed last, and later than what comes, leaves (Belady's rule, for what comes ahead of need as for what
//!   is needed now: the *aggressive* strategy of Cao, Felten, Karlin and Li, SIGMETRICS'95). Whose contents nobody needs leaves first, without a copy.
//!
//! New contents need room and no transfer, so for these room is made a few launches before ([`SOON`]), and not earlier: that would take it from others.
//!
//! The future is, in order of certainty: launches issued and not over, with what their arguments reach where their table is not known; then the tables'
//! continuation. Where both end, what is used is not known any more, and blocks are taken to be needed last, those used longest ago first.
//!
//! **Saving.** Where the driver can keep two copies (`copies`) and it is asked for, the way out copies those needed last to the host while they stay, so that they can be dropped
//! in no time when room is needed; only who has a long rest before it is written again is worth that ([`Timeline::rests`]). Who was saved and is to be written soon is owned again
//! first. Who writes is known from hand-outs, since the first launch that names memory that was handed out fills it, and from write faults.
//!
//! **Gate.** The first launch issued that lacks something does not start, as long as anything is under way. If nothing is, nothing more can be done for it,
//! and it faults.
//! Not here: times. What is needed first is asked for first, and nothing more urgent could be done with the link.

use super::faults::fetch_now;
use super::learner::Learner;
use super::{Policy, PolicyName, TableSizes};
use crate::command::{Command, Commands, Why};
use crate::copies;
use crate::correlate::exec::History;
use crate::correlate::{Geometry, StableBlock, Tables};
use crate::doubt::Doubt;
use crate::horizon::ranks::{Class, NEVER, Ranks};
use crate::horizon::timeline::{Does, Nth, STRIDE, Timeline};
use crate::invalidate::{self, Invalidate};
use crate::known::Known;
use crate::mix::Map;
use crate::residency::{Ask, Block, Handle, Ticket};
use crate::units::{AddrRange, ExecId, LaunchSeq};
use crate::window::Issued;

/// New contents get their place so many launches ahead.
const SOON: u64 = 16 * STRIDE;

/// New contents for which room is made at a time.
const MOST_SOON: usize = 512;

/// What so few launches wait for is worth a copy that nobody made ahead of need.
const URGENT: u64 = 2 * STRIDE;

/// What is elsewhere is fetched so many launches ahead.
const AHEAD: u64 = 512 * STRIDE;

/// Most blocks on their way onto the GPU, and off it: two calls of the mover at 32 MiB each (facts 4.1), so that the choice is made late.
const UNDER_WAY: usize = 32;

/// Blocks kept free for what nobody expected, if that is no more than a sixteenth.
const SPARE: usize = 32;

/// Points walked at most for one event: many enough to get ahead of any program.
const WALK: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct Horizon {
    learner: Learner,
    /// Whether blocks are saved ahead of need.
    saves: bool,
    timeline: Timeline,
    ranks: Ranks,
    /// What the host has, too, by when it is written.
    written: Ranks,
    /// Execution IDs issued last, and those predicted after them.
    issued: History,
    predicted: History,
    last_issued: LaunchSeq,
    doubt: Doubt,
    /// What launches were seen to write.
    writes: Map<ExecId, Map<StableBlock, Does>>,
    /// Blocks that were handed out since a launch named them.
    fresh: usize,
    /// How far ahead the one was needed that left last. What is written sooner is not worth saving.
    reach: u64,
    /// Whether anything that decisions rest on has changed since the last.
    moved: bool,
}

impl Horizon {
    /// With tables of this geometry; `saves`: whether blocks are saved ahead of need, where that can be.
    pub fn new(geometry: Geometry, saves: bool) -> Self {
        Self {
            saves,
            learner: Learner::new(geometry),
            timeline: Timeline::default(),
            ranks: Ranks::default(),
            written: Ranks::default(),
            issued: History::default(),
            predicted: History::default(),
            last_issued: LaunchSeq(0),
            doubt: Doubt::default(),
            writes: Map::default(),
            fresh: 0,
            reach: AHEAD,
            moved: false,
        }
    }

    /// A launch or copy of the window has its place in the future.
    fn issue(&mut self, seq: LaunchSeq, exec: Option<ExecId>, known: &mut Known) {
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
                self.writes.entry(exec).or_default().insert(number, Does::Fills);
                self.timeline.learn(at, exec, Does::Fills);
            }
        }
    }

    /// Notes what a launch uses: what is known of its execution ID, or what its arguments reach if it was issued.
    fn uses(&mut self, nth: Nth, exec: Option<ExecId>, seq: Option<LaunchSeq>, known: &mut Known) {
        let Known { residency, places, window, .. } = known;
        let timeline = &mut self.timeline;
        let writes = exec.and_then(|exec| self.writes.get(&exec));
        let mut add = |block| {
            let does = writes.zip(places.number(block)).and_then(|(writes, number)| writes.get(&number));
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
    fn walk(&mut self, known: &mut Known) {
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

    /// What may be done about a block.
    fn class(block: &Block) -> Option<Class> {
        match block.ask() {
            Ask::Own => Some(Class::Coming),
            Ask::Populate | Ask::Urgent | Ask::Predicted if !block.on_device => Some(Class::Coming),
            Ask::Save => Some(Class::Saving),
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

    /// Puts a block where it belongs now.
    fn rank(&mut self, at: Handle, known: &Known) {
        let ticket = self.timeline.next_use(at).map_or(NEVER, |(ticket, _)| ticket);
        let block = known.residency.get(at);
        let class = Self::class(block);
        self.ranks.place(at, class, ticket);
        let until = Ticket(self.timeline.front().0 + AHEAD);
        let written = match class {
            Some(Class::DeadSaved) => Some(ticket),
            Some(Class::Saved) => self.timeline.next_write(at, until),
            _ => None,
        };
        self.written.place(at, written.and(class), written.unwrap_or(NEVER));
    }

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
    fn spare(known: &Known) -> usize {
        SPARE.min(known.fits / 16)
    }

    /// Asks for room for what is to come.
    fn make_room(&mut self, known: &mut Known, out: &mut Commands) {
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
                    _ => Self::evict(at, known, out),
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
        Self::evict(at, known, out);
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

    fn evict(at: Handle, known: &mut Known, out: &mut Commands) {
        let block = known.residency.get(at);
        known.counters.prefetch_useless += u64::from(block.ask() == Ask::Unproven);
        known.counters.preevict_asked += 1;
        out.push(Command::Evict { block: block.block });
        known.residency.set_ask(at, Ask::PreEvict);
    }

    /// Asks for what has room.
    fn fetch(&mut self, known: &mut Known, out: &mut Commands) {
        if known.residency.blocks_coming() > UNDER_WAY / 2 {
            return;
        }
        let front = self.timeline.front().0;
        // What comes alone takes a call of its own.
        let mut bunch = Self::spare(known) / 2;
        while known.residency.blocks_coming() < UNDER_WAY {
            let residency = &known.residency;
            let free = known.fits.saturating_sub(residency.blocks_on_device() + residency.blocks_coming());
            let unborn = self.ranks.first(Class::Unborn).filter(|(ticket, _)| ticket.0 <= front + SOON);
            let away = self.ranks.first(Class::Away).filter(|(ticket, _)| ticket.0 <= front + AHEAD);
            let Some((ticket, at)) = unborn.into_iter().chain(away).min_by_key(|&(ticket, _)| ticket) else { return };
            let due = ticket.0 <= front + SOON;
            let (spare, bunch) = if due { (0, 1) } else { (Self::spare(known), std::mem::take(&mut bunch)) };
            if free < spare + bunch.max(1) {
                return;
            }
            let Some(nth) = self.timeline.find(ticket) else { return };
            if self.is_left_out(nth, at, known) {
                continue;
            }
            let by = self.launch_at(nth);
            known.counters.prefetch_asked += 1;
            let (block, duplicated) = (known.residency.get(at).block, known.residency.get(at).duplicated);
            if !(duplicated && self.is_written(at) && copies::own(at, by, known, out)) {
                out.push(Command::Fetch { block, why: Why::Predicted { by } });
                known.residency.set_ask(at, Ask::Predicted);
                known.residency.asked(at);
            }
            self.rank(at, known);
        }
    }

    /// Whether the next user of a block writes it, as far as is known.
    fn is_written(&self, at: Handle) -> bool {
        self.timeline.next_use(at).is_some_and(|(_, does)| does != Does::Reads)
    }

    /// Copies blocks to the host that may have to leave, so that they can without a copy.
    fn save(&mut self, known: &mut Known, out: &mut Commands) {
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
    fn own(&mut self, known: &mut Known, out: &mut Commands) {
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

    /// The place in the sequence that the launch of a point has or will have.
    fn launch_at(&self, nth: Nth) -> LaunchSeq {
        let issued = self.timeline.issued_at(nth);
        issued.unwrap_or(self.last_issued.plus(1 + self.timeline.beyond_issued(nth)))
    }

    /// Whether a block is not brought for its next user, to see whether that uses it.
    fn is_left_out(&mut self, nth: Nth, at: Handle, known: &mut Known) -> bool {
        let point = self.timeline.point(nth);
        let block = known.residency.get(at).block;
        let table = point.exec.and_then(|exec| self.learner.tables.blocks(exec)).filter(|table| table.is_settled());
        let Some(number) = known.places.number(block) else { return false };
        let left_out = match table {
            Some(table) => self.doubt.leaves_out_known(number, table.proof(), at, known),
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
        if let Some(exec) = exec {
            self.learner.tables.exec.learn(self.issued, exec);
        }
        self.issued.push(exec);
        self.issue(seq, exec, known);
        self.walk(known);
    }
    fn copy(&mut self, seq: LaunchSeq, known: &mut Known) {
        self.issue(seq, None, known);
    }
    fn finished(&mut self, launch: &Issued, known: &mut Known) {
        let Known { residency, counters, .. } = known;
        let mut used = |at: Handle| {
            residency.get_mut(at).listed = false;
            if residency.get(at).ask() == Ask::Unproven {
                counters.prefetch_useful += 1;
                residency.set_ask(at, Ask::None);
            }
            residency.note(at);
        };
        let mut over = Vec::new();
        while let Some(point) = self.timeline.pop(launch.seq, &mut used) {
            over.push(point);
        }
        self.moved = true;
        let mut worthless = false;
        for point in over {
            if let Some(exec) = point.exec.filter(|_| !point.left_out.is_empty()) {
                worthless |= self.doubt.ended(exec, &point.left_out, known, &mut self.learner.tables);
            }
        }
        if worthless {
            let residency = &mut known.residency;
            self.timeline.take_back(|at| residency.note(at));
        }
        self.learner.settle(launch, known);
    }
    fn progressed(&mut self, known: &mut Known, _out: &mut Commands) {
        self.walk(known);
    }
    fn fault(&mut self, at: Handle, known: &mut Known, out: &mut Commands) {
        fetch_now(at, known, out);
        let block = known.residency.get(at).block;
        let Self { learner, timeline, doubt, .. } = self;
        learner.fault(block, known, |seq, known| {
            let Some(nth) = timeline.point_of(seq) else { return false };
            // Until it is over it is not to be taken from it again.
            timeline.add(nth, at, Does::Reads);
            known.residency.note(at);
            let left_out = &mut timeline.point(nth).left_out;
            let Some(found) = left_out.iter().position(|&other| other == block) else { return false };
            left_out.swap_remove(found);
            doubt.used(known);
            true
        });
    }
    fn overwritten(&mut self, at: Handle, known: &mut Known, _out: &mut Commands) {
        let block = known.residency.get(at).block;
        let exec = known.window.attribute(block).and_then(|launch| launch.exec);
        if let Some((exec, number)) = exec.zip(known.places.number(block)) {
            let does = self.writes.entry(exec).or_default().entry(number).or_default();
            if *does == Does::Reads {
                *does = Does::Writes;
                self.timeline.learn(at, exec, Does::Writes);
                known.residency.note(at);
            }
        }
    }
    fn handed_out(&mut self, range: AddrRange, known: &mut Known) {
        for block in range.blocks() {
            if let Some(at) = known.residency.find(block)
                && !std::mem::replace(&mut known.residency.get_mut(at).fresh, true)
            {
                self.fresh += 1;
            }
        }
    }
    fn freed(&mut self, at: Handle, block: &Block, _front: Ticket) {
        self.fresh -= usize::from(block.fresh);
        self.timeline.forget(at);
        self.ranks.place(at, None, NEVER);
        self.written.place(at, None, NEVER);
    }
    fn act(&mut self, known: &mut Known, out: &mut Commands) -> bool {
        known.dying.unlist();
        while let Some(at) = known.residency.changed() {
            self.rank(at, known);
            self.moved = true;
        }
        if known.behind.is_some() {
            return false;
        }
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
    fn learned(&self) -> Option<(u32, &Tables)> {
        Some((1, &self.learner.tables))
    }
    fn take_over(&mut self, tables: Tables) {
        self.learner.tables = tables;
    }
    fn tables(&self) -> TableSizes {
        self.learner.sizes(0)
    }
}
