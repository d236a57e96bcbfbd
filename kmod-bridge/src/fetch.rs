//! Onto the GPU, in calls that do not wait.
//!
//! Problem: a `UVM_MIGRATE` that waits holds the address space's lock for as long as its copies take, and whoever wants it for writing waits that long: each call about
//! blocks that leave does, three times ([`crate::leave`]). Between two calls that wait, the link is idle.
//! Idea: calls that do not wait, of a block each, and behind each one that waits for a block that was asked for a few calls ago: the link always has something to
//! carry, and nobody is kept waiting for longer than a block takes. Of the combinations tried on an H200 this one brings most in and takes most out at the same time
//! (facts 4.10).

use crate::migrate::{MigrateError, VaSpace};
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, Place, UmBlock};

/// How many blocks are under way beside the one that is waited for.
const AHEAD: usize = 4;

impl VaSpace {
    /// Moves all of `range`, whole blocks of managed memory, to a GPU, and returns when it is there.
    ///
    /// # Errors
    /// [`MigrateError`]. Part of the range may have moved then.
    pub fn fetch(&self, range: AddrRange, to: DeviceId) -> Result<(), MigrateError> {
        let earlier = std::iter::repeat_n(None, AHEAD).chain(range.blocks().map(Some));
        for (block, earlier) in range.blocks().zip(earlier) {
            if self.begin(block.range(), to).is_err() {
                // The call that waits says why, or mends it.
                return self.migrate(range, Place::Device(to));
            }
            if let Some(earlier) = earlier {
                self.migrate(earlier.range(), Place::Device(to))?;
            }
        }
        let last = range.len.min(Bytes(AHEAD as u64 * UmBlock::SIZE.0));
        self.migrate(AddrRange::new(DevAddr(range.end().0 - last.0), last), Place::Device(to))
    }
}
