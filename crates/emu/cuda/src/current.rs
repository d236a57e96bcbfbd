//! Which context the calling thread means.

use std::cell::RefCell;

use deepum_core::units::DeviceId;
use deepum_emu_device::context::ContextId;
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::machine::Call;
use deepum_emu_device::stream::StreamId;

use crate::handle::Stream;

thread_local! {
    static STACK: RefCell<Vec<ContextId>> = const { RefCell::new(Vec::new()) };
}

/// The thread's context, if it has one.
pub fn top() -> Option<ContextId> {
    STACK.try_with(|stack| stack.borrow().last().copied()).ok().flatten()
}

/// The thread's context.
pub fn context() -> CuResult<ContextId> {
    top().ok_or(CuError::InvalidContext)
}

/// Replaces the top of the thread's stack; none takes it off.
pub fn set(context: Option<ContextId>) {
    let _ = STACK.try_with(|stack| {
        let mut stack = stack.borrow_mut();
        stack.pop();
        stack.extend(context);
    });
}

/// Puts a context on top.
pub fn push(context: ContextId) {
    let _ = STACK.try_with(|stack| stack.borrow_mut().push(context));
}

/// Takes the top off.
pub fn pop() -> CuResult<ContextId> {
    let popped = STACK.try_with(|stack| stack.borrow_mut().pop()).ok().flatten();
    popped.ok_or(CuError::InvalidContext)
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
