//! Allocations: device, managed, pinned, registered; and what the driver says about a pointer.

use std::ffi::{c_int, c_uint, c_void};

use deepum_core::units::{Bytes, DevAddr};
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::machine::{Cost, machine};
use deepum_emu_device::pool::PoolId;
use deepum_emu_device::space::{Allocation, Kind};

use crate::current;
use crate::edge::{In, Out, addr, api, range, size, twins};
use crate::handle::{Context, MemoryPool};

/// An allocation, and the pool that handed it out.
type Found = (Allocation, Option<PoolId>);

/// `CU_MEMORYTYPE_HOST`, `CU_MEMORYTYPE_DEVICE`.
const HOST: u64 = 1;
const DEVICE: u64 = 2;
/// `CU_DEVICE_INVALID`.
const NO_DEVICE: c_int = -2;

fn allocate(kind: Kind, bytes: usize, flags: u32) -> CuResult<u64> {
    machine()?.call(Cost::Call, |call| {
        let device = current::device(call)?;
        call.permitted()?;
        let made = call.allocate(kind, device, Bytes(bytes as u64), flags)?;
        Ok(made.range.start.0)
    })
}

fn release(start: DevAddr, kinds: &[Kind]) -> CuResult {
    machine()?.call(Cost::Call, |call| {
        call.permitted()?;
        call.release(start, kinds)
    })
}

fn find(pointer: DevAddr) -> CuResult<Found> {
    machine()?.look(|state| state.allocation(pointer).ok_or(CuError::InvalidValue))
}

/// One pointer attribute (`CUpointer_attribute`).
fn attribute(number: c_int, pointer: u64, (found, pool): &Found) -> CuResult<u64> {
    let host = matches!(found.kind, Kind::Pinned | Kind::Registered);
    Ok(match number {
        1 => Context::of_device(found.device).0 as u64, // CONTEXT
        2 => {
            if host {
                HOST
            } else {
                DEVICE
            }
        } // MEMORY_TYPE
        3 => pointer,                                   // DEVICE_POINTER: unified addressing
        4 if found.kind.is_of_device() => return Err(CuError::InvalidValue),
        4 => pointer,                                               // HOST_POINTER
        7 | 20 => found.id,                                         // BUFFER_ID, MEMORY_BLOCK_ID
        8 => u64::from(found.kind == Kind::Managed),                // IS_MANAGED
        9 => u64::from(found.device.0),                             // DEVICE_ORDINAL
        11 | 19 => found.range.start.0,                             // RANGE_START_ADDR, MAPPING_BASE_ADDR
        12 | 18 => found.range.len.0,                               // RANGE_SIZE, MAPPING_SIZE
        13 => 1,                                                    // MAPPED
        16 => 3,                                                    // ACCESS_FLAGS: read and write
        17 => pool.map_or(0, |pool| MemoryPool::of(pool).0 as u64), // MEMPOOL_HANDLE
        10 => u64::from(found.kind == Kind::Device),                // IS_LEGACY_CUDA_IPC_CAPABLE
        // SYNC_MEMOPS, ALLOWED_HANDLE_TYPES, IS_GPU_DIRECT_RDMA_CAPABLE,
        // IS_HW_DECOMPRESS_CAPABLE: none of it.
        6 | 14 | 15 | 21 => 0,
        _ => return Err(CuError::InvalidValue),
    })
}

/// Stores an attribute as its documented type.
#[expect(clippy::cast_possible_truncation, reason = "these attributes are 32 bits wide")]
fn store(out: Out<c_void>, number: c_int, value: u64) -> CuResult {
    match number {
        1 | 3 | 4 | 7 | 11 | 12 | 14 | 17..=20 => out.cast::<u64>().put(value),
        _ => out.cast::<u32>().put(value as u32),
    }
}

api! {
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let (left, all) = machine()?.call(Cost::Call, |call| {
            let device = current::device(call)?;
            Ok(call.memory_info(device))
        })?;
        free.put(size(left))?;
        total.put(size(all))
    }

    fn cuMemAlloc_v2(out: Out<u64>, bytes: usize) {
        out.put(allocate(Kind::Device, bytes, 0)?)
    }

    fn cuMemAllocPitch_v2(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: c_uint) {
        if !matches!(element, 4 | 8 | 16) {
            return Err(CuError::InvalidValue);
        }
        // Rows start at multiples of TEXTURE_ALIGNMENT.
        let row = width.checked_next_multiple_of(512).ok_or(CuError::InvalidValue)?;
        let bytes = row.checked_mul(height).ok_or(CuError::InvalidValue)?;
        out.put(allocate(Kind::Device, bytes, 0)?)?;
        pitch.put(row)
    }

    fn cuMemAllocManaged(out: Out<u64>, bytes: usize, flags: c_uint) {
        // CU_MEM_ATTACH_GLOBAL or CU_MEM_ATTACH_HOST.
        if !matches!(flags, 1 | 2) {
            return Err(CuError::InvalidValue);
        }
        out.put(allocate(Kind::Managed, bytes, flags)?)
    }

    fn cuMemFree_v2(pointer: u64) {
        if pointer == 0 {
            machine()?;
            return Ok(());
        }
        // Memory of pools is freed without a wait: the program vouches that nobody uses it (driver API reference).
        machine()?.call(Cost::Call, |call| {
            call.permitted()?;
            match call.free_to_pool(DevAddr(pointer), None)? {
                Some(()) => Ok(()),
                None => call.release(DevAddr(pointer), &[Kind::Device, Kind::Managed]),
            }
        })
    }

    fn cuMemGetAddressRange_v2(base: Out<u64>, len: Out<usize>, pointer: u64) {
        let (found, _) = find(DevAddr(pointer)).map_err(|_| CuError::NotFound)?;
        base.offer(found.range.start.0);
        len.offer(size(found.range.len));
        Ok(())
    }

    fn cuMemAllocHost_v2(out: Out<u64>, bytes: usize) {
        out.put(allocate(Kind::Pinned, bytes, 0)?)
    }

    fn cuMemHostAlloc(out: Out<u64>, bytes: usize, flags: c_uint) {
        // PORTABLE, DEVICEMAP, WRITECOMBINED.
        if flags & !7 != 0 {
            return Err(CuError::InvalidValue);
        }
        out.put(allocate(Kind::Pinned, bytes, flags)?)
    }

    fn cuMemFreeHost(pointer: *mut c_void) {
        release(addr(pointer), &[Kind::Pinned])
    }

    fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint) {
        // PORTABLE, DEVICEMAP, IOMEMORY, READ_ONLY. There is no foreign device whose registers could be mapped.
        match flags {
            _ if flags & !15 != 0 => return Err(CuError::InvalidValue),
            _ if flags & 4 != 0 => return Err(CuError::NotSupported),
            _ => {}
        }
        machine()?.call(Cost::Call, |call| {
            let device = current::device(call)?;
            call.permitted()?;
            call.state.space.register(device, range(addr(pointer).0, bytes), flags).map(drop)
        })
    }

    fn cuMemHostUnregister(pointer: *mut c_void) {
        release(addr(pointer), &[Kind::Registered]).map_err(|e| match e {
            CuError::InvalidValue => CuError::HostMemoryNotRegistered,
            other => other,
        })
    }

    fn cuMemHostGetDevicePointer_v2(out: Out<u64>, pointer: *mut c_void, flags: c_uint) {
        let (found, _) = find(addr(pointer))?;
        if flags != 0 || !matches!(found.kind, Kind::Pinned | Kind::Registered) {
            return Err(CuError::InvalidValue);
        }
        out.put(addr(pointer).0)
    }

    fn cuMemHostGetFlags(flags: Out<c_uint>, pointer: *mut c_void) {
        let (found, _) = find(addr(pointer))?;
        if !matches!(found.kind, Kind::Pinned | Kind::Registered) {
            return Err(CuError::InvalidValue);
        }
        flags.put(found.flags)
    }

    fn cuPointerGetAttribute(out: Out<c_void>, number: c_int, pointer: u64) {
        store(out, number, attribute(number, pointer, &find(DevAddr(pointer))?)?)
    }

    /// Unlike the single query, a pointer the driver does not know is no error: everything is zero, and the device is none.
    fn cuPointerGetAttributes(count: c_uint, numbers: In<c_int>, outs: In<Out<c_void>>, pointer: u64) {
        let found = find(DevAddr(pointer));
        for n in 0..count as usize {
            let (number, out) = (numbers.nth(n)?, outs.nth(n)?);
            let none = match number {
                9 => u64::from(NO_DEVICE.cast_unsigned()),
                1..=4 | 6..=21 => 0,
                _ => return Err(CuError::InvalidValue),
            };
            store(out, number, found.and_then(|found| attribute(number, pointer, &found)).unwrap_or(none))?;
        }
        Ok(())
    }

    /// The only attribute that can be set asks for synchronous memory operations, which these are not.
    fn cuPointerSetAttribute(value: In<u32>, number: c_int, pointer: u64) {
        find(DevAddr(pointer))?;
        match (number, value.get()?) {
            (6, 0) => Ok(()),
            (6, _) => Err(CuError::NotSupported),
            _ => Err(CuError::InvalidValue),
        }
    }
}

twins! {
    fn cuMemHostRegister(pointer: *mut c_void, bytes: usize, flags: c_uint) = cuMemHostRegister_v2(pointer, bytes, flags);
}
