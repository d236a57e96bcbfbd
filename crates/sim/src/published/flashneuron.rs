//! FlashNeuron as G10's authors simulate it (artifact, commit de2c8c6, `FlashNeuron_simulator` in `src/analysis.cc`): beside the world of pages, by whole tensors.
//!
//! Idea: weights stay, and so does room for the largest workspace. Activations that were chosen leave for the SSD one after the other, from the gaps that the plan
//! says; the backward pass begins when the last of them is out. From then on, after each kernel, those that the next kernels touch are fetched in that order, as long as the
//! largest free piece of memory has room for them beside the largest kernel. A kernel waits for room, and for what is on its way or was not asked for. Memory is in pieces
//! ([`space`]), so it may be there and yet not do: then FlashNeuron fails. One iteration is played, and the SSD's gigabytes are 2^30 bytes.
//!
//! Not here: the choice, which is [`crate::planner::flashneuron`]'s; G10-GDS and G10-Host, which the artifact plays likewise.

mod space;

use super::{PublishedError, World};
use crate::planner::play::Played;
use crate::planner::schedule::{Kind, Schedule};
use crate::tiers::Tier;
use deepum_core::units::{Bytes, Nanos};
use deepum_trace::program::{Life, Program, TensorId};
use space::{End, Space};
use std::collections::VecDeque;

/// Plays the iteration; `schedule` says what leaves when, and the backward pass begins with kernel `turn`.
///
/// # Errors
/// [`PublishedError::NoPiece`].
pub fn play(program: &Program, world: &World, schedule: &Schedule, turn: u32) -> Result<Played, PublishedError> {
    let mut player = Player::new(program, world);
    let kernels = program.kernels();
    schedule.moves().iter().for_each(|at| player.chosen[at.tensor.index()] = true);
    player.place_what_stays()?;
    for (kernel, gap) in (0..kernels.len()).zip(0u32..) {
        let begun = player.now;
        for at in schedule.at(gap).iter().filter(|at| gap < turn && matches!(at.kind, Kind::Evict(_))) {
            player.out.push_back(at.tensor, player.now, player.takes(at.tensor));
            player.told.out[Tier::Ssd as usize] += player.size(at.tensor);
        }
        while gap >= turn && !player.out.is_empty() {
            player.step(None);
        }
        player.gather(kernel)?;
        let until = player.now + kernels[kernel].time;
        while player.now < until {
            player.step(Some(until));
        }
        player.give_up_the_dead(kernel);
        if gap >= turn {
            player.fetch_ahead(kernel);
        }
        player.told.times.push(player.now - begun);
    }
    player.told.time = player.now;
    Ok(player.told)
}

/// Transfers of one direction, one at a time.
#[derive(Default)]
struct Way {
    queue: VecDeque<(TensorId, Nanos)>,
    /// When the first of them is over.
    ends: Nanos,
}

impl Way {
    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
    fn push_back(&mut self, id: TensorId, now: Nanos, takes: Nanos) {
        if self.queue.is_empty() {
            self.ends = now + takes;
        }
        self.queue.push_back((id, takes));
    }
    fn next(&self) -> Option<Nanos> {
        (!self.queue.is_empty()).then_some(self.ends)
    }
    /// The first is over, and the next begins.
    fn pop(&mut self) -> Option<TensorId> {
        let (id, _) = self.queue.pop_front()?;
        if let Some((_, takes)) = self.queue.front() {
            self.ends += *takes;
        }
        Some(id)
    }
}

struct Player<'a> {
    program: &'a Program,
    world: World,
    space: Space,
    now: Nanos,
    out: Way,
    back: Way,
    /// By tensor: where it is on the GPU, whether it is on its way there, and whether it was chosen to leave.
    places: Vec<Option<Bytes>>,
    coming: Vec<bool>,
    chosen: Vec<bool>,
    /// What the largest kernel touches beside weights.
    largest: Bytes,
    told: Played,
}

impl<'a> Player<'a> {
    fn new(program: &'a Program, world: &World) -> Self {
        let intermediates = |touches: Vec<TensorId>| {
            let own = touches.into_iter().filter(|id| program.tensor(*id).life == Life::Intermediate);
            own.fold(Bytes::ZERO, |sum, id| sum + program.tensor(id).size)
        };
        let largest = program.kernels().iter().map(|kernel| intermediates(kernel.touches())).max().unwrap_or_default();
        let tensors = program.tensors().len();
        Self {
            program,
            world: *world,
            space: Space::new(world.gpu),
            now: Nanos::ZERO,
            out: Way::default(),
            back: Way::default(),
            places: vec![None; tensors],
            coming: vec![false; tensors],
            chosen: vec![false; tensors],
            largest,
            told: Played::default(),
        }
    }

    fn size(&self, id: TensorId) -> Bytes {
        self.program.tensor(id).size
    }
    fn takes(&self, id: TensorId) -> Nanos {
        super::g10::as_binary(self.world.ssd).time(self.size(id))
    }
    /// Whether nobody ever reads it: a workspace, for which there is room anyhow.
    fn is_workspace(&self, id: TensorId) -> bool {
        let read = |kernel: &u32| self.program.kernels()[*kernel as usize].reads.contains(&id);
        !self.program.uses(id).iter().any(read)
    }

    fn place_what_stays(&mut self) -> Result<(), PublishedError> {
        let program = self.program;
        for id in program.ids().filter(|id| program.tensor(*id).life == Life::Global) {
            if !self.place(id, End::Low) {
                return Err(PublishedError::NoPiece { kernel: 0, bytes: self.size(id) });
            }
        }
        let intermediates = program.ids().filter(|id| program.tensor(*id).life == Life::Intermediate);
        let workspace = intermediates.filter(|id| self.is_workspace(*id)).map(|id| self.size(id)).max();
        if let Some(bytes) = workspace {
            self.space.take(bytes, End::Low).ok_or(PublishedError::NoPiece { kernel: 0, bytes })?;
        }
        Ok(())
    }

    /// Makes all that a kernel touches be there.
    fn gather(&mut self, kernel: usize) -> Result<(), PublishedError> {
        for id in self.program.kernels()[kernel].touches() {
            if self.program.tensor(id).life == Life::Global || self.is_workspace(id) {
                continue;
            }
            if self.places[id.index()].is_none() {
                let end = if self.chosen[id.index()] { End::High } else { End::Low };
                while !self.place(id, end) {
                    if !self.step(None) {
                        return Err(PublishedError::NoPiece { kernel, bytes: self.size(id) });
                    }
                }
                if self.program.span(id).is_some_and(|span| (*span.start() as usize) < kernel) {
                    self.fetch(id);
                }
            }
            while self.coming[id.index()] {
                self.step(None);
            }
        }
        Ok(())
    }

    fn place(&mut self, id: TensorId, end: End) -> bool {
        self.places[id.index()] = self.space.take(self.size(id), end);
        self.told.peak = self.told.peak.max(self.space.held());
        self.places[id.index()].is_some()
    }
    fn fetch(&mut self, id: TensorId) {
        self.coming[id.index()] = true;
        self.back.push_back(id, self.now, self.takes(id));
        self.told.back[Tier::Ssd as usize] += self.size(id);
    }
    fn give_back(&mut self, id: TensorId) {
        if let Some(at) = self.places[id.index()].take() {
            self.space.give_back(at, self.size(id));
        }
    }

    fn give_up_the_dead(&mut self, kernel: usize) {
        for id in self.program.kernels()[kernel].touches() {
            let last = self.program.span(id).is_some_and(|span| *span.end() as usize == kernel);
            if last && self.program.tensor(id).life == Life::Intermediate {
                self.give_back(id);
            }
        }
    }

    fn fetch_ahead(&mut self, kernel: usize) {
        let mut rest = self.space.largest().saturating_sub(self.largest);
        for later in &self.program.kernels()[kernel + 1..] {
            for id in later.touches() {
                if !self.chosen[id.index()] || self.places[id.index()].is_some() {
                    continue;
                }
                if rest <= self.size(id) || !self.place(id, End::High) {
                    return;
                }
                rest -= self.size(id);
                self.fetch(id);
            }
        }
    }

    /// Lets time pass to the end of a transfer, or to `until` if that comes first. Whether a transfer ended.
    fn step(&mut self, until: Option<Nanos>) -> bool {
        let next = self.out.next().into_iter().chain(self.back.next()).min();
        match (next, until) {
            (None, None) => return false,
            (None, Some(until)) => self.now = until,
            (Some(next), Some(until)) if until < next => self.now = until,
            (Some(next), _) => {
                self.now = next;
                if self.out.next() == Some(next) {
                    if let Some(id) = self.out.pop() {
                        self.give_back(id);
                    }
                } else if let Some(id) = self.back.pop() {
                    self.coming[id.index()] = false;
                }
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
