//! Stream memory operations: words that a stream writes or waits for.

use std::ffi::c_uint;

use deepum_core::units::DevAddr;
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::machine::{Call, Cost, machine};
use deepum_emu_device::work::{Condition, Work};

use crate::current;
use crate::edge::{In, api, twins};
use crate::handle::Stream;

/// What one operation asks for. Kinds are `CUstreamBatchMemOpType`.
#[derive(Clone, Copy, Debug)]
struct Asked {
    kind: c_uint,
    at: u64,
    value: u64,
    flags: c_uint,
}

const WAIT_32: c_uint = 1;
const WRITE_32: c_uint = 2;
const FLUSH: c_uint = 3;
const WAIT_64: c_uint = 4;
const WRITE_64: c_uint = 5;
const BARRIER: c_uint = 6;
const REDUCE: c_uint = 8;

/// `CU_STREAM_WAIT_VALUE_FLUSH`: orders writes of other devices. `CAN_FLUSH_REMOTE_WRITES` says that it is not there.
const WAIT_FLUSH: c_uint = 1 << 30;

impl Asked {
    /// The work it is; none for a barrier, as everything is in order already.
    fn work(self, call: &Call<'_>) -> CuResult<Option<Work>> {
        let Self { kind, at, value, flags } = self;
        let wide = matches!(kind, WAIT_64 | WRITE_64);
        let word = || call.word(DevAddr(at), if wide { value } else { value & 0xffff_ffff }, wide);
        Ok(Some(match kind {
            // NO_MEMORY_BARRIER permits a reordering and asks for none.
            WRITE_32 | WRITE_64 if flags <= 1 => Work::Write(word()?),
            WAIT_32 | WAIT_64 if flags & WAIT_FLUSH != 0 => return Err(CuError::NotSupported),
            WAIT_32 | WAIT_64 => {
                let conditions = [Condition::GreaterEqual, Condition::Equal, Condition::And, Condition::Nor];
                let condition = conditions.get(flags as usize).ok_or(CuError::InvalidValue)?;
                Work::Wait(word()?, *condition)
            }
            BARRIER => return Ok(None),
            FLUSH | REDUCE => return Err(CuError::NotSupported),
            _ => return Err(CuError::InvalidValue),
        }))
    }
}

/// Queues operations, all or none.
fn queue(stream: Stream, asked: &[Asked]) -> CuResult {
    machine()?.call(Cost::Call, |call| {
        let stream = current::stream(call, stream)?;
        let work: Vec<_> = asked.iter().map(|one| one.work(call)).collect::<CuResult<_>>()?;
        work.into_iter().flatten().try_for_each(|work| call.give(stream, work))
    })
}

/// `CUstreamBatchMemOpParams`, read as words: operation @0, address @8, value @16, flags @24.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    words: [u64; 6],
}

#[expect(clippy::cast_possible_truncation, reason = "these fields are 32 bits wide")]
fn low(word: u64) -> c_uint {
    word as c_uint
}

api! {
    fn cuStreamWriteValue32_v2(stream: Stream, at: u64, value: u32, flags: c_uint) {
        queue(stream, &[Asked { kind: WRITE_32, at, value: u64::from(value), flags }])
    }

    fn cuStreamWriteValue64_v2(stream: Stream, at: u64, value: u64, flags: c_uint) {
        queue(stream, &[Asked { kind: WRITE_64, at, value, flags }])
    }

    fn cuStreamWaitValue32_v2(stream: Stream, at: u64, value: u32, flags: c_uint) {
        queue(stream, &[Asked { kind: WAIT_32, at, value: u64::from(value), flags }])
    }

    fn cuStreamWaitValue64_v2(stream: Stream, at: u64, value: u64, flags: c_uint) {
        queue(stream, &[Asked { kind: WAIT_64, at, value, flags }])
    }

    fn cuStreamBatchMemOp_v2(stream: Stream, count: c_uint, operations: In<Operation>, flags: c_uint) {
        if flags != 0 || count > 256 {
            return Err(CuError::InvalidValue);
        }
        let operations = operations.array(count as usize)?.into_iter();
        let asked = operations.map(|Operation { words: [kind, at, value, flags, ..] }| {
            Asked { kind: low(kind), at, value, flags: low(flags) }
        });
        queue(stream, &asked.collect::<Vec<_>>())
    }
}

twins! {
    fn cuStreamWriteValue32(s: Stream, at: u64, value: u32, flags: c_uint) = cuStreamWriteValue32_v2(s, at, value, flags);
    fn cuStreamWriteValue64(s: Stream, at: u64, value: u64, flags: c_uint) = cuStreamWriteValue64_v2(s, at, value, flags);
    fn cuStreamWaitValue32(s: Stream, at: u64, value: u32, flags: c_uint) = cuStreamWaitValue32_v2(s, at, value, flags);
    fn cuStreamWaitValue64(s: Stream, at: u64, value: u64, flags: c_uint) = cuStreamWaitValue64_v2(s, at, value, flags);
    fn cuStreamBatchMemOp(s: Stream, n: c_uint, operations: In<Operation>, flags: c_uint)
        = cuStreamBatchMemOp_v2(s, n, operations, flags);
    fn cuStreamWriteValue32_v2_ptsz(s: Stream, at: u64, value: u32, flags: c_uint)
        = cuStreamWriteValue32_v2(s.per_thread(), at, value, flags);
    fn cuStreamWriteValue64_v2_ptsz(s: Stream, at: u64, value: u64, flags: c_uint)
        = cuStreamWriteValue64_v2(s.per_thread(), at, value, flags);
    fn cuStreamWaitValue32_v2_ptsz(s: Stream, at: u64, value: u32, flags: c_uint)
        = cuStreamWaitValue32_v2(s.per_thread(), at, value, flags);
    fn cuStreamWaitValue64_v2_ptsz(s: Stream, at: u64, value: u64, flags: c_uint)
        = cuStreamWaitValue64_v2(s.per_thread(), at, value, flags);
    fn cuStreamBatchMemOp_v2_ptsz(s: Stream, n: c_uint, operations: In<Operation>, flags: c_uint)
        = cuStreamBatchMemOp_v2(s.per_thread(), n, operations, flags);
}
