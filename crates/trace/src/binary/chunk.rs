//! Chunks: bytes with their lengths and checksums before them.
//!
//! The head is four words of 32 bits, little-endian: bytes that follow, bytes when unpacked, checksum (CRC-32) of what follows, checksum of the
//! twelve bytes before. A chunk as long as it is unpacked is not packed; a shorter one is an LZ4 block. One of no bytes is the end of the trace.

use super::MOST_CHUNK;
use std::io::{self, Read, Write};

const HEAD: usize = 16;

/// Why there is no chunk.
#[derive(Debug)]
pub(super) enum Broken {
    /// Reading failed.
    Io(io::Error),
    /// The bytes end in it, or where it should begin.
    Cut,
    /// It is not what was written.
    Changed(&'static str),
}

/// Writes a chunk.
pub(super) fn write(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let packed = lz4_flex::block::compress(bytes);
    let stored = if packed.len() < bytes.len() { &packed } else { bytes };
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| io::Error::other("a chunk of 4 GiB"));
    let mut head = Vec::with_capacity(HEAD);
    for word in [length(stored)?, length(bytes)?, crc32fast::hash(stored)] {
        head.extend(word.to_le_bytes());
    }
    head.extend(crc32fast::hash(&head).to_le_bytes());
    to.write_all(&head)?;
    to.write_all(stored)
}

/// Reads a chunk, and says how many bytes it took of what it was read from.
pub(super) fn read(from: &mut impl Read) -> Result<(Vec<u8>, u64), Broken> {
    let head = bytes(from, HEAD)?;
    let word = |n: usize| head[n..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
    let [stored, whole, sum, head_sum] = [word(0), word(4), word(8), word(12)];
    if crc32fast::hash(&head[..12]) != head_sum {
        return Err(Broken::Changed("its head's checksum is wrong"));
    }
    let [stored, whole] = [stored as usize, whole as usize];
    if stored > whole || whole > MOST_CHUNK || (stored == 0 && whole > 0) {
        return Err(Broken::Changed("its lengths cannot be"));
    }
    let stored = bytes(from, stored)?;
    if crc32fast::hash(&stored) != sum {
        return Err(Broken::Changed("its checksum is wrong"));
    }
    let took = (HEAD + stored.len()) as u64;
    if stored.len() == whole {
        return Ok((stored, took));
    }
    let mut out = vec![0; whole];
    match lz4_flex::block::decompress_into(&stored, &mut out) {
        Ok(len) if len == whole => Ok((out, took)),
        _ => Err(Broken::Changed("it does not unpack to its length")),
    }
}

/// Just so many bytes; memory is taken as they come.
fn bytes(from: &mut impl Read, count: usize) -> Result<Vec<u8>, Broken> {
    let mut bytes = Vec::new();
    from.take(count as u64).read_to_end(&mut bytes).map_err(Broken::Io)?;
    if bytes.len() < count { Err(Broken::Cut) } else { Ok(bytes) }
}
