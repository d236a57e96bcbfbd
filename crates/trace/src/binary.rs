//! Traces as bytes: small, streamed, and never believed.
//!
//! Problem: a run has millions of launches, and may be killed at any moment; what is read may have been cut off, changed, or made up.
//! Idea: records are packed into *chunks*, each with its lengths and checksums before it. A chunk is whole or it is nothing, and everything before it
//! stays good. Inside, a record costs few bytes: what was told before (a launch key, a range, an address) is told by its number in a list
//! that writer and reader keep alike, what is new by its difference to what was new last. A chunk is compressed where that makes it
//! shorter. `docs/trace.md` describes the bytes.
//!
//! Invariants:
//! - what [`Order`](crate::event::Order) takes can be written, and reads back as it was;
//! - no length is believed before there are bytes for it, and memory is bounded: a chunk by [`MOST_CHUNK`], each list by [`MOST_KNOWN`];
//! - a trace has an end mark, so that one cut off between two chunks is known to be.

mod bytes;
mod chunk;
mod decode;
mod encode;
mod reader;
mod writer;

pub use bytes::Wrong;
pub use reader::{ReadError, Reader};
pub use writer::{WriteError, Writer};

/// What a trace begins with.
pub const MAGIC: [u8; 8] = *b"DEEPUMTR";
/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;
/// Most bytes of a chunk, unpacked: a full one, and the longest record behind it.
pub const MOST_CHUNK: usize = 16 << 20;
/// Most things in a list of what was told before; with the next one the list begins anew.
pub const MOST_KNOWN: usize = 1 << 18;
