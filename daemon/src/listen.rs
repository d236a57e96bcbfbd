//! Listening: a place that is ours, one daemon at a time, files with the right permissions.
//!
//! Whoever holds the lock on `deepumd.lock` beside the socket is the daemon there; the kernel lets go of it when the process
//! ends, however it ends. So a socket file that is found by the holder is a dead daemon's, and is replaced; anything else in its
//! place is left alone.
//!
//! Files are made with the permissions that they shall have: the umask is narrow while they are made, so there is no moment
//! at which others could use them. Not here: who may connect.

use anyhow::{Context, Result, bail, ensure};
use deepum_engine::packet;
use deepum_engine::socket::Socket;
use deepum_protocol::programs::socket_beside;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{Mode, umask};
use nix::unistd::getuid;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Whether descriptors may be sent to a Unix socket (`asm-generic/socket.h`).
const SO_PASSRIGHTS: libc::c_int = 83;

/// A place to listen at. Dropping it removes the files.
#[derive(Debug)]
pub struct Place {
    /// Where programs connect, non-blocking.
    pub listener: OwnedFd,
    /// Where the status is asked for.
    pub status: Option<Socket>,
    path: PathBuf,
    // Last: whoever gets the lock finds no files of ours.
    _lock: Flock<File>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Place {
    /// Listens at `path`, for everybody or for our own user alone. Call it while there is one thread.
    ///
    /// # Errors
    /// In words for the person: what is in the way, and what would do.
    pub fn open(path: &Path, everybody: bool) -> Result<Self> {
        folder(path, everybody)?;
        let lock = lock(path)?;
        let before = umask(Mode::from_bits_truncate(0o177));
        let bound = Self::bind(path, everybody);
        umask(before);
        let (listener, status) = bound?;
        Ok(Self { listener, status: Some(status), path: path.to_owned(), _lock: lock })
    }

    fn bind(path: &Path, everybody: bool) -> Result<(OwnedFd, Socket)> {
        let beside = socket_beside(path);
        clear(path)?;
        clear(&beside)?;
        let listener = packet::listen(path).with_context(|| format!("cannot listen at {}", path.display()))?;
        nix::fcntl::fcntl(&listener, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))?;
        let status = UnixListener::bind(&beside).with_context(|| format!("cannot listen at {}", beside.display()))?;
        refuse_descriptors(status.as_fd());
        let status = Socket::adopt(status, beside.clone())?;
        if everybody {
            for path in [path, &beside] {
                fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
            }
        }
        Ok((listener, status))
    }

    /// Where programs connect.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Lets no client send descriptors here, as closing them may take long. From Linux 6.16 on; with an older one a client may hold up
/// the thread that answers, and nothing else.
fn refuse_descriptors(listener: BorrowedFd<'_>) {
    let no: libc::c_int = 0;
    let len = libc::socklen_t::try_from(size_of_val(&no)).unwrap_or(0);
    // SAFETY: reads one number of ours, of the length said. Connections inherit it, so there is no moment at which one could.
    unsafe { libc::setsockopt(listener.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw const no).cast(), len) };
}

/// Makes sure that the folder is there and nobody but root and us can put files into it or take ours away.
///
/// # Errors
/// What is wrong with it.
pub fn folder(path: &Path, everybody: bool) -> Result<()> {
    ensure!(path.is_absolute(), "--socket is {}; allowed is an absolute path", path.display());
    ensure!(
        path.extension().is_some_and(|e| e != "status" && e != "lock"),
        "--socket is {}; allowed is a name with an ending, such as deepumd.sock, other than .status and .lock",
        path.display()
    );
    let folder = path.parent().context("--socket names no file")?;
    let mode = if everybody { 0o755 } else { 0o700 };
    match fs::DirBuilder::new().mode(mode).create(folder) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => {
            return Err(e).with_context(|| format!("cannot make the folder {}", folder.display()));
        }
        _ => {}
    }
    let found = fs::metadata(folder).with_context(|| format!("cannot use the folder {}", folder.display()))?;
    let (mode, owner) = (found.mode(), found.uid());
    ensure!(found.is_dir(), "{} is no folder", folder.display());
    ensure!(
        owner == getuid().as_raw() || owner == 0,
        "the folder {} belongs to user {owner}; allowed is this user's or root's",
        folder.display()
    );
    // With the sticky bit others may add files, but not take ours away.
    ensure!(
        mode & 0o022 == 0 || mode & 0o1000 != 0,
        "the folder {} can be written by others (mode {:o}); allowed is one that cannot",
        folder.display(),
        mode & 0o7777
    );
    Ok(())
}

/// Becomes the daemon of this place.
fn lock(path: &Path) -> Result<Flock<File>> {
    let file = path.with_extension("lock");
    let mut open = File::options();
    open.read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    let opened = open.open(&file).with_context(|| format!("cannot open {}", file.display()))?;
    match Flock::lock(opened, FlockArg::LockExclusiveNonblock) {
        Ok(mut lock) => {
            lock.set_len(0)?;
            lock.rewind()?;
            writeln!(lock, "{}", std::process::id())?;
            Ok(lock)
        }
        Err((mut held, Errno::EWOULDBLOCK)) => {
            let mut who = String::new();
            let _ = held.read_to_string(&mut who);
            bail!("another deepumd (process {}) listens at {}; one is enough", who.trim(), path.display())
        }
        Err((_, e)) => bail!("cannot lock {}: {e}", file.display()),
    }
}

/// Removes the socket of a daemon that is no more.
fn clear(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {
            fs::remove_file(path).with_context(|| format!("cannot remove the old socket {}", path.display()))
        }
        Ok(_) => bail!("{} is there and is no socket; it is left alone: name another with --socket", path.display()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e).with_context(|| format!("cannot look at {}", path.display())),
    }
}
