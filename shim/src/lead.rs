//! How far the program is ahead of the GPU: no further than the engine wants it to be.
//!
//! Problem: a program may be a thousand launches ahead. Memory that it gave up and handed out again by then is never free: the GPU still works on the
//! old contents when the new ones already have their place, and so what nobody needs is carried to the host and back.
//! Idea: while it knows what comes next the engine says how far ahead is enough, and a launch that comes sooner waits, as it does in the driver when the GPU's queue is
//! full. What it waits for is the progress that the GPU itself writes, so that it goes on whatever becomes of the engine.
//!
//! A program may be about to issue what its own GPU is waiting for (a collective of several GPUs that one thread serves). So who waits in vain for
//! [`PATIENCE`] goes on, and nobody waits any more.
//!
//! A stream whose progress is not written, or whose last operations were issued while the engine slept, is not waited for.

use crate::abi::Ptr;
use crate::{log, page, streams};
use deepum_core::units::{DeviceId, LaunchSeq};
use deepum_engine::pace;
use deepum_protocol::page::Page;
use deepum_protocol::shared::{Mode, Shared, ShimCounter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between two looks: a small part of the time that as many launches take as are still queued, which may be microseconds each. So the first naps are too short for
/// the system's timers (`pace::nap`), and whoever waits longer leaves its processor to others.
const NAP: Duration = Duration::from_micros(20);
const AWAKE: Duration = Duration::from_micros(200);

/// The longest wait without any progress. Kernels that take longer than this are none that people train with (assumption).
const PATIENCE: Duration = Duration::from_secs(5);

/// Set once somebody waited in vain.
static IN_VAIN: AtomicBool = AtomicBool::new(false);

/// Before a launch, with no lock held.
#[inline]
pub fn wait(shared: &Shared<'_>, device: DeviceId, stream: Ptr, per_thread: bool) {
    if let Some(page) = page::get()
        && page.lead(device.0.into()).is_some()
        && !IN_VAIN.load(Ordering::Relaxed)
    {
        wait_for_gpu(page, shared, device, stream, per_thread);
    }
}

#[cold]
fn wait_for_gpu(page: Page, shared: &Shared<'_>, device: DeviceId, stream: Ptr, per_thread: bool) {
    let (Some(slots), Some(place)) = (page::in_flight(), streams::place(device, stream, per_thread)) else { return };
    let Some(newest) = slots.followed(place.slot) else { return };
    // Whoever is where it should be goes on. The engine may want something else meanwhile, or be gone.
    let is_ahead = |seen: LaunchSeq| {
        let lead = page.lead(device.0.into()).filter(|_| shared.mode() == Mode::Awake);
        lead.is_some_and(|lead| seen.plus(lead) <= newest)
    };
    let mut seen = slots.stream_is_at(place.slot);
    shared.add(ShimCounter::LaunchesHeld, is_ahead(seen).into());
    let mut waited = Duration::ZERO;
    while is_ahead(seen) {
        if waited >= PATIENCE {
            IN_VAIN.store(true, Ordering::Relaxed);
            return log::once!(
                "a launch was held back until the GPU is nearer, and the GPU did nothing for 5 s; no launch is held back any more, so \
                 more memory than necessary may be moved"
            );
        }
        pace::nap(NAP, waited < AWAKE);
        let now = slots.stream_is_at(place.slot);
        waited = if now > seen { Duration::ZERO } else { waited + NAP };
        seen = now;
    }
}
