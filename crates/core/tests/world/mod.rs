//! A toy world: one GPU that runs launches in order, a memory that evicts the block made resident longest
//! ago, a mover for each hand, and time in microseconds. Small enough to see through; the real one is `deepum-model`.
//!
//! A launch touches its blocks in order. A block that is not there costs a fault, and comes in whole. The host
//! issues launches up to `ahead` before the GPU gets there. The movers carry out batches one after the other
//! while the GPU runs.

#![allow(dead_code, reason = "each test uses its part")]

pub mod scene;
pub mod told;

use std::collections::HashSet;

use deepum_core::engine::{Config, Engine};
use deepum_core::event::{DiscardOutcome, Event, Fault, Launch, Migration, MigrationCause};
use deepum_core::queues::{BATCH, Batch, Direction, Hand, Lane, Queues};
use deepum_core::units::{
    AddrRange, Bytes, DevAddr, DeviceId, KernelId, LaunchKey, LaunchSeq, Nanos, Place, StreamSlot, UmBlock,
};

pub const DEVICE: Place = Place::Device(DeviceId(0));

/// A launch of the workload: what it is, what it is given, what it really touches.
#[derive(Clone, Debug)]
pub struct Work {
    pub key: u64,
    pub tensors: Vec<AddrRange>,
    pub touches: Vec<UmBlock>,
    pub micros: u64,
}

/// Costs, in microseconds. Toy values: a fault is about ten transfers of overhead away from a prefetch.
#[derive(Clone, Copy)]
pub struct Costs {
    pub fault: u64,
    pub transfer: u64,
    pub touch: u64,
}
pub const COSTS: Costs = Costs { fault: 300, transfer: 180, touch: 5 };

/// Figures of one iteration.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Iteration {
    pub faults: u64,
    pub micros: u64,
    pub fetched: u64,
}

pub struct World {
    pub engine: Engine,
    pub queues: Queues,
    costs: Costs,
    capacity: usize,
    /// Resident blocks, oldest first, and the same as a set.
    order: Vec<UmBlock>,
    resident: HashSet<UmBlock>,
    /// Blocks whose contents exist somewhere, so that bringing them in is a transfer.
    populated: HashSet<UmBlock>,
    now: u64,
    /// When each mover is free again.
    mover_free: [u64; Hand::ALL.len()],
    /// The time up to which the mover has worked.
    seen: u64,
    seq: u64,
    batch: u32,
    figures: Iteration,
    pub peak: usize,
    /// Whether fault notices and migration notices are kept from the engine.
    pub blind: bool,
    /// One of so many fault notices is lost.
    pub lost: Option<u32>,
    /// Copies before each launch, into what it uses first.
    pub copies: u64,
}

impl World {
    pub fn new(config: Config, capacity: usize) -> Self {
        Self {
            engine: Engine::new(config),
            queues: Queues::default(),
            costs: COSTS,
            capacity,
            order: Vec::new(),
            resident: HashSet::new(),
            populated: HashSet::new(),
            now: 0,
            mover_free: [0; Hand::ALL.len()],
            seen: 0,
            seq: 0,
            batch: 0,
            figures: Iteration::default(),
            peak: 0,
            blind: false,
            lost: None,
            copies: 0,
        }
    }

    pub fn tell(&mut self, event: &Event<'_>) {
        self.engine.step(event, &mut self.queues);
    }

    pub fn alloc(&mut self, range: AddrRange) {
        self.tell(&Event::Alloc { range });
        self.tell(&Event::PtBlock { range, active: true });
        self.now += range.blocks().len() as u64 * self.costs.transfer;
        self.run_mover();
    }

    /// Runs one iteration, the host up to `ahead` launches before the GPU.
    pub fn iterate(&mut self, works: &[Work], ahead: usize) -> Iteration {
        self.figures = Iteration::default();
        let start = self.now;
        let (first, places) = (self.seq + 1, self.copies + 1);
        let mut issued = 0;
        for (n, work) in works.iter().enumerate() {
            while issued < works.len() && issued <= n + ahead {
                self.issue(&works[issued]);
                issued += 1;
            }
            for &block in &work.touches {
                self.access(block);
                self.now += work.micros / work.touches.len().max(1) as u64;
                self.run_mover();
            }
            self.tell(&Event::Progress {
                stream: StreamSlot(0),
                done: LaunchSeq(first + n as u64 * places + self.copies),
            });
        }
        self.figures.micros = self.now - start;
        self.figures
    }

    fn issue(&mut self, work: &Work) {
        for _ in 0..self.copies {
            self.seq += 1;
            let range = AddrRange::new(work.tensors[0].start, Bytes(4096));
            self.tell(&Event::Copy { seq: LaunchSeq(self.seq), stream: StreamSlot(0), range, write: true });
        }
        self.seq += 1;
        let pointers: Vec<DevAddr> = work.tensors.iter().map(|tensor| tensor.start).collect();
        self.tell(&Event::Launch(Launch {
            seq: LaunchSeq(self.seq),
            stream: StreamSlot(0),
            key: LaunchKey(work.key),
            kernel: KernelId(0),
            pointers: &pointers,
        }));
    }

    fn access(&mut self, block: UmBlock) {
        if self.resident.contains(&block) {
            return;
        }
        self.figures.faults += 1;
        self.batch += 1;
        let at = Nanos::micros(self.now);
        if !self.blind && self.lost.is_none_or(|one_in| !self.batch.is_multiple_of(one_in)) {
            self.tell(&Event::Fault(Fault { block, batch: self.batch, entries: 3, write: false, at }));
        }
        self.now += self.costs.fault;
        self.make_resident(block, MigrationCause::Coherence);
    }

    /// What the driver does: room first, then the block becomes the youngest.
    fn make_resident(&mut self, block: UmBlock, cause: MigrationCause) -> bool {
        let was_there = self.resident.contains(&block);
        if was_there {
            self.order.retain(|&other| other != block);
        } else {
            if self.order.len() == self.capacity {
                let victim = self.order.remove(0);
                self.resident.remove(&victim);
                self.migrated(victim, false, MigrationCause::Eviction);
            }
            self.resident.insert(block);
            if !self.populated.insert(block) {
                self.figures.fetched += 1;
                self.migrated(block, true, cause);
            }
        }
        self.order.push(block);
        self.peak = self.peak.max(self.order.len());
        was_there
    }

    fn migrated(&mut self, block: UmBlock, to_device: bool, cause: MigrationCause) {
        let (from, to) = if to_device { (Place::Host, DEVICE) } else { (DEVICE, Place::Host) };
        let at = Nanos::micros(self.now);
        if self.blind {
            return;
        }
        self.tell(&Event::Migrated(Migration { block, bytes: UmBlock::SIZE, from, to, cause, at }));
    }

    /// Carries out a discard; how long it takes.
    fn discard(&mut self, block: UmBlock) -> u64 {
        self.populated.remove(&block);
        if self.resident.remove(&block) {
            self.order.retain(|&other| other != block);
        }
        self.tell(&Event::Discarded { block, outcome: DiscardOutcome::Done });
        self.costs.touch
    }

    fn evict(&mut self, block: UmBlock) -> u64 {
        let there = self.resident.remove(&block);
        if there {
            self.order.retain(|&other| other != block);
            self.migrated(block, false, MigrationCause::User);
        }
        self.tell(&Event::MoveDone { block, to: Place::Host, ok: true });
        if there { self.costs.transfer } else { self.costs.touch }
    }

    fn fetch(&mut self, block: UmBlock) -> u64 {
        let fresh = !self.populated.contains(&block);
        let was_there = self.make_resident(block, MigrationCause::User);
        self.tell(&Event::MoveDone { block, to: DEVICE, ok: true });
        if was_there || fresh { self.costs.touch } else { self.costs.transfer }
    }

    fn run_mover(&mut self) {
        // What is queued may have been so since the GPU last moved on.
        let seen = std::mem::replace(&mut self.seen, self.now);
        self.mover_free = self.mover_free.map(|free| free.max(seen));
        let mut idle = [false; Hand::ALL.len()];
        while idle.contains(&false) {
            // Whose turn it is: the one that is free first.
            let first = Hand::ALL.into_iter().filter(|&way| !idle[way as usize]);
            let Some(way) = first.min_by_key(|&way| self.mover_free[way as usize]) else { return };
            let at = way as usize;
            let urgent = way.direction() == Direction::In && self.queues.waiting(Lane::Fault) > 0;
            let batch = if self.mover_free[at] < self.now || urgent { self.queues.pop_batch(way, BATCH) } else { None };
            let Some(batch) = batch else {
                idle[at] = true;
                continue;
            };
            for block in batch.blocks() {
                self.mover_free[at] += match batch.lane {
                    Lane::Discard => self.discard(block),
                    // It keeps one copy of everything.
                    Lane::Drop | Lane::Evict => self.evict(block),
                    Lane::Save => {
                        self.tell(&Event::Saved { block, ok: false });
                        self.costs.touch
                    }
                    Lane::Fault | Lane::Keep | Lane::Predicted => self.fetch(block),
                };
            }
            self.queues.done(way);
            idle = [false; Hand::ALL.len()];
        }
    }
}

/// What one mover for all does next.
pub fn pop(queues: &mut Queues, most: u32) -> Option<Batch> {
    Hand::ALL.into_iter().for_each(|hand| queues.done(hand));
    Hand::ALL.into_iter().find_map(|hand| queues.pop_batch(hand, most))
}

/// Lays tensors out one after the other, on block boundaries.
#[derive(Default)]
pub struct Layout {
    next: u64,
    pub tensors: Vec<AddrRange>,
}

impl Layout {
    pub fn tensor(&mut self, blocks: u64) -> AddrRange {
        let range = AddrRange::new(UmBlock(0x10_0000 + self.next).start(), Bytes(blocks * UmBlock::SIZE.get()));
        self.next += blocks;
        self.tensors.push(range);
        range
    }
    pub fn blocks(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.blocks().len()).sum()
    }
}

/// A launch that touches all of its tensors, operands advancing together.
pub fn launch(tensors: &[AddrRange], micros: u64) -> Work {
    let mut touches = Vec::new();
    let longest = tensors.iter().map(|tensor| tensor.blocks().len()).max().unwrap_or(0);
    for step in 0..longest {
        touches.extend(tensors.iter().filter_map(|tensor| tensor.blocks().nth(step)));
    }
    let key = tensors.iter().fold(micros, |key, tensor| key.wrapping_mul(0x9e37_79b9).wrapping_add(tensor.start.get()));
    Work { key, tensors: tensors.to_vec(), touches, micros }
}

/// A training step of `layers` equal layers: forward keeps activations, backward reads them and makes
/// gradients, the optimizer reads everything but activations.
pub fn training_step(layout: &mut Layout, layers: usize, blocks: u64, micros: u64) -> Vec<Work> {
    let mut of = |count: usize| (0..count).map(|_| layout.tensor(blocks)).collect::<Vec<_>>();
    let (weights, activations, grads, moments) = (of(layers), of(layers + 1), of(layers), of(layers));
    let flowing = of(2);
    let mut works = Vec::new();
    for layer in 0..layers {
        works.push(launch(&[weights[layer], activations[layer], activations[layer + 1]], micros));
        works.push(launch(&[activations[layer + 1]], micros / 4));
    }
    for layer in (0..layers).rev() {
        let (from, to) = (flowing[layer % 2], flowing[(layer + 1) % 2]);
        works.push(launch(&[weights[layer], from, to], micros));
        works.push(launch(&[activations[layer], from, grads[layer]], micros));
    }
    for layer in 0..layers {
        works.push(launch(&[weights[layer], grads[layer], moments[layer]], micros / 4));
    }
    works
}
