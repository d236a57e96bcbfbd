//! A batch that a hand has: the driver's calls that carry it out, one after the other.
//!
//! As `crates/engine/src/migrate.rs` does on a driver: what fails for several blocks is done again for each. What comes is awaited by words, as the engine does in the program.

use super::ReplayError;
use super::mind::GPU;
use deepum_core::event::DiscardOutcome;
use deepum_core::queues::{Batch, Lane};
use deepum_core::steps::Step;
use deepum_core::units::{AddrRange, Nanos, Place, UmBlock};
use deepum_model::{Advice, Group, ModelError, UnifiedMemory};
use std::collections::VecDeque;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) batch: Batch,
    /// The calls that are still to be made.
    calls: VecDeque<Asked>,
    /// When what was begun last is there.
    there: Nanos,
    stay: Group,
    /// How it leaves, if it does, and when that began.
    pub(super) leaves: Leaves,
    pub(super) begun: Nanos,
    /// When the one under way returns.
    pub(super) done: Nanos,
    /// Whether all calls did what they should, by block.
    pub(super) moved: Vec<(UmBlock, bool)>,
    /// Of one that gives up, what became of each block.
    pub(super) given_up: Vec<(UmBlock, DiscardOutcome)>,
}

/// How blocks leave the GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaves {
    /// The host maps what arrives.
    Mapped,
    /// It does not.
    Unmapped,
    /// Nor is the host preferred no more when they have left.
    Preferred,
}

/// A call of the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    /// `UVM_MIGRATE` to the host, by a call that does not wait: it returns when the host has mapped what arrived.
    Home,
    /// Onto the GPU, by one that does not wait, and whose word will be written.
    Begin,
    /// Until it is: no call.
    Await,
    /// Has the driver tell of moves that are over.
    Flush,
    Advise(Advice),
    /// Into the group that stays where it is preferred, or out of it.
    Stay(bool),
}

/// A call that is still to be made, for a step of blocks that lie together.
#[derive(Clone, Copy, Debug)]
struct Asked {
    call: Call,
    range: AddrRange,
    step: Step,
    blocks: AddrRange,
}

/// The calls that make a step of blocks that lie together.
fn calls(step: Step, blocks: AddrRange, leaves: Leaves) -> Vec<Asked> {
    let whole = |calls: &[Call]| calls.iter().map(|&call| Asked { call, range: blocks, step, blocks }).collect();
    let advise = |advice| whole(&[Call::Advise(advice)]);
    let device = Place::Device(GPU);
    match step {
        // As `kmod-bridge/src/leave.rs`.
        Step::Leave if leaves != Leaves::Mapped => {
            let out = if leaves == Leaves::Preferred { Call::Stay(false) } else { Call::Advise(Advice::Prefer(None)) };
            whole(&[Call::Advise(Advice::Prefer(Some(Place::Host))), Call::Stay(true), out])
        }
        Step::Leave | Step::ToHost => whole(&[Call::Home]),
        Step::ToDevice => whole(&[Call::Begin, Call::Await, Call::Flush]),
        Step::Duplicate(on) => advise(Advice::Duplicate(on)),
        Step::Prefer(on) => advise(Advice::Prefer(on.then_some(device))),
        Step::Access(on) => advise(Advice::AccessedBy(GPU, on)),
    }
}

impl Job {
    /// Of a batch that is begun then. `stay`: the group by which what leaves unmapped leaves.
    pub(super) fn new(batch: Batch, stay: Group, leaves: Leaves, begun: Nanos) -> Self {
        let calls = batch.steps().iter().flat_map(|&step| calls(step, batch.range(), leaves)).collect();
        let moved = batch.blocks().map(|block| (block, true)).collect();
        let (there, given_up) = (begun, Vec::new());
        Self { batch, calls, there, stay, leaves, begun, done: begun, moved, given_up }
    }

    /// One that gave up, whose call returns then.
    pub(super) fn given_up(batch: Batch, given_up: Vec<(UmBlock, DiscardOutcome)>, done: Nanos) -> Self {
        Self { done, moved: Vec::new(), given_up, ..Self::new(batch, Group::NONE, Leaves::Mapped, done) }
    }

    /// Whether no call is left to be made.
    pub(super) fn is_over(&self) -> bool {
        self.calls.is_empty()
    }

    /// Makes the next call. What fails for several blocks is done again for each: part of it may be freed, and the rest is still wanted.
    pub(super) fn step(&mut self, memory: &mut UnifiedMemory, start: Nanos) -> Result<(), ReplayError> {
        self.done = start;
        while let Some(asked) = self.calls.pop_front() {
            let Asked { step, blocks, .. } = asked;
            let is_whole = !blocks.blocks().any(|block| self.failed(block));
            let done = if is_whole { self.call(asked, memory)? } else { None };
            if let Some(done) = done {
                self.done = done;
                return Ok(());
            }
            let each = blocks.blocks().filter(|&block| !self.failed(block));
            let each: Vec<Asked> = each.flat_map(|block| calls(step, block.range(), self.leaves)).collect();
            self.calls.retain(|later| later.step != step || later.blocks != blocks);
            if blocks.len > UmBlock::SIZE {
                each.into_iter().rev().for_each(|call| self.calls.push_front(call));
            } else {
                let block = UmBlock::containing(blocks.start);
                self.moved.iter_mut().filter(|(moved, _)| *moved == block).for_each(|(_, ok)| *ok = false);
            }
        }
        Ok(())
    }

    /// Whether a call about it failed.
    fn failed(&self, block: UmBlock) -> bool {
        self.moved.iter().any(|&(moved, ok)| moved == block && !ok)
    }

    /// When it returns, unless it fails.
    fn call(&mut self, asked: Asked, memory: &mut UnifiedMemory) -> Result<Option<Nanos>, ReplayError> {
        let Asked { call, range, .. } = asked;
        let done = match call {
            Call::Home => memory.begin(range, Place::Host, self.done).map(|begun| begun.ordered),
            Call::Begin => memory.begin(range, Place::Device(GPU), self.done).map(|begun| {
                self.there = begun.done;
                begun.ordered
            }),
            Call::Await => Ok(self.done.max(self.there)),
            Call::Flush => Ok(self.done + memory.profile().flush_cost),
            // Who left so before need not be told of again (`VaSpace::leave_again`).
            Call::Advise(Advice::Prefer(host @ Some(Place::Host)))
                if range.blocks().all(|block| memory.preferred(block) == host) =>
            {
                Ok(self.done)
            }
            Call::Advise(advice) => memory.advise(range, advice, self.done),
            Call::Stay(stays) => {
                let group = if stays { self.stay } else { Group::NONE };
                memory.join(range, group, self.done).map(|migrated| migrated.done)
            }
        };
        match done {
            // What does not leave need not be saved.
            Err(ModelError::OutOfMemory { place: place @ Place::Host, .. }) if self.batch.lane != Lane::Save => {
                Err(ReplayError::OutOfMemory { place })
            }
            done => Ok(done.ok()),
        }
    }
}
