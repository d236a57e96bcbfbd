//! Events. Elapsed times are virtual.

use std::ffi::c_uint;

use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::machine::{Cost, machine};
use deepum_emu_device::run::Until;

use crate::current;
use crate::edge::{Out, api, twins};
use crate::handle::{Event, Stream};

/// `CU_EVENT_DISABLE_TIMING`, `CU_EVENT_INTERPROCESS`.
const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;

/// `CU_EVENT_RECORD_EXTERNAL`.
const EXTERNAL: c_uint = 1;

fn record(event: Event, stream: Stream, flags: c_uint) -> CuResult {
    let id = event.get()?;
    machine()?.call(Cost::Call, |call| {
        let stream = current::stream(call, stream)?;
        call.record(stream, id, flags & EXTERNAL != 0)
    })
}

api! {
    fn cuEventCreate(out: Out<Event>, flags: c_uint) {
        let shared = flags & INTERPROCESS != 0;
        // Other processes' events take no time (driver API reference, cuEventCreate).
        if flags > 7 || shared && flags & DISABLE_TIMING == 0 {
            return Err(CuError::InvalidValue);
        }
        let id = machine()?.call(Cost::Call, |call| {
            let device = current::device(call)?;
            Ok(call.state.events.create(device, flags & DISABLE_TIMING == 0, shared))
        })?;
        out.put(Event::of(id))
    }

    fn cuEventDestroy_v2(event: Event) {
        let id = event.get()?;
        machine()?.call(Cost::Call, |call| {
            call.state.captures.forget_event(id);
            call.state.events.destroy(id)
        })
    }

    fn cuEventRecord(event: Event, stream: Stream) {
        record(event, stream, 0)
    }

    fn cuEventRecordWithFlags(event: Event, stream: Stream, flags: c_uint) {
        if flags > EXTERNAL {
            return Err(CuError::InvalidValue);
        }
        record(event, stream, flags)
    }

    fn cuEventQuery(event: Event) {
        let id = event.get()?;
        machine()?.call(Cost::Call, |call| {
            call.may_wait_for_event(id)?;
            let mark = call.state.events.get(id)?.mark;
            if mark.is_none_or(|mark| call.state.streams.reached(mark)) { Ok(()) } else { Err(CuError::NotReady) }
        })
    }

    fn cuEventSynchronize(event: Event) {
        let id = event.get()?;
        machine()?.call(Cost::Call, |call| {
            call.may_wait_for_event(id)?;
            match call.state.events.get(id)?.mark {
                Some(mark) => call.run(Until::Reached(mark)).and_then(|()| call.trim_pools()),
                None => Ok(()),
            }
        })
    }

    fn cuEventElapsedTime(out: Out<f32>, start: Event, end: Event) {
        let (start, end) = (start.get()?, end.get()?);
        let nanos = machine()?.call(Cost::Call, |call| {
            call.may_wait_for_event(start)?;
            call.may_wait_for_event(end)?;
            let (a, b) = (call.state.events.get(start)?, call.state.events.get(end)?);
            let (Some(first), Some(last)) = (a.mark, b.mark) else { return Err(CuError::InvalidHandle) };
            if !a.timing || !b.timing || a.device != b.device {
                return Err(CuError::InvalidHandle);
            }
            if !call.state.streams.reached(first) || !call.state.streams.reached(last) {
                return Err(CuError::NotReady);
            }
            Ok(b.at.0 as f64 - a.at.0 as f64)
        })?;
        #[expect(clippy::cast_possible_truncation, reason = "the driver API answers single precision")]
        out.put((nanos / 1e6) as f32)
    }
}

twins! {
    fn cuEventRecord_ptsz(e: Event, s: Stream) = cuEventRecord(e, s.per_thread());
    fn cuEventRecordWithFlags_ptsz(e: Event, s: Stream, flags: c_uint) = cuEventRecordWithFlags(e, s.per_thread(), flags);
    fn cuEventElapsedTime_v2(out: Out<f32>, start: Event, end: Event) = cuEventElapsedTime(out, start, end);
}
