//! Descriptors of ours in somebody else's process: out of the way of what the program opens.
//!
//! A program may expect the lowest numbers for its own files, and libraries write to 2 whatever it is: where the program has closed its
//! stderr, that must not be a connection, a bell, or a file of ours.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};

/// From where they are numbered, where the program may have so many.
pub const HIGH: RawFd = 200;

/// A copy of a descriptor with a high number, close-on-exec. Takes no lock and allocates nothing.
///
/// # Errors
/// As `fcntl(2)`: if the process has as many descriptors as it may have.
pub fn copy(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    let from = |lowest| fcntl(fd.as_fd(), FcntlArg::F_DUPFD_CLOEXEC(lowest));
    // Past the limit of a process that may have few, never among the first three.
    let number = from(HIGH).or_else(|_| from(3))?;
    // SAFETY: `fcntl` has just made this descriptor, for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
