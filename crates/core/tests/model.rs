//! Policies over the real model of unified memory: a transformer's training step, in virtual time, in one
//! thread. The cheapest place to see whether decisions help before PyTorch runs.

#[path = "world/net.rs"]
mod net;

use deepum_core::engine::{Config, Engine};
use deepum_core::event::{Event, Fault, Launch, Migration};
use deepum_core::mix::Mix;
use deepum_core::policy::PolicyName;
use deepum_core::queues::{Batch, Lane, Queues};
use deepum_core::units::{Bytes, DevAddr, DeviceId, LaunchKey, LaunchSeq, Nanos, Place, StreamSlot, UmBlock};
use deepum_model::{Accessor, KernelRun, Notice, Options, Precision, Profile, Step, Totals, Touch, UnifiedMemory};
use net::{HostOp, Net, Shape};

const GPU: DeviceId = DeviceId(0);

struct Sim {
    profile: Profile,
    mem: UnifiedMemory,
    engine: Engine,
    queues: Queues,
    now: Nanos,
    moving: Option<(Batch, Nanos)>,
    seq: u64,
    fault_entries: u64,
    fault_blocks: u64,
}

impl Sim {
    fn new(policy: Option<PolicyName>, memory: Bytes) -> Self {
        let profile = Profile::named("v100-32g").unwrap();
        let options = Options { memory: Some(memory), ..Options::default() };
        Self {
            mem: UnifiedMemory::new(&profile, &options),
            profile,
            engine: Engine::new(Config {
                degree: std::env::var("DEG").map_or(32, |d| d.parse().unwrap()),
                ..Config::new(policy.unwrap_or(PolicyName::Demand), memory)
            }),
            queues: Queues::default(),
            now: Nanos::ZERO,
            moving: None,
            seq: 0,
            fault_entries: 0,
            fault_blocks: 0,
        }
    }

    fn tell(&mut self, event: &Event<'_>) {
        self.engine.step(event, &mut self.queues);
    }

    fn notices(&mut self, until: Nanos) {
        let mut notices = Vec::new();
        self.mem.take_notices(until, &mut notices);
        for notice in notices {
            match notice {
                Notice::GpuFault { block, pages, duplicates, batch, at, .. } => {
                    let entries = pages.count() + duplicates;
                    self.fault_entries += u64::from(entries);
                    self.fault_blocks += 1;
                    self.tell(&Event::Fault(Fault { block, batch, entries, write: false, at }));
                }
                Notice::Migration { range, from, to, cause, end, .. } => {
                    let block = UmBlock::containing(range.start);
                    self.tell(&Event::Migrated(Migration { block, bytes: range.len, from, to, cause, at: end }));
                }
                Notice::GpuFaultReplay { .. } | Notice::CpuFault { .. } => {}
            }
        }
    }

    /// The mover works up to `until`.
    fn mover(&mut self, until: Nanos) {
        let mut free = until;
        loop {
            if let Some((batch, done)) = self.moving {
                if done > until {
                    return;
                }
                self.moving = None;
                free = done;
                self.notices(done);
                let to = if batch.lane == Lane::Evict { Place::Host } else { Place::Device(GPU) };
                for block in batch.blocks() {
                    self.tell(&Event::MoveDone { block, to, ok: true });
                }
            }
            let Some(batch) = self.queues.pop_batch(std::env::var("K").map_or(16, |d| d.parse().unwrap())) else {
                return;
            };
            let to = if batch.lane == Lane::Evict { Place::Host } else { Place::Device(GPU) };
            let migrated = self.mem.migrate(batch.range(), to, free).unwrap();
            self.moving = Some((batch, migrated.done));
        }
    }

    fn host(&mut self, op: &HostOp) {
        match op {
            HostOp::Alloc(range) => {
                self.mem.map_managed(*range).unwrap();
                self.tell(&Event::Alloc { range: *range });
            }
            HostOp::Pt(range, active) => self.tell(&Event::PtBlock { range: *range, active: *active }),
            HostOp::Launch { name, tensors, .. } => {
                self.seq += 1;
                let key = tensors.iter().fold(Mix::new().word(*name), |mix, t| mix.word(t.start.get())).end();
                let pointers: Vec<DevAddr> = tensors.iter().map(|t| t.start).collect();
                self.tell(&Event::Launch(Launch {
                    seq: LaunchSeq(self.seq),
                    stream: StreamSlot(0),
                    key: LaunchKey(key),
                    pointers: &pointers,
                }));
            }
        }
    }

    fn run(&mut self, ops: &[HostOp], ahead: usize) {
        let launches: Vec<usize> = (0..ops.len()).filter(|&n| matches!(ops[n], HostOp::Launch { .. })).collect();
        let first = self.seq + 1;
        let mut told = 0;
        for n in 0..launches.len() {
            let until = launches.get(n + ahead).map_or(ops.len(), |&at| at + 1);
            while told < until {
                self.host(&ops[told]);
                told += 1;
            }
            self.mover(self.now);
            let HostOp::Launch { tensors, flops, .. } = &ops[launches[n]] else { unreachable!() };
            let (t0, f0, d0) = (self.now, self.mem.totals(GPU), self.queues.waiting(Lane::Predicted));
            self.kernel(tensors, *flops);
            let f1 = self.mem.totals(GPU);
            if std::env::var("TRACE").is_ok() && self.seq > 1700 {
                let bytes = tensors.iter().fold(0, |s, t| s + t.blocks().len());
                let t = self.engine.snapshot().tables;
                println!(
                    "L {n} blocks {bytes} us {} compute {} batches {} waiting {d0} plan {}/{} moving {:?}",
                    (self.now.0 - t0.0) / 1000,
                    (f1.compute.0 - f0.compute.0) / 1000,
                    f1.fault_batches - f0.fault_batches,
                    t.planned_launches,
                    t.planned_blocks,
                    self.moving.map(|m| (m.0.lane, m.0.count))
                );
            }
            self.notices(self.now);
            self.tell(&Event::Progress { stream: StreamSlot(0), done: LaunchSeq(first + n as u64) });
        }
    }

    fn kernel(&mut self, tensors: &[deepum_core::units::AddrRange], flops: f64) {
        let bytes = tensors.iter().fold(Bytes::ZERO, |sum, t| sum + t.len);
        let compute = self.profile.kernel_time(bytes, flops, Precision::Fp32);
        let touches: Vec<Touch> = tensors.iter().map(|&range| Touch { range, write: true, phase: 0 }).collect();
        let mut run = KernelRun::new(GPU, Accessor::Kernel, &touches, compute);
        self.now += self.profile.kernel_gap;
        loop {
            let horizon = self.moving.map_or(Nanos(u64::MAX), |(_, done)| done.max(self.now));
            match run.step(&mut self.mem, self.now, horizon) {
                Step::Faulted { at, resume_at, .. } => {
                    self.notices(at);
                    let reacted = at + self.profile.engine_reaction;
                    self.mover(reacted.min(resume_at));
                    self.mover(resume_at);
                    self.now = resume_at;
                }
                Step::Paused { at } => {
                    self.now = at;
                    self.mover(at);
                }
                Step::Done { at } => {
                    self.now = at;
                    return;
                }
                Step::Fatal { addr, .. } => panic!("no memory for {addr:?}"),
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Row {
    entries: u64,
    blocks: u64,
    batches: u64,
    millis: u64,
    gib_in: f64,
    gib_out: f64,
    stall_work: u64,
    stall_copies: u64,
}

fn rows(policy: Option<PolicyName>, shape: Shape, memory: Bytes, ahead: usize, iterations: usize) -> (Sim, Vec<Row>) {
    let mut sim = Sim::new(policy, memory);
    let mut net = Net::new(shape);
    let ops = std::mem::take(&mut net.ops);
    sim.run(&ops, ahead);
    let mut rows = Vec::new();
    for _ in 0..iterations {
        net.iteration();
        let ops = std::mem::take(&mut net.ops);
        let (start, before) = (sim.now, sim.mem.totals(GPU));
        let counted = *sim.engine.counters();
        sim.run(&ops, ahead);
        for ((name, _, now), (_, _, then)) in sim.engine.counters().rows().zip(counted.rows()) {
            if now != then {
                print!("{name} {} ", now - then);
            }
        }
        println!();
        let after: Totals = sim.mem.totals(GPU);
        let gib = |bytes: Bytes| bytes.get() as f64 / (1u64 << 30) as f64;
        rows.push(Row {
            entries: after.fault_entries - before.fault_entries,
            blocks: after.fault_blocks - before.fault_blocks,
            batches: after.fault_batches - before.fault_batches,
            millis: sim.now.saturating_sub(start).get() / 1_000_000,
            gib_in: gib(after.bytes_in.total()) - gib(before.bytes_in.total()),
            gib_out: gib(after.bytes_out.total()) - gib(before.bytes_out.total()),
            stall_work: after.stall_fault_work.saturating_sub(before.stall_fault_work).get() / 1_000_000,
            stall_copies: after.stall_copies.saturating_sub(before.stall_copies).get() / 1_000_000,
        });
    }
    println!("{} managed, {} memory, {} launches", net.bytes(), memory, sim.seq);
    (sim, rows)
}

const SMALL: Shape = Shape { layers: 12, hidden: 1600, heads: 25, tokens: 8192, sequence: 512, vocabulary: 50257 };

fn compare(shape: Shape, memory: Bytes, ahead: usize) {
    for policy in [Some(PolicyName::Deepum)] {
        let (sim, rows) = rows(policy, shape, memory, ahead, 6);
        println!("{policy:?}");
        for row in rows {
            println!("  {row:?}");
        }
        println!("{:?}", sim.engine.counters());
        println!("{:?}", sim.engine.snapshot());
    }
}

#[test]
fn look() {
    let (_, ideal) = rows(None, SMALL, Bytes::gib(28), 500, 3);
    println!("ideal {ideal:#?}");
    let gib = std::env::var("GIB").ok().and_then(|g| g.parse().ok()).unwrap_or(5);
    compare(SMALL, Bytes::gib(gib), std::env::var("AHEAD").ok().and_then(|g| g.parse().ok()).unwrap_or(500));
}
