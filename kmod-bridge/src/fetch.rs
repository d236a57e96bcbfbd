//! Onto the GPU, in calls that do not wait, and ones that come when there should be nothing left to wait for: which, and why, say `deepum_core::steps` and
//! `deepum_core::arrivals`.

use crate::migrate::{MigrateError, VaSpace};
use deepum_core::arrivals::Arrivals;
use deepum_core::steps::{Comes, Fetch, comes};
use deepum_core::units::{AddrRange, DeviceId, Nanos, Place, UmBlock};

/// What is waited by outside of the driver.
pub trait Time {
    /// Nothing if nobody tells the time.
    fn now(&self) -> Option<Nanos>;
    /// The calling thread does nothing until then.
    fn nap(&self, until: Nanos);
}

impl VaSpace {
    /// Moves all of `range`, whole blocks of managed memory, to a GPU, and returns when it is there. `arrivals` is of this way of the link.
    ///
    /// # Errors
    /// [`MigrateError`]. Part of the range may have moved then.
    pub fn fetch(
        &self,
        range: AddrRange,
        to: DeviceId,
        (arrivals, time): (&mut Arrivals, &dyn Time),
        fetch: Fetch,
    ) -> Result<(), MigrateError> {
        let place = Place::Device(to);
        let beside = fetch == Fetch::Beside;
        for call in comes(range, fetch) {
            let (Comes::Begin(piece) | Comes::Await(piece)) = call;
            let blocks = piece.len.0 / UmBlock::SIZE.0;
            match call {
                Comes::Begin(_) if self.begin(piece, to).is_err() => {
                    // The call that waits says why, or mends it.
                    arrivals.forget();
                    return self.migrate(range, place);
                }
                Comes::Begin(_) => {
                    if let Some(now) = time.now().filter(|_| beside) {
                        arrivals.begun(blocks, now);
                    }
                }
                Comes::Await(_) => {
                    if beside {
                        time.nap(arrivals.ask_at(blocks));
                    }
                    self.migrate(piece, place).inspect_err(|_| arrivals.forget())?;
                    if let Some(now) = time.now().filter(|_| beside) {
                        arrivals.there(blocks, now);
                    }
                }
            }
        }
        Ok(())
    }
}
