//! Whose memory a record is about, and how much memory records may claim.
//!
//! Problem: a record may come from a thread whose current device is not the one its memory belongs to. And the ring of a program in
//! another process is written by somebody who may lie: the core keeps a record for every UM block of an allocation and
//! goes through all blocks of a range, so a range of half the address space would cost gigabytes and minutes.
//!
//! Idea: what lives is what `Alloc` announced. All of it together is at most [`MOST`], counted in whole UM blocks, allocation by
//! allocation; a record that claims more, or runs past the end of the address space, is nobody's honest one, and the ring is
//! corrupt. Every other range is cut to the allocation it begins in; one that begins in none is of memory whose `Alloc` was
//! dropped, about which the core can do nothing.
//!
//! Invariant: the core was told of no block that is not counted here. So it holds at most `MOST` / 2 MiB of them.
//!
//! Not here: PT blocks and launches, whose number the ring's size and the core's own limits bound.

use deepum_core::units::{AddrRange, Bytes, DevAddr, UmBlock};
use deepum_protocol::ring::RingError;
use std::collections::BTreeMap;

/// Most managed memory of one program: 16 TiB, 2^23 blocks. Twice what the largest hosts with GPUs have, and in
/// the core about a hundred bytes for each block, so an eighth of what a worker of the daemon may have.
pub const MOST: Bytes = Bytes::gib(16 << 10);
/// Where a process's addresses end, at most.
const END: u64 = 1 << 57;

/// See the module.
#[derive(Debug, Default)]
pub struct Managed {
    /// By start.
    live: BTreeMap<DevAddr, Allocation>,
    blocks: u64,
}

#[derive(Clone, Copy, Debug)]
struct Allocation {
    end: DevAddr,
    /// Index of its GPU.
    at: usize,
}

impl Managed {
    /// `range` lives from now on, on the GPU with this index. Gives what was known to begin there, which must have been freed
    /// without a record.
    ///
    /// # Errors
    /// [`RingError::Range`] if no program can have that much memory.
    pub fn alloc(&mut self, range: AddrRange, at: usize) -> Result<Option<(AddrRange, usize)>, RingError> {
        let before = self.free(range.start);
        let within = range.start.0.checked_add(range.len.0).is_some_and(|end| end <= END);
        // Only where the end is no lie can blocks be counted.
        let blocks = if within { self.blocks + blocks(range) } else { u64::MAX };
        if blocks > MOST.0 / UmBlock::SIZE.0 {
            let live = Bytes(self.blocks * UmBlock::SIZE.0);
            return Err(RingError::Range { start: range.start, len: range.len, live, most: MOST });
        }
        self.blocks = blocks;
        self.live.insert(range.start, Allocation { end: range.end(), at });
        Ok(before)
    }

    /// What began at `start` lives no more. Gives all of it, and the index of its GPU.
    pub fn free(&mut self, start: DevAddr) -> Option<(AddrRange, usize)> {
        let Allocation { end, at } = self.live.remove(&start)?;
        let range = AddrRange::new(start, Bytes(end.0 - start.0));
        self.blocks -= blocks(range);
        Some((range, at))
    }

    /// As much of `range` as lies in the allocation it begins in, and the index of that one's GPU.
    pub fn find(&self, range: AddrRange) -> Option<(AddrRange, usize)> {
        let (_, allocation) = self.live.range(..=range.start).next_back()?;
        let room = allocation.end.0.checked_sub(range.start.0).filter(|room| *room > 0)?;
        Some((AddrRange::new(range.start, range.len.min(Bytes(room))), allocation.at))
    }
}

/// How many blocks a range lies in; one that is empty still takes a place.
fn blocks(range: AddrRange) -> u64 {
    (range.blocks().len() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, len: u64) -> AddrRange {
        AddrRange::new(DevAddr(start), Bytes(len))
    }

    #[test]
    fn claims_beyond_what_a_program_can_have_are_refused_and_freed_memory_may_be_claimed_again() {
        let mut managed = Managed::default();
        let half = MOST.0 / 2;
        assert_eq!(managed.alloc(range(0, half), 0), Ok(None));
        assert_eq!(managed.alloc(range(half, half), 1), Ok(None));
        let more = managed.alloc(range(MOST.0, 1), 0).unwrap_err();
        assert_eq!(more, RingError::Range { start: DevAddr(MOST.0), len: Bytes(1), live: MOST, most: MOST });
        let text = "record ring: 1 bytes at 0x100000000000 claimed, with 17592186044416 bytes that live; one program has at most \
                    17592186044416 of 57 bits of address";
        assert_eq!(more.to_string(), text);
        assert_eq!(managed.free(DevAddr(half)), Some((range(half, half), 1)));
        assert_eq!(managed.free(DevAddr(half)), None);
        assert_eq!(managed.alloc(range(half, half), 0), Ok(None));
    }

    #[test]
    fn ranges_without_an_end_are_refused() {
        for (start, len) in [(1 << 46, 1 << 46), (u64::MAX, 2), (1 << 20, u64::MAX), (1 << 57, 1), (u64::MAX, u64::MAX)]
        {
            let mut managed = Managed::default();
            assert!(managed.alloc(range(start, len), 0).is_err(), "{len} bytes at {start:#x}");
            assert!(managed.find(range(start, 1)).is_none());
        }
    }

    #[test]
    fn many_small_claims_count_as_the_blocks_they_lie_in() {
        let mut managed = Managed::default();
        let block = UmBlock::SIZE.0;
        managed.alloc(range(0, MOST.0 - 3 * block), 0).unwrap();
        // On both sides of a border: two blocks. Empty: one.
        managed.alloc(range(MOST.0 - 1, 2), 0).unwrap();
        managed.alloc(range(MOST.0 + block, 0), 0).unwrap();
        assert!(managed.alloc(range(MOST.0 + 2 * block, 0), 0).is_err());
    }

    #[test]
    fn other_ranges_are_cut_to_the_allocation_they_begin_in() {
        let mut managed = Managed::default();
        managed.alloc(range(1000, 100), 2).unwrap();
        assert_eq!(managed.find(range(1000, 100)), Some((range(1000, 100), 2)));
        assert_eq!(managed.find(range(1090, u64::MAX)), Some((range(1090, 10), 2)));
        assert_eq!(managed.find(range(1100, 1)), None);
        assert_eq!(managed.find(range(999, 5)), None);
    }

    #[test]
    fn what_begins_where_something_lived_takes_its_place() {
        let mut managed = Managed::default();
        managed.alloc(range(0, MOST.0), 0).unwrap();
        assert_eq!(managed.alloc(range(0, 4096), 1), Ok(Some((range(0, MOST.0), 0))));
        assert_eq!(managed.alloc(range(UmBlock::SIZE.0, MOST.0 - UmBlock::SIZE.0), 0), Ok(None));
    }
}
