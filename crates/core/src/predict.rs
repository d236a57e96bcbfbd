//! Stage 5 of 7: predict. Walk the tables ahead of the GPU, and ask for what is needed next.
//!
//! Problem: a fetch takes longer than most launches run, so it must begin many launches early; but whatever
//! is brought in too early pushes out something needed sooner.
//! Idea (DeepUM's *chaining*, ASPLOS'23, section 4.2): from the executing launch's chain of blocks go on into
//! the chain of the next launch, and so on, up to degree N launches ahead; pause there, and go on as
//! launches finish. Only launches that lack something count: one that needs nothing brought in takes no time
//! of the link, and waiting behind it would leave the link idle. The launches walked are the **plan**:
//!
//! ```text
//! finished │ executing   issued … issued │ predicted … predicted │ not yet walked
//!          └ front                  N that lack something ───────┘
//! ```
//!
//! Which launch is next: the one issued next, if the host is ahead, for that is certain; beyond it, what the
//! execution-ID table says. Copies and memsets have their places among those that were issued, and are never predicted. They do not count towards the
//! degree, for a thousand come in a row where an optimizer clears its new memory.
//!
//! **Room.** The blocks of the plan may fill a part of what fits ([`Known::plan_room`]; the executing launch alone may fill all of it).
//! A block is then safe until its use if it is younger than the rest, because no more than the plan's
//! blocks are made resident meanwhile, and the driver evicts by age. So of resident blocks only those older than the
//! rest need the *touch* (a fetch that copies nothing) that makes them young again; none does while all memory fits.
//!
//! **The first time.** An execution ID that never ran has no chain. If its launch is issued, what its arguments
//! reach stands in for one: known hundreds of launches before the GPU comes there. In PyTorch that is every
//! launch whose tensors got other addresses, which most do until the third iteration.
//!
//! **Not there yet.** In its first iteration a program still takes memory while saved tables tell what will be in it. Blocks of a predicted launch that
//! do not exist are remembered, and asked for when it is issued: by then whatever it uses was allocated. They fill the plan like those that do, for
//! they will come. What is not there then never will be, and is forgotten when the launch has run without.
//!
//! **Behind.** When the engine wakes, the GPU is as far behind the host as CUDA lets it be, with launches nobody told of. What is on the GPU is what those
//! use. So until the first launch told of is over ([`Known::behind`]) the plan takes free room only, and nobody leaves for it (`evict`).
//!
//! **Contradiction.** A launch issued that is not the one predicted voids the plan: it is walked again from
//! the executing launch, and fetches that only the void one wanted are taken back.
//!
//! **Gate.** A launch that starts before its blocks have arrived faults block after block, each costing more than the
//! transfer it waits for. So the first planned launch with fetches on their way shall not start yet: [`Predict::gate`].
//! Every fetch ends in an event (arrived, failed, dropped, freed) or is taken back, and none waits for the GPU, so the gate goes on by itself. New
//! memory that is being populated counts as fetched once a planned launch uses it. What is in the plan only in part does not close it.
//!
//! **Doubt.** Now and then a block is left out, to see whether it is used at all (`doubt`).
//!
//! Invariants: a block is not asked for again while a fetch of it is on its way, or while it is young; the
//! plan is at most [`LONGEST`] launches; a fetch that no planned launch wants any more is taken back.
//! What happens to planned blocks is in `changes`. Not here: learning from faults (`policy::deepum`), choosing what leaves (`evict`).

mod changes;

use std::collections::VecDeque;

use crate::command::{Command, Commands, Why};
use crate::correlate::{History, StableBlock, Tables};
use crate::doubt::{Chain, Doubt};
use crate::known::Known;
use crate::mix::Map;
use crate::residency::{Ask, Handle, Ticket};
use crate::sequence::place;
use crate::units::{ExecId, LaunchSeq, UmBlock};
use crate::window::Issued;

/// Most launches and copies in the plan: twice as many launches as CUDA lets the host run ahead (`launch_queue` in
/// `crates/model/profiles/driver.toml`), since the first optimizer step alone clears its new memory in a thousand memsets.
/// A plan that turns out wrong is walked again.
pub const LONGEST: usize = 2048;

#[derive(Default, Debug)]
struct Planned {
    seq: LaunchSeq,
    exec: Option<ExecId>,
    /// Whether it is a copy.
    copy: bool,
    /// How far its chain is walked.
    walked: usize,
    complete: bool,
    /// Whether something must be brought in for it: it counts towards the degree.
    lacks: bool,
    /// Blocks of the plan whose last expected use this is.
    leaving: usize,
    /// Its blocks whose fetch is on its way or unproven.
    tracked: Vec<UmBlock>,
    /// How many of those, from the first, are on their way no more.
    ended: usize,
    /// Its blocks that it is not taken to need, to see whether it does.
    left_out: Vec<UmBlock>,
    /// Blocks of its chain that did not exist when it was walked, and may when it is issued.
    missing: Vec<StableBlock>,
    /// Blocks of its chain that did not exist when it was issued.
    stale: Vec<StableBlock>,
}

/// See the module.
#[derive(Debug)]
pub struct Predict {
    degree: usize,
    plan: VecDeque<Planned>,
    /// Planned launches that lack something.
    lacking: usize,
    /// Blocks expected by some planned launch.
    in_plan: usize,
    /// Planned launches, from the first, of which no block is on its way.
    clear: usize,
    /// Execution IDs issued last, and those predicted after them.
    issued: History,
    predicted: History,
    /// The newest place that a launch or copy took.
    last_issued: LaunchSeq,
    /// Blocks whose fetch no longer has a planned launch, unless the next step of the walk finds one.
    orphans: Vec<UmBlock>,
    doubt: Doubt,
    /// Blocks of the plan that do not exist, each with the planned launches that lack it.
    missing: Map<StableBlock, u32>,
    /// Whether the plan was made while the GPU was behind.
    behind: bool,
    spare: Vec<Vec<UmBlock>>,
    /// What the arguments of a launch reach.
    stand_in: Vec<UmBlock>,
    stands_in_for: Option<LaunchSeq>,
}

impl Predict {
    /// Plans up to `degree` launches that lack something ahead of the executing one.
    pub fn new(degree: u32) -> Self {
        Self {
            degree: degree as usize,
            plan: VecDeque::new(),
            lacking: 0,
            in_plan: 0,
            clear: 0,
            issued: History::default(),
            predicted: History::default(),
            last_issued: LaunchSeq(0),
            orphans: Vec::new(),
            doubt: Doubt::default(),
            missing: Map::default(),
            behind: false,
            spare: Vec::new(),
            stand_in: Vec::new(),
            stands_in_for: None,
        }
    }

    /// The launch `seq` was issued, and is in the window.
    pub fn launch(&mut self, seq: LaunchSeq, known: &mut Known, tables: &mut Tables, out: &mut Commands) {
        let Some(exec) = known.window.get(seq).map(|launch| launch.exec) else { return };
        if let Some(exec) = exec {
            tables.exec.learn(self.issued, exec);
        }
        self.issued.push(exec);
        self.last_issued = self.last_issued.max(seq);
        if self.plan.back().is_some_and(|last| last.seq >= seq) {
            let at = place(&self.plan, seq, |planned| planned.seq);
            if self.plan[at].seq != seq || self.plan[at].exec != exec {
                known.counters.launches_mispredicted += 1;
                self.restart(known);
            } else {
                self.appeared(at, known, tables, out);
            }
        }
        self.advance(known, tables, out);
    }

    /// `launch` is over. Call [`Self::advance`] when the last one was told.
    pub fn finished(&mut self, launch: &Issued, known: &mut Known, tables: &mut Tables) {
        let mut worthless = false;
        while let Some(mut over) = self.plan.pop_front_if(|planned| planned.seq <= launch.seq) {
            let as_predicted = over.seq == launch.seq && over.exec == launch.exec;
            let ticket = known.front;
            for block in over.tracked.drain(..) {
                let Some(at) = known.residency.find(block) else { continue };
                let state = known.residency.get(at);
                match state.ask() {
                    Ask::Unproven if as_predicted && launch.may_touch(block) => {
                        known.counters.prefetch_useful += 1;
                        known.residency.set_ask(at, Ask::None);
                    }
                    Ask::Predicted if state.last_use <= ticket => self.orphans.push(block),
                    _ => {}
                }
            }
            if let Some(exec) = over.exec.filter(|_| as_predicted) {
                if !over.left_out.is_empty() {
                    worthless |= self.doubt.ended(exec, None, &over.left_out, known, tables);
                }
                if !over.stale.is_empty() {
                    tables.forget(exec, &over.stale);
                }
                if !over.left_out.is_empty() || !over.stale.is_empty() {
                    self.taught(exec, tables);
                }
            }
            self.spare.push(over.tracked);
            over.missing.drain(..).for_each(|number| self.no_longer_missing(number));
            self.in_plan -= over.leaving;
            self.lacking -= usize::from(over.lacks);
            self.clear = self.clear.saturating_sub(1);
            known.front = Ticket(ticket.0 + 1);
        }
        if worthless {
            self.restart(known);
        }
    }

    /// Walks on as far as degree and room allow, and takes back what nobody wants any more.
    pub fn advance(&mut self, known: &mut Known, tables: &mut Tables, out: &mut Commands) {
        if std::mem::replace(&mut self.behind, known.behind.is_some()) && known.behind.is_none() {
            self.restart(known);
        }
        while self.walk_last(known, tables, out) && self.lacking <= self.degree && self.plan.len() < LONGEST {
            let Some(next) = self.next(known, tables) else { break };
            let tracked = self.spare.pop().unwrap_or_default();
            self.plan.push_back(Planned { tracked, ..next });
        }
        self.take_back(known, out);
    }

    /// Takes back the fetches of orphans that no planned launch wants.
    fn take_back(&mut self, known: &mut Known, out: &mut Commands) {
        for block in self.orphans.drain(..) {
            let Some(at) = known.residency.find(block) else { continue };
            if !known.is_expected(known.residency.get(at)) {
                known.take_back(at, out);
            }
        }
    }

    /// The launch or copy after the plan's last.
    fn next(&mut self, known: &Known, tables: &Tables) -> Option<Planned> {
        let last = self.plan.back().map(|planned| planned.seq);
        if let Some(issued) = known.window.after(last.unwrap_or_default()) {
            let Issued { seq, exec, .. } = *issued;
            return Some(Planned { seq, exec, copy: issued.is_copy(), ..Planned::default() });
        }
        let last = last.unwrap_or_default();
        if last <= self.last_issued {
            self.predicted = self.issued;
        }
        let exec = tables.exec.next(self.predicted)?;
        self.predicted.push(Some(exec));
        let seq = last.max(self.last_issued).plus(1);
        Some(Planned { seq, exec: Some(exec), ..Planned::default() })
    }

    /// Walks the chain of the plan's last launch. Returns whether it came to the end of it.
    fn walk_last(&mut self, known: &mut Known, tables: &mut Tables, out: &mut Commands) -> bool {
        let Some(last) = self.plan.len().checked_sub(1) else { return true };
        if self.plan[last].complete {
            return true;
        }
        let room = if last == 0 { known.fits } else { known.plan_room() };
        let Planned { seq, exec, .. } = self.plan[last];
        let mut stand_in = std::mem::take(&mut self.stand_in);
        let table = exec.and_then(|exec| tables.blocks_mut(exec));
        let chain = match table {
            Some(table) if table.is_settled() => {
                let (chain, proof) = table.chain_and_proof();
                Chain::Learned(chain, proof)
            }
            _ => {
                // A launch may reach a hundred thousand blocks, and its walk stop for room as often.
                if self.stands_in_for != Some(seq) {
                    let launch = known.window.get(seq);
                    self.stands_in_for = launch.map(|launch| launch.seq);
                    stand_in.clear();
                    stand_in.extend(launch.into_iter().flat_map(Issued::blocks));
                }
                Chain::Reached(&stand_in)
            }
        };
        while let Some(block) = chain.get(self.plan[last].walked, known) {
            if self.in_plan + self.missing.len() >= room || known.behind.is_some() && !known.has_free_room() {
                self.stand_in = stand_in;
                return false;
            }
            let index = self.plan[last].walked;
            self.plan[last].walked += 1;
            let Some((block, at)) = block.and_then(|block| Some((block, known.residency.find(block)?))) else {
                match chain.number(index) {
                    Some(number) if seq > self.last_issued => {
                        self.plan[last].missing.push(number);
                        *self.missing.entry(number).or_default() += 1;
                    }
                    Some(number) => self.plan[last].stale.push(number),
                    None => {}
                }
                continue;
            };
            if self.doubt.leaves_out(&chain, index, at, known) {
                known.counters.doubted += 1;
                // Of what a launch that may have begun lacks nobody knows whether it had it before.
                if last > 0 || seq >= self.last_issued {
                    self.plan[last].left_out.push(block);
                }
            } else {
                self.want(last, at, known, out);
            }
        }
        self.stand_in = stand_in;
        self.plan[last].complete = true;
        true
    }

    /// The planned launch at `index` is expected to need the block `at`.
    fn want(&mut self, index: usize, at: Handle, known: &mut Known, out: &mut Commands) {
        let first = self.expect(index, at, known);
        let by = self.plan[index].seq;
        let state = known.residency.get(at);
        let block = state.block;
        match state.ask() {
            Ask::None | Ask::Unproven if state.whole() => keep(at, known, out),
            Ask::None | Ask::Unproven | Ask::Populate | Ask::Evict | Ask::PreEvict | Ask::Discard | Ask::Drop => {
                if state.ask() == Ask::Unproven {
                    // It was whole when it arrived, and lost pages since.
                    known.counters.prefetch_useless += 1;
                }
                known.counters.prefetch_asked += 1;
                known.residency.set_ask(at, Ask::Predicted);
                known.residency.asked(at);
                out.push(Command::Fetch { block, why: Why::Predicted { by } });
            }
            // The plan that asked for it is void: its turn is another one.
            Ask::Predicted if first => out.push(Command::Fetch { block, why: Why::Predicted { by } }),
            Ask::Urgent | Ask::Predicted | Ask::Keep | Ask::Save | Ask::Own => {}
        }
        let ask = known.residency.get(at).ask();
        let planned = &mut self.plan[index];
        if matches!(ask, Ask::Predicted | Ask::Unproven | Ask::Urgent) {
            planned.tracked.push(block);
            self.clear = self.clear.min(index);
        }
        if matches!(ask, Ask::Predicted | Ask::Unproven) && !planned.copy {
            self.lacking += usize::from(!std::mem::replace(&mut planned.lacks, true));
        }
    }

    /// The first planned launch that waits for a block on its way. Each entry of the plan is passed once.
    pub fn gate(&mut self, known: &Known) -> Option<LaunchSeq> {
        let on_its_way = |block: &UmBlock| {
            let at = known.residency.find(*block);
            at.is_some_and(|at| matches!(known.residency.get(at).ask(), Ask::Predicted | Ask::Urgent))
        };
        while let Some(planned) = self.plan.get_mut(self.clear) {
            let rest = &planned.tracked[planned.ended..];
            if let Some(ended) = rest.iter().position(on_its_way) {
                planned.ended += ended;
                return Some(planned.seq);
            }
            planned.ended = planned.tracked.len();
            self.clear += 1;
        }
        None
    }

    /// Notes that the planned launch at `index` is expected to need a block. Returns whether it is the plan's first to.
    fn expect(&mut self, index: usize, at: Handle, known: &mut Known) -> bool {
        let ticket = Ticket(known.front.0 + index as u64);
        let (front, expected) = (known.front, known.is_expected(known.residency.get(at)));
        let block = known.residency.get_mut(at);
        if block.next_use < front {
            block.next_use = ticket;
        }
        let before = block.last_use;
        block.last_use = before.max(ticket);
        if !expected {
            self.in_plan += 1;
            self.plan[index].leaving += 1;
        } else if before < ticket {
            self.planned(before, front).leaving -= 1;
            self.plan[index].leaving += 1;
        }
        !expected
    }

    fn planned(&mut self, ticket: Ticket, front: Ticket) -> &mut Planned {
        let index = usize::try_from(ticket.0 - front.0).expect("the plan is short");
        &mut self.plan[index]
    }

    /// The plan was wrong: it is walked again from the executing launch by the next [`Self::advance`].
    fn restart(&mut self, known: &mut Known) {
        known.front = Ticket(known.front.0 + self.plan.len() as u64);
        (self.in_plan, self.lacking, self.clear) = (0, 0, 0);
        self.missing.clear();
        self.orphans.extend(self.plan.drain(..).flat_map(|planned| planned.tracked));
    }

    /// There is less room than there was: plans anew.
    pub fn again(&mut self, known: &mut Known, tables: &mut Tables, out: &mut Commands) {
        self.restart(known);
        self.advance(known, tables, out);
    }

    /// Forgets the plan, and takes back what waits for it.
    pub fn stop(&mut self, known: &mut Known, out: &mut Commands) {
        self.restart(known);
        self.issued = History::default();
        self.take_back(known, out);
    }

    /// Blocks that the plan is expected to need.
    pub fn planned_blocks(&self) -> usize {
        self.in_plan
    }
}

/// Touches a block that is on the GPU, if it might be evicted before it is used.
fn keep(at: Handle, known: &mut Known, out: &mut Commands) {
    if known.crowded && known.residency.age(at) >= (known.fits - known.plan_room()) as u64 {
        known.counters.touch_asked += 1;
        if known.residency.get(at).ask() == Ask::None {
            known.residency.set_ask(at, Ask::Keep);
        }
        known.residency.asked(at);
        out.push(Command::Fetch { block: known.residency.get(at).block, why: Why::Keep });
    }
}
