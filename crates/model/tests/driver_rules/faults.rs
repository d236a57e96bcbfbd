//! Fault batches, the tree prefetcher, and how a kernel walks (facts 2.5 and 5).

use super::*;

#[test]
fn first_touch_on_the_gpu_populates_without_a_transfer() {
    let mut mem = node(8);
    run(&mut mem, &[touch(blocks(0, 2))], Nanos::ZERO);
    let totals = mem.totals(GPU);
    assert_eq!(totals.bytes_populated, Bytes::mib(4));
    assert_eq!(totals.bytes_in.total() + totals.bytes_out.total(), Bytes::ZERO);
    assert!(!notices(&mut mem).iter().any(|n| matches!(n, Notice::Migration { .. })));
}

#[test]
fn a_lone_fault_brings_its_64_kib_and_no_more() {
    // Facts 5, tree prefetcher.
    let mut mem = node(8);
    fill_host(&mut mem);
    let (_, batches) = run(&mut mem, &[touch(pages(3, 100, 1))], Nanos::ZERO);
    assert_eq!(batches.len(), 1);
    let notices = notices(&mut mem);
    assert_eq!(moved(&notices, MigrationCause::Coherence), Bytes::kib(4));
    assert_eq!(moved(&notices, MigrationCause::Prefetch), Bytes::kib(60));
    assert_eq!(mem.pages_at(ON_GPU, block(3)).runs().collect::<Vec<_>>(), [(96, 16)]);
}

#[test]
fn a_block_walked_from_end_to_end_takes_three_batches() {
    // 256 entries with 2 per page are 128 pages: a quarter, a half, and with three quarters the tree prefetcher
    // takes the rest (facts 5).
    let mut mem = node(8);
    fill_host(&mut mem);
    let (_, batches) = run(&mut mem, &[touch(blocks(0, 1))], Nanos::ZERO);
    assert_eq!(batches.len(), 3);
    let notices = notices(&mut mem);
    assert_eq!(moved(&notices, MigrationCause::Coherence), Bytes::kib(3 * 512));
    assert_eq!(moved(&notices, MigrationCause::Prefetch), Bytes::kib(512));
}

#[test]
fn a_batch_has_at_most_256_entries_duplicates_included() {
    let mut mem = node(8);
    let touches: Vec<Touch> = (0..8).map(|i| touch(blocks(i, 1))).collect();
    run(&mut mem, &touches, Nanos::ZERO);
    let mut entries = std::collections::BTreeMap::<u32, u32>::new();
    for notice in notices(&mut mem) {
        if let Notice::GpuFault { pages, duplicates, batch, .. } = notice {
            *entries.entry(batch).or_default() += pages.count() + duplicates;
        }
    }
    assert!(entries.values().all(|&n| n <= 256), "{entries:?}");
    assert!(entries.values().any(|&n| n > 200), "batches fill up: {entries:?}");
    assert_eq!(entries.values().map(|&n| u64::from(n)).sum::<u64>(), mem.totals(GPU).fault_entries);
    assert_eq!(entries.len() as u64, mem.totals(GPU).fault_batches);
}

#[test]
fn faults_are_reported_before_their_block_moves_and_the_replay_comes_last() {
    // Facts 2.5.
    let mut mem = node(8);
    fill_host(&mut mem);
    let (_, batches) = run(&mut mem, &[touch(pages(0, 0, 1))], Nanos::micros(7));
    let seen: Vec<_> = notices(&mut mem)
        .iter()
        .map(|n| match n {
            Notice::GpuFault { .. } => "fault",
            Notice::Migration { .. } => "migration",
            Notice::GpuFaultReplay { at, .. } => {
                assert_eq!(*at, batches[0].1);
                "replay"
            }
        })
        .collect();
    assert_eq!(seen, ["fault", "migration", "migration", "replay"]);
}

#[test]
fn pages_in_flight_are_reported_and_waited_for_but_not_copied_again() {
    // Facts 2.5: a page that is authorised by the time it is looked at is still reported.
    let mut mem = node(8);
    fill_host(&mut mem);
    let start = Nanos::micros(100_000);
    let migrated = mem.migrate(blocks(0, 1), ON_GPU, start).unwrap();
    let (_, batches) = run(&mut mem, &[touch(pages(0, 0, 8))], start);
    assert_eq!(batches, [(start, migrated.done - AWAIT - FLUSH)]);
    let notices = notices(&mut mem);
    assert!(matches!(notices[0], Notice::GpuFault { pages, .. } if pages.count() == 8));
    assert_eq!(moved(&notices, MigrationCause::User), Bytes::mib(2));
    assert_eq!(moved(&notices, MigrationCause::Coherence), Bytes::ZERO);
    assert_eq!(mem.totals(GPU).bytes_in.total(), Bytes::mib(2));
}

#[test]
fn a_copy_that_ends_before_the_kernel_gets_there_costs_nothing() {
    let mut mem = node(8);
    fill_host(&mut mem);
    let start = Nanos::micros(100_000);
    mem.migrate(blocks(0, 1), ON_GPU, start).unwrap();
    let migrated = mem.migrate(blocks(1, 1), ON_GPU, start).unwrap();
    // Two blocks walked in 10 ms: the second is touched after 5 ms, when it has long arrived.
    let mut kernel = KernelRun::new(GPU, Accessor::Kernel, &[touch(blocks(0, 2))], Nanos::micros(10_000));
    let first = kernel.step(&mut mem, start, Nanos(u64::MAX));
    let Step::Faulted { resume_at, .. } = first else { panic!("{first:?}") };
    assert!(resume_at < migrated.done);
    let rest = kernel.step(&mut mem, resume_at, Nanos(u64::MAX));
    assert_eq!(rest, Step::Done { at: resume_at + Nanos::micros(10_000) });
}

#[test]
fn a_kernel_that_needs_more_than_there_is_thrashes_but_ends() {
    let mut mem = node(1);
    fill_host(&mut mem);
    let touches: Vec<Touch> = (0..4).map(|i| touch(blocks(i, 1))).collect();
    let (_, batches) = run(&mut mem, &touches, Nanos::ZERO);
    assert!(batches.len() > 16, "{}", batches.len());
    assert!(mem.totals(GPU).peak_managed <= Bytes::mib(2));
}

#[test]
fn rows_that_a_lookup_picks_fault_once_each_though_they_do_not_all_fit() {
    let (rows, room) = (600, 160);
    let mut mem = node(room);
    mem.map_managed(blocks(16, rows - 16)).unwrap();
    let touches: Vec<Touch> = (0..rows).map(|row| touch(pages(row, row % 512, 1))).collect();
    let (_, batches) = run(&mut mem, &touches, Nanos::ZERO);
    let faults = notices(&mut mem).iter().filter(|n| matches!(n, Notice::GpuFault { .. })).count() as u64;
    assert_eq!((faults, batches.len() as u64), (rows, rows.div_ceil(128)), "two entries each of 256");
}

#[test]
fn pausing_at_horizons_changes_nothing_when_nothing_happens_there() {
    let touches = [touch(blocks(0, 5)), touch(blocks(8, 2)), touch(pages(12, 3, 40))];
    let whole = run(&mut node(4), &touches, Nanos::ZERO);
    let mut mem = node(4);
    let mut kernel = KernelRun::new(GPU, Accessor::Kernel, &touches, Nanos::micros(10));
    let (mut now, mut batches) = (Nanos::ZERO, Vec::new());
    let end = loop {
        match kernel.step(&mut mem, now, now + Nanos(137)) {
            Step::Paused { at } => {
                assert_eq!(at, now + Nanos(137));
                now = at;
            }
            Step::Faulted { at, resume_at, .. } => {
                batches.push((at, resume_at));
                now = resume_at;
            }
            Step::Done { at } => break at,
            fatal => panic!("{fatal:?}"),
        }
    };
    assert_eq!((end, batches), whole);
}

#[test]
fn a_walk_that_touches_nothing_has_no_horizon() {
    let mut mem = node(4);
    let mut copy = KernelRun::new(GPU, Accessor::CopyEngine, &[], Nanos::micros(10));
    assert_eq!(copy.step(&mut mem, Nanos(5), Nanos(6)), Step::Done { at: Nanos(10_005) });
}

#[test]
fn phases_are_walked_one_after_the_other() {
    let mut mem = node(8);
    let late = Touch { range: blocks(4, 1), write: false, phase: 1 };
    run(&mut mem, &[late, touch(blocks(0, 1)), touch(blocks(1, 1))], Nanos::ZERO);
    let mut order = Vec::new();
    for notice in notices(&mut mem) {
        if let Notice::GpuFault { block, access, .. } = notice {
            order.push((block.0 - BASE, access.write));
        }
    }
    let split = order.iter().position(|&(b, _)| b == 4).unwrap();
    assert!(order[..split].iter().all(|&(b, write)| b < 2 && write));
    assert!(order[split..].iter().all(|&(b, write)| b == 4 && !write));
}

#[test]
fn memory_that_is_not_managed_never_faults() {
    let mut mem = node(4);
    let elsewhere = AddrRange::new(UmBlock(5).start(), Bytes::mib(64));
    let (end, batches) = run(&mut mem, &[touch(elsewhere)], Nanos(3));
    assert!(batches.is_empty());
    assert_eq!(end, Nanos(3) + Nanos(16384).max(Nanos::micros(10)));
    let range = elsewhere;
    assert_eq!(mem.migrate(range, ON_GPU, Nanos(0)), Err(ModelError::NotManaged { range }));
}

#[test]
fn an_isolated_fault_costs_what_was_measured() {
    // MSched: 31.79 us, transfer included. The model moves 64 KiB instead of 4 KiB, over a slower link.
    let mut mem = node(4);
    fill_host(&mut mem);
    mem.unmap_managed(blocks(0, 16)).unwrap();
    mem.map_managed(blocks(0, 16)).unwrap();
    let (_, batches) = run(&mut mem, &[touch(pages(0, 0, 1))], Nanos::ZERO);
    let p = mem.profile();
    let work = p.batch_cost + p.entry_cost + p.entry_cost + p.block_cost;
    let spent = batches[0].1 - batches[0].0;
    assert!(spent >= work && spent < work + Nanos::micros(1), "{spent:?}");
    assert!((work + p.per_transfer).0.abs_diff(31_790) < 500);
}
