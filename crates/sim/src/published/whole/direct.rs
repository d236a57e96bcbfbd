//! G10-GDS and G10-Host as G10's authors play them: a plan without unified memory.
//!
//! Weights are there at first. What the plan says is begun as its kernel does: who leaves joins its way, who comes back waits in one queue for memory, and is fetched from where it went. A
//! kernel waits for its own memory and for what is on its way to it, and fetches from the SSD what nobody asked for. The GPU has four times its memory here: that the plan
//! keeps to the real one is all there is of its limit.

use super::space::End;
use super::{PublishedError, Whole, World};
use crate::planner::play::Played;
use crate::planner::schedule::{Kind, Move};
use crate::tiers::Tier;
use deepum_core::units::{Bytes, Nanos};
use deepum_trace::program::{Program, TensorId};
use std::collections::VecDeque;

/// How many times the GPU's memory there is.
const MEMORY: u64 = 4;

/// Plays the iteration; `moves` by gap.
///
/// # Errors
/// [`PublishedError::NoPiece`].
pub fn play(program: &Program, world: &World, moves: &[Move]) -> Result<Played, PublishedError> {
    let mut chosen = vec![false; program.tensors().len()];
    moves.iter().for_each(|at| chosen[at.tensor.index()] = true);
    let whole = Whole::new(program, world, Bytes(world.gpu.0.saturating_mul(MEMORY)));
    let mut player = Player { whole, home: vec![Tier::Ssd; chosen.len()], chosen, waiting: VecDeque::new() };
    for id in program.ids() {
        if player.whole.is_global(id) && !player.whole.place(id, player.end(id)) {
            return Err(player.whole.no_piece(id, 0));
        }
    }
    for (kernel, gap) in (0..program.kernels().len()).zip(0u32..) {
        let begun = player.whole.now;
        let from = moves.partition_point(|at| at.gap < gap);
        for at in moves[from..].iter().take_while(|at| at.gap == gap) {
            player.begin(at.tensor, at.kind);
        }
        player.gather(kernel)?;
        let until = player.whole.now + program.kernels()[kernel].time;
        while player.whole.now < until {
            player.step(Some(until));
        }
        player.whole.give_up_the_dead(kernel);
        player.fetch_first();
        let took = player.whole.now - begun;
        player.whole.told.times.push(took);
    }
    let mut told = player.whole.told;
    told.time = player.whole.now;
    Ok(told)
}

struct Player<'a> {
    whole: Whole<'a>,
    /// By tensor: where it went last, and whether it ever leaves.
    home: Vec<Tier>,
    chosen: Vec<bool>,
    /// Who is to come back and has no memory yet.
    waiting: VecDeque<TensorId>,
}

impl Player<'_> {
    fn end(&self, id: TensorId) -> End {
        if self.chosen[id.index()] { End::High } else { End::Low }
    }

    fn begin(&mut self, id: TensorId, kind: Kind) {
        match kind {
            Kind::Evict(tier) => {
                self.home[id.index()] = tier;
                self.whole.leave(id, tier);
            }
            Kind::Prefetch if !(self.whole.is_global(id) && self.whole.places[id.index()].is_some()) => {
                self.waiting.push_back(id);
                self.fetch_first();
            }
            Kind::Prefetch | Kind::Drop | Kind::Save(_) => {}
        }
    }

    fn step(&mut self, until: Option<Nanos>) -> bool {
        let ended = self.whole.step(until);
        self.fetch_first();
        ended
    }

    /// The first that waits is fetched, if there is memory for it.
    fn fetch_first(&mut self) {
        if let Some(&id) = self.waiting.front()
            && self.whole.space.largest() >= self.whole.size(id)
            && self.whole.place(id, End::High)
        {
            self.waiting.pop_front();
            self.whole.fetch(id, self.home[id.index()]);
        }
    }

    /// Makes all that a kernel touches be there.
    fn gather(&mut self, kernel: usize) -> Result<(), PublishedError> {
        for id in self.whole.program.kernels()[kernel].touches() {
            if self.waiting.contains(&id) && self.whole.places[id.index()].is_none() {
                // It is not waited for then: so has it the code.
                while self.whole.places[id.index()].is_none() {
                    if !self.step(None) {
                        return Err(self.whole.no_piece(id, kernel));
                    }
                }
                continue;
            }
            if self.whole.places[id.index()].is_none() {
                let end = self.end(id);
                while !self.whole.place(id, end) {
                    if !self.step(None) {
                        return Err(self.whole.no_piece(id, kernel));
                    }
                }
                if self.chosen[id.index()] && self.whole.is_alive(id, kernel) && !self.whole.is_global(id) {
                    self.whole.fetch(id, Tier::Ssd);
                }
            }
            while self.whole.coming[id.index()] {
                self.step(None);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
