//! Hand-outs do what a model of them in plain sets does.

use crate::bench::Bench;
use deepum_core::units::UmBlock;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn the_next_engine_goes_on_from_where_the_last_one_stopped() {
    let b = Bench::new();
    b.outs.open(UmBlock(1));
    b.outs.hold(UmBlock(1));
    b.issue(0, 1);
    b.look();
    b.release(1);
    b.outs.open(UmBlock(2));
    b.finish(0, 1);
    b.look();
    assert!(b.outs.begin_discard(UmBlock(1)) && !b.outs.begin_discard(UmBlock(1)), "one at a time");
    // It is killed here.
    assert!(!b.outs.begin_discard(UmBlock(1)));
    b.outs.clear_discards();
    b.outs.hold(UmBlock(1));
    b.issue(0, 2);
    b.release(1);
    b.look();
    assert!(!b.discardable(1));
    b.finish(0, 2);
    b.look();
    assert!(b.discardable(1));
}

#[test]
fn once_nobody_says_who_holds_what_nothing_is_discarded() {
    let b = Bench::new();
    b.outs.open(UmBlock(1));
    b.outs.open(UmBlock(2));
    b.outs.hold(UmBlock(2));
    b.look();
    assert!(b.discardable(1));
    b.outs.pin_all();
    b.release(2);
    // Nor what is opened later, in the place of another or of none.
    b.outs.close(UmBlock(1));
    assert!(!b.outs.open(UmBlock(1)) && !b.outs.open(UmBlock(3)));
    (0..2).for_each(|_| b.look());
    assert!((1..4).all(|block| !b.discardable(block)));
}

/// What may be done to a block, of which those equal modulo 4 share a word.
#[derive(Clone, Copy, Debug)]
enum Step {
    Open(u64),
    Close(u64),
    Hold(u64),
    Release(u64),
    Pin(u64),
    Discard(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let block = 0..9u64;
    prop_oneof![
        block.clone().prop_map(Step::Open),
        block.clone().prop_map(Step::Close),
        block.clone().prop_map(Step::Hold),
        block.clone().prop_map(Step::Release),
        block.clone().prop_map(Step::Pin),
        block.prop_map(Step::Discard),
    ]
}

proptest! {
    #[test]
    fn hand_outs_are_as_a_model_in_plain_sets(steps in prop::collection::vec(step(), 1..200)) {
        let b = Bench::new();
        // The owner of each word, its holders, and whether it is pinned.
        let mut owner: BTreeMap<u64, u64> = BTreeMap::new();
        let mut holders: BTreeMap<u64, u64> = BTreeMap::new();
        let mut pinned = BTreeSet::new();
        for step in steps {
            let owns = |owner: &BTreeMap<u64, u64>, block: u64| owner.get(&(block % 4)) == Some(&block);
            match step {
                Step::Open(block) => {
                    let got = *owner.entry(block % 4).or_insert(block) == block;
                    prop_assert_eq!(b.outs.open(UmBlock(block)), got);
                }
                Step::Close(block) => {
                    b.outs.close(UmBlock(block));
                    if owns(&owner, block) {
                        owner.remove(&(block % 4));
                        holders.remove(&block);
                        pinned.remove(&block);
                    }
                }
                Step::Hold(block) => {
                    b.outs.hold(UmBlock(block));
                    if owns(&owner, block) {
                        *holders.entry(block).or_default() += 1;
                    }
                }
                Step::Release(block) => {
                    b.release(block);
                    if let Some(count) = holders.get_mut(&block) {
                        *count = count.saturating_sub(1);
                    }
                }
                Step::Pin(block) => {
                    b.outs.pin(UmBlock(block));
                    if owns(&owner, block) {
                        pinned.insert(block);
                    }
                }
                Step::Discard(block) => {
                    b.look();
                    let free = owns(&owner, block) && holders.get(&block).is_none_or(|n| *n == 0) && !pinned.contains(&block);
                    prop_assert_eq!(b.discardable(block), free);
                }
            }
        }
    }
}
