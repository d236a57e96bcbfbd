//! Who is at the other end, by the kernel's word.

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `SO_PEERPIDFD` (Linux 6.5, `asm-generic/socket.h`).
const SO_PEERPIDFD: libc::c_int = 77;

/// A connected process, as it was when it connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Itself; 0 where it is in another process name space.
    pub pid: u32,
}

impl Peer {
    /// Who connected here.
    ///
    /// # Errors
    /// As `getsockopt(2)`.
    pub fn of(connection: BorrowedFd<'_>) -> io::Result<Self> {
        let found = getsockopt(&connection, PeerCredentials)?;
        Ok(Self { uid: found.uid(), gid: found.gid(), pid: u32::try_from(found.pid()).unwrap_or(0) })
    }

    /// What it calls itself, for people: at most 15 bytes by the kernel's own bound.
    pub fn command(self) -> String {
        let comm = fs::read(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        String::from_utf8_lossy(&comm).chars().filter(|c| !c.is_control()).collect()
    }
}

/// The groups of who connected here, besides its own.
pub fn groups(connection: BorrowedFd<'_>) -> Vec<u32> {
    let mut groups = vec![0u32; 1 << 16];
    let mut len = libc::socklen_t::try_from(size_of_val(groups.as_slice())).unwrap_or(0);
    // SAFETY: a buffer of the length said.
    let rc = unsafe {
        let to = groups.as_mut_ptr().cast();
        libc::getsockopt(connection.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERGROUPS, to, &raw mut len)
    };
    groups.truncate(if rc == 0 { len as usize / size_of::<u32>() } else { 0 });
    groups
}

/// A descriptor that becomes readable when who connected here ends; nothing where the system has no such thing.
pub fn pidfd(connection: BorrowedFd<'_>, peer: Peer) -> Option<OwnedFd> {
    let mut fd: libc::c_int = -1;
    let mut len = libc::socklen_t::try_from(size_of_val(&fd)).unwrap_or(0);
    // SAFETY: room for one descriptor.
    let rc = unsafe {
        let to = (&raw mut fd).cast();
        libc::getsockopt(connection.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, to, &raw mut len)
    };
    if rc != 0 || fd < 0 {
        // An older kernel. The number may have been given to another process meanwhile only if this one has ended, and then its end of the
        // connection tells.
        let pid = libc::pid_t::try_from(peer.pid).ok().filter(|pid| *pid > 0)?;
        // SAFETY: no pointers.
        let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        fd = libc::c_int::try_from(opened).ok().filter(|fd| *fd >= 0)?;
    }
    // SAFETY: the system has just made this descriptor, for us alone, close-on-exec.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}
