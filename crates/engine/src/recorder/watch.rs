//! What launches really do, where the emulated device is there to say it (ARCHITECTURE section 7).
//!
//! The device calls us as each launch, copy and memset starts, from inside whatever call made it start. So here nothing is asked of it.

use super::{Said, get};
use crate::pace::export;
use deepum_core::units::{AddrRange, Bytes, DevAddr, Nanos};
use deepum_trace::event::{Access, Touch};
use std::ffi::{c_int, c_void};
use std::panic::catch_unwind;
use std::sync::OnceLock;

/// What the device is handed. Valid until the process ends.
#[repr(C)]
struct DeepumWatch {
    /// Version of this struct and of the contract: 1.
    abi: u32,
    /// 0.
    reserved: u32,
    work: unsafe extern "C" fn(order: u64, ns: u64, touches: *const DeepumTouch, count: usize),
}

/// A touch, as the device tells it.
#[derive(Clone, Copy)]
#[repr(C)]
struct DeepumTouch {
    start: u64,
    len: u64,
    /// 0 reads, 1 writes whole, 2 both or in part.
    access: u32,
    phase: u32,
}

static WATCH: DeepumWatch = DeepumWatch { abi: 1, reserved: 0, work };

type Watch = unsafe extern "C" fn(*const DeepumWatch) -> c_int;
type Number = unsafe extern "C" fn() -> u64;

/// Asks to be told. Whether we will be.
pub(super) fn offer() -> bool {
    // SAFETY: by the contract, what is exported under this name has this type.
    let watch = export(c"deepumEmuWatch").map(|found| unsafe { std::mem::transmute::<*mut c_void, Watch>(found) });
    // SAFETY: what is handed over lives for ever, and its function may be called from anywhere.
    watch.is_some_and(|watch| unsafe { watch(&raw const WATCH) } == 0)
}

/// What the device calls that which the calling thread issued last; 0 where it says nothing.
pub(super) fn issued() -> u64 {
    static ISSUED: OnceLock<Option<Number>> = OnceLock::new();
    let issued = ISSUED.get_or_init(|| {
        // SAFETY: by the contract, what is exported under this name has this type.
        export(c"deepumEmuIssued").map(|found| unsafe { std::mem::transmute::<*mut c_void, Number>(found) })
    });
    // SAFETY: takes nothing, and may be called from any thread.
    issued.map_or(0, |issued| unsafe { issued() })
}

unsafe extern "C" fn work(order: u64, ns: u64, touches: *const DeepumTouch, count: usize) {
    // A panic must not reach the device; then this launch's touches are missing.
    let _ = catch_unwind(|| {
        let told = if count == 0 {
            &[][..]
        } else {
            // SAFETY: by the contract there are so many, for the length of this call.
            unsafe { std::slice::from_raw_parts(touches, count) }
        };
        let touch = |told: &DeepumTouch| Touch {
            range: AddrRange::new(DevAddr(told.start), Bytes(told.len)),
            access: match told.access {
                0 => Access::Read,
                1 => Access::Write,
                _ => Access::ReadWrite,
            },
            phase: told.phase,
        };
        if let Some(recorder) = get() {
            recorder.put(Said::Work { order, time: Nanos(ns), touches: told.iter().map(touch).collect() });
        }
    });
}
