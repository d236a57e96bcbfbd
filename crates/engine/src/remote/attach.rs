//! One attempt to be served: find the daemon, make sure whose it is, say Hello, hear the answer.

use super::Remote;
use crate::nudges::Nudges;
use crate::{DeviceFacts, packet};
use deepum_core::units::Bytes;
use deepum_kmod_bridge::adopt::{Lent, LentQueue};
use deepum_kmod_bridge::{Kernel, NOTICES};
use deepum_protocol::control::{Device, Hello, PACKET_BYTES, Packet, ToolsQueue};
use deepum_protocol::page;
use deepum_protocol::ring::{HEADER_WORDS, Ring};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::getuid;
use std::fmt;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Notices the tools queue has room for: as many as an engine in the program gives it.
/// How long a daemon may take to answer: it starts a process.
const ANSWER: Duration = Duration::from_secs(5);

/// An engine that serves.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) path: PathBuf,
    pub(super) connection: Arc<OwnedFd>,
    /// Who serves, in words.
    pub(super) who: String,
    /// Attached for this engine alone.
    pub(super) queue: Option<LentQueue>,
}

/// Why there is no engine.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// Nobody answers; the text says where was looked.
    Absent(String),
    /// It is there and does not serve this program.
    Refused {
        /// The daemon's socket.
        socket: Place,
        /// Why, in its words.
        why: String,
        /// Whether asking again is of no use.
        for_good: bool,
    },
    /// It served, and hung up.
    Lost(PathBuf),
    /// It does not keep to the protocol.
    Nonsense(PathBuf, String),
    /// This program cannot be served by any daemon as it is.
    Unable(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const PLAIN: &str = "the program runs as plain unified memory";
        match self {
            Self::Absent(looked) => write!(f, "no deepumd: {looked}; {PLAIN} until one answers (DEEPUM_ENGINE=daemon)"),
            Self::Refused { socket, why, for_good } => {
                let until = if *for_good { "until another deepumd listens there" } else { "until it does" };
                write!(f, "deepumd at {} does not serve this program: {why}; {PLAIN} {until}", socket.path.display())
            }
            Self::Lost(path) => {
                write!(f, "deepumd at {} is gone; {PLAIN}, and looks for it again", path.display())
            }
            Self::Nonsense(path, what) => {
                write!(f, "deepumd at {} said what makes no sense ({what}); {PLAIN}, and asks again", path.display())
            }
            Self::Unable(why) => write!(f, "{why}; {PLAIN}"),
        }
    }
}

/// A socket's file, by which a daemon is told from the next one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    path: PathBuf,
    file: Option<(u64, u64, i64, i64)>,
}

impl Place {
    fn of(path: &Path) -> Self {
        let file = fs::metadata(path).ok().map(|m| (m.dev(), m.ino(), m.ctime(), m.ctime_nsec()));
        Self { path: path.to_owned(), file }
    }

    /// Waits until another socket is there, or `enough`.
    pub(super) fn wait_until_changed(&self, enough: fn() -> bool, pause: Duration) {
        while Self::of(&self.path) == *self && !enough() {
            std::thread::sleep(pause);
        }
    }
}

/// Takes everything out of the ring, also what a reader that is gone has taken half.
pub(super) fn empty(ring: Ring<'static>) {
    // A ring that is corrupt is refused by the next reader, by name.
    if let Ok(mut reader) = ring.recover() {
        while let Ok(Some(_)) = reader.pop() {}
    }
}

/// A daemon that has been found, and what it is to be told.
#[derive(Debug)]
pub(super) struct Ready {
    path: PathBuf,
    connection: OwnedFd,
    uvm: OwnedFd,
    queue: Result<LentQueue, String>,
    driver: String,
}

impl Ready {
    /// Finds a daemon and attaches to the driver for it.
    pub(super) fn new(remote: &Remote, kernel: &Arc<dyn Kernel>) -> Result<Self, Failure> {
        let (path, connection) = connect(&remote.sockets)?;
        let Lent { support, uvm, queue } = Lent::open(kernel, NOTICES);
        let uvm = uvm.map_err(|why| Failure::Unable(why.to_string()))?;
        let driver = support.version().map(ToString::to_string).unwrap_or_default();
        Ok(Self { path, connection, uvm, queue: queue.map_err(|why| why.to_string()), driver })
    }

    /// Asks to be served.
    pub(super) fn say_hello(
        self,
        remote: &Remote,
        nudges: &Nudges,
        driven: bool,
        attachment: u32,
    ) -> Result<Attached, Failure> {
        let hello = self.hello(remote, driven, attachment);
        let Self { path, connection, uvm, queue, .. } = self;
        let mut fds = vec![remote.ring.1, remote.page.1, uvm.as_fd(), nudges.bell()];
        if let Ok(queue) = &queue {
            fds.extend([queue.memory(), queue.tracker()]);
        }
        let lost = |_| Failure::Lost(path.clone());
        packet::send(connection.as_fd(), &Packet::Hello(hello).to_bytes(), &fds).map_err(lost)?;
        let who = answer(&path, connection.as_fd()).inspect_err(|_| {
            // An engine may have started all the same.
            super::connection::part(connection.as_fd());
        })?;
        Ok(Attached { path, connection: Arc::new(connection), who, queue: queue.ok() })
    }

    fn hello(&self, remote: &Remote, driven: bool, attachment: u32) -> Hello {
        let device = |f: &DeviceFacts| Device { id: f.id, uuid: f.uuid, memory: f.memory, budget: f.budget };
        let queue = self.queue.as_ref().map_err(Clone::clone);
        Hello {
            ring: Bytes(((HEADER_WORDS + remote.ring.0.capacity()) * 8) as u64),
            page: Bytes((page::WORDS * 8) as u64),
            tools: queue.map(|queue| ToolsQueue { entries: queue.entries(), memory: Bytes(queue.bytes()) }),
            driven,
            attachment,
            weight: remote.weight,
            workload: remote.workload,
            devices: remote.devices.iter().map(device).collect(),
            driver: self.driver.clone(),
            config: remote.variables.clone(),
        }
    }
}

/// Connects to the first place where a daemon listens that may be trusted.
fn connect(sockets: &[PathBuf]) -> Result<(PathBuf, OwnedFd), Failure> {
    let mut looked = Vec::new();
    for path in sockets {
        let connection = match packet::connect(path) {
            Ok(connection) => connection,
            Err(why) => {
                looked.push(format!("{} ({why})", path.display()));
                continue;
            }
        };
        match getsockopt(&connection, PeerCredentials).map(|peer| peer.uid()) {
            Ok(uid) if uid == 0 || uid == getuid().as_raw() => return Ok((path.clone(), connection)),
            Ok(uid) => looked.push(format!("{} (of user {uid}; allowed are this user's and root's)", path.display())),
            Err(why) => looked.push(format!("{} (whose is not known: {why})", path.display())),
        }
    }
    Err(Failure::Absent(looked.join(", ")))
}

/// Waits for Welcome. Gives who serves, in words.
fn answer(path: &Path, connection: BorrowedFd<'_>) -> Result<String, Failure> {
    let nonsense = |what: String| Failure::Nonsense(path.to_owned(), what);
    let until = Instant::now() + ANSWER;
    let mut buffer = vec![0; PACKET_BYTES];
    loop {
        let left = i32::try_from(until.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(i32::MAX);
        let mut poll = libc::pollfd { fd: connection.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        match unsafe { libc::poll(&raw mut poll, 1, left) } {
            0 => return Err(nonsense(format!("nothing, for {} seconds", ANSWER.as_secs()))),
            1.. => {}
            _ => continue,
        }
        let got = packet::receive(connection, &mut buffer).map_err(|_| Failure::Lost(path.to_owned()))?;
        if got.len == 0 {
            return Err(Failure::Lost(path.to_owned()));
        }
        match Packet::parse(&buffer[..got.len]) {
            Ok(Packet::Welcome(welcome)) => {
                return Ok(format!(
                    "deepumd {} at {} serves this program (process {})",
                    welcome.release,
                    path.display(),
                    welcome.worker
                ));
            }
            Ok(Packet::Refused(refused)) => {
                let (why, for_good) = (refused.text, refused.reason.is_final());
                return Err(Failure::Refused { socket: Place::of(path), why, for_good });
            }
            // What the engine has to say before it serves is heard when it does.
            Ok(Packet::Say(_) | Packet::Budget(_)) => {}
            Ok(other) => return Err(nonsense(format!("{other:?} for an answer"))),
            Err(why) => return Err(nonsense(why.to_string())),
        }
    }
}
