//! Requests of other processes: a daemon that was handed a file, a tool that inherited one.
//!
//! A real driver lives in the kernel, so whoever holds a file can make requests on it. This one lives in the program, so they
//! are sent to it, through the file itself: see [`deepum_emu_abi::forward`] for what is sent.
//!
//! ```text
//! other process                    this process
//! thread ── CONNECT ──► file ──►   emu-uvm         one thread: a new line, a closed file
//!        ◄──── line ──────────►    emu-uvm-line    one thread per line: stands in for the caller
//! ```
//!
//! A line's thread is held by the machine exactly as a thread of an engine in this process would be, and so virtual time
//! does not know where an engine lives. It counts as the engine's ([`serves`]) if the engine that drives says that it is elsewhere.
//!
//! A caller that is killed leaves a line that ends. What it had asked for happens all the same, as in a kernel; [`quiesce`]
//! waits for that.

use super::caller::{Caller, FileKey, Pinned};
use super::peer::Peer;
use super::{Backend, NvStatus, Uvm};
use crate::say;
use deepum_emu_abi::forward::{CONNECT, NOW, PARAMS, POLL, REPLY, REST, Reply, Request};
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;
use std::{mem, ptr, thread};

/// Most lines at once; more are hung up on. An engine has six threads that make requests.
const LINES: usize = 256;

thread_local!(static SERVES: Cell<bool> = const { Cell::new(false) });

/// Whether the calling thread stands in for one of another process.
pub fn serves() -> bool {
    SERVES.try_with(Cell::get).unwrap_or(false)
}

/// What waits for other processes.
#[derive(Debug)]
pub struct Door {
    epoll: OwnedFd,
    files: Mutex<Watched>,
    lines: Mutex<Vec<Arc<Line>>>,
    /// A message was or is being taken from a file, and what follows from it is not done.
    accepting: AtomicBool,
}

/// Files whose far end is watched, by the number the system knows the watch by.
#[derive(Debug, Default)]
struct Watched {
    next: u64,
    files: BTreeMap<u64, (FileKey, Arc<Peer>)>,
}

/// A thread of another process, here.
#[derive(Debug)]
struct Line {
    fd: OwnedFd,
    /// A request was or is being taken, and is not answered.
    busy: AtomicBool,
    answered: AtomicU64,
}

/// Waits for other processes from now on, on a thread of its own.
///
/// # Errors
/// If the system gives no thread or descriptor.
pub fn serve(uvm: &Arc<Uvm>, backend: &'static (dyn Backend + Send + Sync)) -> io::Result<()> {
    // SAFETY: a new descriptor.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if epoll < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, for us alone.
    let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
    let door = Door { epoll, files: Mutex::default(), lines: Mutex::default(), accepting: AtomicBool::new(false) };
    let uvm = Arc::clone(uvm);
    if uvm.remote.set(door).is_err() {
        return Ok(());
    }
    spawn("emu-uvm", move || {
        let Some(door) = uvm.remote.get() else { return };
        while let Some((file, closed)) = door.next() {
            if closed {
                door.forget(&uvm, file);
            } else {
                door.accept(&uvm, file, backend);
            }
        }
    })
}

/// A thread that takes no signals: the program's handlers run on the program's threads.
fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // SAFETY: all zero is a valid set; both calls fill or read sets of ours, and the mask is put back.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let spawned = thread::Builder::new().name(name.to_owned()).spawn(body);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        spawned.map(drop)
    }
}

impl Door {
    /// Watches the far end of a file.
    pub(super) fn watch(&self, key: FileKey, peer: Arc<Peer>) {
        let mut watched = self.files.lock();
        let number = watched.next;
        watched.next += 1;
        let mut event = libc::epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: number };
        // SAFETY: two descriptors of ours, and an event to read from.
        unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, peer.as_raw_fd(), &raw mut event) };
        watched.files.insert(number, (key, peer));
    }

    /// The next file that something happens to, and whether it was closed.
    fn next(&self) -> Option<(u64, bool)> {
        self.accepting.store(false, Ordering::Release);
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        loop {
            // SAFETY: room for one event.
            let n = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), &raw mut event, 1, -1) };
            if n == 1 {
                self.accepting.store(true, Ordering::Release);
                // A message may have been left behind by a process that is gone; it is taken first.
                let events = event.events.cast_signed();
                return Some((event.u64, events & libc::EPOLLIN == 0 && events & libc::EPOLLHUP != 0));
            }
            if n < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                return None;
            }
        }
    }

    fn forget(&self, uvm: &Uvm, file: u64) {
        // Its far end goes with it, and the system's watch with that.
        if let Some((key, _peer)) = self.files.lock().files.remove(&file) {
            uvm.closed(key);
        }
    }

    /// Takes a message from a file: a new line, or nonsense.
    fn accept(&self, uvm: &Arc<Uvm>, file: u64, backend: &'static (dyn Backend + Send + Sync)) {
        let Some((key, peer)) = self.files.lock().files.get(&file).cloned() else { return };
        let fd = match take_line(peer.as_raw_fd()) {
            Ok(Some(fd)) => fd,
            Ok(None) => return,
            Err(_) => return self.forget(uvm, file),
        };
        let line = Arc::new(Line { fd, busy: AtomicBool::new(false), answered: AtomicU64::new(0) });
        let mut lines = self.lines.lock();
        if lines.len() >= LINES {
            return;
        }
        lines.push(Arc::clone(&line));
        drop(lines);
        let (here, uvm) = (Arc::clone(&line), Arc::clone(uvm));
        let spawned = spawn("emu-uvm-line", move || {
            SERVES.set(true);
            here.run(&uvm, key, backend);
            if let Some(door) = uvm.remote.get() {
                door.lines.lock().retain(|line| !Arc::ptr_eq(line, &here));
            }
        });
        if spawned.is_err() {
            self.lines.lock().retain(|other| !Arc::ptr_eq(other, &line));
        }
    }
}

/// The descriptor that came with a [`CONNECT`]; nothing if the message is something else, an error if there will be no more.
fn take_line(file: RawFd) -> io::Result<Option<OwnedFd>> {
    let (mut bytes, mut control) = ([0u8; 16], [0u64; 8]);
    let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all zero is an empty message.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut iov, 1);
    (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control));
    // SAFETY: a whole message, whose buffers live here.
    let len = unsafe { libc::recvmsg(file, &raw mut message, libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) };
    let Ok(len) = usize::try_from(len) else {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
    };
    let mut fds = Vec::new();
    // SAFETY: the kernel filled the control buffer with whole headers, and descriptors that are ours now.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let count = ((*header).cmsg_len - libc::CMSG_LEN(0) as usize) / 4;
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                fds.extend((0..count).map(|n| OwnedFd::from_raw_fd(data.add(n).read_unaligned())));
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    if len == 0 && fds.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(fds.pop().filter(|_| bytes[..len] == CONNECT && fds.is_empty()))
}

impl Line {
    fn run(&self, uvm: &Arc<Uvm>, key: FileKey, backend: &'static (dyn Backend + Send + Sync)) {
        let (mut packet, mut reply) = ([0u8; Request::HEADER + PARAMS + 1], Vec::with_capacity(REPLY));
        let fd = self.fd.as_raw_fd();
        while readable(fd, -1) {
            self.busy.store(true, Ordering::Release);
            // SAFETY: fills our buffer.
            let len = unsafe { libc::recv(fd, packet.as_mut_ptr().cast(), packet.len(), libc::MSG_DONTWAIT) };
            let Some(len) = usize::try_from(len).ok().filter(|len| *len > 0) else { break };
            let Some((request, params)) = Request::parse(&packet[..len]) else { break };
            if !answer(uvm, key, request, params, backend, &mut reply) {
                break;
            }
            // SAFETY: sends our buffer. A caller that is gone does not miss it.
            unsafe { libc::send(fd, reply.as_ptr().cast(), reply.len(), libc::MSG_NOSIGNAL) };
            self.answered.fetch_add(1, Ordering::Release);
            self.busy.store(false, Ordering::Release);
        }
        self.busy.store(false, Ordering::Release);
    }
}

/// Carries out a request; false if the device does not survive it.
fn answer(
    uvm: &Arc<Uvm>,
    key: FileKey,
    request: Request,
    params: &[u8],
    backend: &'static (dyn Backend + Send + Sync),
    reply: &mut Vec<u8>,
) -> bool {
    Reply::start(0, reply);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        if request.number == POLL {
            return i32::from(uvm.poll(key));
        }
        if request.number == NOW {
            let told = Reply::write(reply, request.argument, &backend.now().0.to_le_bytes());
            return if told { 0 } else { -libc::EFAULT };
        }
        if request.number == REST {
            backend.rest();
            return 0;
        }
        let Ok(arg) = usize::try_from(request.argument) else { return -libc::EFAULT };
        let mut caller = Elsewhere { arg, params, reply };
        // SAFETY: this caller relies on no address: it reads what was sent, and its writes are carried out elsewhere.
        unsafe { uvm.carry_out(key, request.number, arg, &mut caller, backend) }
    }));
    let Ok(outcome) = outcome else { return false };
    reply[..4].copy_from_slice(&outcome.to_le_bytes());
    true
}

/// A caller in another process.
struct Elsewhere<'a> {
    arg: usize,
    params: &'a [u8],
    reply: &'a mut Vec<u8>,
}

impl Caller for Elsewhere<'_> {
    unsafe fn read(&mut self, from: usize, out: &mut [u8]) -> bool {
        match self.params.get(..out.len()) {
            Some(params) if from == self.arg => {
                out.copy_from_slice(params);
                true
            }
            _ => false,
        }
    }

    unsafe fn write(&mut self, to: usize, bytes: &[u8]) -> bool {
        Reply::write(self.reply, to as u64, bytes)
    }

    unsafe fn pin(&mut self, _: usize, _: usize) -> Option<Pinned> {
        None
    }

    fn file(&self, _: RawFd) -> Result<Option<FileKey>, NvStatus> {
        static SAID: Once = Once::new();
        SAID.call_once(|| say("requests of another process that name its descriptors are not emulated"));
        Err(NvStatus::NOT_SUPPORTED)
    }
}

/// See [`super::door::quiesce`].
pub(super) fn quiesce(uvm: &Uvm) {
    /// Between two looks at what is under way.
    const DOZE: Duration = Duration::from_micros(100);
    let Some(door) = uvm.remote.get() else { return };
    let wait_while = |busy: &dyn Fn() -> bool| {
        while busy() {
            thread::sleep(DOZE);
        }
    };
    // Unread first: whoever takes a message says so before.
    let files: Vec<_> = door.files.lock().files.values().map(|(_, peer)| Arc::clone(peer)).collect();
    for file in files {
        wait_while(&|| unread(file.as_raw_fd()));
    }
    wait_while(&|| door.accepting.load(Ordering::Acquire));
    let lines = door.lines.lock().clone();
    for line in lines {
        // A caller that lives may go on asking: what was under way, and what lay behind it, is answered after two.
        let until = line.answered.load(Ordering::Acquire) + 2;
        let over = || line.answered.load(Ordering::Acquire) >= until || Arc::strong_count(&line) == 1;
        wait_while(&|| (unread(line.fd.as_raw_fd()) || line.busy.load(Ordering::Acquire)) && !over());
    }
}

/// Whether something can be read from a socket, or it has ended; waits so many milliseconds, or for ever.
fn readable(fd: RawFd, milliseconds: i32) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    loop {
        // SAFETY: one valid pollfd.
        match unsafe { libc::poll(&raw mut poll, 1, milliseconds) } {
            1 => return poll.revents & (libc::POLLIN | libc::POLLHUP) != 0,
            n if n < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            _ => return false,
        }
    }
}

/// Whether a message waits.
fn unread(fd: RawFd) -> bool {
    let mut waits = 0;
    // SAFETY: the kernel writes one number.
    unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut waits) == 0 && waits > 0 }
}
