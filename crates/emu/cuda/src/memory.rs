//! Allocations: device, managed, pinned, registered; and what the driver says about a pointer.

use std::ffi::{c_int, c_uint, c_void};

use deepum_core::units::{Bytes, DevAddr};
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::machine::{Cost, machine};
use deepum_emu_device::space::{Allocation, Kind};

use crate::current;
use crate::edge::{In, Out, addr, api, range, size, twins};
use crate::handle::Context;

/// `CU_MEMORYTYPE_HOST`, `CU_MEMORYTYPE_DEVICE`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

fn allocate(kind: Kind, bytes: usize, flags: u32) -> CuResult<u64> {
    machine()?.call(Cost::Call, |call| {
        let device = current::device(call)?;
        let made = call.allocate(kind, device, Bytes(bytes as u64), flags)?;
        Ok(made.range.start.0)
    })
}

fn release(start: DevAddr, kinds: &[Kind]) -> CuResult {
    machine()?.call(Cost::Call, |call| call.release(start, kinds))
}

fn find(pointer: DevAddr) -> CuResult<Allocation> {
    machine()?.look(|state| state.space.find(pointer).copied().ok_or(CuError::InvalidValue))
}

/// One pointer attribute, stored as its documented type.
fn attribute(out: *mut c_void, number: c_int, pointer: u64, found: &Allocation) -> CuResult {
    let host = matches!(found.kind, Kind::Pinned | Kind::Registered);
    let word = |value: u64| unsafe_out::<u64>(out).put(value);
    let number32 = |value: u32| unsafe_out::<u32>(out).put(value);
    match number {
        1 => {
            let context = machine()?.look(|state| state.contexts.primary(found.device))?;
            unsafe_out::<Context>(out).put(Context::of(context)) // CONTEXT
        }
        2 => number32(if host { HOST } else { DEVICE }), // MEMORY_TYPE
        3 => word(pointer),                              // DEVICE_POINTER: unified addressing
        4 if found.kind == Kind::Device => Err(CuError::InvalidValue),
        4 => word(pointer),                                    // HOST_POINTER
        6 => number32(0),                                      // SYNC_MEMOPS
        7 => word(found.id),                                   // BUFFER_ID
        8 => number32(u32::from(found.kind == Kind::Managed)), // IS_MANAGED
        9 => number32(u32::from(found.device.0)),              // DEVICE_ORDINAL
        10 => number32(0),                                     // IS_LEGACY_CUDA_IPC_CAPABLE: IPC is refused
        11 | 19 => word(found.range.start.0),                  // RANGE_START_ADDR, MAPPING_BASE_ADDR
        12 | 18 => word(found.range.len.0),                    // RANGE_SIZE, MAPPING_SIZE
        13 => number32(1),                                     // MAPPED
        14 => word(0),                                         // ALLOWED_HANDLE_TYPES
        15 => number32(0),                                     // IS_GPU_DIRECT_RDMA_CAPABLE
        16 => number32(3),                                     // ACCESS_FLAGS: read and write
        17 => word(0),                                         // MEMPOOL_HANDLE
        20 => word(found.id),                                  // MEMORY_BLOCK_ID
        21 => number32(0),                                     // IS_HW_DECOMPRESS_CAPABLE
        _ => Err(CuError::InvalidValue),
    }
}

/// The place behind a `void *` of a documented type.
fn unsafe_out<T>(pointer: *mut c_void) -> Out<T> {
    // SAFETY: Out is a transparent pointer; which type it points to is documented for the attribute that was asked for.
    unsafe { std::mem::transmute::<*mut c_void, Out<T>>(pointer) }
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
        release(DevAddr(pointer), &[Kind::Device, Kind::Managed])
    }

    fn cuMemGetAddressRange_v2(base: Out<u64>, len: Out<usize>, pointer: u64) {
        let found = find(DevAddr(pointer)).map_err(|_| CuError::NotFound)?;
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
        // PORTABLE, DEVICEMAP, IOMEMORY, READ_ONLY.
        if flags & !15 != 0 {
            return Err(CuError::InvalidValue);
        }
        machine()?.call(Cost::Call, |call| {
            let device = current::device(call)?;
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
        let found = find(addr(pointer))?;
        if flags != 0 || !matches!(found.kind, Kind::Pinned | Kind::Registered) {
            return Err(CuError::InvalidValue);
        }
        out.put(addr(pointer).0)
    }

    fn cuMemHostGetFlags(flags: Out<c_uint>, pointer: *mut c_void) {
        let found = find(addr(pointer))?;
        if !matches!(found.kind, Kind::Pinned | Kind::Registered) {
            return Err(CuError::InvalidValue);
        }
        flags.put(found.flags)
    }

    fn cuPointerGetAttribute(out: *mut c_void, number: c_int, pointer: u64) {
        attribute(out, number, pointer, &find(DevAddr(pointer))?)
    }

    /// Unlike the single query, a pointer the driver does not know is no error: everything is zero.
    fn cuPointerGetAttributes(count: c_uint, numbers: In<c_int>, outs: In<*mut c_void>, pointer: u64) {
        let found = find(DevAddr(pointer));
        for n in 0..count as usize {
            let (number, out) = (numbers.nth(n)?, outs.nth(n)?);
            let stored = found.and_then(|found| attribute(out, number, pointer, &found));
            if stored.is_err() {
                match number {
                    1 | 3 | 4 | 7 | 11 | 12 | 14 | 17..=20 => unsafe_out::<u64>(out).put(0)?,
                    9 => unsafe_out::<c_int>(out).put(-2)?, // CU_DEVICE_INVALID
                    2 | 6 | 8 | 10 | 13 | 15 | 16 | 21 => unsafe_out::<u32>(out).put(0)?,
                    _ => return Err(CuError::InvalidValue),
                }
            }
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
