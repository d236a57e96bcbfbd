//! What crosses between the parts of DeepUM: the record ring (shim → engine) and the status schema
//! (engine → whoever asks). Both are versioned, documented word by word (`docs/ring.md`,
//! `docs/status.md`), and refuse a version they do not know.
#![forbid(unsafe_code)]

pub mod control;
pub mod gate;
pub mod ring;
pub mod shared;
pub mod status;
mod sync;

pub use sync::AtomicU64;
