//! Marked launches ahead, of which the first and the last are found at once.
//!
//! A bit for each place of the ring that launches ahead have, and one for each word of bits that is not empty; so no question looks at more than a few words. Like [`Need`](super::need::Need)'s
//! it is a ring: places of launches that are over are used again, and questions say from which launch on it is read.

use super::need::SPAN;

const WORDS: usize = SPAN / 64;
const GROUPS: usize = WORDS / 64;

/// See the module.
#[derive(Debug)]
pub struct Marks {
    places: Box<[u64; WORDS]>,
    /// Which words of it are not empty.
    words: [u64; GROUPS],
}

impl Default for Marks {
    fn default() -> Self {
        Self { places: Box::new([0; WORDS]), words: [0; GROUPS] }
    }
}

impl Marks {
    /// Memory they take.
    pub const BYTES: usize = size_of::<[u64; WORDS]>();

    /// Marks a place.
    pub fn insert(&mut self, place: usize) {
        let word = place / 64;
        self.places[word] |= 1 << (place % 64);
        self.words[word / 64] |= 1 << (word % 64);
    }
    /// Takes its mark away.
    pub fn remove(&mut self, place: usize) {
        let word = place / 64;
        self.places[word] &= !(1 << (place % 64));
        if self.places[word] == 0 {
            self.words[word / 64] &= !(1 << (word % 64));
        }
    }
    /// The first that is marked, all round from this place on.
    pub fn first(&self, from: usize) -> Option<usize> {
        self.since(from).or_else(|| self.since(0))
    }
    /// The last that is marked, all round from this place on.
    pub fn last(&self, from: usize) -> Option<usize> {
        self.before(from).or_else(|| self.before(SPAN))
    }
    /// All that are marked, all round from this place on.
    pub fn all(&self, from: usize) -> impl Iterator<Item = usize> + '_ {
        let run = |from| std::iter::successors(self.since(from), |&place| self.since(place + 1));
        run(from).chain(run(0).take_while(move |&place| place < from))
    }

    /// The first from this place to the end of the ring, which it may be.
    fn since(&self, from: usize) -> Option<usize> {
        let word = from / 64;
        let here = self.places.get(word)? & (!0 << (from % 64));
        if here != 0 {
            return Some(word * 64 + lowest(here));
        }
        let after = word + 1;
        let same = self.words.get(after / 64)? & (!0 << (after % 64));
        let next = (after / 64 + 1..GROUPS).map(|group| (group, self.words[group]));
        let (group, words) = std::iter::once((after / 64, same)).chain(next).find(|&(_, words)| words != 0)?;
        let word = group * 64 + lowest(words);
        Some(word * 64 + lowest(self.places[word]))
    }

    /// The last before this place, which may be the end of the ring.
    fn before(&self, to: usize) -> Option<usize> {
        let word = to / 64;
        let here = self.places.get(word).map_or(0, |places| places & !(!0 << (to % 64)));
        if here != 0 {
            return Some(word * 64 + highest(here));
        }
        let same = self.words.get(word / 64).map_or(0, |words| words & !(!0 << (word % 64)));
        let next = (0..word / 64).rev().map(|group| (group, self.words[group]));
        let (group, words) = std::iter::once((word / 64, same)).chain(next).find(|&(_, words)| words != 0)?;
        let word = group * 64 + highest(words);
        Some(word * 64 + highest(self.places[word]))
    }
}

fn lowest(word: u64) -> usize {
    word.trailing_zeros() as usize
}

fn highest(word: u64) -> usize {
    word.ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// At both ends of the ring, of a word, and of a group of words, and anywhere.
    fn place() -> impl Strategy<Value = usize> {
        let edges = [0, 1, 63, 64, 64 * 64 - 1, 64 * 64, SPAN / 2, SPAN - 64, SPAN - 1];
        prop_oneof![prop::sample::select(edges.to_vec()), 0..SPAN]
    }

    proptest! {
        #[test]
        fn the_first_and_the_last_are_those_of_a_sorted_set(
            changes in prop::collection::vec((place(), any::<bool>()), 0..40),
            from in place(),
        ) {
            let (mut marks, mut plain) = (Marks::default(), BTreeSet::new());
            for (place, marked) in changes {
                if marked {
                    marks.insert(place);
                    plain.insert(place);
                } else {
                    marks.remove(place);
                    plain.remove(&place);
                }
                let round: Vec<_> = plain.range(from..).chain(plain.range(..from)).copied().collect();
                prop_assert_eq!(marks.all(from).collect::<Vec<_>>(), round.clone());
                prop_assert_eq!((marks.first(from), marks.last(from)), (round.first().copied(), round.last().copied()));
            }
        }
    }
}
