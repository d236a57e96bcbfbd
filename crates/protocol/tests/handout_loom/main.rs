//! Every interleaving of hand-outs, operations and discards of one block; and that the model finds what is planted.
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p deepum-protocol --test handout_loom --release`.
//!
//! The contents of the block are one cell, in which loom sees accesses that nothing orders.
#![cfg(loom)]

mod bench;
mod off;

use bench::{BLOCK, Bench, Contents, GONE, SERIAL, SLOT, check, gpu, holds_and_finds, race};
use deepum_core::units::{LaunchSeq, StreamSlot};
use deepum_protocol::plant::{self, Plant};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

/// A block given up and handed out again.
fn reactivation() {
    let b = Bench::open();
    b.outs.hold(BLOCK);
    race(b, |b, bytes| {
        bytes.set(1);
        b.release();
        b.outs.hold(BLOCK);
        bytes.set(2);
        assert_eq!(bytes.get(), 2);
    });
    assert!(!b.outs.begin_discard(BLOCK), "it is held");
}

#[test]
fn what_was_handed_out_is_not_discarded() {
    use Plant::{LooseEnd, LooseHold, LooseRelease, NoCount, NoWait};
    holds_and_finds(4, reactivation, &[NoWait, NoCount, LooseEnd, LooseHold, LooseRelease]);
}

/// A block whose memory goes back to the driver, and is somebody else's at once.
fn closing() {
    let b = Bench::open();
    race(b, |b, bytes| {
        b.outs.close(BLOCK);
        bytes.set(2);
    });
    assert!(!b.outs.begin_discard(BLOCK));
}

#[test]
fn what_was_given_back_is_not_discarded() {
    holds_and_finds(4, closing, &[Plant::NoWait, Plant::LooseEnd, Plant::LooseHold]);
}

/// A graph is captured.
fn pinning() {
    let b = Bench::open();
    race(b, |b, bytes| {
        b.outs.hold(BLOCK);
        b.outs.pin(BLOCK);
        bytes.set(2);
        b.release();
    });
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
            let seq = b.take_seq();
            b.streams.claim(SLOT, SLOT);
            b.streams.issue(SLOT, seq);
            queue.store(1, Ordering::Release);
            b.streams.given(SLOT, seq, true);
            b.release();
        }
    });
    let run = b.kernel(&bytes);
    let gpu = gpu(&queue, run.clone());
    for _ in 0..2 {
        b.look();
        b.discard(&bytes);
    }
    let ran = gpu.join().unwrap();
    program.join().unwrap();
    if !ran {
        run();
    }
    b.look();
    assert_eq!(b.outs.begin_discard(BLOCK) || bytes.get() == GONE, true, "in the end it may be discarded");
}

#[test]
fn what_a_queued_kernel_reads_is_not_discarded() {
    use Plant::{LateLook, LooseStamp, SameEpoch};
    holds_and_finds(2, quiet, &[LooseStamp, LateLook, SameEpoch]);
}

/// Right behind the release another kernel is issued, which does not touch the block and never ends.
fn followed() {
    let b = Bench::new();
    let bytes = Arc::new(Contents(UnsafeCell::new(7)));
    let queued = Arc::new(AtomicUsize::new(0));
    b.outs.open(BLOCK);
    b.outs.hold(BLOCK);
    b.streams.claim(SLOT, SLOT);
    let program = thread::spawn({
        let queued = Arc::clone(&queued);
        move || {
            let seq = b.take_seq();
            b.streams.issue(SLOT, seq);
            queued.store(1, Ordering::Release);
            b.streams.given(SLOT, seq, true);
            b.release();
            let seq = b.take_seq();
            b.streams.issue(SLOT, seq);
            b.streams.given(SLOT, seq, true);
        }
    });
    let run = b.kernel(&bytes);
    let gpu = gpu(&queued, run.clone());
    b.look();
    b.discard(&bytes);
    let ran = gpu.join().unwrap();
    program.join().unwrap();
    b.look();
    b.discard(&bytes);
    if !ran {
        run();
    }
    b.look();
    assert!(b.outs.begin_discard(BLOCK) || bytes.get() == GONE, "what came later is not waited for");
}

#[test]
fn what_is_issued_behind_a_release_is_not_waited_for() {
    use Plant::{EpochBeforeEnds, LooseLook, StayInEpoch};
    holds_and_finds(2, followed, &[EpochBeforeEnds, LooseLook, StayInEpoch]);
}

/// Two threads launch into one stream at once, each with a slot of its own (or with `OF_ONE`, which is the fault, with one for
/// both). Each gives its operation to the driver and then the progress write; the driver keeps the order in which it got them, and
/// the GPU has run some of it when the engine looks.
fn overlap<const OF_ONE: bool>() {
    let b = Bench::new();
    let bytes = Arc::new(Contents(UnsafeCell::new(7)));
    // Kernels that read the block, and progress writes: slot and place.
    let stream: Arc<loom::sync::Mutex<Vec<Option<(usize, u64)>>>> = Arc::default();
    b.outs.open(BLOCK);
    b.outs.hold(BLOCK);
    b.outs.hold(BLOCK);
    for slot in [StreamSlot(0), StreamSlot(1)] {
        b.streams.claim(slot, SLOT);
    }
    let launch = |slot: u16| {
        let stream = Arc::clone(&stream);
        move || {
            let slot = StreamSlot(if OF_ONE { 0 } else { slot });
            let seq = b.take_seq();
            b.streams.issue(slot, seq);
            stream.lock().unwrap().push(None);
            stream.lock().unwrap().push(Some((usize::from(slot.0), seq.0)));
            b.streams.given(slot, seq, true);
            b.release();
        }
    };
    let other = thread::spawn(launch(1));
    let engine = thread::spawn({
        let (bytes, stream) = (Arc::clone(&bytes), Arc::clone(&stream));
        move || {
            // The GPU is as far as it can be without having run the last kernel: the worst there is.
            let gpu = || {
                let stream = stream.lock().unwrap();
                let at = stream.iter().rposition(Option::is_none).unwrap_or(stream.len());
                for &(slot, done) in stream[..at].iter().flatten() {
                    b.streams.progress[slot].store(done, Ordering::Release);
                }
                at < stream.len()
            };
            let mut waits = gpu();
            b.look();
            waits |= gpu();
            b.look();
            if b.discard(&bytes) {
                assert!(!waits, "discarded before the last kernel read it");
            }
        }
    });
    launch(0)();
    other.join().unwrap();
    engine.join().unwrap();
}

#[test]
fn overlapping_launches_are_each_waited_for() {
    let _serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    plant::set(None);
    check(2, overlap::<false>);
    let found = catch_unwind(AssertUnwindSafe(|| check(2, overlap::<true>))).is_err();
    assert!(found, "one slot for two threads was not found out");
}

/// A thread launches while the engine sleeps, so nothing says when that is finished, and never again; another asks the driver about its
/// stream.
fn asking() {
    let b = Bench::new();
    let bytes = Arc::new(Contents(UnsafeCell::new(7)));
    // Operations that the stream has not finished.
    let queued = Arc::new(AtomicUsize::new(0));
    b.outs.open(BLOCK);
    b.outs.hold(BLOCK);
    b.streams.claim(SLOT, SLOT);
    let program = thread::spawn({
        let queued = Arc::clone(&queued);
        move || {
            let seq = b.take_seq();
            b.streams.issue(SLOT, seq);
            queued.store(1, Ordering::Release);
            b.streams.given(SLOT, seq, false);
            b.release();
        }
    });
    let run = {
        let (bytes, queued) = (Arc::clone(&bytes), Arc::clone(&queued));
        move || {
            bytes.is_read();
            queued.store(0, Ordering::Release);
        }
    };
    let gpu = gpu(&queued, run.clone());
    let ask = || {
        for (slot, seq) in b.streams.bare().collect::<Vec<_>>() {
            if queued.load(Ordering::Acquire) == 0 {
                b.streams.finished(slot, seq);
            }
        }
    };
    for _ in 0..2 {
        ask();
        b.look();
        b.discard(&bytes);
    }
    let ran = gpu.join().unwrap();
    program.join().unwrap();
    if !ran {
        run();
    }
    ask();
    b.look();
    assert!(b.outs.begin_discard(BLOCK) || bytes.get() == GONE, "in the end it may be discarded");
}

#[test]
fn what_was_launched_while_the_engine_slept_is_waited_for_but_not_for_good() {
    holds_and_finds(2, asking, &[Plant::AskedInCall]);
}

/// The driver refuses a launch while the engine looks.
fn refusal() {
    let b = Bench::new();
    b.outs.open(BLOCK);
    b.outs.hold(BLOCK);
    b.streams.claim(SLOT, SLOT);
    let engine = thread::spawn(move || b.look());
    let before = b.streams.issue(SLOT, LaunchSeq(1));
    // What the driver does.
    thread::yield_now();
    b.streams.refused(SLOT, before);
    b.release();
    engine.join().unwrap();
    b.look();
    assert!(b.outs.begin_discard(BLOCK), "it never runs");
}

#[test]
fn a_refused_launch_is_not_waited_for() {
    holds_and_finds(3, refusal, &[Plant::RefusedForGood]);
}
