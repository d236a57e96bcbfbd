//! The life of the shim in this process: one atomic, `Cold → Ready → Ending → Off`, never back.
//!
//! Cold: no CUDA function was called yet, nothing is read or set up. Ready: options read, hooks work. Off: every call
//! goes straight on. Loading the library does nothing at all: there is no constructor.
//!
//! Off means that nobody holds what PyTorch hands out, so it comes only when nothing can be thrown away any more. That takes a
//! while, in which hooks work on: *Ending*. Whoever sees Off, on whatever thread, comes after the last discard.
//!
//! A forked child of a process that used CUDA is Off: the driver does not work there, and neither do our threads. The
//! child of one that did not (a launcher, a server that forks before it trains) starts its own life, with a ring of its own.

use crate::{fence, link, log, opt, page};
use std::sync::atomic::{self, AtomicU8, Ordering};

const COLD: u8 = 0;
const READY: u8 = 1;
const ENDING: u8 = 2;
const OFF: u8 = 3;

static STAGE: AtomicU8 = AtomicU8::new(COLD);

/// Whether everything goes straight on. Not yet, before the first call.
#[inline]
pub fn is_off() -> bool {
    STAGE.load(Ordering::Acquire) == OFF
}

/// Whether it is going to be off, or is: too late to begin anything.
pub fn is_ending() -> bool {
    STAGE.load(Ordering::SeqCst) >= ENDING
}

/// Whether hooks work. The first call, ever, reads the options; so it is made inside the fence.
#[inline]
pub fn ready() -> bool {
    match STAGE.load(Ordering::Relaxed) {
        READY | ENDING => true,
        COLD => warm_up(),
        _ => false,
    }
}

#[cold]
fn warm_up() -> bool {
    fence::turn_off_at_panic();
    let options = opt::get();
    let to = if options.config.enabled && link::prepare() { READY } else { OFF };
    if STAGE.compare_exchange(COLD, to, Ordering::AcqRel, Ordering::Acquire).is_ok() && to == READY {
        // SAFETY: the handler is a plain function that stores atomics and makes plain system calls, which a forked child may do.
        unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) };
        for line in &options.lines {
            log::error(line);
        }
    }
    STAGE.load(Ordering::Relaxed) == READY
}

extern "C" fn in_forked_child() {
    if link::started() || is_ending() || !link::renew_in_child() {
        STAGE.store(OFF, Ordering::Relaxed);
    }
}

/// Ends our help for good; the program goes on as if we were not there. On return all is held for good: waits for the discards in flight,
/// as a hand-out does. Takes no lock, since a panic may be on its way through any of ours.
#[cold]
pub fn turn_off(why: &str) {
    if STAGE.fetch_max(ENDING, Ordering::SeqCst) == OFF {
        return;
    }
    // A page that is not there yet comes too late to have an engine ([`page::make`]).
    atomic::fence(Ordering::SeqCst);
    if let Some(outs) = page::hand_outs() {
        // Each for itself, where there are several: what goes on behind us may need it now.
        outs.pin_all();
    }
    if STAGE.swap(OFF, Ordering::SeqCst) != OFF {
        link::engine_off();
        log::error(why);
    }
}
