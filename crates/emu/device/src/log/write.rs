//! Writing a flight log.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{
    CONFIG_AT, CONFIG_LEN, ENTRIES_WORD, ENTRY, Entry, HEADER, MAGIC, PID_WORD, TOTALS_AT, Totals, VERSION,
};

/// Address space taken for the mapping: 64 Mi entries.
const RESERVED: usize = 4 << 30;
/// The file grows by this much at a time.
const STEP: u64 = 4 << 20;

/// An open log of this process.
#[derive(Debug)]
pub struct LogWriter {
    file: File,
    path: PathBuf,
    words: NonNull<AtomicU64>,
    backed: u64,
    entries: u64,
}

// SAFETY: the mapping belongs to this value alone and is only accessed as atomics.
unsafe impl Send for LogWriter {}

impl LogWriter {
    /// Starts the log `path`, or `path.PID` if another process is writing that one.
    ///
    /// # Errors
    /// If the file cannot be made, locked, filled or mapped.
    pub fn create(path: &Path, config: &str) -> io::Result<Self> {
        let file = match Self::claim(path) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let mut name = path.as_os_str().to_owned();
                name.push(format!(".{}", std::process::id()));
                (Self::claim(Path::new(&name))?, PathBuf::from(name))
            }
            other => (other?, path.to_owned()),
        };
        let (file, path) = file;
        file.set_len(0)?;
        // SAFETY: a fresh shared mapping; pages past the end of the file are not touched before `grow` has backed them.
        let at = unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(ptr::null_mut(), RESERVED, prot, libc::MAP_SHARED | libc::MAP_NORESERVE, file.as_raw_fd(), 0)
        };
        let words = NonNull::new(at.cast::<AtomicU64>())
            .filter(|_| at != libc::MAP_FAILED)
            .ok_or_else(io::Error::last_os_error)?;
        let mut log = Self { file, path, words, backed: 0, entries: 0 };
        log.grow()?;
        let mut text = [0u8; CONFIG_LEN];
        let len = config.len().min(CONFIG_LEN);
        text[..len].copy_from_slice(&config.as_bytes()[..len]);
        for (n, chunk) in text.as_chunks::<8>().0.iter().enumerate() {
            log.store(CONFIG_AT / 8 + n, u64::from_le_bytes(*chunk));
        }
        log.store(PID_WORD, u64::from(std::process::id()));
        log.store(1, VERSION);
        log.word(0).store(MAGIC.to_le(), Ordering::Release);
        Ok(log)
    }

    fn claim(path: &Path) -> io::Result<File> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        // SAFETY: an open descriptor.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(file)
    }

    /// Where it is written.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes `STEP` more bytes safe to touch. Blocks are allocated, not promised: a full disk must be an error here
    /// and not a signal at a store.
    fn grow(&mut self) -> io::Result<()> {
        let end = self.backed + STEP;
        if end > RESERVED as u64 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // SAFETY: an open descriptor; offsets are within the range of off_t.
        let error = unsafe { libc::posix_fallocate(self.file.as_raw_fd(), self.backed as i64, STEP as i64) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        self.backed = end;
        Ok(())
    }

    fn word(&self, n: usize) -> &AtomicU64 {
        assert!((n as u64 + 1) * 8 <= self.backed, "stores are bounded by grow()");
        // SAFETY: the word lies in the mapping and in backed file (checked above), is 8-aligned, lives as long as
        // self, and every access in any process is atomic or a plain read of the file.
        unsafe { self.words.add(n).as_ref() }
    }

    fn store(&self, n: usize, value: u64) {
        self.word(n).store(value.to_le(), Ordering::Relaxed);
    }

    /// Writes the totals.
    pub fn totals(&self, totals: &Totals) {
        for (n, value) in totals.words().into_iter().enumerate() {
            self.store(TOTALS_AT + n, value);
        }
    }

    /// Appends an entry; answers its index, or `None` if there is no room for it.
    pub fn push(&mut self, entry: &Entry) -> Option<u64> {
        let index = self.entries;
        while HEADER as u64 + (index + 1) * ENTRY > self.backed {
            self.grow().ok()?;
        }
        self.entries += 1;
        self.set(index, entry);
        self.word(ENTRIES_WORD).store(self.entries.to_le(), Ordering::Release);
        Some(index)
    }

    /// Rewrites entry `index`.
    pub fn set(&self, index: u64, entry: &Entry) {
        assert!(index < self.entries, "only entries that exist are rewritten");
        let base = (HEADER + crate::word(index * ENTRY)) / 8;
        for (n, value) in entry.words().into_iter().enumerate() {
            self.store(base + n, value);
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        // SAFETY: mapped by `create` with this length; no reference into it outlives self.
        unsafe { libc::munmap(self.words.as_ptr().cast(), RESERVED) };
    }
}
