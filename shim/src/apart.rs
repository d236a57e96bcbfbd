//! Which managed allocations can become other memory at their addresses, as exports need it ([`crate::ipc`]).
//!
//! Problem: a driver gives managed memory its addresses out of chunks, and gives those of freed memory to nothing else before all of the chunk is free. An
//! allocation of 20 MiB has a chunk of its own, small ones share one (facts 4.6).
//! Idea: for a small allocation the driver is asked for 20 MiB, of which the program knows its own part alone. What lies behind is never touched, so it costs addresses,
//! and a mapping of the process, of which the system grants 65,530 (`vm.max_map_count`). So only so many small ones that live are made so ([`MOST`]).
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
/// So much has chunks of its own.
const ENOUGH: Bytes = Bytes::mib(20);
/// Small allocations that are made so, at a time.
pub const MOST: usize = 1024;

/// Whether an allocation of `len` bytes would share a chunk.
pub fn is_small(len: Bytes) -> bool {
    len < ENOUGH
}

/// What the driver is asked for where an allocation of `len` bytes is to share no chunk.
pub fn asked_for(len: Bytes) -> Bytes {
    len.max(ENOUGH)
}

/// All addresses of the chunks of such an allocation.
pub fn chunks(range: AddrRange) -> AddrRange {
    AddrRange::new(range.start, Bytes(range.len.0.next_multiple_of(CHUNK.0)))
}

/// Managed memory of `len` bytes for the program, which shares no chunk if it is to be `apart`.
pub fn managed<D: Door>(len: Bytes, apart: bool, out: &mut DevPtr) -> Option<Status> {
    let asked = if apart { asked_for(len) } else { len };
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

#[cfg(test)]
mod tests {
    use super::*;
    use deepum_core::units::DevAddr;

    #[test]
    fn the_chunks_of_an_allocation_are_those_of_what_the_driver_was_asked_for() {
        for (mib, in_chunks) in [(2, 32), (18, 32), (20, 32), (32, 32), (34, 64), (64, 64), (98, 128)] {
            let of = |len| chunks(AddrRange::new(DevAddr(1 << 40), len)).len;
            assert_eq!(
                (of(Bytes::mib(mib)), of(asked_for(Bytes::mib(mib)))),
                (Bytes::mib(in_chunks), Bytes::mib(in_chunks))
            );
        }
    }
}
