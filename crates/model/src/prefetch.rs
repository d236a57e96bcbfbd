//! The driver's tree prefetcher: which pages of a block come along with the faulted ones.
//!
//! Facts 5 (`uvm_perf_prefetch`): think of a binary tree over the 512 pages. Its leaves are marked if the page is
//! already at the destination or has just faulted, and every 64 KiB piece with a fault in it is marked whole.
//! For each faulted page, the largest subtree around it of which more than the threshold (51 %) is marked
//! is brought in. It never leaves the block.

use crate::pages::{PAGES, PageMask};

/// Pages of a big page (64 KiB).
const BIG: u32 = 16;

/// Pages to bring along: neither faulted nor resident.
pub(crate) fn along_with(faulted: PageMask, resident: PageMask, threshold_percent: u32) -> PageMask {
    let mut marked = faulted | resident;
    let mut pieces = 0u32;
    for (w, word) in (0u32..).zip(faulted.words()) {
        for q in 0..4u32 {
            let piece = 0xffffu64 << (16 * q);
            if word & piece != 0 {
                marked.words_mut()[w as usize] |= piece;
                pieces |= 1 << (4 * w + q);
            }
        }
    }
    // Pages of one 64 KiB piece share all subtrees above it, and the piece itself is wholly marked.
    let mut out = PageMask::EMPTY;
    while pieces != 0 {
        let piece = pieces.trailing_zeros();
        pieces &= pieces - 1;
        let (mut first, mut len) = (piece * BIG, 0);
        let mut width = BIG;
        while width <= PAGES {
            let start = piece * BIG / width * width;
            if marked_in(&marked, start, width) * 100 > width * threshold_percent {
                (first, len) = (start, width);
            }
            width *= 2;
        }
        out = out | PageMask::span(first, first + len);
        if first + len == PAGES {
            break;
        }
    }
    out.without(faulted).without(resident)
}

fn marked_in(mask: &PageMask, start: u32, width: u32) -> u32 {
    let words = mask.words();
    if width >= 64 {
        words[(start / 64) as usize..((start + width) / 64) as usize].iter().map(|w| w.count_ones()).sum()
    } else {
        (words[(start / 64) as usize] >> (start % 64) & ((1 << width) - 1)).count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_fault_brings_its_64_kib() {
        let fault = PageMask::span(21, 22);
        assert_eq!(along_with(fault, PageMask::EMPTY, 51), PageMask::span(16, 32).without(fault));
    }

    #[test]
    fn half_a_subtree_is_not_enough_three_quarters_are() {
        let quarter = PageMask::span(0, 128);
        assert_eq!(along_with(quarter, PageMask::EMPTY, 51), PageMask::EMPTY);
        assert_eq!(along_with(PageMask::span(128, 256), quarter, 51), PageMask::EMPTY);
        let third = PageMask::span(256, 384);
        assert_eq!(along_with(third, PageMask::span(0, 256), 51), PageMask::span(384, 512));
    }

    #[test]
    fn a_threshold_of_one_percent_brings_the_block() {
        assert_eq!(along_with(PageMask::span(5, 6), PageMask::EMPTY, 1).count(), 511);
    }

    /// The rule as facts 5 state it, page by page.
    fn slow(faulted: &[bool; 512], resident: &[bool; 512], threshold: u32) -> Vec<u32> {
        let mut marked: Vec<bool> = (0..512).map(|i| faulted[i] || resident[i]).collect();
        for piece in 0..32 {
            if (0..16).any(|i| faulted[piece * 16 + i]) {
                (0..16).for_each(|i| marked[piece * 16 + i] = true);
            }
        }
        let mut out = [false; 512];
        for page in (0..512usize).filter(|&p| faulted[p]) {
            let mut best = page..page + 1;
            for level in 0..=9 {
                let width = 1usize << level;
                let start = page / width * width;
                let count = (start..start + width).filter(|&i| marked[i]).count();
                if count * 100 > width * threshold as usize {
                    best = start..start + width;
                }
            }
            best.for_each(|i| out[i] = true);
        }
        (0..512u32).filter(|&i| out[i as usize] && !faulted[i as usize] && !resident[i as usize]).collect()
    }

    proptest! {
        #[test]
        fn equals_the_rule_page_by_page(
            spans in prop::collection::vec((0usize..512, 1usize..120, any::<bool>()), 1..6), threshold in 1u32..=100,
        ) {
            let (mut faulted, mut resident) = ([false; 512], [false; 512]);
            for (start, len, fault) in spans {
                let set = if fault { &mut faulted } else { &mut resident };
                (start..(start + len).min(512)).for_each(|i| set[i] = true);
            }
            (0..512).for_each(|i| faulted[i] &= !resident[i]);
            let mask = |set: &[bool; 512]| {
                let mut m = PageMask::EMPTY;
                (0..512u32).filter(|&i| set[i as usize]).for_each(|i| m.insert(i));
                m
            };
            let fast = along_with(mask(&faulted), mask(&resident), threshold);
            prop_assert_eq!(fast.iter().collect::<Vec<_>>(), slow(&faulted, &resident, threshold));
        }
    }
}
