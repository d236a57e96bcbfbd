//! Stream-ordered memory and its pools.
//!
//! Refused: pools whose memory other processes could import, and pools of anything but one device's own memory, which only that device
//! reaches: devices are no peers here.

use std::ffi::{c_int, c_uint, c_ushort, c_void};

use deepum_core::pool::Gauge;
use deepum_core::units::{Bytes, DevAddr, DeviceId};
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::machine::{Call, Cost, machine};
use deepum_emu_device::pool::PoolId;
use deepum_emu_device::space::Kind;
use deepum_emu_device::stream::StreamId;

use crate::current;
use crate::edge::{In, Out, api, twins};
use crate::handle::{MemoryPool, Stream};
use crate::init::device;
use crate::managed::Location;

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    allocation: c_int,
    handles: c_int,
    location: Location,
    security: *const c_void,
    max: usize,
    usage: c_ushort,
    reserved: [u8; 54],
}
const _: () = assert!(size_of::<Properties>() == 88);

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Access {
    location: Location,
    flags: c_int,
}
const _: () = assert!(size_of::<Access>() == 12);

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_NONE`, `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const NONE: c_int = 0;
const READ_WRITE: c_int = 3;

impl Access {
    /// What is asked for memory of `owner`: it is always reached by its own device, and never by others.
    pub fn check(self, owner: DeviceId) -> CuResult {
        let own = self.location.is_device(owner)?;
        match self.flags {
            READ_WRITE if own => Ok(()),
            NONE if !own => Ok(()),
            NONE | 1 | READ_WRITE => Err(CuError::NotSupported),
            _ => Err(CuError::InvalidValue),
        }
    }
}

/// The pool a handle means.
fn with_pool<R>(handle: MemoryPool, f: impl FnOnce(&mut Call<'_>, PoolId) -> CuResult<R>) -> CuResult<R> {
    let id = handle.get().map_err(|_| CuError::InvalidValue)?;
    machine()?.call(Cost::Call, |call| {
        call.state.pools.get(id)?;
        f(call, id)
    })
}

/// In a captured stream these calls would become nodes that allocate and free, which there are none of.
fn no_node(call: &mut Call<'_>, stream: StreamId) -> CuResult {
    if call.captures(stream)? { Err(CuError::NotSupported) } else { Ok(()) }
}

fn allocate(bytes: usize, pool: Option<MemoryPool>, stream: Stream) -> CuResult<u64> {
    let named = pool.map(|pool| pool.get().map_err(|_| CuError::InvalidValue)).transpose()?;
    machine()?.call(Cost::Call, |call| {
        let stream = current::stream(call, stream)?;
        no_node(call, stream)?;
        let of = call.state.streams.get(stream).ok_or(CuError::InvalidHandle)?.device;
        let pool = named.map_or_else(|| call.state.pools.current_of(of), Ok)?;
        Ok(call.allocate_from(pool, stream, Bytes(bytes as u64))?.0)
    })
}

/// One attribute (`CUmemPool_attribute`) as it is; nothing where it is 64 bits wide.
fn small_attribute(number: c_int, call: &mut Call<'_>, id: PoolId) -> CuResult<Option<c_int>> {
    let pool = call.state.pools.get(id)?;
    Ok(Some(match number {
        1 => c_int::from(pool.rules.follow_events),
        2 => c_int::from(pool.rules.opportunistic),
        3 => c_int::from(pool.rules.internal),
        9 => PINNED,
        10 => 0,                          // EXPORT_HANDLE_TYPES: none
        11 => c_int::from(pool.device.0), // LOCATION_ID
        12 => 1,                          // LOCATION_TYPE: a device
        14 => 0,                          // HW_DECOMPRESS_ENABLED
        _ => return Ok(None),
    }))
}

fn get_attribute(out: Out<c_void>, number: c_int, call: &mut Call<'_>, id: PoolId) -> CuResult {
    if let Some(value) = small_attribute(number, call, id)? {
        return out.cast::<c_int>().put(value);
    }
    let pool = call.state.pools.get(id)?;
    let [reserved, used] = pool.gauges().map(|gauge| *gauge);
    out.cast::<u64>().put(match number {
        4 => pool.rules.threshold.0,
        5 => reserved.now.0,
        6 => reserved.high.0,
        7 => used.now.0,
        8 => used.high.0,
        13 => pool.max.0,
        _ => return Err(CuError::InvalidValue),
    })
}

fn set_attribute(value: In<c_void>, number: c_int, call: &mut Call<'_>, id: PoolId) -> CuResult {
    let pool = call.state.pools.get(id)?;
    let reset = |gauge: &mut Gauge| match value.cast::<u64>().get()? {
        0 => {
            gauge.reset();
            Ok(())
        }
        _ => Err(CuError::InvalidValue),
    };
    let flag = || value.cast::<c_int>().get().map(|value| value != 0);
    match number {
        1 => pool.rules.follow_events = flag()?,
        2 => pool.rules.opportunistic = flag()?,
        3 => pool.rules.internal = flag()?,
        4 => pool.rules.threshold = Bytes(value.cast::<u64>().get()?),
        6 => reset(pool.gauges()[0])?,
        8 => reset(pool.gauges()[1])?,
        _ => return Err(CuError::InvalidValue),
    }
    Ok(())
}

api! {
    fn cuMemAllocAsync(out: Out<u64>, bytes: usize, stream: Stream) {
        out.put(allocate(bytes, None, stream)?)
    }

    fn cuMemAllocFromPoolAsync(out: Out<u64>, bytes: usize, pool: MemoryPool, stream: Stream) {
        out.put(allocate(bytes, Some(pool), stream)?)
    }

    /// Memory of no pool may be freed here, too; it waits as `cuMemFree` does.
    fn cuMemFreeAsync(pointer: u64, stream: Stream) {
        machine()?.call(Cost::Call, |call| {
            let stream = current::stream(call, stream)?;
            no_node(call, stream)?;
            match call.free_to_pool(DevAddr(pointer), Some(stream))? {
                Some(()) => Ok(()),
                None => call.release(DevAddr(pointer), &[Kind::Device, Kind::Managed]),
            }
        })
    }

    fn cuMemPoolCreate(out: Out<MemoryPool>, properties: In<Properties>) {
        let asked = properties.get()?;
        // Managed pools; exportable ones; memory that a decompression engine can use.
        if asked.allocation != PINNED || asked.handles != 0 || asked.usage != 0 {
            return Err(CuError::NotSupported);
        }
        if asked.reserved != [0; 54] {
            return Err(CuError::InvalidValue);
        }
        let owner = asked.location.device_alone()?;
        let pool = machine()?.call(Cost::Call, |call| Ok(call.state.pools.create(owner, Bytes(asked.max as u64))))?;
        out.put(MemoryPool::of(pool))
    }

    fn cuMemPoolDestroy(pool: MemoryPool) {
        with_pool(pool, |call, pool| call.destroy_pool(pool))
    }

    fn cuMemPoolTrimTo(pool: MemoryPool, keep: usize) {
        with_pool(pool, |call, pool| call.trim_pool(pool, Bytes(keep as u64)))
    }

    fn cuMemPoolSetAttribute(pool: MemoryPool, number: c_int, value: In<c_void>) {
        with_pool(pool, |call, pool| set_attribute(value, number, call, pool))
    }

    fn cuMemPoolGetAttribute(pool: MemoryPool, number: c_int, out: Out<c_void>) {
        with_pool(pool, |call, pool| get_attribute(out, number, call, pool))
    }

    fn cuMemPoolSetAccess(pool: MemoryPool, asked: In<Access>, count: usize) {
        let asked = asked.array(count)?;
        with_pool(pool, |call, pool| {
            let owner = call.state.pools.get(pool)?.device;
            asked.iter().try_for_each(|access| access.check(owner))
        })
    }

    fn cuMemPoolGetAccess(flags: Out<c_uint>, pool: MemoryPool, location: In<Location>) {
        let location = location.get()?;
        let own = with_pool(pool, |call, pool| location.is_device(call.state.pools.get(pool)?.device))?;
        flags.put(if own { READ_WRITE.cast_unsigned() } else { NONE.cast_unsigned() })
    }

    fn cuDeviceGetDefaultMemPool(out: Out<MemoryPool>, ordinal: c_int) {
        let of = device(ordinal)?;
        out.put(MemoryPool::of(machine()?.look(|state| state.pools.default_of(of))?))
    }

    fn cuDeviceGetMemPool(out: Out<MemoryPool>, ordinal: c_int) {
        let of = device(ordinal)?;
        out.put(MemoryPool::of(machine()?.look(|state| state.pools.current_of(of))?))
    }

    /// Memory that nodes of graphs allocate: there are no such nodes.
    fn cuDeviceGetGraphMemAttribute(ordinal: c_int, number: c_int, out: Out<u64>) {
        device(ordinal)?;
        if !(0..=3).contains(&number) {
            return Err(CuError::InvalidValue);
        }
        out.put(0)
    }

    /// Only what was the most can be set: to nothing, which it is.
    fn cuDeviceSetGraphMemAttribute(ordinal: c_int, number: c_int, value: In<u64>) {
        device(ordinal)?;
        if matches!(number, 1 | 3) && value.get()? == 0 { Ok(()) } else { Err(CuError::InvalidValue) }
    }

    fn cuDeviceSetMemPool(ordinal: c_int, pool: MemoryPool) {
        let of = device(ordinal)?;
        with_pool(pool, |call, pool| call.state.pools.set_current(of, pool))
    }
}

twins! {
    fn cuMemAllocAsync_ptsz(out: Out<u64>, bytes: usize, s: Stream) = cuMemAllocAsync(out, bytes, s.per_thread());
    fn cuMemAllocFromPoolAsync_ptsz(out: Out<u64>, bytes: usize, pool: MemoryPool, s: Stream)
        = cuMemAllocFromPoolAsync(out, bytes, pool, s.per_thread());
    fn cuMemFreeAsync_ptsz(pointer: u64, s: Stream) = cuMemFreeAsync(pointer, s.per_thread());
}
