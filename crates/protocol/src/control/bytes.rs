//! Reading and writing the values of a packet, lowest byte first, without ever looking outside it.
//!
//! A text is its length in bytes (32 bits) and that many bytes of UTF-8 without control characters other than the line feed: texts
//! end up in front of people, and in logs.

use super::{ControlError, MAPPING_BYTES};
use deepum_core::units::Bytes;
use std::ops::RangeInclusive;

#[derive(Debug)]
pub(super) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(packet: &'a [u8]) -> Self {
        Self { left: packet }
    }

    fn take(&mut self, name: &'static str, len: usize) -> Result<&'a [u8], ControlError> {
        let short =
            || ControlError::field(name, format!("cut off after {} bytes", self.left.len()), format!("{len} bytes"));
        let (head, rest) = self.left.split_at_checked(len).ok_or_else(short)?;
        self.left = rest;
        Ok(head)
    }

    pub(super) fn array<const N: usize>(&mut self, name: &'static str) -> Result<[u8; N], ControlError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(name, N)?);
        Ok(array)
    }

    pub(super) fn u32(&mut self, name: &'static str) -> Result<u32, ControlError> {
        self.array(name).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, name: &'static str) -> Result<u64, ControlError> {
        self.array(name).map(u64::from_le_bytes)
    }

    pub(super) fn range(&mut self, name: &'static str, allowed: RangeInclusive<u32>) -> Result<u32, ControlError> {
        let value = self.u32(name)?;
        if allowed.contains(&value) {
            return Ok(value);
        }
        Err(ControlError::field(name, value, format!("{} to {}", allowed.start(), allowed.end())))
    }

    pub(super) fn text(&mut self, name: &'static str, most: usize) -> Result<String, ControlError> {
        let len = self.u32(name)?;
        let fits = usize::try_from(len).ok().filter(|len| *len <= most);
        let len =
            fits.ok_or_else(|| ControlError::field(name, format!("{len} bytes long"), format!("at most {most}")))?;
        let text = std::str::from_utf8(self.take(name, len)?)
            .map_err(|e| ControlError::field(name, format!("no UTF-8 at byte {}", e.valid_up_to()), "UTF-8"))?;
        if let Some(odd) = text.chars().find(|c| c.is_control() && *c != '\n') {
            return Err(ControlError::field(name, format!("a text with {odd:?}"), "no control characters"));
        }
        Ok(text.to_owned())
    }

    /// Nothing may be left.
    pub(super) fn end(&self) -> Result<(), ControlError> {
        match self.left.len() {
            0 => Ok(()),
            more => Err(ControlError::field("length", format!("{more} bytes too long"), "the packet's own")),
        }
    }
}

/// The size of something to be mapped.
pub(super) fn mapped(r: &mut Reader<'_>, name: &'static str) -> Result<Bytes, ControlError> {
    let bytes = r.u64(name)?;
    mapping(name, bytes).map(|()| Bytes(bytes))
}

pub(super) fn mapping(name: &'static str, bytes: u64) -> Result<(), ControlError> {
    if bytes == 0 || bytes > MAPPING_BYTES || !bytes.is_multiple_of(8) {
        return Err(ControlError::field(name, bytes, format!("whole 64-bit words, 8 to {MAPPING_BYTES} bytes")));
    }
    Ok(())
}

#[derive(Debug, Default)]
pub(super) struct Writer {
    body: Vec<u8>,
}

impl Writer {
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.body.extend_from_slice(bytes);
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// A number of things, of which there are few.
    pub(super) fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).unwrap_or(u32::MAX));
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Cuts at a character, and leaves control characters out: what is written can be read.
    pub(super) fn text(&mut self, text: &str, most: usize) {
        let clean: String = text.chars().filter(|c| !c.is_control() || *c == '\n').collect();
        let cut = clean.floor_char_boundary(most);
        // At most `most`, which is far below 2^32.
        self.u32(u32::try_from(cut).unwrap_or(0));
        self.bytes(&clean.as_bytes()[..cut]);
    }

    /// The whole packet: header and what was written.
    pub(super) fn packet(self, magic: u64, version: u32, kind: u32) -> Vec<u8> {
        let mut header = Self::default();
        header.u64(magic);
        header.u32(version);
        header.u32(kind);
        header.u64(24 + self.body.len() as u64);
        header.bytes(&self.body);
        header.body
    }
}
