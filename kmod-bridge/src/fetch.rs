//! Onto the GPU, in calls that do not wait, and ones behind them that do: which, and why, says `deepum_core::steps`.

use crate::migrate::{MigrateError, VaSpace};
use deepum_core::steps::{Comes, comes};
use deepum_core::units::{AddrRange, DeviceId, Place};

impl VaSpace {
    /// Moves all of `range`, whole blocks of managed memory, to a GPU, and returns when it is there.
    ///
    /// # Errors
    /// [`MigrateError`]. Part of the range may have moved then.
    pub fn fetch(&self, range: AddrRange, to: DeviceId) -> Result<(), MigrateError> {
        let place = Place::Device(to);
        for call in comes(range) {
            match call {
                // The call that waits says why, or mends it.
                Comes::Begin(piece) if self.begin(piece, to).is_err() => return self.migrate(range, place),
                Comes::Begin(_) => {}
                Comes::Await(piece) => self.migrate(piece, place)?,
            }
        }
        Ok(())
    }
}
