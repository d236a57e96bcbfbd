//! Streams that were used while the engine slept, and stand still since.
//!
//! Problem: asleep we put no progress writes into streams. The next one says enough; but a stream that is never used again
//! would be taken for busy, and what was given up since then would never be thrown away.
//!
//! Idea: while awake, now and then, ask the driver of such a stream whether it is idle, and if so write its progress word
//! ourselves. Nothing is put into a stream of the program's: a write into it could wait for room in its queue, and one into the legacy stream would
//! order streams that the program did not order.
//!
//! Invariants: a stream that is being destroyed, or whose context is, is not asked about; nor is any stream during a capture, which a
//! question could spoil (facts 4.5). A destroyed stream gets its progress write before it goes. Whoever destroys a stream or begins a capture waits for at
//! most one question, which does not wait for anything. Questions are bounded, [`QUESTIONS`] in [`EVERY`] operations.
//!
//! A thread's own default stream is asked about by that thread alone, when it is the one that looks. One that was used asleep by a thread that
//! issues nothing any more keeps everything; so does a stream whose context may be gone.

use crate::abi::{Dev, Ptr, SUCCESS, Status};
use crate::launch::{captures, capturing};
use crate::real::genuine;
use crate::{link, names, page, pools, progress, streams};
use deepum_core::units::{DeviceId, LaunchSeq, StreamSlot};
use deepum_protocol::inflight::InFlight;
use deepum_protocol::page::SLOTS;
use deepum_protocol::shared::MAX_DEVICES;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Operations of a device between two looks.
const EVERY: u64 = 64;
/// Questions in one look.
const QUESTIONS: usize = 4;

/// The place in each device's sequence from which on we look again.
static DUE: [AtomicU64; MAX_DEVICES] = [const { AtomicU64::new(0) }; MAX_DEVICES];

/// Streams that may be asked about, and those that may not.
struct Asking {
    /// By slot: up to this place the slot's stream is not ours to ask about any more. A later place is another stream's, of the same handle.
    gone: [LaunchSeq; SLOTS],
    /// The slot last asked about.
    last: StreamSlot,
}

static ASKING: Mutex<Asking> = Mutex::new(Asking { gone: [LaunchSeq(0); SLOTS], last: StreamSlot(0) });

fn asking() -> MutexGuard<'static, Asking> {
    ASKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Behind an operation, while awake.
#[inline]
pub fn look(slots: &InFlight<'_>, device: DeviceId, seq: LaunchSeq) {
    if DUE.get(usize::from(device.0)).is_some_and(|due| seq.0 >= due.load(Ordering::Relaxed)) {
        look_now(slots, device, seq);
    }
}

#[cold]
fn look_now(slots: &InFlight<'_>, device: DeviceId, seq: LaunchSeq) {
    DUE[usize::from(device.0)].store(seq.0 + EVERY, Ordering::Relaxed);
    if slots.bare().next().is_none() {
        return;
    }
    let Ok(mut asking) = ASKING.try_lock() else { return };
    let ask = genuine!(Cuda, "cuStreamQuery", fn(Ptr) -> Status);
    let of_this_device = |slot| streams::handle(slot).filter(|&(_, of)| of == device);
    let mut left: Vec<(StreamSlot, LaunchSeq, Ptr)> = slots
        .bare()
        .filter(|&(slot, seq)| seq > asking.gone[usize::from(slot.0)])
        .filter_map(|(slot, seq)| of_this_device(slot).map(|(stream, _)| (slot, seq, stream)))
        .collect();
    // Each in its turn.
    let split = left.partition_point(|&(slot, ..)| slot <= asking.last);
    left.rotate_left(split);
    for (slot, seq, stream) in left.into_iter().take(QUESTIONS) {
        /// `CUDA_ERROR_NOT_READY`.
        const NOT_READY: Status = 600;
        if capturing() {
            return;
        }
        asking.last = slot;
        // SAFETY: the stream is one that the program used, in a context of this device, and is not being destroyed: whoever does that
        // marks it first, under the lock that we hold.
        match ask.map(|ask| unsafe { ask(stream) }) {
            Some(SUCCESS) => slots.finished(slot, seq),
            Some(NOT_READY) => {}
            // Nothing to learn here.
            Some(_) | None => asking.gone[usize::from(slot.0)] = seq,
        }
    }
}

/// A capture is about to begin and is counted: no question is on its way when this returns, and none is asked.
pub fn wait() {
    drop(asking());
}

/// A stream is destroyed.
pub struct Destroy;

impl Destroy {
    /// What it still has to do is followed by its progress, and it is not asked about any more.
    pub unsafe fn before(stream: Ptr) -> Option<()> {
        pools::hooks::stream_gone(stream);
        let (ring, slots) = (link::ring()?, page::in_flight()?);
        let of_this = |&(slot, _): &(StreamSlot, LaunchSeq)| streams::handle(slot).is_some_and(|(of, _)| of == stream);
        // It may be one of the program's mistakes.
        let writable = progress::is_written() && !(capturing() && captures(stream, false));
        for (slot, seq) in slots.bare().filter(of_this).filter(|_| writable).collect::<Vec<_>>() {
            progress::write(&ring.shared(), stream, false, slot, seq);
        }
        let mut asking = asking();
        for (slot, seq) in slots.newest().filter(of_this) {
            asking.gone[usize::from(slot.0)] = seq;
        }
        None
    }
    /// Nothing more.
    pub fn after((): (), _: Status) {}
}

/// All streams of some context may go.
fn forget() {
    let Some(slots) = page::in_flight() else { return };
    let mut asking = asking();
    for (slot, seq) in slots.newest() {
        asking.gone[usize::from(slot.0)] = seq;
    }
}

macro_rules! contexts {
    ($($(#[doc = $doc:literal])+ $hook:ident($t:ty);)*) => {$(
        $(#[doc = $doc])+
        pub struct $hook;

        impl $hook {
            /// Its streams are not asked about any more.
            pub unsafe fn before(_: $t) -> Option<()> {
                forget();
                Some(())
            }
            /// Its modules are gone, too.
            pub fn after((): (), status: Status) {
                names::Unload::after((), status);
                pools::hooks::context_gone();
            }
        }
    )*};
}
contexts! {
    /// A context is destroyed.
    Context(Ptr);
    /// A device's own context loses one of those who hold it.
    Primary(Dev);
}
