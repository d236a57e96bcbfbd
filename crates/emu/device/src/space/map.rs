//! Reserved address space of this process: the only place that calls `mmap`.
//!
//! Device and managed memory are tens of gigabytes that almost nothing reads, so their pages are promised by
//! nobody (`MAP_NORESERVE`), never huge (one byte written must not cost 2 MiB), and appear as zeros when touched.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// An owned mapping; unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    start: u64,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes at exactly `start`. Without `access` the range is only occupied: touching it is a fault.
    pub fn fixed(start: u64, len: u64, access: bool) -> io::Result<Self> {
        let prot = if access { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        Self::new(start, len, prot, flags, -1)
    }

    /// Maps the first `len` bytes of `memory` at exactly `start`.
    pub fn shared(start: u64, len: u64, memory: BorrowedFd<'_>) -> io::Result<Self> {
        Self::new(start, len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, memory.as_raw_fd())
    }

    fn new(start: u64, len: u64, prot: i32, flags: i32, file: i32) -> io::Result<Self> {
        let len = crate::word(len);
        let flags = flags | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: a new mapping, of nothing or of a file; FIXED_NOREPLACE never replaces one that exists.
        let at = unsafe { libc::mmap(ptr::without_provenance_mut(crate::word(start)), len, prot, flags, file, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = Self { start: at as u64, len };
        if mapping.start != start {
            // A kernel before 4.17 takes the address as a hint only.
            return Err(io::ErrorKind::AddrInUse.into());
        }
        // SAFETY: the range was mapped just above; the advice changes no contents, and failing is harmless.
        unsafe { libc::madvise(at, len, libc::MADV_NOHUGEPAGE) };
        Ok(mapping)
    }

    /// How long it is.
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Exchanges what is mapped for the beginning of `memory`, which has the same bytes. Who reads meanwhile reads either.
    pub fn become_shared(&self, memory: BorrowedFd<'_>) -> io::Result<()> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        let at = ptr::without_provenance_mut(crate::word(self.start));
        // SAFETY: exactly the range that this mapping owns, so nobody else's is replaced; the bytes are the same.
        let at = unsafe { libc::mmap(at, self.len, prot, flags, memory.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `fixed` and is ours alone; the address space hands out no pointer past
        // the life of the allocation that owns this mapping.
        unsafe { libc::munmap(ptr::without_provenance_mut(crate::word(self.start)), self.len) };
    }
}
