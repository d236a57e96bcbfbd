//! A set of block numbers, as ranges.
//!
//! Blocks get their numbers in the order of their addresses within an allocation ([`super::places`]), so what a launch names is a few ranges: two
//! words each, however long they are.
//!
//! Invariants: ranges are in order, none is empty, and between two of them is at least one number that is not in the set.

/// See the module.
#[derive(Default, Debug)]
pub(super) struct Ranges {
    /// First and last number of each.
    list: Vec<[u32; 2]>,
}

impl Ranges {
    /// The range that holds `number`, or else where one that does belongs.
    fn find(&self, number: u32) -> Result<usize, usize> {
        let at = self.list.partition_point(|&[_, last]| last < number);
        if self.list.get(at).is_some_and(|&[first, _]| first <= number) { Ok(at) } else { Err(at) }
    }
    /// Whether `number` is in the set.
    pub(super) fn has(&self, number: u32) -> bool {
        self.find(number).is_ok()
    }
    /// Puts `number` in.
    pub(super) fn insert(&mut self, number: u32) {
        let Err(at) = self.find(number) else { return };
        let touches_left = at > 0 && self.list[at - 1][1].checked_add(1) == Some(number);
        let touches_right = self.list.get(at).is_some_and(|&[first, _]| number.checked_add(1) == Some(first));
        match (touches_left, touches_right) {
            (true, true) => {
                self.list[at - 1][1] = self.list[at][1];
                self.list.remove(at);
            }
            (true, false) => self.list[at - 1][1] = number,
            (false, true) => self.list[at][0] = number,
            (false, false) => self.list.insert(at, [number, number]),
        }
    }
    /// Takes `number` out. Returns whether it was in.
    pub(super) fn remove(&mut self, number: u32) -> bool {
        let Ok(at) = self.find(number) else { return false };
        let [first, last] = self.list[at];
        match (number == first, number == last) {
            (true, true) => drop(self.list.remove(at)),
            (true, false) => self.list[at][0] = number + 1,
            (false, true) => self.list[at][1] = number - 1,
            (false, false) => {
                self.list[at][1] = number - 1;
                self.list.insert(at + 1, [number + 1, last]);
            }
        }
        true
    }
    /// Gives back room that nothing is in.
    pub(super) fn shrink(&mut self) {
        self.list.shrink_to_fit();
    }
    /// Heap memory.
    pub(super) fn bytes(&self) -> usize {
        self.list.capacity() * size_of::<[u32; 2]>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set_in_as_few_ranges_as_there_are(
            ops in prop::collection::vec((any::<bool>(), prop_oneof![0u32..40, u32::MAX - 4..=u32::MAX]), 0..200),
        ) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (put, number) in ops {
                if put {
                    ranges.insert(number);
                    set.insert(number);
                } else {
                    prop_assert_eq!(ranges.remove(number), set.remove(&number));
                }
                let all: Vec<u32> = ranges.list.iter().flat_map(|&[first, last]| first..=last).collect();
                prop_assert_eq!(&all, &set.iter().copied().collect::<Vec<_>>());
                prop_assert!(ranges.list.windows(2).all(|pair| u64::from(pair[0][1]) + 1 < u64::from(pair[1][0])));
                prop_assert_eq!(ranges.has(number), set.contains(&number));
            }
        }
    }
}
