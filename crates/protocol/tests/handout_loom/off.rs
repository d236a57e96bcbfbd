//! The shim turns itself off on one thread, while others go on.

use crate::bench::{BLOCK, Bench, SERIAL, check, holds_and_finds, race};
use deepum_protocol::plant::{self, Plant};
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

/// The program uses the block, which nobody holds, once the shim is off. (With `OFF_FIRST`, which is the fault, the shim is off before all
/// is pinned.)
fn turning_off<const OFF_FIRST: bool>() {
    let b = Bench::open();
    let off = Arc::new(AtomicBool::new(false));
    let turner = thread::spawn({
        let off = Arc::clone(&off);
        move || {
            if OFF_FIRST {
                off.store(true, Ordering::Release);
            }
            b.outs.pin_all();
            off.store(true, Ordering::Release);
        }
    });
    race(b, move |_, bytes| {
        if !off.load(Ordering::Acquire) {
            turner.join().unwrap();
        }
        bytes.set(2);
    });
    assert!(!b.outs.begin_discard(BLOCK), "it is nobody's");
}

#[test]
fn what_is_used_once_the_shim_is_off_is_not_discarded() {
    holds_and_finds(4, turning_off::<false>, &[Plant::LooseEnd]);
    let _serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    plant::set(None);
    let found = catch_unwind(AssertUnwindSafe(|| check(4, turning_off::<true>))).is_err();
    assert!(found, "off before all was pinned was not found out");
}

/// Hooks that have begun go on: memory goes back to the driver, what is allocated next lies there too, and a tensor comes and goes.
fn reopening() {
    let b = Bench::open();
    let hooks = thread::spawn(move || {
        b.outs.close(BLOCK);
        b.outs.open(BLOCK);
        b.outs.hold(BLOCK);
        b.release();
    });
    b.outs.pin_all();
    assert!(!b.outs.begin_discard(BLOCK), "from here on the shim is off");
    hooks.join().unwrap();
    b.grace.ended.store(9, Ordering::Relaxed);
    assert!(!b.outs.begin_discard(BLOCK));
}

#[test]
fn nor_is_what_was_opened_meanwhile() {
    holds_and_finds(4, reopening, &[Plant::CloseFreesAll, Plant::ClosedAreLeftOut]);
}
