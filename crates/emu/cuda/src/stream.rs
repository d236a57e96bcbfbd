//! Streams, and functions of the program in stream order.

use std::ffi::{c_int, c_uint, c_void};

use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::machine::{Cost, machine};
use deepum_emu_device::stream::Flavour;
use deepum_emu_device::work::{HostFn, Work};

use crate::current;
use crate::edge::{Out, api, twins};
use crate::handle::{Context, Event, Stream};

/// `CU_EVENT_WAIT_EXTERNAL`.
const WAIT_EXTERNAL: c_uint = 1;

fn create(out: Out<Stream>, flags: c_uint, priority: c_int) -> CuResult {
    let flavour = match flags {
        0 => Flavour::Blocking,
        1 => Flavour::NonBlocking,
        _ => return Err(CuError::InvalidValue),
    };
    let id = machine()?.call(Cost::Call, |call| {
        let device = current::device(call)?;
        // CUDA driver API reference: priorities outside the range are clamped.
        Ok(call.state.streams.create(device, flavour, priority.clamp(-5, 0)))
    })?;
    out.put(Stream::of(id))
}

fn context_of(stream: Stream) -> CuResult<Context> {
    machine()?.call(Cost::Free, |call| {
        let id = current::stream(call, stream)?;
        let device = call.state.streams.get(id).ok_or(CuError::InvalidHandle)?.device;
        Ok(Context::of_device(device))
    })
}

/// A function with a stream and a status, of `cuStreamAddCallback`.
struct Callback {
    function: unsafe extern "C" fn(Stream, c_int, *mut c_void),
    stream: Stream,
    argument: *mut c_void,
}

unsafe extern "C" fn call_back(argument: *mut c_void) {
    // SAFETY: made by `cuStreamAddCallback` from a box, for this one call.
    let callback = unsafe { Box::from_raw(argument.cast::<Callback>()) };
    // SAFETY: the program handed function and argument over for this call.
    unsafe { (callback.function)(callback.stream, 0, callback.argument) };
}

api! {
    fn cuStreamCreate(out: Out<Stream>, flags: c_uint) {
        create(out, flags, 0)
    }

    fn cuStreamCreateWithPriority(out: Out<Stream>, flags: c_uint, priority: c_int) {
        create(out, flags, priority)
    }

    fn cuStreamDestroy_v2(stream: Stream) {
        let id = stream.get()?;
        let gone = machine()?.call(Cost::Call, |call| {
            call.leave_capture(id);
            Ok(call.state.streams.destroy(id))
        })?;
        if gone { Ok(()) } else { Err(CuError::InvalidHandle) }
    }

    fn cuStreamQuery(stream: Stream) {
        machine()?.call(Cost::Call, |call| {
            let id = current::stream(call, stream)?;
            call.may_wait(id)?;
            if call.state.streams.behind(id).is_empty() { Ok(()) } else { Err(CuError::NotReady) }
        })
    }

    fn cuStreamSynchronize(stream: Stream) {
        machine()?.call(Cost::Call, |call| {
            let id = current::stream(call, stream)?;
            call.may_wait(id)?;
            call.synchronize_stream(id)
        })
    }

    fn cuStreamWaitEvent(stream: Stream, event: Event, flags: c_uint) {
        if flags > 1 {
            return Err(CuError::InvalidValue);
        }
        machine()?.call(Cost::Call, |call| {
            let id = current::stream(call, stream)?;
            call.await_event(id, event.get()?, flags & WAIT_EXTERNAL != 0)
        })
    }

    fn cuStreamGetFlags(stream: Stream, flags: Out<c_uint>) {
        let bits = machine()?.call(Cost::Free, |call| {
            let id = current::stream(call, stream)?;
            Ok(c_uint::from(call.state.streams.get(id).is_some_and(|s| s.flavour == Flavour::NonBlocking)))
        })?;
        flags.put(bits)
    }

    fn cuStreamGetPriority(stream: Stream, priority: Out<c_int>) {
        priority.put(machine()?.call(Cost::Free, |call| {
            let id = current::stream(call, stream)?;
            Ok(call.state.streams.get(id).map_or(0, |s| s.priority))
        })?)
    }

    fn cuStreamGetId(stream: Stream, id: Out<u64>) {
        id.put(u64::from(machine()?.call(Cost::Free, |call| current::stream(call, stream))?.0))
    }

    fn cuStreamGetDevice(stream: Stream, ordinal: Out<c_int>) {
        ordinal.put(machine()?.call(Cost::Free, |call| {
            let id = current::stream(call, stream)?;
            Ok(call.state.streams.get(id).map_or(0, |s| c_int::from(s.device.0)))
        })?)
    }

    fn cuStreamGetCtx(stream: Stream, context: Out<Context>) {
        context.put(context_of(stream)?)
    }

    fn cuStreamGetCtx_v2(stream: Stream, context: Out<Context>, green: Out<*const c_void>) {
        green.offer(std::ptr::null());
        context.put(context_of(stream)?)
    }

    fn cuLaunchHostFunc(stream: Stream, function: Option<unsafe extern "C" fn(*mut c_void)>, argument: *mut c_void) {
        let call_later = HostFn { function: function.ok_or(CuError::InvalidValue)?, argument };
        machine()?.call(Cost::Call, |call| {
            let id = current::stream(call, stream)?;
            call.give(id, Work::Host(call_later))
        })
    }

    fn cuStreamAddCallback(
        stream: Stream, function: Option<unsafe extern "C" fn(Stream, c_int, *mut c_void)>, argument: *mut c_void,
        flags: c_uint,
    ) {
        if flags != 0 {
            return Err(CuError::InvalidValue);
        }
        let callback = Callback { function: function.ok_or(CuError::InvalidValue)?, stream, argument };
        machine()?.call(Cost::Call, |call| {
            let id = current::stream(call, stream)?;
            // A callback is for one call, so it can be no node.
            call.not_captured(id)?;
            let argument = Box::into_raw(Box::new(callback)).cast();
            let queued = call.queue(id, &[], Work::Host(HostFn { function: call_back, argument }));
            if queued.is_err() {
                // SAFETY: made just above, and nobody else has it.
                drop(unsafe { Box::from_raw(argument.cast::<Callback>()) });
            }
            queued.map(drop)
        })
    }
}

twins! {
    fn cuStreamQuery_ptsz(s: Stream) = cuStreamQuery(s.per_thread());
    fn cuStreamSynchronize_ptsz(s: Stream) = cuStreamSynchronize(s.per_thread());
    fn cuStreamWaitEvent_ptsz(s: Stream, e: Event, flags: c_uint) = cuStreamWaitEvent(s.per_thread(), e, flags);
    fn cuStreamGetFlags_ptsz(s: Stream, flags: Out<c_uint>) = cuStreamGetFlags(s.per_thread(), flags);
    fn cuStreamGetPriority_ptsz(s: Stream, priority: Out<c_int>) = cuStreamGetPriority(s.per_thread(), priority);
    fn cuStreamGetId_ptsz(s: Stream, id: Out<u64>) = cuStreamGetId(s.per_thread(), id);
    fn cuStreamGetDevice_ptsz(s: Stream, ordinal: Out<c_int>) = cuStreamGetDevice(s.per_thread(), ordinal);
    fn cuStreamGetCtx_ptsz(s: Stream, context: Out<Context>) = cuStreamGetCtx(s.per_thread(), context);
    fn cuStreamGetCtx_v2_ptsz(s: Stream, context: Out<Context>, green: Out<*const c_void>)
        = cuStreamGetCtx_v2(s.per_thread(), context, green);
    fn cuLaunchHostFunc_ptsz(s: Stream, f: Option<unsafe extern "C" fn(*mut c_void)>, argument: *mut c_void)
        = cuLaunchHostFunc(s.per_thread(), f, argument);
    fn cuStreamAddCallback_ptsz(
        s: Stream, f: Option<unsafe extern "C" fn(Stream, c_int, *mut c_void)>, argument: *mut c_void, flags: c_uint,
    ) = cuStreamAddCallback(s.per_thread(), f, argument, flags);
}
