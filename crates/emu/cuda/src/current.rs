//! Which context the calling thread means.

use std::cell::{Cell, RefCell};

use deepum_core::units::DeviceId;
use deepum_emu_device::context::ContextId;
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::machine::Call;
use deepum_emu_device::stream::StreamId;

use crate::handle::Stream;

thread_local! {
    // Without a destructor: exit handlers run after those of the main thread, and have a context still.
    static TOP: Cell<Option<ContextId>> = const { Cell::new(None) };
    static BELOW: RefCell<Vec<ContextId>> = const { RefCell::new(Vec::new()) };
}

/// Takes what is below the top.
fn next() -> Option<ContextId> {
    BELOW.try_with(|below| below.borrow_mut().pop()).ok().flatten()
}

/// The thread's context, if it has one.
pub fn top() -> Option<ContextId> {
    TOP.get()
}

/// The thread's context.
pub fn context() -> CuResult<ContextId> {
    top().ok_or(CuError::InvalidContext)
}

/// Replaces the top of the thread's stack; none takes it off.
pub fn set(context: Option<ContextId>) {
    TOP.set(context.or_else(next));
}

/// Puts a context on top.
pub fn push(context: ContextId) {
    if let Some(covered) = TOP.replace(Some(context)) {
        let _ = BELOW.try_with(|below| below.borrow_mut().push(covered));
    }
}

/// Takes the top off.
pub fn pop() -> CuResult<ContextId> {
    let popped = context()?;
    TOP.set(next());
    Ok(popped)
}

/// The device of the thread's context, which must be active.
pub fn device(call: &mut Call<'_>) -> CuResult<DeviceId> {
    Ok(call.state.contexts.get(context()?)?.device)
}

/// The stream a handle means.
pub fn stream(call: &mut Call<'_>, handle: Stream) -> CuResult<StreamId> {
    match handle {
        Stream::NULL | Stream::LEGACY => call.legacy(context()?),
        Stream::PER_THREAD => call.per_thread(context()?),
        other => {
            let id = other.get()?;
            call.state.streams.get(id).map(|_| id).ok_or(CuError::InvalidHandle)
        }
    }
}
