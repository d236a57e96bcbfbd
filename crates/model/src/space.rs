//! Managed ranges, and the way from a UM block to its slot.
//!
//! Everything known about a block lives in vectors indexed by *slot*, a small dense number that is reused
//! after a range is freed.

use deepum_core::block_index::{BlockIndex, NONE};
use deepum_core::units::{AddrRange, Bytes, DevAddr, UmBlock};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct Space {
    /// First block to number of blocks.
    ranges: BTreeMap<u64, u64>,
    index: BlockIndex,
    free: Vec<u32>,
    slots: u32,
}

impl Space {
    /// Makes whole blocks managed; the answer is their slots in order, or nothing if `range` is empty, not
    /// whole blocks, past the address space, or overlaps a managed range.
    pub(crate) fn map(&mut self, range: AddrRange) -> Option<Vec<(UmBlock, u32)>> {
        let size = UmBlock::SIZE.0;
        let end = range.start.0.checked_add(range.len.0)?;
        if range.is_empty() || !range.start.0.is_multiple_of(size) || !end.is_multiple_of(size) {
            return None;
        }
        let (first, count) = (range.start.0 / size, range.len.0 / size);
        let before = self.ranges.range(..first + count).next_back();
        if before.is_some_and(|(&b, &n)| b + n > first) {
            return None;
        }
        // Slots are u32; a request for more (8 EiB) is refused like any other that cannot be.
        if count > u64::from(NONE - self.slots) {
            return None;
        }
        self.ranges.insert(first, count);
        let mut made = Vec::new();
        for block in first..first + count {
            let slot = self.free.pop().unwrap_or_else(|| {
                self.slots += 1;
                self.slots - 1
            });
            self.index.insert(UmBlock(block), slot);
            made.push((UmBlock(block), slot));
        }
        Some(made)
    }

    /// Ends a range exactly as it was mapped; the answer is its slots, which may be given out again.
    pub(crate) fn unmap(&mut self, range: AddrRange) -> Option<Vec<u32>> {
        let size = UmBlock::SIZE.0;
        let (first, count) = (range.start.0 / size, range.len.0 / size);
        if self.range_around(range.start) != Some(range) {
            return None;
        }
        self.ranges.remove(&first);
        let gone: Vec<u32> = (first..first + count).filter_map(|block| self.index.remove(UmBlock(block))).collect();
        // Highest slot first, so that the lowest is given out next.
        self.free.extend(gone.iter().rev());
        Some(gone)
    }

    pub(crate) fn range_around(&self, addr: DevAddr) -> Option<AddrRange> {
        let block = UmBlock::containing(addr).0;
        let (&first, &count) = self.ranges.range(..=block).next_back()?;
        (block < first + count).then(|| AddrRange::new(UmBlock(first).start(), Bytes(count * UmBlock::SIZE.0)))
    }

    /// Whether every byte is managed (ranges that touch count as one).
    pub(crate) fn covers(&self, range: AddrRange) -> bool {
        let Some(end) = range.start.0.checked_add(range.len.0) else { return false };
        let mut at = range.start;
        while at.0 < end {
            match self.range_around(at) {
                Some(around) => at = around.end(),
                None => return false,
            }
        }
        !range.is_empty()
    }

    pub(crate) fn slot(&self, block: UmBlock) -> Option<usize> {
        self.index.get(block).map(|slot| slot as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(first: u64, count: u64) -> AddrRange {
        AddrRange::new(UmBlock(first).start(), Bytes(count * UmBlock::SIZE.0))
    }

    #[test]
    fn ranges_do_not_overlap_and_slots_are_reused() {
        let mut space = Space::default();
        assert_eq!(space.map(blocks(510, 4)).unwrap().len(), 4);
        assert!(space.map(blocks(513, 1)).is_none() && space.map(blocks(500, 11)).is_none());
        assert!(space.map(blocks(514, 2)).is_some() && space.map(blocks(508, 2)).is_some());
        assert!(space.unmap(blocks(510, 3)).is_none(), "only as it was mapped");
        assert_eq!(space.unmap(blocks(510, 4)).unwrap(), [0, 1, 2, 3]);
        assert_eq!(space.slot(UmBlock(512)), None);
        assert_eq!(space.map(blocks(600, 1)).unwrap(), [(UmBlock(600), 0)]);
    }

    #[test]
    fn covering_means_every_byte() {
        let mut space = Space::default();
        space.map(blocks(1, 2));
        space.map(blocks(3, 1));
        assert!(space.covers(blocks(1, 3)) && space.covers(AddrRange::new(DevAddr(2 << 20), Bytes(1))));
        assert!(!space.covers(blocks(3, 2)) && !space.covers(blocks(0, 2)) && !space.covers(blocks(1, 0)));
        assert!(!space.covers(AddrRange::new(DevAddr(2 << 20), Bytes(u64::MAX))));
    }

    #[test]
    fn odd_ranges_are_refused() {
        let mut space = Space::default();
        assert!(space.map(blocks(0, 0)).is_none());
        assert!(space.map(AddrRange::new(DevAddr(4096), UmBlock::SIZE)).is_none());
        assert!(space.map(AddrRange::new(DevAddr(0), Bytes(4096))).is_none());
        assert!(space.map(AddrRange::new(UmBlock(1).start(), Bytes(u64::MAX - 5))).is_none());
    }
}
