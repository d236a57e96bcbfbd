//! Where the record of a block is, in a list of records.
//!
//! Problem: it is asked for every block that a launch uses, or a kernel walks over, of tens of thousands. In a hash map neighbours lie anywhere, and each question is a miss of the cache.
//! Idea: a page of [`PAGE`] entries for as many blocks beside each other, 1 GiB, as in a page table; memory that is given out at once is asked for at once. Of pages there are few.
//!
//! Invariant: a page has an entry that is not [`NONE`].

use crate::mix::Map;
use crate::units::UmBlock;

/// Blocks of a page.
const PAGE: usize = 512;

/// The entry of a block that has no record.
pub const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Page {
    entries: [u32; PAGE],
    live: u32,
}

/// See the module.
#[derive(Default, Debug)]
pub struct BlockIndex(Map<u64, Box<Page>>);

impl BlockIndex {
    /// The entry of a block, if it has one.
    pub fn get(&self, block: UmBlock) -> Option<u32> {
        let (page, at) = split(block);
        Some(self.0.get(&page)?.entries[at]).filter(|&entry| entry != NONE)
    }

    /// `entry`, which is no [`NONE`], for a block that has none.
    pub fn insert(&mut self, block: UmBlock, entry: u32) {
        let (page, at) = split(block);
        let page = self.0.entry(page).or_insert_with(|| Box::new(Page { entries: [NONE; PAGE], live: 0 }));
        page.entries[at] = entry;
        page.live += 1;
    }

    /// Takes the entry of a block out.
    pub fn remove(&mut self, block: UmBlock) -> Option<u32> {
        let (number, at) = split(block);
        let page = self.0.get_mut(&number)?;
        let entry = Some(std::mem::replace(&mut page.entries[at], NONE)).filter(|&entry| entry != NONE)?;
        page.live -= 1;
        if page.live == 0 {
            self.0.remove(&number);
        }
        Some(entry)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "it is below PAGE")]
const fn split(block: UmBlock) -> (u64, usize) {
    (block.0 / PAGE as u64, (block.0 % PAGE as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against an ordered map; what is put in again is taken out before, as residency does.
        #[test]
        fn it_is_a_map_whatever_comes_and_goes(steps in prop::collection::vec((0u64..1200, any::<bool>()), 0..400)) {
            let (mut index, mut map) = (BlockIndex::default(), BTreeMap::new());
            for (entry, (block, put)) in (0..).zip(steps) {
                prop_assert_eq!(index.remove(UmBlock(block)), map.remove(&block));
                if put {
                    index.insert(UmBlock(block), entry);
                    map.insert(block, entry);
                }
                for block in [block, block + 1, block.saturating_sub(1)] {
                    prop_assert_eq!(index.get(UmBlock(block)), map.get(&block).copied());
                }
            }
            let pages: std::collections::BTreeSet<_> = map.keys().map(|&block| split(UmBlock(block)).0).collect();
            prop_assert_eq!(index.0.len(), pages.len());
        }
    }
}
