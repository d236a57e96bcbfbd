//! What parent and worker say to each other: one JSON object a packet.
//!
//! To a worker, over a socket pair: first the program's Hello, as it came; then [`Start`]; then [`Order`]s. A worker
//! sends [`Report`]s. It runs as the program's user, so the parent believes it no more than it believes the program:
//! a packet is bounded, one that makes no sense ends the worker, and reports come through a pipe, which carries no descriptors.

use deepum_engine::packet;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::socket::{MsgFlags, send};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Longest packet.
pub const PACKET: usize = 16 << 10;
/// Longest packet of a pipe, `PIPE_BUF`: 16 GPUs need a third of it.
pub const REPORT: usize = 4096;

/// Whom a worker serves, and how.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The program's process; 0 where it is in another process name space.
    pub pid: u32,
    /// What it may fill at first, by place of the GPU in the Hello.
    pub budgets: Vec<u64>,
    /// Folder of the user's tables, if tables are kept.
    pub tables: Option<PathBuf>,
}

/// What a worker shall do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// What the program may fill from now on, as in [`Start`].
    Budgets(Vec<u64>),
    /// Save what is to be saved, and end.
    End,
}

/// How a worker's program is.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// By place of the GPU in the Hello.
    pub gpus: Vec<Figures>,
}

/// A program on one GPU.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Bytes it holds.
    pub managed: u64,
    /// Of these on the GPU.
    pub resident: u64,
    /// Launches issued.
    pub launches: u64,
}

/// Sends one packet, without waiting.
///
/// # Errors
/// As `send(2)`: `WouldBlock` where the other end does not read.
pub fn say(socket: BorrowedFd<'_>, what: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(what)?;
    send_now(socket, &bytes)
}

/// Sends bytes as one packet, without waiting.
///
/// # Errors
/// As `send(2)`.
pub fn send_now(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    send(socket.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL)?;
    Ok(())
}

/// The next packet, if one waits; `Ok(None)` if none does.
///
/// # Errors
/// `UnexpectedEof` where the other end is gone, `InvalidData` for what is no such packet.
pub fn hear<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<T>> {
    let mut buffer = [0; PACKET];
    let got = match packet::receive(socket, &mut buffer) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        other => other?,
    };
    // Descriptors that came along, which nobody sends, are closed by falling out of here.
    match (got.len, got.cut) {
        (0, _) => Err(io::ErrorKind::UnexpectedEof.into()),
        (_, true) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("a packet of more than {PACKET} bytes"))),
        (len, false) => Ok(Some(serde_json::from_slice(&buffer[..len])?)),
    }
}

/// A pipe for reports, one read being one report, of which neither end waits: the end to read, the end to write.
///
/// # Errors
/// As `pipe2(2)`.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(nix::unistd::pipe2(OFlag::O_DIRECT | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)?)
}

/// Sends a report, without waiting.
///
/// # Errors
/// As `write(2)`: `WouldBlock` where the parent does not read.
pub fn give(pipe: BorrowedFd<'_>, report: &Report) -> io::Result<()> {
    nix::unistd::write(pipe, &serde_json::to_vec(report)?)?;
    Ok(())
}

/// The next report, if one waits; `Ok(None)` if none does.
///
/// # Errors
/// `UnexpectedEof` where the worker is gone, `InvalidData` for what is no report.
pub fn next(pipe: BorrowedFd<'_>) -> io::Result<Option<Report>> {
    let mut buffer = [0; REPORT];
    match nix::unistd::read(pipe, &mut buffer) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(len) => match serde_json::from_slice(&buffer[..len]) {
            Ok(report) => Ok(Some(report)),
            // An end within an object, too: it is the report that ends there, not the pipe.
            Err(e) => Err(io::Error::new(io::ErrorKind::InvalidData, e)),
        },
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn reports_come_one_by_one_and_the_largest_fits() {
        let (ours, theirs) = pipe().unwrap();
        let most = Figures { managed: u64::MAX, resident: u64::MAX, launches: u64::MAX };
        let reports = [Report { gpus: vec![most; 16] }, Report::default()];
        assert_eq!(next(ours.as_fd()).unwrap(), None);
        reports.iter().for_each(|report| give(theirs.as_fd(), report).unwrap());
        for report in reports {
            assert_eq!(next(ours.as_fd()).unwrap(), Some(report));
        }
        for bad in [&b"{\"gpus\":["[..], &[b' '; 2 * REPORT]] {
            nix::unistd::write(&theirs, bad).unwrap();
            assert_eq!(next(ours.as_fd()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        let _ = next(ours.as_fd());
        drop(theirs);
        assert_eq!(next(ours.as_fd()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_full_pipe_does_not_hold_a_worker() {
        let (_ours, theirs) = pipe().unwrap();
        let error = (0..100_000).find_map(|_| give(theirs.as_fd(), &Report::default()).err());
        assert_eq!(error.map(|e| e.kind()), Some(io::ErrorKind::WouldBlock));
    }
}
