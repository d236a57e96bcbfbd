//! How managed memory gets its addresses: out of chunks, as a driver has been seen to do it (facts 4.6).
//!
//! A large allocation has chunks of its own. Small ones lie beside each other in one, which is free again when the last of them is: until
//! then nothing else can be where one of them was. (Between 2 and 20 MiB nothing was tried on a driver; here they are small.)

use std::collections::BTreeMap;

use super::GRANULE;
use super::ranges::FreeRanges;

const CHUNK: u64 = 32 << 20;
/// From this size on an allocation shares no chunk.
const LARGE: u64 = 20 << 20;

/// The chunks that small allocations share, by their start.
#[derive(Debug, Default)]
pub struct Chunks(BTreeMap<u64, FreeRanges>);

impl Chunks {
    /// Addresses for `len` bytes, which are whole UM blocks; new chunks come out of `free`.
    pub fn take(&mut self, free: &mut FreeRanges, len: u64) -> Option<u64> {
        if len >= LARGE {
            return free.take(len.checked_next_multiple_of(CHUNK)?, CHUNK);
        }
        if let Some(at) = self.0.values_mut().find_map(|chunk| chunk.take(len, GRANULE)) {
            return Some(at);
        }
        let start = free.take(CHUNK, CHUNK)?;
        let chunk = self.0.entry(start).or_insert_with(|| FreeRanges::new(start, CHUNK));
        chunk.take(len, GRANULE)
    }

    /// What [`Self::take`] gave goes back.
    pub fn give(&mut self, free: &mut FreeRanges, start: u64, len: u64) {
        if len >= LARGE {
            return free.give(start, len.next_multiple_of(CHUNK));
        }
        let Some((&at, chunk)) = self.0.range_mut(..=start).next_back() else { return };
        chunk.give(start, len);
        if chunk.is_empty() {
            self.0.remove(&at);
            free.give(at, CHUNK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 7 * CHUNK;
    const MIB: u64 = 1 << 20;

    #[test]
    fn small_allocations_share_a_chunk_and_large_ones_have_their_own() {
        let (mut free, mut chunks) = (FreeRanges::new(BASE, 8 * CHUNK), Chunks::default());
        let mut take = |mib| chunks.take(&mut free, mib * MIB).map(|at| (at - BASE) / MIB);
        assert_eq!([2, 2, 20, 34, 4, 18, 16].map(&mut take), [0, 2, 32, 64, 4, 8, 128].map(Some));
        assert_eq!(take(2), Some(26), "what is left of the first");
        let is_free = |free: &FreeRanges, mib| free.clone().take_at(BASE + mib * MIB, CHUNK).is_some();
        chunks.give(&mut free, BASE + 32 * MIB, 20 * MIB);
        assert!(is_free(&free, 32), "its own chunk, whole");
        for (at, len) in [(0, 2), (2, 2), (4, 4), (8, 18)] {
            chunks.give(&mut free, BASE + at * MIB, len * MIB);
            assert!(!is_free(&free, 0), "others live there");
        }
        chunks.give(&mut free, BASE + 26 * MIB, 2 * MIB);
        assert!(is_free(&free, 0));
    }
}
