//! How a batch is carried out: the driver's calls, one after the other.
//!
//! Problem: most batches are one call, but a block may have contents in two places (`copies`), which the driver knows as a mode of the block (read
//! duplication, facts 4.7), and no call of it says "copy" or "drop". Two movers carry batches out, on a driver and in a replay.
//! Idea: the calls are listed here, once; a mover knows what each is.
//!
//! - *Evict*: to the host, all that most programs ever need.
//! - *Save*: the mode on, then to the host, which copies what the host lacks.
//! - *Drop* and *evict*: the mode off if it may be on, which leaves the host's copies; to the host, for what it had no copy of; the mode on if what is fetched is to leave
//!   its copy there.
//! - *Fetch* of such a block: to the host, then to the GPU. The first copies nothing, as a rule, but makes the host map all of it: without that the
//!   driver lets the GPU write to a page of which the host keeps a copy, and nobody would know.
//! - *Own* of a block that is not on the GPU: the mode off, and fetched. Of one that is: the GPU is made the preferred location, so that ending the mode
//!   leaves its copies; and since they stay mapped for reading, it is said to access the block, which maps them for writing.
//!
//! What comes onto the GPU does so by one call, whose end a word of the driver's tells where it writes any: nobody holds the address space's lock meanwhile, which whoever leaves wants two or three times for
//! writing (facts 4.10, 4.11).
//!
//! Invariants: whatever is believed wrongly about a block, or fails half-way, no contents are lost. At worst bytes are copied in vain.

use crate::queues::{Batch, Lane};

/// What is known of blocks to be moved; the blocks of a batch are alike in it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Way {
    /// They have one copy.
    #[default]
    Move,
    /// The same; once they have left, the mode is to be on.
    Keep,
    /// They may have two: the mode is on, unless something failed.
    Duplicated,
    /// The same; once they have left, it is to be on again.
    KeepOn,
    /// The same; they are to have one, on the GPU, which is not believed to have any.
    OwnAway,
    /// The same; they are to have one, on the GPU, which is believed to have one.
    OwnThere,
}

/// One call of the driver about all of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// To the host, which need not map what has one copy (`kmod-bridge/src/leave.rs`).
    Leave,
    /// `UVM_MIGRATE` to the host, which maps it.
    ToHost,
    /// `UVM_MIGRATE` to the GPU.
    ToDevice,
    /// `UVM_ENABLE_READ_DUPLICATION`, or `UVM_DISABLE_READ_DUPLICATION`.
    Duplicate(bool),
    /// `UVM_SET_PREFERRED_LOCATION` to the GPU, or `UVM_UNSET_PREFERRED_LOCATION`.
    Prefer(bool),
    /// `UVM_SET_ACCESSED_BY` the GPU, or `UVM_UNSET_ACCESSED_BY`.
    Access(bool),
}

impl Batch {
    /// Whether the driver may keep two copies of its blocks afterwards, if the calls touch on that.
    pub fn duplicates(self) -> Option<bool> {
        self.steps().iter().rev().find_map(|step| if let Step::Duplicate(on) = *step { Some(on) } else { None })
    }

    /// The calls. None for a discard, which is no matter of these.
    pub const fn steps(self) -> &'static [Step] {
        use Step::{Access, Duplicate, Leave, Prefer, ToDevice, ToHost};
        match (self.lane, self.way) {
            (Lane::Discard, _) => &[],
            (Lane::Save, _) => &[Duplicate(true), ToHost],
            (Lane::Drop | Lane::Evict, Way::Move) => &[Leave],
            (Lane::Drop | Lane::Evict, Way::Keep) => &[ToHost, Duplicate(true)],
            (Lane::Drop | Lane::Evict, Way::KeepOn) => &[Duplicate(false), ToHost, Duplicate(true)],
            (Lane::Drop | Lane::Evict, _) => &[Duplicate(false), ToHost],
            (_, Way::Move | Way::Keep) => &[ToDevice],
            (_, Way::Duplicated | Way::KeepOn) => &[ToHost, ToDevice],
            (_, Way::OwnAway) => &[Duplicate(false), ToDevice],
            (_, Way::OwnThere) => {
                &[Prefer(true), Duplicate(false), Prefer(false), ToDevice, Access(true), Access(false)]
            }
        }
    }
}
