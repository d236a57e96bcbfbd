//! A policy of the core as a guide: it is told what a driver and a program would tell it, and what it asks for is begun at once.
//!
//! Problem: the core's policies know UM blocks and events, and learn as the program goes. This world knows tensors, kernels and a plan.
//! Idea: the program by blocks ([`Blocks`]), played by the same rules, and the core's own engine in place of a plan.
//!
//! | of the core | here |
//! | --- | --- |
//! | launches, hand-outs | the host takes no time, and is as far ahead as CUDA's queue or the core lets it |
//! | the gate | a kernel does not start as long as the core says so and anything moves |
//! | a fault | a kernel starts, and some of the block is neither there nor asked for; or leaves meanwhile |
//! | a fetch | it is asked for ahead |
//! | an eviction | an order to leave, for the host or the SSD: where it is out first, since the core does not say |
//! | a discard | its contents are forgotten, unless a tensor lives in it or what used it is not finished |
//! | what is taken back | what has not left yet stays, what has not come yet stays away |
//! | the end of a move | what was asked for is there, or has left |
//! | an eviction of the driver's | some of the block made room, as what came longest ago |
//!
//! The queues are this world's, in the place of the core's, and so is their order. Nobody keeps two copies of a block, and calls take no time.

use super::blocks::{self, Blocks};
use super::guide::{Guides, Happened, Order};
use super::memory::{Memory, Stamp, Stay};
use deepum_core::command::{Command, Commands};
use deepum_core::engine::{Config, Engine};
use deepum_core::event::{DiscardOutcome, Event, Fault, Launch, Migration, MigrationCause};
use deepum_core::mix::Mix;
use deepum_core::policy::PolicyName;
use deepum_core::units::{
    AddrRange, Bytes, DevAddr, DeviceId, KernelId, LaunchKey, LaunchSeq, Nanos, Place, StreamSlot, UmBlock,
};
use deepum_trace::program::{Life, Program, TensorId};

const GPU: Place = Place::Device(DeviceId(0));
const STREAM: StreamSlot = StreamSlot(0);

/// Launches that the program is ahead of the GPU at most, where the core does not mind: about as many as CUDA lets it be.
const QUEUE: u64 = 1024;

/// One kernel as the program issues it.
#[derive(Debug)]
struct Issue {
    key: LaunchKey,
    kernel: KernelId,
    pointers: Vec<DevAddr>,
    /// Handed out before, and taken back after.
    births: Vec<AddrRange>,
    deaths: Vec<AddrRange>,
}

/// Who has a block.
#[derive(Clone, Copy, Default, Debug)]
struct Held {
    tensors: u32,
    /// All that may use what was there was issued by then.
    released: LaunchSeq,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Online<'a> {
    engine: Engine,
    commands: Commands,
    program: &'a Program,
    issues: Vec<Issue>,
    /// By block.
    held: Vec<Held>,
    issued: LaunchSeq,
    finished: LaunchSeq,
    now: Nanos,
}

impl<'a> Online<'a> {
    /// Under this policy, on a GPU with so much memory; `tensors` is what `blocks` are of.
    pub(super) fn new(tensors: &Program, blocks: &'a Blocks, policy: PolicyName, gpu: Bytes) -> Self {
        let mut online = Self {
            engine: Engine::new(Config::new(policy, gpu)),
            commands: Commands::new(),
            program: &blocks.program,
            issues: issues(tensors, blocks),
            held: vec![Held::default(); blocks.program.tensors().len()],
            issued: LaunchSeq(0),
            finished: LaunchSeq(0),
            now: Nanos::ZERO,
        };
        for range in &blocks.segments {
            online.tell(&Event::Alloc { range: *range });
        }
        for id in tensors.ids().filter(|id| tensors.tensor(*id).life == Life::Global) {
            online.pt_block(blocks.places[id.index()], true);
        }
        online
    }

    fn tell(&mut self, event: &Event<'_>) {
        self.engine.on(event, &mut self.commands);
    }

    fn pt_block(&mut self, range: AddrRange, active: bool) {
        for id in range.blocks().filter_map(blocks::number) {
            let held = &mut self.held[id.index()];
            if active {
                held.tensors += 1;
            } else {
                held.tensors = held.tensors.saturating_sub(1);
                held.released = self.issued;
            }
        }
        if !active {
            self.tell(&Event::Issued { seq: self.issued });
        }
        self.tell(&Event::PtBlock { range, active });
    }

    /// The program goes on until it is far enough ahead.
    fn issue(&mut self, orders: &mut Vec<Order>) {
        let issues = std::mem::take(&mut self.issues);
        while self.issued.0 < self.finished.0 + self.engine.lead().map_or(QUEUE, |lead| lead.clamp(1, QUEUE)) {
            let Issue { key, kernel, pointers, births, deaths } = &issues[turn(self.issued, issues.len())];
            births.iter().for_each(|range| self.pt_block(*range, true));
            self.issued = self.issued.plus(1);
            let (seq, stream, key, kernel) = (self.issued, STREAM, *key, *kernel);
            self.tell(&Event::Launch(Launch { seq, stream, key, kernel, pointers }));
            deaths.iter().for_each(|range| self.pt_block(*range, false));
            self.pass_on(orders);
        }
        self.issues = issues;
    }

    /// What the core asked for becomes orders.
    fn pass_on(&mut self, orders: &mut Vec<Order>) {
        while !self.commands.is_empty() {
            let commands: Vec<Command> = self.commands.drain().collect();
            for command in commands {
                let block = command.block();
                let Some(id) = blocks::number(block).filter(|id| id.index() < self.held.len()) else { continue };
                match command {
                    Command::Fetch { .. } | Command::Own { .. } => orders.extend([Order::Stay(id), Order::Fetch(id)]),
                    Command::Evict { .. } | Command::Drop { .. } => {
                        orders.extend([Order::Unask(id), Order::Leave(id, None)]);
                    }
                    Command::Discard { .. } => {
                        let outcome = self.discard(id, orders);
                        self.tell(&Event::Discarded { block, outcome });
                    }
                    Command::Save { .. } => self.tell(&Event::Saved { block, ok: false }),
                    Command::Cancel { .. } => orders.extend([Order::Stay(id), Order::Unask(id)]),
                }
            }
        }
    }

    fn discard(&self, id: TensorId, orders: &mut Vec<Order>) -> DiscardOutcome {
        let Held { tensors, released } = self.held[id.index()];
        if tensors > 0 || released > self.finished {
            return DiscardOutcome::HandedOut;
        }
        orders.extend([Order::Stay(id), Order::Unask(id), Order::Forget(id)]);
        DiscardOutcome::Done
    }

    fn faulted(&mut self, id: TensorId) {
        let kernels = self.program.kernels();
        let kernel = &kernels[turn(self.finished, kernels.len())];
        self.tell(&Event::Fault(Fault {
            block: blocks::block(id),
            batch: u32::try_from(self.finished.0).unwrap_or(u32::MAX),
            entries: UmBlock::PAGES,
            write: kernel.reads.binary_search(&id).is_err(),
            at: self.now,
        }));
    }

    fn moved(&mut self, id: TensorId, to: Place) {
        self.tell(&Event::MoveDone { block: blocks::block(id), to, ok: true });
    }

    fn gave_way(&mut self, id: TensorId, bytes: Bytes) {
        let (block, cause) = (blocks::block(id), MigrationCause::Eviction);
        self.tell(&Event::Migrated(Migration { block, bytes, from: GPU, to: Place::Host, cause, at: self.now }));
    }
}

impl Guides for Online<'_> {
    fn begins(&mut self, _kernel: usize) -> Vec<Order> {
        let mut orders = Vec::new();
        self.issue(&mut orders);
        self.pass_on(&mut orders);
        orders
    }
    fn holds(&mut self) -> bool {
        self.engine.gate().is_some_and(|gate| gate <= self.finished.plus(1))
    }
    fn goes_on(&mut self) {}
    fn victim(&mut self, memory: &Memory, _urgent: bool) -> Option<(Stamp, Stay)> {
        memory.oldest(Stamp(0), |_| true)
    }
    fn drops(&self, _id: TensorId) -> bool {
        false
    }
    fn hears(&mut self, happened: Happened, now: Nanos, orders: &mut Vec<Order>) {
        self.now = now;
        match happened {
            Happened::Faulted(id) => self.faulted(id),
            Happened::Came(id) => self.moved(id, GPU),
            Happened::Left(id) => self.moved(id, Place::Host),
            Happened::GaveWay(id, bytes) => self.gave_way(id, bytes),
            Happened::Ended => {
                self.finished = self.finished.plus(1);
                self.tell(&Event::Progress { stream: STREAM, done: self.finished });
            }
        }
        self.pass_on(orders);
    }
}

/// Which of so many kernels comes after this launch.
fn turn(LaunchSeq(seq): LaunchSeq, kernels: usize) -> usize {
    usize::try_from(seq).unwrap_or(0) % kernels
}

/// All kernels as the program issues them: inputs first, as in G10's profiles as traces.
fn issues(tensors: &Program, blocks: &Blocks) -> Vec<Issue> {
    let place = |id: TensorId| blocks.places[id.index()];
    let issue = |kernel: &deepum_trace::program::Kernel| {
        let new = kernel.writes.iter().filter(|id| !kernel.reads.contains(id));
        let pointers: Vec<_> = kernel.reads.iter().chain(new).map(|id| place(*id).start).collect();
        let name = Mix::new().bytes(kernel.name.as_bytes());
        let key = LaunchKey(pointers.iter().fold(name, |mix, pointer| mix.word(pointer.0)).end());
        Issue { key, kernel: KernelId(name.end()), pointers, births: Vec::new(), deaths: Vec::new() }
    };
    let mut issues: Vec<_> = tensors.kernels().iter().map(issue).collect();
    let [births, deaths] = tensors.ends();
    for ((issue, births), deaths) in issues.iter_mut().zip(births).zip(deaths) {
        issue.births.extend(births.into_iter().map(place));
        issue.deaths.extend(deaths.into_iter().map(place));
    }
    issues
}
