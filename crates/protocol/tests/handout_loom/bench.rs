//! A block, its contents, and the check of a model over them.

use deepum_core::units::{LaunchSeq, StreamSlot, UmBlock};
use deepum_protocol::AtomicU64;
use deepum_protocol::grace::GraceWords;
use deepum_protocol::handout::HandOuts;
use deepum_protocol::inflight::InFlight;
use deepum_protocol::plant::{self, Plant};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

pub const BLOCK: UmBlock = UmBlock(0);
pub const SLOT: StreamSlot = StreamSlot(0);
/// What a discarded page reads as.
pub const GONE: u64 = 0xdb;

/// One plant at a time.
pub static SERIAL: Mutex<()> = Mutex::new(());

pub fn check(bound: usize, model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.check(model);
}

/// The model holds; and fails with each of these planted.
pub fn holds_and_finds(bound: usize, model: fn(), planted: &[Plant]) {
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
pub struct Bench {
    pub outs: HandOuts<'static>,
    pub grace: GraceWords<'static>,
    pub streams: InFlight<'static>,
    /// The device's sequence.
    pub taken: &'static AtomicU64,
}

impl Bench {
    pub fn new() -> Self {
        let all = words(12);
        let grace = GraceWords { epoch: &all[0], ended: &all[1] };
        let streams = InFlight {
            progress: &all[2..4],
            issued: &all[4..6],
            streams: &all[6..8],
            epochs: &all[8..10],
            ends: words(2 * 2),
            used: &all[10..11],
            blind: words(1).first().unwrap(),
            grace,
        };
        Self { outs: HandOuts::new(words(1), grace), grace, streams, taken: &all[11] }
    }

    /// One whose block may be discarded.
    pub fn open() -> Self {
        let b = Self::new();
        b.outs.open(BLOCK);
        b.grace.ended.store(1, Ordering::Relaxed);
        b
    }

    pub fn release(&self) {
        self.outs.release(BLOCK, self.grace.stamp());
    }

    /// The kernel that reads the block, as the GPU runs it, with the progress write behind it: the slot's first operation.
    pub fn kernel(self, bytes: &Arc<Contents>) -> impl Fn() + Clone + Send + 'static {
        let bytes = Arc::clone(bytes);
        move || {
            bytes.is_read();
            self.streams.progress[0].store(1, Ordering::Release);
        }
    }

    pub fn look(&self) {
        self.grace.look(&self.streams);
    }

    pub fn take_seq(&self) -> LaunchSeq {
        LaunchSeq(self.taken.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The engine discards the block if it may.
    pub fn discard(&self, bytes: &Contents) -> bool {
        let begun = self.outs.begin_discard(BLOCK);
        if begun {
            bytes.set(GONE);
            self.outs.end_discard(BLOCK);
        }
        begun
    }
}

/// The GPU comes by at some moment, and runs what is queued by then. Answers whether anything was.
pub fn gpu(queued: &Arc<AtomicUsize>, run: impl Fn() + Send + 'static) -> thread::JoinHandle<bool> {
    let queued = Arc::clone(queued);
    thread::spawn(move || {
        let ready = queued.load(Ordering::Acquire) == 1;
        if ready {
            run();
        }
        ready
    })
}

/// The bytes of the block.
pub struct Contents(pub UnsafeCell<u64>);

// SAFETY: who may touch the cell when is what the model checks; loom panics at accesses that race.
unsafe impl Sync for Contents {}
// SAFETY: a number.
unsafe impl Send for Contents {}

impl Contents {
    pub fn set(&self, to: u64) {
        // SAFETY: loom checks that nobody else is at the cell.
        self.0.with_mut(|at| unsafe { *at = to });
    }
    /// By a kernel that was issued when there were 7 in it.
    pub fn is_read(&self) {
        assert_eq!(self.get(), 7, "discarded before it was read");
    }
    pub fn get(&self) -> u64 {
        // SAFETY: loom checks that nobody writes the cell.
        self.0.with(|at| unsafe { *at })
    }
}

/// A program, which writes 2 into a block that is its own by then, and the engine, which wants to discard it twice: what was written stays.
pub fn race(b: Bench, program: impl FnOnce(Bench, &Contents) + Send + 'static) {
    let bytes = Arc::new(Contents(UnsafeCell::new(0)));
    let program = thread::spawn({
        let bytes = Arc::clone(&bytes);
        move || program(b, &bytes)
    });
    for _ in 0..2 {
        b.discard(&bytes);
    }
    program.join().unwrap();
    assert_eq!(bytes.get(), 2);
}
