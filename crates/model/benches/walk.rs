//! What the model costs the emulated device, in real time: fault batches, and resident blocks walked.
//!
//! `cargo bench -p deepum-model`. Budget: 2 us a batch and 200 ns a resident block, so that an iteration of GPT-2 XL
//! (23,000 blocks, 70,000 batches) adds no more than a few tenths of a second. The same run also prints the bandwidth that
//! fault-driven paging reaches in the model, which `docs/model.md` compares with published figures.

use deepum_core::units::{AddrRange, Bytes, DeviceId, Nanos, Place, UmBlock};
use deepum_model::{Accessor, KernelRun, Options, Profile, Step, Touch, UnifiedMemory};
use std::hint::black_box;
use std::time::{Duration, Instant};

const BLOCKS: u64 = 4096;

fn range(first: u64, count: u64) -> AddrRange {
    AddrRange::new(UmBlock(5000 + first).start(), Bytes(count * UmBlock::SIZE.0))
}

/// Runs one kernel over `touches`; when it ends, and its batches.
fn run(mem: &mut UnifiedMemory, touches: &[Touch], start: Nanos, compute: Nanos) -> (Nanos, u64) {
    let mut kernel = KernelRun::new(DeviceId(0), Accessor::Kernel, touches, compute);
    let (mut now, mut batches, mut notices) = (start, 0, Vec::new());
    loop {
        match kernel.step(mem, now, Nanos(u64::MAX)) {
            Step::Faulted { resume_at, .. } => (now, batches) = (resume_at, batches + 1),
            Step::Done { at } => return (at, batches),
            other => panic!("{other:?}"),
        }
        notices.clear();
        mem.take_notices(now, &mut notices);
        black_box(&notices);
    }
}

fn main() {
    for name in Profile::NAMES {
        let profile = Profile::named(name).expect("a built-in profile");
        // Half of the blocks fit.
        let options = Options { memory: Some(Bytes(BLOCKS / 2 * UmBlock::SIZE.0)), ..Options::default() };
        let mut mem = UnifiedMemory::new(&profile, &options);
        mem.map_managed(range(0, BLOCKS)).expect("free address space");
        let mut now = Nanos::ZERO;
        for block in 0..BLOCKS {
            now = mem.migrate(range(block, 1), Place::Host, now).expect("host memory").done;
        }
        let touch = |range| Touch { range, write: false, phase: 0 };
        let streams = |from: u64, n: u64, each: u64| -> Vec<Touch> {
            (0..n).map(|i| touch(range(from + i * each, each))).collect()
        };

        // First half: everything is fetched, nothing evicted.
        let (end, batches) = run(&mut mem, &streams(0, 1, BLOCKS / 2), now, Nanos(1));
        let fetch = end - now;
        now = end;
        // The same again: all resident.
        let resident = fastest(|| now = run(&mut mem, &streams(0, 4, BLOCKS / 8), now, Nanos(1)).0);
        // The halves in turn, four operands abreast: every block evicts one, which is what takes the time.
        let (mut half, mut swap, mut counted) = (0, Nanos::ZERO, batches);
        let evict = fastest(|| {
            half = BLOCKS / 2 - half;
            let (end, batches) = run(&mut mem, &streams(half, 4, BLOCKS / 8), now, Nanos(1));
            (now, swap, counted) = (end, end - now, batches);
        });

        let speed = |time: Nanos| (BLOCKS / 2 * UmBlock::SIZE.0) as f64 / time.0 as f64;
        println!(
            "{name:12} fault-driven in {:.2} GB/s, with eviction {:.2} GB/s | real time: {:.2} us/batch with eviction, {:.0} \
             ns/resident block",
            speed(fetch),
            speed(swap),
            evict.as_secs_f64() * 1e6 / counted as f64,
            resident.as_secs_f64() * 1e9 / (BLOCKS / 2) as f64,
        );
    }
}

/// The least of several times: other load on the machine only ever adds.
fn fastest(mut f: impl FnMut()) -> Duration {
    (0..15)
        .map(|_| {
            let started = Instant::now();
            f();
            started.elapsed()
        })
        .min()
        .unwrap_or_default()
}
