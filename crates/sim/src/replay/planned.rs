//! A schedule carried out by UM blocks: how planners that know the iteration in advance do in the world that the core lives in.
//!
//! Problem: plans are of whole tensors and gaps between kernels; what moves is blocks, several tensors share one, calls take their time, and a kernel
//! that comes too early faults.
//! Idea: a block is *wanted* while a tensor in it is planned to be there. When the last of them leaves, the block is evicted; when the first comes back, it is
//! fetched, for the launch that uses it next, and that waits at the gate. Blocks in which nothing lives are thrown away when room is needed; those of tensors
//! about to be made are populated a few kernels before. What a plan leaves over faults, and the driver makes room in its own order.
//!
//! The host is ahead of the GPU: hand-outs count when the GPU comes to where the host was.
//!
//! The plan is of the last iteration. It is carried out from the first iteration on from which all have as many launches and hand-outs as the last; those
//! before are left to the driver. PT blocks are known by their order in the iteration, so that it does not matter where an allocator puts them.
//!
//! Not here: SSDs, and saved copies: what a plan drops is evicted.

use super::mind::Thinks;
use super::script::{Does, Script};
use crate::planner::schedule::{Kind, Move, Schedule};
use deepum_core::command::{Command, Commands, Why};
use deepum_core::event::Event;
use deepum_core::mix::Map;
use deepum_core::queues::{Lane, Queues};
use deepum_core::units::{AddrRange, DevAddr, LaunchSeq, Place, UmBlock};
use deepum_trace::program::{Life, Recorded, TensorId};
use std::collections::{BTreeSet, VecDeque};

/// Kernels before the GPU comes to its hand-out that a PT block is populated. A choice: longer than a call takes.
const BEFORE: u64 = 4;

/// Launches that the program shall be ahead of the GPU at most: as many as under `horizon`, and for the same reason. A host that is further ahead has handed out
/// the memory again that a plan takes for dead, so that it cannot be given up, and what is in it is carried out and fetched to be overwritten.
const LEAD: u64 = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Planned<'a> {
    recorded: &'a Recorded,
    schedule: &'a Schedule,
    kernels: u32,
    /// The first launch that the plan is carried out for, and how many hand-outs come before its iteration.
    first: LaunchSeq,
    skip: usize,
    handed_out: usize,
    /// The host has issued so much.
    issued: LaunchSeq,
    /// Hand-outs and what was taken back, with the last launch before; of the first so many, blocks were populated.
    coming: VecDeque<(LaunchSeq, AddrRange, bool)>,
    populated: usize,
    /// PT blocks by their start.
    held: Map<DevAddr, (AddrRange, Option<TensorId>)>,
    tensors: Vec<Tensor>,
    blocks: Map<UmBlock, Block>,
    /// Nothing lives in them, as far as nothing came since.
    dead: VecDeque<UmBlock>,
    fetching: BTreeSet<(LaunchSeq, UmBlock)>,
    fetching_for: Map<UmBlock, LaunchSeq>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Tensor {
    range: Option<AddrRange>,
    away: bool,
}

#[derive(Clone, Copy, Default, Debug)]
struct Block {
    /// Tensors that live in it, and how many of them are planned to be there.
    live: u32,
    wanted: u32,
}

impl<'a> Planned<'a> {
    /// For a script and its own last iteration.
    pub(super) fn new(script: &Script, recorded: &'a Recorded, schedule: &'a Schedule) -> Self {
        let program = &recorded.program;
        let (first, skip) = begins(script);
        let mut planned = Self {
            recorded,
            schedule,
            kernels: u32::try_from(program.kernels().len()).unwrap_or(u32::MAX),
            first,
            skip,
            handed_out: 0,
            issued: LaunchSeq(0),
            coming: VecDeque::new(),
            populated: 0,
            held: Map::default(),
            tensors: vec![Tensor::default(); program.tensors().len()],
            blocks: Map::default(),
            dead: VecDeque::new(),
            fetching: BTreeSet::new(),
            fetching_for: Map::default(),
        };
        for id in program.ids().filter(|id| program.tensor(*id).life == Life::Global) {
            planned.born(recorded.places[id.index()], Some(id));
        }
        planned
    }

    fn born(&mut self, range: AddrRange, id: Option<TensorId>) {
        for block in range.blocks() {
            let block = self.blocks.entry(block).or_default();
            block.live += 1;
            block.wanted += 1;
        }
        if let Some(id) = id {
            self.tensors[id.index()] = Tensor { range: Some(range), away: false };
        }
    }

    fn pt_block(&mut self, range: AddrRange, active: bool) {
        if active {
            self.handed_out += 1;
            let Some(number) = (self.handed_out - 1).checked_sub(self.skip) else { return };
            let births = &self.recorded.births;
            let id = births.get(number % births.len().max(1)).copied().flatten();
            self.held.insert(range.start, (range, id));
            self.born(range, id);
            return;
        }
        let Some((range, id)) = self.held.remove(&range.start) else { return };
        let away = id.is_some_and(|id| std::mem::take(&mut self.tensors[id.index()]).away);
        for block in range.blocks() {
            let Some(state) = self.blocks.get_mut(&block) else { continue };
            state.live -= 1;
            state.wanted -= u32::from(!away);
            if state.live == 0 {
                self.dead.push_back(block);
            }
        }
    }

    /// All before this place is over.
    fn comes_to(&mut self, place: LaunchSeq, out: &mut Commands) {
        while let Some(&(issued, range, active)) = self.coming.front()
            && issued < place
        {
            self.coming.pop_front();
            self.populated = self.populated.saturating_sub(1);
            self.pt_block(range, active);
        }
        let Some(since) = place.0.checked_sub(self.first.0) else { return };
        let gap = u32::try_from(since % u64::from(self.kernels)).unwrap_or(0);
        let schedule = self.schedule;
        for &at in schedule.at(gap) {
            self.begin(at, place, out);
        }
        while let Some(&(issued, range, active)) = self.coming.get(self.populated)
            && issued < place.plus(BEFORE)
        {
            self.populated += 1;
            let by = issued.plus(1);
            for block in range.blocks().filter(|_| active) {
                out.push(Command::Fetch { block, why: Why::Populate { by } });
            }
        }
    }

    fn begin(&mut self, Move { gap, tensor: id, kind }: Move, place: LaunchSeq, out: &mut Commands) {
        let Tensor { range: Some(range), away } = self.tensors[id.index()] else { return };
        match kind {
            Kind::Evict(_) | Kind::Drop if !away => {
                self.tensors[id.index()].away = true;
                for block in range.blocks() {
                    let Some(state) = self.blocks.get_mut(&block) else { continue };
                    state.wanted -= 1;
                    if state.wanted == 0 {
                        self.arrived(block);
                        out.push(Command::Evict { block });
                    }
                }
            }
            Kind::Prefetch if away => {
                self.tensors[id.index()].away = false;
                let uses = self.recorded.program.uses(id);
                let next = uses.iter().copied().find(|&kernel| kernel >= gap).or(uses.first().copied()).unwrap_or(gap);
                let by = place.plus(u64::from((next + self.kernels - gap) % self.kernels));
                for block in range.blocks() {
                    let Some(state) = self.blocks.get_mut(&block) else { continue };
                    state.wanted += 1;
                    if state.wanted == 1 {
                        self.fetching.insert((by, block));
                        self.fetching_for.insert(block, by);
                        out.push(Command::Fetch { block, why: Why::Predicted { by } });
                    }
                }
            }
            Kind::Evict(_) | Kind::Drop | Kind::Prefetch | Kind::Save(_) => {}
        }
    }

    /// Nobody needs to wait for it any more.
    fn arrived(&mut self, block: UmBlock) {
        if let Some(by) = self.fetching_for.remove(&block) {
            self.fetching.remove(&(by, block));
        }
    }
}

/// The first place of the first iteration from which all have as many launches and hand-outs as the last, and how many hand-outs come before.
fn begins(script: &Script) -> (LaunchSeq, usize) {
    // At each mark: launches and hand-outs before it.
    let (mut launches, mut hand_outs, mut marks) = (0u64, 0usize, Vec::new());
    for step in &script.steps {
        match step.does {
            Does::Iteration => marks.push((launches, hand_outs)),
            Does::Issue(_) => launches += 1,
            Does::PtBlock { active: true, .. } => hand_outs += 1,
            _ => {}
        }
    }
    let length = |pair: &[(u64, usize)]| (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
    let lengths: Vec<_> = marks.windows(2).map(length).collect();
    let same = lengths.iter().rev().take_while(|&length| Some(length) == lengths.last()).count();
    let (launches, hand_outs) = marks.get(lengths.len() - same).copied().unwrap_or_default();
    (LaunchSeq(launches + 1), hand_outs)
}

impl Thinks for Planned<'_> {
    fn on(&mut self, event: &Event<'_>, out: &mut Commands) {
        match *event {
            Event::PtBlock { range, active } => self.coming.push_back((self.issued, range, active)),
            Event::Launch(launch) => self.issued = launch.seq,
            Event::Copy { seq, .. } => self.issued = seq,
            Event::Progress { done, .. } => self.comes_to(done.plus(1), out),
            Event::MoveDone { block, to: Place::Device(_), .. } => self.arrived(block),
            // The driver brings in only a part of it.
            Event::Fault(fault) if self.blocks.get(&fault.block).is_some_and(|state| state.wanted > 0) => {
                out.push(Command::Fetch { block: fault.block, why: Why::Fault });
            }
            _ => {}
        }
    }

    fn hand_over(&mut self, out: &mut Commands, queues: &mut Queues, free: usize) {
        for command in out.drain() {
            queues.push(command);
        }
        let mut short = queues.waiting(Lane::Predicted).saturating_sub(free);
        while short > 0
            && let Some(block) = self.dead.pop_front()
        {
            if self.blocks.get(&block).is_some_and(|state| state.live == 0) {
                queues.push(Command::Discard { block });
                short -= 1;
            }
        }
        queues.set_room(free);
    }

    fn gate(&mut self, moving: bool) -> Option<LaunchSeq> {
        // If nothing moves, nothing will make room: what is missing faults.
        self.fetching.first().filter(|_| moving).map(|(by, _)| *by)
    }

    fn lead(&self) -> Option<u64> {
        Some(LEAD)
    }

    fn awake(&self) -> bool {
        true
    }
}
