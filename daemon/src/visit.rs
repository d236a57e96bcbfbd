//! A visit: the first packet of a connection is taken and judged on a thread of its own.
//!
//! Problem: a peer sends descriptors of its choice. To look at one, or to close one, may take as long as the peer likes.
//! Idea: the thread of a visit has a descriptor table of its own ([`apart`]). It takes the packet, judges it, and passes on to the
//! parent's loop what was found good: the connection, memory, an eventfd, files of the driver or sockets in their place. The visit
//! keeps them until the loop has closed its own, so the loop closes nothing last.
//!
//! ```text
//! visit:  take, judge ──► verdict ─────────────────────────────► close all ──► hang up
//! loop:                           ──► serve or refuse, close ──► leave         ──► over
//! ```
//!
//! A user has one visit at a time: who makes one hang keeps out nobody else.

use crate::admit;
use crate::apart;
use crate::peer::Peer;
use crate::report;
use deepum_engine::packet::{self, Received};
use deepum_protocol::control::{Hello, PACKET_BYTES, Packet, Reason};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc;

/// Most visits at a time, each of another user.
pub const MOST: usize = 256;

/// One that goes on.
#[derive(Debug)]
pub struct Visit {
    /// Whose.
    pub peer: Peer,
    socket: OwnedFd,
    verdict: mpsc::Receiver<Verdict>,
}

/// What a visit found: a program to serve, or why it is none.
pub type Verdict = Result<Guest, (Reason, String)>;

/// A program that may be served, if there is room.
#[derive(Debug)]
pub struct Guest {
    /// Its Hello.
    pub hello: Hello,
    /// The same as it came.
    pub bytes: Vec<u8>,
    /// Of which kind its GPUs are.
    pub device: admit::Device,
}

/// What a visit has to tell.
#[derive(Debug)]
pub enum Heard {
    /// Nothing yet.
    Nothing,
    /// It is over, and all that came with it is closed.
    Over,
    /// What it found. Close these, then let it [`Visit::leave`].
    Found {
        /// The peer's.
        connection: OwnedFd,
        /// What came along, if it is good.
        fds: Vec<OwnedFd>,
        /// Whether it is.
        verdict: Verdict,
    },
}

impl Visit {
    /// Begins one, for a connection on which something came. `served` says whether this user may be.
    ///
    /// # Errors
    /// Why there is none, and the connection.
    pub fn start(connection: OwnedFd, peer: Peer, served: bool) -> Result<Self, (io::Error, OwnedFd)> {
        let (socket, theirs) = match packet::pair() {
            Ok(pair) => pair,
            Err(e) => return Err((e, connection)),
        };
        let (tell, verdict) = mpsc::channel();
        let body = move |fds| take(fds, peer, served, &tell);
        match apart::start("deepumd-visit", vec![connection, theirs], body) {
            Ok(()) => Ok(Self { peer, socket, verdict }),
            Err((e, mut moved)) => Err((e, moved.swap_remove(0))),
        }
    }

    /// What it has to tell, where its descriptor is ready.
    pub fn hear(&self) -> Heard {
        let mut byte = [0];
        let Received { len, fds, fds_lost, .. } = match packet::receive(self.socket.as_fd(), &mut byte) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Heard::Nothing,
            Err(_) => return Heard::Over,
            Ok(received) => received,
        };
        let mut fds = fds.into_iter();
        match (len, fds.next(), self.verdict.try_recv()) {
            (1, Some(connection), Ok(verdict)) => {
                let lost = || (Reason::Internal, "the daemon has no room for these descriptors now".to_owned());
                let verdict = if fds_lost { Err(lost()) } else { verdict };
                Heard::Found { connection, fds: fds.collect(), verdict }
            }
            (1, ..) => {
                // No room for a single one: it can only hang up.
                self.leave();
                Heard::Nothing
            }
            _ => Heard::Over,
        }
    }

    /// Lets it close what it has.
    pub fn leave(&self) {
        // One that is gone needs no telling.
        let _ = report::send_now(self.socket.as_fd(), &[0]);
    }
}

impl AsFd for Visit {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The visit, on its thread.
fn take(mut fds: Vec<OwnedFd>, peer: Peer, served: bool, tell: &mpsc::Sender<Verdict>) {
    // Closed in the reverse order: the loop hears the end when nothing else is left.
    let Some(main) = fds.pop() else { return };
    let Some(connection) = fds.pop() else { return };
    let mut buffer = vec![0; PACKET_BYTES];
    let received = match packet::receive(connection.as_fd(), &mut buffer) {
        Ok(received) if received.len > 0 => received,
        // Gone again, or broken.
        _ => return,
    };
    buffer.truncate(received.len);
    let verdict = judge(buffer, peer, served, &received);
    let good: &[OwnedFd] = if verdict.is_ok() { &received.fds } else { &[] };
    let passed: Vec<BorrowedFd<'_>> = std::iter::once(&connection).chain(good).map(AsFd::as_fd).collect();
    let _ = tell.send(verdict);
    if packet::send(main.as_fd(), &[0], &passed).is_ok() {
        let _ = packet::receive(main.as_fd(), &mut [0]);
    }
}

fn judge(bytes: Vec<u8>, peer: Peer, served: bool, received: &Received) -> Verdict {
    if !served {
        return Err((Reason::User, format!("user {} is not served by this daemon", peer.uid)));
    }
    if received.cut {
        return Err((Reason::Malformed, format!("the packet is longer than {PACKET_BYTES} bytes")));
    }
    if received.fds_lost {
        return Err((Reason::Internal, "the daemon has no room for these descriptors now".to_owned()));
    }
    let hello = match Packet::parse(&bytes) {
        Ok(Packet::Hello(hello)) => hello,
        Ok(_) => return Err((Reason::Malformed, "the first packet is none; allowed is a Hello".to_owned())),
        Err(error) => return Err((error.reason(), error.to_string())),
    };
    let device = admit::check(&hello, &received.fds).map_err(|text| (Reason::Descriptors, text))?;
    Ok(Guest { hello, bytes, device })
}
