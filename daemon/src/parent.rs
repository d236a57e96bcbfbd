//! The parent: one loop, one `poll`, and whoever is ready is served.
//!
//! ```text
//! listener ─► door ─► place? ─► worker started ─► its ways
//!              │         │
//!              └─────────┴─► refused, hung up
//! ```
//!
//! Nothing here waits for anybody: every descriptor is ready or non-blocking, and answers are one packet that an empty socket takes. What peers
//! send is taken, looked at and closed elsewhere, and so are connections on which something may still lie ([`crate::door`]). The status
//! has a thread of its own, which sees the same [`Shared`] between two turns.
//!
//! The end: a signal asks workers to end, which save their tables; who has not after [`ENDING`] is killed.

use crate::apart;
use crate::cli::Settings;
use crate::counters::Counters;
use crate::door::{Door, Found, Knock};
use crate::listen::Place;
use crate::peer::{self, Peer};
use crate::places;
use crate::programs::{Program, ProgramId, Programs};
use crate::report::{Order, Start};
use crate::started::Worker;
use crate::visit::Guest;
use anyhow::{Context, Result};
use deepum_core::units::Bytes;
use deepum_protocol::control::Reason;
use deepum_protocol::status::Request;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Uid;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};

/// How long workers may take to end in order.
pub const ENDING: Duration = Duration::from_secs(3);
/// How long killed ones are waited for: what hangs in the kernel does not end.
const KILLED: Duration = Duration::from_secs(2);
/// Descriptors to have room for: three for each program, one for each connection and visit, one message's, and a few.
const DESCRIPTORS: u64 = 4096;

/// What the loop and the status thread both look at.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) since: Instant,
    pub(crate) socket: String,
    pub(crate) programs: Programs,
    pub(crate) counters: Counters,
}

/// What is polled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Source {
    Signal,
    Listener,
    Report(ProgramId),
    Log(ProgramId),
    Door(Knock),
}

struct Parent {
    settings: Settings,
    place: Place,
    door: Door,
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
        let (tell, told) = mpsc::channel();
        let body = move || {
            // Its clients are strangers' sockets, which close at any time, also while a worker is started.
            let _ = tell.send(apart::own_table());
            let now = |request: Request, uid: Uid| crate::status::answer(&shared, request.get, uid.as_raw());
            status.serve_requests(now, |_| true);
        };
        std::thread::Builder::new().name("deepumd-status".to_owned()).spawn(body).context("cannot start a thread")?;
        told.recv()?.context("cannot give a thread descriptors of its own")?;
    }
    info!(socket = %settings.socket.display(), "listening");
    let door = Door::new(settings.allowed.clone(), Arc::clone(&shared));
    let parent = Parent { settings, place, door, workers: BTreeMap::new(), shared };
    parent.run(&signals);
    Ok(())
}

/// A panic of the status thread leaves what it only read as it was.
pub(crate) fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
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
    fn run(mut self, signals: &SignalFd) {
        loop {
            let Some(ready) = self.ready(signals) else {
                // EINTR, or no memory for a moment; neither is worth the processor's time.
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            if ready.contains(&Source::Signal) && self.signalled(signals) {
                return self.end();
            }
            let mut knocks = BTreeSet::new();
            for source in &ready {
                match source {
                    Source::Report(id) => self.hear(*id),
                    Source::Log(id) => drop(self.workers.get_mut(id).map(Worker::copy_log)),
                    Source::Door(Knock::Visit(uid)) => self.found(*uid),
                    Source::Door(knock) => drop(knocks.insert(*knock)),
                    Source::Signal | Source::Listener => {}
                }
            }
            self.door.visit(&knocks);
            // Before anybody comes in: who cannot be hung up on takes a place.
            if self.door.hang_up() && ready.contains(&Source::Listener) {
                self.door.accept(self.place.listener.as_fd());
                self.door.hang_up();
            }
            self.tell();
        }
    }

    /// Waits until something is ready.
    fn ready(&self, signals: &SignalFd) -> Option<BTreeSet<Source>> {
        let mut polled = vec![(Source::Signal, signals.as_fd()), (Source::Listener, self.place.listener.as_fd())];
        for (id, worker) in &self.workers {
            polled.extend(worker.reports().map(|fd| (Source::Report(*id), fd)));
            polled.extend(worker.log().map(|fd| (Source::Log(*id), fd)));
        }
        polled.extend(self.door.polled().map(|(knock, fd)| (Source::Door(knock), fd)));
        let mut fds: Vec<PollFd<'_>> = polled.iter().map(|(_, fd)| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        poll(&mut fds, self.timeout()).ok()?;
        let ready = polled.iter().zip(&fds).filter(|(_, fd)| fd.any().unwrap_or(true));
        Some(ready.map(|((source, _), _)| *source).collect())
    }

    fn with<R>(&self, f: impl FnOnce(&mut Shared) -> R) -> R {
        f(&mut lock(&self.shared))
    }

    fn timeout(&self) -> PollTimeout {
        let now = Instant::now();
        let next = self.with(|shared| shared.programs.deadline()).into_iter().chain(self.door.deadline(now)).min();
        next.map_or(PollTimeout::NONE, |at| {
            let left = at.saturating_duration_since(now).as_millis().min(60_000) + 1;
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        })
    }

    /// Whether it is time to end.
    fn signalled(&mut self, signals: &SignalFd) -> bool {
        let mut end = false;
        while let Ok(Some(signal)) = signals.read_signal() {
            end |= i32::try_from(signal.ssi_signo).is_ok_and(|n| [libc::SIGTERM, libc::SIGINT].contains(&n));
        }
        self.reap();
        end
    }

    /// Workers that are no more.
    fn reap(&mut self) {
        let shared = &self.shared;
        self.workers.retain(|id, worker| {
            let Some(status) = worker.ended() else { return true };
            let mut shared = lock(shared);
            let program = shared.programs.leave(*id);
            let pid = program.map_or(0, |program| program.peer.pid);
            if status.success() {
                shared.counters.workers_ended += 1;
                info!(program = pid, worker = worker.id(), "program gone");
            } else {
                shared.counters.workers_failed += 1;
                warn!(program = pid, worker = worker.id(), %status, "worker failed; its program goes on as plain unified memory");
            }
            false
        });
    }

    /// What a visit has found.
    fn found(&mut self, uid: u32) {
        let Some(Found { peer, connection, fds, verdict }) = self.door.found(uid) else { return };
        if let Err((reason, text)) = verdict.and_then(|guest| self.serve(&connection, peer, &guest, &fds)) {
            self.door.refuse(connection.as_fd(), peer, reason, text);
        }
        drop((connection, fds));
        self.door.leave(uid);
    }

    fn serve(
        &mut self,
        connection: &OwnedFd,
        peer: Peer,
        guest: &Guest,
        fds: &[OwnedFd],
    ) -> Result<(), (Reason, String)> {
        let (own, all) = self.with(|shared| shared.programs.count(peer.uid));
        places::check(own, all, self.settings.programs, self.settings.allowed.is_system())
            .map_err(|text| (Reason::Full, text))?;
        self.start(connection, peer, guest, fds).map_err(|text| (Reason::Internal, text))
    }

    fn start(&mut self, connection: &OwnedFd, peer: Peer, guest: &Guest, fds: &[OwnedFd]) -> Result<(), String> {
        let now = Instant::now();
        let none = |e: std::io::Error| format!("no worker can be started: {e}");
        // Where the system has no such thing, the connection stands in its place a second time.
        let ended = peer::pidfd(connection.as_fd(), peer).map_or_else(|| connection.try_clone(), Ok).map_err(none)?;
        // The order is that of `worker::Inherited`.
        let given: Vec<BorrowedFd<'_>> = [connection, &ended].into_iter().chain(fds).map(AsFd::as_fd).collect();
        let mut worker = Worker::start(&self.settings.workers, peer, guest.device, &given).map_err(none)?;
        let (id, share) = self.with(|shared| {
            shared.counters.workers_started += 1;
            shared.programs.join(Program::new(peer, &guest.hello, guest.device, now), now)
        });
        self.with(|shared| shared.programs.set_worker(id, worker.id()));
        let tables = self.settings.tables.as_ref().and_then(|folder| crate::tables::of_user(folder, peer));
        let start = Start { pid: peer.pid, budgets: share.iter().map(|bytes| bytes.get()).collect(), tables };
        let said = worker.instruct(&guest.bytes, &start);
        let (worker_id, attachment) = (worker.id(), guest.hello.attachment);
        self.workers.insert(id, worker);
        said.map_err(|e| format!("a new worker takes no instructions: {e}"))?;
        info!(program = peer.pid, uid = peer.uid, worker = worker_id, attachment, "program attached");
        Ok(())
    }

    /// What a worker has to say.
    fn hear(&mut self, id: ProgramId) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let mut shared = lock(&self.shared);
        let bad = match worker.hear() {
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
            warn!(worker = worker.id(), "senseless report, worker ended: {why}");
        }
        // One that is ending does not notice; one that only closed its end has nothing more to do here.
        worker.give_up();
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
            debug!(worker = worker.id(), ?budgets, "shares");
            let order = Order::Budgets(budgets.iter().map(|bytes: &Bytes| bytes.get()).collect());
            if let Err(e) = worker.order(&order) {
                warn!(worker = worker.id(), "does not take its orders: {e}");
                worker.give_up();
            }
        }
    }

    /// Ends all workers in order.
    fn end(mut self) {
        info!(programs = self.workers.len(), "ending");
        for worker in self.workers.values() {
            let _ = worker.order(&Order::End);
        }
        self.wait_for_workers(ENDING);
        let late: Vec<u32> = self.workers.values().map(Worker::id).collect();
        if !late.is_empty() {
            warn!(?late, "killed: they did not end in time");
        }
        self.workers.values_mut().for_each(Worker::give_up);
        self.wait_for_workers(KILLED);
        let left: Vec<u32> = self.workers.values().map(Worker::id).collect();
        if !left.is_empty() {
            warn!(?left, "killed and not ended: they hang in the kernel, and end when that lets go of them");
        }
        // What peers have sent goes with the process, which waits for none of it.
        self.door.forget();
        // The file of the status socket belongs to its thread, which has no end of its own.
        let _ = std::fs::remove_file(deepum_protocol::programs::socket_beside(self.place.path()));
    }

    fn wait_for_workers(&mut self, most: Duration) {
        let start = Instant::now();
        self.reap();
        while !self.workers.is_empty() && start.elapsed() < most {
            std::thread::sleep(Duration::from_millis(2));
            self.reap();
        }
    }
}
