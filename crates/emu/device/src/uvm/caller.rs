//! The caller's memory and descriptors, as a driver sees them: claims, until looked at.
//!
//! [`Caller`] is who asks: a thread of this process ([`Memory`]), or one of another process ([`super::remote`]).
//!
//! Parameter structs are copied in and out with `process_vm_readv` and `process_vm_writev` on ourselves, so that a bad
//! pointer is an error and not a crash, as in the driver; by the thread's own number, since that of the process has no memory once its
//! main thread has ended. The queue is written very often and is mapped instead: a
//! second mapping of the same pages if they are shared memory, which stays whatever the caller does to its own.

use super::NvStatus;
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// What tells open files apart: device and inode number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileKey {
    dev: u64,
    ino: u64,
}

impl FileKey {
    /// The file behind a descriptor number, if it is one.
    #[must_use]
    pub fn of(fd: RawFd) -> Option<Self> {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: `fstat` fills the buffer or fails; any number is allowed as a descriptor.
        if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: `fstat` succeeded, so the buffer is filled.
        let stat = unsafe { stat.assume_init() };
        Some(Self { dev: stat.st_dev, ino: stat.st_ino })
    }
}

/// Who makes a request.
pub(super) trait Caller {
    /// Fills `out` from address `from`.
    ///
    /// # Safety
    /// Where the system forbids `process_vm_readv`, `from` must be readable for `out.len()` bytes.
    unsafe fn read(&mut self, from: usize, out: &mut [u8]) -> bool;
    /// Puts `bytes` at address `to`.
    ///
    /// # Safety
    /// As for [`Self::read`], writable; and nothing in this program may rely on what is written over, other than
    /// the caller who named the address.
    unsafe fn write(&mut self, to: usize, bytes: &[u8]) -> bool;
    /// Makes `len` bytes at `addr` ours to write to from now on; nothing unless all of it is mapped and writable.
    ///
    /// # Safety
    /// If the pages are not shared memory they must stay mapped until the [`Pinned`] is gone, which is when the tools
    /// file is closed: the driver would have pinned them.
    unsafe fn pin(&mut self, addr: usize, len: usize) -> Option<Pinned>;
    /// The file behind one of its descriptors, if that is one; a refusal if its descriptors cannot be looked at.
    fn file(&self, fd: RawFd) -> Result<Option<FileKey>, NvStatus>;
}

impl Caller for &Memory {
    unsafe fn read(&mut self, from: usize, out: &mut [u8]) -> bool {
        // SAFETY: our own contract.
        unsafe { Memory::read(self, from, out) }
    }
    unsafe fn write(&mut self, to: usize, bytes: &[u8]) -> bool {
        // SAFETY: our own contract.
        unsafe { Memory::write(self, to, bytes) }
    }
    unsafe fn pin(&mut self, addr: usize, len: usize) -> Option<Pinned> {
        // SAFETY: our own contract.
        unsafe { Memory::pin(self, addr, len) }
    }
    fn file(&self, fd: RawFd) -> Result<Option<FileKey>, NvStatus> {
        Ok(FileKey::of(fd))
    }
}

/// Copies from and to the memory of this process.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Set once the kernel has refused `process_vm_readv`: some sandboxes do.
    plain: AtomicBool,
}

impl Memory {
    /// # Safety
    /// As [`Caller::read`].
    unsafe fn read(&self, from: usize, out: &mut [u8]) -> bool {
        let (len, local) = (out.len(), out.as_mut_ptr());
        // SAFETY: the local side is `out`; the remote side is checked by the kernel.
        let copied = self.remote(len, || unsafe {
            let here = libc::iovec { iov_base: local.cast(), iov_len: len };
            let there = libc::iovec { iov_base: from as *mut _, iov_len: len };
            libc::process_vm_readv(libc::gettid(), &raw const here, 1, &raw const there, 1, 0)
        });
        copied.unwrap_or_else(|| {
            // SAFETY: readable by the caller's promise; `out` is ours and cannot overlap what the caller owns.
            unsafe { std::ptr::copy_nonoverlapping(from as *const u8, local, len) };
            true
        })
    }

    /// # Safety
    /// As [`Caller::write`].
    pub(super) unsafe fn write(&self, to: usize, bytes: &[u8]) -> bool {
        let len = bytes.len();
        // SAFETY: the local side is `bytes`, only read; the remote side is checked by the kernel.
        let copied = self.remote(len, || unsafe {
            let here = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: len };
            let there = libc::iovec { iov_base: to as *mut _, iov_len: len };
            libc::process_vm_writev(libc::gettid(), &raw const here, 1, &raw const there, 1, 0)
        });
        copied.unwrap_or_else(|| {
            // SAFETY: writable by the caller's promise, and not part of `bytes`, which is ours.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, len) };
            true
        })
    }

    /// Whether a remote copy copied all; nothing if the system does not do such copies.
    fn remote(&self, len: usize, copy: impl FnOnce() -> isize) -> Option<bool> {
        if self.plain.load(Ordering::Relaxed) {
            return None;
        }
        let copied = copy();
        if copied < 0 && matches!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) {
            self.plain.store(true, Ordering::Relaxed);
            return None;
        }
        Some(usize::try_from(copied).is_ok_and(|n| n == len))
    }

    /// # Safety
    /// As [`Caller::pin`].
    unsafe fn pin(&self, addr: usize, len: usize) -> Option<Pinned> {
        let start = NonNull::new(addr as *mut u8)?;
        if !addr.is_multiple_of(4096) {
            return None;
        }
        let mut all = vec![0; len];
        // SAFETY: the bytes are put back unchanged before anybody knows of the queue.
        if !unsafe { self.read(addr, &mut all) && self.write(addr, &all) } {
            return None;
        }
        let len = len.next_multiple_of(4096);
        // SAFETY: an old length of 0 makes a second mapping of shared pages at a new address and changes nothing else;
        // for private pages it fails.
        let again = unsafe { libc::mremap(addr as *mut _, 0, len, libc::MREMAP_MAYMOVE) };
        match NonNull::new(again.cast()) {
            Some(start) if again != libc::MAP_FAILED => Some(Pinned { start, len, mapped: true }),
            _ => Some(Pinned { start, len, mapped: false }),
        }
    }
}

/// Memory of the caller that the driver may write to at any time.
#[derive(Debug)]
pub(super) struct Pinned {
    start: NonNull<u8>,
    len: usize,
    /// Whether this is a mapping of our own.
    mapped: bool,
}

// SAFETY: it is plain memory, written only through `&self` methods that use atomics or copies under the lock of `Uvm`.
unsafe impl Send for Pinned {}

impl Pinned {
    /// The address of `len` bytes at `offset`, which must be inside.
    pub(super) fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "inside the pinned memory");
        // SAFETY: inside one mapping, as just checked.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: our own mapping, made in `pin`; nothing else knows its address.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}
