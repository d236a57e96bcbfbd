//! The UM-block table of one execution ID: which block faulted after which.
//!
//! A launch with the same execution ID touches nearly the same blocks in nearly the same order, so the
//! order seen before is a good guess for the next one (DeepUM, ASPLOS'23, section 4.2).
//!
//! ```text
//! faults 40, 41, 57          start 40 ─► row 40: [41] ─► row 41: [57] ─► end 57: []
//! next time 41, 44           row 41: [44 57], newest first; row 44: []
//! ```
//!
//! **Chain.** From the start block, successors newest first, each block once, depth first; branches passed
//! over come after. This is the order in which the blocks are worth fetching. A row that was forgotten cuts it:
//! what the walk does not reach goes behind, lowest block first. The chain is kept until the table changes, so
//! that in steady state predicting a launch is reading a slice.
//!
//! **Nothing decays.** Correct prefetching removes the faults that taught the table. So a fault the chain
//! holds teaches nothing, and a fault it lacks is hung behind the fault before it, or, being the first of
//! its execution, behind the end block. The chain only grows; what it holds leaves when a row or a
//! successor list is full, the longest unused first.
//!
//! **Benefit of the doubt.** Of a block that was there all along no fault tells whether it was used, and the next
//! time it may not be there. So after the first execution the blocks its arguments reach are judged once
//! ([`BlockTable::settle`]): absent and not faulted, it is not used; present, it is taken to be.
//!
//! **Small tables stay small.** The geometry (2048 × 2 × 4) would be 160 KiB for each of thousands of
//! execution IDs. Rows are therefore split when one overflows, until they are as many as the geometry
//! says; only then does a row forget. Splitting loses nothing, so the contents are those of the full size.
//!
//! Where we differ from the paper: there the end block stops the walk. Here the walk ends by itself, and
//! the end block is where late-comers are hung.

use super::Geometry;
use crate::mix::Set;
use crate::units::{Bytes, UmBlock};

/// No block.
const NONE: u32 = u32::MAX;

/// A block number in 32 bits: the address is under 2^53, and CUDA's addresses are under 2^49.
fn narrow(block: UmBlock) -> Option<u32> {
    u32::try_from(block.0).ok().filter(|&n| n != NONE)
}

/// See the module.
#[derive(Debug)]
pub struct BlockTable {
    geometry: Geometry,
    /// Rows in use now; a power of two, at most the geometry's.
    rows: u32,
    /// `rows * ways` entries of `1 + successors` words: tag, then successors newest first. Within a row the
    /// entries are ordered by last learning, newest first, and unused ones (`NONE`) are last.
    words: Vec<u32>,
    start: u32,
    end: u32,
    chain: Vec<UmBlock>,
    chain_is_current: bool,
    settled: bool,
}

impl BlockTable {
    /// An empty table that may grow to `geometry`.
    pub fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            rows: 1,
            words: vec![NONE; Self::stride(geometry) * geometry.ways() as usize],
            start: NONE,
            end: NONE,
            chain: Vec::new(),
            chain_is_current: true,
            settled: false,
        }
    }

    const fn stride(geometry: Geometry) -> usize {
        1 + geometry.successors() as usize
    }
    fn row(&self, block: u32) -> std::ops::Range<usize> {
        let words = Self::stride(self.geometry) * self.geometry.ways() as usize;
        let first = (block & (self.rows - 1)) as usize * words;
        first..first + words
    }
    /// Index of the entry of `block` in `words`.
    fn find(&self, block: u32) -> Option<usize> {
        self.row(block).step_by(Self::stride(self.geometry)).find(|&at| self.words[at] == block)
    }

    /// Where the chain starts.
    pub fn start(&self) -> Option<UmBlock> {
        (self.start != NONE).then_some(UmBlock(self.start.into()))
    }
    /// The last block hung onto the chain.
    pub fn end(&self) -> Option<UmBlock> {
        (self.end != NONE).then_some(UmBlock(self.end.into()))
    }
    /// What followed `block`, newest first.
    pub fn successors(&self, block: UmBlock) -> impl Iterator<Item = UmBlock> + '_ {
        let at = narrow(block).and_then(|n| self.find(n));
        let list = at.map_or(&[][..], |at| &self.words[at + 1..at + Self::stride(self.geometry)]);
        list.iter().take_while(|&&n| n != NONE).map(|&n| UmBlock(n.into()))
    }

    /// Learns a fault of this execution ID. `before` is the fault before it in the same execution.
    /// Returns whether the chain as it was lacked the block.
    pub fn learn(&mut self, before: Option<UmBlock>, block: UmBlock) -> bool {
        let Some(new) = narrow(block) else { return false };
        if self.start == NONE {
            (self.start, self.end) = (new, new);
            self.entry(new);
            self.chain_is_current = false;
            return true;
        }
        // While the first execution is learned every fault is new, and the chain not worth keeping up.
        if (self.settled || self.chain_is_current) && self.chain().contains(&block) {
            return false;
        }
        let from = before.and_then(narrow).unwrap_or(self.end);
        if from == new {
            return false;
        }
        let joins = self.find(new).is_none();
        self.link(from, new);
        if from == self.end && joins {
            self.end = new;
        }
        self.chain_is_current = false;
        true
    }

    /// Whether the first execution has been judged.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// The first execution is over: hangs onto the chain what its arguments reach and was there.
    pub fn settle(&mut self, present: impl Iterator<Item = UmBlock>) {
        self.settled = true;
        let known: Set<UmBlock> = self.chain().iter().copied().collect();
        for block in present.filter(|block| !known.contains(block)) {
            self.learn(None, block);
        }
    }

    /// Puts `to` at the front of the successors of `from`, and gives both an entry.
    fn link(&mut self, from: u32, to: u32) {
        self.entry(to);
        let at = self.entry(from);
        let list = &mut self.words[at + 1..at + Self::stride(self.geometry)];
        let place = list.iter().position(|&n| n == to).unwrap_or(list.len() - 1);
        list[..=place].rotate_right(1);
        list[0] = to;
    }

    /// The entry of `block`, made if need be, and now the newest of its row.
    fn entry(&mut self, block: u32) -> usize {
        let stride = Self::stride(self.geometry);
        loop {
            let row = self.row(block);
            let (first, last) = (row.start, row.end - stride);
            let at = row.step_by(stride).find(|&at| self.words[at] == block || self.words[at] == NONE);
            if at.is_none() && self.rows < self.geometry.rows() {
                self.split();
                continue;
            }
            let at = at.unwrap_or(last);
            self.words[first..at + stride].rotate_right(stride);
            if self.words[first] != block {
                self.words[first..first + stride].fill(NONE);
                self.words[first] = block;
            }
            return first;
        }
    }

    /// Twice as many rows. Each entry goes to its own new row; the order within rows stays.
    fn split(&mut self) {
        let stride = Self::stride(self.geometry);
        self.rows *= 2;
        let wider = vec![NONE; self.words.len() * 2];
        let old = std::mem::replace(&mut self.words, wider);
        for entry in old.chunks_exact(stride).filter(|entry| entry[0] != NONE) {
            let at = self.row(entry[0]).step_by(stride).find(|&at| self.words[at] == NONE);
            let at = at.expect("a new row takes entries from one old row of as many ways");
            self.words[at..at + stride].copy_from_slice(entry);
        }
    }

    /// The blocks this execution is expected to need, in the order of need. See the module.
    pub fn chain(&mut self) -> &[UmBlock] {
        if !self.chain_is_current {
            let mut chain = std::mem::take(&mut self.chain);
            chain.clear();
            let stride = Self::stride(self.geometry);
            let mut seen = vec![false; self.words.len() / stride];
            if let Some(start) = self.start() {
                self.follow(start, &mut seen, &mut chain);
            }
            let entries = self.words.iter().step_by(stride).zip(&seen);
            let mut cut_off: Vec<u32> = entries.filter(|(n, seen)| **n != NONE && !**seen).map(|(n, _)| *n).collect();
            cut_off.sort_unstable();
            for block in cut_off {
                self.follow(UmBlock(block.into()), &mut seen, &mut chain);
            }
            self.chain = chain;
            self.chain_is_current = true;
        }
        &self.chain
    }

    /// What follows `from`, `from` included, appended to `out`.
    pub fn walk(&self, from: UmBlock, out: &mut Vec<UmBlock>) {
        let mut seen = vec![false; self.words.len() / Self::stride(self.geometry)];
        self.follow(from, &mut seen, out);
    }

    /// Depth first, newest successor first, leaving out entries that were `seen`.
    fn follow(&self, from: UmBlock, seen: &mut [bool], out: &mut Vec<UmBlock>) {
        let stride = Self::stride(self.geometry);
        let mut ahead: Vec<u32> = narrow(from).into_iter().collect();
        while let Some(block) = ahead.pop() {
            let Some(at) = self.find(block) else {
                // Its row forgot it; the link to it is all we know.
                let block = UmBlock(block.into());
                if !out.contains(&block) {
                    out.push(block);
                }
                continue;
            };
            if std::mem::replace(&mut seen[at / stride], true) {
                continue;
            }
            out.push(UmBlock(block.into()));
            ahead.extend(self.words[at + 1..at + stride].iter().rev().filter(|&&n| n != NONE));
        }
    }

    /// Memory of the table.
    pub fn bytes(&self) -> Bytes {
        let chain = self.chain.capacity() * size_of::<UmBlock>();
        Bytes((size_of::<Self>() + self.words.capacity() * size_of::<u32>() + chain) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: u32, ways: u32, successors: u32) -> BlockTable {
        BlockTable::new(Geometry::new(rows, ways, successors).unwrap())
    }
    fn execution(table: &mut BlockTable, faults: &[u64]) {
        let mut before = None;
        for &fault in faults {
            table.learn(before, UmBlock(fault));
            before = Some(UmBlock(fault));
        }
    }
    fn chain(table: &mut BlockTable) -> Vec<u64> {
        table.chain().iter().map(|block| block.0).collect()
    }

    #[test]
    fn the_chain_is_the_order_of_the_faults() {
        let mut table = table(16, 2, 4);
        execution(&mut table, &[40, 41, 57]);
        assert_eq!(chain(&mut table), [40, 41, 57]);
        assert_eq!((table.start(), table.end()), (Some(UmBlock(40)), Some(UmBlock(57))));
    }

    #[test]
    fn a_fault_the_chain_holds_teaches_nothing() {
        let mut table = table(16, 2, 4);
        execution(&mut table, &[1, 2, 3, 4]);
        chain(&mut table);
        execution(&mut table, &[4, 2]);
        execution(&mut table, &[3]);
        assert_eq!(chain(&mut table), [1, 2, 3, 4]);
    }

    #[test]
    fn a_first_fault_the_chain_lacks_is_hung_behind_the_end() {
        let mut table = table(16, 2, 4);
        execution(&mut table, &[1, 2]);
        chain(&mut table);
        execution(&mut table, &[9, 8]);
        assert_eq!(chain(&mut table), [1, 2, 9, 8]);
        assert_eq!(table.end(), Some(UmBlock(8)));
    }

    #[test]
    fn a_later_fault_the_chain_lacks_is_hung_behind_the_one_before_it() {
        let mut table = table(16, 2, 4);
        execution(&mut table, &[1, 2, 3]);
        chain(&mut table);
        execution(&mut table, &[1, 9]);
        assert_eq!(chain(&mut table), [1, 9, 2, 3], "newest successor first, the passed-over branch after it");
        assert_eq!(table.end(), Some(UmBlock(3)));
    }

    #[test]
    fn settling_adds_what_was_there_behind_the_end_once() {
        let mut table = table(16, 2, 4);
        execution(&mut table, &[3, 4]);
        table.settle([1, 4, 2].into_iter().map(UmBlock));
        assert_eq!(chain(&mut table), [3, 4, 1, 2]);
        assert!(table.is_settled());
    }

    #[test]
    fn thousands_of_faults_with_few_left_later_keep_the_chain_whole() {
        let mut table = BlockTable::new(Geometry::default());
        let all: Vec<u64> = (1000..4000).collect();
        execution(&mut table, &all);
        let learned = chain(&mut table);
        assert_eq!(learned, all);
        for round in 0..100 {
            execution(&mut table, &[1000 + round * 7, 1000 + round * 11]);
            assert_eq!(chain(&mut table), all, "round {round}");
        }
    }

    #[test]
    fn a_forgotten_row_does_not_cut_off_what_came_after_it() {
        let mut table = table(4, 1, 4);
        execution(&mut table, &[0, 1, 2, 3]);
        table.settle([5].into_iter().map(UmBlock));
        assert_eq!(table.successors(UmBlock(1)).next(), None, "5 took the row of 1, and with it the link to 2");
        assert_eq!(chain(&mut table), [0, 1, 2, 3, 5]);
    }

    #[test]
    fn a_block_table_of_one_block_is_small_and_a_full_one_is_bounded() {
        let mut one = BlockTable::new(Geometry::default());
        execution(&mut one, &[5]);
        one.chain();
        assert!(one.bytes() < Bytes(256), "{}", one.bytes());
        let mut full = BlockTable::new(Geometry::default());
        execution(&mut full, &(0..100_000).collect::<Vec<_>>());
        assert_eq!(full.words.len(), 2048 * 2 * 5);
    }

    #[test]
    fn an_absurd_block_number_is_not_stored() {
        let mut table = table(16, 2, 4);
        assert!(!table.learn(None, UmBlock(u64::from(u32::MAX))));
        assert_eq!(table.start(), None);
    }
}
