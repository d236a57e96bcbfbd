//! The best schedule there is, for the smallest of programs, by trying all: what no bound may exceed.
//!
//! Time goes in ticks. Tensors are of one unit, and a unit crosses the link in one tick, so at a tick nothing is on its way. The state is which tensors
//! are on the GPU, which have a copy on the host, and how far the kernels are. In each tick at most one tensor goes each way. The best
//! average over many iterations is that of the best cycle through states between two iterations (Karp, 1978).
//!
//! Written from the model in `docs/bound.md`, not from the code that it is to check.

use super::Limits;
use crate::tiers::Rate;
use deepum_core::units::{Bytes, UmBlock};
use deepum_trace::program::{Life, Program};
use std::collections::{BTreeMap, BTreeSet};

/// The bytes of every tensor.
pub const UNIT: u64 = UmBlock::SIZE.0;
/// The nanoseconds of a tick.
pub const TICK: u64 = 1_000_000;

/// Limits of this many units of memory, and a unit a tick either way.
pub fn limits(units: u64, copies_kept: bool) -> Limits {
    let rate = Rate(UNIT * 1_000_000_000 / TICK);
    Limits { capacity: Bytes(units * UNIT), h2d: rate, d2h: rate, copies_kept }
}

/// The ticks that an iteration takes on average at best; none if some kernel can never run.
pub fn best(program: &Program, units: u64, copies_kept: bool) -> Option<f64> {
    let globals = program.ids().filter(|&id| program.tensor(id).life == Life::Global);
    mean(&Search::new(program, units, copies_kept), globals.map(|id| 1 << id.0).sum())
}

/// The same if only whole blocks move, of which there are so many units; `inside`: by block, the tensors that are in it.
pub fn best_in_blocks(program: &Program, inside: &[u32], units: u64, copies_kept: bool) -> Option<f64> {
    let search = Search::new(program, units, copies_kept);
    let (search, live) = search.in_blocks(inside);
    mean(&search, live)
}

/// The ticks that an iteration takes on average at best, if all this is on the host at first.
fn mean(search: &Search, host: u32) -> Option<f64> {
    let start = State { kernel: 0, left: None, gpu: 0, host };
    let mut edges: BTreeMap<State, BTreeMap<State, u64>> = BTreeMap::new();
    let mut waiting = vec![start];
    while let Some(state) = waiting.pop() {
        edges.entry(state).or_insert_with(|| {
            let after = search.iteration(state);
            waiting.extend(after.keys());
            after
        });
    }
    // By how many iterations were done, the fewest ticks to each state.
    let mut fewest = vec![BTreeMap::from([(start, 0u64)])];
    for done in 0..edges.len() {
        let mut next: BTreeMap<State, u64> = BTreeMap::new();
        for (state, &ticks) in &fewest[done] {
            for (&after, &more) in &edges[state] {
                let least = next.entry(after).or_insert(u64::MAX);
                *least = (*least).min(ticks + more);
            }
        }
        fewest.push(next);
    }
    let all = edges.len();
    let mean = |state: &State| {
        let last = fewest[all][state];
        let ticks = (0..all).filter_map(|done| Some((last - fewest[done].get(state)?) as f64 / (all - done) as f64));
        ticks.fold(0.0, f64::max)
    };
    fewest[all].keys().map(mean).reduce(f64::min)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct State {
    /// The kernel that runs, or that is next.
    kernel: usize,
    /// The ticks it still takes; none if it did not start.
    left: Option<u64>,
    /// Tensors that are on the GPU, as bits.
    gpu: u32,
    /// Tensors of which the host has what they hold.
    host: u32,
}

/// The kernels by bits of tensors.
struct Search {
    kernels: Vec<Masks>,
    units: u32,
    copies_kept: bool,
    tensors: u32,
}

struct Masks {
    ticks: u64,
    /// What must be there before.
    needs: u32,
    /// What comes to be in it.
    makes: u32,
    writes: u32,
    /// What nobody needs after it, and the program does not hold.
    ends: u32,
}

impl Search {
    fn new(program: &Program, units: u64, copies_kept: bool) -> Self {
        let mut kernels = Vec::new();
        for (number, kernel) in (0u32..).zip(program.kernels()) {
            let mut masks = Masks { ticks: kernel.time.0 / TICK, needs: 0, makes: 0, writes: 0, ends: 0 };
            for id in kernel.touches() {
                let bit = 1 << id.0;
                let (uses, global) = (program.uses(id), program.tensor(id).life == Life::Global);
                let place = uses.iter().position(|&at| at == number).unwrap();
                let overwrites = |at: u32| {
                    let kernel = &program.kernels()[at as usize];
                    kernel.writes.contains(&id) && !kernel.reads.contains(&id)
                };
                let fresh = overwrites(number) || (!global && place == 0);
                *(if fresh { &mut masks.makes } else { &mut masks.needs }) |= bit;
                if kernel.writes.contains(&id) || fresh {
                    masks.writes |= bit;
                }
                let next = uses.get(place + 1).or(uses.first().filter(|_| global));
                if next.is_some_and(|&next| overwrites(next)) {
                    masks.ends |= bit;
                }
            }
            kernels.push(masks);
        }
        for id in program.ids().filter(|&id| program.tensor(id).life == Life::Intermediate) {
            if let Some(&last) = program.uses(id).last() {
                let end = program.hold(id).map_or(last, |hold| hold.max(last)) as usize % kernels.len();
                kernels[end].ends |= 1 << id.0;
            }
        }
        let tensors = u32::try_from(program.tensors().len()).unwrap();
        Self { kernels, units: u32::try_from(units).unwrap(), copies_kept, tensors }
    }

    /// The same search with blocks for tensors, and those in which anything is before the first kernel. A block is busy, written and needed as what is in it.
    fn in_blocks(&self, inside: &[u32]) -> (Self, u32) {
        let blocks = |tensors: u32| -> u32 {
            (0..).zip(inside).filter(|&(_, inside)| inside & tensors != 0).map(|(block, _)| 1 << block).sum()
        };
        // What is kept before each kernel, in an iteration like the one before.
        let mut live = 0;
        let mut before = Vec::new();
        for kernel in self.kernels.iter().chain(&self.kernels) {
            before.push(live | kernel.needs);
            live = (live | kernel.needs | kernel.makes) & !kernel.ends;
        }
        let before: Vec<u32> = before.split_off(self.kernels.len());
        let after = before.iter().cycle().skip(1);
        let kernels = self.kernels.iter().zip(&before).zip(after).map(|((kernel, &before), &after)| {
            let touched = blocks(kernel.needs | kernel.makes);
            Masks {
                ticks: kernel.ticks,
                needs: touched & blocks(before),
                makes: touched & !blocks(before),
                writes: blocks(kernel.writes) | touched & !blocks(before),
                ends: !blocks(after),
            }
        });
        let tensors = u32::try_from(inside.len()).unwrap();
        (Self { kernels: kernels.collect(), tensors, ..*self }, blocks(before[0]))
    }

    /// What can be without time passing: a tensor dropped of which the host has a copy, or the next kernel started.
    fn at_once(&self, state: State) -> Vec<State> {
        let kernel = &self.kernels[state.kernel];
        let mut next = Vec::new();
        for bit in self.bits(state.gpu & state.host & !self.busy(state)) {
            next.push(State { gpu: state.gpu & !bit, ..state });
        }
        let gpu = state.gpu | kernel.makes;
        if state.left.is_none() && kernel.needs & !state.gpu == 0 && gpu.count_ones() <= self.units {
            next.push(State { left: Some(kernel.ticks), gpu, host: state.host & !kernel.writes, ..state });
        }
        next
    }

    /// What can be a tick later: one tensor at most has left, and one has come.
    fn tick(&self, state: State) -> Vec<State> {
        let busy = self.busy(state);
        let written = if state.left.is_some() { self.kernels[state.kernel].writes } else { 0 };
        let leaves = state.gpu & !state.host & if self.copies_kept { !written } else { !busy };
        let comes = if state.gpu.count_ones() < self.units { state.host & !state.gpu } else { 0 };
        let mut next = Vec::new();
        for out in self.bits(leaves).chain([0]) {
            for into in self.bits(comes).chain([0]) {
                let mut after = State { gpu: state.gpu | into, host: state.host | out, ..state };
                if !self.copies_kept {
                    (after.gpu, after.host) = (after.gpu & !out, after.host & !into);
                }
                if let Some(left) = &mut after.left {
                    *left -= 1;
                    if *left == 0 {
                        let ends = !self.kernels[state.kernel].ends;
                        let kernel = (state.kernel + 1) % self.kernels.len();
                        after = State { kernel, left: None, gpu: after.gpu & ends, host: after.host & ends };
                    }
                }
                next.push(after);
            }
        }
        next
    }

    fn busy(&self, state: State) -> u32 {
        let kernel = &self.kernels[state.kernel];
        if state.left.is_some() { kernel.needs | kernel.makes } else { 0 }
    }

    fn bits(&self, mask: u32) -> impl Iterator<Item = u32> + use<> {
        (0..self.tensors).map(|n| 1 << n).filter(move |bit| mask & bit != 0)
    }

    /// The fewest ticks of one iteration from this state between two, by the state after it.
    fn iteration(&self, from: State) -> BTreeMap<State, u64> {
        let (mut seen, mut found) = (BTreeSet::from([from]), BTreeMap::new());
        let mut now = vec![from];
        let mut ticks = 0;
        while !now.is_empty() {
            let mut waiting = now.clone();
            while let Some(state) = waiting.pop() {
                for next in self.at_once(state).into_iter().filter(|&next| seen.insert(next)) {
                    now.push(next);
                    waiting.push(next);
                }
            }
            ticks += 1;
            let mut later = Vec::new();
            for &state in &now {
                for next in self.tick(state) {
                    // The last kernel has just ended: the next iteration begins.
                    if state.left == Some(1) && state.kernel + 1 == self.kernels.len() {
                        found.entry(next).or_insert(ticks);
                    } else if seen.insert(next) {
                        later.push(next);
                    }
                }
            }
            now = later;
        }
        found
    }
}
