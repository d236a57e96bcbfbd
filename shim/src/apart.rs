//! Which managed allocations can become other memory at their addresses, as exports need it ([`crate::ipc`]).
//!
//! Problem: a driver gives managed memory its addresses out of chunks, and gives those of freed memory to nothing else before all of the chunk is free. Small
//! allocations share one, and may lie in what a larger one left of its last (facts 4.6).
//! Idea: the driver is asked for whole chunks, of which the program knows its own part alone. What lies behind is never touched, so it costs addresses, and for a small
//! allocation a mapping of the process, of which the system grants 65,530 (`vm.max_map_count`). So only so many small ones that live are made so ([`MOST`]).
//!
//! What is kept of an allocation, promised of the host, and told to the engine is the program's part. What it asks of an allocation, it hears of that part, too
//! ([`crate::pointers`]); copies that go past it are refused ([`crate::copy`]), as the driver refuses those that go past the end.

use crate::abi::{DevPtr, Status};
use crate::alloc::Door;
use crate::link;
use crate::real::genuine;
use deepum_core::units::{AddrRange, Bytes};

/// What addresses of managed memory come in.
const CHUNK: Bytes = Bytes::mib(32);
/// Less than that is small.
const SMALL: Bytes = Bytes::mib(20);
/// Small allocations that are made so, at a time.
pub const MOST: usize = 1024;

/// Whether a program may make so many allocations of `len` bytes that each cannot have a mapping of its own.
pub fn is_small(len: Bytes) -> bool {
    len < SMALL
}

/// All of the chunks of an allocation that shares none.
pub fn chunks(range: AddrRange) -> AddrRange {
    AddrRange::new(range.start, Bytes(range.len.0.next_multiple_of(CHUNK.0)))
}

/// Managed memory of `len` bytes for the program, which shares no chunk if it is to be `apart`.
pub fn managed<D: Door>(len: Bytes, apart: bool, out: &mut DevPtr) -> Option<Status> {
    let whole = len.0.checked_next_multiple_of(CHUNK.0).filter(|_| apart);
    let asked = whole.map_or(len, Bytes);
    // Part of the emulated device's contract (ARCHITECTURE.md, section 7): its kernels cannot know by themselves what is never used.
    if asked > len
        && link::gpus().is_some_and(|gpus| gpus.host.is_some())
        && let Some(known) = genuine!(Cuda, "deepumEmuKnown", fn(u64) -> ())
    {
        // SAFETY: takes a number.
        unsafe { known(len.0) };
    }
    D::managed(usize::try_from(asked.0).unwrap_or(usize::MAX), out)
}
