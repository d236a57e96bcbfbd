//! A list of block numbers in a given order, as runs of ascending ones.
//!
//! The blocks a launch needs come in few runs, for it goes through its operands from front to end: two words each, however long they are. A list
//! that jumps about takes twice the memory of a plain one.
//!
//! Invariant: a number that is one more than the one before it is in the same run.

use super::StableBlock;
use std::ops::Range;

/// See the module.
#[derive(Default, Debug)]
pub struct Runs {
    list: Vec<Run>,
}

/// Numbers from `first` on.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u32,
    /// The index behind its last one. It begins where the run before it ends.
    end: u32,
}

impl Runs {
    /// How many numbers there are.
    pub fn len(&self) -> usize {
        self.list.last().map_or(0, |run| run.end as usize)
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
    /// The number at `index`.
    pub fn get(&self, index: usize) -> Option<StableBlock> {
        let index = u32::try_from(index).ok()?;
        let run = self.list.partition_point(|run| run.end <= index);
        let first = self.list.get(run)?.first;
        Some(StableBlock(first + (index - self.begin(run))))
    }
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = StableBlock> {
        (0..self.list.len()).flat_map(|run| self.numbers(run)).map(StableBlock)
    }
    /// The index of the first number of a run.
    fn begin(&self, run: usize) -> u32 {
        if run == 0 { 0 } else { self.list[run - 1].end }
    }
    fn numbers(&self, run: usize) -> Range<u32> {
        let Run { first, end } = self.list[run];
        first..first + (end - self.begin(run))
    }
    /// Whether it is among them. Reads all runs.
    pub(super) fn has(&self, StableBlock(number): StableBlock) -> bool {
        (0..self.list.len()).any(|run| self.numbers(run).contains(&number))
    }
    /// Puts one behind the others; not [`super::rows::NONE`].
    pub(super) fn push(&mut self, StableBlock(number): StableBlock) {
        let goes_on = self.list.len().checked_sub(1).is_some_and(|run| self.numbers(run).end == number);
        match self.list.last_mut() {
            Some(run) if goes_on => run.end += 1,
            last => {
                let end = last.map_or(0, |run| run.end) + 1;
                self.list.push(Run { first: number, end });
            }
        }
    }
    /// Takes all out.
    pub(super) fn clear(&mut self) {
        self.list.clear();
    }
    /// Gives back room that nothing is in.
    pub(super) fn shrink(&mut self) {
        self.list.shrink_to_fit();
    }
    /// Heap memory.
    pub(super) fn bytes(&self) -> usize {
        self.list.capacity() * size_of::<Run>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_list_in_as_few_runs_as_there_are(
            numbers in prop::collection::vec(prop_oneof![0u32..6, u32::MAX - 4..u32::MAX], 0..200),
        ) {
            let mut runs = Runs::default();
            numbers.iter().for_each(|&number| runs.push(StableBlock(number)));
            prop_assert_eq!(runs.iter().map(|block| block.0).collect::<Vec<_>>(), numbers.clone());
            let got: Vec<u32> = (0..).map_while(|index| runs.get(index)).map(|block| block.0).collect();
            prop_assert_eq!(&got, &numbers);
            prop_assert_eq!(runs.len(), numbers.len());
            prop_assert_eq!(runs.get(usize::MAX), None);
            let breaks = numbers.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count();
            prop_assert_eq!(runs.list.len(), if numbers.is_empty() { 0 } else { breaks + 1 });
            for number in 0..8 {
                prop_assert_eq!(runs.has(StableBlock(number)), numbers.contains(&number));
            }
        }
    }
}
