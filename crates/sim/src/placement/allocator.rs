//! PyTorch's caching allocator, as far as it decides where tensors lie (`c10/cuda/CUDACachingAllocator.cpp`, with its default settings; facts 20).
//!
//! A request is rounded up to 512 bytes. Requests of up to 1 MiB are cut from segments of 2 MiB, larger ones from segments of 20 MiB, and those of
//! 10 MiB or more get a segment of their own, rounded up to 2 MiB. The smallest free block that is large enough is taken, of equal ones that with
//! the lowest address, and cut if what is left is worth it: 512 bytes in a small segment, more than 1 MiB in a large one. A block given back is
//! merged with free neighbours of its segment.
//!
//! Segments are not given back: PyTorch does that when `cudaMalloc` fails, and managed memory does not until the host is full. One pool: a trace does
//! not say which stream a tensor is of.

use deepum_core::units::{AddrRange, Bytes, DevAddr};
use std::collections::{BTreeMap, BTreeSet};

const ROUNDING: u64 = 512;
const SMALL: u64 = 1 << 20;
const SMALL_SEGMENT: u64 = 2 << 20;
const LARGE_SEGMENT: u64 = 20 << 20;
const OWN_SEGMENT: u64 = 10 << 20;
const SEGMENT_ROUNDING: u64 = 2 << 20;

/// See the module.
#[derive(Debug)]
pub struct Allocator {
    /// Where the next segment comes.
    top: u64,
    /// All of every segment, by start.
    blocks: BTreeMap<u64, Block>,
    /// Of small and of large segments: size and start.
    free: [BTreeSet<(u64, u64)>; 2],
}

#[derive(Clone, Copy, Debug)]
struct Block {
    len: u64,
    segment: u64,
    large: bool,
    free: bool,
}

impl Allocator {
    /// With segments from here on.
    #[must_use]
    pub fn new(base: DevAddr) -> Self {
        Self { top: base.0, blocks: BTreeMap::new(), free: Default::default() }
    }

    /// A block for so many bytes, and the segment that was made for it, if none had room.
    pub fn take(&mut self, wanted: Bytes) -> (AddrRange, Option<AddrRange>) {
        let len = wanted.0.max(1).next_multiple_of(ROUNDING);
        let large = len > SMALL;
        let fits = self.free[usize::from(large)].range((len, 0)..).next().copied();
        let mut segment = None;
        let (have, start) = fits.unwrap_or_else(|| {
            let whole = if !large {
                SMALL_SEGMENT
            } else if len < OWN_SEGMENT {
                LARGE_SEGMENT
            } else {
                len.next_multiple_of(SEGMENT_ROUNDING)
            };
            let start = self.top;
            self.top += whole;
            segment = Some(range(start, whole));
            self.blocks.insert(start, Block { len: whole, segment: start, large, free: true });
            self.free[usize::from(large)].insert((whole, start));
            (whole, start)
        });
        self.free[usize::from(large)].remove(&(have, start));
        let rest = have - len;
        let cut = if large { rest > SMALL } else { rest >= ROUNDING };
        if let Some(block) = self.blocks.get_mut(&start) {
            block.free = false;
            if cut {
                block.len = len;
                let rest = Block { len: rest, free: true, ..*block };
                self.blocks.insert(start + len, rest);
                self.free[usize::from(large)].insert((rest.len, start + len));
            }
        }
        (range(start, if cut { len } else { have }), segment)
    }

    /// Takes a block back; nothing if there is none in use that starts here.
    pub fn give_back(&mut self, start: DevAddr) -> Option<AddrRange> {
        let block = *self.blocks.get(&start.0).filter(|block| !block.free)?;
        let given = range(start.0, block.len);
        let mut whole = (start.0, block.len);
        let beside =
            |(&at, other): (&u64, &Block)| (other.free && other.segment == block.segment).then_some((at, other.len));
        if let Some((at, len)) = self.blocks.range(start.0 + 1..).next().and_then(beside) {
            self.forget(at, len, block.large);
            whole.1 += len;
        }
        if let Some((at, len)) = self.blocks.range(..start.0).next_back().and_then(beside) {
            self.forget(at, len, block.large);
            whole = (at, whole.1 + len);
        }
        self.blocks.remove(&start.0);
        self.blocks.insert(whole.0, Block { len: whole.1, free: true, ..block });
        self.free[usize::from(block.large)].insert((whole.1, whole.0));
        Some(given)
    }

    fn forget(&mut self, start: u64, len: u64, large: bool) {
        self.blocks.remove(&start);
        self.free[usize::from(large)].remove(&(len, start));
    }
}

const fn range(start: u64, len: u64) -> AddrRange {
    AddrRange::new(DevAddr(start), Bytes(len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BASE: u64 = 1 << 40;
    const MIB: u64 = 1 << 20;

    fn take(allocator: &mut Allocator, len: u64) -> (u64, u64, Option<u64>) {
        let (block, segment) = allocator.take(Bytes(len));
        (block.start.0 - BASE, block.len.0, segment.map(|segment| segment.len.0))
    }

    #[test]
    fn segments_are_as_large_as_pytorch_makes_them() {
        let mut a = Allocator::new(DevAddr(BASE));
        assert_eq!(take(&mut a, 1), (0, 512, Some(2 * MIB)));
        assert_eq!(take(&mut a, MIB), (512, MIB, None));
        assert_eq!(take(&mut a, MIB + 1), (2 * MIB, MIB + 512, Some(20 * MIB)));
        assert_eq!(take(&mut a, 10 * MIB - 512), (3 * MIB + 512, 10 * MIB - 512, None));
        // 9 MiB of the segment are left, and 10 MiB do not fit.
        assert_eq!(take(&mut a, 10 * MIB), (22 * MIB, 10 * MIB, Some(10 * MIB)));
        assert_eq!(take(&mut a, 11 * MIB - 1), (32 * MIB, 12 * MIB, Some(12 * MIB)), "1 MiB is too little to cut off");
    }

    #[test]
    fn what_is_left_is_cut_off_only_if_it_is_worth_it() {
        let mut a = Allocator::new(DevAddr(BASE));
        assert_eq!(take(&mut a, 12 * MIB - 512).1, 12 * MIB, "512 bytes of a large segment stay with the block");
        assert_eq!(take(&mut a, MIB - 512), (12 * MIB, MIB - 512, Some(2 * MIB)));
        assert_eq!(take(&mut a, MIB), (13 * MIB - 512, MIB, None));
        assert_eq!(take(&mut a, 512), (14 * MIB - 512, 512, None), "but not of a small one");
    }

    #[test]
    fn the_best_fit_is_taken_and_neighbours_are_merged() {
        let mut a = Allocator::new(DevAddr(BASE));
        let starts: Vec<u64> = [4, 2, 3, 2, 4, 5].map(|mib| take(&mut a, mib * MIB).0).to_vec();
        assert_eq!(starts, [0, 4, 6, 9, 11, 15].map(|mib| mib * MIB));
        for mib in [0, 6, 11] {
            a.give_back(DevAddr(BASE + mib * MIB)).unwrap();
        }
        // Free: 4 at 0, 3 at 6, 4 at 11. The smallest that holds 2.5 MiB; what is left of it is too small to cut.
        assert_eq!(take(&mut a, 5 * MIB / 2), (6 * MIB, 3 * MIB, None));
        assert_eq!(take(&mut a, 4 * MIB), (0, 4 * MIB, None), "of equal ones the lowest");
        a.give_back(DevAddr(BASE + 9 * MIB)).unwrap();
        assert_eq!(take(&mut a, 6 * MIB), (9 * MIB, 6 * MIB, None), "2 and 4 became one");
        assert_eq!(a.give_back(DevAddr(BASE + 10 * MIB)), None);
    }

    proptest! {
        #[test]
        fn blocks_in_use_never_overlap_and_all_that_is_given_back_is_one_piece_again(
            steps in prop::collection::vec((1u64..30 << 20, any::<prop::sample::Index>(), any::<bool>()), 1..80),
        ) {
            let mut a = Allocator::new(DevAddr(BASE));
            let mut used: Vec<AddrRange> = Vec::new();
            let mut segments: Vec<AddrRange> = Vec::new();
            for (len, index, give) in steps {
                if give && !used.is_empty() {
                    let block = used.swap_remove(index.index(used.len()));
                    prop_assert_eq!(a.give_back(block.start), Some(block));
                    continue;
                }
                let (block, segment) = a.take(Bytes(len));
                segments.extend(segment);
                prop_assert!(block.len.0 >= len);
                prop_assert!(segments.iter().any(|s| s.start <= block.start && block.end() <= s.end()));
                prop_assert!(used.iter().all(|u| u.end() <= block.start || block.end() <= u.start));
                used.push(block);
            }
            for block in used {
                a.give_back(block.start);
            }
            let free: usize = a.free.iter().map(BTreeSet::len).sum();
            prop_assert_eq!(free, segments.len());
            prop_assert_eq!(a.blocks.len(), segments.len());
        }
    }
}
