//! Kernels one after the other, by the rules of the published world ([`super`]).

use super::cost::{self, Faulted};
use super::guide::{Guides, Happened, Order};
use super::link::{Lane, Link};
use super::memory::{Away, Memory};
use super::{PublishedError, World};
use crate::planner::play::Played;
use crate::planner::schedule::fitting;
use crate::tiers::Tier;
use deepum_core::units::{Bytes, Nanos};
use deepum_trace::g10::FaultCost;
use deepum_trace::program::{Program, TensorId};

/// A program that is played under a guide.
pub(super) struct Player<'a, G> {
    program: &'a Program,
    faults: &'a [FaultCost],
    world: World,
    memory: Memory,
    link: Link,
    guided: G,
    told: Played,
}

impl<'a, G: Guides> Player<'a, G> {
    /// At the beginning.
    ///
    /// # Errors
    /// A program that can run nowhere.
    pub(super) fn new(
        program: &'a Program,
        faults: &'a [FaultCost],
        world: &World,
        guided: G,
    ) -> Result<Self, PublishedError> {
        fitting(program, world.gpu)?;
        let (memory, link) = (Memory::new(program, world), Link::new(world));
        Ok(Self { program, faults, world: *world, memory, link, guided, told: Played::default() })
    }

    /// One iteration more.
    ///
    /// # Errors
    /// A mistake of ours.
    pub(super) fn iteration(&mut self) -> Result<Played, PublishedError> {
        self.told = Played { peak: self.memory.held(), ..Played::default() };
        for kernel in 0..self.program.kernels().len() {
            self.kernel(kernel)?;
        }
        let mut told = std::mem::take(&mut self.told);
        told.time = Nanos(told.times.iter().map(|time| time.0).sum());
        Ok(told)
    }

    fn kernel(&mut self, kernel: usize) -> Result<(), PublishedError> {
        let program = self.program;
        let before = self.link.now;
        let running = &program.kernels()[kernel];
        self.memory.needed(Vec::new());
        for order in self.guided.begins(kernel) {
            self.begin(order);
        }
        self.tell();
        while self.guided.holds() && self.carry(Nanos(u64::MAX), true) {}
        self.memory.needed(running.touches());
        let mut end = self.link.now + running.time;
        if self.link.owes() || !self.memory.all_here() {
            let mut read = running.reads.clone();
            read.sort_unstable();
            let new = running.writes.iter().filter(|id| read.binary_search(id).is_err());
            let faulted = [self.fault(running.reads.iter()), self.fault(new)];
            self.tell();
            let cost = self.faults.get(kernel).copied().unwrap_or_default();
            end += cost::of(faulted, running.time, cost, &self.world);
            self.told.demanded += faulted.iter().fold(Bytes::ZERO, |sum, of| sum + of.bytes());
            while self.link.owes() || !self.memory.all_here() {
                if !self.carry(Nanos(u64::MAX), true) {
                    return Err(PublishedError::Stuck { kernel });
                }
            }
            self.guided.goes_on();
        }
        end = end.max(self.link.now);
        while self.link.now < end {
            self.carry(end, false);
        }
        self.told.times.push(self.link.now - before);
        self.told.peak = self.told.peak.max(self.memory.held());
        self.link.happened.push(Happened::Ended);
        self.tell();
        Ok(())
    }

    /// Lets time pass, and tells its guide of what happened. Whether anything did.
    fn carry(&mut self, until: Nanos, waits: bool) -> bool {
        let moved = self.link.carry(until, waits, &mut self.memory, &mut self.guided, &mut self.told);
        self.tell() || moved
    }

    /// Tells its guide of what happened, and begins what it asks for. Whether there was anything to tell.
    fn tell(&mut self) -> bool {
        let any = !self.link.happened.is_empty();
        let mut orders = Vec::new();
        while !self.link.happened.is_empty() {
            for happened in std::mem::take(&mut self.link.happened) {
                self.guided.hears(happened, self.link.now, &mut orders);
            }
            for order in orders.drain(..) {
                self.begin(order);
            }
        }
        any
    }

    fn begin(&mut self, order: Order) {
        match order {
            Order::Fetch(id) => {
                self.ask(id, Lane::Ahead);
                if self.memory.is_whole(id) {
                    self.link.happened.push(Happened::Came(id));
                }
            }
            Order::Leave(id, tier) => {
                let bytes = self.memory.told_to_leave(id);
                let tier = tier.unwrap_or_else(|| self.link.soonest_out(bytes, &self.memory));
                self.link.push(Lane::Out(tier), id, bytes);
                if bytes == Bytes::ZERO {
                    self.link.happened.push(Happened::Left(id));
                }
            }
            Order::Forget(id) => self.memory.forgotten(id),
            Order::Stay(id) => {
                if self.memory.told_to_stay(id) {
                    for tier in [Tier::Host, Tier::Ssd] {
                        self.link.take_back(Lane::Out(tier), id);
                    }
                }
            }
            Order::Unask(id) if self.memory.is_needed(id) => {}
            Order::Unask(id) => {
                for from in Away::ALL {
                    let bytes = self.link.take_back(Lane::Ahead(from), id);
                    self.memory.unasked(id, from, bytes);
                }
            }
        }
    }

    fn ask(&mut self, id: TensorId, lane: fn(Away) -> Lane) -> [Bytes; 3] {
        let from = self.memory.asked_for(id);
        for (away, bytes) in Away::ALL.into_iter().zip(from) {
            self.link.push(lane(away), id, bytes);
        }
        from
    }

    fn fault<'b>(&mut self, ids: impl Iterator<Item = &'b TensorId>) -> Faulted {
        let mut faulted = Faulted::default();
        for &id in ids {
            faulted.all += self.program.tensor(id).size;
            let from = self.ask(id, Lane::Faulted);
            for (sum, bytes) in faulted.from.iter_mut().zip(from) {
                *sum += bytes;
            }
            if from != [Bytes::ZERO; 3] || self.memory.is_leaving(id) {
                self.link.happened.push(Happened::Faulted(id));
            }
        }
        faulted
    }
}
