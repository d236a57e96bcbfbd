//! What `UVM_MIGRATE` to the host enters into the host's page tables, and when (facts 4.1, 4.9).

use super::*;

/// Blocks 0 to `count`, which were on the GPU, go to the host, in one call from `START` on. When that is over, and when each copy is.
fn home(mem: &mut UnifiedMemory, count: u64) -> (Migrated, Vec<Nanos>) {
    notices(mem);
    let moved = mem.migrate(blocks(0, count), Place::Host, START).unwrap();
    (moved, notices(mem).iter().map(Notice::at).collect())
}

const START: Nanos = Nanos::micros(100_000);
const LATER: Nanos = Nanos::micros(200_000);

#[test]
fn one_block_is_copied_and_then_entered() {
    let mut mem = node(4);
    mem.migrate(blocks(0, 1), ON_GPU, Nanos::ZERO).unwrap();
    let (moved, copies) = home(&mut mem, 1);
    assert_eq!(
        (moved.ordered, moved.done),
        (copies[0] + ENTER, copies[0] + ENTER + FLUSH),
        "no call returns before that"
    );
}

#[test]
fn of_many_blocks_the_entries_take_the_time_and_not_the_copies() {
    let mut mem = UnifiedMemory::new(&Profile::named("h200").unwrap(), &Options::default());
    mem.map_managed(blocks(0, 16)).unwrap();
    mem.migrate(blocks(0, 8), ON_GPU, Nanos::ZERO).unwrap();
    let (moved, copies) = home(&mut mem, 8);
    assert!(copies.windows(2).all(|two| two[1] - two[0] < ENTER), "the link is faster: {copies:?}");
    // All copies are ordered first; the first is over by then or later.
    let begun = copies[0].max(START + CALL + Nanos(8 * BLOCK.0));
    assert_eq!(moved.done, begun + Nanos(8 * ENTER.0) + FLUSH);
}

#[test]
fn a_link_slower_than_the_entries_leaves_those_of_the_last_block() {
    let slow = Profile::scaled("v100-32g", &[("host_map_ns".to_owned(), 10)]).unwrap();
    let mut mem = UnifiedMemory::new(&slow, &Options::default());
    mem.map_managed(blocks(0, 16)).unwrap();
    mem.migrate(blocks(0, 8), ON_GPU, Nanos::ZERO).unwrap();
    let (moved, copies) = home(&mut mem, 8);
    assert!(copies.windows(2).all(|two| two[1] - two[0] > Nanos(11_700)));
    assert_eq!(moved.done, copies[7] + Nanos(11_700) + FLUSH);
}

#[test]
fn what_is_mapped_is_not_entered_again_and_what_the_driver_evicted_never_was() {
    let mut mem = node(1);
    mem.migrate(blocks(0, 2), ON_GPU, Nanos::ZERO).unwrap();
    // Block 0 was evicted for block 1: it is on the host, and not in its page tables.
    let moved = mem.migrate(blocks(0, 1), Place::Host, START).unwrap();
    assert_eq!(moved.done, START + CALL + ENTER + FLUSH);
    let again = mem.migrate(blocks(0, 1), Place::Host, moved.done).unwrap();
    assert_eq!(again.done, moved.done + CALL + FLUSH);
    // A part costs its share: 100 of 512 pages, 22851 ns.
    mem.migrate(pages(1, 0, 100), Place::Host, Nanos::ZERO).unwrap();
    notices(&mut mem);
    let rest = mem.migrate(pages(1, 100, 100), Place::Host, LATER).unwrap();
    assert_eq!(rest.done, notices(&mut mem)[0].at() + Nanos(22_851) + FLUSH);
}

#[test]
fn the_way_back_costs_the_unmapping_only_if_there_are_entries() {
    let mut mem = node(1);
    mem.migrate(blocks(0, 1), ON_GPU, Nanos::ZERO).unwrap();
    mem.migrate(blocks(0, 1), Place::Host, Nanos::ZERO).unwrap();
    mem.discard(blocks(0, 1), true, START).unwrap();
    // New pages, evicted to the host: the entries went with the old ones.
    mem.migrate(blocks(0, 1), ON_GPU, START).unwrap();
    mem.migrate(blocks(1, 1), ON_GPU, START).unwrap();
    let back = mem.migrate(blocks(0, 1), ON_GPU, LATER).unwrap();
    assert_eq!(back.ordered, LATER + CALL + BLOCK + Nanos(7_500), "a call, a block, and an eviction");
}
