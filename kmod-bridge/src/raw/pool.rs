//! The memory of a pool of semaphores: addresses first, which the driver is told, and then what it has there.

use super::{Kernel, page_size};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// Addresses that nothing else is put at.
#[derive(Debug)]
pub struct Reserved {
    base: NonNull<c_void>,
    len: NonZeroUsize,
}

impl Reserved {
    /// Of a page.
    ///
    /// # Errors
    /// As `mmap(2)`.
    pub fn page() -> io::Result<Self> {
        let len = NonZeroUsize::new(page_size()).expect("a page has bytes");
        // SAFETY: a new mapping at an address the kernel picks.
        let base = unsafe { mmap_anonymous(None, len, ProtFlags::PROT_NONE, MapFlags::MAP_PRIVATE) }?;
        Ok(Self { base, len })
    }

    /// Where they begin.
    pub fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// How many there are.
    pub fn length(&self) -> u64 {
        self.len.get() as u64
    }

    /// What the driver has there. Whatever becomes of that, they are the driver's from now on, and nothing else is ever put there.
    ///
    /// # Errors
    /// As [`Kernel::map`].
    pub fn map(self, kernel: &dyn Kernel, fd: BorrowedFd<'_>) -> io::Result<PoolMemory> {
        let Self { base, len } = *ManuallyDrop::new(self);
        // SAFETY: our own mapping, which nobody has a reference into.
        unsafe { kernel.map(fd, base, len) }?;
        Ok(PoolMemory { base, len })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody has a reference into.
        let _ = unsafe { munmap(self.base, self.len.get()) };
    }
}

/// The words of a pool of semaphores. Never unmapped: while the address space lives the pool is there, and what the program puts at its addresses cannot be managed memory.
#[derive(Debug)]
pub struct PoolMemory {
    base: NonNull<c_void>,
    len: NonZeroUsize,
}

// SAFETY: plain memory of this value alone, read through atomics.
unsafe impl Send for PoolMemory {}
// SAFETY: likewise.
unsafe impl Sync for PoolMemory {}

impl PoolMemory {
    /// How many words.
    pub const fn count(&self) -> usize {
        self.len.get() / 4
    }

    /// One of them.
    pub fn word(&self, n: usize) -> &AtomicU32 {
        assert!(n < self.count());
        // SAFETY: inside a mapping that is never undone, and aligned; the other side writes whole words.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().byte_add(4 * n).cast()) }
    }
}
