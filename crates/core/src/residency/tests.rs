//! Small scenes, and the order list against a vector.

use super::*;
use crate::units::{DevAddr, Nanos};
use proptest::prelude::*;

fn map(blocks: u64) -> Residency {
    let mut map = Residency::new(DeviceId(0));
    map.alloc(AddrRange::new(DevAddr(0), Bytes(blocks * UmBlock::SIZE.get())));
    map
}
fn at(map: &Residency, block: u64) -> Handle {
    map.find(UmBlock(block)).unwrap()
}
fn order(map: &Residency) -> Vec<u64> {
    map.oldest_first().map(|at| map.get(at).block.0).collect()
}
fn piece(block: u64, kib: u64, to_device: bool, cause: MigrationCause) -> Migration {
    let (host, device) = (Place::Host, Place::Device(DeviceId(0)));
    let (from, to) = if to_device { (host, device) } else { (device, host) };
    Migration { block: UmBlock(block), bytes: Bytes::kib(kib), from, to, cause, at: Nanos::ZERO }
}

#[test]
fn pieces_add_up_to_a_whole_block_and_an_eviction_takes_all_of_it() {
    let mut map = map(4);
    map.migrated(&piece(1, 64, true, MigrationCause::Coherence));
    assert!(map.get(at(&map, 1)).on_device && !map.get(at(&map, 1)).whole());
    map.migrated(&piece(1, 1984, true, MigrationCause::Prefetch));
    assert!(map.get(at(&map, 1)).whole());
    assert_eq!(map.blocks_on_device(), 1);
    assert!(!map.migrated(&piece(1, 4, false, MigrationCause::Coherence)));
    assert!(!map.get(at(&map, 1)).whole());
    assert!(map.migrated(&piece(1, 64, false, MigrationCause::Eviction)));
    assert_eq!(map.blocks_on_device(), 0);
}

#[test]
fn later_pieces_do_not_make_a_block_younger_but_a_touch_does() {
    let mut map = map(4);
    for block in [2, 0, 1] {
        map.migrated(&piece(block, 64, true, MigrationCause::Coherence));
    }
    map.migrated(&piece(2, 64, true, MigrationCause::Prefetch));
    assert_eq!(order(&map), [2, 0, 1]);
    map.asked(at(&map, 2));
    assert_eq!(order(&map), [0, 1, 2]);
    assert_eq!((map.age(at(&map, 2)), map.age(at(&map, 1))), (0, 1));
}

#[test]
fn a_notice_of_a_call_of_ours_that_is_told_late_brings_nothing_back() {
    let mut map = map(4);
    map.fetched(at(&map, 1));
    map.leave(at(&map, 1));
    map.migrated(&piece(1, 2048, true, MigrationCause::User));
    assert_eq!(map.blocks_on_device(), 0);
    map.migrated(&piece(1, 64, true, MigrationCause::Coherence));
    assert!(map.get(at(&map, 1)).on_device, "of a fault's it is news");
    map.migrated(&piece(2, 2048, true, MigrationCause::User));
    assert!(map.get(at(&map, 2)).whole(), "nor did we bring that one");
}

#[test]
fn freed_memory_is_forgotten_and_its_place_is_used_again() {
    let mut map = map(4);
    map.fetched(at(&map, 3));
    let mut heard = Vec::new();
    map.free(AddrRange::new(UmBlock(2).start(), Bytes::mib(4)), |_, block| heard.push((block.block.0, block.whole())));
    assert_eq!(heard, [(2, false), (3, true)]);
    assert_eq!((map.find(UmBlock(3)), map.managed()), (None, Bytes::mib(4)));
    assert!(!map.migrated(&piece(3, 64, true, MigrationCause::User)), "not managed: not ours");
    map.alloc(AddrRange::new(UmBlock(7).start(), Bytes::mib(2)));
    assert_eq!(map.get(at(&map, 7)).block, UmBlock(7));
    assert_eq!(map.blocks.len(), 4);
}

#[test]
fn what_moves_between_other_places_is_not_ours() {
    let mut map = map(4);
    let elsewhere = Migration { to: Place::Device(DeviceId(1)), ..piece(0, 64, true, MigrationCause::User) };
    assert!(!map.migrated(&elsewhere));
    assert_eq!(map.blocks_on_device(), 0);
}

proptest! {
    /// Against a vector in eviction order.
    #[test]
    fn the_order_list_agrees_with_a_vector(steps in prop::collection::vec((0u64..12, 0u8..4), 1..200)) {
        let mut map = map(12);
        let mut oracle: Vec<u64> = Vec::new();
        for (block, step) in steps {
            let handle = at(&map, block);
            match step {
                0 => map.arrive(handle),
                1 => map.asked(handle),
                2 => map.fetched(handle),
                _ => map.leave(handle),
            }
            let there = oracle.contains(&block);
            let moves = [!there, there, true, false][usize::from(step)];
            if moves || step == 3 {
                oracle.retain(|&other| other != block);
            }
            if moves {
                oracle.push(block);
            }
            prop_assert_eq!(order(&map), oracle.clone());
            prop_assert_eq!(map.blocks_on_device(), oracle.len());
        }
    }
    /// Whatever is asked, for blocks that are there and for others, and whoever leaves meanwhile.
    #[test]
    fn the_counts_are_those_of_the_records_counted_one_by_one(
        steps in prop::collection::vec((0u64..12, 0usize..14), 1..200),
    ) {
        let asks = [
            Ask::None, Ask::Populate, Ask::Urgent, Ask::Predicted, Ask::Unproven, Ask::Evict, Ask::PreEvict, Ask::Discard,
            Ask::Save, Ask::Drop, Ask::Own, Ask::Keep,
        ];
        let mut map = map(12);
        for (block, step) in steps {
            let handle = at(&map, block);
            match asks.get(step) {
                Some(ask) => map.set_ask(handle, *ask),
                None if step == 12 => map.arrive(handle),
                None => map.leave(handle),
            }
            let count = |is: fn(&Block) -> bool| (0..12).filter(|&block| is(map.get(at(&map, block)))).count();
            prop_assert_eq!(map.blocks_staying(), count(|block| block.on_device && !block.ask.leaves()));
            prop_assert_eq!(map.blocks_leaving(), count(|block| block.on_device && block.ask.leaves()));
            prop_assert_eq!(
                map.blocks_going(),
                count(|block| block.on_device && matches!(block.ask, Ask::Evict | Ask::PreEvict | Ask::Drop))
            );
            prop_assert_eq!(map.blocks_evicting(), count(|block| matches!(block.ask, Ask::Evict | Ask::PreEvict)));
            prop_assert_eq!(map.blocks_discarding(), count(|block| block.ask == Ask::Discard));
        }
    }
}
