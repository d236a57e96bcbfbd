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
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

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

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn one_at_a_time_and_what_a_dead_one_left_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deepum/deepumd.sock");
        let first = Place::open(&path, false).unwrap();
        assert_eq!((mode(&path), mode(&path.with_extension("status"))), (0o600, 0o600));
        assert_eq!((mode(&path.with_extension("lock")), mode(path.parent().unwrap())), (0o600, 0o700));
        let error = Place::open(&path, false).unwrap_err().to_string();
        assert!(error.contains(&format!("another deepumd (process {})", std::process::id())), "{error}");
        drop(first);
        assert!(!path.exists() && !path.with_extension("status").exists());
        // As after kill -9: the files are there, nobody holds the lock.
        drop(UnixListener::bind(&path).unwrap());
        drop(UnixListener::bind(path.with_extension("status")).unwrap());
        let second = Place::open(&path, true).unwrap();
        assert_eq!((mode(&path), mode(&path.with_extension("status"))), (0o666, 0o666));
        packet::connect(second.path()).unwrap();
    }

    #[test]
    fn what_is_no_socket_is_left_alone_and_bad_folders_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deepumd.sock");
        fs::write(&path, "precious").unwrap();
        assert!(Place::open(&path, false).unwrap_err().to_string().contains("is no socket"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let error = Place::open(&open.join("deepumd.sock"), false).unwrap_err().to_string();
        assert!(error.contains("can be written by others (mode 777)"), "{error}");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
        Place::open(&open.join("deepumd.sock"), false).unwrap();
        assert!(Place::open(Path::new("deepumd.sock"), false).unwrap_err().to_string().contains("absolute"));
        assert!(Place::open(&dir.path().join("x.lock"), false).unwrap_err().to_string().contains("ending"));
        assert!(
            Place::open(&dir.path().join("none/none/x.sock"), false).unwrap_err().to_string().contains("cannot make")
        );
        let lock = dir.path().join("deepumd.lock");
        fs::remove_file(&path).unwrap();
        fs::remove_file(&lock).ok();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &lock).unwrap();
        assert!(Place::open(&path, false).unwrap_err().to_string().contains("cannot open"));
        assert!(!dir.path().join("elsewhere").exists());
    }
}
