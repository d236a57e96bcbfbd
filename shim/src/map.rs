//! Which allocation an address falls into, answered without a lock.
//!
//! Problem: every 8-byte word of every launch's arguments may be a pointer, on any thread, a million times a second, while other
//! threads allocate.
//!
//! Idea: managed allocations are whole UM blocks, so a table of 2 MiB blocks is exact. Two levels of 8192 entries cover
//! the 47 bits of user address space; a number that is no managed address nearly always ends at the first level.
//!
//!     address = root (13 bits) | leaf (13 bits) | inside the block (21 bits)
//!     entry   = 0, or (ordinal + 1) << 32 | 1 << 31 if the allocation is this block alone | number of the block within it
//!
//! Invariants: readers load at most two words and never wait; writers hold the allocation lock ([`crate::registry`]); a leaf,
//! once there, stays for good.

use deepum_core::units::{AddrRange, DevAddr, UmBlock};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

const FANOUT: usize = 1 << 13;
type Leaf = [AtomicU64; FANOUT];

/// The map; all of it is one static, which the system backs with memory only where it is used.
pub struct BlockMap {
    root: [AtomicPtr<Leaf>; FANOUT],
}

/// What an address is: a place inside a managed allocation, named so that it is the same in every run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Number of the allocation: the lowest free one when it was made.
    pub ordinal: u32,
    /// Number of the UM block within it.
    pub block: u32,
    /// Whether the allocation is this block alone.
    pub alone: bool,
}

/// The bit of an entry that says that an allocation is one block.
const ALONE: u32 = 1 << 31;

impl BlockMap {
    /// An empty map.
    pub const fn new() -> Self {
        Self { root: [const { AtomicPtr::new(std::ptr::null_mut()) }; FANOUT] }
    }

    /// Where `addr` falls.
    #[inline]
    pub fn find(&self, addr: DevAddr) -> Option<Placed> {
        let (root, leaf) = indexes(UmBlock::containing(addr))?;
        let table = self.root[root].load(Ordering::Acquire);
        if table.is_null() {
            return None;
        }
        // SAFETY: a leaf not null was leaked by `leaf` below, so it is valid for good.
        let entry = unsafe { &(&*table)[leaf] }.load(Ordering::Relaxed);
        let ordinal = u32::try_from((entry >> 32).checked_sub(1)?).ok()?;
        let low = u32::try_from(entry & 0xffff_ffff).ok()?;
        Some(Placed { ordinal, block: low & !ALONE, alone: low & ALONE != 0 })
    }

    /// Names the blocks of a new allocation; blocks that have an owner keep it.
    pub fn insert(&self, range: AddrRange, ordinal: u32) {
        let alone = if range.blocks().len() == 1 { ALONE } else { 0 };
        for (n, block) in (0u64..).zip(range.blocks()) {
            if let Some(entry) = self.entry(block) {
                let new = (u64::from(ordinal) + 1) << 32 | u64::from(alone) | n;
                // A taken entry stays as it is: that is what an owner means.
                let _ = entry.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// Forgets the blocks of an allocation that ends.
    pub fn remove(&self, range: AddrRange, ordinal: u32) {
        for block in range.blocks() {
            if let Some(entry) = self.entry(block)
                && entry.load(Ordering::Relaxed) >> 32 == u64::from(ordinal) + 1
            {
                entry.store(0, Ordering::Relaxed);
            }
        }
    }

    fn entry(&self, block: UmBlock) -> Option<&AtomicU64> {
        let (root, leaf) = indexes(block)?;
        let slot = &self.root[root];
        let mut table = slot.load(Ordering::Acquire);
        if table.is_null() {
            let new: Box<Leaf> = Box::new([const { AtomicU64::new(0) }; FANOUT]);
            table = Box::into_raw(new);
            // Writers hold the allocation lock, so nobody else put one here.
            slot.store(table, Ordering::Release);
        }
        // SAFETY: never null here, and never freed.
        Some(unsafe { &(&*table)[leaf] })
    }
}

/// Places of a block in root and leaf; nothing past 47 bits of address.
#[expect(clippy::cast_possible_truncation, reason = "both are below the fan-out")]
const fn indexes(block: UmBlock) -> Option<(usize, usize)> {
    let root = (block.0 / FANOUT as u64) as usize;
    if root < FANOUT { Some((root, block.0 as usize % FANOUT)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepum_core::units::Bytes;

    fn range(block: u64, blocks: u64) -> AddrRange {
        AddrRange::new(UmBlock(block).start(), Bytes(blocks * UmBlock::SIZE.0))
    }

    #[test]
    fn an_address_is_its_allocation_and_block() {
        let map = Box::new(BlockMap::new());
        map.insert(range(100, 3), 7);
        let at = |block: u64, inside: u64| map.find(DevAddr(UmBlock(block).start().0 + inside));
        assert_eq!(at(100, 0), Some(Placed { ordinal: 7, block: 0, alone: false }));
        assert_eq!(at(102, 5), Some(Placed { ordinal: 7, block: 2, alone: false }));
        assert_eq!(at(103, 0), None);
        map.insert(range(200, 1), 8);
        assert_eq!(at(200, 77), Some(Placed { ordinal: 8, block: 0, alone: true }));
        assert_eq!(at(99, UmBlock::SIZE.0 - 1), None);
    }

    #[test]
    fn every_number_is_answered() {
        let map = Box::new(BlockMap::new());
        for addr in [0, 1, 1 << 46, (1 << 47) - 1, 1 << 47, u64::MAX, 0xdead_beef] {
            assert_eq!(map.find(DevAddr(addr)), None);
        }
        map.insert(range((1 << 26) - 1, 1), 0);
        assert_eq!(map.find(DevAddr((1 << 47) - 1)).map(|p| p.ordinal), Some(0));
    }

    #[test]
    fn the_end_of_one_allocation_leaves_its_neighbours() {
        let map = Box::new(BlockMap::new());
        map.insert(range(8190, 4), 1);
        map.insert(range(8193, 2), 2);
        assert_eq!(map.find(UmBlock(8193).start()).map(|p| p.ordinal), Some(1));
        map.remove(range(8193, 2), 2);
        assert_eq!(map.find(UmBlock(8193).start()).map(|p| p.ordinal), Some(1));
        assert_eq!(map.find(UmBlock(8194).start()), None);
        map.remove(range(8190, 4), 1);
        assert_eq!(map.find(UmBlock(8190).start()), None);
    }
}
