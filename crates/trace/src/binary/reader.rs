//! Reads a trace, one record at a time.

use super::bytes::{Cursor, Wrong};
use super::chunk::{self, Broken};
use super::decode::{self, Decoder};
use super::{MAGIC, VERSION};
use crate::event::{EventError, Header, Order, Record};
use std::io::{self, Read};

/// Why there is no further record. Byte numbers are those of the file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Reading failed.
    #[error("the trace cannot be read: {0}")]
    Io(io::Error),
    /// Not ours at all.
    #[error("no trace: the first bytes are not {}", MAGIC.escape_ascii())]
    Magic,
    /// From another version of DeepUM.
    #[error("a trace of version {0}; version {VERSION} is known")]
    Version(u32),
    /// The trace ends before its end mark. What was read so far is whole.
    #[error("the trace is cut off in the chunk at byte {at}; what is before it is good")]
    Cut {
        /// Where the first chunk begins that is not whole.
        at: u64,
    },
    /// A chunk is not as it was written.
    #[error("the chunk at byte {at} was changed: {why}")]
    Changed {
        /// Where it begins.
        at: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// A chunk is as it was written, but cannot be read.
    #[error("the chunk at byte {at}, unpacked, has at its byte {byte}: {wrong}")]
    Wrong {
        /// Where it begins.
        at: u64,
        /// Where in it the record begins.
        byte: usize,
        /// What is wrong.
        wrong: Wrong,
    },
    /// A record that must not be in a trace, or not here.
    #[error("the chunk at byte {at}, unpacked, has at its byte {byte}: {why}")]
    Event {
        /// Where it begins.
        at: u64,
        /// Where in it the record begins.
        byte: usize,
        /// What is wrong.
        why: EventError,
    },
    /// Something follows the end mark.
    #[error("the trace ends at byte {at}, and something is behind it")]
    Behind {
        /// Where it ends.
        at: u64,
    },
}

/// Reads a trace: an iterator over its records, which ends behind the last one or behind the first error.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    header: Header,
    decoder: Decoder,
    order: Order,
    /// Where the chunk begins that is being read, and where the next one does.
    at: u64,
    next: u64,
    chunk: Vec<u8>,
    byte: usize,
    over: bool,
}

impl<R: Read> Reader<R> {
    /// Begins to read. Small reads are made; a file wants a buffer.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn new(mut from: R) -> Result<Self, ReadError> {
        let mut start = Vec::new();
        (&mut from).take(12).read_to_end(&mut start).map_err(ReadError::Io)?;
        let version = start.strip_prefix(&MAGIC).ok_or(ReadError::Magic)?;
        let version = version.first_chunk().ok_or(ReadError::Cut { at: 0 })?;
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(ReadError::Version(version));
        }
        let header = Header { program: "".into(), device: "".into(), budget: Default::default() };
        let (decoder, order) = (Decoder::default(), Order::default());
        let mut reader =
            Self { from, header, decoder, order, at: 0, next: 12, chunk: Vec::new(), byte: 0, over: false };
        reader.next_chunk()?;
        let at = reader.at;
        reader.header = decode::header(&reader.chunk).map_err(|wrong| ReadError::Wrong { at, byte: 0, wrong })?;
        Order::header(&reader.header).map_err(|why| ReadError::Event { at, byte: 0, why })?;
        reader.byte = reader.chunk.len();
        Ok(reader)
    }

    /// What the trace is of.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    fn next_chunk(&mut self) -> Result<(), ReadError> {
        self.at = self.next;
        let at = self.at;
        let (chunk, took) = chunk::read(&mut self.from).map_err(|broken| match broken {
            Broken::Io(error) => ReadError::Io(error),
            Broken::Cut => ReadError::Cut { at },
            Broken::Changed(why) => ReadError::Changed { at, why },
        })?;
        (self.chunk, self.byte) = (chunk, 0);
        self.next += took;
        Ok(())
    }

    /// The next record; nothing at the end of the trace.
    fn record(&mut self) -> Result<Option<Record>, ReadError> {
        if self.byte == self.chunk.len() {
            self.next_chunk()?;
            if self.chunk.is_empty() {
                let behind = (&mut self.from).take(1).read_to_end(&mut self.chunk).map_err(ReadError::Io)?;
                return if behind == 0 { Ok(None) } else { Err(ReadError::Behind { at: self.next }) };
            }
        }
        let (at, byte) = (self.at, self.byte);
        let mut bytes = Cursor::new(&self.chunk, byte);
        let record = self.decoder.record(&mut bytes).map_err(|wrong| ReadError::Wrong { at, byte, wrong })?;
        self.order.take(&record.event).map_err(|why| ReadError::Event { at, byte, why })?;
        self.byte = bytes.at();
        Ok(Some(record))
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let record = self.record().transpose();
        self.over = !matches!(record, Some(Ok(_)));
        record
    }
}

impl<R: Read> std::iter::FusedIterator for Reader<R> {}
