//! The middle floor: owned descriptors, the mapped queue, `Result` out of every call.
//!
//! All system calls go through [`Kernel`], so that a test can answer them; [`Linux`] makes them.
//! `unsafe` ends on this floor: above it there are only numbers.

mod pool;

pub use pool::{PoolMemory, Reserved};

use crate::high;
use crate::sys::{self, NvStatus, request};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::fmt;
use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The parameter buffer of every request: zeroed, 8-byte aligned, longer than any struct of a known driver.
#[derive(Clone, PartialEq, Eq, Debug)]
#[repr(C, align(8))]
pub struct Params([u64; sys::PARAMS_BYTES / 8]);

impl Default for Params {
    fn default() -> Self {
        Self([0; sys::PARAMS_BYTES / 8])
    }
}

impl Params {
    /// Puts a 64-bit word at byte `at`, a multiple of 8 inside the buffer.
    pub fn put_u64(&mut self, at: usize, value: u64) {
        assert!(at.is_multiple_of(8), "64-bit fields lie on 8 bytes");
        self.0[at / 8] = value;
    }
    /// Puts a 32-bit word at byte `at`, a multiple of 4 inside the buffer.
    pub fn put_u32(&mut self, at: usize, value: u32) {
        assert!(at.is_multiple_of(4), "32-bit fields lie on 4 bytes");
        let shift = at % 8 * 8;
        let word = &mut self.0[at / 8];
        *word = *word & !(0xffff_ffff << shift) | u64::from(value) << shift;
    }
    /// Puts a UUID at byte `at`, a multiple of 8 inside the buffer.
    pub fn put_uuid(&mut self, at: usize, sys::Uuid(uuid): sys::Uuid) {
        let (low, high) = uuid.split_at(8);
        let word = |half: &[u8]| half.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        self.put_u64(at, word(low));
        self.put_u64(at + 8, word(high));
    }
    /// The 64-bit word at byte `at`.
    pub fn u64(&self, at: usize) -> u64 {
        self.0[at / 8]
    }
    /// The 32-bit word at byte `at`.
    pub fn u32(&self, at: usize) -> u32 {
        (self.0[at / 8] >> (at % 8 * 8) & 0xffff_ffff) as u32
    }
}

// 32-bit fields are placed by shifting, which is where they lie only on a little-endian machine; the driver runs on no other.
const _: () = assert!(cfg!(target_endian = "little"));

/// The system as this package needs it.
pub trait Kernel: Send + Sync + fmt::Debug {
    /// What `/sys/module/nvidia/version` or, failing that, `/proc/driver/nvidia/version` says.
    fn driver_version(&self) -> Option<crate::version::DriverVersion>;
    /// Opens `/dev/nvidia-uvm-tools`.
    ///
    /// # Errors
    /// As `open(2)`.
    fn open_tools(&self) -> io::Result<OwnedFd>;
    /// Duplicates of all this process's descriptors of `/dev/nvidia-uvm`.
    ///
    /// # Errors
    /// As reading `/proc/self/fd`.
    fn uvm_fds(&self) -> io::Result<Vec<OwnedFd>>;
    /// One request.
    ///
    /// # Errors
    /// As `ioctl(2)`: the request was not routed. What the driver thought of it is in the parameters.
    ///
    /// # Safety
    /// Every address among the parameters must be of memory that lives, and may be written by the driver, for as
    /// long as the request makes the driver use it: for the tools queue that is until the descriptor is closed.
    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, params: &mut Params) -> io::Result<()>;
    /// Maps what the driver has at these addresses of the address space, in place of what the process has there.
    ///
    /// # Errors
    /// As `mmap(2)`.
    ///
    /// # Safety
    /// The process's mapping there is the caller's, and nothing refers to it.
    unsafe fn map(&self, fd: BorrowedFd<'_>, at: NonNull<c_void>, len: NonZeroUsize) -> io::Result<()> {
        let _ = (fd, at, len);
        Err(io::Error::from_raw_os_error(libc::ENODEV))
    }
}

/// The system we run on.
#[derive(Clone, Copy, Default, Debug)]
pub struct Linux;

impl Kernel for Linux {
    fn driver_version(&self) -> Option<crate::version::DriverVersion> {
        crate::version::DriverVersion::loaded(|path| fs::read_to_string(path).ok())
    }

    fn open_tools(&self) -> io::Result<OwnedFd> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open("/dev/nvidia-uvm-tools")?;
        Ok(high::copy(file)?)
    }

    fn uvm_fds(&self) -> io::Result<Vec<OwnedFd>> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc/self/fd")? {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(|n| n.parse().ok());
            let Some(number) = number.filter(|_| is_uvm(&entry.path())) else {
                continue;
            };
            // SAFETY: the descriptor was in our table a moment ago. If the program closed it since, `fcntl` answers
            // EBADF; if it opened something else there, the check of the duplicate below finds that out.
            let fd = unsafe { BorrowedFd::borrow_raw(number) };
            let Ok(copy) = high::copy(fd) else { continue };
            if is_uvm(format!("/proc/self/fd/{}", copy.as_raw_fd()).as_ref()) {
                found.push((number, copy));
            }
        }
        // Oldest descriptor first: the VA space is opened before anything that needs it.
        found.sort_by_key(|(number, _)| *number);
        Ok(found.into_iter().map(|(_, copy)| copy).collect())
    }

    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, params: &mut Params) -> io::Result<()> {
        // EAGAIN: the driver is about to suspend or resume. It is over in milliseconds or not soon at all.
        for _ in 0..8 {
            // SAFETY: `params` is longer than any struct the driver copies for a request named in `sys`; the
            // addresses in it are good by this function's own contract.
            let rc = unsafe { libc::ioctl(fd.as_raw_fd(), libc::c_ulong::from(request), std::ptr::from_mut(params)) };
            if rc >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => std::thread::sleep(std::time::Duration::from_millis(1)),
                _ => return Err(error),
            }
        }
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }

    unsafe fn map(&self, fd: BorrowedFd<'_>, at: NonNull<c_void>, len: NonZeroUsize) -> io::Result<()> {
        let rw = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let shared = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
        // The driver wants the address as the offset, too.
        let offset = at.as_ptr() as i64;
        // SAFETY: replaces a mapping of the caller's.
        unsafe { mmap(Some(at.addr()), len, rw, shared, fd, offset) }?;
        Ok(())
    }
}

/// Whether a link of `/proc/self/fd` is the UVM node; its folder may differ in a container.
fn is_uvm(link: &std::path::Path) -> bool {
    fs::read_link(link).is_ok_and(|target| target.file_name() == Some("nvidia-uvm".as_ref()))
}

/// A request the driver did not carry out.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It was not routed.
    #[error("{} failed: {source}", request::name(*request))]
    System {
        /// Its number.
        request: u32,
        /// Why.
        source: io::Error,
    },
    /// It was routed and refused.
    #[error("{} answered {status}", request::name(*request))]
    Status {
        /// Its number.
        request: u32,
        /// The driver's word.
        status: NvStatus,
    },
}

impl RequestError {
    /// The driver's status, if it gave one.
    pub const fn status(&self) -> Option<NvStatus> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::System { .. } => None,
        }
    }
}

/// Makes a request and reads the outcome where `status` finds it in the returned parameters.
///
/// # Errors
/// [`RequestError`].
///
/// # Safety
/// As [`Kernel::ioctl`].
pub unsafe fn call(
    kernel: &dyn Kernel,
    fd: BorrowedFd<'_>,
    number: u32,
    params: &mut Params,
    status: impl FnOnce(&Params) -> u32,
) -> Result<(), RequestError> {
    // SAFETY: handed on to our caller.
    unsafe { kernel.ioctl(fd, number, params) }.map_err(|source| RequestError::System { request: number, source })?;
    match NvStatus(status(params)) {
        NvStatus::OK => Ok(()),
        status => Err(RequestError::Status { request: number, status }),
    }
}

/// Notices that a tools queue usually has room for: 256 full fault batches, 4 MiB (facts 2.2).
pub const NOTICES: u32 = 1 << 16;

/// The memory of a tools queue: `capacity` entries and the control page.
///
/// A shared mapping, because the driver writes the very pages it pinned: after a `fork` a private mapping would give
/// this process a copy and leave the driver writing the child's. The other side may write anything at any time, so
/// there is no reference to the contents, only atomic loads; and no index from it is believed.
#[derive(Debug)]
pub struct QueueMemory {
    base: NonNull<c_void>,
    len: NonZeroUsize,
    capacity: u32,
    control_at: usize,
}

// SAFETY: the mapping belongs to this value alone and is touched through atomics only.
unsafe impl Send for QueueMemory {}
// SAFETY: as above.
unsafe impl Sync for QueueMemory {}

impl QueueMemory {
    /// Zeroed memory for `capacity` entries.
    ///
    /// # Errors
    /// If `capacity` is no power of two from 2 to 2²⁴ (1 GiB of notices), or memory is short.
    pub fn new(capacity: u32) -> io::Result<Self> {
        let (control_at, len) = Self::layout(capacity)?;
        // SAFETY: a new mapping at an address the kernel picks.
        let base =
            unsafe { mmap_anonymous(None, len, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED) }?;
        Ok(Self { base, len, capacity, control_at })
    }

    /// The memory of `file`, which must be as long as a queue of `capacity` entries and sealed against becoming shorter.
    ///
    /// # Errors
    /// As [`Self::new`]; and if the file is of another length, can become shorter, or cannot be mapped.
    pub fn of_file(capacity: u32, file: BorrowedFd<'_>) -> io::Result<Self> {
        let (control_at, len) = Self::layout(capacity)?;
        let refuse = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        let have = nix::sys::stat::fstat(file)?.st_size;
        if usize::try_from(have).ok() != Some(len.get()) {
            return refuse(format!("memory of the tools queue: {have} bytes; {capacity} entries need {len}"));
        }
        let seals = fcntl(file, FcntlArg::F_GET_SEALS).unwrap_or(0);
        if seals & libc::F_SEAL_SHRINK == 0 {
            return refuse("memory of the tools queue: not sealed against shrinking".to_owned());
        }
        // SAFETY: a new mapping at an address the kernel picks, of a file that stays at least this long.
        let base =
            unsafe { mmap(None, len, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, file, 0) }?;
        Ok(Self { base, len, capacity, control_at })
    }

    /// Where the control page is in the memory of a queue, and how long that is.
    ///
    /// # Errors
    /// For a number of entries that is not allowed.
    pub fn layout(capacity: u32) -> io::Result<(usize, NonZeroUsize)> {
        if !capacity.is_power_of_two() || !(2..=1 << 24).contains(&capacity) {
            let text = format!("tools queue of {capacity} entries: allowed are powers of two from 2 to 2^24");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        // The driver takes whole pages, so neither part shares a page with the other or with anything else.
        let page = page_size();
        let control_at = (capacity as usize * sys::ENTRY_BYTES).next_multiple_of(page);
        let len = control_at + size_of::<sys::Control>().next_multiple_of(page);
        Ok((control_at, NonZeroUsize::new(len).expect("the control page alone is longer than 0")))
    }

    /// Number of entries; a power of two.
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }
    /// Address of the entries, for the driver.
    pub fn entries_address(&self) -> u64 {
        self.base.as_ptr() as u64
    }
    /// Address of the control page, for the driver.
    pub fn control_address(&self) -> u64 {
        self.entries_address() + self.control_at as u64
    }

    /// A 32-bit word of the control page.
    pub fn control_u32(&self, at: usize) -> &AtomicU32 {
        assert!(at + 4 <= size_of::<sys::Control>() && at.is_multiple_of(4));
        // SAFETY: inside the mapping (checked above; the control page follows the entries) and aligned, since the
        // page is; the mapping lives as long as `self`; both sides use atomic accesses.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().byte_add(self.control_at + at).cast()) }
    }

    /// A 64-bit word of the control page.
    pub fn control_u64(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= size_of::<sys::Control>() && at.is_multiple_of(8));
        // SAFETY: as in `control_u32`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().byte_add(self.control_at + at).cast()) }
    }

    /// A copy of entry `index`, which must be below `capacity`.
    pub fn entry(&self, index: u32) -> Entry {
        assert!(index < self.capacity);
        let mut words = [0; sys::ENTRY_BYTES / 8];
        for (i, word) in words.iter_mut().enumerate() {
            let at = index as usize * sys::ENTRY_BYTES + i * 8;
            // SAFETY: inside the mapping, since `index` is below the capacity it was made for; aligned to 8; alive
            // as long as `self`.
            *word = unsafe { AtomicU64::from_ptr(self.base.as_ptr().byte_add(at).cast()) }.load(Ordering::Relaxed);
        }
        Entry(words)
    }
}

impl Drop for QueueMemory {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this length, and nobody holds a reference into it any more. The owner closes
        // the tracker first, so the driver does not write here again.
        let _ = unsafe { munmap(self.base, self.len.get()) };
    }
}

/// One queue entry, copied out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry(pub [u64; sys::ENTRY_BYTES / 8]);

impl Entry {
    /// The byte at `at`.
    pub const fn u8(&self, at: usize) -> u8 {
        (self.0[at / 8] >> (at % 8 * 8) & 0xff) as u8
    }
    /// The 32-bit word at byte `at`, a multiple of 4.
    pub const fn u32(&self, at: usize) -> u32 {
        (self.0[at / 8] >> (at % 8 * 8) & 0xffff_ffff) as u32
    }
    /// The 64-bit word at byte `at`, a multiple of 8.
    pub const fn u64(&self, at: usize) -> u64 {
        self.0[at / 8]
    }
}

fn page_size() -> usize {
    nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .and_then(|n| usize::try_from(n).ok())
        .unwrap_or(4096)
}
