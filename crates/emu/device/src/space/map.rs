//! Reserved address space of this process: the only place that calls `mmap`.
//!
//! Device and managed memory are tens of gigabytes that almost nothing reads, so their pages are promised by
//! nobody (`MAP_NORESERVE`), never huge (one byte written must not cost 2 MiB), and appear as zeros when touched.

use std::io;
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
        let len = crate::word(len);
        let prot = if access { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: a new anonymous mapping; FIXED_NOREPLACE never replaces one that exists.
        let at = unsafe { libc::mmap(ptr::without_provenance_mut(crate::word(start)), len, prot, flags, -1, 0) };
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
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `fixed` and is ours alone; the address space hands out no pointer past
        // the life of the allocation that owns this mapping.
        unsafe { libc::munmap(ptr::without_provenance_mut(crate::word(self.start)), self.len) };
    }
}
