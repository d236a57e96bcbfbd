//! Which block is which in every run: blocks by number instead of by address.
//!
//! Problem: addresses change from run to run, and within a run when PyTorch gives a segment back and takes another one; what
//! was learned of a block would be lost, or, worse, be told of another block.
//! Idea: an execution ID already names memory by allocation and block within it ([`crate::exec_id`]). The tables do so
//! too. An allocation has an *ordinal*: the lowest free one when it was made. The first time an ordinal is seen it gets a
//! piece of one long line of numbers, as long as the allocation, and keeps it for good:
//!
//! ```text
//! ordinal 0: blocks 0 … 9 │ ordinal 1: 10 … 521 │ ordinal 2: 522 … │
//! ```
//!
//! So a block is 32 bits, numbers are as dense as addresses are, and neighbours stay neighbours.
//!
//! Invariants: live allocations do not overlap; a number means at most one block. An ordinal that comes back longer than its
//! piece gets another one, twice as long as it needs, and what was learned of the old one means nothing any more.
//! There are [`MOST`] numbers: a program that has used them up has blocks without a number, of which nothing is learned.

use std::collections::{BTreeMap, BTreeSet};

use crate::units::{AddrRange, Bytes, UmBlock};

/// A block by number. See the module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StableBlock(pub u32);

/// The piece of numbers of one ordinal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) first: u32,
    pub(super) blocks: u32,
}

/// Numbers there are: 32 TiB of memory. A choice that bounds the table by number to 128 MiB.
pub const MOST: u32 = 1 << 24;

const NOWHERE: u64 = u64::MAX;

/// See the module.
#[derive(Default, Debug)]
pub struct Places {
    /// By ordinal.
    pieces: Vec<Piece>,
    /// Ordinals below `pieces.len()` that no live allocation has.
    free: BTreeSet<u32>,
    /// Live allocations: first block → number of blocks, ordinal.
    live: BTreeMap<UmBlock, (u32, u32)>,
    /// By number: the block, or [`NOWHERE`].
    at: Vec<u64>,
}

impl Places {
    /// Pieces of an earlier run, by ordinal; no allocation lives.
    pub(super) fn of(pieces: Vec<Piece>) -> Self {
        let ordinals = 0..u32::try_from(pieces.len()).unwrap_or(u32::MAX);
        Self { pieces, free: ordinals.collect(), ..Self::default() }
    }
    /// By ordinal.
    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
    /// Whether no allocation lives or ever did.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The program was given `range`.
    pub fn alloc(&mut self, range: AddrRange) {
        let mut blocks = range.blocks();
        let Ok(count) = u32::try_from(blocks.len()) else { return };
        let Some(first) = blocks.next() else { return };
        if self.overlaps(first, count) {
            return;
        }
        let next = u32::try_from(self.pieces.len()).expect("fewer than 2^32 allocations live at once");
        let ordinal = self.free.first().copied().unwrap_or(next);
        if ordinal == next {
            let Some(piece) = self.cut(count) else { return };
            self.pieces.push(piece);
        } else if self.pieces[ordinal as usize].blocks < count {
            let Some(piece) = self.cut(count.saturating_mul(2)).or_else(|| self.cut(count)) else { return };
            self.pieces[ordinal as usize] = piece;
        }
        self.free.remove(&ordinal);
        self.live.insert(first, (count, ordinal));
        let piece = self.pieces[ordinal as usize].first as usize;
        let end = piece + count as usize;
        if self.at.len() < end {
            self.at.resize(end, NOWHERE);
        }
        for (place, block) in self.at[piece..end].iter_mut().zip(first.0..) {
            *place = block;
        }
    }

    /// The program gave `range` back.
    pub fn free(&mut self, range: AddrRange) {
        let Some((count, ordinal)) = self.live.remove(&UmBlock::containing(range.start)) else { return };
        self.free.insert(ordinal);
        let piece = self.pieces[ordinal as usize].first as usize;
        self.at[piece..piece + count as usize].fill(NOWHERE);
    }

    /// The number of a block.
    pub fn number(&self, block: UmBlock) -> Option<StableBlock> {
        let (first, &(count, ordinal)) = self.live.range(..=block).next_back()?;
        let within = u32::try_from(block.0 - first.0).ok().filter(|&within| within < count)?;
        Some(StableBlock(self.pieces[ordinal as usize].first + within))
    }

    /// The block of a number, while its allocation lives.
    #[inline]
    pub fn block(&self, number: StableBlock) -> Option<UmBlock> {
        self.at.get(number.0 as usize).copied().filter(|&at| at != NOWHERE).map(UmBlock)
    }

    fn overlaps(&self, first: UmBlock, count: u32) -> bool {
        let last = UmBlock(first.0 + u64::from(count) - 1);
        let before = self.live.range(..=last).next_back();
        before.is_some_and(|(other, &(blocks, _))| other.0 + u64::from(blocks) > first.0)
    }

    /// The next piece of so many numbers.
    fn cut(&self, blocks: u32) -> Option<Piece> {
        let first = self.pieces.iter().map(|piece| piece.first + piece.blocks).max().unwrap_or(0);
        first.checked_add(blocks).filter(|&end| end <= MOST).map(|_| Piece { first, blocks })
    }

    /// Memory of the map.
    pub fn bytes(&self) -> Bytes {
        // A node of a B-tree holds up to eleven entries and is at least half full.
        let trees = self.live.len() * 2 * size_of::<(UmBlock, (u32, u32))>() + self.free.len() * 2 * size_of::<u32>();
        let lists = self.pieces.capacity() * size_of::<Piece>() + self.at.capacity() * size_of::<u64>();
        Bytes((trees + lists) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(first: u64, blocks: u64) -> AddrRange {
        AddrRange::new(UmBlock(first).start(), Bytes(blocks * UmBlock::SIZE.get()))
    }
    fn number(places: &Places, block: u64) -> Option<u32> {
        places.number(UmBlock(block)).map(|number| number.0)
    }

    #[test]
    fn the_same_allocations_elsewhere_get_the_same_numbers() {
        let numbers = |base: u64| {
            let mut places = Places::default();
            for (at, blocks) in [(base, 10), (base + 500, 3), (base + 100, 20)] {
                places.alloc(range(at, blocks));
            }
            [base, base + 9, base + 10, base + 502, base + 119].map(|block| number(&places, block))
        };
        assert_eq!(numbers(1000), [Some(0), Some(9), None, Some(12), Some(32)]);
        assert_eq!(numbers(77_000), numbers(1000));
    }

    #[test]
    fn an_ordinal_that_comes_back_elsewhere_keeps_its_numbers_unless_it_grew() {
        let mut places = Places::default();
        places.alloc(range(100, 4));
        places.alloc(range(200, 4));
        places.free(range(100, 4));
        assert_eq!((number(&places, 100), places.block(StableBlock(0))), (None, None));
        places.alloc(range(300, 3));
        assert_eq!(number(&places, 302), Some(2), "the lowest free ordinal");
        assert_eq!(places.block(StableBlock(3)), None, "it is shorter than it was");
        places.free(range(300, 3));
        places.alloc(range(400, 5));
        assert_eq!(number(&places, 400), Some(8));
        assert_eq!(places.block(StableBlock(2)), None);
        places.free(range(400, 5));
        places.alloc(range(400, 10));
        assert_eq!(number(&places, 409), Some(17), "its second piece was twice as long as needed");
    }

    #[test]
    fn an_allocation_inside_another_and_a_free_of_nothing_change_nothing() {
        let mut places = Places::default();
        places.alloc(range(100, 4));
        places.alloc(range(103, 4));
        places.alloc(range(98, 3));
        places.alloc(range(50, 0));
        places.free(range(101, 2));
        assert_eq!((number(&places, 103), number(&places, 104), number(&places, 98)), (Some(3), None, None));
        assert_eq!(places.pieces.len(), 1);
    }

    #[test]
    fn numbers_that_are_used_up_are_not_given_out_twice() {
        let mut places = Places::default();
        places.pieces.push(Piece { first: 0, blocks: MOST - 4 });
        places.alloc(range(100, 4));
        assert_eq!(number(&places, 103), Some(MOST - 1));
        places.alloc(range(200, 1));
        assert_eq!(number(&places, 200), None);
    }

    proptest! {
        #[test]
        fn number_and_block_undo_each_other(steps in prop::collection::vec((0u64..30, 1u64..6, any::<bool>()), 1..60)) {
            let mut places = Places::default();
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (first, blocks, alloc) in steps {
                let first = first * 3;
                if alloc {
                    places.alloc(range(first, blocks));
                    if !live.iter().any(|&(at, len)| at < first + blocks && first < at + len) {
                        live.push((first, blocks));
                    }
                } else {
                    places.free(range(first, blocks));
                    live.retain(|&(at, _)| at != first);
                }
                for block in 0..100 {
                    let managed = live.iter().any(|&(at, len)| (at..at + len).contains(&block));
                    let number = places.number(UmBlock(block));
                    prop_assert_eq!(number.is_some(), managed);
                    prop_assert!(number.is_none_or(|number| places.block(number) == Some(UmBlock(block))));
                }
            }
        }
    }
}
