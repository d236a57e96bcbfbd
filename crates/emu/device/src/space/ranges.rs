//! Which part of a piece of address space is free: first fit, lowest address first, so that the same requests
//! in the same order give the same addresses.

use std::collections::BTreeMap;

/// Free ranges inside `[base, base + len)`, kept merged.
#[derive(Clone, Debug)]
pub struct FreeRanges {
    base: u64,
    len: u64,
    free: BTreeMap<u64, u64>,
}

impl FreeRanges {
    /// All of `[base, base + len)` is free.
    pub fn new(base: u64, len: u64) -> Self {
        Self { base, len, free: BTreeMap::from([(base, len)]) }
    }

    /// Takes `len` bytes (not 0) at a multiple of `align` (a power of two), or says that no hole is large enough.
    pub fn take(&mut self, len: u64, align: u64) -> Option<u64> {
        let (hole, size, start) = self.free.iter().find_map(|(&hole, &size)| {
            let start = hole.checked_next_multiple_of(align)?;
            (start.checked_add(len)? <= hole + size).then_some((hole, size, start))
        })?;
        self.cut(hole, size, start, len);
        Some(start)
    }

    /// Takes exactly `len` bytes at `start`, or says that they are not all free.
    pub fn take_at(&mut self, start: u64, len: u64) -> Option<()> {
        let (&hole, &size) = self.free.range(..=start).next_back()?;
        (start.checked_add(len)? <= hole + size).then(|| self.cut(hole, size, start, len))
    }

    /// Whether `start` is an address of this piece, free or not.
    pub fn holds(&self, start: u64) -> bool {
        (self.base..self.base + self.len).contains(&start)
    }

    fn cut(&mut self, hole: u64, size: u64, start: u64, len: u64) {
        self.free.remove(&hole);
        if start > hole {
            self.free.insert(hole, start - hole);
        }
        if start + len < hole + size {
            self.free.insert(start + len, hole + size - start - len);
        }
    }

    /// Gives back what `take` gave.
    pub fn give(&mut self, start: u64, len: u64) {
        let (mut start, mut len) = (start, len);
        if let Some((&before, &size)) = self.free.range(..start).next_back()
            && before + size == start
        {
            self.free.remove(&before);
            start = before;
            len += size;
        }
        if let Some(size) = self.free.remove(&(start + len)) {
            len += size;
        }
        self.free.insert(start, len);
    }

    /// Whether nothing is taken.
    pub fn is_empty(&self) -> bool {
        self.free.get(&self.base) == Some(&self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The obvious oracle: one flag per byte.
        #[test]
        fn takes_the_lowest_hole_that_fits(ops in proptest::collection::vec((0u64..40, 0u32..4, any::<bool>()), 1..80)) {
            let (base, len) = (16u64, 128u64);
            let mut ranges = FreeRanges::new(base, len);
            let mut used = [false; 128];
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (size, align, free) in ops {
                if free && !live.is_empty() {
                    let (at, n) = live.remove(usize::try_from(size).unwrap() % live.len());
                    ranges.give(at, n);
                    for byte in at..at + n { used[crate::word(byte - base)] = false; }
                } else {
                    let (size, align) = (size + 1, 1u64 << align);
                    let want = (base..=base + len - size.min(len)).find(|at| at % align == 0
                        && at + size <= base + len
                        && (*at..at + size).all(|b| !used[crate::word(b - base)]));
                    prop_assert_eq!(ranges.take(size, align), want);
                    if let Some(at) = want {
                        for byte in at..at + size { used[crate::word(byte - base)] = true; }
                        live.push((at, size));
                    }
                }
                prop_assert_eq!(ranges.is_empty(), used.iter().all(|u| !u));
            }
        }

        #[test]
        fn takes_the_place_that_is_named_if_all_of_it_is_free(asked in proptest::collection::vec((10u64..160, 1u64..40), 1..40)) {
            let (base, len) = (16u64, 128u64);
            let mut ranges = FreeRanges::new(base, len);
            let mut used = [false; 128];
            for (at, n) in asked {
                let free = at >= base && at + n <= base + len && (at..at + n).all(|b| !used[crate::word(b - base)]);
                prop_assert_eq!(ranges.take_at(at, n).is_some(), free);
                if free {
                    for byte in at..at + n { used[crate::word(byte - base)] = true; }
                }
            }
        }
    }
}
