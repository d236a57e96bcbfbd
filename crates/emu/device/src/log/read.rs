//! Reading a flight log, also one that is being written or whose writer was killed.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::layout::{
    CONFIG_AT, CONFIG_LEN, ENTRIES_WORD, ENTRY, Entry, HEADER, MAGIC, PID_WORD, TOTALS_AT, Totals, VERSION,
};

/// Why a file is not a flight log that we can read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file cannot be read.
    #[error("cannot read the flight log")]
    Io(#[from] io::Error),
    /// Too short, or other first bytes.
    #[error("not a flight log")]
    NotALog,
    /// A layout this program does not know.
    #[error("flight log of version {have}; this program reads version {VERSION}")]
    Version {
        /// What the file says.
        have: u64,
    },
}

/// A flight log as it was when it was opened.
#[derive(Clone, Debug)]
pub struct FlightLog {
    /// Sums over the whole run.
    pub totals: Totals,
    /// One per launch, in the order of issue.
    pub entries: Vec<Entry>,
    /// The configuration line of the device.
    pub config: String,
    /// The process that wrote it.
    pub pid: u64,
}

impl FlightLog {
    /// Reads the log `path`.
    ///
    /// # Errors
    /// See [`LogError`].
    pub fn open(path: &Path) -> Result<Self, LogError> {
        Self::parse(&std::fs::read(path)?)
    }

    /// Reads the totals alone, which is cheap however many launches there are.
    ///
    /// # Errors
    /// See [`LogError`].
    pub fn totals(path: &Path) -> Result<Totals, LogError> {
        let mut header = Vec::with_capacity(HEADER);
        File::open(path)?.take(HEADER as u64).read_to_end(&mut header)?;
        Ok(Self::parse(&header)?.totals)
    }

    fn parse(bytes: &[u8]) -> Result<Self, LogError> {
        let words = bytes.as_chunks::<8>().0;
        let word = |n: usize| u64::from_le_bytes(words[n]);
        if bytes.len() < HEADER || word(0) != MAGIC {
            return Err(LogError::NotALog);
        }
        if word(1) != VERSION {
            return Err(LogError::Version { have: word(1) });
        }
        let totals = Totals::from_words(&std::array::from_fn(|n| word(TOTALS_AT + n)));
        let text = &bytes[CONFIG_AT..][..CONFIG_LEN];
        let config = String::from_utf8_lossy(text).trim_end_matches('\0').to_owned();
        let room = (bytes.len() - HEADER) as u64 / ENTRY;
        let count = word(ENTRIES_WORD).min(room);
        let first = HEADER / 8;
        let entries = words[first..].as_chunks::<8>().0.iter().take(usize::try_from(count).unwrap_or(usize::MAX));
        let entries = entries.map(|e| Entry::from_words(e.map(u64::from_le_bytes))).collect();
        Ok(Self { totals, entries, config, pid: word(PID_WORD) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::LogWriter;
    use super::*;

    #[test]
    fn a_log_is_current_without_being_closed_and_a_second_writer_goes_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = LogWriter::create(&path, "v100-32g:seed=3").unwrap();
        let mut entry = Entry { identity: 9, issued: 10, ..Entry::default() };
        for n in 0..70_000 {
            assert_eq!(log.push(&entry), Some(n), "more entries than one step of the file holds");
        }
        entry.end = 30;
        log.set(69_999, &entry);
        log.totals(&Totals { launches: 70_000, entries_dropped: 4, ..Totals::default() });

        let read = FlightLog::open(&path).unwrap();
        assert_eq!((read.entries.len(), read.entries[69_999]), (70_000, entry));
        assert_eq!((read.totals.launches, read.totals.entries_dropped), (70_000, 4));
        assert_eq!(FlightLog::totals(&path).unwrap(), read.totals);
        assert_eq!((read.config.as_str(), read.pid), ("v100-32g:seed=3", u64::from(std::process::id())));

        let second = LogWriter::create(&path, "").unwrap();
        assert_eq!(second.path(), folder.path().join(format!("log.{}", std::process::id())));
        assert_eq!(FlightLog::open(&path).unwrap().entries.len(), 70_000, "the first is untouched");
    }

    #[test]
    fn other_files_and_versions_are_refused() {
        assert!(matches!(FlightLog::parse(&[0; 4096]), Err(LogError::NotALog)));
        assert!(matches!(FlightLog::parse(b"DEEPUMFL"), Err(LogError::NotALog)));
        let mut page = [0; 4096];
        page[..8].copy_from_slice(b"DEEPUMFL");
        page[8] = 1;
        assert!(matches!(FlightLog::parse(&page), Err(LogError::Version { have: 1 })));
        page[8] = 2;
        page[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(FlightLog::parse(&page).unwrap().entries.is_empty(), "the count is bounded by the file");
    }
}
