//! Pools of semaphores: words of the program's that the driver writes once a migration is over (facts 4.11).
//!
//! A pool is made at addresses that nobody manages, for the file whose VA space it is in; then `mmap` of that file with the same address and offset gives it to the program. It is
//! there until the file is closed, whatever becomes of the mapping. The program that has the device has its VA spaces, too, so a word is written where it lies. Another process is
//! refused the mapping by its own node.

use super::caller::FileKey;
use super::params::{Params, whole_pages};
use super::sys::NvStatus;
use super::{Backend, File, Uvm, UvmFile};
use deepum_core::units::{AddrRange, DevAddr};
use std::os::fd::RawFd;

/// What is to be written, and where, once a migration is over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Semaphore {
    /// Of a word in a pool.
    pub address: u64,
    /// The word.
    pub payload: u32,
}

/// A pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool {
    pub(super) of: FileKey,
    range: AddrRange,
    mapped: bool,
}

/// Bytes of a row of mapping attributes.
const ROW: usize = 36;

impl Uvm {
    /// Rows of mapping attributes in the struct of this driver.
    pub(super) fn rows(&self) -> usize {
        if self.branch < 550 { 32 } else { 256 }
    }

    /// Length of that struct and place of its status.
    pub(super) fn pool_shape(&self) -> (usize, usize) {
        let status = self.count_at() + 8;
        (status + 8, status)
    }

    /// Where the number of rows that are filled in is.
    fn count_at(&self) -> usize {
        16 + ROW * self.rows()
    }

    pub(super) fn make_pool(&self, of: FileKey, params: &Params, backend: &dyn Backend) -> Result<(), NvStatus> {
        let range = whole_pages(params.u64(0), params.u64(8))?;
        let count = usize::try_from(params.u64(self.count_at())).ok().filter(|count| *count <= self.rows());
        let count = count.ok_or(NvStatus::INVALID_ARGUMENT)?;
        (0..count).try_for_each(|row| self.gpu(&params.uuid(16 + ROW * row)).map(|_| ()))?;
        backend.make_pool()?;
        let mut files = self.files.lock();
        if files.pools.iter().any(|pool| pool.of == of && overlap(pool.range, range)) {
            return Err(NvStatus::UVM_ADDRESS_IN_USE);
        }
        files.pools.push(Pool { of, range, mapped: false });
        Ok(())
    }

    /// The word at that address of this file's VA space, if it may be one of a pool.
    pub(super) fn semaphore(&self, of: FileKey, address: u64, payload: u32) -> Result<Semaphore, NvStatus> {
        let files = self.files.lock();
        let holds = |pool: &Pool| pool.of == of && pool.range.contains(DevAddr(address));
        let is_word = address.is_multiple_of(4) && files.pools.iter().any(holds);
        is_word.then_some(Semaphore { address, payload }).ok_or(NvStatus::INVALID_ADDRESS)
    }

    /// `mmap` of a file: gives a pool that was made to the program. 0, or an error number below 0; `-ENOTTY` if it is no file of this driver.
    ///
    /// # Safety
    /// `address` is where the program wants its mapping replaced.
    pub unsafe fn map(&self, key: FileKey, address: u64, len: u64, flags: Mapping) -> i32 {
        let mut files = self.files.lock();
        match files.open.get(&key) {
            None => return -libc::ENOTTY,
            Some(File::Uvm(UvmFile::VaSpace { .. })) => {}
            Some(_) => return -libc::EBADFD,
        }
        let asked = |pool: &&mut Pool| pool.of == key && (pool.range.start.0, pool.range.len.0) == (address, len);
        let Some(pool) = files.pools.iter_mut().find(asked) else { return -libc::EINVAL };
        if !flags.is_shared || !flags.is_fixed || !flags.may_write || flags.offset.cast_unsigned() != address {
            return -libc::EINVAL;
        }
        let Ok(len) = usize::try_from(len) else { return -libc::EINVAL };
        let (rw, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
        // SAFETY: the program's own wish, by our contract; the range is of a pool, so nobody's managed memory.
        let mapped = unsafe { libc::mmap(address as *mut libc::c_void, len, rw, how, NONE, 0) };
        if mapped == libc::MAP_FAILED {
            return -std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOMEM);
        }
        pool.mapped = true;
        0
    }

    /// Writes it, if the pool is still there and the program has it.
    pub(super) fn release(&self, semaphore: Semaphore) {
        let files = self.files.lock();
        let holds = |pool: &Pool| pool.mapped && pool.range.contains(DevAddr(semaphore.address));
        if !files.pools.iter().any(holds) {
            return;
        }
        let Ok(at) = usize::try_from(semaphore.address) else { return };
        // SAFETY: a word of a pool, which is the driver's to write; if the program has unmapped it the kernel says so, and where the system forbids the call by which it
        // would, a program that unmaps a pool has to close the file first.
        unsafe { self.memory.write(at, &semaphore.payload.to_le_bytes()) };
    }
}

/// What a program says to `mmap` beside address and length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// `PROT_READ` and `PROT_WRITE`.
    pub may_write: bool,
    /// `MAP_SHARED`.
    pub is_shared: bool,
    /// `MAP_FIXED`.
    pub is_fixed: bool,
    /// In the file.
    pub offset: i64,
}

/// No file.
const NONE: RawFd = -1;

fn overlap(a: AddrRange, b: AddrRange) -> bool {
    a.start < b.end() && b.start < a.end()
}
