//! What one event costs the engine's thread, at 10,000 execution IDs.
//!
//! Budgets: a launch 300 ns, a fault 500 ns, a key of eight pointers 60 ns. "Launch" is a whole launch as the
//! engine sees it: it is issued, walked into the plan, finished, and what it asked for is done: queued, taken out, and reported.

#![expect(missing_docs, reason = "criterion_group! makes a public function")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use deepum_core::engine::{Config, Engine};
use deepum_core::event::{DiscardOutcome, Event, Fault, Launch};
use deepum_core::exec_id::{Shape, StablePointer, pointer_key};
use deepum_core::mix::Mix;
use deepum_core::period;
use deepum_core::policy::PolicyName;
use deepum_core::queues::{Direction, Lane, Queues};
use deepum_core::units::{
    AddrRange, Bytes, DevAddr, DeviceId, LaunchKey, LaunchSeq, Nanos, Place, StreamSlot, UmBlock,
};

const EXEC_IDS: u64 = 10_000;
const AHEAD: u64 = 200;
const BLOCKS: u64 = 16_384;

/// An engine that knows 10,000 execution IDs of three pointers and two blocks each.
struct Run {
    engine: Engine,
    queues: Queues,
    seq: u64,
}

impl Run {
    fn new() -> Self {
        let mut run = Self {
            engine: Engine::new(Config::new(PolicyName::Deepum, Bytes(BLOCKS / 2 * UmBlock::SIZE.get()))),
            queues: Queues::default(),
            seq: 0,
        };
        run.tell(&Event::Alloc { range: AddrRange::new(DevAddr(0), Bytes(BLOCKS * UmBlock::SIZE.get())) });
        for block in 0..BLOCKS {
            run.tell(&Event::PtBlock { range: UmBlock(block).range(), active: true });
        }
        for _ in 0..2 * EXEC_IDS {
            let learning = run.seq < EXEC_IDS;
            let block = Self::block(run.seq.saturating_sub(AHEAD) + 1);
            run.launch();
            if learning {
                run.fault(block);
            }
        }
        run
    }
    fn block(seq: u64) -> UmBlock {
        UmBlock(seq % EXEC_IDS * 7 % BLOCKS)
    }
    fn tell(&mut self, event: &Event<'_>) {
        self.engine.step(event, &mut self.queues);
        while let Some(batch) = Direction::ALL.into_iter().find_map(|way| self.queues.pop_batch(way, 16)) {
            let to = if batch.lane == Lane::Evict { Place::Host } else { Place::Device(DeviceId(0)) };
            for block in batch.blocks() {
                let done = match batch.lane {
                    Lane::Discard => Event::Discarded { block, outcome: DiscardOutcome::Done },
                    _ => Event::MoveDone { block, to, ok: true },
                };
                self.engine.step(&done, &mut self.queues);
            }
        }
    }
    fn launch(&mut self) {
        self.seq += 1;
        let at = |offset| Self::block(self.seq + offset).start();
        let pointers = [at(0), at(1), at(3)];
        let key = LaunchKey(Mix::new().word(self.seq % EXEC_IDS).end());
        let (seq, stream) = (LaunchSeq(self.seq), StreamSlot(0));
        self.tell(&Event::Launch(Launch { seq, stream, key, pointers: &pointers }));
        if self.seq > AHEAD {
            self.tell(&Event::Progress { stream: StreamSlot(0), done: LaunchSeq(self.seq - AHEAD) });
        }
    }
    fn fault(&mut self, block: UmBlock) {
        let batch = u32::try_from(self.seq).expect("a short run");
        self.tell(&Event::Fault(Fault { block, batch, entries: 8, write: false, at: Nanos::ZERO }));
        self.tell(&Event::MoveDone { block, to: Place::Device(DeviceId(0)), ok: true });
    }
}

fn engine(c: &mut Criterion) {
    let mut run = Run::new();
    c.bench_function("launch", |b| b.iter(|| run.launch()));
    let mut run = Run::new();
    let mut n = 0;
    c.bench_function("fault and its move", |b| {
        b.iter(|| {
            n += 1;
            run.fault(Run::block(n));
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

criterion_group!(benches, engine, keys, periods);
criterion_main!(benches);
