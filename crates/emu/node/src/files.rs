//! The files that stand for nodes, known by the name their socket is bound to, and what is done to them.

use crate::device::{Device, Door, Wish, door};
use crate::{fail, forward};
use deepum_emu_abi::forward::{Node, POLL};
use std::ffi::{c_char, c_int, c_ulong, c_void};
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Whether this process has met a node: before that, a `poll` need not look for any.
static MET: AtomicBool = AtomicBool::new(false);

/// `AF_UNIX`, and the size of an address of it, in the types they are wanted in.
const FAMILY: libc::sa_family_t = 1;
const ADDRESS: libc::socklen_t = 110;
const _: () = assert!(FAMILY as c_int == libc::AF_UNIX && ADDRESS as usize == size_of::<libc::sockaddr_un>());

/// What the descriptor is, if it is a file of ours.
fn of(fd: RawFd) -> Option<Node> {
    // SAFETY: all zero is an address of no family.
    let mut name: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    let mut len = ADDRESS;
    // SAFETY: fills at most `len` bytes of the address or fails; any number is allowed as a descriptor.
    if unsafe { libc::getsockname(fd, (&raw mut name).cast(), &raw mut len) } != 0 {
        return None;
    }
    let path = (len as usize).checked_sub(size_of::<libc::sa_family_t>())?;
    if name.sun_family != FAMILY {
        return None;
    }
    let path = name.sun_path.get(..path)?;
    let found = Node::named(&path.iter().map(|c| c.to_ne_bytes()[0]).collect::<Bytes>().0);
    if found.is_some() {
        MET.store(true, Ordering::Relaxed);
    }
    found
}

/// Bytes of a name, without allocating.
struct Bytes([u8; 108]);

impl FromIterator<u8> for Bytes {
    fn from_iter<I: IntoIterator<Item = u8>>(iter: I) -> Self {
        let mut bytes = Self([0; 108]);
        bytes.0.iter_mut().zip(iter).for_each(|(to, from)| *to = from);
        bytes
    }
}

/// Keeps the calling thread's errno as the program had it.
fn quietly<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: the calling thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let result = f();
    // SAFETY: as above; what we asked on the way is not the caller's business.
    unsafe { *errno = before };
    result
}

/// Opens a node: a fresh descriptor that the device knows.
pub(crate) fn open(device: &Device, node: Node, cloexec: bool) -> c_int {
    let mut fds: [RawFd; 2] = [-1, -1];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: makes two descriptors in an array of two.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) } != 0 {
        return -1;
    }
    // SAFETY: both were just made, for us alone.
    let [fd, peer] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    if let Err(errno) = bind(&fd, node) {
        return fail(errno);
    }
    if let Err(errno) = device.open(node, fd.as_raw_fd(), peer.as_raw_fd()) {
        return fail(errno);
    }
    MET.store(true, Ordering::Relaxed);
    // The device's from now on.
    let _ = peer.into_raw_fd();
    if !cloexec {
        // Both ends close on exec; the program's may have to stay.
        // SAFETY: changes a flag of a descriptor of ours.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0) };
    }
    fd.into_raw_fd()
}

/// Gives the file its name, which ends with the last descriptor of it, in whatever process.
fn bind(fd: &OwnedFd, node: Node) -> Result<(), c_int> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    // SAFETY: all zero is an address of no family.
    let mut name: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    name.sun_family = FAMILY;
    // Processes of several containers may share names and have equal numbers.
    for _ in 0..10_000 {
        let mut text = Bytes([0; 108]);
        let mut rest = &mut text.0[..];
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let written = rest.write_all(node.name()).and_then(|()| write!(rest, "{}.{number}", std::process::id()));
        written.map_err(|_| libc::EIO)?;
        let len = 108 - rest.len();
        for (to, from) in name.sun_path.iter_mut().zip(&text.0[..len]) {
            *to = c_char::from_ne_bytes([*from]);
        }
        let len = libc::socklen_t::try_from(size_of::<libc::sa_family_t>() + len).map_err(|_| libc::EIO)?;
        // SAFETY: a socket of ours, and an address of at least this length.
        if unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), len) } == 0 {
            return Ok(());
        }
        // SAFETY: the calling thread's errno.
        match unsafe { *libc::__errno_location() } {
            libc::EADDRINUSE => {}
            errno => return Err(errno),
        }
    }
    Err(libc::EADDRINUSE)
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
            libc::close(fd);
            return fail(libc::EIO);
        }
        fd
    }
}

/// A request on a node; nothing if the descriptor is not one.
pub(crate) fn ioctl(fd: RawFd, request: c_ulong, arg: *mut c_void) -> Option<c_int> {
    quietly(|| of(fd))?;
    let here = match door() {
        // SAFETY: the caller's own call.
        Door::Emulated(device) => unsafe { device.ioctl(fd, request, arg) },
        Door::Absent | Door::Genuine => -libc::ENOTTY,
    };
    // A file that the device here does not know is that of another process.
    // SAFETY: the caller's own call.
    let answer = if here == -libc::ENOTTY { unsafe { forward::call(fd, request, arg) } } else { here };
    Some(if answer < 0 { fail(-answer) } else { answer })
}

/// A mapping of a node; nothing if the descriptor is not one.
pub(crate) fn map(fd: RawFd, wish: &Wish) -> Option<*mut c_void> {
    if fd < 0 {
        return None;
    }
    quietly(|| of(fd))?;
    let here = match door() {
        // SAFETY: the caller's own call.
        Door::Emulated(device) => unsafe { device.map(fd, wish) },
        Door::Absent | Door::Genuine => -libc::ENOTTY,
    };
    Some(match here {
        0 => wish.address,
        // The VA space is of another process, as the device is.
        error => {
            fail(if error == -libc::ENOTTY { libc::EOPNOTSUPP } else { -error });
            libc::MAP_FAILED
        }
    })
}

/// Before a poll: tools files among the descriptors become readable or not, as the driver's poll would find them.
pub(crate) fn before_poll(fds: *mut libc::pollfd, count: libc::nfds_t) -> Option<c_int> {
    if !MET.load(Ordering::Relaxed) || fds.is_null() {
        return None;
    }
    let count = usize::try_from(count).ok()?;
    quietly(|| {
        for n in 0..count {
            // SAFETY: the caller's array of `count` elements.
            let fd = unsafe { (*fds.add(n)).fd };
            if fd >= 0 && of(fd) == Some(Node::Tools) {
                let mut byte = 0u8;
                // SAFETY: takes wake-ups that may not be true any more out of a socket of ours, without waiting.
                while unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) } > 0 {}
                look_again(fd);
            }
        }
    });
    None
}

/// The device wakes the pollers of a tools file if there is reason to, now or at the next entry.
fn look_again(fd: RawFd) {
    let here = if let Door::Emulated(device) = door() { device.poll(fd) } else { -libc::ENOTTY };
    if here == -libc::ENOTTY {
        // SAFETY: a question without parameters.
        unsafe { forward::call(fd, POLL, std::ptr::null_mut()) };
    }
}

/// The link of a descriptor that is a node; nothing if the link is something else.
pub(crate) fn readlink(dir: c_int, path: *const c_char, buffer: *mut c_char, room: usize) -> Option<isize> {
    if path.is_null() || buffer.is_null() {
        return None;
    }
    // SAFETY: a C string, by the C function's contract.
    let fd = number_at_the_end(unsafe { std::ffi::CStr::from_ptr(path) }.to_bytes())?;
    let node = quietly(|| of(fd))?;
    let mut link = [0u8; 64];
    // SAFETY: the caller's path, our buffer; the kernel checks the path.
    let len = unsafe { libc::syscall(libc::SYS_readlinkat, dir, path, link.as_mut_ptr(), link.len()) };
    let link = link.get(..usize::try_from(len).ok()?)?;
    let number = link.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    let ino: u64 = std::str::from_utf8(number).ok()?.parse().ok()?;
    // It is a link to this very file, and not one of another folder that ends in a number.
    if ino != inode(fd)? {
        return None;
    }
    let name: &[u8] = match node {
        Node::Uvm => b"/dev/nvidia-uvm",
        Node::Tools => b"/dev/nvidia-uvm-tools",
    };
    let len = name.len().min(room);
    // SAFETY: the caller's buffer of `room` bytes, of which no more are written.
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), buffer.cast(), len) };
    Some(len.cast_signed())
}

/// The descriptor that `/proc/…/fd/N` names.
fn number_at_the_end(path: &[u8]) -> Option<RawFd> {
    let last = path.rsplit(|c| *c == b'/').next()?;
    if !last.first()?.is_ascii_digit() {
        return None;
    }
    std::str::from_utf8(last).ok()?.parse().ok()
}

fn inode(fd: RawFd) -> Option<u64> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fills the buffer or fails.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled.
    Some(unsafe { stat.assume_init() }.st_ino)
}
