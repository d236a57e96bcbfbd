//! Descriptors of exported memory, handed to the processes that have a ticket for them.
//!
//! A program that exports memory gives others a handle: 64 bytes, which go any way. What a driver needs to have the memory is a descriptor,
//! which goes through a Unix socket alone. So the exporter listens, from its first export on, at `PID.ipc` beside its status socket, in a folder of
//! mode 0700; whoever comes must be of the same user, and sends the number of the export with its secret, which only the handle tells:
//!
//! ```text
//! request   number (8 bytes, little-endian) | secret (16 bytes)
//! answer    1 with the descriptor, or 0
//! ```
//!
//! Connections are served one after the other, each for one request, for which nobody is waited for longer than [`PATIENCE`]: all of them are the same user's, and an
//! import is rare. A descriptor is made for each answer and closed behind it, so that a program that closes what it did not open loses nothing.

use crate::{ours, packet, socket};
use deepum_kmod_bridge::high;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Uid, getuid};
use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// The longest that the exporter waits for a request.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// The longest wait for an answer: the exporter may be exporting, for which it waits for its GPU.
const ANSWER: Duration = Duration::from_secs(120);

/// What a handle says of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// Its number in the exporting process.
    pub number: u64,
    /// What nobody can guess.
    pub secret: [u8; 16],
}

impl Ticket {
    fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.secret);
        bytes
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (number, secret) = bytes.split_first_chunk()?;
        Some(Self { number: u64::from_le_bytes(*number), secret: secret.try_into().ok()? })
    }
}

/// Where a process listens, if it does so in this folder.
fn place(folder: &Path, pid: u32) -> PathBuf {
    folder.join(format!("{pid}{}", socket::EXPORTS))
}

/// A socket that listens.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
}

impl Listener {
    /// In the first of `folders` that will do.
    ///
    /// # Errors
    /// Why none will do, folder by folder.
    pub fn bind(folders: &[PathBuf], pid: u32) -> Result<Self, String> {
        let mut reasons = Vec::new();
        for folder in folders {
            match Self::bind_in(folder, pid) {
                Ok(listener) => return Ok(listener),
                Err(e) => reasons.push(format!("{}: {e}", folder.display())),
            }
        }
        Err(reasons.join("; "))
    }

    fn bind_in(folder: &Path, pid: u32) -> io::Result<Self> {
        socket::secure(folder)?;
        socket::sweep(folder);
        let path = place(folder, pid);
        let socket = match packet::listen(&path) {
            Err(e) if e.kind() == ErrorKind::AddrInUse => {
                // A process of this number that is seen from elsewhere, or one that is no more.
                if packet::connect(&path).is_ok() {
                    return Err(e);
                }
                std::fs::remove_file(&path)?;
                packet::listen(&path)?
            }
            other => other?,
        };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self { socket: high::copy(socket)?, path })
    }

    /// Serves until accepting fails for good. `open` makes the descriptor that a ticket is for.
    pub fn serve(&self, open: impl Fn(&Ticket) -> Option<OwnedFd>) {
        loop {
            match packet::accept(self.socket.as_fd()) {
                Ok(client) => drop(answer(client.as_fd(), &open)),
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(e)
                    if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS)) =>
                {
                    std::thread::sleep(Duration::from_millis(10));
                }
                // The program has closed the socket.
                Err(_) => return,
            }
        }
    }

    /// As [`Self::serve`], on a thread of its own, for the rest of the process's life. At the end of the process the socket's file goes.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn serve_always(
        self,
        open: impl Fn(&Ticket) -> Option<OwnedFd> + Send + 'static,
        failed: impl FnOnce(String) + Send + 'static,
    ) -> Result<(), String> {
        ours::quiet_panics();
        if let Ok(path) = CString::new(self.path.as_os_str().as_bytes())
            && FILE.set((std::process::id(), path)).is_ok()
        {
            // SAFETY: the handler makes plain system calls alone.
            unsafe { libc::atexit(remove_file) };
        }
        ours::spawn("deepum-ipc", move || self.serve(open), failed)
    }
}

static FILE: OnceLock<(u32, CString)> = OnceLock::new();

extern "C" fn remove_file() {
    // A forked child's end is not its parent's.
    if let Some((pid, path)) = FILE.get()
        && *pid == std::process::id()
    {
        // SAFETY: a C string that lives for ever.
        unsafe { libc::unlink(path.as_ptr()) };
    }
}

fn of_our_user(socket: BorrowedFd<'_>) -> bool {
    getsockopt(&socket, PeerCredentials).is_ok_and(|peer| Uid::from_raw(peer.uid()) == getuid())
}

fn wait_for_packet(socket: BorrowedFd<'_>, patience: Duration) -> io::Result<()> {
    let mut fds = [PollFd::new(socket, PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    loop {
        match poll(&mut fds, timeout) {
            Ok(0) => return Err(ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn answer(client: BorrowedFd<'_>, open: &impl Fn(&Ticket) -> Option<OwnedFd>) -> io::Result<()> {
    if !of_our_user(client) {
        return Ok(());
    }
    wait_for_packet(client, PATIENCE)?;
    let mut bytes = [0; 24];
    let got = packet::receive(client, &mut bytes)?;
    let ticket = Ticket::of_bytes(&bytes[..got.len]).filter(|_| !got.cut && got.fds.is_empty());
    match ticket.as_ref().and_then(open) {
        Some(file) => packet::send(client, &[1], &[file.as_fd()]),
        None => packet::send(client, &[0], &[]),
    }
}

/// Has the descriptor that a ticket of process `pid` is for.
///
/// # Errors
/// In words, why not.
pub fn fetch(folders: &[PathBuf], pid: u32, ticket: &Ticket) -> Result<OwnedFd, String> {
    let mut reasons = Vec::new();
    for folder in folders {
        let path = place(folder, pid);
        match packet::connect(&path).and_then(|server| fetch_from(server.as_fd(), ticket)) {
            Ok(Some(file)) => return Ok(file),
            Ok(None) => return Err(format!("process {pid} does not export it any more")),
            Err(e) => reasons.push(format!("{}: {e}", path.display())),
        }
    }
    Err(reasons.join("; "))
}

fn fetch_from(server: BorrowedFd<'_>, ticket: &Ticket) -> io::Result<Option<OwnedFd>> {
    if !of_our_user(server) {
        return Err(io::Error::new(ErrorKind::PermissionDenied, "another user listens there"));
    }
    packet::send(server, &ticket.to_bytes(), &[])?;
    wait_for_packet(server, ANSWER)?;
    let mut byte = [0];
    let got = packet::receive(server, &mut byte)?;
    let mut files = got.fds.into_iter();
    match (got.len, byte, files.next(), files.next()) {
        (1, [1], Some(file), None) if !got.cut => Ok(Some(file)),
        (1, [0], None, None) => Ok(None),
        _ => Err(io::Error::new(ErrorKind::InvalidData, "the answer makes no sense")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    const TICKET: Ticket = Ticket { number: 7, secret: *b"0123456789abcdef" };

    /// Listens in a folder of its own; the text is what the export holds.
    fn exporter(folder: &Path) -> Vec<PathBuf> {
        let folders = vec![folder.join("nothing"), folder.join("deepum")];
        // The first of them cannot be made.
        std::fs::write(&folders[0], "a file").unwrap();
        let listener = Listener::bind(&folders, 4711).unwrap();
        let file = folder.join("memory");
        std::fs::write(&file, "contents").unwrap();
        let open = move |ticket: &Ticket| (*ticket == TICKET).then(|| std::fs::File::open(&file).unwrap().into());
        std::thread::spawn(move || listener.serve(open));
        folders
    }

    #[test]
    fn a_descriptor_goes_to_whoever_has_the_ticket() {
        let folder = tempfile::tempdir().unwrap();
        let folders = exporter(folder.path());
        for _ in 0..3 {
            let mut text = String::new();
            std::fs::File::from(fetch(&folders, 4711, &TICKET).unwrap()).read_to_string(&mut text).unwrap();
            assert_eq!(text, "contents");
        }
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folders[1]), mode(&folders[1].join("4711.ipc"))), (0o700, 0o600));
    }

    #[test]
    fn who_has_no_ticket_gets_nothing_and_is_told_why() {
        let folder = tempfile::tempdir().unwrap();
        let folders = exporter(folder.path());
        let wrong = Ticket { secret: [0; 16], ..TICKET };
        assert!(fetch(&folders, 4711, &wrong).unwrap_err().contains("does not export it any more"));
        assert!(fetch(&folders, 4712, &TICKET).unwrap_err().contains("4712.ipc: No such file"));
        // Too short, too long, and nothing at all: each gets no descriptor, and the next is served.
        for packet in [&[7u8; 3][..], &[7; 100], &[]] {
            let client = packet::connect(&folders[1].join("4711.ipc")).unwrap();
            packet::send(client.as_fd(), packet, &[]).unwrap();
            let mut byte = [9];
            let got = packet::receive(client.as_fd(), &mut byte).unwrap();
            assert!(got.fds.is_empty() && byte[0] != 1, "{got:?}");
        }
        assert!(fetch(&folders, 4711, &TICKET).is_ok());
    }
}
