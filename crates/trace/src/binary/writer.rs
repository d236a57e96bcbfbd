//! Writes a trace, chunk by chunk.

use super::encode::{self, Encoder};
use super::{MAGIC, VERSION, chunk};
use crate::event::{EventError, Header, Order, Record};
use std::io::{self, Write};

/// A chunk is full with so many bytes. A choice: what LZ4 looks back over, and what a kill may cost, some thousand launches.
const FULL: usize = 64 << 10;

/// Why a record was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Writing failed; what was written so far may end in a part of a chunk.
    #[error("the trace cannot be written: {0}")]
    Io(#[from] io::Error),
    /// It must not be in a trace, which is as it was.
    #[error("not for a trace: {0}")]
    Event(#[from] EventError),
}

/// Writes a trace. Records are kept until a chunk is full or [`Writer::flush`]; only [`Writer::finish`] makes the trace whole.
#[derive(Debug)]
pub struct Writer<W: Write> {
    to: W,
    chunk: Vec<u8>,
    encoder: Encoder,
    order: Order,
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn new(mut to: W, header: &Header) -> Result<Self, WriteError> {
        Order::header(header)?;
        let mut bytes = Vec::new();
        encode::header(header, &mut bytes);
        to.write_all(&MAGIC)?;
        to.write_all(&VERSION.to_le_bytes())?;
        chunk::write(&mut to, &bytes)?;
        Ok(Self { to, chunk: Vec::new(), encoder: Encoder::default(), order: Order::default() })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn write(&mut self, record: &Record) -> Result<(), WriteError> {
        self.order.take(&record.event)?;
        self.encoder.record(record, &mut self.chunk);
        if self.chunk.len() >= FULL {
            self.end_chunk()?;
        }
        Ok(())
    }

    /// The newest place that a launch or copy took; 0 if none did.
    pub const fn places(&self) -> u64 {
        self.order.places()
    }

    /// Ends the chunk, so that what was appended survives whatever happens to the program.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.end_chunk()?;
        Ok(self.to.flush()?)
    }

    /// Ends the trace, and gives back what it was written to.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.end_chunk()?;
        chunk::write(&mut self.to, &[])?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn end_chunk(&mut self) -> io::Result<()> {
        if !self.chunk.is_empty() {
            chunk::write(&mut self.to, &self.chunk)?;
            self.chunk.clear();
        }
        Ok(())
    }
}
