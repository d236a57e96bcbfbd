//! Onto the GPU, in calls that do not wait.
//!
//! Problem: a `UVM_MIGRATE` that waits holds the address space's lock for as long as its copies take, and whoever wants it for writing waits that long: each call about
//! blocks that leave does, three times ([`crate::leave`]). Between two calls that wait, the link is idle.
//! Idea: calls that do not wait, of two blocks each, and behind each one that waits for the call two before: the link always has something to carry, and nobody is
//! kept waiting for longer than four blocks take, which is at the end. Of what was tried on an H200 this brings in as much as any while nothing leaves, and 1.7 to 4 times as much leaves beside it as
//! beside long calls that wait (facts 4.10). Calls of one block let more leave still, and wake somebody up twice as often, which takes its time on a busy machine.

use crate::migrate::{MigrateError, VaSpace};
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, Place, UmBlock};

/// What a call asks for.
const PIECE: Bytes = Bytes(2 * UmBlock::SIZE.0);
/// How many calls are under way beside the one that is waited for.
const AHEAD: u64 = 2;

impl VaSpace {
    /// Moves all of `range`, whole blocks of managed memory, to a GPU, and returns when it is there.
    ///
    /// # Errors
    /// [`MigrateError`]. Part of the range may have moved then.
    pub fn fetch(&self, range: AddrRange, to: DeviceId) -> Result<(), MigrateError> {
        let piece = |n: u64| {
            let start = DevAddr(range.start.0 + n * PIECE.0);
            AddrRange::new(start, PIECE.min(Bytes(range.end().0 - start.0)))
        };
        let pieces = range.len.0.div_ceil(PIECE.0);
        for n in 0..pieces {
            if self.begin(piece(n), to).is_err() {
                // The call that waits says why, or mends it.
                return self.migrate(range, Place::Device(to));
            }
            if let Some(earlier) = n.checked_sub(AHEAD) {
                self.migrate(piece(earlier), Place::Device(to))?;
            }
        }
        let first = piece(pieces.saturating_sub(AHEAD)).start;
        self.migrate(AddrRange::new(first, Bytes(range.end().0 - first.0)), Place::Device(to))
    }
}
