//! What one operation on the correlation tables costs, in both layouts of a UM-block table.
//!
//! Budgets, compact layout: to learn a fault that a table of 64 blocks knows 100 ns, and one of 4,000 that
//! follow each other nowhere 250 ns, to learn a table of 64 blocks anew 20 µs, its chain after a
//! change 5 µs; execution-ID table, one launch learned and the next one looked up, at 10,000 execution IDs 50 ns. Everything learned,
//! at 10,000 execution IDs of 8 blocks each: saved 10 ms, for so long the engine's thread waits, taken over 50 ms, before it starts.

#![expect(missing_docs, reason = "criterion_group! makes a public function")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use deepum_core::command::Commands;
use deepum_core::correlate::{BlockTable, ExecTable, Geometry, History, Layout, StableBlock};
use deepum_core::engine::{Config, Engine};
use deepum_core::event::{Event, Fault, Launch};
use deepum_core::mix::Mix;
use deepum_core::policy::PolicyName;
use deepum_core::units::{
    AddrRange, Bytes, DevAddr, ExecId, KernelId, LaunchKey, LaunchSeq, Nanos, StreamSlot, UmBlock,
};

const EXEC_IDS: u64 = 10_000;
const BLOCKS: u64 = 16_384;

/// Three operands of a kernel, far from each other, that advance together.
fn faults(count: u32) -> Vec<StableBlock> {
    (0..count).map(|n| StableBlock(n % 3 * 5000 + n / 3)).collect()
}

fn table(layout: Layout, faults: &[StableBlock]) -> BlockTable {
    let mut table = BlockTable::new(Geometry::default().laid_out(layout));
    let mut before = None;
    for &fault in faults {
        table.record(before, fault);
        before = Some(fault);
    }
    table
}

fn blocks(c: &mut Criterion) {
    for layout in [Layout::Compact, Layout::Paper] {
        let name = layout.as_str();
        for count in [8, 64, 4000] {
            let faults = faults(count);
            let mut known = table(layout, &faults);
            let mut at = 0;
            c.bench_function(&format!("a known fault, {count} blocks, {name}"), |b| {
                b.iter(|| {
                    at = (at + 1) % (faults.len() - 1);
                    known.record(Some(faults[at]), faults[at + 1]);
                });
            });
        }
        let faults = faults(64);
        c.bench_function(&format!("64 blocks anew, {name}"), |b| b.iter(|| table(layout, black_box(&faults))));
        c.bench_function(&format!("chain of 64 blocks, {name}"), |b| {
            let changed = || {
                let mut table = table(layout, &faults);
                table.bound(faults[0], faults[63]);
                table
            };
            b.iter_batched_ref(changed, |table| table.chain().len(), BatchSize::SmallInput);
        });
    }
}

fn launches(c: &mut Criterion) {
    let (mut table, mut history, mut n) = (ExecTable::default(), History::default(), 0);
    let mut launch = || {
        n = (n + 1) % 10_000;
        table.learn(history, ExecId(n));
        history.push(Some(ExecId(n)));
        table.next(history)
    };
    for _ in 0..20_000 {
        black_box(launch());
    }
    c.bench_function("a launch learned and the next one looked up", |b| b.iter(&mut launch));
}

fn config() -> Config {
    Config::new(PolicyName::Deepum, Bytes(BLOCKS / 2 * UmBlock::SIZE.get()))
}

fn learned() -> Engine {
    let (mut engine, mut out) = (Engine::new(config()), Commands::new());
    let mut tell = |event: &Event<'_>| {
        engine.on(event, &mut out);
        out.drain();
    };
    tell(&Event::Alloc { range: AddrRange::new(DevAddr(0), Bytes(BLOCKS * UmBlock::SIZE.get())) });
    for seq in 1..=EXEC_IDS {
        let (stream, key) = (StreamSlot(0), LaunchKey(Mix::new().word(seq).end()));
        tell(&Event::Launch(Launch { seq: LaunchSeq(seq), stream, key, kernel: KernelId(0), pointers: &[] }));
        for n in 0..8 {
            let block = UmBlock((seq * 7 + n) % BLOCKS);
            tell(&Event::Fault(Fault { block, batch: 1, entries: 8, write: false, at: Nanos::ZERO }));
        }
        tell(&Event::Progress { stream, done: LaunchSeq(seq) });
    }
    engine
}

fn saved(c: &mut Criterion) {
    let engine = learned();
    let mut bytes = Vec::new();
    engine.save(1, &mut bytes);
    println!("saved tables of 10,000 execution IDs of 8 blocks: {} bytes", bytes.len());
    println!("the same in memory: {}", engine.snapshot().tables.block_bytes);
    c.bench_function("save 10,000 execution IDs", |b| {
        b.iter(|| {
            let mut bytes = Vec::new();
            engine.save(1, &mut bytes);
            bytes
        });
    });
    c.bench_function("take over 10,000 execution IDs", |b| {
        b.iter_batched_ref(
            || Engine::new(config()),
            |engine| engine.take_over(&bytes, 1).expect("just saved"),
            BatchSize::LargeInput,
        );
    });
}

criterion_group!(benches, blocks, launches, saved);
criterion_main!(benches);
