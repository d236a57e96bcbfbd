//! Copies and memsets.
//!
//! Unified addressing: the kind in a name (`HtoD`, …) is a hint, where the bytes are decides. Without a stream a copy is
//! done when the call returns; on the legacy NULL stream, or, in the `_ptds` twins, on the thread's own.

use std::ffi::{c_uint, c_void};

use deepum_core::units::DevAddr;
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::machine::{Cost, machine};
use deepum_emu_device::memory::Return;
use deepum_emu_device::space::Kind;
use deepum_emu_device::work::{Copy, Direction, Fill};

use crate::current;
use crate::edge::{In, addr, api, twins};
use crate::handle::{Context, Stream};

/// One linear copy.
fn linear(dst: u64, src: u64, bytes: usize, stream: Stream, when: Return) -> CuResult {
    let n = bytes as u64;
    pitched((dst, n), (src, n), n, 1, stream, when)
}

fn pitched(dst: (u64, u64), src: (u64, u64), width: u64, height: u64, stream: Stream, when: Return) -> CuResult {
    let copy = Copy {
        dst: DevAddr(dst.0),
        dst_pitch: dst.1,
        src: DevAddr(src.0),
        src_pitch: src.1,
        width,
        height,
        direction: Direction::OnHost,
        staged: None,
    };
    machine()?.call(Cost::Call, |call| {
        let stream = current::stream(call, stream)?;
        call.copy(stream, copy, when)
    })
}

/// `n` patterns of `unit` bytes.
fn line(dst: u64, unit: u8, value: u32, n: usize) -> Fill {
    area(dst, 0, unit, value, n, 1)
}

/// `height` rows of `n` patterns.
fn area(dst: u64, pitch: usize, unit: u8, value: u32, n: usize, height: usize) -> Fill {
    let width = (n as u64).saturating_mul(u64::from(unit));
    Fill { dst: DevAddr(dst), pitch: pitch as u64, width, height: height as u64, value, unit }
}

fn fill(fill: Fill, stream: Stream, wait: bool) -> CuResult {
    let crosses = fill.height > 1 && fill.pitch < fill.width;
    if crosses || !fill.dst.0.is_multiple_of(u64::from(fill.unit)) {
        return Err(CuError::InvalidValue);
    }
    machine()?.call(Cost::Call, |call| {
        let stream = current::stream(call, stream)?;
        call.fill(stream, fill)?;
        // A memset of device memory is asynchronous even without a stream (CUDA driver API, "API synchronization
        // behavior"); of anything else it is not.
        let device_memory = call.state.space.find(fill.dst).is_some_and(|a| a.kind == Kind::Device);
        if wait && !device_memory { call.synchronize_stream(stream) } else { Ok(()) }
    })
}

/// `CUDA_MEMCPY2D_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Copy2d {
    src: End2d,
    dst: End2d,
    width: usize,
    height: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct End2d {
    x: usize,
    y: usize,
    kind: c_uint,
    host: *const c_void,
    device: u64,
    array: *const c_void,
    pitch: usize,
}
const _: () = assert!(size_of::<Copy2d>() == 128);

/// `CUDA_MEMCPY3D_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Copy3d {
    src: End3d,
    dst: End3d,
    width: usize,
    height: usize,
    depth: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct End3d {
    x: usize,
    y: usize,
    z: usize,
    lod: usize,
    kind: c_uint,
    host: *const c_void,
    device: u64,
    array: *const c_void,
    reserved: *const c_void,
    pitch: usize,
    height: usize,
}
const _: () = assert!(size_of::<Copy3d>() == 200);

/// Where an end of a copy is; arrays are refused, as nothing makes them.
fn base(kind: c_uint, host: *const c_void, device: u64) -> CuResult<u64> {
    match kind {
        1 => Ok(addr(host).0),
        2 | 4 => Ok(device),
        3 => Err(CuError::NotSupported),
        _ => Err(CuError::InvalidValue),
    }
}

fn offset(parts: &[(usize, usize)]) -> CuResult<u64> {
    let sum = parts.iter().try_fold(0usize, |sum, (n, unit)| sum.checked_add(n.checked_mul(*unit)?));
    sum.map(|n| n as u64).ok_or(CuError::InvalidValue)
}

fn copy_2d(given: In<Copy2d>, stream: Stream, when: Return) -> CuResult {
    let c = given.get()?;
    let end = |e: &End2d| -> CuResult<(u64, u64)> {
        // A pitch of 0 stands for rows without gaps in a copy of one row.
        let pitch = if e.pitch == 0 { c.width } else { e.pitch };
        if pitch < c.width.saturating_add(e.x) && c.height > 1 {
            return Err(CuError::InvalidValue);
        }
        Ok((base(e.kind, e.host, e.device)? + offset(&[(e.x, 1), (e.y, pitch)])?, pitch as u64))
    };
    pitched(end(&c.dst)?, end(&c.src)?, c.width as u64, c.height as u64, stream, when)
}

fn copy_3d(given: In<Copy3d>, stream: Stream, when: Return) -> CuResult {
    let c = given.get()?;
    if c.src.lod != 0 || c.dst.lod != 0 {
        return Err(CuError::InvalidValue);
    }
    let end = |e: &End3d, slice: usize| -> CuResult<(u64, u64)> {
        let pitch = if e.pitch == 0 { c.width } else { e.pitch };
        let rows = if e.height == 0 { c.height } else { e.height };
        if pitch < c.width || rows < c.height {
            return Err(CuError::InvalidValue);
        }
        let plane = pitch.checked_mul(rows).ok_or(CuError::InvalidValue)?;
        let from = offset(&[(e.x, 1), (e.y, pitch), (e.z, plane), (slice, plane)])?;
        Ok((base(e.kind, e.host, e.device)? + from, pitch as u64))
    };
    (0..c.depth).try_for_each(|slice| {
        pitched(end(&c.dst, slice)?, end(&c.src, slice)?, c.width as u64, c.height as u64, stream, when)
    })
}

fn same_machine(contexts: [Context; 2]) -> CuResult {
    contexts.iter().try_for_each(|c| c.get().map(drop).map_err(|_| CuError::InvalidContext))
}

macro_rules! copies {
    ($($(#[doc = $doc:literal])* fn $name:ident($dst:ident: $dst_type:ty, $src:ident: $src_type:ty, bytes: usize, stream: Stream)
        = $to:expr, $from:expr;)*) => {
        api! {$(
            $(#[doc = $doc])*
            fn $name($dst: $dst_type, $src: $src_type, bytes: usize, stream: Stream) {
                linear($to, $from, bytes, stream, Return::Early)
            }
        )*}
    };
}

copies! {
    fn cuMemcpyAsync(dst: u64, src: u64, bytes: usize, stream: Stream) = dst, src;
    fn cuMemcpyHtoDAsync_v2(dst: u64, src: *const c_void, bytes: usize, stream: Stream) = dst, addr(src).0;
    fn cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: u64, bytes: usize, stream: Stream) = addr(dst).0, src;
    fn cuMemcpyDtoDAsync_v2(dst: u64, src: u64, bytes: usize, stream: Stream) = dst, src;
}

api! {
    fn cuMemcpy(dst: u64, src: u64, bytes: usize) {
        linear(dst, src, bytes, Stream::LEGACY, Return::Late)
    }
    fn cuMemcpy_ptds(dst: u64, src: u64, bytes: usize) {
        linear(dst, src, bytes, Stream::PER_THREAD, Return::Late)
    }
    fn cuMemcpyHtoD_v2(dst: u64, src: *const c_void, bytes: usize) {
        linear(dst, addr(src).0, bytes, Stream::LEGACY, Return::Late)
    }
    fn cuMemcpyHtoD_v2_ptds(dst: u64, src: *const c_void, bytes: usize) {
        linear(dst, addr(src).0, bytes, Stream::PER_THREAD, Return::Late)
    }
    fn cuMemcpyDtoH_v2(dst: *mut c_void, src: u64, bytes: usize) {
        linear(addr(dst).0, src, bytes, Stream::LEGACY, Return::Late)
    }
    fn cuMemcpyDtoH_v2_ptds(dst: *mut c_void, src: u64, bytes: usize) {
        linear(addr(dst).0, src, bytes, Stream::PER_THREAD, Return::Late)
    }
    /// Inside the device the host does not wait.
    fn cuMemcpyDtoD_v2(dst: u64, src: u64, bytes: usize) {
        linear(dst, src, bytes, Stream::LEGACY, Return::Early)
    }
    fn cuMemcpyDtoD_v2_ptds(dst: u64, src: u64, bytes: usize) {
        linear(dst, src, bytes, Stream::PER_THREAD, Return::Early)
    }
    fn cuMemcpyPeer(dst: u64, to: Context, src: u64, from: Context, bytes: usize) {
        same_machine([to, from])?;
        linear(dst, src, bytes, Stream::LEGACY, Return::Early)
    }
    fn cuMemcpyPeerAsync(dst: u64, to: Context, src: u64, from: Context, bytes: usize, stream: Stream) {
        same_machine([to, from])?;
        linear(dst, src, bytes, stream, Return::Early)
    }
    fn cuMemcpy2D_v2(copy: In<Copy2d>) {
        copy_2d(copy, Stream::LEGACY, Return::Late)
    }
    fn cuMemcpy2D_v2_ptds(copy: In<Copy2d>) {
        copy_2d(copy, Stream::PER_THREAD, Return::Late)
    }
    fn cuMemcpy2DAsync_v2(copy: In<Copy2d>, stream: Stream) {
        copy_2d(copy, stream, Return::Early)
    }
    fn cuMemcpy3D_v2(copy: In<Copy3d>) {
        copy_3d(copy, Stream::LEGACY, Return::Late)
    }
    fn cuMemcpy3D_v2_ptds(copy: In<Copy3d>) {
        copy_3d(copy, Stream::PER_THREAD, Return::Late)
    }
    fn cuMemcpy3DAsync_v2(copy: In<Copy3d>, stream: Stream) {
        copy_3d(copy, stream, Return::Early)
    }

    fn cuMemsetD8_v2(dst: u64, value: u8, n: usize) {
        fill(line(dst, 1, u32::from(value), n), Stream::LEGACY, true)
    }
    fn cuMemsetD8Async(dst: u64, value: u8, n: usize, stream: Stream) {
        fill(line(dst, 1, u32::from(value), n), stream, false)
    }
    fn cuMemsetD16_v2(dst: u64, value: u16, n: usize) {
        fill(line(dst, 2, u32::from(value), n), Stream::LEGACY, true)
    }
    fn cuMemsetD16Async(dst: u64, value: u16, n: usize, stream: Stream) {
        fill(line(dst, 2, u32::from(value), n), stream, false)
    }
    fn cuMemsetD32_v2(dst: u64, value: c_uint, n: usize) {
        fill(line(dst, 4, value, n), Stream::LEGACY, true)
    }
    fn cuMemsetD32Async(dst: u64, value: c_uint, n: usize, stream: Stream) {
        fill(line(dst, 4, value, n), stream, false)
    }
    fn cuMemsetD2D8_v2(dst: u64, pitch: usize, value: u8, width: usize, height: usize) {
        fill(area(dst, pitch, 1, u32::from(value), width, height), Stream::LEGACY, true)
    }
    fn cuMemsetD2D8Async(dst: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Stream) {
        fill(area(dst, pitch, 1, u32::from(value), width, height), stream, false)
    }
    fn cuMemsetD2D16_v2(dst: u64, pitch: usize, value: u16, width: usize, height: usize) {
        fill(area(dst, pitch, 2, u32::from(value), width, height), Stream::LEGACY, true)
    }
    fn cuMemsetD2D16Async(dst: u64, pitch: usize, value: u16, width: usize, height: usize, stream: Stream) {
        fill(area(dst, pitch, 2, u32::from(value), width, height), stream, false)
    }
    fn cuMemsetD2D32_v2(dst: u64, pitch: usize, value: c_uint, width: usize, height: usize) {
        fill(area(dst, pitch, 4, value, width, height), Stream::LEGACY, true)
    }
    fn cuMemsetD2D32Async(dst: u64, pitch: usize, value: c_uint, width: usize, height: usize, stream: Stream) {
        fill(area(dst, pitch, 4, value, width, height), stream, false)
    }
}

twins! {
    fn cuMemcpy2DUnaligned_v2(copy: In<Copy2d>) = cuMemcpy2D_v2(copy);
    fn cuMemcpy2DUnaligned_v2_ptds(copy: In<Copy2d>) = cuMemcpy2D_v2_ptds(copy);
    fn cuMemcpyAsync_ptsz(dst: u64, src: u64, n: usize, s: Stream) = cuMemcpyAsync(dst, src, n, s.per_thread());
    fn cuMemcpyHtoDAsync_v2_ptsz(dst: u64, src: *const c_void, n: usize, s: Stream)
        = cuMemcpyHtoDAsync_v2(dst, src, n, s.per_thread());
    fn cuMemcpyDtoHAsync_v2_ptsz(dst: *mut c_void, src: u64, n: usize, s: Stream)
        = cuMemcpyDtoHAsync_v2(dst, src, n, s.per_thread());
    fn cuMemcpyDtoDAsync_v2_ptsz(dst: u64, src: u64, n: usize, s: Stream)
        = cuMemcpyDtoDAsync_v2(dst, src, n, s.per_thread());
    fn cuMemcpyPeer_ptds(dst: u64, to: Context, src: u64, from: Context, n: usize)
        = cuMemcpyPeerAsync(dst, to, src, from, n, Stream::PER_THREAD);
    fn cuMemcpyPeerAsync_ptsz(dst: u64, to: Context, src: u64, from: Context, n: usize, s: Stream)
        = cuMemcpyPeerAsync(dst, to, src, from, n, s.per_thread());
    fn cuMemcpy2DAsync_v2_ptsz(copy: In<Copy2d>, s: Stream) = cuMemcpy2DAsync_v2(copy, s.per_thread());
    fn cuMemcpy3DAsync_v2_ptsz(copy: In<Copy3d>, s: Stream) = cuMemcpy3DAsync_v2(copy, s.per_thread());
    fn cuMemsetD8_v2_ptds(dst: u64, v: u8, n: usize) = cuMemsetD8Async(dst, v, n, Stream::PER_THREAD);
    fn cuMemsetD8Async_ptsz(dst: u64, v: u8, n: usize, s: Stream) = cuMemsetD8Async(dst, v, n, s.per_thread());
    fn cuMemsetD16Async_ptsz(dst: u64, v: u16, n: usize, s: Stream) = cuMemsetD16Async(dst, v, n, s.per_thread());
    fn cuMemsetD32Async_ptsz(dst: u64, v: c_uint, n: usize, s: Stream) = cuMemsetD32Async(dst, v, n, s.per_thread());
    fn cuMemsetD2D8_v2_ptds(dst: u64, pitch: usize, v: u8, w: usize, h: usize)
        = cuMemsetD2D8Async(dst, pitch, v, w, h, Stream::PER_THREAD);
    fn cuMemsetD2D8Async_ptsz(dst: u64, pitch: usize, v: u8, w: usize, h: usize, s: Stream)
        = cuMemsetD2D8Async(dst, pitch, v, w, h, s.per_thread());
}
