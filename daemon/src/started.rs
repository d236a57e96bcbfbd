//! A started worker, as the parent holds it: its process, and three ways between them.
//!
//! | way | what it is |
//! | --- | --- |
//! | orders, to it | a socket that takes nothing from the other end |
//! | reports, from it | a pipe of packets |
//! | its log, from it | a pipe, its standard error |
//!
//! A worker runs as the program's user and is believed no more than that. Nothing of a worker's makes the parent wait, and none of these
//! ways can bring a descriptor.

use crate::admit::Device;
use crate::lines::Lines;
use crate::peer::Peer;
use crate::report::{self, Order, Report, Start};
use crate::spawn::Workers;
use deepum_engine::packet;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{Shutdown, shutdown};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Child, ExitStatus};
use tracing::{info, warn};

/// Reads of a log at the end, so that a worker that wrote much ends, too.
const LAST: usize = 64;

/// One worker.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    program: u32,
    /// Nothing once it was given up.
    orders: Option<OwnedFd>,
    /// As above.
    reports: Option<OwnedFd>,
    /// Nothing once it has hung up.
    log: Option<OwnedFd>,
    lines: Lines,
}

impl Worker {
    /// Starts one for `peer`, which inherits `given` after its own ends. Main thread only, as [`Workers::start`].
    ///
    /// # Errors
    /// Why there is none.
    pub fn start(workers: &Workers, peer: Peer, device: Device, given: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let (orders, its_orders) = packet::pair()?;
        shutdown(orders.as_raw_fd(), Shutdown::Read)?;
        let (reports, its_reports) = report::pipe()?;
        let (log, its_log) = io::pipe()?;
        fcntl(&log, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let fds: Vec<BorrowedFd<'_>> =
            [its_orders.as_fd(), its_reports.as_fd()].into_iter().chain(given.iter().copied()).collect();
        let child = workers.start(peer, device, &fds, its_log.into())?;
        Ok(Self::of(child, peer.pid, orders, reports, log.into()))
    }

    fn of(child: Child, program: u32, orders: OwnedFd, reports: OwnedFd, log: OwnedFd) -> Self {
        Self { child, program, orders: Some(orders), reports: Some(reports), log: Some(log), lines: Lines::default() }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it begins with. Both packets fit into an empty socket. If they cannot be sent all the same it would wait for them for
    /// ever, and the program for it; so it is given up.
    ///
    /// # Errors
    /// As `send(2)`.
    pub fn instruct(&mut self, hello: &[u8], start: &Start) -> io::Result<()> {
        let said = match &self.orders {
            Some(orders) => report::send_now(orders.as_fd(), hello).and_then(|()| report::say(orders.as_fd(), start)),
            None => Ok(()),
        };
        said.inspect_err(|_| self.give_up())
    }

    /// Tells it what to do. One that was given up needs no telling.
    ///
    /// # Errors
    /// As `send(2)`.
    pub fn order(&self, order: &Order) -> io::Result<()> {
        self.orders.as_ref().map_or(Ok(()), |orders| report::say(orders.as_fd(), order))
    }

    /// Its next report, if one waits.
    ///
    /// # Errors
    /// As [`report::next`].
    pub fn hear(&self) -> io::Result<Option<Report>> {
        self.reports.as_ref().map_or(Ok(None), |reports| report::next(reports.as_fd()))
    }

    /// Kills it and listens no more. The signal that it has ended comes by itself.
    pub fn give_up(&mut self) {
        self.orders = None;
        self.reports = None;
        let _ = self.child.kill();
    }

    /// Readable when a report waits, or it has hung up.
    pub fn reports(&self) -> Option<BorrowedFd<'_>> {
        self.reports.as_ref().map(AsFd::as_fd)
    }

    /// Readable when something for the log waits, or it has hung up.
    pub fn log(&self) -> Option<BorrowedFd<'_>> {
        self.log.as_ref().map(AsFd::as_fd)
    }

    /// Copies what it wrote to our log, as much as one read brings. Gives whether there may be more.
    pub fn copy_log(&mut self) -> bool {
        let Some(log) = &self.log else { return false };
        let mut buffer = [0; 4096];
        let got = match nix::unistd::read(log, &mut buffer) {
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return false,
            other => other.unwrap_or(0),
        };
        let program = self.program;
        self.lines.push(&buffer[..got], |line| write(program, line));
        if got == 0 {
            self.lines.end(|line| write(program, line));
            self.log = None;
        }
        got > 0
    }

    /// How it ended, once it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok()??;
        for _ in 0..LAST {
            if !self.copy_log() {
                break;
            }
        }
        Some(status)
    }
}

/// A line of a worker's, which begins with its weight if it is one of ours.
fn write(program: u32, line: &str) {
    match line.split_once(' ') {
        Some(("INFO", text)) => info!("program {program}: {text}"),
        Some(("WARN" | "ERROR", text)) => warn!("program {program}: {text}"),
        _ => warn!("program {program}: {line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    fn worker(command: &mut Command, orders: OwnedFd) -> Worker {
        let (log, its_log) = io::pipe().unwrap();
        fcntl(&log, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let child = command.stderr(its_log).spawn().unwrap();
        Worker::of(child, 1, orders, report::pipe().unwrap().0, log.into())
    }

    #[test]
    fn one_that_cannot_be_instructed_is_killed() {
        let (orders, its_orders) = packet::pair().unwrap();
        drop(its_orders);
        let mut worker = worker(Command::new("sleep").arg("1000"), orders);
        let start = Start { pid: 1, budgets: Vec::new(), tables: None };
        assert!(worker.instruct(b"hello", &start).is_err());
        assert!(worker.orders.is_none() && worker.reports().is_none());
        assert_eq!(worker.child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_log_without_end_does_not_hold_the_parent() {
        let mut worker = worker(Command::new("sh").args(["-c", "exec yes >&2"]), packet::pair().unwrap().0);
        while !worker.copy_log() {
            std::thread::yield_now();
        }
        assert!(worker.ended().is_none() && worker.log().is_some());
        worker.give_up();
        worker.child.wait().unwrap();
        assert!(worker.ended().is_some_and(|status| !status.success()));
        assert!(worker.log().is_none(), "read to its end");
    }
}
