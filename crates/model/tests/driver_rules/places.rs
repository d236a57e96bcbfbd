//! Who leaves when, what waits for what, and how much there is (facts 4.1, 4.2, 4.6).

use super::*;

#[test]
fn victims_leave_in_order_of_last_make_resident_not_of_access() {
    // Facts 4.2.
    let mut mem = node(3);
    let mut now = Nanos::ZERO;
    for i in 0..3 {
        now = mem.migrate(blocks(i, 1), ON_GPU, now).unwrap().done;
    }
    // An access to a resident block changes nothing, ...
    let (end, batches) = run(&mut mem, &[touch(blocks(0, 1))], now);
    assert!(batches.is_empty());
    now = mem.migrate(blocks(3, 1), ON_GPU, end).unwrap().done;
    assert_eq!(resident(&mem), [1, 2, 3]);
    // ... a migrate call of a resident block does: it is the LRU touch.
    let before = mem.totals(GPU);
    now = mem.migrate(blocks(1, 1), ON_GPU, now).unwrap().done;
    assert_eq!(mem.totals(GPU).bytes_in, before.bytes_in);
    assert_eq!(mem.totals(GPU).touches, before.touches + 1);
    mem.migrate(blocks(4, 1), ON_GPU, now).unwrap();
    assert_eq!(resident(&mem), [1, 3, 4]);
}

#[test]
fn a_chunk_whose_block_moved_away_is_taken_first_and_without_a_copy() {
    // Facts 4.1, last item, and facts 4.2.
    let mut mem = node(3);
    let mut now = mem.migrate(blocks(0, 3), ON_GPU, Nanos::ZERO).unwrap().done;
    now = mem.migrate(blocks(2, 1), Place::Host, now).unwrap().done;
    let before = mem.totals(GPU);
    mem.migrate(blocks(5, 1), ON_GPU, now).unwrap();
    assert_eq!(resident(&mem), [0, 1, 5]);
    assert_eq!(mem.totals(GPU).bytes_out, before.bytes_out);
    assert_eq!(mem.totals(GPU).free_evictions, 1);
}

#[test]
fn a_copy_in_waits_for_the_copy_out_of_its_chunk_but_the_driver_thread_does_not() {
    let mut mem = node(1);
    fill_host(&mut mem);
    let mut now = mem.migrate(blocks(0, 1), ON_GPU, Nanos::micros(100_000)).unwrap().done;
    now += Nanos::micros(1000);
    notices(&mut mem);
    let migrated = mem.migrate(blocks(1, 1), ON_GPU, now).unwrap();
    let copies: Vec<_> = notices(&mut mem)
        .iter()
        .filter_map(|n| match *n {
            Notice::Migration { to, begin, end, .. } => Some((to, begin, end)),
            _ => None,
        })
        .collect();
    let [(Place::Host, _, out_end), (ON_GPU, in_begin, in_end)] = copies[..] else { panic!("{copies:?}") };
    assert_eq!(in_begin, out_end);
    assert!(migrated.ordered < out_end && migrated.done == in_end + AWAIT + FLUSH);
}

#[test]
fn the_two_directions_overlap() {
    let mut mem = node(2);
    fill_host(&mut mem);
    let one = mem.migrate(blocks(0, 1), ON_GPU, Nanos::micros(100_000)).unwrap();
    let start = Nanos::micros(200_000);
    assert!(one.done < start);
    let home = mem.migrate(blocks(0, 1), Place::Host, start).unwrap().done;
    let away = mem.migrate(blocks(1, 1), ON_GPU, start).unwrap().done;
    // Both took as long as one, but that the host had mapped the block that went away, and maps the one that came.
    let p = mem.profile();
    assert_eq!(home - p.host_map_cost, away - p.host_unmap_cost - p.await_cost);
}

#[test]
fn host_copies_stay_allocated_until_the_range_is_freed() {
    // Facts 4.6, last item.
    let mut mem = node(8);
    fill_host(&mut mem);
    assert_eq!(mem.host_in_use(), Bytes::mib(32));
    mem.migrate(blocks(0, 8), ON_GPU, Nanos::ZERO).unwrap();
    assert_eq!(mem.host_in_use(), Bytes::mib(32));
    mem.unmap_managed(blocks(0, 16)).unwrap();
    assert_eq!(mem.host_in_use(), Bytes::ZERO);
    assert_eq!(mem.free_on_device(GPU), Bytes::mib(16));
}

#[test]
fn without_host_memory_nothing_can_be_evicted_and_a_fault_is_fatal() {
    let mut mem =
        node_with(Options { memory: Some(Bytes::mib(2)), host_memory: Some(Bytes::mib(1)), ..Options::default() });
    mem.migrate(blocks(0, 1), ON_GPU, Nanos::ZERO).unwrap();
    let refused = mem.migrate(blocks(1, 1), ON_GPU, Nanos::ZERO).unwrap_err();
    assert!(matches!(refused, ModelError::OutOfMemory { place: Place::Host, .. }), "{refused}");
    let mut kernel = KernelRun::new(GPU, Accessor::Kernel, &[touch(blocks(1, 1))], Nanos::ZERO);
    let step = kernel.step(&mut mem, Nanos(5), Nanos(u64::MAX));
    assert_eq!(step, Step::Fatal { addr: block(1).start(), at: Nanos(5) });
    assert!(matches!(kernel.step(&mut mem, Nanos(5), Nanos(u64::MAX)), Step::Done { .. }));
}

#[test]
fn device_memory_proper_evicts_managed_blocks_and_is_never_evicted() {
    // Facts 4.2, last item.
    let mut mem = node(4);
    let now = mem.migrate(blocks(0, 4), ON_GPU, Nanos::ZERO).unwrap().done;
    let ready = mem.alloc_device(GPU, Bytes::mib(5), now).unwrap();
    assert!(ready > now, "it has to wait for the copies out");
    assert_eq!(resident(&mem), [3], "5 MiB of 8 leave one whole chunk");
    let refused = mem.alloc_device(GPU, Bytes::mib(4), ready).unwrap_err();
    let free = Bytes::mib(3);
    let place = ON_GPU;
    assert_eq!(refused, ModelError::OutOfMemory { place, wanted: Bytes::mib(4), free });
    let now = mem.migrate(blocks(7, 1), ON_GPU, ready).unwrap().done;
    assert_eq!(resident(&mem), [7]);
    mem.free_device(GPU, Bytes::mib(5));
    mem.migrate(blocks(8, 3), ON_GPU, now).unwrap();
    assert_eq!(resident(&mem), [7, 8, 9, 10]);
}

#[test]
fn a_page_lives_in_one_place_also_with_two_gpus() {
    let mut mem = node_with(Options { devices: 2, ..Options::default() });
    let other = Place::Device(DeviceId(1));
    let now = mem.migrate(blocks(0, 1), other, Nanos::ZERO).unwrap().done;
    notices(&mut mem);
    run(&mut mem, &[touch(pages(0, 0, 16))], now);
    assert_eq!(mem.pages_at(ON_GPU, block(0)).count(), 16);
    assert_eq!(mem.pages_at(other, block(0)).count(), 496);
    let between = notices(&mut mem);
    assert!(between.iter().any(|n| matches!(n, Notice::Migration { from, to, .. } if *from == other && *to == ON_GPU)));
}

#[test]
fn moving_what_the_host_has_mapped_costs_the_unmapping() {
    // Facts 4.1: driver eviction followed by refetch is cheaper than UVM_MIGRATE to the host and back.
    let mut mem = node(1);
    mem.migrate(blocks(0, 1), ON_GPU, Nanos::ZERO).unwrap();
    mem.migrate(blocks(1, 1), ON_GPU, Nanos::ZERO).unwrap();
    let start = Nanos::micros(100_000);
    let refetch = mem.migrate(blocks(0, 1), ON_GPU, start).unwrap().ordered - start;
    let start = Nanos::micros(200_000);
    mem.migrate(blocks(0, 1), Place::Host, start).unwrap();
    let start = Nanos::micros(300_000);
    let after_home = mem.migrate(blocks(0, 1), ON_GPU, start).unwrap().ordered - start;
    let p = mem.profile();
    assert_eq!(refetch, p.ioctl_cost + p.block_cost + p.evict_cost);
    assert_eq!(after_home, p.ioctl_cost + p.block_cost + p.host_unmap_cost);
}
