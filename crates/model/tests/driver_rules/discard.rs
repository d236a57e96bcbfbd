//! Discarding (facts 4.3).

use super::*;

#[test]
fn discarded_blocks_go_before_used_ones_and_are_not_copied() {
    // Facts 4.3, flags 0.
    let mut mem = node(3);
    let mut now = mem.migrate(blocks(0, 3), ON_GPU, Nanos::ZERO).unwrap().done;
    now = mem.discard(blocks(2, 1), false, now).unwrap();
    assert!(mem.pages_at(ON_GPU, block(2)).is_full(), "discard without unmap leaves the pages");
    mem.migrate(blocks(5, 1), ON_GPU, now).unwrap();
    assert_eq!(resident(&mem), [0, 1, 5]);
    assert_eq!(mem.totals(GPU).bytes_out.total(), Bytes::ZERO);
    assert_eq!(mem.totals(GPU).bytes_discarded, Bytes::mib(2));
}

#[test]
fn a_partly_discarded_block_stays_on_the_used_list() {
    let mut mem = node(3);
    let mut now = mem.migrate(blocks(0, 3), ON_GPU, Nanos::ZERO).unwrap().done;
    now = mem.discard(pages(2, 0, 511), false, now).unwrap();
    mem.migrate(blocks(5, 1), ON_GPU, now).unwrap();
    assert_eq!(resident(&mem), [1, 2, 5]);
}

#[test]
fn pages_that_were_never_populated_can_be_discarded_too() {
    // Facts 4.3: the status is kept per page, and what counts is that all 512 have it.
    let mut mem = node(3);
    let mut now = mem.migrate(blocks(0, 2), ON_GPU, Nanos::ZERO).unwrap().done;
    now = mem.migrate(pages(2, 0, 16), ON_GPU, now).unwrap().done;
    now = mem.discard(blocks(2, 1), false, now).unwrap();
    mem.migrate(blocks(5, 1), ON_GPU, now).unwrap();
    assert_eq!(resident(&mem), [0, 1, 5]);
    assert_eq!(mem.totals(GPU).bytes_out.total(), Bytes::ZERO);
}

#[test]
fn a_partial_discard_with_unmap_leaves_the_chunk_on_the_used_list_even_if_it_empties_it() {
    // Facts 4.3, first item below the table.
    let mut mem = node(3);
    let mut now = mem.migrate(blocks(0, 2), ON_GPU, Nanos::ZERO).unwrap().done;
    now = mem.migrate(pages(2, 0, 16), ON_GPU, now).unwrap().done;
    now = mem.discard(pages(2, 0, 16), true, now).unwrap();
    assert_eq!(resident(&mem), [0, 1]);
    mem.migrate(blocks(5, 1), ON_GPU, now).unwrap();
    assert_eq!(resident(&mem), [1, 5], "the least recently made resident went, and not the empty chunk");
}

#[test]
fn a_migrate_call_undoes_a_discard() {
    let mut mem = node(3);
    let mut now = mem.migrate(blocks(0, 3), ON_GPU, Nanos::ZERO).unwrap().done;
    now = mem.discard(blocks(0, 1), false, now).unwrap();
    now = mem.migrate(blocks(0, 1), ON_GPU, now).unwrap().done;
    mem.migrate(blocks(5, 1), ON_GPU, now).unwrap();
    assert_eq!(resident(&mem), [0, 2, 5], "the block is used again, and most recently");
}

#[test]
fn discard_with_unmap_leaves_the_block_nowhere_and_its_chunk_unused() {
    // Facts 4.3, UNMAP.
    let mut mem = node(3);
    let mut now = mem.migrate(blocks(0, 3), ON_GPU, Nanos::ZERO).unwrap().done;
    now = mem.discard(blocks(1, 1), true, now).unwrap();
    assert!(mem.pages_at(ON_GPU, block(1)).is_empty() && mem.pages_at(Place::Host, block(1)).is_empty());
    now = mem.migrate(blocks(5, 1), ON_GPU, now).unwrap().done;
    assert_eq!(resident(&mem), [0, 2, 5]);
    // The next touch populates.
    let before = mem.totals(GPU).bytes_populated;
    run(&mut mem, &[touch(pages(1, 0, 1))], now);
    assert!(mem.totals(GPU).bytes_populated > before);
}

#[test]
fn each_block_takes_its_time_whatever_the_call() {
    let mut mem = node(4);
    let now = mem.migrate(blocks(0, 4), ON_GPU, Nanos::ZERO).unwrap().done;
    assert_eq!(mem.discard(blocks(0, 3), true, now).unwrap(), now + CALL + Nanos(3 * GIVE_UP));
}

#[test]
fn who_writes_to_what_was_given_up_and_has_no_place_faults_on_nearly_every_page() {
    // Facts 4.3, the trap: what comes along is mapped to be read.
    let whole = |mem: &mut UnifiedMemory, now| {
        let before = mem.totals(GPU).pages_overwritten;
        let (end, batches) = run(mem, &[touch(blocks(0, 1))], now);
        let waited = batches.iter().fold(Nanos::ZERO, |sum, (at, until)| sum + (*until - *at));
        (end, waited, mem.totals(GPU).pages_overwritten - before)
    };
    let mut mem = node(4);
    let (now, fresh, refused) = whole(&mut mem, Nanos::ZERO);
    assert_eq!(refused, 0, "it never had contents");
    let now = mem.discard(blocks(0, 1), true, now).unwrap();
    let (now, anew, refused) = whole(&mut mem, now);
    assert!(refused > 100 && anew >= fresh + Nanos(REWRITE * refused), "{anew:?} {fresh:?} {refused}");
    // What was brought there first has its rights.
    let now = mem.discard(blocks(0, 1), true, now).unwrap();
    let now = mem.migrate(blocks(0, 1), ON_GPU, now).unwrap().done;
    assert_eq!(whole(&mut mem, now).1, Nanos::ZERO);
}
