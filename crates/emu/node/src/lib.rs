//! `libdeepum_emu_node.so`: the place of `/dev/nvidia-uvm` and `/dev/nvidia-uvm-tools` in a process without a driver.
//!
//! Purpose: code that talks to the driver through its character devices (`kmod-bridge`) runs unchanged on the emulated
//! device. The answers are given by the stand-in `libcuda.so.1`; this library is preloaded and only sees to it that
//! the C library's `open`, `ioctl`, `mmap`, `poll`, `readlink` and the like reach it.
//!
//! An opened node is a real descriptor, one end of a socket pair whose other end the device has. So `dup`, `fcntl`,
//! close-on-exec, `SCM_RIGHTS`, `epoll` and `close` are the kernel's own. A file is known again, by anybody, by the name its
//! socket is bound to ([`deepum_emu_abi::forward`]). In a process whose `libcuda.so.1` does not know it, because it came from
//! another process or has none at all, requests on it are forwarded to the device it belongs to ([`forward`]).
//!
//! It is preloaded into everything the program starts, so: no thread, no output, nothing at load time but relocation; a
//! call that is not about a node costs a few comparisons, an `ioctl` one question to the kernel. Until the process has a
//! `libcuda.so.1` with a device that is up, the nodes do not exist; beside a genuine `libcuda.so.1` they are the
//! kernel's.
//!
//! Not seen: `fopen` and direct system calls, which do not pass these symbols. `/sys/module/nvidia/version` can be opened.
//! `epoll` may report a tools file readable once too often; a `poll` first tells the device to look again, in a process
//! that has opened a node or made a request on one.

mod device;
mod files;
mod forward;
mod real;

use deepum_emu_abi::forward::Node;
use device::Wish;
use real::real;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};

/// What a path is to us.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Special {
    Node(Node),
    /// `/sys/module/nvidia/version`.
    Release,
}

/// Recognises a path. Nearly all end at the first comparison.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn special(path: *const c_char) -> Option<Special> {
    if path.is_null() {
        return None;
    }
    // SAFETY: a C string, by our contract.
    match unsafe { CStr::from_ptr(path) }.to_bytes() {
        b"/dev/nvidia-uvm" => Some(Special::Node(Node::Uvm)),
        b"/dev/nvidia-uvm-tools" => Some(Special::Node(Node::Tools)),
        b"/sys/module/nvidia/version" => Some(Special::Release),
        _ => None,
    }
}

pub(crate) fn fail(errno: c_int) -> c_int {
    // SAFETY: the calling thread's errno.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Opens a special path; nothing if it is for the genuine function after all.
fn open_special(special: Special, flags: c_int) -> Option<c_int> {
    let cloexec = flags & libc::O_CLOEXEC != 0;
    match device::door() {
        device::Door::Genuine => None,
        device::Door::Absent => Some(fail(libc::ENOENT)),
        device::Door::Emulated(door) => Some(match special {
            Special::Node(node) => files::open(&door, node, cloexec),
            Special::Release => files::open_release(&door, cloexec),
        }),
    }
}

/// A path that exists and is of the same kind, to ask the genuine functions about instead; an errno if the special path
/// does not exist.
fn substitute(special: Special) -> Option<Result<*const c_char, c_int>> {
    match device::door() {
        device::Door::Genuine => None,
        device::Door::Absent => Some(Err(libc::ENOENT)),
        device::Door::Emulated(door) => Some(match special {
            Special::Node(node) if door.exists(node) => Ok(c"/dev/null".as_ptr()),
            Special::Release if door.release(&mut [0; 64]).is_some() => Ok(c"/proc/version".as_ptr()),
            _ => Err(libc::ENOENT),
        }),
    }
}

/// The genuine function's answer about a path that stands for a special one.
macro_rules! instead {
    ($path:expr, |$p:ident| $call:expr) => {
        // SAFETY: null or a C string, by the C function's contract.
        match unsafe { special($path) }.and_then(substitute) {
            None => None,
            Some(Err(errno)) => Some(fail(errno)),
            Some(Ok($p)) => {
                // SAFETY: the caller's own call, of another path, which is a constant.
                #[allow(unused_unsafe, reason = "finding the function is safe")]
                unsafe {
                    $call
                }
            }
        }
    };
}

/// What a function answers that failed.
trait Failed {
    const FAILED: Self;
}
impl Failed for c_int {
    const FAILED: Self = -1;
}
impl Failed for isize {
    const FAILED: Self = -1;
}
impl Failed for *mut c_void {
    const FAILED: Self = libc::MAP_FAILED;
}

/// Exported functions: `ours` may answer; if it does not, the genuine function gets the caller's own call.
macro_rules! interpose {
    ($($name:ident($($arg:ident: $type:ty),*) -> $ret:ty => $ours:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
            let ours: Option<$ret> = $ours;
            if let Some(answer) = ours {
                return answer;
            }
            match real!($name: unsafe extern "C" fn($($type),*) -> $ret) {
                // SAFETY: the caller's own call: same function, same arguments, same thread.
                Some(genuine) => unsafe { genuine($($arg),*) },
                None => { fail(libc::ENOSYS); Failed::FAILED },
            }
        }
    )*};
}

/// The answer to an open of `path`, if it is special. Safety: null or a C string.
macro_rules! opened {
    ($path:expr, $flags:expr) => {
        // SAFETY: null or a C string, by the C function's contract.
        unsafe { special($path) }.and_then(|special| open_special(special, $flags))
    };
}

// `open` and its kin are variadic in C; the mode travels in the same register either way on every Linux ABI, and only the
// genuine function reads it, when the flags say that it is there.
interpose! {
    open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int => opened!(path, flags);
    open64(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int => opened!(path, flags);
    __open_2(path: *const c_char, flags: c_int) -> c_int => opened!(path, flags);
    __open64_2(path: *const c_char, flags: c_int) -> c_int => opened!(path, flags);
    openat(dir: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int => opened!(path, flags);
    openat64(dir: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int => opened!(path, flags);
    __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int => opened!(path, flags);
    __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int => opened!(path, flags);

    ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int => files::ioctl(fd, request, arg);

    mmap(address: *mut c_void, len: usize, protection: c_int, flags: c_int, fd: c_int, offset: libc::off_t) -> *mut c_void
        => files::map(fd, &Wish { address, len, protection, flags, offset });
    mmap64(address: *mut c_void, len: usize, protection: c_int, flags: c_int, fd: c_int, offset: libc::off64_t) -> *mut c_void
        => files::map(fd, &Wish { address, len, protection, flags, offset });

    // These may look at a tools file, and then always go on to the genuine function, which does the waiting.
    poll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int => files::before_poll(fds, count);
    ppoll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout: *const libc::timespec, mask: *const libc::sigset_t) -> c_int
        => files::before_poll(fds, count);
    __poll_chk(fds: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int, room: usize) -> c_int
        => files::before_poll(fds, count);
    __ppoll_chk(fds: *mut libc::pollfd, count: libc::nfds_t, timeout: *const libc::timespec,
        mask: *const libc::sigset_t, room: usize) -> c_int => files::before_poll(fds, count);

    readlink(path: *const c_char, buffer: *mut c_char, room: usize) -> isize
        => files::readlink(libc::AT_FDCWD, path, buffer, room);
    readlinkat(dir: c_int, path: *const c_char, buffer: *mut c_char, room: usize) -> isize
        => files::readlink(dir, path, buffer, room);
    __readlink_chk(path: *const c_char, buffer: *mut c_char, room: usize, size: usize) -> isize
        => files::readlink(libc::AT_FDCWD, path, buffer, room.min(size));

    access(path: *const c_char, mode: c_int) -> c_int
        => instead!(path, |p| real!(access: unsafe extern "C" fn(*const c_char, c_int) -> c_int).map(|f| f(p, mode)));
    faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int
        => instead!(path, |p| real!(faccessat: unsafe extern "C" fn(c_int, *const c_char, c_int, c_int) -> c_int)
            .map(|f| f(dir, p, mode, flags)));
    stat(path: *const c_char, out: *mut libc::stat) -> c_int
        => instead!(path, |p| real!(stat: unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int).map(|f| f(p, out)));
    stat64(path: *const c_char, out: *mut libc::stat64) -> c_int
        => instead!(path, |p| real!(stat64: unsafe extern "C" fn(*const c_char, *mut libc::stat64) -> c_int).map(|f| f(p, out)));
    statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut libc::statx) -> c_int
        => instead!(path, |p| real!(statx: unsafe extern "C" fn(c_int, *const c_char, c_int, c_uint, *mut libc::statx) -> c_int)
            .map(|f| f(dir, p, flags, mask, out)));
}

/// The clock of the device that this process last made a request to, where that is in another one: as the stand-in `libcuda.so.1` tells it there.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported name")]
pub extern "C" fn deepumEmuNow() -> u64 {
    forward::now()
}

/// The calling thread stays until all is over that it gave up, likewise.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported name")]
pub extern "C" fn deepumEmuRest() {
    forward::rest();
}
