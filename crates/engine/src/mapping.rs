//! Memory of words that another process may share: record ring and page.
//!
//! A memfd, sealed so that nobody can change its size, mapped for as long as the process lives. Whoever is handed its descriptor can
//! map it too ([`Mapping::adopt`]); the seals mean that neither side can make the other one fault. Where the system gives no memfd
//! (a sandbox), the memory is shared with forked children alone, and there is no descriptor to pass.
//!
//! A forked child has the same memory. If it is to have its own, it asks for that before it does anything else
//! ([`Mapping::renew`]).

use deepum_kmod_bridge::high;
use deepum_protocol::AtomicU64;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// What no side can undo.
const SEALS: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
/// Without these the other side could make us fault.
const NEEDED: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// See the module.
#[derive(Debug)]
pub struct Mapping {
    name: &'static CStr,
    words: &'static [AtomicU64],
    /// Its memfd; -1 for none.
    fd: AtomicI32,
}

/// Why memory that was handed over cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdoptError {
    /// It is not sealed against changes of its size.
    Seals {
        /// Seals found; -1 if it is no memfd.
        have: c_int,
    },
    /// It has another size.
    Size {
        /// Bytes found.
        have: i64,
        /// Bytes expected.
        want: usize,
    },
    /// The system does not map it.
    Map(nix::errno::Errno),
}

impl fmt::Display for AdoptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Seals { have } => {
                write!(f, "seals {have:#x}; shared memory needs F_SEAL_SHRINK and F_SEAL_GROW ({NEEDED:#x})")
            }
            Self::Size { have, want } => write!(f, "{have} bytes; {want} are needed"),
            Self::Map(errno) => write!(f, "cannot be mapped: {errno}"),
        }
    }
}

impl std::error::Error for AdoptError {}

impl Mapping {
    /// Fresh memory, all 0. Nothing if the system gives none.
    pub fn new(name: &'static CStr, count: usize) -> Option<Self> {
        let fd = memfd(name, count);
        let words = map(ptr::null_mut(), count, fd).ok()?;
        Some(Self { name, words, fd: AtomicI32::new(fd) })
    }

    /// Memory that another process made.
    ///
    /// # Errors
    /// [`AdoptError`], naming what is not as it should be.
    pub fn adopt(fd: &OwnedFd, count: usize) -> Result<&'static [AtomicU64], AdoptError> {
        // SAFETY: asks about a descriptor that is ours.
        let have = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
        if have < 0 || have & NEEDED != NEEDED {
            return Err(AdoptError::Seals { have });
        }
        // SAFETY: all zeros is a valid `stat`.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor and the result are ours.
        let asked = unsafe { libc::fstat(fd.as_raw_fd(), &raw mut stat) };
        let want = count * 8;
        if asked != 0 || usize::try_from(stat.st_size) != Ok(want) {
            return Err(AdoptError::Size { have: stat.st_size, want });
        }
        map(ptr::null_mut(), count, fd.as_raw_fd()).map_err(AdoptError::Map)
    }

    /// The words.
    pub const fn words(&self) -> &'static [AtomicU64] {
        self.words
    }

    /// What to pass to the other process, if it can be.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.load(Ordering::Acquire);
        // SAFETY: a descriptor of our own, closed by `renew` alone, in a child that nobody has given it to yet.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// In a forked child, before anything else: memory of its own in the same place, all 0. False if the system gives none; then the
    /// words must not be used. Takes no lock and allocates nothing.
    pub fn renew(&self) -> bool {
        let fd = memfd(self.name, self.words.len());
        let at = self.words.as_ptr().cast_mut();
        if map(at, self.words.len(), fd).is_err() {
            return false;
        }
        let before = self.fd.swap(fd, Ordering::AcqRel);
        if before >= 0 {
            // SAFETY: our own descriptor, which is replaced.
            unsafe { libc::close(before) };
        }
        true
    }
}

/// A sealed memfd of so many words; -1 if there is none to be had.
fn memfd(name: &CStr, count: usize) -> c_int {
    let Ok(bytes) = libc::off_t::try_from(count * 8) else { return -1 };
    // SAFETY: a C string; makes a descriptor.
    let low = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if low < 0 {
        return -1;
    }
    // SAFETY: our own descriptor, which nobody else has seen.
    let Ok(fd) = high::copy(unsafe { OwnedFd::from_raw_fd(low) }) else { return -1 };
    // SAFETY: our own descriptor.
    let sealed = unsafe {
        libc::ftruncate(fd.as_raw_fd(), bytes) == 0 && libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) == 0
    };
    if sealed { fd.into_raw_fd() } else { -1 }
}

/// Maps it anywhere, or over words of ours that are mapped at `at`.
fn map(at: *mut AtomicU64, count: usize, fd: c_int) -> Result<&'static [AtomicU64], nix::errno::Errno> {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let anonymous = if fd < 0 { libc::MAP_ANONYMOUS } else { 0 };
    // SAFETY: a new mapping, where nothing is, or in the place of one of ours of the same size: atomics stay atomics, which anybody may
    // change at any time.
    let got = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(at.cast(), count * 8, access, libc::MAP_SHARED | fixed | anonymous, fd, 0)
    };
    if got == libc::MAP_FAILED {
        return Err(nix::errno::Errno::last());
    }
    // SAFETY: the mapping is `count` words of zeros or of atomics of another process, aligned to a page, never unmapped, of a size that
    // is sealed, and used as atomics only.
    Ok(unsafe { std::slice::from_raw_parts(got.cast::<AtomicU64>(), count) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_the_same_words_and_neither_can_change_their_number() {
        let mine = Mapping::new(c"deepum-test", 512).unwrap();
        let passed = mine.descriptor().unwrap().try_clone_to_owned().unwrap();
        let theirs = Mapping::adopt(&passed, 512).unwrap();
        mine.words()[511].store(7, Ordering::Relaxed);
        assert_eq!(theirs[511].load(Ordering::Relaxed), 7);
        for bytes in [0, 8192] {
            // SAFETY: our own descriptor.
            assert_eq!(unsafe { libc::ftruncate(passed.as_raw_fd(), bytes) }, -1);
        }
        let error = Mapping::adopt(&passed, 513).unwrap_err();
        assert_eq!(error, AdoptError::Size { have: 4096, want: 4104 });
        assert_eq!(error.to_string(), "4096 bytes; 4104 are needed");
    }

    #[test]
    fn memory_that_may_shrink_is_refused_by_name() {
        // SAFETY: a constant C string; the descriptor is ours from here on.
        let open = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"test".as_ptr(), libc::MFD_ALLOW_SEALING)) };
        // SAFETY: our own descriptor.
        assert_eq!(unsafe { libc::ftruncate(open.as_raw_fd(), 4096) }, 0);
        assert_eq!(Mapping::adopt(&open, 512).unwrap_err(), AdoptError::Seals { have: 0 });
        // SAFETY: as above.
        unsafe { libc::fcntl(open.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) };
        let error = Mapping::adopt(&open, 512).unwrap_err();
        assert!(error.to_string().contains("needs F_SEAL_SHRINK and F_SEAL_GROW"), "{error}");
        let file = OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
        assert_eq!(Mapping::adopt(&file, 512).unwrap_err(), AdoptError::Seals { have: -1 });
    }

    #[test]
    fn a_forked_child_may_have_words_of_its_own() {
        let mapping = Mapping::new(c"deepum-test", 512).unwrap();
        mapping.words()[0].store(7, Ordering::Relaxed);
        // SAFETY: the child makes plain system calls only, and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let fresh = mapping.renew() && mapping.words()[0].load(Ordering::Relaxed) == 0;
            mapping.words()[0].store(9, Ordering::Relaxed);
            // SAFETY: ends the child here.
            unsafe { libc::_exit(i32::from(!fresh)) };
        }
        let mut status = 0;
        // SAFETY: our own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!((status, mapping.words()[0].load(Ordering::Relaxed)), (0, 7));
    }
}
