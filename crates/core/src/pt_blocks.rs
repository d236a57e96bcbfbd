//! Which bytes a pointer among a launch's arguments may reach.
//!
//! Problem: an argument is a bare address; how far the kernel reads from there is in scalars we do not decode.
//! Idea: it does not leave the tensor. PyTorch's caching allocator tells us of every *PT block* it hands
//! out; a pointer is bounded by the PT block it falls in, or, where there is none, by its allocation.
//!
//! Invariants: known PT blocks do not overlap, nor do allocations; the newest report wins.
//! Inactive PT blocks stay known: their contents are what invalidation may give up, and a pointer may still
//! fall into one (a tensor freed by the host while its last kernel waits). They are told apart by `active`.
//! Not here: where blocks are (`residency`).

use std::collections::BTreeMap;

use crate::units::{AddrRange, Bytes, DevAddr};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PtBlock {
    len: Bytes,
    active: bool,
}

/// See the module.
#[derive(Default, Debug)]
pub struct PtBlocks {
    blocks: BTreeMap<DevAddr, PtBlock>,
    allocations: BTreeMap<DevAddr, Bytes>,
}

impl PtBlocks {
    /// The program was given `range`.
    pub fn alloc(&mut self, range: AddrRange) {
        self.allocations.insert(range.start, range.len);
    }

    /// The program gave `range` back; PT blocks inside are gone.
    pub fn free(&mut self, range: AddrRange) {
        self.allocations.remove(&range.start);
        self.cut(range);
    }

    /// PyTorch handed `range` out (`active`) or took it back.
    pub fn report(&mut self, range: AddrRange, active: bool) {
        if range.is_empty() {
            return;
        }
        // The common case is the same PT block changing hands; the allocator may also have split or merged.
        if let Some(known) = self.blocks.get_mut(&range.start)
            && known.len == range.len
        {
            known.active = active;
            return;
        }
        self.cut(range);
        self.blocks.insert(range.start, PtBlock { len: range.len, active });
    }

    /// Removes what is known about `range`; a PT block that sticks out keeps the part outside.
    fn cut(&mut self, range: AddrRange) {
        if let Some((&start, &block)) = self.blocks.range(..range.start).next_back() {
            let end = start.offset(block.len);
            if end > range.start {
                let head = Bytes(range.start.get() - start.get());
                self.blocks.insert(start, PtBlock { len: head, ..block });
                if end > range.end() {
                    let tail = Bytes(end.get() - range.end().get());
                    self.blocks.insert(range.end(), PtBlock { len: tail, ..block });
                }
            }
        }
        while let Some((&start, &block)) = self.blocks.range(range.start..range.end()).next() {
            self.blocks.remove(&start);
            let end = start.offset(block.len);
            if end > range.end() {
                let tail = Bytes(end.get() - range.end().get());
                self.blocks.insert(range.end(), PtBlock { len: tail, ..block });
            }
        }
    }

    /// What a launch given `pointer` may touch: the PT block around it, else the allocation around it,
    /// else nothing: it is no managed memory of ours.
    pub fn reach(&self, pointer: DevAddr) -> Option<AddrRange> {
        let within = |start: DevAddr, len: Bytes| {
            let range = AddrRange::new(start, len);
            range.contains(pointer).then_some(range)
        };
        let pt = self.blocks.range(..=pointer).next_back();
        pt.and_then(|(&start, block)| within(start, block.len)).or_else(|| {
            let allocation = self.allocations.range(..=pointer).next_back();
            allocation.and_then(|(&start, &len)| within(start, len))
        })
    }

    /// Whether every byte of `range` lies in PT blocks that hold no tensor.
    pub fn is_inactive(&self, range: AddrRange) -> bool {
        let mut at = range.start;
        while at < range.end() {
            let Some((&start, block)) = self.blocks.range(..=at).next_back() else { return false };
            let end = start.offset(block.len);
            if block.active || end <= at {
                return false;
            }
            at = end;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(start: u64, len: u64) -> AddrRange {
        AddrRange::new(DevAddr(start), Bytes(len))
    }

    #[test]
    fn a_pointer_reaches_its_pt_block_else_its_allocation_else_nothing() {
        let mut map = PtBlocks::default();
        map.alloc(range(1000, 1000));
        map.report(range(1200, 100), true);
        assert_eq!(map.reach(DevAddr(1250)), Some(range(1200, 100)));
        assert_eq!(map.reach(DevAddr(1300)), Some(range(1000, 1000)));
        assert_eq!(map.reach(DevAddr(2000)), None);
        map.report(range(1200, 100), false);
        assert_eq!(map.reach(DevAddr(1250)), Some(range(1200, 100)), "inactive blocks still bound");
        map.free(range(1000, 1000));
        assert_eq!(map.reach(DevAddr(1250)), None);
    }

    #[test]
    fn inactive_means_every_byte() {
        let mut map = PtBlocks::default();
        map.report(range(0, 100), false);
        map.report(range(100, 100), false);
        assert!(map.is_inactive(range(50, 100)));
        map.report(range(140, 20), true);
        assert!(!map.is_inactive(range(50, 100)));
        assert!(map.is_inactive(range(160, 40)));
        assert!(!map.is_inactive(range(160, 41)), "past the last one nothing is known");
    }

    proptest! {
        /// Against one cell per byte: which report made it (the same range again keeps its identity), and whether
        /// it is active.
        #[test]
        fn reports_that_split_and_merge_agree_with_a_map_of_bytes(
            reports in prop::collection::vec((0usize..60, 1usize..20, any::<bool>()), 1..60)
        ) {
            let mut map = PtBlocks::default();
            let mut oracle: Vec<Option<(usize, bool)>> = vec![None; 100];
            for (n, &(start, len, active)) in reports.iter().enumerate() {
                map.report(range(start as u64, len as u64), active);
                let made_by = |cell: &Option<(usize, bool)>| cell.map(|(id, _)| id);
                let first = made_by(&oracle[start]);
                let same = first.is_some()
                    && oracle[start..start + len].iter().all(|cell| made_by(cell) == first)
                    && oracle.iter().filter(|cell| made_by(cell) == first).count() == len;
                let id = if same { first.unwrap_or(n) } else { n };
                oracle[start..start + len].fill(Some((id, active)));
            }
            for (at, cell) in oracle.iter().enumerate() {
                let reach = map.reach(DevAddr(at as u64));
                prop_assert_eq!(reach.is_some(), cell.is_some(), "at {}", at);
                if let Some(reach) = reach {
                    for (inside, other) in oracle.iter().enumerate() {
                        if reach.contains(DevAddr(inside as u64)) {
                            prop_assert_eq!(other, cell, "at {}", at);
                        }
                    }
                }
                let inactive = cell.is_some_and(|(_, active)| !active);
                prop_assert_eq!(map.is_inactive(range(at as u64, 1)), inactive);
            }
        }
    }
}
