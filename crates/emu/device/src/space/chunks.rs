//! How managed memory gets its addresses: out of chunks, as a driver has been seen to do it (facts 4.6).
//!
//! What is asked for has as many new chunks as it needs, unless it fits into what others left of theirs. A chunk is free again when the last that lies in it is: until
//! then nothing else can be where one of them was.

use std::collections::BTreeMap;

use super::GRANULE;
use super::ranges::FreeRanges;

const CHUNK: u64 = 32 << 20;
/// What is left of the chunks that were taken together, by their start.
#[derive(Debug, Default)]
pub struct Chunks(BTreeMap<u64, Taken>);

#[derive(Debug)]
struct Taken {
    len: u64,
    left: FreeRanges,
}

impl Chunks {
    /// Addresses for `len` bytes, which are whole UM blocks; new chunks come out of `free`.
    pub fn take(&mut self, free: &mut FreeRanges, len: u64) -> Option<u64> {
        if let Some(at) = self.0.values_mut().find_map(|taken| taken.left.take(len, GRANULE)) {
            return Some(at);
        }
        let whole = len.checked_next_multiple_of(CHUNK)?;
        let start = free.take(whole, CHUNK)?;
        let taken = self.0.entry(start).or_insert_with(|| Taken { len: whole, left: FreeRanges::new(start, whole) });
        taken.left.take(len, GRANULE)
    }

    /// What [`Self::take`] gave goes back.
    pub fn give(&mut self, free: &mut FreeRanges, start: u64, len: u64) {
        let Some((&at, taken)) = self.0.range_mut(..=start).next_back() else { return };
        taken.left.give(start, len);
        if taken.left.is_empty() {
            free.give(at, taken.len);
            self.0.remove(&at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 7 * CHUNK;
    const MIB: u64 = 1 << 20;

    #[test]
    fn what_fits_into_what_others_left_lies_there_and_a_chunk_is_free_when_all_of_it_is() {
        let (mut free, mut chunks) = (FreeRanges::new(BASE, 8 * CHUNK), Chunks::default());
        let mut take = |mib| chunks.take(&mut free, mib * MIB).map(|at| (at - BASE) / MIB);
        assert_eq!([2, 2, 32, 34, 20, 24, 64].map(&mut take), [0, 2, 32, 64, 4, 98, 128].map(Some));
        let is_free = |free: &FreeRanges, mib| free.clone().take_at(BASE + mib * MIB, CHUNK).is_some();
        chunks.give(&mut free, BASE + 32 * MIB, 32 * MIB);
        assert!(is_free(&free, 32), "its own chunk, whole");
        chunks.give(&mut free, BASE + 64 * MIB, 34 * MIB);
        assert!(!is_free(&free, 64) && !is_free(&free, 96), "another lives in what it left");
        chunks.give(&mut free, BASE + 98 * MIB, 24 * MIB);
        assert!(is_free(&free, 64) && is_free(&free, 96));
        for (at, len) in [(0, 2), (2, 2)] {
            chunks.give(&mut free, BASE + at * MIB, len * MIB);
            assert!(!is_free(&free, 0));
        }
        chunks.give(&mut free, BASE + 4 * MIB, 20 * MIB);
        assert!(is_free(&free, 0));
        chunks.give(&mut free, BASE + 128 * MIB, 64 * MIB);
        assert_eq!(free.take(8 * CHUNK, CHUNK), Some(BASE), "nothing is lost");
    }
}
