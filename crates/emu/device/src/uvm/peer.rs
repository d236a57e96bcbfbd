//! The far end of a file's socket pair, which in a real driver would be no descriptor.
//!
//! A program that closes every descriptor closes this one, too, and what it opens next may get the number. So the number is looked at before it is used, and
//! above all before it is closed.

use super::caller::FileKey;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

/// See the module.
#[derive(Debug)]
pub(super) struct Peer {
    number: RawFd,
    key: Option<FileKey>,
}

impl Peer {
    /// Of the end that the program is not to know.
    #[must_use]
    pub fn new(end: OwnedFd) -> Self {
        Self { key: FileKey::of(end.as_raw_fd()), number: end.into_raw_fd() }
    }

    /// Whether the number is still this end's.
    fn is_there(&self) -> bool {
        self.key.is_some() && FileKey::of(self.number) == self.key
    }

    /// Whether the program's end is closed for good; it is of no use without this one, either.
    pub(super) fn hung_up(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.number, events: 0, revents: 0 };
        // SAFETY: one valid pollfd, no waiting.
        !self.is_there() || unsafe { libc::poll(&raw mut poll, 1, 0) == 1 && poll.revents & libc::POLLHUP != 0 }
    }

    /// Makes the program's end readable.
    pub(super) fn wake(&self) {
        if self.is_there() {
            let byte = 1u8;
            // SAFETY: sends one byte of ours. If the other end has not taken earlier ones it is readable anyway.
            unsafe {
                libc::send(self.number, (&raw const byte).cast(), 1, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
            }
        }
    }
}

impl AsRawFd for Peer {
    fn as_raw_fd(&self) -> RawFd {
        self.number
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if self.is_there() {
            // SAFETY: the number was given to us alone, and is still that of the same file.
            unsafe { libc::close(self.number) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::FromRawFd;

    /// Both ends of a socket pair.
    fn pair(kind: i32) -> [OwnedFd; 2] {
        let mut fds = [0; 2];
        // SAFETY: two new descriptors, ours alone.
        unsafe {
            assert_eq!(libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr()), 0);
            fds.map(|fd| OwnedFd::from_raw_fd(fd))
        }
    }

    /// Takes one byte, if there is one.
    fn received(fd: &OwnedFd) -> bool {
        let mut byte = 0u8;
        // SAFETY: room for one byte.
        unsafe { libc::recv(fd.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) == 1 }
    }

    #[test]
    fn it_is_closed_once_nobody_needs_it_and_tells_of_the_other_end() {
        let [file, end] = pair(libc::SOCK_SEQPACKET);
        let peer = Peer::new(end);
        peer.wake();
        assert!(received(&file) && !peer.hung_up());
        let number = peer.as_raw_fd();
        drop(file);
        assert!(peer.hung_up());
        let key = peer.key;
        drop(peer);
        assert_ne!(FileKey::of(number), key);
    }

    #[test]
    fn a_number_that_the_program_has_given_to_a_file_of_its_own_is_let_alone() {
        let ([_file, end], [own, others]) = (pair(libc::SOCK_SEQPACKET), pair(libc::SOCK_STREAM));
        let peer = Peer::new(end);
        // SAFETY: closes the end that is ours to close, and makes its number that of another socket of ours.
        let taken = unsafe {
            assert_eq!(libc::dup2(own.as_raw_fd(), peer.as_raw_fd()), peer.as_raw_fd());
            OwnedFd::from_raw_fd(peer.as_raw_fd())
        };
        let key = FileKey::of(own.as_raw_fd());
        peer.wake();
        assert!(peer.hung_up() && !received(&others));
        drop(peer);
        assert_eq!(FileKey::of(taken.as_raw_fd()), key);
    }
}
