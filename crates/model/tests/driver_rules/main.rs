//! The driver's rules, one test each. "Facts 4.2" is that section of `docs/facts.md`.

mod afar;
mod cache;
mod discard;
mod duplicates;
mod faults;
mod groups;
mod host_entries;
mod places;
mod ssd;

use deepum_core::event::MigrationCause;
use deepum_core::units::{AddrRange, Bytes, DeviceId, Nanos, Place, UmBlock};
use deepum_model::{
    Accessor, Advice, Group, KernelRun, Migrated, ModelError, Notice, Options, Profile, Step, Touch, UnifiedMemory,
};

const GPU: DeviceId = DeviceId(0);
const ON_GPU: Place = Place::Device(GPU);
const BASE: u64 = 1000;

// Of `profiles/driver.toml`.
const CALL: Nanos = Nanos(2_400);
const BLOCK: Nanos = Nanos(7_500);
const AWAIT: Nanos = Nanos(16_000);
const FLUSH: Nanos = Nanos(22_000);
const UNMAP: Nanos = Nanos(11_000);
const ENTER: Nanos = Nanos(117_000);
const MARK: u64 = 25_000;
const GIVE_UP: u64 = 42_000;
const REWRITE: u64 = 32_000;

/// Block `i` of the test range.
fn block(i: u64) -> UmBlock {
    UmBlock(BASE + i)
}

fn blocks(first: u64, count: u64) -> AddrRange {
    AddrRange::new(block(first).start(), Bytes(count * UmBlock::SIZE.0))
}

fn pages(of: u64, first: u64, count: u64) -> AddrRange {
    AddrRange::new(block(of).start().offset(Bytes(first * 4096)), Bytes(count * 4096))
}

/// A node whose GPU holds `room` blocks, with 16 managed blocks.
fn node(room: u64) -> UnifiedMemory {
    node_with(Options { memory: Some(Bytes(room * UmBlock::SIZE.0)), ..Options::default() })
}

fn node_with(options: Options) -> UnifiedMemory {
    let mut mem = UnifiedMemory::new(&Profile::named("v100-32g").unwrap(), &options);
    mem.map_managed(blocks(0, 16)).unwrap();
    mem
}

fn touch(range: AddrRange) -> Touch {
    Touch { range, write: true, phase: 0 }
}

/// Runs a kernel to its end from `start`; when it ended, and every fault batch as (when, until when).
fn run(mem: &mut UnifiedMemory, touches: &[Touch], start: Nanos) -> (Nanos, Vec<(Nanos, Nanos)>) {
    let mut kernel = KernelRun::new(GPU, Accessor::Kernel, touches, Nanos::micros(10));
    let (mut now, mut batches) = (start, Vec::new());
    for _ in 0..100_000 {
        match kernel.step(mem, now, Nanos(u64::MAX)) {
            Step::Faulted { at, resume_at, .. } => {
                batches.push((at, resume_at));
                now = resume_at;
            }
            Step::Done { at } => return (at, batches),
            other => panic!("{other:?}"),
        }
    }
    panic!("the kernel does not end");
}

fn notices(mem: &mut UnifiedMemory) -> Vec<Notice> {
    let mut out = Vec::new();
    mem.take_notices(Nanos(u64::MAX), &mut out);
    out
}

fn resident(mem: &UnifiedMemory) -> Vec<u64> {
    (0..16).filter(|&i| !mem.pages_at(ON_GPU, block(i)).is_empty()).collect()
}

/// The bytes of all migrations of a cause.
fn moved(notices: &[Notice], wanted: MigrationCause) -> Bytes {
    notices.iter().fold(Bytes::ZERO, |sum, n| match *n {
        Notice::Migration { range, cause, .. } if cause == wanted => sum + range.len,
        _ => sum,
    })
}

/// Gives every block contents in host memory, as data written there would.
fn fill_host(mem: &mut UnifiedMemory) {
    mem.migrate(blocks(0, 16), Place::Host, Nanos::ZERO).unwrap();
    notices(mem);
}
