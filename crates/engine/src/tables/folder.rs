//! The folder that learned tables are kept in: ours alone, and nothing in it is believed to be so.
//!
//! It is opened once; files are reached through its descriptor, so that nobody can put another folder in its place. Links are not
//! followed, a file must be a regular one of ours that nobody else can write, and is read up to a bounded length. A file is
//! written under a passing name and renamed, so that a reader finds the old one or the new one.
//!
//! At most [`MOST`] files are kept: saving one more removes those saved longest ago.

use deepum_core::correlate::saved::LIMIT;
use deepum_kmod_bridge::high;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, getuid, unlinkat};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How the names of our files end.
pub const SUFFIX: &str = ".tables";
/// How the names of files that are being written end.
const PASSING: &str = ".writing";
/// Most files kept. A choice: a file takes a few megabytes at most for the models we know.
pub const MOST: usize = 256;

/// See the module.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
    passing: AtomicU64,
}

impl Folder {
    /// Opens the folder; it is made, for us alone, if it is not there.
    ///
    /// # Errors
    /// Why it will not do.
    pub fn open(path: &Path) -> Result<Self, String> {
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| format!("cannot be made: {e}"))?;
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let fd = nix::fcntl::open(path, flags, Mode::empty()).map_err(|e| match e {
            Errno::ENOTDIR | Errno::ELOOP => "is no folder but a file or a link".to_owned(),
            e => format!("cannot be opened: {}", e.desc()),
        })?;
        let found = fstat(&fd).map_err(|e| format!("cannot be looked at: {}", e.desc()))?;
        ours_alone(&found)?;
        let fd = high::copy(fd).map_err(|e| format!("cannot be kept open: {}", e.desc()))?;
        Ok(Self { fd, path: path.to_owned(), passing: AtomicU64::new(0) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The contents of a file; nothing if there is none.
    ///
    /// # Errors
    /// Why it is not read.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        // Not blocking: a pipe in its place would wait for somebody to write.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let fd = match openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::ENOENT) => return Ok(None),
            Err(Errno::ELOOP) => return Err("it is a link".to_owned()),
            Err(e) => return Err(format!("it cannot be opened: {}", e.desc())),
        };
        let found = fstat(&fd).map_err(|e| format!("it cannot be looked at: {}", e.desc()))?;
        if !is(&found, SFlag::S_IFREG) {
            return Err("it is no file".to_owned());
        }
        ours_alone(&found)?;
        let mut bytes = Vec::new();
        let mut file = File::from(fd).take(LIMIT as u64 + 1);
        file.read_to_end(&mut bytes).map_err(|e| format!("it cannot be read: {e}"))?;
        if bytes.len() > LIMIT {
            return Err(format!("it has more than {} MiB, which is the most that is read", LIMIT >> 20));
        }
        Ok(Some(bytes))
    }

    /// Puts a file there, or in the place of the one that is.
    ///
    /// # Errors
    /// Why it is not written; the old one is as it was.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        if bytes.len() > LIMIT {
            return Err(format!("{name}: what was learned takes more than {LIMIT} bytes"));
        }
        self.make_room(name);
        let number = self.passing.fetch_add(1, Ordering::Relaxed);
        let passing = format!("{name}.{}.{number}{PASSING}", std::process::id());
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(&self.fd, passing.as_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR)
            .and_then(high::copy)
            .map_err(|e| format!("no file can be made there: {}", e.desc()))?;
        let written = File::from(fd).write_all(bytes).map_err(|e| format!("writing failed: {e}"));
        let renamed = written.and_then(|()| {
            renameat(&self.fd, passing.as_str(), &self.fd, name)
                .map_err(|e| format!("cannot give the file its name: {}", e.desc()))
        });
        if renamed.is_err() {
            let _ = unlinkat(&self.fd, passing.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        renamed
    }

    /// Removes the files saved longest ago, if there are too many for one more, and those that a process which is no more was
    /// writing.
    fn make_room(&self, name: &str) {
        let mut saved: Vec<(i64, OsString)> = Vec::new();
        // By the descriptor, so that it is this folder and no other.
        let Ok(entries) = fs::read_dir(format!("/proc/self/fd/{}", self.fd.as_raw_fd())) else { return };
        for entry in entries.flatten() {
            let file = entry.file_name();
            let Some(text) = file.to_str() else { continue };
            if text.ends_with(PASSING) {
                let pid = text.rsplit('.').nth(2).and_then(|pid| pid.parse::<i32>().ok()).filter(|&pid| pid > 0);
                let gone = |pid| nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None) == Err(Errno::ESRCH);
                if pid.is_some_and(gone) {
                    let _ = unlinkat(&self.fd, text, UnlinkatFlags::NoRemoveDir);
                }
            } else if text.ends_with(SUFFIX)
                && text != name
                && let Ok(found) = fstatat(self.fd.as_fd(), text, AtFlags::AT_SYMLINK_NOFOLLOW)
            {
                saved.push((found.st_mtime, file));
            }
        }
        saved.sort_unstable();
        for (_, file) in saved.iter().take((saved.len() + 1).saturating_sub(MOST)) {
            let _ = unlinkat(&self.fd, file.as_os_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

fn is(found: &FileStat, kind: SFlag) -> bool {
    SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == kind
}

/// Whether only we can write there.
fn ours_alone(found: &FileStat) -> Result<(), String> {
    if found.st_uid != getuid().as_raw() {
        return Err(format!("it belongs to user {}, and must be ours", found.st_uid));
    }
    let mode = found.st_mode & 0o7777;
    if mode & 0o022 != 0 {
        return Err(format!("its mode is {mode:o}: others may write there"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::time::{Duration, SystemTime};

    fn folder() -> (tempfile::TempDir, Folder) {
        let temp = tempfile::tempdir().unwrap();
        let folder = Folder::open(&temp.path().join("a/b")).unwrap();
        (temp, folder)
    }

    #[test]
    fn a_file_is_whole_ours_alone_and_replaced_at_once() {
        let (_temp, folder) = folder();
        assert_eq!(folder.read("x.tables"), Ok(None));
        folder.write("x.tables", b"one").unwrap();
        folder.write("x.tables", b"three").unwrap();
        assert_eq!(folder.read("x.tables").unwrap().unwrap(), b"three");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(folder.path()), mode(&folder.path().join("x.tables"))), (0o700, 0o600));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
    }

    #[test]
    fn what_is_not_a_file_of_ours_is_not_read() {
        let (_temp, folder) = folder();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("real"), b"x").unwrap();
        symlink(at("real"), at("link.tables")).unwrap();
        assert_eq!(folder.read("link.tables"), Err("it is a link".to_owned()));
        fs::create_dir(at("folder.tables")).unwrap();
        assert_eq!(folder.read("folder.tables"), Err("it is no file".to_owned()));
        nix::unistd::mkfifo(&at("pipe.tables"), Mode::S_IRWXU).unwrap();
        assert_eq!(folder.read("pipe.tables"), Err("it is no file".to_owned()));
        fs::set_permissions(at("real"), fs::Permissions::from_mode(0o620)).unwrap();
        assert_eq!(folder.read("real"), Err("its mode is 620: others may write there".to_owned()));
        let large = File::create(at("large.tables")).unwrap();
        large.set_len(LIMIT as u64 + 1).unwrap();
        assert!(folder.read("large.tables").unwrap_err().contains("256 MiB"));
        // Writing replaces a link instead of following it.
        folder.write("link.tables", b"new").unwrap();
        assert_eq!(fs::read(at("real")).unwrap(), b"x");
    }

    #[test]
    fn a_folder_that_others_can_change_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        fs::create_dir(at("open")).unwrap();
        fs::set_permissions(at("open"), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(Folder::open(&at("open")).unwrap_err(), "its mode is 777: others may write there");
        symlink(temp.path(), at("link")).unwrap();
        assert_eq!(Folder::open(&at("link")).unwrap_err(), "is no folder but a file or a link");
        fs::write(at("file"), b"").unwrap();
        assert!(Folder::open(&at("file")).is_err());
    }

    #[test]
    fn the_files_saved_longest_ago_and_those_of_dead_writers_go() {
        let (_temp, folder) = folder();
        let at = |name: &str| folder.path().join(name);
        for n in 0..MOST as u64 {
            let file = File::create(at(&format!("{n}.tables"))).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(n)).unwrap();
        }
        fs::write(at("x.tables.2147483647.0.writing"), b"").unwrap();
        fs::write(at(&format!("x.tables.{}.9.writing", std::process::id())), b"").unwrap();
        fs::write(at("mine.txt"), b"").unwrap();
        folder.write("5.tables", b"again").unwrap();
        assert!(at("0.tables").exists(), "it took no further place");
        folder.write("new.tables", b"new").unwrap();
        assert!(!at("0.tables").exists() && at("1.tables").exists() && at("mine.txt").exists());
        assert!(!at("x.tables.2147483647.0.writing").exists());
        assert!(at(&format!("x.tables.{}.9.writing", std::process::id())).exists());
    }
}
