//! What G10's artifact plays by whole tensors instead of pages, without faults (`FlashNeuron_simulator` in `src/analysis.cc`, commit de2c8c6).
//!
//! Memory is in pieces ([`space`]). A tensor leaves and comes over one of four ways, out and back, SSD and host, each of which carries one after the other ([`way`]); its place is free when
//! it is out. The host's ways are as fast as the link less the SSD, gigabytes are 2^30 bytes, and one iteration is played, weights being there at first.
//!
//! | module | who |
//! | --- | --- |
//! | [`flashneuron`] | FlashNeuron |
//! | [`direct`] | G10-GDS, G10-Host |

pub mod direct;
pub mod flashneuron;
mod space;
mod way;

use super::g10::as_binary;
use super::{PublishedError, World};
use crate::planner::play::Played;
use crate::tiers::{Rate, Tier};
use deepum_core::units::{Bytes, Nanos};
use deepum_trace::program::{Life, Program, TensorId};
use space::{End, Space};
use way::Way;

/// Tensors, where they are, and the ways.
struct Whole<'a> {
    program: &'a Program,
    world: World,
    space: Space,
    now: Nanos,
    /// By tier.
    out: [Way; 2],
    back: [Way; 2],
    /// By tensor: where it is on the GPU, and whether it is on its way there.
    places: Vec<Option<Bytes>>,
    coming: Vec<bool>,
    told: Played,
}

impl<'a> Whole<'a> {
    fn new(program: &'a Program, world: &World, memory: Bytes) -> Self {
        let tensors = program.tensors().len();
        Self {
            program,
            world: *world,
            space: Space::new(memory),
            now: Nanos::ZERO,
            out: Default::default(),
            back: Default::default(),
            places: vec![None; tensors],
            coming: vec![false; tensors],
            told: Played::default(),
        }
    }

    fn size(&self, id: TensorId) -> Bytes {
        self.program.tensor(id).size
    }
    fn is_global(&self, id: TensorId) -> bool {
        self.program.tensor(id).life == Life::Global
    }
    /// Whether nobody ever reads it.
    fn is_workspace(&self, id: TensorId) -> bool {
        let read = |kernel: &u32| self.program.kernels()[*kernel as usize].reads.contains(&id);
        !self.is_global(id) && !self.program.uses(id).iter().any(read)
    }
    /// Whether a kernel touches it that is not the first to do so.
    fn is_alive(&self, id: TensorId, kernel: usize) -> bool {
        self.program.span(id).is_some_and(|span| (*span.start() as usize) < kernel)
    }
    fn takes(&self, id: TensorId, tier: Tier) -> Nanos {
        let rate = match tier {
            Tier::Ssd => self.world.ssd,
            Tier::Host => Rate(self.world.link.0.saturating_sub(self.world.ssd.0)),
        };
        as_binary(rate).time(self.size(id))
    }

    /// Gives it memory, if there is a piece.
    fn place(&mut self, id: TensorId, end: End) -> bool {
        self.places[id.index()] = self.space.take(self.size(id), end);
        self.told.peak = self.told.peak.max(self.space.held());
        self.places[id.index()].is_some()
    }
    fn give_back(&mut self, id: TensorId) {
        if let Some(at) = self.places[id.index()].take() {
            self.space.give_back(at, self.size(id));
        }
    }
    fn leave(&mut self, id: TensorId, tier: Tier) {
        self.out[tier as usize].push(id, self.now, self.takes(id, tier));
        self.told.out[tier as usize] += self.size(id);
    }
    fn fetch(&mut self, id: TensorId, tier: Tier) {
        self.coming[id.index()] = true;
        self.back[tier as usize].push(id, self.now, self.takes(id, tier));
        self.told.back[tier as usize] += self.size(id);
    }

    /// Lets time pass to the end of a transfer, or to `until` if that comes first. Whether a transfer ended.
    fn step(&mut self, until: Option<Nanos>) -> bool {
        let ends = self.out.iter().chain(&self.back).filter_map(Way::next).min();
        let Some(next) = ends.filter(|next| until.is_none_or(|until| *next <= until)) else {
            self.now = until.unwrap_or(self.now);
            return false;
        };
        self.now = next;
        if let Some(id) = self.out.iter_mut().find_map(|way| way.ended(next)) {
            self.give_back(id);
        } else if let Some(id) = self.back.iter_mut().find_map(|way| way.ended(next)) {
            self.coming[id.index()] = false;
        }
        true
    }

    fn give_up_the_dead(&mut self, kernel: usize) {
        for id in self.program.kernels()[kernel].touches() {
            let last = self.program.span(id).is_some_and(|span| *span.end() as usize == kernel);
            if last && !self.is_global(id) {
                self.give_back(id);
            }
        }
    }

    fn no_piece(&self, id: TensorId, kernel: usize) -> PublishedError {
        PublishedError::NoPiece { kernel, bytes: self.size(id) }
    }
}
