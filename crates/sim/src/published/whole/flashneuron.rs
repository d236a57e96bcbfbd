//! FlashNeuron as G10's authors play it.
//!
//! Weights stay, and so does room for the largest workspace. Activations that were chosen leave for the SSD from the gaps that the plan says; the backward pass begins when the
//! last of them is out. From then on, after each kernel, those that the next kernels touch are fetched in that order, as long as the largest free piece of memory has room for them beside
//! the largest kernel. A kernel waits for room, and for what is on its way or was not asked for. Memory may be there, but not in one piece: then FlashNeuron fails.
//!
//! Not here: the choice, which is [`crate::planner::flashneuron`]'s.

use super::space::End;
use super::{PublishedError, Whole, World};
use crate::planner::play::Played;
use crate::planner::schedule::{Kind, Schedule};
use crate::tiers::Tier;
use deepum_core::units::Bytes;
use deepum_trace::program::{Program, TensorId};

/// Plays the iteration; `schedule` says what leaves when, and the backward pass begins with kernel `turn`.
///
/// # Errors
/// [`PublishedError::NoPiece`].
pub fn play(program: &Program, world: &World, schedule: &Schedule, turn: u32) -> Result<Played, PublishedError> {
    let mut player = Player::new(program, world, schedule);
    player.place_what_stays()?;
    for (kernel, gap) in (0..program.kernels().len()).zip(0u32..) {
        let begun = player.whole.now;
        for at in schedule.at(gap).iter().filter(|at| gap < turn && matches!(at.kind, Kind::Evict(_))) {
            player.whole.leave(at.tensor, Tier::Ssd);
        }
        while gap >= turn && !player.whole.out[Tier::Ssd as usize].is_empty() {
            player.whole.step(None);
        }
        player.gather(kernel)?;
        let until = player.whole.now + program.kernels()[kernel].time;
        while player.whole.now < until {
            player.whole.step(Some(until));
        }
        player.whole.give_up_the_dead(kernel);
        if gap >= turn {
            player.fetch_ahead(kernel);
        }
        let took = player.whole.now - begun;
        player.whole.told.times.push(took);
    }
    let mut told = player.whole.told;
    told.time = player.whole.now;
    Ok(told)
}

struct Player<'a> {
    whole: Whole<'a>,
    /// By tensor: whether it leaves.
    chosen: Vec<bool>,
    /// What the largest kernel touches beside weights.
    largest: Bytes,
}

impl<'a> Player<'a> {
    fn new(program: &'a Program, world: &World, schedule: &Schedule) -> Self {
        let whole = Whole::new(program, world, world.gpu);
        let mut chosen = vec![false; program.tensors().len()];
        schedule.moves().iter().for_each(|at| chosen[at.tensor.index()] = true);
        let intermediates = |touches: Vec<TensorId>| {
            let own = touches.into_iter().filter(|id| !whole.is_global(*id));
            own.fold(Bytes::ZERO, |sum, id| sum + whole.size(id))
        };
        let largest = program.kernels().iter().map(|kernel| intermediates(kernel.touches())).max().unwrap_or_default();
        Self { whole, chosen, largest }
    }

    fn place_what_stays(&mut self) -> Result<(), PublishedError> {
        let program = self.whole.program;
        let (mut workspace, mut largest) = (None, Bytes::ZERO);
        for id in program.ids() {
            if self.whole.is_global(id) && !self.whole.place(id, End::Low) {
                return Err(self.whole.no_piece(id, 0));
            }
            if self.whole.is_workspace(id) && self.whole.size(id) > largest {
                (workspace, largest) = (Some(id), self.whole.size(id));
            }
        }
        match workspace {
            Some(id) if !self.whole.place(id, End::Low) => Err(self.whole.no_piece(id, 0)),
            _ => Ok(()),
        }
    }

    /// Makes all that a kernel touches be there.
    fn gather(&mut self, kernel: usize) -> Result<(), PublishedError> {
        for id in self.whole.program.kernels()[kernel].touches() {
            if self.whole.is_global(id) || self.whole.is_workspace(id) {
                continue;
            }
            if self.whole.places[id.index()].is_none() {
                let end = if self.chosen[id.index()] { End::High } else { End::Low };
                while !self.whole.place(id, end) {
                    if !self.whole.step(None) {
                        return Err(self.whole.no_piece(id, kernel));
                    }
                }
                if self.whole.is_alive(id, kernel) {
                    self.whole.fetch(id, Tier::Ssd);
                }
            }
            while self.whole.coming[id.index()] {
                self.whole.step(None);
            }
        }
        Ok(())
    }

    fn fetch_ahead(&mut self, kernel: usize) {
        let mut rest = self.whole.space.largest().saturating_sub(self.largest);
        for later in &self.whole.program.kernels()[kernel + 1..] {
            for id in later.touches() {
                if !self.chosen[id.index()] || self.whole.places[id.index()].is_some() {
                    continue;
                }
                if rest <= self.whole.size(id) || !self.whole.place(id, End::High) {
                    return;
                }
                rest -= self.whole.size(id);
                self.whole.fetch(id, Tier::Ssd);
            }
        }
    }
}

#[cfg(test)]
mod tests;
