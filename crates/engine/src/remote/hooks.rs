//! What the emulated device is handed for an engine that is elsewhere ([`crate::pace`]).
//!
//! The count of work is the page's, a nudge goes to the other process if there is something new to see, and the engine's
//! threads are those with which the device stands in for the other process's.
//!
//! What is new: records in the ring, notices in the tools queue, progress since the engine's last look, whatever made it look: the
//! same as in the program itself, or the engine would take a turn more, and virtual time would know where it lives.

use super::connection;
use crate::nudges::{Nudges, pending_word};
use crate::pace::{self, DeepumHooks};
use crate::sources::progressed;
use deepum_kmod_bridge::QueueWatch;
use deepum_protocol::page::Page;
use deepum_protocol::ring::Ring;
use deepum_protocol::shared::Mode;
use std::ffi::c_int;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

static HOOKS: OnceLock<DeepumHooks> = OnceLock::new();
static SIGHT: OnceLock<Sight> = OnceLock::new();

/// What can be seen from here of what there is to look at.
#[derive(Debug)]
struct Sight {
    page: Page,
    ring: Ring<'static>,
    nudges: Arc<Nudges>,
    /// While there is an engine.
    attached: Mutex<Option<Attached>>,
}

#[derive(Debug)]
struct Attached {
    queue: Option<QueueWatch>,
}

impl Sight {
    fn attached(&self) -> MutexGuard<'_, Option<Attached>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The hooks, made the first time.
pub(super) fn prepare(page: Page, ring: Ring<'static>, nudges: &Arc<Nudges>) -> &'static DeepumHooks {
    SIGHT.get_or_init(|| Sight { page, ring, nudges: Arc::clone(nudges), attached: Mutex::default() });
    HOOKS.get_or_init(|| DeepumHooks {
        abi: 3,
        reserved: 0,
        pending: pending_word(page),
        nudge,
        is_engine_thread,
        may_touch: None,
        given_up: Some(given_up),
    })
}

/// From now on there is an engine to nudge, which reads this queue.
pub(super) fn attach(queue: Option<QueueWatch>) {
    if let Some(sight) = SIGHT.get() {
        *sight.attached() = Some(Attached { queue });
    }
}

/// From now on there is none.
pub(super) fn detach() {
    if let Some(sight) = SIGHT.get() {
        *sight.attached() = None;
    }
}

extern "C" fn nudge() {
    // A panic must not reach the device; the look is lost, and so is nothing else.
    let _ = catch_unwind(|| {
        let Some(sight) = SIGHT.get() else { return };
        let attached = sight.attached();
        let Some(Attached { queue }) = &*attached else { return };
        let progressed = progressed(sight.page.progress(), sight.page.seen());
        if sight.ring.used() > 0 || progressed || queue.as_ref().is_some_and(QueueWatch::unread) {
            sight.nudges.give();
        }
    });
}

extern "C" fn is_engine_thread() -> c_int {
    pace::serves().into()
}

/// The engine has not answered for a minute: it is hung up on, and the link does the rest.
extern "C" fn given_up() {
    let Some(sight) = SIGHT.get() else { return };
    sight.ring.shared().set_mode(Mode::Off);
    sight.page.gates().open();
    let _ = catch_unwind(connection::hang_up);
}
