//! The status socket: newline-delimited JSON, for the program's owner alone.
//!
//! `PID.sock` in the first of [`deepum_protocol::status::folders`] that will do. The folder must be a real folder of ours with mode
//! 0700; we make it so, or serve nothing. A client must be of our user or root.
//!
//! One thread serves all clients with one `poll`: it sleeps while nobody asks, reads lines of bounded length, answers one of each
//! client a turn, and drops a client that sends too much, does not take its answers, or is silent for [`PATIENCE`]. No client can make
//! it wait for another, or hold more than a line, a megabyte of answers and one answer for it ([`client`]).

mod client;

use client::{Client, refusal};
use deepum_protocol::status::{Request, Status, Wanted};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::kill;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Pid, Uid, getuid};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How the name of a process's socket for memory that it shares ends, behind the process's number.
pub const EXPORTS: &str = ".ipc";

/// Most clients of one user at a time.
pub const CLIENTS: usize = 16;
/// Most clients taken in one turn, so that those who are served are served meanwhile.
const ACCEPTS: usize = 64;
/// Longest line a client may send, newline included.
pub const LINE: usize = 4096;
/// Longest time a client may be silent, or not take its answer.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Makes sure that `folder` is ours alone.
pub(crate) fn secure(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    // Not following links: somebody else may have put one there.
    let found = fs::symlink_metadata(folder)?;
    let not = |what: &str| Err(io::Error::new(ErrorKind::PermissionDenied, format!("{} {what}", folder.display())));
    if !found.is_dir() {
        return not("is no folder");
    }
    if found.uid() != getuid().as_raw() {
        return not("belongs to another user");
    }
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Removes what processes left that are no more: those killed have nobody to do it.
pub(crate) fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let stem = |name: &'_ str| name.strip_suffix(".sock").or_else(|| name.strip_suffix(EXPORTS)).map(str::to_owned);
        let pid = name.to_str().and_then(stem).and_then(|pid| pid.parse::<i32>().ok());
        let gone = |pid| kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH);
        if pid.filter(|pid| *pid > 0).is_some_and(gone) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A bound socket. Dropping it removes the file.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Binds `PID.sock` in the first of `folders` that will do. One that an earlier process of this number left is replaced.
    ///
    /// # Errors
    /// Why none will do, folder by folder.
    pub fn bind(folders: &[PathBuf], pid: u32) -> Result<Self, String> {
        let mut reasons = Vec::new();
        for folder in folders {
            match Self::bind_in(folder, pid) {
                Ok(socket) => return Ok(socket),
                Err(e) => reasons.push(format!("{}: {e}", folder.display())),
            }
        }
        Err(reasons.join("; "))
    }

    fn bind_in(folder: &Path, pid: u32) -> io::Result<Self> {
        secure(folder)?;
        sweep(folder);
        let path = folder.join(format!("{pid}.sock"));
        let listener = match UnixListener::bind(&path) {
            Err(e) if e.kind() == ErrorKind::AddrInUse => {
                if UnixStream::connect(&path).is_ok() {
                    return Err(e);
                }
                fs::remove_file(&path)?;
                UnixListener::bind(&path)?
            }
            other => other?,
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path })
    }

    /// One that somebody else has bound and now gives away, file and all.
    ///
    /// # Errors
    /// If it cannot be made non-blocking.
    pub fn adopt(listener: UnixListener, path: PathBuf) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Serves until the process ends. `status` is asked once for each request.
    pub fn serve(&self, status: impl Fn() -> Status) {
        self.serve_users(status, |uid| uid == getuid() || uid.is_root());
    }

    /// As [`Self::serve`], for the users that `may` allows.
    pub fn serve_users(&self, status: impl Fn() -> Status, may: impl Fn(Uid) -> bool) {
        let answer = |request: Request, _| match request.get {
            Wanted::Status => status().to_line().map_err(|e| format!("the status cannot be written: {e}")),
            Wanted::Programs => {
                Err("a program knows of itself alone; deepumd lists programs, on its own socket".to_owned())
            }
        };
        self.serve_requests(answer, may);
    }

    /// As [`Self::serve`], where `answer` makes a line of a request and the user it comes from, or says what is wrong with it.
    pub fn serve_requests(&self, answer: impl Fn(Request, Uid) -> Result<String, String>, may: impl Fn(Uid) -> bool) {
        let mut clients: Vec<Client> = Vec::new();
        loop {
            let wait = clients.iter().map(Client::expires).min();
            let timeout = match wait {
                _ if clients.iter().any(Client::is_due) => PollTimeout::ZERO,
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now()).as_millis().min(60_000) + 1;
                    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
                }
                None => PollTimeout::NONE,
            };
            let mut fds = vec![PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
            fds.extend(clients.iter().map(|c| PollFd::new(c.fd(), c.wants())));
            if poll(&mut fds, timeout).is_err() {
                // EINTR cannot be (no signals here), ENOMEM can; neither is worth the processor's time.
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
            let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
            drop(fds);
            let mut turn = ready[1..].iter();
            clients.retain_mut(|client| {
                let ready = turn.next().copied().unwrap_or(false) || client.is_due();
                (!ready || client.serve(&answer).is_ok()) && client.expires() > Instant::now()
            });
            if ready[0] {
                self.accept(&mut clients, &may);
            }
        }
    }

    fn accept(&self, clients: &mut Vec<Client>, may: &impl Fn(Uid) -> bool) {
        for _ in 0..ACCEPTS {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // Out of descriptors, most likely: the one that waits stays ready, so do not come back at once.
                Err(_) => return std::thread::sleep(Duration::from_millis(10)),
            };
            let peer = getsockopt(&stream, PeerCredentials).map(|peer| Uid::from_raw(peer.uid()));
            let Some(mut client) = Client::new(stream, peer.unwrap_or(Uid::from_raw(u32::MAX))) else { continue };
            // By user, so that none takes another's places.
            let of_user = clients.iter().filter(|other| other.uid == client.uid).count();
            if !peer.is_ok_and(may) {
                client.say(&refusal("the status is for the program's owner and root"));
            } else if of_user >= CLIENTS || clients.len() >= CLIENTS * CLIENTS {
                client.say(&refusal(&format!("{CLIENTS} clients are connected already; try again later")));
            } else {
                clients.push(client);
                continue;
            }
            let _ = client.flush();
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
