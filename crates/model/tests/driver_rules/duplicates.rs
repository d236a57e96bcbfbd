//! Two copies of a page (facts 4.7). Costs are those of `profiles/driver.toml`: a call 5 µs, a block 7.5 µs, taking it out of the host's page tables
//! 22.4 µs, a batch 22.599 µs and 341 ns for each of its entries, of which a page has two.

use super::*;
use deepum_model::Advice::{AccessedBy, Duplicate, Prefer};
use deepum_model::Ssd;

const ALL: Bytes = UmBlock::SIZE;

fn read(range: AddrRange) -> Touch {
    Touch { range, write: false, phase: 0 }
}

/// Blocks 0 and so on have contents on the GPU, and block 0 is saved. Since when.
fn saved(mem: &mut UnifiedMemory, count: u64) -> Nanos {
    let now = mem.migrate(blocks(0, count), ON_GPU, Nanos::ZERO).unwrap().done;
    let now = mem.advise(blocks(0, 1), Duplicate(true), now).unwrap();
    mem.migrate(blocks(0, 1), Place::Host, now).unwrap().done
}

fn places(mem: &UnifiedMemory, of: u64) -> (u32, u32) {
    (mem.pages_at(ON_GPU, block(of)).count(), mem.pages_at(Place::Host, block(of)).count())
}

#[test]
fn what_is_saved_is_in_both_places_and_is_dropped_without_a_copy() {
    let mut mem = node(2);
    let now = saved(&mut mem, 1);
    assert_eq!(places(&mem, 0), (512, 512));
    assert_eq!((mem.totals(GPU).bytes_out.user, mem.host_in_use()), (ALL, ALL));
    let done = mem.advise(blocks(0, 1), Duplicate(false), now).unwrap();
    assert_eq!(done - now, CALL + BLOCK);
    assert_eq!(places(&mem, 0), (0, 512));
    assert_eq!((mem.totals(GPU).bytes_out.total(), mem.totals(GPU).bytes_forgotten), (ALL, ALL));
    assert_eq!(mem.advise(blocks(0, 1), Duplicate(false), done).unwrap() - done, CALL, "nothing to do");
}

#[test]
fn a_write_faults_once_and_copies_nothing_and_the_host_has_the_page_no_more() {
    let mut mem = node(2);
    let now = saved(&mut mem, 1);
    let before = mem.totals(GPU);
    assert!(run(&mut mem, &[read(blocks(0, 1))], now).1.is_empty(), "reads do not fault");
    let (now, batches) = run(&mut mem, &[touch(pages(0, 7, 1))], now);
    let [(at, resumed)] = batches[..] else { panic!("{batches:?}") };
    assert_eq!(resumed - at, Nanos(22_599 + 2 * 341) + BLOCK + UNMAP);
    assert_eq!(places(&mem, 0), (512, 511));
    assert!(run(&mut mem, &[touch(pages(0, 7, 1))], now).1.is_empty(), "once");
    let cost = mem.totals(GPU).since(&before);
    assert_eq!((cost.pages_overwritten, cost.bytes_in.total(), cost.bytes_out.total()), (1, Bytes::ZERO, Bytes::ZERO));
    // What is not the host's any more is copied when the mode ends and the block leaves.
    let now = mem.advise(blocks(0, 1), Duplicate(false), now).unwrap();
    assert_eq!(places(&mem, 0), (1, 511));
    mem.migrate(blocks(0, 1), Place::Host, now).unwrap();
    assert_eq!(mem.totals(GPU).since(&before).bytes_out.user, Bytes(4096));
}

#[test]
fn the_notice_of_a_write_says_so() {
    let mut mem = node(2);
    let now = saved(&mut mem, 1);
    notices(&mut mem);
    run(&mut mem, &[read(blocks(1, 1)), touch(pages(0, 0, 512))], now);
    let writes: Vec<_> = notices(&mut mem)
        .iter()
        .filter_map(|n| match *n {
            Notice::GpuFault { block, access, .. } => Some((block.0 - BASE, access.write)),
            _ => None,
        })
        .collect();
    assert!(writes.contains(&(0, true)) && writes.contains(&(1, false)) && !writes.contains(&(1, true)), "{writes:?}");
}

#[test]
fn what_is_fetched_in_that_mode_stays_on_the_host_and_the_driver_evicts_it_without_a_copy() {
    let mut mem = node(1);
    let now = saved(&mut mem, 1);
    let now = mem.advise(blocks(0, 1), Duplicate(false), now).unwrap();
    let now = mem.advise(blocks(0, 1), Duplicate(true), now).unwrap();
    let now = mem.migrate(blocks(0, 1), ON_GPU, now).unwrap().done;
    assert_eq!(places(&mem, 0), (512, 512));
    let before = mem.totals(GPU);
    mem.migrate(blocks(1, 1), ON_GPU, now).unwrap();
    assert_eq!((places(&mem, 0), resident(&mem)), ((0, 512), vec![1]));
    let cost = mem.totals(GPU).since(&before);
    assert_eq!((cost.bytes_out.total(), cost.evictions, cost.free_evictions), (Bytes::ZERO, 0, 1));
}

#[test]
fn the_driver_evicts_with_a_copy_what_the_host_lacks() {
    let mut mem = node(1);
    let now = saved(&mut mem, 1);
    let (now, _) = run(&mut mem, &[touch(pages(0, 0, 16))], now);
    mem.migrate(blocks(1, 1), ON_GPU, now).unwrap();
    assert_eq!((places(&mem, 0), mem.totals(GPU).bytes_out.eviction), ((0, 512), Bytes(16 * 4096)));
}

#[test]
fn a_read_fault_in_that_mode_copies_and_keeps_and_a_write_fault_moves() {
    let mut mem = node(2);
    fill_host(&mut mem);
    let now = mem.advise(blocks(0, 1), Duplicate(true), Nanos::ZERO).unwrap();
    let (now, _) = run(&mut mem, &[read(pages(0, 0, 16))], now);
    assert_eq!(places(&mem, 0), (16, 512));
    // Page 32, and the rest of its 64 KiB by the prefetcher, which nobody writes.
    let (now, _) = run(&mut mem, &[touch(pages(0, 32, 1))], now);
    assert_eq!(places(&mem, 0), (32, 511));
    assert_eq!(run(&mut mem, &[touch(pages(0, 33, 1))], now).1.len(), 1, "that came for reading");
}

#[test]
fn what_the_host_does_not_map_comes_writable_and_nobody_hears_of_its_writes_unless_it_is_brought_home_first() {
    for home_first in [false, true] {
        let mut mem = node(1);
        let now = mem.migrate(blocks(0, 1), ON_GPU, Nanos::ZERO).unwrap().done;
        // The driver evicts it, so the host does not map it.
        let now = mem.migrate(blocks(1, 1), ON_GPU, now).unwrap().done;
        let mut now = mem.advise(blocks(0, 1), Duplicate(true), now).unwrap();
        if home_first {
            now = mem.migrate(blocks(0, 1), Place::Host, now).unwrap().done;
        }
        let now = mem.migrate(blocks(0, 1), ON_GPU, now).unwrap().done;
        assert_eq!(places(&mem, 0), (512, 512));
        let batches = run(&mut mem, &[touch(pages(0, 0, 1))], now).1.len();
        assert_eq!((batches, places(&mem, 0).1), if home_first { (1, 511) } else { (0, 512) });
    }
}

#[test]
fn ending_the_mode_keeps_the_preferred_devices_copy_which_is_mapped_for_reading_until_it_is_mapped_anew() {
    for mapped_anew in [false, true] {
        let mut mem = node(2);
        let now = saved(&mut mem, 1);
        let now = mem.advise(blocks(0, 1), Prefer(Some(ON_GPU)), now).unwrap();
        let mut now = mem.advise(blocks(0, 1), Duplicate(false), now).unwrap();
        assert_eq!(places(&mem, 0), (512, 0));
        assert_eq!(mem.totals(GPU).bytes_forgotten, Bytes::ZERO, "nothing left the GPU");
        if mapped_anew {
            let done = mem.advise(blocks(0, 1), AccessedBy(GPU, true), now).unwrap();
            assert_eq!(done - now, CALL + BLOCK);
            now = mem.advise(blocks(0, 1), AccessedBy(GPU, false), done).unwrap();
            assert_eq!(now - done, CALL);
        }
        let batches = run(&mut mem, &[touch(pages(0, 0, 1))], now).1.len();
        assert_eq!(batches, usize::from(!mapped_anew));
    }
}

#[test]
fn saying_who_accesses_it_changes_nothing_while_the_mode_is_on() {
    let mut mem = node(2);
    let now = saved(&mut mem, 1);
    let now = mem.advise(blocks(0, 1), AccessedBy(GPU, true), now).unwrap();
    assert_eq!(run(&mut mem, &[touch(pages(0, 0, 1))], now).1.len(), 1);
}

#[test]
fn advice_waits_for_migrations_and_faults_wait_for_advice() {
    let mut mem = node(4);
    fill_host(&mut mem);
    let start = Nanos::micros(100_000);
    let moved = mem.migrate(blocks(1, 2), ON_GPU, start).unwrap().done;
    let advised = mem.advise(blocks(0, 1), Duplicate(true), start + Nanos(1)).unwrap();
    assert_eq!(advised, moved - FLUSH + CALL, "the migration holds the lock until all is there");
    let (_, batches) = run(&mut mem, &[read(pages(3, 0, 1))], start + Nanos(2));
    let (served, copied) = (Nanos(22_599 + 2 * 341) + BLOCK + UNMAP, mem.totals(GPU).stall_copies);
    assert_eq!(
        batches,
        [(start + Nanos(2), advised + served + copied)],
        "and who comes while the advice waits, waits too"
    );
}

#[test]
fn a_discard_gives_up_both_copies() {
    let mut mem = node(2);
    let now = saved(&mut mem, 1);
    mem.discard(blocks(0, 1), true, now).unwrap();
    assert_eq!(places(&mem, 0), (0, 0));
}

#[test]
fn a_save_needs_room_on_the_host_or_goes_to_the_ssd() {
    let small = Options { memory: Some(Bytes::mib(4)), host_memory: Some(Bytes(4096)), ..Options::default() };
    let ssd = Ssd { read: 1e9, write: 1e9, cached: false };
    let mut mem = node_with(Options { ssd: Some(ssd), ..small.clone() });
    saved(&mut mem, 1);
    assert_eq!((mem.totals(GPU).bytes_ssd_out, places(&mem, 0)), (ALL, (512, 512)));
    let mut mem = node_with(small);
    let now = mem.migrate(blocks(0, 1), ON_GPU, Nanos::ZERO).unwrap().done;
    let now = mem.advise(blocks(0, 1), Duplicate(true), now).unwrap();
    let refused = mem.migrate(blocks(0, 1), Place::Host, now).unwrap_err();
    assert!(matches!(refused, ModelError::OutOfMemory { place: Place::Host, .. }), "{refused}");
    assert_eq!(places(&mem, 0), (512, 0), "the GPU has it still");
}

#[test]
fn advice_is_of_whole_blocks() {
    let refused = node(2).advise(pages(0, 0, 16), Duplicate(true), Nanos::ZERO);
    assert_eq!(refused, Err(ModelError::PartOfBlock { range: pages(0, 0, 16) }));
}
