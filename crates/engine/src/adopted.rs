//! The engine in another process than the program: over a ring, a page and descriptors that were passed on.
//!
//! Differs from [`crate::embedded`] in four things. The driver's parts were attached by the program ([`Adopted`]). What the program counts
//! as work is counted in the page, and its nudges come by a bell ([`Nudges`]). The budget may change, because others
//! share the GPU ([`Running::set_budget`]). And it may be killed at any moment and another may go on: so it takes the
//! ring over from a reader that may be dead.
//!
//! Not here: where all this comes from, and when it ends (`daemon/`).

use crate::looks::Looks;
use crate::nudges::{Nudges, pending_word};
use crate::ours;
use crate::pending::Pending;
use crate::sources::Notices;
use crate::sync::lock;
use crate::tables::Keeper;
use crate::threads::{Abilities, Drivers, Running};
use crate::uvm_mover::{How, UvmMover};
use crate::{Inputs, StartError};
use deepum_config::Await;
use deepum_core::units::{Bytes, DeviceId};
use deepum_kmod_bridge::adopt::Adopted;
use deepum_protocol::status::Pace;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What belongs to an engine whose program is another process.
#[derive(Debug)]
pub struct Passed {
    /// The driver's parts.
    pub adopted: Adopted,
    /// The bell of the program's nudges; nothing where the engine looks by its own clock.
    pub bell: Option<OwnedFd>,
    /// Which tables are the program's; 0 where that is not known.
    pub workload: u64,
}

/// How much of a GPU a program uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Which GPU.
    pub device: DeviceId,
    /// Bytes it holds.
    pub managed: Bytes,
    /// Of these on the GPU.
    pub resident: Bytes,
    /// Launches issued.
    pub launches: u64,
}

/// Whether the program's device knows of the engine of this process.
static KNOWN: AtomicBool = AtomicBool::new(false);

/// Whether the engine may be made to look: before its program's first nudge the device would not count a thread that it holds. Always so where
/// the engine looks by its own clock.
pub fn may_look() -> bool {
    KNOWN.load(Ordering::Acquire)
}

/// Starts an engine's threads for another process. `inputs` are of the ring and page that both processes map.
///
/// # Errors
/// [`StartError`]: a ring that nobody of ours wrote, or no threads.
pub fn start(inputs: &Inputs, passed: Passed) -> Result<Arc<Running>, StartError> {
    let Passed { adopted: Adopted { support, space, queue }, bell, workload } = passed;
    let page = inputs.page;
    ours::quiet_panics();
    // Whoever read it before is gone, or is not allowed to be there. Kept from here on: what comes and goes has records since the program
    // emptied the ring, and a reader that lets go turns that off.
    let reader = inputs.ring.recover().map_err(|e| StartError(e.to_string()))?;
    if let Some(warning) = support.warning() {
        (inputs.say)(&warning);
    }
    let notices = queue.map(|queue| Box::new(queue) as Box<dyn Notices>);
    if let Err(why) = &notices {
        (inputs.say)(why);
    }
    let pending = Arc::new(Pending::over(pending_word(page)));
    let pace = if bell.is_some() { Pace::Driven } else { Pace::Polling };
    let tables = if workload == 0 { Ok(None) } else { Keeper::open(&inputs.config, workload, pace == Pace::Driven) };
    let tables = tables.unwrap_or_else(|why| {
        (inputs.say)(&why);
        None
    });
    let can = Abilities::of(&space, notices.is_ok());
    // Words of another process's address space are out of reach (facts 4.11).
    let how = How::of(&inputs.config, Await::Call, &can, notices.is_ok());
    let drivers = Drivers {
        can,
        tables,
        notices,
        mover: Arc::new(UvmMover::new(space, inputs.ring, how, pace, inputs.say)),
        hand_outs: Arc::new(page.hand_outs()),
        pace,
        looks: Looks::Own,
        driver: support.version().map(ToString::to_string),
        pending: Arc::clone(&pending),
    };
    let running = Running::start(inputs, reader, drivers)?;
    KNOWN.store(bell.is_none(), Ordering::Release);
    if let Some(bell) = bell {
        let nudges = Nudges::over(page, bell);
        let hearer = Arc::clone(&running);
        let body = move || {
            while nudges.wait().is_ok() {
                if let Some(token) = nudges.take(&pending) {
                    KNOWN.store(true, Ordering::Release);
                    hearer.gate.pass_on(token);
                }
            }
            hearer.turn_off("the program's nudges can no longer be heard".to_owned());
        };
        let failed = Arc::clone(&running);
        ours::spawn("deepum-nudge", body, move |why| failed.turn_off(why)).map_err(StartError)?;
    }
    // No look before the first nudge where virtual time decides: the program gives it once its device knows of this engine, and would not count
    // a thread that it holds before. A nudge that was given earlier waits at the bell. Elsewhere the engine looks by itself.
    Ok(running)
}

impl Running {
    /// How much the program uses; waits for the end of a turn.
    pub fn usage(&self) -> Vec<Usage> {
        let world = lock(&self.world);
        let shared = self.ring.shared();
        let of = |gpu: &crate::world::Gpu| {
            let snapshot = gpu.engine.snapshot();
            let launches = shared.issued(gpu.facts.id).0;
            Usage { device: gpu.facts.id, managed: snapshot.managed, resident: snapshot.on_device, launches }
        };
        world.gpus.iter().map(of).collect()
    }
}
