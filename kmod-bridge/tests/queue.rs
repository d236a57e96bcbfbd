//! What comes out of the tools queue for exact bytes in it.

mod common;

use common::{Fake, Shape, fault, migration};
use deepum_core::event::{Event, Fault, Migration, MigrationCause};
use deepum_core::units::{Bytes, DeviceId, Nanos, Place, UmBlock};
use deepum_kmod_bridge::{Notice, QueueBroken, ToolsQueue};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MIB2: u64 = 2 << 20;
const OUR_GPU: u8 = 2;

fn open(entries: u32) -> (Arc<Fake>, ToolsQueue) {
    let (fake, bridge) = Fake::new(Shape::D580, "580.65.06").open(entries);
    (fake, bridge.queue.unwrap())
}

fn drain(queue: &mut ToolsQueue) -> Vec<Notice> {
    let mut out = Vec::new();
    queue.drain(&mut out).unwrap();
    out
}

fn faulted(block: u64, batch: u32, entries: u32, write: bool, at: u64) -> Notice {
    let fault = Fault { block: UmBlock(block), batch, entries, write, at: Nanos(at) };
    Notice { device: Some(DeviceId(0)), event: Event::Fault(fault) }
}

#[test]
fn a_batch_is_folded_to_its_blocks() {
    let (fake, mut queue) = open(64);
    let watch = queue.watch();
    assert!(queue.is_empty() && !watch.unread());
    for (block, access, at) in [(40, 1, 100), (40, 2, 101), (41, 1, 102), (40, 4, 103), (57, 3, 104), (41, 1, 105)] {
        fake.put(fault(OUR_GPU, 7, block * MIB2 + 0x3000, access, at));
    }
    fake.put(fault(OUR_GPU, 8, 40 * MIB2, 1, 200));
    assert!(!queue.is_empty() && watch.unread());
    let expected = [
        faulted(40, 7, 3, true, 100),
        faulted(41, 7, 2, false, 102),
        faulted(57, 7, 1, true, 104),
        faulted(40, 8, 1, false, 200),
    ];
    assert_eq!(drain(&mut queue), expected);
    assert!(queue.is_empty() && !watch.unread());
    assert_eq!(drain(&mut queue), []);
}

#[test]
fn a_batch_read_in_two_halves_reports_no_block_twice() {
    let (fake, mut queue) = open(64);
    fake.put(fault(OUR_GPU, 7, 40 * MIB2, 1, 100));
    assert_eq!(drain(&mut queue), [faulted(40, 7, 1, false, 100)]);
    fake.put(fault(OUR_GPU, 7, 40 * MIB2, 1, 101));
    fake.put(fault(OUR_GPU, 7, 41 * MIB2, 1, 102));
    assert_eq!(drain(&mut queue), [faulted(41, 7, 1, false, 102)]);
    assert_eq!((queue.stats().fault_entries, queue.stats().late_entries), (3, 1));
}

#[test]
fn batches_of_different_gpus_and_clients_are_different() {
    let (fake, mut queue) = open(64);
    let mut hub = fault(OUR_GPU, 7, 40 * MIB2, 1, 101);
    hub[36] = 2;
    fake.put(fault(OUR_GPU, 7, 40 * MIB2, 1, 100));
    fake.put(hub);
    fake.put(fault(3, 7, 40 * MIB2, 1, 102));
    let devices: Vec<_> = drain(&mut queue).iter().map(|n| n.device.unwrap().0).collect();
    assert_eq!(devices, [0, 0, 1]);
}

#[test]
fn migrations_keep_their_place_between_faults() {
    let (fake, mut queue) = open(64);
    fake.put(fault(OUR_GPU, 7, 40 * MIB2, 1, 100));
    fake.put(migration(4, OUR_GPU, 0, 90 * MIB2, MIB2, 150));
    fake.put(migration(2, 0, OUR_GPU, 40 * MIB2 + 0x1_0000, 0x1_0000, 160));
    fake.put(fault(OUR_GPU, 7, 41 * MIB2, 1, 101));
    let moved = |block, bytes, from, to, cause, at| {
        let m = Migration { block: UmBlock(block), bytes: Bytes(bytes), from, to, cause, at: Nanos(at) };
        Notice { device: Some(DeviceId(0)), event: Event::Migrated(m) }
    };
    let gpu = Place::Device(DeviceId(0));
    let expected = [
        faulted(40, 7, 1, false, 100),
        moved(90, MIB2, gpu, Place::Host, MigrationCause::Eviction, 150),
        moved(40, 0x1_0000, Place::Host, gpu, MigrationCause::Coherence, 160),
        faulted(41, 7, 1, false, 101),
    ];
    assert_eq!(drain(&mut queue), expected);
}

/// The driver says "coherence" of what a group takes home; nobody touched it.
#[test]
fn what_leaves_by_a_group_was_asked_for() {
    let (fake, mut queue) = open(64);
    let mut left = migration(2, OUR_GPU, 0, 90 * MIB2, MIB2, 150);
    left[40] = 7;
    fake.put(left);
    fake.put(migration(2, OUR_GPU, 0, 91 * MIB2, MIB2, 151));
    let causes: Vec<_> = drain(&mut queue)
        .into_iter()
        .map(|notice| match notice.event {
            Event::Migrated(moved) => (moved.block.0, moved.cause),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(causes, [(90, MigrationCause::User), (91, MigrationCause::Coherence)]);
    assert_eq!((queue.stats().migrations, queue.stats().unmapped), (2, 1));
}

#[test]
fn a_full_queue_says_what_was_lost_and_goes_on() {
    let (fake, mut queue) = open(8);
    for i in 0..10 {
        fake.put(fault(OUR_GPU, 1, i * MIB2, 1, 100 + i));
    }
    let out = drain(&mut queue);
    assert_eq!(out.len(), 8, "seven fit, and the loss");
    assert_eq!(out[7], Notice { device: None, event: Event::NoticesLost { count: 3 } });
    fake.put(fault(OUR_GPU, 2, 5 * MIB2, 1, 300));
    assert_eq!(drain(&mut queue), [faulted(5, 2, 1, false, 300)]);
    assert_eq!(queue.stats().lost, 3);
}

#[test]
fn strangers_and_nonsense_are_counted_and_left_out() {
    let (fake, mut queue) = open(64);
    fake.put(fault(1, 1, 40 * MIB2, 1, 100));
    fake.put(fault(200, 1, 40 * MIB2, 1, 100));
    fake.put(fault(0, 1, 40 * MIB2, 1, 100));
    fake.put(migration(1, 0, 1, 40 * MIB2, 4096, 100));
    fake.put(fault(OUR_GPU, 1, 40 * MIB2, 9, 100));
    fake.put(migration(6, 0, OUR_GPU, 40 * MIB2, 4096, 100));
    fake.put(migration(1, 0, OUR_GPU, 40 * MIB2 + 4096, MIB2, 100));
    fake.put(migration(1, 0, OUR_GPU, 40 * MIB2, 0, 100));
    for event_type in [6, 10, 13] {
        let mut entry = [0; 64];
        entry[0] = event_type;
        fake.put(entry);
    }
    assert_eq!(drain(&mut queue), []);
    let stats = queue.stats();
    assert_eq!((stats.entries, stats.foreign, stats.malformed), (11, 4, 4));
    assert_eq!((stats.fatal_faults, stats.thrashing, stats.remote_maps), (1, 1, 1));
}

#[test]
fn an_index_outside_ends_the_source() {
    let (fake, mut queue) = open(8);
    fake.put(fault(OUR_GPU, 1, 0, 1, 100));
    fake.memory().word(12).store(8, Ordering::Release);
    let mut out = Vec::new();
    let broken = QueueBroken::Index { index: 8, capacity: 8 };
    assert_eq!(queue.drain(&mut out), Err(broken));
    assert_eq!(queue.drain(&mut out), Err(broken));
    assert!(out.is_empty() && queue.is_empty());
}

#[test]
fn an_unknown_driver_is_left_at_the_first_senseless_entry() {
    let (fake, bridge) = Fake::new(Shape::D580, "640.10").open(64);
    let mut queue = bridge.queue.unwrap();
    fake.put(fault(OUR_GPU, 1, 40 * MIB2, 1, 100));
    fake.put(fault(OUR_GPU, 1, 40 * MIB2, 77, 100));
    let mut out = Vec::new();
    assert_eq!(queue.drain(&mut out), Err(QueueBroken::Nonsense { event_type: 3 }));
    assert_eq!(out, [faulted(40, 1, 1, false, 100)]);
}

/// The obvious way to fold: every notice against every earlier one.
fn fold_slowly(entries: &[(u32, u64, bool)]) -> Vec<(u32, u64, u32, bool)> {
    let mut out: Vec<(u32, u64, u32, bool)> = Vec::new();
    let mut batch_start = 0;
    for (i, (batch, block, write)) in entries.iter().enumerate() {
        if i > 0 && entries[i - 1].0 != *batch {
            batch_start = out.len();
        }
        match out[batch_start..].iter_mut().find(|(_, b, ..)| b == block) {
            Some(found) => {
                found.2 += 1;
                found.3 |= write;
            }
            None => out.push((*batch, *block, 1, *write)),
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Around the end of the queue many times, in readings of any length.
    #[test]
    fn folding_equals_the_oracle_wherever_the_queue_wraps(
        readings in prop::collection::vec(prop::collection::vec((0u32..3, 0u64..5, any::<bool>()), 0..15), 1..40)
    ) {
        let (fake, mut queue) = open(16);
        let mut number = 0;
        for (i, reading) in readings.iter().enumerate() {
            // Batches of different readings never share a number: what is carried over has its own test.
            let first = u32::try_from(i).unwrap() * 4;
            let entries: Vec<_> = reading.iter().map(|(b, block, w)| (first + b, *block, *w)).collect();
            for (batch, block, write) in &entries {
                fake.put(fault(OUR_GPU, *batch, block * MIB2, if *write { 2 } else { 1 }, 1));
                number += 1;
            }
            let got: Vec<_> = drain(&mut queue).iter().map(|n| match n.event {
                Event::Fault(f) => (f.batch, f.block.0, f.entries, f.write),
                other => panic!("{other:?}"),
            }).collect();
            prop_assert_eq!(got, fold_slowly(&entries), "reading {}", i);
        }
        prop_assert_eq!(queue.stats().entries, number);
        prop_assert_eq!(queue.stats().lost, 0);
    }

    /// Whatever the other side writes, wherever it points: no panic, bounded work, counters that add up.
    #[test]
    fn hostile_bytes_and_indexes_do_no_harm(
        entries in prop::collection::vec(prop::array::uniform32(any::<u8>()), 8),
        indexes in prop::collection::vec(any::<u32>(), 1..8),
        small in any::<bool>(),
        dropped in any::<[u64; 4]>(),
    ) {
        let (fake, mut queue) = open(8);
        let memory = fake.memory();
        for (i, half) in entries.iter().enumerate() {
            let mut entry = [0; 64];
            entry[..32].copy_from_slice(half);
            entry[32..].copy_from_slice(half);
            memory.write(i.try_into().unwrap(), entry);
        }
        let mut out = Vec::new();
        for index in indexes {
            let index = if small { index % 8 } else { index };
            memory.word(12).store(index, Ordering::Release);
            for (event, value) in dropped.iter().enumerate() {
                memory.dropped(event as u64 * 21).fetch_xor(*value, Ordering::Relaxed);
            }
            let before = (out.len(), queue.stats().entries);
            let result = queue.drain(&mut out);
            // Once broken, always broken.
            prop_assert!(index < 8 || result.is_err());
            prop_assert!(queue.stats().entries - before.1 < 8);
            prop_assert!(out.len() - before.0 <= 8);
        }
        let stats = queue.stats();
        let explained = stats.fault_entries + stats.migrations + stats.fatal_faults + stats.thrashing
            + stats.remote_maps + stats.malformed;
        prop_assert_eq!(stats.entries, explained);
    }
}
