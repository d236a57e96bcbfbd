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
//! what the walk does not reach goes behind, lowest block first. The chain is written out when it is asked for and kept until
//! the table changes, as [`Runs`], so that in steady state predicting a launch is reading a list. Whether it holds a block is told from the rows
//! alone: it holds every block that has a place there or that a successor list names.
//!
//! **Nothing decays by itself.** Correct prefetching removes the faults that taught the table. So a fault the chain
//! holds teaches nothing about order, and a fault it lacks is hung behind the fault before it, or, being the first of
//! its execution, behind the end block. What the chain holds leaves when it was found not to be used ([`super::proof`]), or when a row
//! or a successor list is full, what was learned longest ago first.
//!
//! **Benefit of the doubt.** Of a block that was there all along no fault tells whether it was used, and the next
//! time it may not be there. So after the first execution the blocks its arguments reach are judged once
//! ([`BlockTable::settle`]): absent and not faulted, it is not used; present, it is taken to be, until that proves wrong ([`super::proof`]).
//!
//! **Rows.** What is kept of the blocks, and what is forgotten when there is no room, is the business of
//! [`super::rows`]; there are two layouts, which hold the same.
//!
//! **As in the paper.** [`BlockTable::record`] learns every pair of faults, [`BlockTable::bound`] the first and the last one;
//! `chaining` walks to the end block. [`BlockTable::learn`] and [`BlockTable::chain`] are our form: the walk ends by itself,
//! and the end block is where late-comers are hung. A table is used in one of the two ways.

use super::proof::Proof;
use super::rows::{MOST, NONE, Rows};
use super::runs::Runs;
use super::saved::State;
use super::{Geometry, StableBlock};
use crate::mix::Set;
use crate::units::Bytes;

/// See the module.
#[derive(Debug)]
pub struct BlockTable {
    geometry: Geometry,
    rows: Rows,
    start: u32,
    end: u32,
    chain: Runs,
    chain_is_current: bool,
    settled: bool,
    /// Whether a block has lost its row, and may be named by a successor list all the same.
    forgot: bool,
    proof: Proof,
}

impl BlockTable {
    /// An empty table of this geometry.
    pub fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            rows: Rows::new(geometry),
            start: NONE,
            end: NONE,
            chain: Runs::default(),
            chain_is_current: true,
            settled: false,
            forgot: false,
            proof: Proof::default(),
        }
    }

    /// Where the chain starts.
    pub fn start(&self) -> Option<StableBlock> {
        (self.start != NONE).then_some(StableBlock(self.start))
    }
    /// The last block hung onto the chain.
    pub fn end(&self) -> Option<StableBlock> {
        (self.end != NONE).then_some(StableBlock(self.end))
    }
    /// What followed `block`, newest first.
    pub fn successors(&self, block: StableBlock) -> impl DoubleEndedIterator<Item = StableBlock> {
        let found = self.rows.find(block.0, self.geometry).map(|slot| self.rows.successors(slot));
        let count = found.map_or(0, |list| list.as_slice().len());
        (0..count).filter_map(move |n| found.map(|list| StableBlock(list.as_slice()[n])))
    }

    /// Whether [`Self::chain`] has the block.
    pub fn holds(&self, StableBlock(block): StableBlock) -> bool {
        block == self.start || self.rows.find(block, self.geometry).is_some() || self.forgot && self.rows.names(block)
    }

    /// Learns a fault of this execution ID. `before` is the fault before it in the same execution.
    /// Returns whether that was news: once the first execution is over, whether the chain lacked the block.
    pub fn learn(&mut self, before: Option<StableBlock>, block: StableBlock) -> bool {
        // While the first execution is learned every fault is new.
        !(self.settled && self.holds(block)) && self.hang(before, block.0)
    }

    /// Hangs `new` behind `before`, or behind the end block. Returns whether there was anything to hang.
    fn hang(&mut self, before: Option<StableBlock>, new: u32) -> bool {
        if new > MOST {
            return false;
        }
        if self.start == NONE {
            (self.start, self.end) = (new, new);
            self.touch(new);
            self.chain_is_current = false;
            return true;
        }
        let from = before.map_or(self.end, |before| before.0);
        if from == new {
            return false;
        }
        let joins = self.rows.find(new, self.geometry).is_none();
        self.link(from, new);
        if from == self.end && joins {
            self.end = new;
        }
        self.chain_is_current = false;
        true
    }

    /// Learns a fault as the paper does: `block` was missed after `before`, in the same execution.
    pub fn record(&mut self, before: Option<StableBlock>, block: StableBlock) {
        if block.0 > MOST || before == Some(block) {
            return;
        }
        match before {
            Some(before) => self.link(before.0, block.0),
            None => self.touch(block.0),
        }
        self.chain_is_current = false;
    }

    /// An execution began with a fault on `first` and ended with one on `last`: the start and end block of the paper.
    pub fn bound(&mut self, first: StableBlock, last: StableBlock) {
        (self.start, self.end) = (first.0, last.0);
        self.chain_is_current = false;
    }

    /// Whether the first execution has been judged.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// An execution is over, of which nothing is to be learned.
    pub fn ran(&mut self) {
        self.proof.tried();
    }

    /// The first execution is over: hangs onto the chain what its arguments reach and was there.
    pub fn settle(&mut self, present: impl Iterator<Item = StableBlock>) {
        self.settled = true;
        // Which blocks the chain has is kept here: asking a table that has forgotten some reads all of it.
        let mut known: Set<StableBlock> = self.chain().iter().collect();
        for block in present {
            if known.insert(block) && self.hang(None, block.0) {
                self.proof.name(block);
            }
        }
        self.rows.shrink();
        self.proof.shrink();
        self.proof.tried();
    }

    /// The block was faulted on, and so is used, whether or not the chain lacked it. `left_out` for the sake of knowing that?
    pub fn used(&mut self, block: StableBlock, left_out: bool) {
        self.proof.used(block, left_out);
    }

    /// These blocks were left out, and not used. Returns whether the chain is another one by that.
    pub fn unused(&mut self, blocks: &[StableBlock]) -> bool {
        let gone: Set<StableBlock> = blocks.iter().copied().filter(|&block| self.proof.unused(block)).collect();
        let any = !gone.is_empty();
        if any {
            self.take_out(&gone);
        }
        any
    }

    /// These blocks are no more.
    pub fn forget(&mut self, blocks: &[StableBlock]) {
        blocks.iter().for_each(|&block| self.proof.forget(block));
        self.take_out(&blocks.iter().copied().collect());
    }

    /// An execution did not use these blocks: takes out those known from arguments alone. Returns whether there were any.
    pub fn forget_named(&mut self, blocks: &[StableBlock]) -> bool {
        let is_named = |&block: &StableBlock| !self.proof.is_proven(block) && self.holds(block);
        let named: Vec<StableBlock> = blocks.iter().copied().filter(is_named).collect();
        if !named.is_empty() {
            self.forget(&named);
        }
        !named.is_empty()
    }

    fn take_out(&mut self, gone: &Set<StableBlock>) {
        // What is left, one behind the other in the order of need.
        let left: Vec<u32> = self.chain().iter().filter(|block| !gone.contains(block)).map(|block| block.0).collect();
        (self.rows, self.forgot) = (Rows::new(self.geometry), false);
        (self.start, self.end) = (left.first().copied().unwrap_or(NONE), left.last().copied().unwrap_or(NONE));
        left.first().into_iter().for_each(|&first| self.touch(first));
        left.windows(2).for_each(|pair| self.link(pair[0], pair[1]));
        self.rows.shrink();
        self.chain_is_current = false;
    }

    /// Puts `to` at the front of the successors of `from`, and makes both the newest of their rows.
    fn link(&mut self, from: u32, to: u32) {
        self.touch(to);
        self.forgot |= self.rows.link(from, to, self.geometry);
    }
    /// Makes `block` the newest of its row.
    fn touch(&mut self, block: u32) {
        self.forgot |= self.rows.touch(block, self.geometry);
    }

    /// The blocks this execution is expected to need, in the order of need. See the module.
    pub fn chain(&mut self) -> &Runs {
        if !self.chain_is_current {
            let mut chain = std::mem::take(&mut self.chain);
            chain.clear();
            let mut seen = vec![false; self.rows.slots()];
            if let Some(start) = self.start() {
                self.follow(start, &mut seen, &mut chain);
            }
            let entries = seen.iter().enumerate().map(|(slot, seen)| (self.rows.tag(slot), *seen));
            let mut cut_off: Vec<u32> = entries.filter(|&(n, seen)| n != NONE && !seen).map(|(n, _)| n).collect();
            cut_off.sort_unstable();
            for block in cut_off {
                self.follow(StableBlock(block), &mut seen, &mut chain);
            }
            if self.settled {
                chain.shrink();
            }
            self.chain = chain;
            self.chain_is_current = true;
        }
        &self.chain
    }

    /// [`Self::chain`], and what is known about its blocks.
    pub fn chain_and_proof(&mut self) -> (&Runs, &Proof) {
        self.chain();
        (&self.chain, &self.proof)
    }

    /// What is known about its blocks.
    pub fn proof(&self) -> &Proof {
        &self.proof
    }

    /// Depth first, newest successor first, leaving out entries that were `seen`.
    fn follow(&self, from: StableBlock, seen: &mut [bool], out: &mut Runs) {
        let mut ahead: Vec<u32> = vec![from.0];
        while let Some(block) = ahead.pop() {
            let Some(slot) = self.rows.find(block, self.geometry) else {
                // Its row forgot it; the link to it is all we know.
                if !out.has(StableBlock(block)) {
                    out.push(StableBlock(block));
                }
                continue;
            };
            if std::mem::replace(&mut seen[slot], true) {
                continue;
            }
            out.push(StableBlock(block));
            ahead.extend(self.rows.successors(slot).as_slice().iter().rev());
        }
    }

    /// What there is beside the entries.
    pub(super) fn state(&self) -> State {
        let taken = (0..self.rows.slots()).filter(|&slot| self.rows.tag(slot) != NONE).count();
        let blocks = u32::try_from(taken).expect("a geometry holds at most 2^20 blocks");
        State { start: self.start, end: self.end, settled: self.settled, blocks }
    }

    /// Every block with its successors: row by row, and in each the newest first.
    pub(super) fn entries(&self, mut visit: impl FnMut(u32, &[u32])) {
        for slot in (0..self.rows.slots()).filter(|&slot| self.rows.tag(slot) != NONE) {
            visit(self.rows.tag(slot), self.rows.successors(slot).as_slice());
        }
    }

    /// The table that has this state and these entries, given as [`Self::entries`] does.
    pub(super) fn restored(geometry: Geometry, ends: (u32, u32), settled: bool, entries: Vec<(u32, Vec<u32>)>) -> Self {
        let mut table = Self {
            start: ends.0,
            end: ends.1,
            settled,
            chain_is_current: false,
            proof: Proof::taken_over(),
            ..Self::new(geometry)
        };
        for (block, successors) in entries.into_iter().rev() {
            table.rows.touch(block, geometry);
            for next in successors.into_iter().rev() {
                table.rows.link(block, next, geometry);
            }
        }
        let named = |table: &Self, slot| {
            let names = table.rows.successors(slot);
            names.as_slice().iter().any(|&next| table.rows.find(next, geometry).is_none())
        };
        table.forgot = (0..table.rows.slots()).any(|slot| named(&table, slot));
        table.rows.shrink();
        table
    }

    /// Memory of the table.
    pub fn bytes(&self) -> Bytes {
        Bytes((size_of::<Self>() + self.rows.bytes() + self.proof.bytes() + self.chain.bytes()) as u64)
    }
}

#[cfg(test)]
mod tests;
