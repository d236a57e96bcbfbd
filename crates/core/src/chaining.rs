//! Stage 5 of 7: predict, in the paper's form: chaining.
//!
//! Problem and idea as in [`crate::predict`], which is what we made of it. Here it is as the paper has it (DeepUM, ASPLOS'23,
//! section 4.2), so that its evaluation can be run as it was:
//!
//! ```text
//! fault on 41          41 ─► 57 44 ─► 60 (end) │ next kernel: start 12 ─► 13 (end) │ next: … up to N kernels ahead, pause
//! ```
//!
//! - **Start** of a chain: a fault of the executing launch. All successors of the faulted block are fetched, then all of theirs, and
//!   so on, until the *end block* of the execution ID is met.
//! - **On** to the next execution ID, which the execution-ID table gives for the last four, and to the *start block* of its table. An ID that has
//!   no table never faulted, and is passed.
//! - **Pause** when N launches beyond the executing one are chained; each launch that finishes lets the chain go on by one.
//! - **End** of a chain: a new fault, with which another one starts; a prediction that failed, which is a launch that is
//!   not the one chained, an execution-ID table that has no record for the last four, or a walk that runs dry before the end
//!   block. Then nothing is fetched until the next fault.
//!
//! What is executing, and what was, is all it knows: that launches are issued long before they run is not used, and nothing is
//! taken back, kept on the GPU by touches, or waited for at the gate.
//!
//! The paper leaves open when the start and the end block change. A launch that was chained and faults all the same faults on what
//! was left, so its first and last fault are not its first and last block; only launches that were not chained set them.
//!
//! Invariants: a chain is at most N + 1 launches; the first is the executing one; blocks of the chain are *expected*
//! ([`Known::is_expected`]), so they are not chosen to leave, and those of a chain that ended are not.

use std::collections::VecDeque;

use crate::command::{Command, Commands, Why};
use crate::correlate::{History, StableBlock, Tables};
use crate::known::Known;
use crate::mix::Set;
use crate::residency::{Ask, Ticket};
use crate::units::{ExecId, LaunchSeq, UmBlock};
use crate::window::Issued;

#[derive(Default, Debug)]
struct Chained {
    exec: Option<ExecId>,
    /// What it is expected to need.
    blocks: Vec<UmBlock>,
}

/// See the module.
#[derive(Debug)]
pub struct Chaining {
    degree: usize,
    /// The executing launch, and those chained.
    chain: VecDeque<Chained>,
    /// Whether a chain is under way, running or paused.
    going: bool,
    executing: Option<LaunchSeq>,
    /// Whether the executing launch was chained before it began.
    was_chained: bool,
    /// Execution IDs that ran, up to the executing one; and those, up to the last chained one.
    ran: History,
    chained: History,
    seen: Set<StableBlock>,
    ahead: VecDeque<StableBlock>,
}

impl Chaining {
    /// Chains up to `degree` launches beyond the executing one.
    pub fn new(degree: u32) -> Self {
        Self {
            degree: degree as usize,
            chain: VecDeque::new(),
            going: false,
            executing: None,
            was_chained: false,
            ran: History::default(),
            chained: History::default(),
            seen: Set::default(),
            ahead: VecDeque::new(),
        }
    }

    /// The oldest launch of the window may be another one: the GPU executes it now. Copies are no launches.
    pub fn look(&mut self, known: &mut Known, tables: &mut Tables, out: &mut Commands) {
        let Some((seq, exec)) = known.window.executing().map(|launch| (launch.seq, launch.exec)) else { return };
        if self.executing != Some(seq) {
            self.begin(seq, exec, known, tables);
        }
        self.go_on(known, tables, out);
    }

    fn begin(&mut self, seq: LaunchSeq, exec: Option<ExecId>, known: &mut Known, tables: &mut Tables) {
        if let Some(exec) = exec {
            tables.exec.learn(self.ran, exec);
        }
        self.ran.push(exec);
        self.executing = Some(seq);
        self.was_chained = self.chain.front().is_some_and(|first| first.exec == exec);
        if !self.was_chained {
            known.counters.launches_mispredicted += u64::from(!self.chain.is_empty());
            self.stop(known);
            self.chain.push_back(Chained { exec, blocks: Vec::new() });
        }
    }

    /// `launch` is over. Returns whether its faults are all its accesses: it was not chained. Call [`Self::look`] when the last one was told.
    pub fn finished(&mut self, launch: &Issued, known: &mut Known, tables: &mut Tables) -> bool {
        if self.executing != Some(launch.seq) {
            // It began and ended between two looks.
            self.begin(launch.seq, launch.exec, known, tables);
        }
        self.executing = None;
        for block in self.chain.pop_front().map(|over| over.blocks).unwrap_or_default() {
            let Some(at) = known.residency.find(block) else { continue };
            if known.residency.get(at).ask() == Ask::Unproven && launch.may_touch(block) {
                known.counters.prefetch_useful += 1;
                known.residency.set_ask(at, Ask::None);
            }
        }
        known.front = Ticket(known.front.0 + 1);
        !self.was_chained
    }

    /// The launch `seq` faulted on `block`: if it is the executing one, a new chain starts there.
    pub fn fault(
        &mut self,
        seq: LaunchSeq,
        block: StableBlock,
        known: &mut Known,
        tables: &mut Tables,
        out: &mut Commands,
    ) {
        if self.executing != Some(seq) {
            return;
        }
        let Some(executing) = self.chain.pop_front() else { return };
        known.front = Ticket(known.front.0 + 1);
        self.stop(known);
        for &block in &executing.blocks {
            expect(block, known.front, known);
        }
        self.chain.push_back(executing);
        self.chained = self.ran;
        self.going = self.walk(block, known, tables, out);
        self.go_on(known, tables, out);
    }

    /// Chains launch after launch, until it must pause or fails.
    fn go_on(&mut self, known: &mut Known, tables: &Tables, out: &mut Commands) {
        while self.going && self.chain.len() <= self.degree {
            let Some(exec) = tables.exec.next_in_context(self.chained) else {
                self.going = false;
                return;
            };
            self.chained.push(Some(exec));
            self.chain.push_back(Chained { exec: Some(exec), blocks: Vec::new() });
            if let Some(start) = tables.blocks(exec).and_then(|table| table.start()) {
                self.want(start, known, out);
                self.going = self.walk(start, known, tables, out);
            }
        }
    }

    /// Fetches what follows `from` in the table of the last launch chained. Returns whether the end block was met.
    fn walk(&mut self, from: StableBlock, known: &mut Known, tables: &Tables, out: &mut Commands) -> bool {
        let exec = self.chain.back().and_then(|last| last.exec);
        let Some(table) = exec.and_then(|exec| tables.blocks(exec)) else { return false };
        let end = table.end();
        self.seen.clear();
        self.ahead.clear();
        self.seen.insert(from);
        self.ahead.push_back(from);
        while let Some(block) = self.ahead.pop_front() {
            if Some(block) == end {
                return true;
            }
            for next in table.successors(block) {
                if self.seen.insert(next) {
                    self.want(next, known, out);
                    self.ahead.push_back(next);
                }
            }
        }
        false
    }

    /// The last launch chained is expected to need `block`.
    fn want(&mut self, block: StableBlock, known: &mut Known, out: &mut Commands) {
        let Some(block) = known.places.block(block) else { return };
        let Some(at) = known.residency.find(block) else { return };
        let Some(last) = self.chain.len().checked_sub(1) else { return };
        self.chain[last].blocks.push(block);
        expect(block, Ticket(known.front.0 + last as u64), known);
        let state = known.residency.get(at);
        let ask = state.ask();
        match ask {
            Ask::None | Ask::Unproven if state.whole() => return,
            Ask::None | Ask::Unproven | Ask::Evict | Ask::PreEvict | Ask::Discard | Ask::Drop => {}
            Ask::Populate | Ask::Urgent | Ask::Predicted | Ask::Keep | Ask::Save | Ask::Own => return,
        }
        // What had arrived whole and lost pages since did not help.
        known.counters.prefetch_useless += u64::from(ask == Ask::Unproven);
        known.counters.prefetch_asked += 1;
        known.residency.set_ask(at, Ask::Predicted);
        known.residency.asked(at);
        let by = self.executing.unwrap_or_default().plus(last as u64);
        out.push(Command::Fetch { block, why: Why::Predicted { by } });
    }

    /// The chain ends, and what it expected is expected no more.
    fn stop(&mut self, known: &mut Known) {
        known.front = Ticket(known.front.0 + self.chain.len() as u64);
        self.chain.clear();
        self.going = false;
    }

    /// Forgets what is executing, too.
    pub fn sleep(&mut self, known: &mut Known) {
        self.stop(known);
        (self.executing, self.ran) = (None, History::default());
    }

    /// Blocks that chained launches are expected to need.
    pub fn planned_blocks(&self) -> usize {
        self.chain.iter().flat_map(|chained| &chained.blocks).collect::<Set<_>>().len()
    }
}

/// The launch of this ticket is expected to need `block`.
fn expect(block: UmBlock, ticket: Ticket, known: &mut Known) {
    let Some(at) = known.residency.find(block) else { return };
    let front = known.front;
    let state = known.residency.get_mut(at);
    if state.next_use < front {
        state.next_use = ticket;
    }
    state.last_use = state.last_use.max(ticket);
}
