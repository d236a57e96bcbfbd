//! Why a record ring cannot be used, in words that name what is wrong, what is there and what is allowed.

use crate::ring::{HEADER_WORDS, MAGIC, VERSION};
use deepum_core::units::{Bytes, DevAddr};
use std::fmt;

/// Why a ring cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingError {
    /// The memory is not a header and a power of two of words, at least 8.
    Size {
        /// Words handed in.
        words: usize,
    },
    /// No ring of ours.
    Magic {
        /// First word found.
        have: u64,
    },
    /// A ring of another version.
    Version {
        /// Version found.
        have: u64,
    },
    /// The header's capacity is not that of the memory.
    Capacity {
        /// Words by the header.
        have: u64,
        /// Words by the memory.
        want: usize,
    },
    /// Somebody reads it already.
    Taken,
    /// Head, tail and taken are not as any reader leaves them.
    Places {
        /// Words reserved.
        head: u64,
        /// Words given back.
        tail: u64,
        /// Words the last reader was about to give back.
        taken: u64,
    },
    /// A record that nobody of ours wrote.
    Corrupt {
        /// Its first word.
        word: u64,
    },
    /// A record claims more memory than a program can have.
    Range {
        /// Where it claims memory.
        start: DevAddr,
        /// How much.
        len: Bytes,
        /// What lives beside it.
        live: Bytes,
        /// What may.
        most: Bytes,
    },
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Size { words } => {
                write!(f, "record ring: {words} words given; {HEADER_WORDS} and a power of two, at least 8, are needed")
            }
            Self::Magic { have } => write!(f, "record ring: starts with {have:#x}, a ring starts with {MAGIC:#x}"),
            Self::Version { have } => write!(f, "record ring: version {have}; this program reads version {VERSION}"),
            Self::Capacity { have, want } => {
                write!(f, "record ring: header says {have} words of records, the memory holds {want}")
            }
            Self::Taken => write!(f, "record ring: has a reader already; there can be one"),
            Self::Places { head, tail, taken } => {
                write!(
                    f,
                    "record ring: head {head}, tail {tail} and taken {taken}; a reader leaves tail <= taken <= head <= 2^62"
                )
            }
            Self::Range { start, len, live, most } => write!(
                f,
                "record ring: {} bytes at {:#x} claimed, with {} bytes that live; one program has at most {} of 57 bits of address",
                len.0, start.0, live.0, most.0
            ),
            Self::Corrupt { word } => write!(f, "record ring: {word:#x} starts no record of version {VERSION}"),
        }
    }
}

impl std::error::Error for RingError {}
