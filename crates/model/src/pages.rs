//! Sets of the 512 pages of one UM block.
//!
//! Everything the driver decides inside a block it decides on such sets (its `uvm_page_mask_t`), so the model
//! does the same: eight words, no loop over pages unless a page is really wanted.

use deepum_core::units::{Bytes, UmBlock};
use std::ops::{BitAnd, BitOr, Not};

/// 4 KiB.
pub(crate) const PAGE: u64 = 4096;
/// Pages of a block.
pub(crate) const PAGES: u32 = UmBlock::PAGES;

/// A set of pages of one UM block; page `i` is the 4 KiB at offset `4096 * i`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct PageMask([u64; 8]);

impl PageMask {
    /// No page.
    pub const EMPTY: Self = Self([0; 8]);

    /// Pages `from` up to but without `to`; both are clipped to the block.
    #[must_use]
    pub fn span(from: u32, to: u32) -> Self {
        let (from, to) = (from.min(PAGES), to.min(PAGES));
        let mut words = [0; 8];
        for (w, word) in (0u32..).zip(&mut words) {
            let lo = from.saturating_sub(64 * w).min(64);
            let hi = to.saturating_sub(64 * w).min(64);
            if lo < hi {
                *word = (u64::MAX >> (64 - (hi - lo))) << lo;
            }
        }
        Self(words)
    }

    /// Whether there is no page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().fold(0, |any, word| any | word) == 0
    }

    /// Whether all 512 pages are there.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0.iter().fold(u64::MAX, |all, word| all & word) == u64::MAX
    }

    /// Number of pages.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|w| w.count_ones()).sum()
    }

    /// Their length.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(u64::from(self.count()) * PAGE)
    }

    /// Whether `page` is there.
    #[must_use]
    pub fn contains(&self, page: u32) -> bool {
        page < PAGES && self.0[(page / 64) as usize] >> (page % 64) & 1 == 1
    }

    /// Adds one page; pages past the block are ignored.
    pub fn insert(&mut self, page: u32) {
        if page < PAGES {
            self.0[(page / 64) as usize] |= 1 << (page % 64);
        }
    }

    /// These without those of `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        self & !other
    }

    /// Whether any page is in both.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).fold(0, |any, (a, b)| any | a & b) != 0
    }

    /// The lowest page, if any.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.first_from(0)
    }

    /// The lowest page that is not below `page`.
    #[must_use]
    pub fn first_from(&self, page: u32) -> Option<u32> {
        if page >= PAGES {
            return None;
        }
        let (start, shift) = ((page / 64) as usize, page % 64);
        let mut word = self.0[start] >> shift << shift;
        for (w, next) in (page / 64..8).zip(start + 1..) {
            if word != 0 {
                return Some(64 * w + word.trailing_zeros());
            }
            word = self.0.get(next).copied().unwrap_or(0);
        }
        None
    }

    /// The pages, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let mut next = self.first();
        std::iter::from_fn(move || {
            let page = next?;
            next = self.first_from(page + 1);
            Some(page)
        })
    }

    /// The maximal runs of neighbouring pages as `(first, length)`, lowest first.
    pub fn runs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let first = self.first_from(at)?;
            let end = (!*self).first_from(first).unwrap_or(PAGES);
            at = end;
            Some((first, end - first))
        })
    }

    /// Only the lowest `n` pages.
    #[must_use]
    pub fn lowest(mut self, n: u32) -> Self {
        let mut left = n;
        for word in &mut self.0 {
            let here = word.count_ones();
            if here <= left {
                left -= here;
                continue;
            }
            let mut kept = 0;
            for _ in 0..left {
                kept |= *word & word.wrapping_neg();
                *word &= *word - 1;
            }
            (*word, left) = (kept, 0);
        }
        self
    }

    /// The bits, page 0 in the lowest bit of the first word.
    #[must_use]
    pub fn words(&self) -> [u64; 8] {
        self.0
    }

    pub(crate) fn words_mut(&mut self) -> &mut [u64; 8] {
        &mut self.0
    }
}

impl BitAnd for PageMask {
    type Output = Self;
    fn bitand(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a &= b);
        self
    }
}

impl BitOr for PageMask {
    type Output = Self;
    fn bitor(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a |= b);
        self
    }
}

impl Not for PageMask {
    type Output = Self;
    fn not(mut self) -> Self {
        self.0.iter_mut().for_each(|a| *a = !*a);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_set_of_numbers(
            pages in prop::collection::btree_set(0u32..512, 0..80), from in 0u32..520, to in 0u32..520, n in 0u32..90,
        ) {
            let mut mask = PageMask::EMPTY;
            pages.iter().for_each(|&p| mask.insert(p));
            prop_assert_eq!(mask.iter().collect::<Vec<_>>(), pages.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(mask.count() as usize, pages.len());
            prop_assert_eq!(mask.first_from(from), pages.range(from..).next().copied());
            prop_assert_eq!(
                PageMask::span(from, to).iter().collect::<Vec<_>>(),
                (from..to.min(512)).collect::<Vec<_>>()
            );
            prop_assert_eq!(
                mask.lowest(n).iter().collect::<Vec<_>>(),
                pages.iter().copied().take(n as usize).collect::<Vec<_>>()
            );
            let again: Vec<u32> = mask.runs().flat_map(|(first, len)| first..first + len).collect();
            prop_assert_eq!(again, pages.iter().copied().collect::<Vec<_>>());
            let runs: Vec<_> = mask.runs().collect();
            prop_assert!(runs.windows(2).all(|w| w[0].0 + w[0].1 < w[1].0), "runs are maximal: {:?}", runs);
        }
    }
}
