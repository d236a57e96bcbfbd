//! Virtual memory management, of one device's own memory. Memory goes to other processes by a file descriptor, in no other way.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd};

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

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const FILE: c_int = 1;

impl Properties {
    /// Pinned memory of a device, plain but for a handle that may be a file descriptor.
    fn check(self) -> CuResult<deepum_core::units::DeviceId> {
        /// `CU_MEM_HANDLE_TYPE_FABRIC`, for which a machine needs IMEX channels (driver API reference, `cuMemCreate`).
        const FABRIC: c_int = 8;
        if self.handles == FABRIC {
            return Err(CuError::NotPermitted);
        }
        let plain = self.kind == 1 && matches!(self.handles, 0 | FILE);
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

    fn cuMemAddressReserve(out: Out<u64>, bytes: usize, align: usize, wish: u64, flags: u64) {
        if flags != 0 {
            return Err(CuError::InvalidValue);
        }
        let wish = Some(DevAddr(wish)).filter(|wish| wish.0 != 0);
        out.put(machine()?.call(Cost::Call, |call| call.reserve(Bytes(bytes as u64), align as u64, wish))?.0)
    }

    fn cuMemAddressFree(start: u64, bytes: usize) {
        machine()?.call(Cost::Call, |call| call.unreserve(range(start, bytes)))
    }

    fn cuMemCreate(out: Out<Physical>, bytes: usize, properties: In<Properties>, flags: u64) {
        let properties = properties.get()?;
        let of = properties.check()?;
        if flags != 0 {
            return Err(CuError::InvalidValue);
        }
        let exportable = properties.handles == FILE;
        let made = machine()?.call(Cost::Call, |call| call.make_physical(of, Bytes(bytes as u64), exportable))?;
        out.put(Physical::of(made))
    }

    fn cuMemExportToShareableHandle(out: Out<c_int>, memory: Physical, kind: c_int, flags: u64) {
        let id = memory.get().map_err(|_| CuError::InvalidValue)?;
        if flags != 0 || out.is_none() {
            return Err(CuError::InvalidValue);
        }
        if kind != FILE {
            return Err(CuError::NotSupported);
        }
        // Asked for by threads that no turn of the program's decides, so it takes no time.
        out.put(machine()?.call(Cost::Free, |call| call.export_physical(id))?.into_raw_fd())
    }

    /// The descriptor is in the place of a pointer.
    fn cuMemImportFromShareableHandle(out: Out<Physical>, shared: *mut c_void, kind: c_int) {
        let file = c_int::try_from(shared as usize).ok().filter(|&file| file >= 0).ok_or(CuError::InvalidValue)?;
        if kind != FILE {
            return Err(CuError::NotSupported);
        }
        // SAFETY: a number that is not negative; whether it is an open descriptor, and of what, is looked at, and the program promises not
        // to close it during the call.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        out.put(Physical::of(machine()?.call(Cost::Call, |call| call.import_physical(file))?))
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
