//! Stream memory operations: words that a stream writes or waits for.

use std::ffi::c_uint;

use deepum_core::units::DevAddr;
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::machine::{Cost, machine};
use deepum_emu_device::work::{Condition, Work};

use crate::current;
use crate::edge::{In, api, twins};
use crate::handle::Stream;

fn write(stream: Stream, at: u64, value: u64, flags: c_uint, wide: bool) -> CuResult {
    // NO_MEMORY_BARRIER permits a reordering and asks for none.
    if flags > 1 {
        return Err(CuError::InvalidValue);
    }
    machine()?.call(Cost::Call, |call| {
        let stream = current::stream(call, stream)?;
        let word = call.word(DevAddr(at), value, wide)?;
        call.queue(stream, &[], Work::Write(word)).map(drop)
    })
}

fn wait(stream: Stream, at: u64, value: u64, flags: c_uint, wide: bool) -> CuResult {
    // CU_STREAM_WAIT_VALUE_FLUSH orders remote writes, of which there are none.
    let condition = match flags & !(1 << 30) {
        0 => Condition::GreaterEqual,
        1 => Condition::Equal,
        2 => Condition::And,
        3 => Condition::Nor,
        _ => return Err(CuError::InvalidValue),
    };
    machine()?.call(Cost::Call, |call| {
        let stream = current::stream(call, stream)?;
        let word = call.word(DevAddr(at), value, wide)?;
        call.queue(stream, &[], Work::Wait(word, condition)).map(drop)
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
        write(stream, at, u64::from(value), flags, false)
    }

    fn cuStreamWriteValue64_v2(stream: Stream, at: u64, value: u64, flags: c_uint) {
        write(stream, at, value, flags, true)
    }

    fn cuStreamWaitValue32_v2(stream: Stream, at: u64, value: u32, flags: c_uint) {
        wait(stream, at, u64::from(value), flags, false)
    }

    fn cuStreamWaitValue64_v2(stream: Stream, at: u64, value: u64, flags: c_uint) {
        wait(stream, at, value, flags, true)
    }

    fn cuStreamBatchMemOp_v2(stream: Stream, count: c_uint, operations: In<Operation>, flags: c_uint) {
        if flags != 0 || count > 256 {
            return Err(CuError::InvalidValue);
        }
        for operation in operations.array(count as usize)? {
            let [kind, at, value, flags, ..] = operation.words;
            let flags = low(flags);
            match low(kind) {
                1 => wait(stream, at, u64::from(low(value)), flags, false)?,
                2 => write(stream, at, u64::from(low(value)), flags, false)?,
                4 => wait(stream, at, value, flags, true)?,
                5 => write(stream, at, value, flags, true)?,
                3 | 6 => {} // flush and barrier: everything is in order already
                8 => return Err(CuError::NotSupported),
                _ => return Err(CuError::InvalidValue),
            }
        }
        Ok(())
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
