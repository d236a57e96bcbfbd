//! What parent and worker say to each other: one JSON object a packet, over a socket pair.
//!
//! The first packet to a worker is the program's Hello, as it came; the second is [`Start`]; then [`Order`]s. A worker
//! sends [`Report`]s. The worker runs as the program's user, so the parent believes it no more than it believes the program:
//! a packet is bounded, and one that makes no sense ends the worker.

use deepum_engine::packet;
use nix::sys::socket::{MsgFlags, send};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;

/// Longest packet.
pub const PACKET: usize = 16 << 10;

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
