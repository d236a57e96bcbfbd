//! Packets with descriptors over a Unix socket of kind SEQPACKET: how `deepumd` and its programs reach each other.
//!
//! Problem: descriptors that come along with a packet are open in this process from that moment, wanted or not. Whoever looks away
//! when too many came, or the packet was too long, leaks them, and the other end decides how many.
//! Idea: there is always room for as many as the kernel lets one message carry, each becomes an [`OwnedFd`] before anything
//! is judged, and judging is the caller's: dropping closes. They are close-on-exec from the start.
//!
//! Not here: what is in the packets (`deepum-protocol`, `control`).

use deepum_kmod_bridge::high;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Most descriptors that one message carries (`SCM_MAX_FD`, the same since Linux 2.6.38).
const MOST: usize = 253;

/// A packet as it came.
#[derive(Debug)]
pub struct Received {
    /// Bytes of it that are in the buffer.
    pub len: usize,
    /// Whether the packet was longer than the buffer.
    pub cut: bool,
    /// What came along.
    pub fds: Vec<OwnedFd>,
    /// Whether descriptors came along that this process had no room for.
    pub fds_lost: bool,
}

/// A socket of this kind that is connected to nothing: close-on-exec.
///
/// # Errors
/// As `socket(2)`.
pub fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
    owned(fd)
}

/// Two connected ends: close-on-exec.
///
/// # Errors
/// As `socketpair(2)`.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds: [RawFd; 2] = [-1; 2];
    // SAFETY: room for two descriptors.
    let rc = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr()) };
    check(rc)?;
    // SAFETY: `socketpair` has just made both, for us alone.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

/// Connects to the daemon that listens at `path`. The connection's number is a high one.
///
/// # Errors
/// As `connect(2)`; a path that no socket address holds is `InvalidInput`.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    // Before it is connected to anybody who would hear what is written to a low number.
    let fd = high::copy(socket()?)?;
    let (address, len) = address(path)?;
    // SAFETY: an address of this length.
    check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), len) })?;
    Ok(fd)
}

/// Listens at `path`, where nothing may be.
///
/// # Errors
/// As `bind(2)` and `listen(2)`.
pub fn listen(path: &Path) -> io::Result<OwnedFd> {
    let fd = socket()?;
    let (address, len) = address(path)?;
    // SAFETY: an address of this length.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })?;
    // SAFETY: no pointers.
    check(unsafe { libc::listen(fd.as_raw_fd(), 1024) })?;
    Ok(fd)
}

/// The next connection, non-blocking and close-on-exec.
///
/// # Errors
/// As `accept4(2)`.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: nobody asks for the address.
    owned(unsafe { libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags) })
}

fn address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: plain numbers, for which zero is a value.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or(1);
    let name = path.as_os_str().as_bytes();
    // One byte stays 0: the end of the text.
    if name.is_empty() || name.len() >= address.sun_path.len() || name.contains(&0) {
        let text =
            format!("{} cannot be a socket: 1 to {} bytes are allowed", path.display(), address.sun_path.len() - 1);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    for (to, from) in address.sun_path.iter_mut().zip(name) {
        *to = from.cast_signed();
    }
    let len = size_of_val(&address);
    Ok((address, libc::socklen_t::try_from(len).unwrap_or(libc::socklen_t::MAX)))
}

/// Sends one packet, with descriptors. Never raises SIGPIPE.
///
/// # Errors
/// As `sendmsg(2)`: `WouldBlock` on a non-blocking socket that is full. A packet is sent whole or not at all.
pub fn send(socket: BorrowedFd<'_>, packet: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    if fds.len() > MOST {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} descriptors; at most {MOST} go", fds.len()),
        ));
    }
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let mut control = control_buffer();
    let mut part = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
    // SAFETY: plain numbers and null pointers, which are values.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !raw.is_empty() {
        let bytes = u32::try_from(size_of_val(raw.as_slice())).unwrap_or(u32::MAX);
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: arithmetic on a length.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(bytes) } as usize;
        // SAFETY: the buffer holds the header and `MOST` descriptors, aligned as a header is; there are no more.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(bytes) as usize;
            std::ptr::copy_nonoverlapping(raw.as_ptr(), libc::CMSG_DATA(header).cast(), raw.len());
        }
    }
    loop {
        // SAFETY: the message points to a packet, one part and a control buffer that live until the call is over.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        match sent {
            0.. => return Ok(()),
            _ => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e => return Err(e),
            },
        }
    }
}

/// Takes the next packet. `len` 0 without descriptors is a hang-up.
///
/// # Errors
/// As `recvmsg(2)`: `WouldBlock` on a non-blocking socket where nothing waits.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    let mut control = control_buffer();
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: plain numbers and null pointers, which are values.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(control.as_slice());
    let len = loop {
        // SAFETY: the message points to a buffer, one part and a control buffer that live until the call is over.
        let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        match usize::try_from(got) {
            Ok(len) => break len,
            Err(_) => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e => return Err(e),
            },
        }
    };
    let mut fds = Vec::new();
    // SAFETY: the kernel has written whole headers into the buffer, and their length into the message; the macros stay
    // inside. A header of SCM_RIGHTS is followed by descriptors that are open here and belong to nobody yet.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*header).cmsg_len - libc::CMSG_LEN(0) as usize;
                let data: *const RawFd = libc::CMSG_DATA(header).cast();
                fds.extend((0..bytes / size_of::<RawFd>()).map(|i| OwnedFd::from_raw_fd(data.add(i).read_unaligned())));
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    let cut = message.msg_flags & libc::MSG_TRUNC != 0;
    Ok(Received { len, cut, fds, fds_lost: message.msg_flags & libc::MSG_CTRUNC != 0 })
}

/// Room for the control data of one message, aligned for its header.
fn control_buffer() -> Vec<u64> {
    let fds = u32::try_from(size_of::<[RawFd; MOST]>()).unwrap_or(u32::MAX);
    // SAFETY: arithmetic on a length.
    let bytes = unsafe { libc::CMSG_SPACE(fds) } as usize;
    vec![0; bytes.div_ceil(8)]
}

fn check(rc: i32) -> io::Result<()> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    check(fd)?;
    // SAFETY: the system has just made this descriptor, for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsFd;

    #[test]
    fn a_packet_and_its_descriptors_arrive_whole_and_in_order() {
        let (one, two) = pair().unwrap();
        let mut files: Vec<File> = (0..3).map(|_| tempfile::tempfile().unwrap()).collect();
        for (i, file) in files.iter_mut().enumerate() {
            file.write_all(&b"abc"[i..=i]).unwrap();
        }
        let fds: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        send(one.as_fd(), b"first", &fds).unwrap();
        send(one.as_fd(), b"second", &[]).unwrap();
        let mut buffer = [0; 16];
        let first = receive(two.as_fd(), &mut buffer).unwrap();
        assert_eq!((&buffer[..first.len], first.cut, first.fds_lost), (&b"first"[..], false, false));
        let read = |fd: OwnedFd| {
            let mut file = File::from(fd);
            let mut text = String::new();
            file.rewind().unwrap();
            file.read_to_string(&mut text).unwrap();
            text
        };
        assert_eq!(first.fds.into_iter().map(read).collect::<String>(), "abc");
        let second = receive(two.as_fd(), &mut buffer).unwrap();
        assert_eq!((&buffer[..second.len], second.fds.len()), (&b"second"[..], 0));
        drop(one);
        let end = receive(two.as_fd(), &mut buffer).unwrap();
        assert_eq!((end.len, end.fds.len()), (0, 0));
    }

    #[test]
    fn what_is_too_long_is_cut_and_said_to_be_and_its_descriptors_come_all_the_same() {
        let (one, two) = pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        send(one.as_fd(), &[7; 100], &[file.as_fd(); MOST]).unwrap();
        let mut buffer = [0; 16];
        let got = receive(two.as_fd(), &mut buffer).unwrap();
        assert!(got.cut && got.len == 16 && got.fds.len() == MOST && !got.fds_lost, "{got:?}");
        assert!(send(one.as_fd(), b"", &[file.as_fd(); MOST + 1]).is_err());
    }

    #[test]
    fn a_path_that_is_too_long_is_named() {
        let error = connect(Path::new(&"x".repeat(200))).unwrap_err().to_string();
        assert!(error.contains("1 to 107 bytes"), "{error}");
    }
}
