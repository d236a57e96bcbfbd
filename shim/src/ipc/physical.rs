//! The driver's virtual memory management, as much as exports need: memory of one device that can be exported by a descriptor, and
//! addresses for it.
//!
//! Calls that fail change nothing. They are the driver's own functions, never hooks of ours.

use crate::abi::{DevPtr, SUCCESS, Status};
use crate::real::genuine;
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId};
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `CUmemAllocationProp`: pinned memory of a device.
#[repr(C)]
struct Properties {
    kind: c_int,
    handles: c_int,
    location: [c_int; 2],
    meta: *const c_void,
    flags: [u8; 8],
}
const _: () = assert!(size_of::<Properties>() == 32);

/// `CUmemAccessDesc`.
#[repr(C)]
struct Access {
    location: [c_int; 2],
    flags: c_int,
}

/// `CU_MEM_ALLOCATION_TYPE_PINNED`, `CU_MEM_LOCATION_TYPE_DEVICE`, `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, and reading and writing.
const PINNED: c_int = 1;
const DEVICE: c_int = 1;
const FILE: c_int = 1;
const READ_WRITE: c_int = 3;
/// `CUDA_ERROR_NOT_FOUND`: the driver has no such function.
const NO_FUNCTION: Status = 500;

fn done(status: Option<Status>) -> Result<(), Status> {
    match status {
        Some(SUCCESS) => Ok(()),
        Some(failed) => Err(failed),
        None => Err(NO_FUNCTION),
    }
}

fn size(len: Bytes) -> usize {
    usize::try_from(len.0).unwrap_or(usize::MAX)
}

/// Memory that the driver keeps until it is neither held nor mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Physical(u64);

/// Makes memory.
pub fn create(device: DeviceId, len: Bytes) -> Result<Physical, Status> {
    let create = genuine!(Cuda, "cuMemCreate", fn(*mut u64, usize, *const Properties, u64) -> Status);
    let location = [DEVICE, c_int::from(device.0)];
    let asked = Properties { kind: PINNED, handles: FILE, location, meta: std::ptr::null(), flags: [0; 8] };
    let mut made = 0;
    // SAFETY: the structure is as the driver reads it; the result is ours.
    done(create.map(|create| unsafe { create(&raw mut made, size(len), &raw const asked, 0) }))?;
    Ok(Physical(made))
}

/// Memory that another process exported. The descriptor stays the caller's.
pub fn import(file: BorrowedFd<'_>) -> Result<Physical, Status> {
    let import = genuine!(Cuda, "cuMemImportFromShareableHandle", fn(*mut u64, *mut c_void, c_int) -> Status);
    let mut made = 0;
    // The descriptor is in the place of a pointer (driver API reference).
    let number = std::ptr::without_provenance_mut(usize::try_from(file.as_raw_fd()).unwrap_or(usize::MAX));
    // SAFETY: an open descriptor for the length of the call; the result is ours.
    done(import.map(|import| unsafe { import(&raw mut made, number, FILE) }))?;
    Ok(Physical(made))
}

impl Physical {
    /// A descriptor by which another process can have it.
    pub fn export(self) -> Result<OwnedFd, Status> {
        let export = genuine!(Cuda, "cuMemExportToShareableHandle", fn(*mut c_int, u64, c_int, u64) -> Status);
        let mut file: c_int = -1;
        // SAFETY: memory that we hold; the result is ours, and a descriptor is an int.
        done(export.map(|export| unsafe { export(&raw mut file, self.0, FILE, 0) }))?;
        // SAFETY: the driver has just made this descriptor, for us alone.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        // SAFETY: no pointers. Whether it fails or not, the descriptor is closed in a moment.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        Ok(file)
    }

    /// It is held no longer.
    pub fn release(self) -> Result<(), Status> {
        let release = genuine!(Cuda, "cuMemRelease", fn(u64) -> Status);
        // SAFETY: memory that we hold, and do not use again.
        done(release.map(|release| unsafe { release(self.0) }))
    }

    /// Maps all of it at reserved addresses, which its device, and the devices that are its peers, may then use.
    pub fn map(self, at: AddrRange, device: DeviceId, devices: u8) -> Result<(), Status> {
        let map = genuine!(Cuda, "cuMemMap", fn(DevPtr, usize, usize, u64, u64) -> Status);
        // SAFETY: addresses that we reserved, and memory that we hold.
        done(map.map(|map| unsafe { map(at.start.0, size(at.len), 0, self.0, 0) }))?;
        open(at, device, devices).inspect_err(|_| {
            let _ = unmap(at);
        })
    }
}

fn open(at: AddrRange, device: DeviceId, devices: u8) -> Result<(), Status> {
    let set = genuine!(Cuda, "cuMemSetAccess", fn(DevPtr, usize, *const Access, usize) -> Status);
    let peer = genuine!(Cuda, "cuDeviceCanAccessPeer", fn(*mut c_int, c_int, c_int) -> Status);
    let is_peer = |other: u8| {
        let mut can = 0;
        let (other, own) = (c_int::from(other), c_int::from(device.0));
        // SAFETY: the result is ours.
        peer.is_some_and(|ask| unsafe { ask(&raw mut can, other, own) } == SUCCESS && can != 0)
    };
    let who = (0..devices).filter(|&other| other == device.0 || is_peer(other));
    let access: Vec<Access> = who.map(|n| Access { location: [DEVICE, c_int::from(n)], flags: READ_WRITE }).collect();
    // SAFETY: a mapping of ours, and structures as the driver reads them.
    done(set.map(|set| unsafe { set(at.start.0, size(at.len), access.as_ptr(), access.len()) }))
}

/// Nothing is mapped there any more.
pub fn unmap(at: AddrRange) -> Result<(), Status> {
    let unmap = genuine!(Cuda, "cuMemUnmap", fn(DevPtr, usize) -> Status);
    // SAFETY: a mapping of ours that nobody uses any more.
    done(unmap.map(|unmap| unsafe { unmap(at.start.0, size(at.len)) }))
}

/// Addresses for `len` bytes: `at`, where that is wished for and free.
pub fn reserve(len: Bytes, at: Option<DevAddr>) -> Result<AddrRange, Status> {
    let reserve = genuine!(Cuda, "cuMemAddressReserve", fn(*mut DevPtr, usize, usize, DevPtr, u64) -> Status);
    let mut start = 0;
    let wish = at.map_or(0, |at| at.0);
    // SAFETY: the result is ours.
    done(reserve.map(|reserve| unsafe { reserve(&raw mut start, size(len), 0, wish, 0) }))?;
    Ok(AddrRange::new(DevAddr(start), len))
}

/// Exactly these addresses.
pub fn reserve_exactly(at: AddrRange) -> Result<(), &'static str> {
    match reserve(at.len, Some(at.start)) {
        Ok(there) if there == at => Ok(()),
        Ok(elsewhere) => {
            let _ = give_back(elsewhere);
            Err("the driver does not give the same addresses again")
        }
        Err(_) => Err("the driver gives no addresses"),
    }
}

/// Reserved addresses go back.
pub fn give_back(at: AddrRange) -> Result<(), Status> {
    let free = genuine!(Cuda, "cuMemAddressFree", fn(DevPtr, usize) -> Status);
    // SAFETY: addresses that we reserved, where nothing is mapped any more.
    done(free.map(|free| unsafe { free(at.start.0, size(at.len)) }))
}
