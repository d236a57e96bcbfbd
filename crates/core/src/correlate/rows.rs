//! The rows of a UM-block table, in both layouts.
//!
//! A table is a cache: a block's row is given by the low bits of its number, a row holds as many blocks as there are ways, and
//! of each block the successors seen last. What is learned last is newest; a full row forgets its oldest block, a full list
//! its oldest successor. That is all a layout has to keep, so the two differ in memory alone:
//!
//! ```text
//! paper     row 0: [tag s s s s][tag s s s s]  row 1: …     every slot is there from the start
//! compact   tags ordered by row, in it newest first; a bit says that the next number is what follows
//!           (tag, successor) where something else does, by tag, newest first
//! ```
//!
//! **Compact.** Most blocks have one successor, which is the block behind them, for kernels go through their operands from front to end. Such
//! a block takes four bytes, and each successor of another one eight more. Finding is a binary search, and learning shifts what lies behind;
//! a table of the default geometry that is full is 16 KiB of tags to shift, and up to 128 KiB of lists, and learning ends with the first iterations.
//!
//! Not here: what is learned, and the walk through it ([`super::BlockTable`]).

use super::geometry::MOST_SUCCESSORS;
use super::{Geometry, Layout};
use std::ops::Range;

/// No block.
pub(super) const NONE: u32 = u32::MAX;
/// The greatest number of a block: [`super::places`] gives none near it.
pub(super) const MOST: u32 = u32::MAX >> 2;
/// Of a block: the next number is its one successor.
const FOLLOWED: u32 = 1 << 31;

/// Successors of one block, newest first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Successors {
    list: [u32; MOST_SUCCESSORS],
    len: usize,
}

impl Successors {
    fn new(of: impl Iterator<Item = u32>) -> Self {
        let mut all = Self { list: [NONE; MOST_SUCCESSORS], len: 0 };
        for (place, successor) in all.list.iter_mut().zip(of) {
            *place = successor;
            all.len += 1;
        }
        all
    }
    pub(super) fn as_slice(&self) -> &[u32] {
        &self.list[..self.len]
    }
}

/// See the module. A *slot* is the place of a block; it is good until something is learned.
#[derive(Debug)]
pub(super) enum Rows {
    Compact(Compact),
    Paper(Paper),
}

impl Rows {
    pub(super) fn new(geometry: Geometry) -> Self {
        match geometry.layout() {
            Layout::Compact => Self::Compact(Compact::default()),
            Layout::Paper => Self::Paper(Paper::new(geometry)),
        }
    }
    /// Slots there are, taken or not.
    pub(super) fn slots(&self) -> usize {
        match self {
            Self::Compact(rows) => rows.tags.len(),
            Self::Paper(rows) => rows.words.len() / rows.stride,
        }
    }
    /// The block in a slot, or [`NONE`].
    pub(super) fn tag(&self, slot: usize) -> u32 {
        match self {
            Self::Compact(rows) => tag(rows.tags[slot]),
            Self::Paper(rows) => rows.words[slot * rows.stride],
        }
    }
    /// The slot of `block`.
    pub(super) fn find(&self, block: u32, geometry: Geometry) -> Option<usize> {
        match self {
            Self::Compact(rows) => rows.row(block, geometry).find(|&at| tag(rows.tags[at]) == block),
            Self::Paper(rows) => rows.row(block, geometry).find(|&at| rows.words[at * rows.stride] == block),
        }
    }
    /// What followed the block in `slot`.
    pub(super) fn successors(&self, slot: usize) -> Successors {
        match self {
            Self::Compact(rows) => rows.successors(slot),
            Self::Paper(rows) => {
                let list = &rows.words[slot * rows.stride + 1..(slot + 1) * rows.stride];
                Successors::new(list.iter().copied().take_while(|&next| next != NONE))
            }
        }
    }
    /// Makes `block` the newest of its row; it is there now. Returns whether another one is not for that.
    pub(super) fn touch(&mut self, block: u32, geometry: Geometry) -> bool {
        let (_, forgot) = match self {
            Self::Compact(rows) => rows.touch(block, geometry),
            Self::Paper(rows) => rows.touch(block, geometry),
        };
        forgot
    }
    /// Makes `from` the newest of its row, and `to` its newest successor. Returns whether another block is not there any more.
    pub(super) fn link(&mut self, from: u32, to: u32, geometry: Geometry) -> bool {
        match self {
            Self::Compact(rows) => rows.link(from, to, geometry),
            Self::Paper(rows) => rows.link(from, to, geometry),
        }
    }
    /// Whether `block` is there, or named by a successor list. Reads everything.
    pub(super) fn names(&self, block: u32) -> bool {
        match self {
            Self::Compact(rows) => rows.names(block),
            Self::Paper(rows) => any(&rows.words, |word| word == block),
        }
    }
    /// Gives back room that nothing is in.
    pub(super) fn shrink(&mut self) {
        if let Self::Compact(rows) = self {
            rows.tags.shrink_to_fit();
            rows.lists.shrink_to_fit();
        }
    }
    /// Heap memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Compact(rows) => {
                rows.tags.capacity() * size_of::<u32>() + rows.lists.capacity() * size_of::<[u32; 2]>()
            }
            Self::Paper(rows) => rows.words.capacity() * size_of::<u32>(),
        }
    }
}

/// The block of a word.
fn tag(word: u32) -> u32 {
    word & !FOLLOWED
}

/// Room for what is in it.
#[derive(Default, Debug)]
pub(super) struct Compact {
    /// Blocks by row, within a row newest first; [`FOLLOWED`] where that says what follows.
    tags: Vec<u32>,
    /// The others with a successor each, by block; of one block newest first.
    lists: Vec<[u32; 2]>,
}

impl Compact {
    fn row(&self, block: u32, geometry: Geometry) -> Range<usize> {
        let row = |block: u32| block & (geometry.rows() - 1);
        let first = self.tags.partition_point(|&word| row(word) < row(block));
        let taken = self.tags[first..].iter().take(geometry.ways() as usize);
        first..first + taken.take_while(|&&word| row(word) == row(block)).count()
    }
    /// Where the successors of `block` are, if they are listed.
    fn list(&self, block: u32) -> Range<usize> {
        let first = self.lists.partition_point(|&[tag, _]| tag < block);
        first..first + self.lists[first..].iter().take_while(|&&[tag, _]| tag == block).count()
    }
    fn successors(&self, slot: usize) -> Successors {
        let word = self.tags[slot];
        if word & FOLLOWED != 0 {
            return Successors::new(std::iter::once(tag(word) + 1));
        }
        Successors::new(self.lists[self.list(word)].iter().map(|&[_, next]| next))
    }
    fn names(&self, block: u32) -> bool {
        let before = block.wrapping_sub(1) | FOLLOWED;
        any(&self.tags, |word| (tag(word) == block) | (word == before))
            || any(self.lists.as_flattened(), |word| word == block)
    }
    /// The slot of `block`, and whether another block is not there any more.
    fn touch(&mut self, block: u32, geometry: Geometry) -> (usize, bool) {
        let row = self.row(block, geometry);
        let first = row.start;
        if let Some(at) = row.clone().find(|&at| tag(self.tags[at]) == block) {
            self.tags[first..=at].rotate_right(1);
        } else if row.len() < geometry.ways() as usize {
            self.tags.insert(first, block);
        } else {
            self.lists.drain(self.list(tag(self.tags[row.end - 1])));
            self.tags[row].rotate_right(1);
            self.tags[first] = block;
            return (first, true);
        }
        (first, false)
    }
    fn link(&mut self, from: u32, to: u32, geometry: Geometry) -> bool {
        let (at, forgot) = self.touch(from, geometry);
        let (mut list, is_next) = (self.list(from), from + 1 == to);
        if self.tags[at] & FOLLOWED != 0 {
            if is_next {
                return forgot;
            }
            self.tags[at] = from;
            self.lists.insert(list.start, [from, from + 1]);
            list.end += 1;
        } else if is_next && list.is_empty() {
            self.tags[at] |= FOLLOWED;
            return forgot;
        }
        match self.lists[list.clone()].iter().position(|&[_, next]| next == to) {
            Some(place) => self.lists[list.start..=list.start + place].rotate_right(1),
            None if list.len() < geometry.successors() as usize => self.lists.insert(list.start, [from, to]),
            None => self.lists[list.clone()].rotate_right(1),
        }
        self.lists[list.start] = [from, to];
        forgot
    }
}

/// Room for everything.
#[derive(Debug)]
pub(super) struct Paper {
    /// `rows * ways` slots of a tag and its successors newest first; within a row the slots are newest first, and vacant
    /// ones last.
    words: Vec<u32>,
    stride: usize,
}

impl Paper {
    fn new(geometry: Geometry) -> Self {
        let stride = 1 + geometry.successors() as usize;
        Self { words: vec![NONE; stride * geometry.ways() as usize * geometry.rows() as usize], stride }
    }
    /// Slots of the row of `block`.
    #[allow(clippy::unused_self, reason = "as the other layout has it")]
    fn row(&self, block: u32, geometry: Geometry) -> Range<usize> {
        let ways = geometry.ways() as usize;
        let first = (block & (geometry.rows() - 1)) as usize * ways;
        first..first + ways
    }
    fn touch(&mut self, block: u32, geometry: Geometry) -> (usize, bool) {
        let row = self.row(block, geometry);
        let (first, last) = (row.start * self.stride, row.end - 1);
        let at = row.clone().find(|&at| [block, NONE].contains(&self.words[at * self.stride])).unwrap_or(last);
        self.words[first..(at + 1) * self.stride].rotate_right(self.stride);
        let before = self.words[first];
        if before != block {
            self.words[first..first + self.stride].fill(NONE);
            self.words[first] = block;
        }
        (row.start, ![block, NONE].contains(&before))
    }
    fn link(&mut self, from: u32, to: u32, geometry: Geometry) -> bool {
        let (at, forgot) = self.touch(from, geometry);
        let at = at * self.stride;
        let list = &mut self.words[at + 1..at + self.stride];
        let place = list.iter().position(|&next| next == to).unwrap_or(list.len() - 1);
        list[..=place].rotate_right(1);
        list[0] = to;
        forgot
    }
}

/// Whether one of the words `is` it: all of a piece are asked before looking at the answer, many at a time.
fn any(words: &[u32], is: impl Fn(u32) -> bool) -> bool {
    let (pieces, rest) = words.as_chunks::<64>();
    let found = |words: &[u32]| words.iter().fold(0, |found, &word| found | u32::from(is(word))) != 0;
    pieces.iter().any(|piece| found(piece)) || found(rest)
}
