//! The files that stand for nodes, known by inode, and what is done to them.
//!
//! The table only grows and has no lock: a child forked at any moment finds it whole. An inode number comes back only
//! after four billion others, so entries of closed files do no harm.

use crate::device::{Device, Door, Node, door};
use crate::fail;
use std::ffi::{c_char, c_int, c_ulong, c_void};
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Files a process can have opened in its life.
const ROOM: usize = 1024;

/// Inode numbers; the highest bit says that it is a tools file.
static FILES: [AtomicU64; ROOM] = [const { AtomicU64::new(0) }; ROOM];
static COUNT: AtomicUsize = AtomicUsize::new(0);
const TOOLS: u64 = 1 << 63;

/// The name of the memfd, by which its link is known too.
const MEMFD: &[u8] = b"/memfd:nvidia-uvm (deleted)";

fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

fn known(ino: u64) -> Option<Node> {
    let count = COUNT.load(Ordering::Acquire).min(ROOM);
    let found = FILES.iter().take(count).map(|f| f.load(Ordering::Acquire)).find(|f| f & !TOOLS == ino)?;
    Some(if found & TOOLS == 0 { Node::Uvm } else { Node::Tools })
}

fn inode(fd: RawFd) -> Option<u64> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fills the buffer or fails.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled.
    let stat = unsafe { stat.assume_init() };
    // What we make is a memfd or a socket, never a file with a name.
    let ours = stat.st_mode & libc::S_IFMT == libc::S_IFSOCK || stat.st_nlink == 0;
    ours.then_some(stat.st_ino)
}

fn of(fd: RawFd) -> Option<Node> {
    if any() { known(inode(fd)?) } else { None }
}

/// Opens a node: a fresh descriptor that the device knows.
pub(crate) fn open(device: &Device, node: Node, cloexec: bool) -> c_int {
    let mut fds: [RawFd; 2] = [-1, -1];
    // SAFETY: makes descriptors that are ours.
    let made = unsafe {
        match node {
            Node::Uvm => {
                let flags = if cloexec { libc::MFD_CLOEXEC } else { 0 };
                fds[0] = libc::memfd_create(c"nvidia-uvm".as_ptr(), flags);
                fds[0] >= 0
            }
            // Both ends close on exec; the program's may have to stay.
            Node::Tools => {
                let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
                let made = libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) == 0;
                if made && !cloexec {
                    libc::fcntl(fds[0], libc::F_SETFD, 0);
                }
                made
            }
        }
    };
    if !made {
        return -1;
    }
    let [fd, peer] = fds;
    let outcome = match (inode(fd), device.open(node, fd, peer)) {
        (Some(ino), Ok(())) => remember(ino, node),
        (_, Err(errno)) => {
            close(peer);
            Err(errno)
        }
        (None, Ok(())) => Err(libc::EIO),
    };
    match outcome {
        Ok(()) => fd,
        Err(errno) => {
            close(fd);
            fail(errno)
        }
    }
}

fn remember(ino: u64, node: Node) -> Result<(), c_int> {
    let place = COUNT.load(Ordering::Acquire);
    let slot = FILES.get(place).ok_or(libc::ENFILE)?;
    let entry = if node == Node::Tools { ino | TOOLS } else { ino };
    // Two threads may want the same place; one gets it.
    match slot.compare_exchange(0, entry, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            COUNT.fetch_max(place + 1, Ordering::AcqRel);
            Ok(())
        }
        Err(_) => {
            COUNT.fetch_max(place + 1, Ordering::AcqRel);
            remember(ino, node)
        }
    }
}

fn close(fd: RawFd) {
    if fd >= 0 {
        // SAFETY: a descriptor of ours that nobody has been told of.
        unsafe { libc::close(fd) };
    }
}

/// Opens the text of `/sys/module/nvidia/version`.
pub(crate) fn open_release(device: &Device, cloexec: bool) -> c_int {
    let (mut text, mut line) = ([0; 64], [0; 65]);
    let Some(release) = device.release(&mut text) else { return fail(libc::ENOENT) };
    let mut rest = &mut line[..];
    if rest.write_all(release).and_then(|()| rest.write_all(b"\n")).is_err() {
        return fail(libc::EIO);
    }
    let len = 65 - rest.len();
    let flags = if cloexec { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: a new descriptor; a buffer of the length given.
    unsafe {
        let fd = libc::memfd_create(c"nvidia-version".as_ptr(), flags);
        if fd >= 0 && libc::pwrite(fd, line.as_ptr().cast(), len, 0) != len.cast_signed() {
            close(fd);
            return fail(libc::EIO);
        }
        fd
    }
}

/// A request on a node; nothing if the descriptor is not one.
pub(crate) fn ioctl(fd: RawFd, request: c_ulong, arg: *mut c_void) -> Option<c_int> {
    of(fd)?;
    let Door::Emulated(device) = door() else { return None };
    // SAFETY: the caller's own call.
    let answer = unsafe { device.ioctl(fd, request, arg) };
    Some(if answer < 0 { fail(-answer) } else { answer })
}

/// Before a poll: tools files among the descriptors become readable or not, as the driver's poll would find them.
pub(crate) fn before_poll(fds: *mut libc::pollfd, count: libc::nfds_t) -> Option<c_int> {
    if !any() || fds.is_null() {
        return None;
    }
    let count = usize::try_from(count).ok()?;
    // SAFETY: the calling thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    for n in 0..count {
        // SAFETY: the caller's array of `count` elements.
        let fd = unsafe { (*fds.add(n)).fd };
        if fd < 0 || of(fd) != Some(Node::Tools) {
            continue;
        }
        if let Door::Emulated(device) = door()
            && !device.readable(fd)
        {
            let mut bytes = [0u8; 256];
            // SAFETY: takes wake-ups that are no longer true out of a socket of ours, into our buffer, without waiting.
            while unsafe { libc::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) } == 256 {}
        }
    }
    // SAFETY: as above; what we asked on the way is not the caller's business.
    unsafe { *errno = before };
    None
}

/// The link of a descriptor that is a node; nothing if the link is something else.
pub(crate) fn readlink(dir: c_int, path: *const c_char, buffer: *mut c_char, room: usize) -> Option<isize> {
    if !any() || buffer.is_null() {
        return None;
    }
    let mut link = [0u8; 64];
    // SAFETY: the caller's path, our buffer; the kernel checks the path.
    let len = unsafe { libc::syscall(libc::SYS_readlinkat, dir, path, link.as_mut_ptr(), link.len()) };
    let link = link.get(..usize::try_from(len).ok()?)?;
    let name: &[u8] = if link == MEMFD {
        b"/dev/nvidia-uvm"
    } else {
        let number = link.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
        let ino: u64 = std::str::from_utf8(number).ok()?.parse().ok()?;
        known(ino).filter(|node| *node == Node::Tools)?;
        b"/dev/nvidia-uvm-tools"
    };
    let len = name.len().min(room);
    // SAFETY: the caller's buffer of `room` bytes, of which no more are written.
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), buffer.cast(), len) };
    Some(len.cast_signed())
}
