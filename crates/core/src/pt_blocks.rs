//! Which bytes a pointer among a launch's arguments may reach.
//!
//! Problem: an argument is a bare address; how far the kernel reads from there is in scalars we do not decode.
//! Idea: it does not leave the tensor. PyTorch's caching allocator tells us of every *PT block* it hands
//! out; a pointer is bounded by the PT block it falls in, or, where there is none, by its allocation.
//!
//! Invariants: known PT blocks do not overlap, nor do allocations; the newest report wins.
//! Inactive PT blocks stay known: their contents are what invalidation may give up, and a pointer may still
//! fall into one (a tensor freed by the host while its last kernel waits). They are told apart by `active`.
//!
//! **Dead** is memory with an inactive PT block in it and no active one; what was never handed out beside it holds no tensor either, if
//! PyTorch hands out from that allocation. An allocation of which PyTorch never said anything is somebody else's, and never dead. Where a report
//! was lost this may be wrong, and does no harm: the hand-out words decide (`Event::Discarded`), what is said here is
//! only what is worth asking for.
//! Not here: where blocks are (`residency`).

use std::collections::{BTreeMap, BTreeSet};

use crate::mix::Map;
use crate::units::{AddrRange, Bytes, DevAddr, LaunchSeq};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PtBlock {
    len: Bytes,
    active: bool,
    /// The newest launch told when it was handed out last.
    born: LaunchSeq,
    /// The newest launch issued when it was taken back last.
    died: LaunchSeq,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Allocation {
    len: Bytes,
    /// Whether PyTorch hands out from it.
    handed_out: bool,
}

/// Memory that holds no tensor: between which launches its last users lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dead {
    /// Launches up to this one came before it was handed out the last time.
    pub born: LaunchSeq,
    /// Launches after this one came after it was taken back.
    pub died: LaunchSeq,
}

/// See the module.
#[derive(Default, Debug)]
pub struct PtBlocks {
    /// By first address: most pointers are those that PyTorch gave out.
    blocks: Map<DevAddr, PtBlock>,
    /// Their first addresses, for the other pointers.
    starts: BTreeSet<DevAddr>,
    allocations: BTreeMap<DevAddr, Allocation>,
}

impl PtBlocks {
    /// The program was given `range`.
    pub fn alloc(&mut self, range: AddrRange) {
        self.allocations.insert(range.start, Allocation { len: range.len, handed_out: false });
    }

    /// The program gave `range` back; PT blocks inside are gone.
    pub fn free(&mut self, range: AddrRange) {
        self.allocations.remove(&range.start);
        self.cut(range);
    }

    /// PyTorch handed `range` out, or took it back.
    ///
    /// `told` is the newest launch told, `issued` the newest issued: whoever uses it comes after the one, and up to the other.
    pub fn report(&mut self, range: AddrRange, active: bool, told: LaunchSeq, issued: LaunchSeq) {
        if range.is_empty() {
            return;
        }
        // The common case is the same PT block changing hands; the allocator may also have split or merged.
        if let Some(known) = self.blocks.get_mut(&range.start)
            && known.len == range.len
        {
            known.active = active;
            if active {
                known.born = told;
            } else {
                known.died = issued;
            }
            return;
        }
        self.cut(range);
        // Taken back without having been handed out: nothing is known of its users but that they were issued.
        let (born, died) = if active { (told, LaunchSeq(0)) } else { (LaunchSeq(0), issued) };
        self.insert(range.start, PtBlock { len: range.len, active, born, died });
        if let Some((_, allocation)) = self.allocations.range_mut(..=range.start).next_back() {
            allocation.handed_out = true;
        }
    }

    fn insert(&mut self, start: DevAddr, block: PtBlock) {
        if self.blocks.insert(start, block).is_none() {
            self.starts.insert(start);
        }
    }
    /// The last PT block that starts before `addr`.
    fn before(&self, addr: DevAddr) -> Option<(DevAddr, PtBlock)> {
        self.starts.range(..addr).next_back().map(|&start| (start, self.blocks[&start]))
    }
    /// PT blocks that start in `range`.
    fn starting_in(&self, range: AddrRange) -> impl Iterator<Item = (DevAddr, PtBlock)> {
        self.starts.range(range.start..range.end()).map(|&start| (start, self.blocks[&start]))
    }

    /// Removes what is known about `range`; a PT block that sticks out keeps the part outside.
    fn cut(&mut self, range: AddrRange) {
        if let Some((start, block)) = self.before(range.start) {
            let end = start.offset(block.len);
            if end > range.start {
                let head = Bytes(range.start.get() - start.get());
                self.insert(start, PtBlock { len: head, ..block });
                if end > range.end() {
                    let tail = Bytes(end.get() - range.end().get());
                    self.insert(range.end(), PtBlock { len: tail, ..block });
                }
            }
        }
        loop {
            let Some((start, block)) = self.starting_in(range).next() else { return };
            self.blocks.remove(&start);
            self.starts.remove(&start);
            let end = start.offset(block.len);
            if end > range.end() {
                let tail = Bytes(end.get() - range.end().get());
                self.insert(range.end(), PtBlock { len: tail, ..block });
            }
        }
    }

    /// What a launch given `pointer` may touch: the PT block around it, else the allocation around it,
    /// else nothing: it is no managed memory of ours.
    pub fn reach(&self, pointer: DevAddr) -> Option<AddrRange> {
        if let Some(block) = self.blocks.get(&pointer) {
            return Some(AddrRange::new(pointer, block.len));
        }
        let within = |start: DevAddr, len: Bytes| {
            let range = AddrRange::new(start, len);
            range.contains(pointer).then_some(range)
        };
        self.before(pointer).and_then(|(start, block)| within(start, block.len)).or_else(|| {
            let allocation = self.allocations.range(..=pointer).next_back();
            allocation.and_then(|(&start, allocation)| within(start, allocation.len))
        })
    }

    /// Whether nothing in `range` is handed out but, maybe, the PT block that starts here.
    pub fn is_alone(&self, start: DevAddr, range: AddrRange) -> bool {
        let before = self.before(range.start).filter(|(start, pt)| start.offset(pt.len) > range.start);
        before.into_iter().chain(self.starting_in(range)).all(|(other, pt)| other == start || !pt.active)
    }

    /// Whether `range` is dead, and between which launches its last users lie. See the module.
    pub fn dead(&self, range: AddrRange) -> Option<Dead> {
        let (&start, allocation) = self.allocations.range(..=range.start).next_back()?;
        if !allocation.handed_out || start.offset(allocation.len) < range.end() {
            return None;
        }
        let mut dead: Option<Dead> = None;
        // From the last that starts before its end on backwards, as far as they reach into it.
        for &start in self.starts.range(..range.end()).rev() {
            let pt = self.blocks[&start];
            if start.offset(pt.len) <= range.start {
                break;
            }
            if pt.active {
                return None;
            }
            let least = dead.unwrap_or(Dead { born: pt.born, died: pt.died });
            dead = Some(Dead { born: least.born.min(pt.born), died: least.died.max(pt.died) });
        }
        dead
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
        report(&mut map, 1200, 100, true);
        assert_eq!(map.reach(DevAddr(1250)), Some(range(1200, 100)));
        assert_eq!(map.reach(DevAddr(1300)), Some(range(1000, 1000)));
        assert_eq!(map.reach(DevAddr(2000)), None);
        report(&mut map, 1200, 100, false);
        assert_eq!(map.reach(DevAddr(1250)), Some(range(1200, 100)), "inactive blocks still bound");
        map.free(range(1000, 1000));
        assert_eq!(map.reach(DevAddr(1250)), None);
    }

    #[test]
    fn dead_means_every_byte() {
        let mut map = PtBlocks::default();
        map.alloc(range(0, 250));
        assert_eq!(map.dead(range(0, 50)), None, "nobody said that PyTorch hands it out");
        report(&mut map, 0, 100, false);
        report(&mut map, 100, 100, false);
        let dead = |map: &PtBlocks, start, len| map.dead(range(start, len)).is_some();
        assert!(dead(&map, 50, 100));
        report(&mut map, 140, 20, true);
        assert!(!dead(&map, 50, 100) && !dead(&map, 130, 11) && dead(&map, 130, 10));
        assert!(dead(&map, 160, 40));
        assert!(dead(&map, 160, 90), "the rest of the allocation was never handed out");
        assert!(!dead(&map, 160, 91), "past the allocation nothing is known");
    }

    #[test]
    fn a_pt_block_is_alone_where_no_other_is_handed_out() {
        let mut map = PtBlocks::default();
        map.alloc(range(0, 250));
        report(&mut map, 0, 100, true);
        report(&mut map, 100, 120, true);
        let alone = |map: &PtBlocks, start, of| map.is_alone(DevAddr(start), range(of, 50));
        assert!(alone(&map, 0, 50) && alone(&map, 100, 150) && alone(&map, 100, 200));
        assert!(!alone(&map, 0, 80) && !alone(&map, 100, 80), "both lie in it");
        report(&mut map, 0, 100, false);
        assert!(alone(&map, 100, 80));
    }

    #[test]
    fn the_last_users_lie_between_the_hand_out_and_the_return() {
        let mut map = PtBlocks::default();
        map.alloc(range(0, 100));
        let mut at = |active, told, issued, start, len| {
            map.report(range(start, len), active, LaunchSeq(told), LaunchSeq(issued));
            map.dead(range(0, 100)).map(|dead| (dead.born.0, dead.died.0))
        };
        at(true, 3, 5, 0, 50);
        assert_eq!(at(false, 7, 9, 0, 50), Some((3, 9)));
        at(true, 10, 12, 50, 50);
        assert_eq!(at(false, 20, 21, 50, 50), Some((3, 21)));
        at(true, 30, 30, 0, 100);
        assert_eq!(at(false, 40, 44, 0, 100), Some((30, 44)), "merged: what was there before is over");
    }

    fn report(map: &mut PtBlocks, start: u64, len: u64, active: bool) {
        map.report(range(start, len), active, LaunchSeq(0), LaunchSeq(0));
    }

    proptest! {
        /// Against one cell per byte: which report made it (the same range again keeps its identity), and whether
        /// it is active.
        #[test]
        fn reports_that_split_and_merge_agree_with_a_map_of_bytes(
            reports in prop::collection::vec((0usize..60, 1usize..20, any::<bool>()), 1..60)
        ) {
            let mut map = PtBlocks::default();
            map.alloc(range(0, 100));
            let mut oracle: Vec<Option<(usize, bool)>> = vec![None; 100];
            for (n, &(start, len, active)) in reports.iter().enumerate() {
                report(&mut map, start as u64, len as u64, active);
                let made_by = |cell: &Option<(usize, bool)>| cell.map(|(id, _)| id);
                let first = made_by(&oracle[start]);
                let same = first.is_some()
                    && oracle[start..start + len].iter().all(|cell| made_by(cell) == first)
                    && oracle.iter().filter(|cell| made_by(cell) == first).count() == len;
                let id = if same { first.unwrap_or(n) } else { n };
                oracle[start..start + len].fill(Some((id, active)));
            }
            for (at, cell) in oracle.iter().enumerate() {
                let reach = map.reach(DevAddr(at as u64)).filter(|reach| *reach != range(0, 100));
                prop_assert_eq!(reach.is_some(), cell.is_some(), "at {}", at);
                if let Some(reach) = reach {
                    for (inside, other) in oracle.iter().enumerate() {
                        if reach.contains(DevAddr(inside as u64)) {
                            prop_assert_eq!(other, cell, "at {}", at);
                        }
                    }
                }
                let inactive = cell.is_some_and(|(_, active)| !active);
                prop_assert_eq!(map.dead(range(at as u64, 1)).is_some(), inactive);
            }
        }
    }
}
