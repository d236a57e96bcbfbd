//! A schedule carried out by whole tensors: what an iteration takes, and what it moves.
//!
//! Kernels run one after the other; each waits until all it reads is there and there is room for what it writes first. A move joins the queue of
//! its channel at its gap. Each channel (off the GPU or onto it, host or SSD) works its queue off in order, one transfer at a time; the SSD's
//! part of the link is missing to the host's. A fetch waits at the head of its queue until its tensor is out and there is room. Room that the
//! next kernel waits for is not given to fetches of what that kernel does not touch. Memory is free when a transfer out ends, or when the last
//! use of an intermediate does.
//!
//! What a plan leaves over is *demanded*: a kernel's missing tensor is fetched ahead of the queue; where nothing that moves could make room, what
//! was used longest ago leaves. Both are counted.
//!
//! The iteration repeats, and the last of [`ITERATIONS`] is told. Globals are on the host at first, and what has to leave goes there, if there is
//! any; else the SSD. Host memory is not bounded here: planners do that.
//!
//! Invariants: no more is held than the GPU has; no kernel runs while a tensor of it is away; where nothing is demanded, just what is planned moves
//! (`planner/tests.rs`, by random programs).
//!
//! Not here: faults, blocks, and what they cost.

use super::ledger::Direction;
use super::schedule::{Kind, Move, Schedule, TooLarge, fitting};
use crate::tiers::{Tier, Tiers};
use deepum_core::units::{Bytes, Nanos};
use deepum_trace::program::{Life, Program, TensorId};

mod channel;
use channel::{Channels, Job};

/// Iterations played: the first finds globals on the host, the next begins with what that left, and the third is told.
pub const ITERATIONS: u32 = 3;

/// What an iteration took and moved.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Played {
    /// From the end of the last kernel of the iteration before to the end of its own.
    pub time: Nanos,
    /// By kernel: from the end of the one before to its own, waits included.
    pub times: Vec<Nanos>,
    /// Written to the host and to the SSD. As what is read, it counts when it is asked for: the transfer may end, or even begin, in the next iteration.
    pub out: [Bytes; 2],
    /// Read from the host and from the SSD.
    pub back: [Bytes; 2],
    /// Of all that, what was demanded.
    pub demanded: Bytes,
    /// The most that was held at once.
    pub peak: Bytes,
}

/// Plays a schedule.
///
/// # Errors
/// [`TooLarge`]: everything else runs, if slowly.
pub fn play(program: &Program, tiers: &Tiers, schedule: &Schedule) -> Result<Played, TooLarge> {
    fitting(program, tiers.gpu)?;
    let mut machine = Machine::new(program, tiers);
    for _ in 0..ITERATIONS {
        machine.told = Played { peak: machine.held, ..Played::default() };
        let began = machine.channels.now;
        for (kernel, gap) in (0..program.kernels().len()).zip(0u32..) {
            let before = machine.channels.now;
            for &at in schedule.at(gap) {
                machine.issue(at);
            }
            machine.run(kernel);
            machine.told.times.push(machine.channels.now - before);
        }
        machine.told.time = machine.channels.now - began;
    }
    Ok(machine.told)
}

/// Where a tensor's contents are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    /// Nowhere: an intermediate outside its life.
    Dead,
    /// On the GPU.
    Here,
    /// On its way out, or waiting for it.
    Leaving,
    /// Away.
    Gone(Tier),
    /// On its way back; its memory is taken.
    Coming,
}

struct Tensor {
    at: At,
    /// A tier has a true copy.
    copy: Option<Tier>,
    /// A fetch waits.
    wanted: bool,
    /// A save waits or is under way; what it writes is still true.
    saving: Option<bool>,
    /// When it was used last, or came.
    stamp: Nanos,
}

struct Machine<'a> {
    program: &'a Program,
    tiers: Tiers,
    /// Where globals are at first, and what has to leave goes.
    home: Tier,
    touches: Vec<Vec<TensorId>>,
    tensors: Vec<Tensor>,
    held: Bytes,
    channels: Channels,
    told: Played,
}

impl<'a> Machine<'a> {
    fn new(program: &'a Program, tiers: &Tiers) -> Self {
        let home = if tiers.host == Bytes::ZERO && tiers.ssd.is_some() { Tier::Ssd } else { Tier::Host };
        let tensor = |life| match life {
            Life::Global => {
                Tensor { at: At::Gone(home), copy: Some(home), wanted: false, saving: None, stamp: Nanos::ZERO }
            }
            Life::Intermediate => Tensor { at: At::Dead, copy: None, wanted: false, saving: None, stamp: Nanos::ZERO },
        };
        Self {
            program,
            tiers: *tiers,
            home,
            touches: program.kernels().iter().map(deepum_trace::program::Kernel::touches).collect(),
            tensors: program.tensors().iter().map(|known| tensor(known.life)).collect(),
            held: Bytes::ZERO,
            channels: Channels::new(tiers),
            told: Played::default(),
        }
    }

    fn size(&self, id: TensorId) -> Bytes {
        self.program.tensor(id).size
    }
    fn free(&self) -> Bytes {
        self.tiers.gpu - self.held
    }
    fn take(&mut self, size: Bytes) {
        self.held += size;
        self.told.peak = self.told.peak.max(self.held);
    }

    /// A planned move's gap has come. What has happened on demand already is not done again.
    fn issue(&mut self, Move { tensor: id, kind, .. }: Move) {
        let tensor = &mut self.tensors[id.index()];
        match (kind, tensor.at, tensor.copy) {
            (Kind::Drop, At::Here, Some(tier)) => {
                tensor.at = At::Gone(tier);
                self.held -= self.program.tensor(id).size;
            }
            (Kind::Drop, At::Here, None) if tensor.saving == Some(true) => tensor.at = At::Leaving,
            // It was kept the last time, so it was not fetched since it was written: dropping would lose the contents.
            (Kind::Drop, At::Here, None) => self.evict(id, self.home),
            (Kind::Evict(tier), At::Here, _) => self.evict(id, tier),
            (Kind::Save(tier), At::Here, None) if tensor.saving.is_none() => {
                tensor.saving = Some(true);
                self.write(id, tier);
            }
            (Kind::Prefetch, At::Gone(_) | At::Leaving, _) if !tensor.wanted => self.fetch(id, false),
            _ => {}
        }
    }
    fn evict(&mut self, id: TensorId, tier: Tier) {
        self.tensors[id.index()].at = At::Leaving;
        self.write(id, tier);
    }
    fn write(&mut self, id: TensorId, tier: Tier) {
        let size = self.size(id);
        self.told.out[tier as usize] += size;
        self.channels.push(Direction::Out, tier, Job { tensor: id, size }, false);
    }
    /// Fetches what is away, or will be; ahead of others if a kernel waits.
    fn fetch(&mut self, id: TensorId, first: bool) {
        let leaves_for = self.channels.leaving(id);
        let tensor = &mut self.tensors[id.index()];
        let ((At::Gone(tier), _) | (_, Some(tier))) = (tensor.at, leaves_for) else { return };
        tensor.wanted = true;
        let size = self.program.tensor(id).size;
        self.told.back[tier as usize] += size;
        self.channels.push(Direction::Back, tier, Job { tensor: id, size }, first);
    }

    /// Waits until the kernel can run, runs it, and gives up what died.
    fn run(&mut self, kernel: usize) {
        let touches = std::mem::take(&mut self.touches[kernel]);
        let new: Bytes =
            touches.iter().filter(|id| self.at(**id) == At::Dead).fold(Bytes::ZERO, |sum, &id| sum + self.size(id));
        for &id in &touches {
            self.demand(id);
        }
        loop {
            self.begin_fetches(|id| touches.contains(&id), new);
            let here = touches.iter().all(|&id| matches!(self.at(id), At::Here | At::Dead));
            if here && self.free() >= new {
                break;
            }
            if !self.step(None) {
                self.make_way(&touches);
            }
        }
        self.take(new);
        let until = self.channels.now + self.program.kernels()[kernel].time;
        for &id in &touches {
            self.tensors[id.index()].at = At::Here;
        }
        while self.channels.now < until {
            self.begin_fetches(|_| true, Bytes::ZERO);
            self.step(Some(until));
        }
        for &id in &self.program.kernels()[kernel].writes {
            let tensor = &mut self.tensors[id.index()];
            tensor.copy = None;
            tensor.saving = tensor.saving.and(Some(false));
        }
        for &id in &touches {
            let last = self.program.uses(id).last().is_some_and(|&last| last as usize == kernel);
            let dies = last && self.program.tensor(id).life == Life::Intermediate;
            let tensor = &mut self.tensors[id.index()];
            tensor.stamp = until;
            if dies {
                (tensor.at, tensor.copy) = (At::Dead, None);
                tensor.saving = tensor.saving.and(Some(false));
                self.held -= self.program.tensor(id).size;
            }
        }
        self.touches[kernel] = touches;
    }
    fn at(&self, id: TensorId) -> At {
        self.tensors[id.index()].at
    }

    /// A kernel touches it: it is fetched unless a fetch waits already.
    fn demand(&mut self, id: TensorId) {
        let tensor = &self.tensors[id.index()];
        if !tensor.wanted && matches!(tensor.at, At::Gone(_) | At::Leaving) {
            self.told.demanded += self.size(id);
            self.fetch(id, true);
        }
    }

    /// Begins the fetches at the heads of idle channels that have room; `urgent` ones need not leave room for `kept`.
    fn begin_fetches(&mut self, urgent: impl Fn(TensorId) -> bool, kept: Bytes) {
        for tier in [Tier::Host, Tier::Ssd] {
            let Some(job) = self.channels.waiting(Direction::Back, tier) else { continue };
            let needs = Bytes(job.size.0.saturating_add(if urgent(job.tensor) { 0 } else { kept.0 }));
            if matches!(self.at(job.tensor), At::Gone(_)) && self.free() >= needs {
                self.take(job.size);
                let tensor = &mut self.tensors[job.tensor.index()];
                (tensor.at, tensor.wanted) = (At::Coming, false);
                self.channels.begin(Direction::Back, tier);
            }
        }
    }

    /// Lets time pass to the next end of a transfer, or to `until` if that comes first. Whether anything moved.
    fn step(&mut self, until: Option<Nanos>) -> bool {
        for tier in [Tier::Host, Tier::Ssd] {
            if self.channels.waiting(Direction::Out, tier).is_some() {
                self.channels.begin(Direction::Out, tier);
            }
        }
        if self.channels.idle() && until.is_none() {
            return false;
        }
        for (to, tier, job) in self.channels.advance(until) {
            let now = self.channels.now;
            let tensor = &mut self.tensors[job.tensor.index()];
            match (to, tensor.saving.take(), tensor.at) {
                (Direction::Back, saving, _) => (tensor.at, tensor.stamp, tensor.saving) = (At::Here, now, saving),
                // Written again meanwhile, or dead: for nothing.
                (Direction::Out, Some(false), _) => {}
                (Direction::Out, _, At::Leaving) => {
                    (tensor.at, tensor.copy) = (At::Gone(tier), Some(tier));
                    self.held -= job.size;
                }
                (Direction::Out, _, _) => tensor.copy = Some(tier),
            }
        }
        true
    }

    /// Nothing moves, and the kernel waits: what it misses goes first, and what was used longest ago leaves.
    fn make_way(&mut self, touches: &[TensorId]) {
        for &id in touches.iter().filter(|id| self.tensors[id.index()].wanted) {
            self.channels.first(id);
        }
        let idle = |id: &TensorId| self.at(*id) == At::Here && !touches.contains(id);
        let victim = self.program.ids().filter(idle).min_by_key(|id| self.tensors[id.index()].stamp);
        if let Some(id) = victim {
            self.told.demanded += self.size(id);
            self.evict(id, self.home);
        }
    }
}

#[cfg(test)]
mod tests;
