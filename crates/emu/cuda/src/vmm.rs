//! Virtual memory management, of one device's own memory. Exports to other processes are refused, not that a program asks for memory that could be
//! exported by a file descriptor: PyTorch always does.

use std::ffi::{c_int, c_uint, c_void};

use deepum_core::units::{Bytes, DevAddr, UmBlock};
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::machine::{Cost, machine};
use deepum_emu_device::space::Kind;

use crate::edge::{In, Out, api, range, size};
use crate::handle::Physical;
use crate::managed::Location;
use crate::pool::Access;

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    kind: c_int,
    handles: c_int,
    location: Location,
    meta: *const c_void,
    compression: u8,
    rdma: u8,
    usage: u16,
    reserved: [u8; 4],
}
const _: () = assert!(size_of::<Properties>() == 32);

impl Properties {
    /// Pinned memory of a device, plain but for a handle that may be a file descriptor.
    fn check(self) -> CuResult<deepum_core::units::DeviceId> {
        /// `CU_MEM_HANDLE_TYPE_FABRIC`, for which a machine needs IMEX channels (driver API reference, `cuMemCreate`).
        const FABRIC: c_int = 8;
        if self.handles == FABRIC {
            return Err(CuError::NotPermitted);
        }
        let plain = self.kind == 1 && matches!(self.handles, 0 | 1);
        if !plain || self.compression != 0 || self.rdma != 0 || self.usage != 0 {
            return Err(CuError::NotSupported);
        }
        self.location.device_alone()
    }
}

api! {
    fn cuMemGetAllocationGranularity(out: Out<usize>, properties: In<Properties>, option: c_int) {
        properties.get()?.check()?;
        // MINIMUM, RECOMMENDED.
        if !matches!(option, 0 | 1) {
            return Err(CuError::InvalidValue);
        }
        out.put(size(UmBlock::SIZE))
    }

    /// Where the program would like the addresses to be is a wish that is never met.
    fn cuMemAddressReserve(out: Out<u64>, bytes: usize, align: usize, _wish: u64, flags: u64) {
        if flags != 0 {
            return Err(CuError::InvalidValue);
        }
        out.put(machine()?.call(Cost::Call, |call| call.reserve(Bytes(bytes as u64), align as u64))?.0)
    }

    fn cuMemAddressFree(start: u64, bytes: usize) {
        machine()?.call(Cost::Call, |call| call.unreserve(range(start, bytes)))
    }

    fn cuMemCreate(out: Out<Physical>, bytes: usize, properties: In<Properties>, flags: u64) {
        let of = properties.get()?.check()?;
        if flags != 0 {
            return Err(CuError::InvalidValue);
        }
        let made = machine()?.call(Cost::Call, |call| call.make_physical(of, Bytes(bytes as u64)))?;
        out.put(Physical::of(made))
    }

    fn cuMemRelease(memory: Physical) {
        let id = memory.get().map_err(|_| CuError::InvalidValue)?;
        machine()?.call(Cost::Call, |call| call.release_physical(id))
    }

    fn cuMemMap(start: u64, bytes: usize, offset: usize, memory: Physical, flags: u64) {
        let id = memory.get().map_err(|_| CuError::InvalidValue)?;
        if flags != 0 {
            return Err(CuError::InvalidValue);
        }
        machine()?.call(Cost::Call, |call| call.map_physical(range(start, bytes), Bytes(offset as u64), id))
    }

    fn cuMemUnmap(start: u64, bytes: usize) {
        machine()?.call(Cost::Call, |call| call.unmap_physical(range(start, bytes)))
    }

    fn cuMemSetAccess(start: u64, bytes: usize, asked: In<Access>, count: usize) {
        let asked = asked.array(count)?;
        machine()?.call(Cost::Call, |call| {
            call.open_mapped(range(start, bytes), |owner| asked.iter().try_for_each(|access| access.check(owner)))
        })
    }

    fn cuMemGetAccess(flags: Out<u64>, location: In<Location>, pointer: u64) {
        let location = location.get()?;
        let found = machine()?.look(|state| state.space.find(DevAddr(pointer)).copied().ok_or(CuError::InvalidValue))?;
        if found.kind != Kind::Mapped {
            return Err(CuError::InvalidValue);
        }
        let read_write: c_uint = 3;
        flags.put(if location.is_device(found.device)? { u64::from(read_write) } else { 0 })
    }
}
