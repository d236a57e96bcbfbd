//! Every interleaving of hand-outs, operations and discards of one block; and that the model finds what is planted.
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p deepum-protocol --test handout_loom --release`.
//!
//! The contents of the block are one cell, in which loom sees accesses that nothing orders.
#![cfg(loom)]

use deepum_core::units::{LaunchSeq, StreamSlot, UmBlock};
use deepum_protocol::AtomicU64;
use deepum_protocol::grace::{Grace, GraceWords};
use deepum_protocol::handout::HandOuts;
use deepum_protocol::inflight::InFlight;
use deepum_protocol::plant::{self, Plant};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

const BLOCK: UmBlock = UmBlock(0);
const SLOT: StreamSlot = StreamSlot(0);
/// What a discarded page reads as.
const GONE: u64 = 0xdb;

/// One plant at a time.
static SERIAL: Mutex<()> = Mutex::new(());

fn check(bound: usize, model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.check(model);
}

/// The model holds; and fails with each of these planted.
fn holds_and_finds(bound: usize, model: fn(), planted: &[Plant]) {
    let _serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    plant::set(None);
    check(bound, model);
    for &fault in planted {
        plant::set(Some(fault));
        let found = catch_unwind(AssertUnwindSafe(|| check(bound, model))).is_err();
        plant::set(None);
        assert!(found, "{fault:?} was planted and not found");
    }
}

fn words(count: usize) -> &'static [AtomicU64] {
    Box::leak((0..count).map(|_| AtomicU64::new(0)).collect())
}

/// A block, one stream of one GPU.
#[derive(Clone, Copy)]
struct Bench {
    outs: HandOuts<'static>,
    grace: GraceWords<'static>,
    streams: InFlight<'static>,
    /// The device's sequence.
    taken: &'static AtomicU64,
}

impl Bench {
    fn new() -> Self {
        let all = words(8);
        let grace = GraceWords { begun: &all[0], ended: &all[1] };
        let streams =
            InFlight { progress: &all[2..3], issued: &all[3..4], calls: &all[4..5], used: &all[5..6], blind: &all[6] };
        Self { outs: HandOuts::new(words(1), grace), grace, streams, taken: &all[7] }
    }

    fn release(&self) {
        self.outs.release(BLOCK, self.grace.stamp());
    }

    fn take_seq(&self) -> LaunchSeq {
        LaunchSeq(self.taken.fetch_add(1, Ordering::AcqRel) + 1)
    }

    fn newest(&self) -> LaunchSeq {
        LaunchSeq(self.taken.load(Ordering::Acquire))
    }

    /// The engine discards the block if it may.
    fn discard(&self, bytes: &Contents) -> bool {
        let begun = self.outs.begin_discard(BLOCK);
        if begun {
            bytes.set(GONE);
            self.outs.end_discard(BLOCK);
        }
        begun
    }
}

/// The bytes of the block.
struct Contents(UnsafeCell<u64>);

// SAFETY: who may touch the cell when is what the model checks; loom panics at accesses that race.
unsafe impl Sync for Contents {}
// SAFETY: a number.
unsafe impl Send for Contents {}

impl Contents {
    fn set(&self, to: u64) {
        // SAFETY: loom checks that nobody else is at the cell.
        self.0.with_mut(|at| unsafe { *at = to });
    }
    fn get(&self) -> u64 {
        // SAFETY: loom checks that nobody writes the cell.
        self.0.with(|at| unsafe { *at })
    }
}

/// A block given up and handed out again while the engine wants to discard it: what is written into the new tensor stays.
fn reactivation() {
    let b = Bench::new();
    let bytes = Arc::new(Contents(UnsafeCell::new(0)));
    b.outs.open(BLOCK);
    b.outs.hold(BLOCK);
    b.grace.ended.store(1, Ordering::Relaxed);
    let program = thread::spawn({
        let bytes = Arc::clone(&bytes);
        move || {
            bytes.set(1);
            b.release();
            b.outs.hold(BLOCK);
            bytes.set(2);
            assert_eq!(bytes.get(), 2);
        }
    });
    for _ in 0..2 {
        b.discard(&bytes);
    }
    program.join().unwrap();
    assert_eq!(bytes.get(), 2);
    assert!(!b.outs.begin_discard(BLOCK), "it is held");
}

#[test]
fn what_was_handed_out_is_not_discarded() {
    use Plant::{LooseEnd, LooseHold, LooseRelease, NoCount, NoWait};
    holds_and_finds(4, reactivation, &[NoWait, NoCount, LooseEnd, LooseHold, LooseRelease]);
}

/// A block whose memory goes back to the driver, and is somebody else's at once.
fn closing() {
    let b = Bench::new();
    let bytes = Arc::new(Contents(UnsafeCell::new(0)));
    b.outs.open(BLOCK);
    b.grace.ended.store(1, Ordering::Relaxed);
    let program = thread::spawn({
        let bytes = Arc::clone(&bytes);
        move || {
            b.outs.close(BLOCK);
            bytes.set(2);
        }
    });
    b.discard(&bytes);
    b.discard(&bytes);
    program.join().unwrap();
    assert_eq!(bytes.get(), 2);
    assert!(!b.outs.begin_discard(BLOCK));
}

#[test]
fn what_was_given_back_is_not_discarded() {
    holds_and_finds(4, closing, &[Plant::NoWait, Plant::LooseEnd, Plant::LooseHold]);
}

/// A graph is captured while the engine wants to discard a block of its.
fn pinning() {
    let b = Bench::new();
    let bytes = Arc::new(Contents(UnsafeCell::new(0)));
    b.outs.open(BLOCK);
    b.grace.ended.store(1, Ordering::Relaxed);
    let program = thread::spawn({
        let bytes = Arc::clone(&bytes);
        move || {
            b.outs.hold(BLOCK);
            b.outs.pin(BLOCK);
            bytes.set(2);
            b.release();
        }
    });
    b.discard(&bytes);
    b.discard(&bytes);
    program.join().unwrap();
    assert_eq!(bytes.get(), 2);
    b.grace.ended.store(9, Ordering::Relaxed);
    assert!(!b.outs.begin_discard(BLOCK));
}

#[test]
fn what_a_graph_uses_is_not_discarded() {
    holds_and_finds(3, pinning, &[Plant::NoWait, Plant::LooseEnd]);
}

/// A tensor is given up while the kernel that reads it is still queued; `gpu` runs it at some moment.
fn quiet() {
    let b = Bench::new();
    let bytes = Arc::new(Contents(UnsafeCell::new(7)));
    let queue = Arc::new(AtomicUsize::new(0));
    b.outs.open(BLOCK);
    b.outs.hold(BLOCK);
    let program = thread::spawn({
        let queue = Arc::clone(&queue);
        move || {
            b.streams.enter(SLOT);
            let seq = b.take_seq();
            b.streams.issue(SLOT, seq);
            queue.store(1, Ordering::Release);
            b.streams.leave(SLOT, || b.newest());
            b.release();
        }
    });
    let run = {
        let bytes = Arc::clone(&bytes);
        move || {
            assert_eq!(bytes.get(), 7, "discarded before it was read");
            b.streams.progress[0].store(1, Ordering::Release);
        }
    };
    let gpu = thread::spawn({
        let (queue, run) = (Arc::clone(&queue), run.clone());
        move || {
            let ready = queue.load(Ordering::Acquire) == 1;
            if ready {
                run();
            }
            ready
        }
    });
    let mut grace = Grace::new(b.grace, b.streams);
    for _ in 0..2 {
        grace.turn();
        b.discard(&bytes);
    }
    let ran = gpu.join().unwrap();
    program.join().unwrap();
    if !ran {
        run();
    }
    grace.turn();
    grace.turn();
    grace.turn();
    assert_eq!(b.outs.begin_discard(BLOCK) || bytes.get() == GONE, true, "in the end it may be discarded");
}

#[test]
fn what_a_queued_kernel_reads_is_not_discarded() {
    use Plant::{PeriodTooLate, PeriodWithoutFence, SamePeriod, StampWithoutFence};
    holds_and_finds(2, quiet, &[StampWithoutFence, PeriodWithoutFence, PeriodTooLate, SamePeriod]);
}

/// Two threads launch into one stream at once. Each gives its operation to the driver and then the progress write; the
/// driver keeps the order in which it got them, and the GPU has run some of it when the engine looks.
fn overlap() {
    let b = Bench::new();
    let bytes = Arc::new(Contents(UnsafeCell::new(7)));
    // 0 is a kernel that reads the block, else a progress write.
    let stream: Arc<loom::sync::Mutex<Vec<u64>>> = Arc::default();
    b.outs.open(BLOCK);
    b.outs.hold(BLOCK);
    b.outs.hold(BLOCK);
    let launch = {
        let stream = Arc::clone(&stream);
        move || {
            b.streams.enter(SLOT);
            let seq = b.take_seq();
            b.streams.issue(SLOT, seq);
            stream.lock().unwrap().push(0);
            stream.lock().unwrap().push(seq.0);
            b.streams.leave(SLOT, || b.newest());
            b.release();
        }
    };
    let other = thread::spawn(launch.clone());
    let engine = thread::spawn({
        let (bytes, stream) = (Arc::clone(&bytes), Arc::clone(&stream));
        move || {
            let mut grace = Grace::new(b.grace, b.streams);
            // The GPU is as far as it can be without having run the last kernel: the worst there is.
            let gpu = || {
                let stream = stream.lock().unwrap();
                let at = stream.iter().rposition(|&op| op == 0).unwrap_or(stream.len());
                if let Some(&done) = stream[..at].iter().rev().find(|&&op| op != 0) {
                    b.streams.progress[0].store(done, Ordering::Release);
                }
                at < stream.len()
            };
            let mut waits = gpu();
            grace.turn();
            waits |= gpu();
            grace.turn();
            if b.discard(&bytes) {
                assert!(!waits, "discarded before the last kernel read it");
            }
        }
    });
    launch();
    other.join().unwrap();
    engine.join().unwrap();
}

#[test]
fn progress_of_overlapping_launches_is_not_trusted() {
    holds_and_finds(2, overlap, &[Plant::NoMuddle, Plant::NoBound]);
}
