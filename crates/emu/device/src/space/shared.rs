//! Memory of a device that other processes have, too: a file of memory (`memfd`) that each of them maps.
//!
//! Most memory is never shared, so it becomes such a file only when it is asked for: what is behind its addresses is copied into the file,
//! which is then mapped in its place. The file is sealed in its size, so that nobody who has it can take pages away under the others.
//! Its name says what it is, so that a descriptor that somebody hands in can be told from any other.
//!
//! Not here: how another process gets it ([`crate::ipc`], [`crate::vmm`]).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId};

use super::{Backing, Kind, SHADOW, Space};
use crate::error::{CuError, CuResult};

/// How the name of such a file begins; the number of its device follows.
const NAME: &str = "deepum-emu-memory-";
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
const PAGE: usize = 4096;

/// `len` bytes of zeros of a device.
///
/// # Errors
/// `OutOfMemory` when the host gives no more.
pub fn new(device: DeviceId, len: Bytes) -> CuResult<OwnedFd> {
    make(device, len).map_err(|_| CuError::OutOfMemory)
}

fn make(device: DeviceId, len: Bytes) -> io::Result<OwnedFd> {
    let name = CString::new(format!("{NAME}{}", device.0)).map_err(io::Error::other)?;
    // SAFETY: a C string.
    let file = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system has just made this descriptor, for us alone.
    let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(file) });
    file.set_len(len.0)?;
    // SAFETY: no pointers.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file.into())
}

/// What a descriptor is, if it is memory of an emulated device: of which, how much, and a number that no other memory has.
#[must_use]
pub fn look(file: BorrowedFd<'_>) -> Option<(DeviceId, Bytes, u64)> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let name = link.to_str()?.strip_prefix("/memfd:")?.strip_prefix(NAME)?;
    let device = DeviceId(name.strip_suffix(" (deleted)").unwrap_or(name).parse().ok()?);
    // SAFETY: no pointers.
    let sealed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) } & SEALS == SEALS;
    // SAFETY: all zero is a value of these plain numbers.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the result is ours.
    let known = unsafe { libc::fstat(file.as_raw_fd(), &raw mut found) } == 0;
    (sealed && known).then(|| (device, Bytes(found.st_size.cast_unsigned()), found.st_ino))
}

/// Copies what is not zero: of most memory little was ever touched.
///
/// # Safety
/// `len` bytes at `from` may be read.
unsafe fn fill(file: &std::fs::File, from: *const u8, len: usize) -> io::Result<()> {
    for at in (0..len).step_by(PAGE) {
        // SAFETY: inside what the caller vouches for; pages are whole.
        let page = unsafe { std::slice::from_raw_parts(from.add(at), PAGE) };
        if page.iter().any(|&byte| byte != 0) {
            file.write_all_at(page, at as u64)?;
        }
    }
    Ok(())
}

impl Space {
    /// The file behind memory of a device that starts at `start`, and which addresses it is behind: those of the memory, or of the slab
    /// that it shares. Makes it, the first time.
    ///
    /// # Errors
    /// `InvalidValue` if there is no such memory, `OutOfMemory`.
    pub fn share(&mut self, start: DevAddr) -> CuResult<(Arc<OwnedFd>, AddrRange)> {
        let found = *self.find(start).ok_or(CuError::InvalidValue)?;
        let (region, device) = (self.region(found.kind), found.device);
        let (at, len, backing) = match found.slab {
            Some(slab) => {
                let held = region.slabs.get_mut(&(device.0, slab)).ok_or(CuError::Unknown)?;
                (slab, super::GRANULE, &mut held.backing)
            }
            None => {
                let (len, _) = Self::whole(found.kind, found.range.len)?;
                // What was mapped piece by piece is one allocation; the piece is meant.
                let (&at, backing) = region.whole.range_mut(..=start.0).next_back().ok_or(CuError::Unknown)?;
                let len = if found.kind == Kind::Mapped { backing.shadow_len() } else { len };
                (at, len, backing)
            }
        };
        Ok((backing.share(device, at, len)?, AddrRange::new(DevAddr(at), Bytes(len))))
    }
}

impl Backing {
    fn shadow_len(&self) -> u64 {
        self.shadow.as_ref().map_or(0, super::Mapping::len)
    }

    fn share(&mut self, device: DeviceId, at: u64, len: u64) -> CuResult<Arc<OwnedFd>> {
        if let Some(shared) = &self.shared {
            return Ok(Arc::clone(shared));
        }
        let shadow = self.shadow.as_ref().ok_or(CuError::InvalidValue)?;
        let file = std::fs::File::from(new(device, Bytes(len))?);
        // SAFETY: the shadow is mapped for this length and readable; all of its users go through the device, whose lock is held.
        let filled =
            unsafe { fill(&file, std::ptr::with_exposed_provenance(crate::word(at + SHADOW)), crate::word(len)) };
        filled.and_then(|()| shadow.become_shared(file.as_fd())).map_err(|_| CuError::OutOfMemory)?;
        let file = Arc::new(OwnedFd::from(file));
        self.shared = Some(Arc::clone(&file));
        Ok(file)
    }
}
