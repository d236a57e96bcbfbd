//! What one event costs the engine's thread, at 10,000 execution IDs.
//!
//! A launch is issued, walked into the plan, and finished. A block it moves is asked for, queued, taken out, and its end reported. A
//! fault is queued and learned, and the move that answers it ends.
//!
//! | | budget | time | instructions |
//! | --- | --- | --- | --- |
//! | a launch whose blocks are there | 300 ns | 324 ns | 4,206 |
//! | a launch that brings in a block, and so sends out another | 800 ns | 671 ns | 8,195 |
//! | a fault and its move | 500 ns | 487 ns | 5,363 |
//! | the same, where the table of its launch is full | 1.2 µs | 1.61 µs | 28,469 |
//! | a PT block taken back and handed out, under `horizon` | 300 ns | 767 ns | 2,126 |
//! | a key of eight pointers | 60 ns | 12 ns | |
//!
//! What moves has a budget of its own since it is work for each block, not for each launch. A full table has forgotten blocks that its
//! successor lists may still name, and so all of them are read to know that a fault is new; the one here has room for 4,096 blocks, which is 8 GiB that one
//! launch faulted on. Half of it reads the lists, a third makes room in the row. Three of six are over their budgets, on two cores of a cloud machine with nothing
//! beside. Under `horizon`, with eight launches a turn, the first two take 0.71 to 0.82 and 1.51 to 1.78 µs, 8,500 and 14,000 instructions, and with
//! one a turn 0.91 to 0.97 and 1.87 to 2.36 µs, 11,100 and 18,900 (`docs/horizon.md`, *Time*): its budget is 1 µs, which it misses where blocks move. The row of hand-outs is what a PT block that changes hands behind each launch adds with one a turn.
//! Instructions are those of one of the thousand, from
//!
//!     valgrind --tool=callgrind --toggle-collect='*a_thousand*' target/release/deps/engine-HASH --bench --test '1,000 launches'

#![expect(missing_docs, reason = "criterion_group! makes a public function")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use deepum_core::command::Commands;
use deepum_core::correlate::Geometry;
use deepum_core::engine::{Config, Engine};
use deepum_core::event::{DiscardOutcome, Event, Fault, Launch};
use deepum_core::exec_id::{Shape, StablePointer, pointer_key};
use deepum_core::mix::Mix;
use deepum_core::period;
use deepum_core::policy::PolicyName;
use deepum_core::queues::{Hand, Lane, Queues};
use deepum_core::units::{
    AddrRange, Bytes, DevAddr, DeviceId, KernelId, LaunchKey, LaunchSeq, Nanos, Place, StreamSlot, UmBlock,
};

const EXEC_IDS: u64 = 10_000;
const AHEAD: u64 = 200;
/// Managed blocks, twice what fits.
const BLOCKS: u64 = 16_384;
/// So few that they stay without being touched.
const FEW: u64 = 2000;

/// An engine that knows so many execution IDs of three pointers, which use three or four blocks each: theirs, and another that they were seen to fault on.
struct Run {
    exec_ids: u64,
    engine: Engine,
    queues: Queues,
    commands: Commands,
    seq: u64,
    launches_a_turn: u64,
    /// Blocks that launches use.
    used: u64,
}

impl Run {
    fn new(policy: PolicyName, exec_ids: u64, used: u64) -> Self {
        Self::with(Config::new(policy, Bytes(BLOCKS / 2 * UmBlock::SIZE.get())), exec_ids, used)
    }
    fn with(config: Config, exec_ids: u64, used: u64) -> Self {
        let mut run = Self {
            exec_ids,
            used,
            engine: Engine::new(config),
            queues: Queues::default(),
            commands: Commands::new(),
            seq: 0,
            launches_a_turn: 1,
        };
        run.tell(&Event::Alloc { range: AddrRange::new(DevAddr(0), Bytes(BLOCKS * UmBlock::SIZE.get())) });
        for block in 0..BLOCKS {
            run.tell(&Event::PtBlock { range: UmBlock(block).range(), active: true });
        }
        run.turn();
        for _ in 0..3 * exec_ids {
            let learning = run.seq < exec_ids;
            let block = run.block(run.seq.saturating_sub(AHEAD) + 1);
            run.launch();
            if learning {
                run.fault(block);
            }
        }
        run
    }
    fn block(&self, seq: u64) -> UmBlock {
        UmBlock(seq % self.exec_ids * 7 % self.used)
    }
    fn tell(&mut self, event: &Event<'_>) {
        self.engine.tell(event, &mut self.commands);
    }
    /// A turn is over, and so are those at whose ends the moves end that this one asks for.
    fn turn(&mut self) {
        loop {
            self.engine.decide(&mut self.commands);
            black_box(self.engine.clear_until());
            self.engine.hand_over(&mut self.commands, &mut self.queues);
            let Some(batch) = Hand::ALL.into_iter().find_map(|way| self.queues.pop_batch(way, 16)) else { return };
            let to = if batch.lane == Lane::Evict { Place::Host } else { Place::Device(DeviceId(0)) };
            for block in batch.blocks() {
                self.tell(&match batch.lane {
                    Lane::Discard => Event::Discarded { block, outcome: DiscardOutcome::Done },
                    _ => Event::MoveDone { block, to, ok: true },
                });
            }
        }
    }
    fn launch(&mut self) {
        self.seq += 1;
        let at = |offset| self.block(self.seq + offset).start();
        let pointers = [at(0), at(1), at(3)];
        let key = LaunchKey(Mix::new().word(self.seq % self.exec_ids).end());
        let (seq, stream) = (LaunchSeq(self.seq), StreamSlot(0));
        self.tell(&Event::Launch(Launch { seq, stream, key, kernel: KernelId(0), pointers: &pointers }));
        if self.seq.is_multiple_of(self.launches_a_turn) {
            self.tell(&Event::Progress { stream: StreamSlot(0), done: LaunchSeq(self.seq.saturating_sub(AHEAD)) });
            self.turn();
        }
    }
    fn fault(&mut self, block: UmBlock) {
        let batch = u32::try_from(self.seq).expect("a short run");
        self.tell(&Event::Fault(Fault { block, batch, entries: 8, write: false, at: Nanos::ZERO }));
        self.turn();
        self.tell(&Event::MoveDone { block, to: Place::Device(DeviceId(0)), ok: true });
        self.turn();
    }
}

/// So that callgrind can tell them from what comes before.
#[inline(never)]
fn a_thousand(mut each: impl FnMut()) {
    (0..1000).for_each(|_| each());
}

fn engine(c: &mut Criterion) {
    let horizon = [(EXEC_IDS / 10, 1), (EXEC_IDS, 1), (EXEC_IDS, 8), (100 * EXEC_IDS, 1), (100 * EXEC_IDS, 8)];
    let horizon = horizon.map(|(exec_ids, turn)| (PolicyName::Horizon, exec_ids, turn));
    let deepum = [1, 8].map(|turn| (PolicyName::Deepum, EXEC_IDS, turn));
    for (policy, exec_ids, launches_a_turn) in deepum.into_iter().chain(horizon) {
        for (name, used) in [("1,000 launches", FEW), ("1,000 launches, each brings in a block", BLOCKS)] {
            let name = format!("{policy}, {exec_ids} execution IDs, {launches_a_turn} a turn: {name}");
            // Only what is asked for learns: a million execution IDs take a while.
            let mut run = None;
            c.bench_function(&name, |b| {
                let run = run.get_or_insert_with(|| Run { launches_a_turn, ..Run::new(policy, exec_ids, used) });
                b.iter(|| a_thousand(|| run.launch()));
            });
        }
    }
    let mut run = Run::new(PolicyName::Deepum, EXEC_IDS, BLOCKS);
    let mut n = 0;
    c.bench_function("1,000 faults and their moves", |b| {
        b.iter(|| {
            // The next launch executes: another table.
            run.launch();
            a_thousand(|| {
                n += 1;
                run.fault(run.block(n));
            });
        });
    });
    // A quarter of the blocks that are faulted on have room in it.
    let config = Config::new(PolicyName::Deepum, Bytes(BLOCKS / 2 * UmBlock::SIZE.get()));
    let geometry = Geometry::new(512, 8, 4).expect("each of them is allowed");
    let mut run = Run::with(Config { geometry, ..config }, EXEC_IDS, BLOCKS);
    let mut fault = move || {
        n += 1;
        run.fault(run.block(n));
    };
    (0..EXEC_IDS).for_each(|_| fault());
    c.bench_function("1,000 faults and their moves, the table is full", |b| b.iter(|| a_thousand(&mut fault)));
}

/// PyTorch takes a tensor of one block back, and hands its place out for the next.
fn hand_outs(c: &mut Criterion) {
    let mut run = Run::new(PolicyName::Horizon, EXEC_IDS, BLOCKS);
    c.bench_function("1,000 PT blocks taken back and handed out", |b| {
        b.iter(|| {
            a_thousand(|| {
                run.launch();
                let range = run.block(run.seq).range();
                [false, true].into_iter().for_each(|active| run.tell(&Event::PtBlock { range, active }));
                run.turn();
            });
        });
    });
}

fn keys(c: &mut Criterion) {
    let shape = Shape { grid: [80, 1, 1], block: [256, 1, 1] };
    let pointers = [0, 1, 2, 3, 4, 5, 6, 7].map(|block| StablePointer { allocation: 3, block });
    c.bench_function("pointer_key of 8", |b| b.iter(|| pointer_key(black_box(7), shape, black_box(pointers))));
}

fn periods(c: &mut Criterion) {
    let step: Vec<u64> = (0..5000u64).map(|n| n % 700).chain([9000, 9001]).collect();
    c.bench_function("period of 20 iterations of 5,002 launches", |b| {
        b.iter_batched(|| step.repeat(20), |stream| period::find(&stream), BatchSize::LargeInput);
    });
}

criterion_group!(benches, engine, hand_outs, keys, periods);
criterion_main!(benches);
