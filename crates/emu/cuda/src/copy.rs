//! Copies and memsets.
//!
//! Unified addressing: where the bytes are decides what a copy is. An end that a name (`HtoD`, …) or a memory type calls
//! device memory must be memory the driver knows; any other address is pageable host memory. Without a stream a copy is on the
//! legacy NULL stream, or, in the `_ptds` twins, on the thread's own; whether the host waits, `Call::copy` says.

use std::ffi::{c_uint, c_void};

use deepum_core::units::{Bytes, DevAddr};
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::machine::{Call, Cost, machine};
use deepum_emu_device::memory::Return;
use deepum_emu_device::space::Kind;
use deepum_emu_device::work::{Copy, Direction, Fill};

use crate::current;
use crate::edge::{In, addr, api, size, twins};
use crate::handle::{Context, Stream};

/// Which ends of a copy are said to be device memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Said {
    dst: bool,
    src: bool,
}

/// Nothing is said: `cuMemcpy`, and peers, whose ends are told by address.
const UNSAID: Said = Said { dst: false, src: false };
const TO_DEVICE: Said = Said { dst: true, src: false };
const TO_HOST: Said = Said { dst: false, src: true };
const ON_DEVICE: Said = Said { dst: true, src: true };

/// One linear copy.
fn linear(dst: u64, src: u64, bytes: usize, said: Said, stream: Stream, when: Return) -> CuResult {
    let n = bytes as u64;
    copies(&[pitched((dst, n), (src, n), n, 1)], said, stream, when)
}

fn pitched(dst: (u64, u64), src: (u64, u64), width: u64, height: u64) -> Copy {
    Copy {
        dst: DevAddr(dst.0),
        dst_pitch: dst.1,
        src: DevAddr(src.0),
        src_pitch: src.1,
        width,
        height,
        direction: Direction::OnHost,
        staged: None,
    }
}

/// Device memory is where it is said to be.
fn said_rightly(call: &Call<'_>, copies: &[Copy], said: Said) -> CuResult {
    let unknown = |addr| call.state.space.find(addr).is_none();
    let wrong = |copy: &Copy| said.dst && unknown(copy.dst) || said.src && unknown(copy.src);
    let some = copies.iter().filter(|copy| copy.bytes() > Bytes::ZERO);
    if some.clone().any(wrong) { Err(CuError::InvalidValue) } else { Ok(()) }
}

/// Queues copies, all in one call of the program's.
fn copies(copies: &[Copy], said: Said, stream: Stream, when: Return) -> CuResult {
    machine()?.call(Cost::Call, |call| {
        let stream = current::stream(call, stream)?;
        said_rightly(call, copies, said)?;
        if when == Return::Late {
            call.may_wait(stream)?;
        }
        copies.iter().try_for_each(|copy| call.copy(stream, copy.clone(), when))
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

fn fill(fill: Fill, stream: Stream, when: Return) -> CuResult {
    machine()?.call(Cost::Call, |call| {
        let stream = current::stream(call, stream)?;
        if when == Return::Late {
            call.may_wait(stream)?;
        }
        call.fill(stream, fill)?;
        // A memset of device memory is asynchronous even without a stream (CUDA driver API, "API synchronization
        // behavior"); of anything else it is not.
        let device_memory = call.state.space.find(fill.dst).is_some_and(|a| a.kind.is_of_device());
        if when == Return::Late && !device_memory { call.synchronize_stream(stream) } else { Ok(()) }
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

/// Where an end of a copy is, and whether that is said to be device memory; arrays are refused, as nothing makes them.
fn base(kind: c_uint, host: *const c_void, device: u64) -> CuResult<(u64, bool)> {
    match kind {
        1 => Ok((addr(host).0, false)),
        2 => Ok((device, true)),
        3 => Err(CuError::NotSupported),
        4 => Ok((device, false)),
        _ => Err(CuError::InvalidValue),
    }
}

/// `base` and what lies before the first byte: counts and what one of each takes.
fn at(base: u64, parts: &[(usize, usize)]) -> CuResult<u64> {
    let sum = parts.iter().try_fold(base, |sum, (n, unit)| sum.checked_add(n.checked_mul(*unit)? as u64));
    sum.ok_or(CuError::InvalidValue)
}

fn copy_2d(given: In<Copy2d>, stream: Stream, when: Return) -> CuResult {
    let c = given.get()?;
    let end = |e: &End2d| -> CuResult<((u64, u64), bool)> {
        // A pitch of 0 stands for rows without gaps in a copy of one row.
        let pitch = if e.pitch == 0 { c.width } else { e.pitch };
        if pitch < c.width.saturating_add(e.x) && c.height > 1 {
            return Err(CuError::InvalidValue);
        }
        let (base, said) = base(e.kind, e.host, e.device)?;
        Ok(((at(base, &[(e.x, 1), (e.y, pitch)])?, pitch as u64), said))
    };
    let ((dst, to), (src, from)) = (end(&c.dst)?, end(&c.src)?);
    let copy = pitched(dst, src, c.width as u64, c.height as u64);
    copies(&[copy], Said { dst: to, src: from }, stream, when)
}

/// The copies that a box is, a layer each.
fn layers(c: &Copy3d) -> CuResult<(Vec<Copy>, Said)> {
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
        let (base, _) = base(e.kind, e.host, e.device)?;
        Ok((at(base, &[(e.x, 1), (e.y, pitch), (e.z, plane), (slice, plane)])?, pitch as u64))
    };
    let slice = |n| Ok(pitched(end(&c.dst, n)?, end(&c.src, n)?, c.width as u64, c.height as u64));
    let slices: Vec<Copy> = (0..c.depth).map(slice).collect::<CuResult<_>>()?;
    let said = |e: &End3d| base(e.kind, e.host, e.device).map(|(_, said)| said);
    Ok((slices, Said { dst: said(&c.dst)?, src: said(&c.src)? }))
}

fn copy_3d(given: In<Copy3d>, stream: Stream, when: Return) -> CuResult {
    let (slices, said) = layers(&given.get()?)?;
    copies(&slices, said, stream, when)
}

/// A box as a graph's node has it, of one layer: more are not supported.
pub fn of_node(call: &Call<'_>, given: &Copy3d) -> CuResult<Copy> {
    let (slices, said) = layers(given)?;
    said_rightly(call, &slices, said)?;
    match <[Copy; 1]>::try_from(slices) {
        Ok([one]) if one.bytes() > Bytes::ZERO => call.checked_copy(one),
        Ok(_) => Err(CuError::InvalidValue),
        Err(_) => Err(CuError::NotSupported),
    }
}

impl Copy3d {
    /// A node's copy as the program described it, or would have.
    pub fn of(call: &Call<'_>, copy: &Copy) -> Self {
        let end = |at: DevAddr, pitch: u64| {
            let known = call.state.space.find(at);
            let on_device = known.is_some_and(|found| found.kind.is_of_device() || found.kind == Kind::Managed);
            let (kind, host, device) = if on_device { (2, 0, at.0) } else { (1, at.0, 0) };
            let none = std::ptr::null();
            let (host, pitch) = (std::ptr::with_exposed_provenance(size(Bytes(host))), size(Bytes(pitch)));
            let rows = size(Bytes(copy.height));
            End3d { x: 0, y: 0, z: 0, lod: 0, kind, host, device, array: none, reserved: none, pitch, height: rows }
        };
        let (src, dst) = (end(copy.src, copy.src_pitch), end(copy.dst, copy.dst_pitch));
        Self { src, dst, width: size(Bytes(copy.width)), height: size(Bytes(copy.height)), depth: 1 }
    }
}

/// A copy between contexts, which must be active; where its ends are, their addresses say.
fn peer(dst: u64, to: Context, src: u64, from: Context, bytes: usize, stream: Stream, when: Return) -> CuResult {
    for context in [to, from] {
        let id = context.get().map_err(|_| CuError::InvalidContext)?;
        machine()?.look(|state| state.contexts.get(id).map(drop))?;
    }
    linear(dst, src, bytes, UNSAID, stream, when)
}

/// The four forms of each copy and memset: without a stream, on the legacy one or the thread's own; in stream order, where stream 0
/// is the legacy one or the thread's own.
macro_rules! forms {
    ($(fn $now:ident, fn $now_mine:ident, fn $queued:ident, fn $queued_mine:ident
        ($($arg:ident: $type:ty),*) = $does:ident($($given:expr),*);)*) => {
        api! {$(
            fn $now($($arg: $type),*) {
                $does($($given,)* Stream::LEGACY, Return::Late)
            }
            fn $now_mine($($arg: $type),*) {
                $does($($given,)* Stream::PER_THREAD, Return::Late)
            }
            fn $queued($($arg: $type,)* stream: Stream) {
                $does($($given,)* stream, Return::Early)
            }
            fn $queued_mine($($arg: $type,)* stream: Stream) {
                $does($($given,)* stream.per_thread(), Return::Early)
            }
        )*}
    };
}

forms! {
    fn cuMemcpy, fn cuMemcpy_ptds, fn cuMemcpyAsync, fn cuMemcpyAsync_ptsz
        (dst: u64, src: u64, bytes: usize) = linear(dst, src, bytes, UNSAID);
    fn cuMemcpyHtoD_v2, fn cuMemcpyHtoD_v2_ptds, fn cuMemcpyHtoDAsync_v2, fn cuMemcpyHtoDAsync_v2_ptsz
        (dst: u64, src: *const c_void, bytes: usize) = linear(dst, addr(src).0, bytes, TO_DEVICE);
    fn cuMemcpyDtoH_v2, fn cuMemcpyDtoH_v2_ptds, fn cuMemcpyDtoHAsync_v2, fn cuMemcpyDtoHAsync_v2_ptsz
        (dst: *mut c_void, src: u64, bytes: usize) = linear(addr(dst).0, src, bytes, TO_HOST);
    fn cuMemcpyDtoD_v2, fn cuMemcpyDtoD_v2_ptds, fn cuMemcpyDtoDAsync_v2, fn cuMemcpyDtoDAsync_v2_ptsz
        (dst: u64, src: u64, bytes: usize) = linear(dst, src, bytes, ON_DEVICE);
    fn cuMemcpyPeer, fn cuMemcpyPeer_ptds, fn cuMemcpyPeerAsync, fn cuMemcpyPeerAsync_ptsz
        (dst: u64, to: Context, src: u64, from: Context, bytes: usize) = peer(dst, to, src, from, bytes);
    fn cuMemcpy2D_v2, fn cuMemcpy2D_v2_ptds, fn cuMemcpy2DAsync_v2, fn cuMemcpy2DAsync_v2_ptsz
        (copy: In<Copy2d>) = copy_2d(copy);
    fn cuMemcpy3D_v2, fn cuMemcpy3D_v2_ptds, fn cuMemcpy3DAsync_v2, fn cuMemcpy3DAsync_v2_ptsz
        (copy: In<Copy3d>) = copy_3d(copy);

    fn cuMemsetD8_v2, fn cuMemsetD8_v2_ptds, fn cuMemsetD8Async, fn cuMemsetD8Async_ptsz
        (dst: u64, value: u8, n: usize) = fill(line(dst, 1, u32::from(value), n));
    fn cuMemsetD16_v2, fn cuMemsetD16_v2_ptds, fn cuMemsetD16Async, fn cuMemsetD16Async_ptsz
        (dst: u64, value: u16, n: usize) = fill(line(dst, 2, u32::from(value), n));
    fn cuMemsetD32_v2, fn cuMemsetD32_v2_ptds, fn cuMemsetD32Async, fn cuMemsetD32Async_ptsz
        (dst: u64, value: u32, n: usize) = fill(line(dst, 4, value, n));
    fn cuMemsetD2D8_v2, fn cuMemsetD2D8_v2_ptds, fn cuMemsetD2D8Async, fn cuMemsetD2D8Async_ptsz
        (dst: u64, pitch: usize, value: u8, width: usize, height: usize)
        = fill(area(dst, pitch, 1, u32::from(value), width, height));
    fn cuMemsetD2D16_v2, fn cuMemsetD2D16_v2_ptds, fn cuMemsetD2D16Async, fn cuMemsetD2D16Async_ptsz
        (dst: u64, pitch: usize, value: u16, width: usize, height: usize)
        = fill(area(dst, pitch, 2, u32::from(value), width, height));
    fn cuMemsetD2D32_v2, fn cuMemsetD2D32_v2_ptds, fn cuMemsetD2D32Async, fn cuMemsetD2D32Async_ptsz
        (dst: u64, pitch: usize, value: u32, width: usize, height: usize)
        = fill(area(dst, pitch, 4, value, width, height));
}

twins! {
    fn cuMemcpy2DUnaligned_v2(copy: In<Copy2d>) = cuMemcpy2D_v2(copy);
    fn cuMemcpy2DUnaligned_v2_ptds(copy: In<Copy2d>) = cuMemcpy2D_v2_ptds(copy);
}
