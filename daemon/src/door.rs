//! The door: from a connection to what its first packet is, or to hanging up.
//!
//! It keeps three lots of strangers' connections, and reads and closes none of them itself: those that have said nothing, in a line
//! ([`crate::waiting`]); those whose first packet is looked at, one of each user ([`crate::visit`]); those that are hung up on, which a
//! thread does that ends with it ([`crate::apart`]). What a thread cannot be had for waits, and nobody more comes in.
//!
//! All bounds are by user. Those who are not served are one user here, however many they are: they only hear so.

use crate::apart;
use crate::cli::Allowed;
use crate::parent::{Shared, lock};
use crate::peer::{self, Peer};
use crate::report;
use crate::visit::{self, Heard, Verdict, Visit};
use crate::waiting::Line;
use deepum_engine::packet;
use deepum_protocol::control::{Packet, Reason, Refused};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};

/// Connections without a Hello, of one user and together.
const WAITING: (usize, usize) = (16, 256);
/// Connections accepted in one turn, so that those who are served are served meanwhile.
const ACCEPTS: usize = 64;
/// How long until a thread is asked for again.
const AGAIN: Duration = Duration::from_millis(100);
/// Whoever is not served: the number of no user.
const STRANGERS: u32 = u32::MAX;

/// Where something may happen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Knock {
    /// At the visit of this user.
    Visit(u32),
    /// At this place in the line.
    Line(usize),
}

/// What a visit has found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) peer: Peer,
    pub(crate) connection: OwnedFd,
    pub(crate) fds: Vec<OwnedFd>,
    pub(crate) verdict: Verdict,
}

#[derive(Debug)]
pub(crate) struct Door {
    allowed: Allowed,
    shared: Arc<Mutex<Shared>>,
    line: Line<(OwnedFd, Peer)>,
    /// By user.
    visits: BTreeMap<u32, Visit>,
    /// To be hung up on.
    gone: Vec<OwnedFd>,
}

impl Door {
    pub(crate) const fn new(allowed: Allowed, shared: Arc<Mutex<Shared>>) -> Self {
        let line = Line::new(WAITING.0, WAITING.1);
        Self { allowed, shared, line, visits: BTreeMap::new(), gone: Vec::new() }
    }

    /// What to wait for.
    pub(crate) fn polled(&self) -> impl Iterator<Item = (Knock, BorrowedFd<'_>)> {
        let visits = self.visits.iter().map(|(uid, visit)| (Knock::Visit(*uid), visit.as_fd()));
        // Nothing more is taken from a user whose visit is not over.
        let full = self.visits.len() >= visit::MOST;
        let line = self.line.all().iter().enumerate();
        let line = line.filter(move |(_, one)| !full && !self.visits.contains_key(&one.uid));
        visits.chain(line.map(|(at, one)| (Knock::Line(at), one.connection.0.as_fd())))
    }

    /// When to look again though nothing happened.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        self.line.deadline().into_iter().chain((!self.gone.is_empty()).then_some(now + AGAIN)).min()
    }

    /// Takes connections that wait.
    pub(crate) fn accept(&mut self, listener: BorrowedFd<'_>) {
        for _ in 0..ACCEPTS {
            let connection = match packet::accept(listener) {
                Ok(connection) => connection,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock) => return,
                Err(e) if e.raw_os_error() == Some(libc::ECONNABORTED) => continue,
                Err(e) => {
                    // Out of descriptors, most likely: what waits stays ready, so do not come back at once.
                    warn!("cannot accept: {e}");
                    return std::thread::sleep(Duration::from_millis(10));
                }
            };
            let Ok(peer) = Peer::of(connection.as_fd()) else {
                self.gone.push(connection);
                continue;
            };
            lock(&self.shared).counters.connections += 1;
            let served = self.allowed.may(peer.uid, peer.gid, || peer::groups(connection.as_fd()));
            let user = if served { peer.uid } else { STRANGERS };
            if let Some(gone) = self.line.join((connection, peer), user, Instant::now()) {
                debug!(
                    uid = gone.connection.1.uid,
                    pid = gone.connection.1.pid,
                    "too many connections without a Hello: hung up"
                );
                lock(&self.shared).counters.connections_full += 1;
                self.gone.push(gone.connection.0);
            }
        }
    }

    /// Begins visits where something came: one of each user. The line is as it was when `ready` was asked for.
    pub(crate) fn visit(&mut self, ready: &BTreeSet<Knock>) {
        let room = visit::MOST.saturating_sub(self.visits.len());
        let mut users = BTreeSet::new();
        let mut at = 0..;
        let next = self.line.take(|one| {
            let here = at.next().is_some_and(|at| ready.contains(&Knock::Line(at)));
            here && users.len() < room && users.insert(one.uid)
        });
        for one in next {
            let (connection, peer) = one.connection;
            match Visit::start(connection, peer, one.uid != STRANGERS) {
                Ok(visit) => drop(self.visits.insert(one.uid, visit)),
                Err((e, connection)) => {
                    let text = format!("the daemon has no room for a Hello: {e}");
                    self.refuse(connection.as_fd(), peer, Reason::Internal, text);
                    self.gone.push(connection);
                }
            }
        }
    }

    /// What the visit of this user has found, if it has. Close it, then let the user [`Self::leave`].
    pub(crate) fn found(&mut self, uid: u32) -> Option<Found> {
        let visit = self.visits.get(&uid)?;
        match visit.hear() {
            Heard::Found { connection, fds, verdict } => Some(Found { peer: visit.peer, connection, fds, verdict }),
            Heard::Nothing => None,
            Heard::Over => {
                self.visits.remove(&uid);
                None
            }
        }
    }

    /// Ends the visit of this user, as soon as all is closed that came with it.
    pub(crate) fn leave(&self, uid: u32) {
        if let Some(visit) = self.visits.get(&uid) {
            visit.leave();
        }
    }

    /// Says why somebody is not served.
    pub(crate) fn refuse(&self, connection: BorrowedFd<'_>, peer: Peer, reason: Reason, text: String) {
        info!(uid = peer.uid, pid = peer.pid, reason = reason.name(), "refused: {text}");
        *lock(&self.shared).counters.refused.entry(reason.name()).or_default() += 1;
        let _ = report::send_now(connection, &Packet::Refused(Refused { reason, text }).to_bytes());
    }

    /// Hangs up on who has waited too long or was pushed out. Gives whether more may come in.
    pub(crate) fn hang_up(&mut self) -> bool {
        for late in self.line.late(Instant::now()) {
            debug!(uid = late.connection.1.uid, pid = late.connection.1.pid, "no Hello in time: hung up");
            lock(&self.shared).counters.connections_late += 1;
            self.gone.push(late.connection.0);
        }
        if !self.gone.is_empty()
            && let Err((e, gone)) = apart::hang_up(std::mem::take(&mut self.gone))
        {
            warn!("cannot hang up on {} connections yet: {e}", gone.len());
            self.gone = gone;
            std::thread::sleep(Duration::from_millis(10));
        }
        self.gone.is_empty()
    }

    /// For the end of the process, which closes all of it and waits for nothing.
    pub(crate) fn forget(self) {
        std::mem::forget((self.line, self.visits, self.gone));
    }
}
