//! Policies over the real model of unified memory: a transformer's training step, in virtual time, in one
//! thread. The cheapest place to see whether decisions help before PyTorch runs.

#[path = "world/net.rs"]
mod net;

use deepum_core::engine::{Config, Engine};
use deepum_core::event::{DiscardOutcome, Event, Fault, Launch, Migration};
use deepum_core::invalidate::Invalidate;
use deepum_core::mix::Mix;
use deepum_core::policy::PolicyName;
use deepum_core::queues::{BATCH, Batch, Hand, Lane, Queues};
use deepum_core::units::{
    AddrRange, Bytes, DevAddr, DeviceId, KernelId, LaunchKey, LaunchSeq, Nanos, Place, StreamSlot, UmBlock,
};
use deepum_model::{Accessor, KernelRun, Notice, Options, Precision, Profile, Step, Totals, Touch, UnifiedMemory};
use net::{HostOp, Net, Shape};
use std::collections::VecDeque;

const GPU: DeviceId = DeviceId(0);

struct Sim {
    profile: Profile,
    mem: UnifiedMemory,
    engine: Engine,
    queues: Queues,
    now: Nanos,
    /// What each hand has, and when it is done.
    moving: [Option<(Batch, Nanos)>; Hand::ALL.len()],
    /// What launches that are issued and have not run are given.
    under_way: VecDeque<Vec<AddrRange>>,
    seq: u64,
    fault_entries: u64,
}

impl Sim {
    fn new(config: Config) -> Self {
        let memory = config.device_memory;
        let profile = Profile::named("v100-32g").unwrap();
        let options = Options { memory: Some(memory), ..Options::default() };
        Self {
            mem: UnifiedMemory::new(&profile, &options),
            profile,
            engine: Engine::new(config),
            queues: Queues::default(),
            now: Nanos::ZERO,
            moving: [None; Hand::ALL.len()],
            under_way: VecDeque::new(),
            seq: 0,
            fault_entries: 0,
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
                    self.tell(&Event::Fault(Fault { block, batch, entries, write: false, at }));
                }
                Notice::Migration { range, from, to, cause, end, .. } => {
                    let block = UmBlock::containing(range.start);
                    self.tell(&Event::Migrated(Migration { block, bytes: range.len, from, to, cause, at: end }));
                }
                Notice::GpuFaultReplay { .. } => {}
            }
        }
    }

    /// The movers work up to `until`, one for each hand.
    fn mover(&mut self, until: Nanos) {
        let mut free = [until; Hand::ALL.len()];
        loop {
            for way in Hand::ALL {
                if self.moving[way as usize].is_none()
                    && let Some(batch) = self.queues.pop_batch(way, BATCH)
                {
                    let done = self.begin(batch, free[way as usize]);
                    self.moving[way as usize] = Some((batch, done));
                }
            }
            let next = Hand::ALL
                .into_iter()
                .filter_map(|way| self.moving[way as usize].map(|(batch, done)| (done, way, batch)));
            let Some((done, way, batch)) = next.min_by_key(|(done, ..)| *done).filter(|(done, ..)| *done <= until)
            else {
                return;
            };
            self.moving[way as usize] = None;
            self.queues.done(way);
            free = [done; Hand::ALL.len()];
            self.notices(done);
            for block in batch.blocks() {
                let to = if batch.lane == Lane::Evict { Place::Host } else { Place::Device(GPU) };
                self.tell(&match batch.lane {
                    Lane::Discard => Event::Discarded { block, outcome: DiscardOutcome::Done },
                    _ => Event::MoveDone { block, to, ok: true },
                });
            }
        }
    }

    fn begin(&mut self, batch: Batch, at: Nanos) -> Nanos {
        match batch.lane {
            Lane::Discard => {
                let used = |block: UmBlock| {
                    self.under_way.iter().flatten().any(|range| range.blocks().any(|other| other == block))
                };
                assert!(!batch.blocks().any(used), "{batch:?} is still used by a launch");
                self.mem.discard(batch.range(), true, at).unwrap()
            }
            Lane::Evict => self.mem.migrate(batch.range(), Place::Host, at).unwrap().done,
            _ => self.mem.migrate(batch.range(), Place::Device(GPU), at).unwrap().done,
        }
    }

    /// When the next move ends.
    fn next_move(&self) -> Option<Nanos> {
        self.moving.iter().flatten().map(|(_, done)| *done).min()
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
                self.under_way.push_back(tensors.clone());
                self.tell(&Event::Launch(Launch {
                    seq: LaunchSeq(self.seq),
                    stream: StreamSlot(0),
                    key: LaunchKey(key),
                    kernel: KernelId(0),
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
            self.gate(first + n as u64);
            let HostOp::Launch { uses, flops, .. } = &ops[launches[n]] else { unreachable!() };
            self.kernel(uses, *flops);
            self.notices(self.now);
            self.under_way.pop_front();
            self.tell(&Event::Progress { stream: StreamSlot(0), done: LaunchSeq(first + n as u64) });
        }
    }

    /// The GPU comes to the launch `seq`, and waits in front of the gate.
    fn gate(&mut self, seq: u64) {
        while self.engine.gate().is_some_and(|first| first.0 <= seq) {
            let done = self.next_move().expect("whatever closes the gate is on its way");
            self.now = self.now.max(done);
            self.mover(self.now);
        }
    }

    fn kernel(&mut self, tensors: &[AddrRange], flops: f64) {
        let bytes = tensors.iter().fold(Bytes::ZERO, |sum, t| sum + t.len);
        let compute = self.profile.kernel_time(bytes, flops, Precision::Fp32);
        let touches: Vec<Touch> = tensors.iter().map(|&range| Touch { range, write: true, phase: 0 }).collect();
        let mut run = KernelRun::new(GPU, Accessor::Kernel, &touches, compute);
        self.now += self.profile.kernel_gap;
        loop {
            let horizon = self.next_move().map_or(Nanos(u64::MAX), |done| done.max(self.now));
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

/// What one iteration cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Row {
    fault_entries: u64,
    fault_batches: u64,
    time: Nanos,
    bytes_in: Bytes,
    bytes_out: Bytes,
}

fn run(policy: PolicyName, shape: Shape, memory: Bytes, ahead: usize) -> (Sim, Vec<Row>) {
    run_as(Config::new(policy, memory), shape, ahead)
}

fn run_as(config: Config, shape: Shape, ahead: usize) -> (Sim, Vec<Row>) {
    let mut sim = Sim::new(config);
    let mut net = Net::new(shape);
    sim.run(&std::mem::take(&mut net.ops), ahead);
    let mut rows = Vec::new();
    for _ in 0..4 {
        net.iteration();
        let (start, before) = (sim.now, sim.mem.totals(GPU));
        sim.run(&std::mem::take(&mut net.ops), ahead);
        let after: Totals = sim.mem.totals(GPU);
        rows.push(Row {
            fault_entries: after.fault_entries - before.fault_entries,
            fault_batches: after.fault_batches - before.fault_batches,
            time: sim.now.saturating_sub(start),
            bytes_in: after.bytes_in.total() - before.bytes_in.total(),
            bytes_out: after.bytes_out.total() - before.bytes_out.total(),
        });
    }
    println!("{config:?}: {} managed, {} launches", net.bytes(), sim.seq);
    for row in &rows {
        println!("  {row:?}");
    }
    println!("  {:?}", sim.engine.counters());
    (sim, rows)
}

/// A small GPT-2 that needs 3.7 GiB.
const NET: Shape = Shape { layers: 6, hidden: 1024, heads: 16, tokens: 4096, sequence: 512, vocabulary: 8192 };

/// `deepum` against `demand`, from the third iteration on.
#[track_caller]
fn compare(memory: Bytes, ahead: usize, most_faults_percent: u64, least_speed_up_percent: u64) {
    let (_, demand) = run(PolicyName::Demand, NET, memory, ahead);
    let (sim, deepum) = run(PolicyName::Deepum, NET, memory, ahead);
    assert_eq!(sim.fault_entries, sim.engine.counters().fault_entries, "every notice is counted");
    assert_eq!(sim.engine.counters().faults_inferred, 0, "no notice is lost");
    for (n, (demand, deepum)) in demand.iter().zip(&deepum).enumerate().skip(2) {
        let faults = deepum.fault_entries * 100 / demand.fault_entries;
        let speed_up = demand.time.get() * 100 / deepum.time.get();
        println!("iteration {n}: {faults} % of the faults, {speed_up} % of the speed");
        assert!(
            deepum.fault_entries * 100 <= demand.fault_entries * most_faults_percent,
            "iteration {n}: {faults} % of demand's faults"
        );
        assert!(speed_up >= least_speed_up_percent, "iteration {n}: {speed_up} % of demand's speed");
    }
}

#[test]
fn a_transformer_with_the_host_far_ahead() {
    compare(Bytes::mib(3200), 500, 1, 400);
}

#[test]
fn a_transformer_with_the_host_just_ahead_so_that_launches_are_predicted() {
    compare(Bytes::mib(3200), 0, 1, 400);
}

/// More moves in an iteration than the link carries while the GPU computes: launches wait at the gate, and do not fault.
#[test]
fn a_transformer_short_of_bandwidth() {
    compare(Bytes::mib(2600), 500, 1, 300);
}

/// The paper's ablation: prefetching, then room made ahead, then contents given up, or evicted first where the driver cannot.
#[test]
fn each_part_pays() {
    for memory in [2600, 2200, 1600].map(Bytes::mib) {
        let fetching =
            Config { preevict: false, invalidate: Invalidate::No, ..Config::new(PolicyName::Deepum, memory) };
        let ahead = Config { preevict: true, ..fetching };
        let dead_first = Config { invalidate: Invalidate::EvictFirst, ..ahead };
        let all = Config { invalidate: Invalidate::Discard, ..ahead };
        let [fetching, ahead, dead_first, all] = [fetching, ahead, dead_first, all].map(|config| {
            let (sim, rows) = run_as(config, NET, 500);
            println!("{:?} {:?}: {:?}", config.preevict, config.invalidate, rows[3]);
            let c = *sim.engine.counters();
            assert_eq!(c.preevict_asked > 100 && c.preevicted > 100, config.preevict, "{c:?}");
            assert_eq!(c.discarded > 100 && c.bytes_spared > 0, config.invalidate == Invalidate::Discard, "{c:?}");
            rows[3]
        });
        assert!(ahead.time < fetching.time, "{memory}: room ahead takes {ahead:?}, without {fetching:?}");
        assert!(dead_first.time < ahead.time, "{memory}: dead blocks first takes {dead_first:?}, without {ahead:?}");
        assert!(all.time < dead_first.time, "{memory}: giving up takes {all:?}, evicting {dead_first:?}");
        let bytes = |row: Row| row.bytes_in.get() + row.bytes_out.get();
        assert!(bytes(all) * 3 < bytes(fetching) * 2, "{memory}: moved {all:?}, without {fetching:?}");
    }
}

/// Tables of 1 GiB that each look-up names as a whole, of which some rows are used, mostly the same ones in every iteration; what is looked up;
/// and layers on top.
struct LookUps {
    tables: Vec<AddrRange>,
    found: Vec<AddrRange>,
    layers: Vec<AddrRange>,
}

impl LookUps {
    fn new() -> Self {
        let mut next = 0x4000_0000;
        let mut tensors = |count: usize, blocks: u64| -> Vec<AddrRange> {
            let tensor = |_| {
                next += blocks;
                AddrRange::new(UmBlock(next - blocks).start(), Bytes(blocks * UmBlock::SIZE.get()))
            };
            (0..count).map(tensor).collect()
        };
        Self { tables: tensors(4, 128), found: tensors(4, 16), layers: tensors(8, 16) }
    }
    fn set_up(&self) -> Vec<HostOp> {
        let all = || self.tables.iter().chain(&self.found).chain(&self.layers).copied();
        let given = all().flat_map(|range| [HostOp::Alloc(range), HostOp::Pt(range, true)]);
        let filled = all().map(|range| HostOp::Launch { name: 1, tensors: vec![range], uses: vec![range], flops: 0.0 });
        given.chain(filled).collect()
    }
    /// `anywhere` blocks of each table are others in each iteration.
    fn iteration(&self, n: u64, anywhere: u64) -> Vec<HostOp> {
        let look_up = |name: u64, table: usize| {
            let [whole, found] = [self.tables[table], self.found[table]];
            let drawn = (0..anywhere).map(|i| Mix::new().word(n).word(table as u64).word(i).end() % 128);
            let rows = (0..6).chain(drawn).map(|block| UmBlock(UmBlock::containing(whole.start).0 + block).range());
            HostOp::Launch { name, tensors: vec![whole, found], uses: rows.chain([found]).collect(), flops: 0.0 }
        };
        let layer = |name: u64, ends: &[AddrRange]| HostOp::Launch {
            name,
            tensors: ends.to_vec(),
            uses: ends.to_vec(),
            flops: 1e10,
        };
        let mut ops: Vec<HostOp> = (0..4).map(|table| look_up(10, table)).collect();
        ops.extend(self.layers.windows(2).map(|ends| layer(20, ends)));
        ops.extend(self.layers.windows(2).rev().map(|ends| layer(30, ends)));
        ops.extend((0..4).map(|table| look_up(40, table)));
        ops
    }
}

/// Naive unified memory keeps what is used; `deepum` must not go on fetching what is only named. It takes it five iterations to find
/// out here, where nearly all that moves is tables of which next to nothing is used; a sixth is granted, and the rest compared.
/// Compared in total, for naive unified memory has a few iterations that are many times the others; where nothing is issued ahead and memory is
/// shortest the median iteration of `deepum` is the slower one.
#[test]
fn look_ups_in_tables_are_not_slower_than_naive_unified_memory() {
    let net = LookUps::new();
    for (memory, anywhere) in [(1000, 0), (700, 4)] {
        for ahead in [500, 0] {
            let run = |policy| {
                let mut sim = Sim::new(Config::new(policy, Bytes::mib(memory)));
                sim.run(&net.set_up(), ahead);
                let times: Vec<u64> = (0..24)
                    .map(|n| {
                        let start = sim.now;
                        sim.run(&net.iteration(n, anywhere), ahead);
                        sim.now.saturating_sub(start).get() / 1000
                    })
                    .collect();
                println!("{policy}, {memory} MiB, {anywhere} anywhere, {ahead} ahead: {times:?} us");
                println!("  {:?}", sim.engine.counters());
                times
            };
            let (demand, deepum) = (run(PolicyName::Demand), run(PolicyName::Deepum));
            let sum = |times: &[u64]| times[6..].iter().sum::<u64>();
            assert!(
                sum(&deepum) * 100 <= sum(&demand) * 105,
                "{memory} MiB, {anywhere} anywhere, {ahead} ahead: {deepum:?} against {demand:?}"
            );
        }
    }
}

#[test]
fn the_same_run_twice_is_the_same_to_the_nanosecond() {
    let small = Shape { layers: 2, ..NET };
    let (_, first) = run(PolicyName::Deepum, small, Bytes::mib(1200), 100);
    let (_, second) = run(PolicyName::Deepum, small, Bytes::mib(1200), 100);
    assert!(first[3].bytes_in > Bytes::ZERO, "or there is no pressure");
    assert_eq!(first, second);
}
