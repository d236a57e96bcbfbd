//! A GPU's unified memory in virtual time.
//!
//! Problem: whether prefetching helps is decided by what the *driver* does with memory (which block it
//! evicts, what one fault costs, what overlaps with what), and there is no GPU here. This crate is that
//! behaviour as a library: it says where every page of managed memory is, moves pages as the NVIDIA
//! driver would, and says when each thing happens on a clock that only its caller advances.
//!
//! ```text
//! KernelRun ──touches──► fault batch ──► UnifiedMemory ──► copy engines (one timeline per direction)
//! migrate, discard ────────────────────►     │
//!                                            └──► notices (what the driver tells tools), page operations
//!                                                 (what a device with real bytes must do), totals
//! ```
//!
//! Words: a *managed range* is made of UM blocks (2 MiB, 512 pages of 4 KiB). A *root chunk* is 2 MiB of
//! device memory; a block holds at most one per device. A page is *populated* once it has contents, and then
//! is in exactly one place, unless its block is *duplicated* (`advice`): then it may be in several, none of which may be written. Pages whose copy has been ordered but has not ended are *in flight*: they belong
//! to the destination, and may be touched only once they have arrived.
//!
//! Time: no call blocks and nothing reads a clock. Every operation is given the virtual time at which it
//! starts and answers with the time at which it is done; bookkeeping (who owns which page) changes at once,
//! arrival times say from when it may be used. Calls must be made in order of time, as far as the caller can.
//!
//! Invariants: same calls, same answers; a populated page of a block that is not duplicated is in one place; root chunks and device memory
//! proper never exceed the usable memory; nothing here panics on any input.
//!
//! Not modelled: the program's processor touching managed memory, thrashing detection (pinning, throttling), access counters, memory advice beyond
//! what `advice` names, MIG, ATS and HMM. Partial blocks: a managed range is whole UM blocks (the driver would use
//! smaller chunks for the rest of the last one).
//!
//! Sources are named where a rule is implemented: "facts 4.2" is that section of `docs/facts.md`;
//! "assumption" marks what no source was found for.

#![forbid(unsafe_code)]

mod advice;
mod afar;
mod cache;
mod chunks;
mod commands;
mod engines;
mod error;
mod groups;
mod kernel;
mod memory;
mod notice;
#[cfg(test)]
mod oracle;
mod pages;
mod prefetch;
mod profile;
mod residency;
mod service;
mod space;
mod ssd;
mod totals;

pub use advice::Advice;
pub use commands::Migrated;
pub use error::ModelError;
pub use groups::Group;
pub use kernel::{Accessor, KernelRun, Step, Touch};
pub use memory::{Options, UnifiedMemory};
pub use notice::{FaultAccess, Notice, PageOp};
pub use pages::PageMask;
pub use profile::{FlopRates, Precision, Profile, ProfileError};
pub use ssd::Ssd;
pub use totals::{ByCause, Totals};
