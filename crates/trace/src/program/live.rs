//! Pieces of address space that do not overlap. A new one takes the place of whatever it overlaps: the newest report wins.

use deepum_core::units::{AddrRange, Bytes, DevAddr};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug)]
pub(super) struct Live<T>(BTreeMap<DevAddr, (Bytes, T)>);

impl<T> Default for Live<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Live<T> {
    /// Puts a piece there, and gives back what it overlaps. One of no bytes is nowhere.
    pub(super) fn insert(&mut self, range: AddrRange, what: T) -> Vec<T> {
        let gone = self.remove(range);
        if !range.is_empty() {
            self.0.insert(range.start, (range.len, what));
        }
        gone
    }
    /// Takes away every piece of which a byte is in the range.
    pub(super) fn remove(&mut self, range: AddrRange) -> Vec<T> {
        let starts: Vec<DevAddr> = self.overlapping(range).map(|(piece, _)| piece.start).collect();
        starts.into_iter().filter_map(|start| self.0.remove(&start)).map(|(_, what)| what).collect()
    }
    /// Every piece of which a byte is in the range, highest first.
    pub(super) fn overlapping(&self, range: AddrRange) -> impl Iterator<Item = (AddrRange, &T)> {
        let end = if range.is_empty() { range.start } else { range.end() };
        let pieces = self.0.range(..end).rev().map(|(start, (len, what))| (AddrRange::new(*start, *len), what));
        pieces.take_while(move |(piece, _)| piece.end() > range.start && !range.is_empty())
    }
    /// All pieces, lowest first.
    pub(super) fn all(&self) -> impl Iterator<Item = (AddrRange, &T)> {
        self.0.iter().map(|(start, (len, what))| (AddrRange::new(*start, *len), what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_piece_takes_the_place_of_all_it_overlaps_and_of_no_neighbour() {
        let range = |start, len| AddrRange::new(DevAddr(start), Bytes(len));
        let mut live = Live::default();
        assert!(live.insert(range(0, 100), "segment").is_empty());
        assert_eq!(live.insert(range(10, 10), "a"), ["segment"]);
        assert!(live.insert(range(20, 10), "b").is_empty() && live.insert(range(30, 10), "c").is_empty());
        assert!(live.insert(range(50, 0), "nothing").is_empty());
        let over: Vec<_> = live.overlapping(range(19, 2)).map(|(_, what)| *what).collect();
        assert_eq!(over, ["b", "a"]);
        assert_eq!((live.overlapping(range(20, 0)).count(), live.overlapping(range(40, 9)).count()), (0, 0));
        assert_eq!(live.insert(range(25, 10), "d"), ["c", "b"]);
        assert_eq!(live.all().map(|(piece, _)| piece).collect::<Vec<_>>(), [range(10, 10), range(25, 10)]);
        assert_eq!(live.remove(range(0, 26)), ["d", "a"]);
    }
}
