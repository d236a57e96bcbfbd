//! Requests on a file of another process's driver: sent to the device it belongs to, through the file itself.
//!
//! Each thread keeps a *line* to each of the few files it makes requests on; see [`deepum_emu_abi::forward`]. If the program that
//! has the device ends, its lines end, and requests fail with `ENODEV`.

use deepum_emu_abi::forward::{CONNECT, NOW, PARAMS, REPLY, REST, Reply, Request};
use std::cell::RefCell;
use std::ffi::{c_int, c_ulong, c_void};
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// Files that one thread can be in touch with; a further one takes the place of the oldest.
const LINES: usize = 4;

struct Line {
    /// The file, and the process that made the line: a forked child has a copy, which is not its to use.
    of: (u64, u64, u32),
    fd: OwnedFd,
}

thread_local! {
    static HERE: RefCell<[Option<Line>; LINES]> = const { RefCell::new([const { None }; LINES]) };
}

/// The file that a request was last made on. Who asks for the time has none in hand.
static LAST: AtomicI32 = AtomicI32::new(-1);

/// The request as the device answers it: 0 or more, or an error number below 0.
///
/// # Safety
/// As the caller's own `ioctl` on a file of the driver.
pub(crate) unsafe fn call(fd: RawFd, request: c_ulong, arg: *mut c_void) -> c_int {
    let result = HERE.try_with(|lines| {
        let Ok(mut lines) = lines.try_borrow_mut() else { return Err(libc::EBUSY) };
        let line = line(&mut lines, fd)?;
        LAST.store(fd, Ordering::Relaxed);
        // SAFETY: our own contract.
        let outcome = unsafe { ask(line.as_raw_fd(), request, arg) };
        if outcome.is_err() {
            lines[0] = None;
        }
        outcome
    });
    match result {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(errno)) => -errno,
        // The thread is ending.
        Err(_) => -libc::ENODEV,
    }
}

/// The clock of the device that this process last made a request to, in virtual nanoseconds; 0 if there is none.
pub(crate) fn now() -> u64 {
    let mut now = 0u64;
    // SAFETY: the answer is eight bytes for a word of ours.
    if unsafe { ask_again(NOW, (&raw mut now).cast()) } { now } else { 0 }
}

/// Keeps the calling thread until all is over that it gave up, on the device that it last made a request to.
pub(crate) fn rest() {
    let _ = HERE.try_with(|lines| {
        let Ok(mut lines) = lines.try_borrow_mut() else { return };
        let [Some(line), ..] = &*lines else { return };
        // SAFETY: no parameters.
        if unsafe { ask(line.fd.as_raw_fd(), REST as c_ulong, std::ptr::null_mut()) }.is_err() {
            lines[0] = None;
        }
    });
}

/// Asks the device that this process last made a request to; whether it did what it was asked for.
///
/// # Safety
/// What the answer to the request writes can be written at `arg`.
unsafe fn ask_again(request: u64, arg: *mut c_void) -> bool {
    let last = LAST.load(Ordering::Relaxed);
    // SAFETY: our own contract.
    last >= 0 && unsafe { call(last, request as c_ulong, arg) } == 0
}

/// The line to this file, which comes to stand first.
fn line(lines: &mut [Option<Line>; LINES], fd: RawFd) -> Result<&OwnedFd, c_int> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fills the buffer or fails.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return Err(errno());
    }
    // SAFETY: filled.
    let stat = unsafe { stat.assume_init() };
    let of = (stat.st_dev, stat.st_ino, std::process::id());
    let at = lines.iter().position(|line| line.as_ref().is_some_and(|line| line.of == of));
    lines[..=at.unwrap_or(LINES - 1)].rotate_right(1);
    if at.is_none() {
        lines[0] = Some(Line { of, fd: connect(fd)? });
    }
    lines[0].as_ref().map(|line| &line.fd).ok_or(libc::ENODEV)
}

/// A new line to the device of this file.
fn connect(file: RawFd) -> Result<OwnedFd, c_int> {
    let mut fds: [RawFd; 2] = [-1, -1];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: makes two descriptors in an array of two.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) } != 0 {
        return Err(errno());
    }
    // SAFETY: both were just made, for us alone.
    let [ours, theirs] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let mut hello = CONNECT;
    let mut iov = libc::iovec { iov_base: hello.as_mut_ptr().cast(), iov_len: hello.len() };
    let mut control = [0u64; 4];
    // SAFETY: all zero is an empty message.
    let mut message: libc::msghdr = unsafe { zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut iov, 1);
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: the control buffer has room for one descriptor and is aligned for a header, which these write into it.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(4) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(theirs.as_raw_fd());
    }
    // SAFETY: a whole message, whose parts live here.
    again(|| unsafe { libc::sendmsg(file, &raw const message, libc::MSG_NOSIGNAL) })?;
    Ok(ours)
}

/// One question and its answer.
///
/// # Safety
/// As [`call`].
unsafe fn ask(line: RawFd, request: c_ulong, arg: *mut c_void) -> Result<c_int, c_int> {
    let mut header = Request { number: request, argument: arg as u64 }.header();
    // The caller's parameters may end anywhere; the kernel says whether it can read so many bytes.
    let mut sent = Err(libc::EFAULT);
    for len in (0..=PARAMS).rev().step_by(4) {
        let mut iov = [
            libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() },
            libc::iovec { iov_base: arg, iov_len: len },
        ];
        // SAFETY: all zero is an empty message.
        let mut message: libc::msghdr = unsafe { zeroed() };
        (message.msg_iov, message.msg_iovlen) = (iov.as_mut_ptr(), iov.len());
        // SAFETY: the header is ours; the kernel only reads the caller's bytes, and only if they are there.
        sent = again(|| unsafe { libc::sendmsg(line, &raw const message, libc::MSG_NOSIGNAL) });
        if sent != Err(libc::EFAULT) {
            break;
        }
    }
    sent.map_err(lost)?;
    let mut packet = [0u8; REPLY];
    // SAFETY: fills our buffer.
    let len = again(|| unsafe { libc::recv(line, packet.as_mut_ptr().cast(), packet.len(), 0) }).map_err(lost)?;
    let reply = packet.get(..len).and_then(Reply::parse).ok_or(libc::ENODEV)?;
    let outcome = reply.outcome;
    for (at, bytes) in reply {
        // SAFETY: the device writes only where the caller's request says, which may be written by the caller's promise.
        if !unsafe { put(at, bytes) } {
            return Ok(-libc::EFAULT);
        }
    }
    Ok(outcome)
}

/// What a broken line means to the caller.
fn lost(error: c_int) -> c_int {
    if matches!(error, libc::EPIPE | libc::ECONNRESET) { libc::ENODEV } else { error }
}

/// Puts bytes at an address of this process; false if they cannot be put there.
///
/// # Safety
/// Where the system forbids `process_vm_writev`, the address must be writable.
unsafe fn put(at: u64, bytes: &[u8]) -> bool {
    let len = bytes.len();
    let here = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: len };
    let there = libc::iovec { iov_base: at as *mut c_void, iov_len: len };
    // By the thread's own number: that of the process has no memory once its main thread has ended.
    // SAFETY: the local side is only read; the remote side is checked by the kernel.
    let copied = unsafe { libc::process_vm_writev(libc::gettid(), &raw const here, 1, &raw const there, 1, 0) };
    if copied < 0 && matches!(errno(), libc::ENOSYS | libc::EPERM) {
        // SAFETY: by our own contract; `bytes` are in a buffer of ours.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, len) };
        return true;
    }
    usize::try_from(copied).is_ok_and(|copied| copied == len)
}

fn errno() -> c_int {
    // SAFETY: the calling thread's errno.
    unsafe { *libc::__errno_location() }
}

/// A system call, made again while a signal interrupts it.
fn again(mut call: impl FnMut() -> isize) -> Result<usize, c_int> {
    loop {
        match usize::try_from(call()) {
            Ok(done) => return Ok(done),
            Err(_) if errno() == libc::EINTR => {}
            Err(_) => return Err(errno()),
        }
    }
}
