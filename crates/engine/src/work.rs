//! What the threads that move did, by lane: batches, blocks, and for how long they were at it.
//!
//! Where a program is slow this tells which way was busy, and with what, which no count of bytes does: on an H200 giving up contents takes as long as
//! copies do (`docs/gpu-results/`). Time is what [`crate::migrate::Mover::now`] says.

use deepum_core::queues::{Batch, Lane};
use deepum_core::units::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module. All of them add, and whoever asks reads, at any time.
#[derive(Default, Debug)]
pub struct Work {
    /// By lane.
    done: [Done; Lane::ALL.len()],
}

#[derive(Debug, Default)]
struct Done {
    batches: AtomicU64,
    blocks: AtomicU64,
    nanos: AtomicU64,
}

impl Work {
    /// A batch is over that took so long.
    pub fn add(&self, batch: Batch, took: Nanos) {
        let done = &self.done[batch.lane as usize];
        done.batches.fetch_add(1, Ordering::Relaxed);
        done.blocks.fetch_add(u64::from(batch.count), Ordering::Relaxed);
        done.nanos.fetch_add(took.0, Ordering::Relaxed);
    }

    /// Batches, blocks and nanoseconds of a lane.
    pub fn of(&self, lane: Lane) -> [u64; 3] {
        let done = &self.done[lane as usize];
        [&done.batches, &done.blocks, &done.nanos].map(|count| count.load(Ordering::Relaxed))
    }
}
