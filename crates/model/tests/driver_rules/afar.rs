//! The host's memory seen from afar (facts 4.9).

use super::*;

const LATER: Nanos = Nanos::micros(100_000);
const LAST: Nanos = Nanos::micros(200_000);

/// The first three blocks have contents on the host, which is preferred for the first two.
fn preferring() -> UnifiedMemory {
    let mut mem = node(8);
    fill_host(&mut mem);
    mem.advise(blocks(0, 2), Advice::Prefer(Some(Place::Host)), Nanos::ZERO).unwrap();
    mem
}

/// How long a kernel over this takes when nothing faults, and that nothing did.
fn walk(mem: &mut UnifiedMemory, range: AddrRange, start: Nanos) -> Nanos {
    let (end, batches) = run(mem, &[touch(range)], start);
    assert_eq!(batches, []);
    end - start
}

#[test]
fn a_fault_where_the_host_is_preferred_brings_nothing_and_is_told_once() {
    let mut mem = preferring();
    let (_, batches) = run(&mut mem, &[touch(blocks(0, 1))], LATER);
    assert_eq!(batches.len(), 4, "128 pages each, and no prefetcher");
    assert_eq!(resident(&mem), []);
    let told = notices(&mut mem);
    assert!(told.iter().any(|notice| matches!(notice, Notice::GpuFault { .. })));
    assert!(!told.iter().any(|notice| matches!(notice, Notice::Migration { .. })));
    assert_eq!(mem.totals(GPU).bytes_in.total(), Bytes::ZERO);
    walk(&mut mem, blocks(0, 1), LAST);
    assert_eq!(notices(&mut mem), []);
}

#[test]
fn what_is_seen_from_afar_comes_over_the_link_each_time_until_a_call_brings_it() {
    let mut mem = preferring();
    run(&mut mem, &[touch(blocks(0, 1))], LATER);
    let link = 2.0 * 1048576.0 * 1e9 / Profile::named("v100-32g").unwrap().h2d_bandwidth;
    let far = [LAST, LAST + LATER].map(|start| walk(&mut mem, blocks(0, 1), start));
    mem.migrate(blocks(0, 1), ON_GPU, LAST + LAST).unwrap();
    assert_eq!(resident(&mem), [0]);
    let near = walk(&mut mem, blocks(0, 1), LAST + LAST + LATER);
    for far in far {
        assert!(((far - near).0 as f64 - link).abs() < 1000.0, "{far:?} instead of {near:?} and {link} ns");
    }
}

#[test]
fn what_is_nowhere_is_made_on_the_host_and_what_another_device_has_goes_there() {
    let mut mem = node_with(Options { devices: 2, ..Options::default() });
    let other = Place::Device(DeviceId(1));
    mem.migrate(blocks(1, 1), other, Nanos::ZERO).unwrap();
    mem.advise(blocks(0, 2), Advice::Prefer(Some(Place::Host)), Nanos::ZERO).unwrap();
    run(&mut mem, &[touch(blocks(0, 2))], LATER);
    let at = |place| [0, 1].map(|i| mem.pages_at(place, block(i)).count());
    assert_eq!([at(Place::Host), at(ON_GPU), at(other)], [[512, 512], [0, 0], [0, 0]]);
    assert_eq!(mem.mapped_on_host(block(0)).count(), 0);
}

#[test]
fn a_mapping_goes_with_the_pages_and_not_with_the_preference() {
    let mut mem = preferring();
    run(&mut mem, &[touch(blocks(0, 2))], LATER);
    mem.advise(blocks(0, 2), Advice::Prefer(None), LATER).unwrap();
    walk(&mut mem, blocks(0, 2), LAST);
    // Contents that are given up are seen no more, and the next fault brings new ones.
    mem.discard(blocks(0, 1), true, LAST + LATER).unwrap();
    let (_, batches) = run(&mut mem, &[touch(blocks(0, 1))], LAST + LAST);
    assert!(!batches.is_empty());
    assert_eq!(resident(&mem), [0]);
}

#[test]
fn who_keeps_two_copies_is_brought_as_always() {
    let mut mem = preferring();
    mem.advise(blocks(0, 1), Advice::Duplicate(true), Nanos::ZERO).unwrap();
    run(&mut mem, &[touch(blocks(0, 1)), touch(blocks(2, 1))], LATER);
    assert_eq!(resident(&mem), [0, 2]);
}
