//! Stage 7 of 7: migrate. The priority migration thread carries out what waits.
//!
//! The only code that moves pages. It takes the most urgent batch, moves it with one call, and waits until the bytes are
//! there; so at most one batch is under way when something more urgent comes. A call that fails for a batch is
//! repeated block by block: part of a range may have been freed meanwhile, and the rest is still wanted. What cannot be
//! moved is reported as not moved and never tried again by itself: to ask again is the core's decision.

use crate::desk::{Desk, Job, Moved};
use deepum_core::event::{DiscardOutcome, Event};
use deepum_core::queues::Lane;
use deepum_core::units::{AddrRange, Place};
use deepum_kmod_bridge::{MigrateError, MigrateFailure, VaSpace};
use std::sync::Arc;

/// Does; never decides.
pub trait Mover: Send {
    /// Moves all of `range`, whole UM blocks, and returns when it is there.
    ///
    /// # Errors
    /// [`MigrateError`]; part of the range may have moved.
    fn migrate(&mut self, range: AddrRange, to: Place) -> Result<(), MigrateError>;
}

/// The driver's own call.
#[derive(Debug)]
pub struct UvmMover(pub Arc<VaSpace>);

impl Mover for UvmMover {
    fn migrate(&mut self, range: AddrRange, to: Place) -> Result<(), MigrateError> {
        self.0.migrate(range, to)
    }
}

/// The body of the migrate thread. `announce` tells the fault thread to look.
pub fn run(desk: &Desk, mover: &mut dyn Mover, announce: impl Fn(), say: impl Fn(&str)) {
    let mut said = false;
    let mut results = Vec::new();
    while let Some(job) = desk.next() {
        let failure = carry_out(&job, mover, &mut results);
        desk.done(job, &results);
        announce();
        results.clear();
        // Memory that was freed meanwhile is daily life; anything else is said once and counted from then on.
        if let Some(error) = failure.filter(|e| !matches!(e.why, MigrateFailure::NotManaged) && !said) {
            said = true;
            say(&format!(
                "{error}; the driver goes on by itself where we fail (said once, then counted as moves_failed)"
            ));
        }
    }
}

/// Moves a batch; what became of each block is appended to `results`. Gives the last failure that stood.
fn carry_out(job: &Job, mover: &mut dyn Mover, results: &mut Vec<Moved>) -> Option<MigrateError> {
    let (device, to) = (job.device, job.to());
    if job.batch.lane == Lane::Discard {
        // Nobody asks for it here (`World` says so to the core).
        let failed = |block| Event::Discarded { block, outcome: DiscardOutcome::Failed };
        results.extend(job.batch.blocks().map(|block| Moved { device, event: failed(block) }));
        return None;
    }
    let whole = mover.migrate(job.batch.range(), to).err();
    let mut failure = None;
    for block in job.batch.blocks() {
        let ok = match &whole {
            None => true,
            Some(_) if job.batch.count == 1 => false,
            Some(_) => match mover.migrate(block.range(), to) {
                Ok(()) => true,
                Err(error) => {
                    failure = Some(error);
                    false
                }
            },
        };
        results.push(Moved { device, event: Event::MoveDone { block, to, ok } });
    }
    if job.batch.count == 1 { whole } else { failure }
}
