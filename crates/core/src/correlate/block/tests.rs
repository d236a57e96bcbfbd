//! Small scenes; against plain lists it is tried in `tests/oracle.rs`.

use super::*;

fn table(rows: u32, ways: u32, successors: u32) -> BlockTable {
    BlockTable::new(Geometry::new(rows, ways, successors).unwrap())
}
fn execution(table: &mut BlockTable, faults: &[u32]) {
    let mut before = None;
    for &fault in faults {
        table.learn(before, StableBlock(fault));
        before = Some(StableBlock(fault));
    }
}
fn chain(table: &mut BlockTable) -> Vec<u32> {
    table.chain().iter().map(|block| block.0).collect()
}

#[test]
fn the_chain_is_the_order_of_the_faults() {
    let mut table = table(16, 2, 4);
    execution(&mut table, &[40, 41, 57]);
    assert_eq!(chain(&mut table), [40, 41, 57]);
    assert_eq!((table.start(), table.end()), (Some(StableBlock(40)), Some(StableBlock(57))));
}

#[test]
fn a_fault_the_chain_holds_teaches_nothing() {
    let mut table = table(16, 2, 4);
    execution(&mut table, &[1, 2, 3, 4]);
    table.settle([].into_iter());
    execution(&mut table, &[4, 2]);
    execution(&mut table, &[3]);
    assert_eq!(chain(&mut table), [1, 2, 3, 4]);
}

#[test]
fn a_first_fault_the_chain_lacks_is_hung_behind_the_end() {
    let mut table = table(16, 2, 4);
    execution(&mut table, &[1, 2]);
    table.settle([].into_iter());
    execution(&mut table, &[9, 8]);
    assert_eq!(chain(&mut table), [1, 2, 9, 8]);
    assert_eq!(table.end(), Some(StableBlock(8)));
}

#[test]
fn a_later_fault_the_chain_lacks_is_hung_behind_the_one_before_it() {
    let mut table = table(16, 2, 4);
    execution(&mut table, &[1, 2, 3]);
    table.settle([].into_iter());
    execution(&mut table, &[1, 9]);
    assert_eq!(chain(&mut table), [1, 9, 2, 3], "newest successor first, the passed-over branch after it");
    assert_eq!(table.end(), Some(StableBlock(3)));
}

#[test]
fn settling_adds_what_was_there_behind_the_end_once() {
    let mut table = table(16, 2, 4);
    execution(&mut table, &[3, 4]);
    table.settle([1, 4, 2].into_iter().map(StableBlock));
    assert_eq!(chain(&mut table), [3, 4, 1, 2]);
    assert!(table.is_settled());
}

#[test]
fn of_what_an_execution_did_not_use_goes_what_arguments_alone_told_of() {
    let mut table = table(16, 2, 4);
    execution(&mut table, &[3, 4]);
    table.settle([1, 4, 2].into_iter().map(StableBlock));
    let unused = [4, 2, 9].map(StableBlock);
    assert!(table.forget_named(&unused));
    assert_eq!(chain(&mut table), [3, 4, 1]);
    assert!(!table.forget_named(&unused), "4 was faulted on, 2 is gone, 9 never was there");
    assert_eq!(chain(&mut table), [3, 4, 1]);
}

#[test]
fn thousands_of_faults_with_few_left_later_keep_the_chain_whole() {
    let mut table = BlockTable::new(Geometry::default());
    let all: Vec<u32> = (1000..4000).collect();
    execution(&mut table, &all);
    assert_eq!(chain(&mut table), all);
    table.settle([].into_iter());
    for round in 0..100 {
        execution(&mut table, &[1000 + round * 7, 1000 + round * 11]);
        assert_eq!(chain(&mut table), all, "round {round}");
    }
}

#[test]
fn a_forgotten_row_does_not_cut_off_what_came_after_it() {
    let mut table = table(4, 1, 4);
    execution(&mut table, &[0, 1, 2, 3]);
    table.settle([5].into_iter().map(StableBlock));
    assert_eq!(table.successors(StableBlock(1)).next(), None, "5 took the row of 1, and with it the link to 2");
    assert_eq!(chain(&mut table), [0, 1, 2, 3, 5]);
}

#[test]
fn a_block_table_of_one_block_is_small_and_a_full_one_is_bounded() {
    let mut one = BlockTable::new(Geometry::default());
    execution(&mut one, &[5]);
    one.settle([].into_iter());
    one.chain();
    assert!(one.bytes() <= Bytes(192), "{}", one.bytes());
    let mut full = BlockTable::new(Geometry::default());
    execution(&mut full, &(0..100_000).collect::<Vec<_>>());
    full.chain();
    assert_eq!((full.rows.slots(), full.successors(StableBlock(99_998)).next()), (2048 * 8, Some(StableBlock(99_999))));
    assert!(full.bytes() < Bytes::kib(128), "{}", full.bytes());
}

#[test]
fn a_block_takes_four_bytes_where_the_next_one_follows_and_twenty_where_none_does() {
    let bytes = |faults: &[u32]| {
        let mut table = BlockTable::new(Geometry::default());
        execution(&mut table, faults);
        table.settle([].into_iter());
        table.chain();
        table.bytes().get() - size_of::<BlockTable>() as u64
    };
    let apart = |count: u32| (0..count).map(|n| n * 2).collect::<Vec<_>>();
    assert_eq!(bytes(&(0..64).collect::<Vec<_>>()), 64 * 4 + 8);
    // The last one is followed by none.
    assert_eq!(bytes(&apart(64)), 64 * 4 + 63 * 8 + 64 * 8);
    assert!(size_of::<BlockTable>() < 150);
}

#[test]
fn the_number_of_no_block_is_not_stored() {
    let mut table = table(16, 2, 4);
    assert!(!table.learn(None, StableBlock(u32::MAX)));
    table.record(None, StableBlock(u32::MAX));
    assert_eq!(table.start(), None);
}

#[test]
fn of_recorded_faults_the_newest_successor_is_first() {
    let mut table = table(16, 2, 2);
    let mut execution = |faults: &[u32]| {
        let mut before = None;
        for &fault in faults {
            table.record(before, StableBlock(fault));
            before = Some(StableBlock(fault));
        }
    };
    execution(&[40, 41, 57]);
    execution(&[41, 50]);
    execution(&[41, 51, 51]);
    let followers: Vec<u32> = table.successors(StableBlock(41)).map(|next| next.0).collect();
    assert_eq!(followers, [51, 50], "two successors are kept, and 57 was learned first");
    assert_eq!(table.successors(StableBlock(51)).count(), 0);
    assert_eq!(table.start(), None);
    table.bound(StableBlock(40), StableBlock(57));
    assert_eq!((table.start(), table.end()), (Some(StableBlock(40)), Some(StableBlock(57))));
}
