//! The file of a trace: the person's alone, and one process's alone.
//!
//! A file that is there is written anew. One that another process is recording into is left to it, and ours is `FILE.PID`: a launcher's
//! children inherit the variable. Which one is taken is told by a lock, which goes with its process.

use nix::fcntl::OFlag;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Creates the file, or `FILE.PID`. Answers which.
///
/// # Errors
/// The path, and why not.
pub(super) fn create(path: &Path) -> Result<(File, PathBuf), (PathBuf, io::Error)> {
    match claim(path) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let own = beside(path, &std::process::id().to_string());
            claim(&own).map(|file| (file, own.clone())).map_err(|error| (own, error))
        }
        other => other.map(|file| (file, path.to_owned())).map_err(|error| (path.to_owned(), error)),
    }
}

/// `FILE.MORE`.
pub(super) fn beside(path: &Path, more: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(more);
    name.into()
}

fn claim(path: &Path) -> io::Result<File> {
    // Nobody waits for the other end of a pipe, and no terminal becomes ours.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags.bits())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    // SAFETY: an open descriptor.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        return Err(io::Error::last_os_error());
    }
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.set_len(0)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_anew_is_private_and_is_one_recorders() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.trace");
        std::fs::write(&path, "of yesterday").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let (first, at) = create(&path).unwrap();
        assert_eq!((at.as_path(), first.metadata().unwrap().len()), (path.as_path(), 0));
        assert_eq!(first.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let (_second, own) = create(&path).unwrap();
        assert_eq!(own, beside(&path, &std::process::id().to_string()));
        drop(first);
        assert_eq!(create(&path).unwrap().1, path);
    }

    #[test]
    fn what_is_no_file_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [pipe, folder.path().to_owned(), folder.path().join("no/such"), "/dev/null".into()] {
            let (named, _) = create(&path).unwrap_err();
            assert_eq!(named, path);
        }
    }
}
