//! The life of the shim in this process: one atomic, `Cold → Ready → Off`, never back.
//!
//! Cold: no CUDA function was called yet, nothing is read or set up. Ready: options read, hooks work. Off: every call
//! goes straight on. Loading the library does nothing at all: there is no constructor.
//!
//! A forked child of a process that used CUDA is Off: the driver does not work there, and neither do our threads. The
//! child of one that did not (a launcher, a server that forks before it trains) starts its own life, with a ring of its own.

use crate::{fence, link, log, opt, page};
use std::sync::atomic::{AtomicU8, Ordering};

const COLD: u8 = 0;
const READY: u8 = 1;
const OFF: u8 = 2;

static STAGE: AtomicU8 = AtomicU8::new(COLD);

/// Whether everything goes straight on. Not yet, before the first call.
#[inline]
pub fn is_off() -> bool {
    STAGE.load(Ordering::Relaxed) == OFF
}

/// Whether hooks work. The first call, ever, reads the options; so it is made inside the fence.
#[inline]
pub fn ready() -> bool {
    match STAGE.load(Ordering::Relaxed) {
        READY => true,
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
    if link::started() || !link::renew_in_child() {
        STAGE.store(OFF, Ordering::Relaxed);
    }
}

/// Ends our help for good; the program goes on as if we were not there.
#[cold]
pub fn turn_off(why: &str) {
    if STAGE.swap(OFF, Ordering::Relaxed) != OFF {
        link::engine_off();
        if let Some(outs) = page::hand_outs() {
            outs.pin_all();
        }
        log::error(why);
    }
}
