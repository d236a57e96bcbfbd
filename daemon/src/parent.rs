//! The parent: one loop, one `poll`, and whoever is ready is served.
//!
//! ```text
//! listener ─► line of those who have not said Hello ─► checked ─► worker started ─► its pipe
//!                                    │
//!                                    └─► refused, hung up
//! ```
//!
//! Nothing here waits for anybody: every descriptor is non-blocking, answers are one packet that an empty socket takes, and what a
//! connection has sent is read at most one packet at a time. The status has a thread of its own, which sees the same
//! [`Shared`] between two turns.
//!
//! The end: a signal asks workers to end, which save their tables; who has not after [`ENDING`] is killed.

use crate::admit;
use crate::cli::Settings;
use crate::counters::Counters;
use crate::listen::Place;
use crate::peer::{self, Peer};
use crate::programs::{Program, ProgramId, Programs};
use crate::report::{self, Order, Report, Start};
use crate::waiting::Line;
use anyhow::{Context, Result};
use deepum_core::units::Bytes;
use deepum_engine::packet::{self, Received};
use deepum_protocol::control::{Hello, PACKET_BYTES, Packet, Reason, Refused};
use deepum_protocol::status::Request;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Uid;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};

/// Connections without a Hello, of one user and together.
const WAITING: (usize, usize) = (16, 256);
/// Programs of all users together.
const PROGRAMS: usize = 256;
/// How long workers may take to end in order.
pub const ENDING: Duration = Duration::from_secs(3);
/// Descriptors to have room for: two for each program, one for each connection, one message's, and a few.
const DESCRIPTORS: u64 = 4096;

/// What the loop and the status thread both look at.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) since: Instant,
    pub(crate) socket: String,
    pub(crate) programs: Programs,
    pub(crate) counters: Counters,
}

/// A worker, as the parent holds it.
#[derive(Debug)]
struct Worker {
    child: Child,
    /// Nothing once it has hung up.
    pipe: Option<OwnedFd>,
}

struct Parent {
    settings: Settings,
    place: Place,
    line: Line<(OwnedFd, Peer)>,
    workers: BTreeMap<ProgramId, Worker>,
    shared: Arc<Mutex<Shared>>,
}

/// Serves until a signal says that it is enough.
///
/// # Errors
/// What is in the way of starting.
pub fn main(settings: Settings) -> Result<()> {
    tracing_subscriber::fmt()
        .with_max_level(settings.log)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false)
        .init();
    let mut place = Place::open(&settings.socket, settings.allowed.is_system())?;
    make_room();
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGCHLD] {
        signals.add(signal);
    }
    signals.thread_block().context("cannot block signals")?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;

    let budgets = settings.budgets.clone();
    let programs = Programs::new(Box::new(move |device| budgets.of(device)));
    let (since, socket) = (Instant::now(), settings.socket.display().to_string());
    let shared = Arc::new(Mutex::new(Shared { since, socket, programs, counters: Counters::default() }));
    if let Some(status) = place.status.take() {
        let shared = Arc::clone(&shared);
        let body = move || {
            let now = |request: Request, uid: Uid| lock(&shared).answer(request.get, uid.as_raw(), Instant::now());
            status.serve_requests(now, |_| true);
        };
        std::thread::Builder::new().name("deepumd-status".to_owned()).spawn(body).context("cannot start a thread")?;
    }
    info!(socket = %settings.socket.display(), "listening");
    let parent = Parent { line: Line::new(WAITING.0, WAITING.1), workers: BTreeMap::new(), settings, place, shared };
    parent.run(&signals)
}

/// A panic of the status thread leaves what it only read as it was.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As many descriptors as may be had, up to what is needed.
fn make_room() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < DESCRIPTORS
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS.min(hard), hard);
    }
}

impl Parent {
    fn run(mut self, signals: &SignalFd) -> Result<()> {
        loop {
            let ids: Vec<ProgramId> =
                self.workers.iter().filter(|(_, worker)| worker.pipe.is_some()).map(|(id, _)| *id).collect();
            let mut fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
            fds.push(PollFd::new(self.place.listener.as_fd(), PollFlags::POLLIN));
            fds.extend(
                self.workers
                    .values()
                    .filter_map(|worker| Some(PollFd::new(worker.pipe.as_ref()?.as_fd(), PollFlags::POLLIN))),
            );
            fds.extend(self.line.all().iter().map(|one| PollFd::new(one.connection.0.as_fd(), PollFlags::POLLIN)));
            if poll(&mut fds, self.timeout()).is_err() {
                // EINTR, or no memory for a moment; neither is worth the processor's time.
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
            drop(fds);
            if ready[0] && self.signalled(signals) {
                self.end();
                return Ok(());
            }
            let (of_workers, of_line) = ready[2..].split_at(ids.len());
            for (id, _) in ids.into_iter().zip(of_workers).filter(|(_, ready)| **ready) {
                self.hear(id);
            }
            let mut turn = of_line.iter();
            for one in self.line.take(|_| turn.next().copied().unwrap_or(false)) {
                let (connection, peer) = one.connection;
                self.hello(connection, peer);
            }
            if ready[1] {
                self.accept();
            }
            for late in self.line.late(Instant::now()) {
                debug!(uid = late.uid, pid = late.connection.1.pid, "no Hello in time: hung up");
                self.with(|shared| shared.counters.connections_late += 1);
            }
            self.tell();
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Shared) -> R) -> R {
        f(&mut lock(&self.shared))
    }

    fn timeout(&self) -> PollTimeout {
        let now = Instant::now();
        let next = self.with(|shared| shared.programs.deadline(now)).into_iter().chain(self.line.deadline()).min();
        next.map_or(PollTimeout::NONE, |at| {
            let left = at.saturating_duration_since(now).as_millis().min(60_000) + 1;
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        })
    }

    /// Whether it is time to end.
    fn signalled(&mut self, signals: &SignalFd) -> bool {
        let mut end = false;
        while let Ok(Some(signal)) = signals.read_signal() {
            end |= i32::try_from(signal.ssi_signo).is_ok_and(|n| n != libc::SIGCHLD);
        }
        self.reap();
        end
    }

    /// Workers that are no more.
    fn reap(&mut self) {
        let shared = &self.shared;
        self.workers.retain(|id, worker| {
            let Ok(Some(status)) = worker.child.try_wait() else { return true };
            let mut shared = lock(shared);
            let program = shared.programs.leave(*id);
            let pid = program.map_or(0, |program| program.peer.pid);
            if status.success() {
                shared.counters.workers_ended += 1;
                info!(program = pid, worker = worker.child.id(), "program gone");
            } else {
                shared.counters.workers_failed += 1;
                warn!(program = pid, worker = worker.child.id(), %status, "worker failed; its program goes on as plain unified memory");
            }
            false
        });
    }

    /// Takes all connections that wait.
    fn accept(&mut self) {
        loop {
            let connection = match packet::accept(self.place.listener.as_fd()) {
                Ok(connection) => connection,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock) => return,
                Err(e) if e.raw_os_error() == Some(libc::ECONNABORTED) => continue,
                Err(e) => {
                    // Out of descriptors, most likely: what waits stays ready, so do not come back at once.
                    warn!("cannot accept: {e}");
                    return std::thread::sleep(Duration::from_millis(10));
                }
            };
            let Ok(peer) = Peer::of(connection.as_fd()) else { continue };
            self.with(|shared| shared.counters.connections += 1);
            if let Some(gone) = self.line.join((connection, peer), peer.uid, Instant::now()) {
                debug!(uid = gone.uid, pid = gone.connection.1.pid, "too many connections without a Hello: hung up");
                self.with(|shared| shared.counters.connections_full += 1);
            }
        }
    }

    /// The first packet of a connection.
    fn hello(&mut self, connection: OwnedFd, peer: Peer) {
        let mut buffer = [0; PACKET_BYTES];
        let received = match packet::receive(connection.as_fd(), &mut buffer) {
            Ok(received) if received.len > 0 => received,
            // Gone again, or broken; what came along is closed here.
            _ => return,
        };
        if let Err((reason, text)) = self.serve(&connection, peer, &buffer[..received.len], &received) {
            info!(uid = peer.uid, pid = peer.pid, reason = reason.name(), "refused: {text}");
            self.with(|shared| *shared.counters.refused.entry(reason.name()).or_default() += 1);
            let refused = Packet::Refused(Refused { reason, text });
            let _ = report::send_now(connection.as_fd(), &refused.to_bytes());
        }
    }

    fn serve(
        &mut self,
        connection: &OwnedFd,
        peer: Peer,
        bytes: &[u8],
        received: &Received,
    ) -> Result<(), (Reason, String)> {
        if !self.settings.allowed.may(peer.uid, peer.gid, || peer::groups(connection.as_fd())) {
            return Err((Reason::User, format!("user {} is not served by this daemon", peer.uid)));
        }
        if received.cut {
            return Err((Reason::Malformed, format!("the packet is longer than {PACKET_BYTES} bytes")));
        }
        if received.fds_lost {
            return Err((Reason::Internal, "the daemon has no room for these descriptors now".to_owned()));
        }
        let hello = match Packet::parse(bytes) {
            Ok(Packet::Hello(hello)) => hello,
            Ok(_) => return Err((Reason::Malformed, "the first packet is none; allowed is a Hello".to_owned())),
            Err(error) => return Err((error.reason(), error.to_string())),
        };
        let device = admit::check(&hello, &received.fds).map_err(|text| (Reason::Descriptors, text))?;
        let (own, all) = self.with(|shared| shared.programs.count(peer.uid));
        if own >= self.settings.programs || all >= PROGRAMS {
            let text = format!(
                "{own} programs of this user and {all} together are served; allowed are {} and {PROGRAMS}",
                self.settings.programs
            );
            return Err((Reason::Full, text));
        }
        self.start(connection, peer, bytes, &hello, device, &received.fds).map_err(|text| (Reason::Internal, text))
    }

    fn start(
        &mut self,
        connection: &OwnedFd,
        peer: Peer,
        bytes: &[u8],
        hello: &Hello,
        device: admit::Device,
        fds: &[OwnedFd],
    ) -> Result<(), String> {
        let now = Instant::now();
        let (ours, theirs) = packet::pair().map_err(|e| format!("the daemon has no room for a worker: {e}"))?;
        // Where the system has no such thing, the connection stands in its place a second time.
        let ended = peer::pidfd(connection.as_fd(), peer).map_or_else(|| connection.try_clone(), Ok);
        let ended = ended.map_err(|e| format!("the daemon has no room for a worker: {e}"))?;
        // The order is that of `worker::Inherited`.
        let inherited: Vec<BorrowedFd<'_>> =
            [&theirs, connection, &ended].into_iter().chain(fds).map(AsFd::as_fd).collect();
        let child = self
            .settings
            .workers
            .start(peer, device, &inherited)
            .map_err(|e| format!("no worker can be started: {e}"))?;
        let (id, share) = self.with(|shared| {
            shared.counters.workers_started += 1;
            shared.programs.join(Program::new(peer, hello, now), now)
        });
        self.with(|shared| shared.programs.set_worker(id, child.id()));
        info!(
            program = peer.pid,
            uid = peer.uid,
            worker = child.id(),
            attachment = hello.attachment,
            "program attached"
        );
        let tables = self.settings.tables.as_ref().and_then(|folder| crate::tables::of_user(folder, peer));
        let start = Start { pid: peer.pid, budgets: share.iter().map(|bytes| bytes.get()).collect(), tables };
        // Both fit into an empty socket; if not, the worker reads an end and says so by its own.
        let said = report::send_now(ours.as_fd(), bytes).and_then(|()| report::say(ours.as_fd(), &start));
        if let Err(e) = said {
            warn!(program = peer.pid, "cannot talk to a new worker: {e}");
        }
        self.workers.insert(id, Worker { child, pipe: Some(ours) });
        Ok(())
    }

    /// What a worker has to say.
    fn hear(&mut self, id: ProgramId) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let Some(pipe) = &worker.pipe else { return };
        let heard = report::hear::<Report>(pipe.as_fd());
        let mut shared = lock(&self.shared);
        let bad = match heard {
            Ok(None) => return,
            Ok(Some(report)) => {
                shared.counters.reports += 1;
                match shared.programs.report(id, report, Instant::now()) {
                    Ok(()) => return,
                    Err(why) => Some(why),
                }
            }
            Err(e) if e.kind() == ErrorKind::InvalidData => Some(e.to_string()),
            // Hung up: it is ending.
            Err(_) => None,
        };
        if let Some(why) = bad {
            shared.counters.reports_bad += 1;
            warn!(worker = worker.child.id(), "senseless report, worker ended: {why}");
        }
        // One that is ending does not notice; one that only closed its end has nothing more to do here. The signal that
        // it has ended comes by itself.
        worker.pipe = None;
        let _ = worker.child.kill();
    }

    /// Tells workers what their programs may fill, where that has changed.
    fn tell(&mut self) {
        let orders = self.with(|shared| {
            let orders = shared.programs.orders(Instant::now());
            shared.counters.budgets_sent += orders.len() as u64;
            orders
        });
        for (id, budgets) in orders {
            let Some(worker) = self.workers.get_mut(&id) else { continue };
            let Some(pipe) = &worker.pipe else { continue };
            debug!(worker = worker.child.id(), ?budgets, "shares");
            let order = Order::Budgets(budgets.iter().map(|bytes: &Bytes| bytes.get()).collect());
            if let Err(e) = report::say(pipe.as_fd(), &order) {
                warn!(worker = worker.child.id(), "does not take its orders: {e}");
                let _ = worker.child.kill();
            }
        }
    }

    /// Ends all workers in order.
    fn end(mut self) {
        info!(programs = self.workers.len(), "ending");
        for pipe in self.workers.values().filter_map(|worker| worker.pipe.as_ref()) {
            let _ = report::say(pipe.as_fd(), &Order::End);
        }
        let start = Instant::now();
        while !self.workers.is_empty() && start.elapsed() < ENDING {
            self.reap();
            std::thread::sleep(Duration::from_millis(2));
        }
        let late: BTreeSet<u32> = self.workers.values().map(|worker| worker.child.id()).collect();
        if !late.is_empty() {
            warn!(?late, "killed: they did not end in time");
        }
        for worker in self.workers.values_mut() {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
        // The file of the status socket belongs to its thread, which has no end of its own.
        let _ = std::fs::remove_file(deepum_protocol::programs::socket_beside(self.place.path()));
    }
}
