//! What crosses between the parts of DeepUM: the record ring (shim → engine), the page (words that shim, GPU and engine
//! share) and the status schema (engine → whoever asks). All are versioned, documented word by word (`docs/ring.md`,
//! `docs/page.md`, `docs/status.md`), and refuse a version they do not know.
#![forbid(unsafe_code)]

pub mod control;
pub mod gate;
pub mod grace;
pub mod handout;
pub mod inflight;
pub mod page;
#[cfg(loom)]
pub mod plant;
#[cfg(not(loom))]
mod plant;
pub mod programs;
pub mod ring;
mod ring_error;
pub mod shared;
pub mod status;
mod sync;

pub use sync::AtomicU64;
