//! What we count, described once.
//!
//! One row here is the field, its description, and its name in status text. A test fails when a row is
//! never bumped (`tests/counters.rs`).
//!
//! **A predicted fetch** (of a block not believed wholly on the GPU) is `prefetch_asked` once, and ends as
//! exactly one of:
//! - *useful*: it arrived, and a launch it was expected for ran to its end, whose arguments do not rule the
//!   block out, without a fault on the block;
//! - *late*: the GPU faulted on the block first;
//! - *useless*: it arrived, and left the GPU, or was freed, before it was useful;
//! - *dropped*: it never began: no room in the queue, or taken back because its launch was over, was not the
//!   one predicted, the memory was freed, or the budget had no room for it;
//! - *failed*: the mover could not do it;
//!
//! or is still outstanding (`next_block` knows no launches: what arrived for it is outstanding until it leaves).
//! Fetches of blocks believed on the GPU are `touch_asked` and have no such end: they are there to reorder the
//! driver's eviction list.

use crate::event::{Migration, MigrationCause};
use crate::units::Place;

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Every counter of the engine. See the module for the exact meaning of the prefetch set.
        #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }
        impl Counters {
            /// Name, description and value of each, in the order of declaration.
            pub fn rows(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($doc),+).trim_ascii_start(), self.$name)),+].into_iter()
            }
        }
    };
}

counters! {
    /// Launches recorded (while awake).
    launches,
    /// Launches that found all execution IDs given out.
    exec_ids_refused,
    /// Launches that were not the ones the execution-ID table had predicted.
    launches_mispredicted,
    /// Times the gate moved in front of another launch, whose blocks were on their way.
    gates_closed,
    /// Fault notices, duplicates included.
    fault_entries,
    /// Fault events: one for each UM block in each batch.
    fault_blocks,
    /// Fault batches.
    fault_batches,
    /// Faults whose notice was lost, known by what the driver moved for them.
    faults_inferred,
    /// Fault events that no launch could be found for.
    faults_unattributed,
    /// Faults that taught a UM-block table something.
    faults_learned,
    /// Fetches asked for because the GPU waits.
    fault_fetch_asked,
    /// Fetches asked for to populate new memory while everything fits.
    populate_asked,
    /// Predicted fetches asked for.
    prefetch_asked,
    /// Predicted fetches the mover carried out or failed at.
    prefetch_issued,
    /// Predicted fetches that helped.
    prefetch_useful,
    /// Predicted fetches the GPU faulted before.
    prefetch_late,
    /// Predicted fetches that left the GPU before they helped.
    prefetch_useless,
    /// Predicted fetches that never began.
    prefetch_dropped,
    /// Predicted fetches the mover failed at.
    prefetch_failed,
    /// Fetches of blocks believed on the GPU, to keep them there.
    touch_asked,
    /// Blocks left out of the plan, to see whether they are used.
    doubted,
    /// Of these, those the GPU faulted on: they are.
    doubted_used,
    /// Of these, those that were absent while the launch ran to its end: they are not.
    doubted_unused,
    /// Evictions asked for to stay within the budget.
    evict_asked,
    /// Evictions asked for before their room was needed.
    preevict_asked,
    /// Blocks that left by those.
    preevicted,
    /// Copies and memsets of managed memory by calls of CUDA (while awake).
    copies,
    /// Blocks whose contents were asked to be given up.
    discard_asked,
    /// Blocks whose contents were given up.
    discarded,
    /// Discards that did not happen because the block was handed out again, or wanted, first.
    discards_cancelled,
    /// Discards the driver refused.
    discards_failed,
    /// Blocks asked to be copied to the host and to stay.
    saves_asked,
    /// Of these, those that were.
    saved,
    /// Blocks that the GPU wrote to while they were saved, or about to be.
    saves_lost,
    /// Blocks whose copy on the GPU was asked to be given up, since the host has one.
    drops_asked,
    /// Of these, those that left.
    dropped,
    /// Blocks asked to have their only copy on the GPU.
    owns_asked,
    /// Of these, those that have.
    owned,
    /// Bytes of blocks that left the GPU by a discard, or saved by a drop, and so without a copy.
    bytes_spared,
    /// Moves of any kind the mover failed at.
    moves_failed,
    /// Bytes to the GPU because of a fault itself.
    bytes_h2d_fault,
    /// Bytes to the GPU by the driver's tree prefetcher.
    bytes_h2d_tree,
    /// Bytes to the GPU by a call: ours, or the program's.
    bytes_h2d_call,
    /// Bytes to the host because the driver needed room.
    bytes_d2h_evicted,
    /// Bytes to the host by a call: ours, or the program's.
    bytes_d2h_call,
    /// Bytes to the host because the host touched them.
    bytes_d2h_fault,
    /// Pieces of memory that moved, either way.
    migrations,
    /// Notices the driver dropped because our queue was full.
    notices_lost,
    /// Times the engine woke.
    wakes,
}

impl Counters {
    /// Counts a piece of memory that moved to or from `device`.
    pub fn migrated(&mut self, piece: &Migration, device: Place) {
        use MigrationCause::{AccessCounters, Coherence, Eviction, Prefetch, User};
        let bytes = match (piece.to == device, piece.cause) {
            (true, Coherence | AccessCounters) => &mut self.bytes_h2d_fault,
            (true, Prefetch) => &mut self.bytes_h2d_tree,
            (true, User | Eviction) => &mut self.bytes_h2d_call,
            (false, _) if piece.from != device => return,
            (false, Eviction) => &mut self.bytes_d2h_evicted,
            (false, User) => &mut self.bytes_d2h_call,
            (false, Coherence | Prefetch | AccessCounters) => &mut self.bytes_d2h_fault,
        };
        *bytes += piece.bytes.get();
        self.migrations += 1;
    }
}
