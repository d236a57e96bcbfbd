//! The queue: what entries look like, when they are put, dropped, and told.

use super::*;
use deepum_core::event::MigrationCause;

#[test]
fn attaching_as_the_facts_say_works_with_every_driver() {
    for branch in DRIVERS {
        let (world, ring, control) = attached(branch, 64);
        assert!(world.sink().wanted());
        world.sink().put(&fault(3, PageMask::span(5, 7), 2));
        assert_eq!(control.word(12).load(Ordering::Acquire), 4, "2 pages and 2 duplicates, driver {branch}");
        assert_eq!(control.word(8).load(Ordering::Acquire), 4);
        let first = ring.bytes(0, 64);
        let mut want = [0u8; 64];
        want[..4].copy_from_slice(&[3, 2, 2, 2]);
        want[8..16].copy_from_slice(&(3 * (2u64 << 20) + 5 * 4096).to_le_bytes());
        want[16..24].copy_from_slice(&1234u64.to_le_bytes());
        want[24..32].copy_from_slice(&1234u64.to_le_bytes());
        want[32..36].copy_from_slice(&77u32.to_le_bytes());
        want[36] = 1;
        assert_eq!(first, want, "driver {branch}");
        assert_eq!(ring.bytes(64, 64), want, "the duplicate follows");
        assert_eq!(u64_at(&ring.bytes(128, 64), 8), 3 * (2u64 << 20) + 6 * 4096);
    }
}

#[test]
fn migrations_and_replays_lie_where_the_facts_say() {
    let (world, ring, _control) = attached(580, 64);
    let mut sink = world.sink();
    sink.put(&Notice::Migration {
        range: AddrRange::new(DevAddr(0x7000_0020_0000), Bytes(8192)),
        from: Place::Host,
        to: Place::Device(DeviceId(1)),
        cause: MigrationCause::Eviction,
        group: Group(0),
        begin: Nanos(10),
        end: Nanos(20),
    });
    sink.put(&Notice::GpuFaultReplay { device: DeviceId(0), batch: 9, at: Nanos(30) });
    let migration = ring.bytes(0, 64);
    assert_eq!(migration[..8], [2, 4, 0, 2, 0, 0, 0, 0]);
    let longs: Vec<u64> = (8..64).step_by(8).map(|at| u64_at(&migration, at)).collect();
    assert_eq!(longs, [0x7000_0020_0000, 8192, 10, 20, 0, 10, 20]);
    let replay = ring.bytes(64, 64);
    assert_eq!(replay[..8], [4, 1, 1, 0, 9, 0, 0, 0]);
    assert_eq!((u64_at(&replay, 8), u64_at(&replay, 16)), (30, 30));
}

#[test]
fn wide_entries_are_those_of_driver_565_and_later() {
    let world = World::new(580);
    world.initialise();
    let (ring, control) = (Pages::new(8192, true), Pages::new(4096, true));
    let mut params = with(&[
        (0, &(ring.at as u64).to_le_bytes()),
        (8, &16u64.to_le_bytes()),
        (16, &(control.at as u64).to_le_bytes()),
        (44, &world.space.as_raw_fd().to_le_bytes()),
        (48, &7u32.to_le_bytes()),
    ]);
    assert_eq!(world.ioctl(&world.tools, 76, &mut params), 0);
    assert_eq!(u32_at(&params, 48), 0);
    assert_eq!(world.tools(58, 8, 0x7ffe), 0);
    let mut sink = world.sink();
    sink.put(&fault(3, PageMask::span(5, 6), 0));
    sink.put(&Notice::Migration {
        range: AddrRange::new(DevAddr(0x20_0000), Bytes(4096)),
        from: Place::Host,
        to: Place::Device(DeviceId(0)),
        cause: MigrationCause::User,
        group: Group(0x77),
        begin: Nanos(10),
        end: Nanos(20),
    });
    let entry = ring.bytes(0, 72);
    assert_eq!(entry[..8], [3, 2, 2, 0, 0, 0, 0, 0]);
    assert_eq!((u64_at(&entry, 8), entry[36], entry[37]), (3 * (2u64 << 20) + 5 * 4096, 1, 2));
    let entry = ring.bytes(72, 72);
    assert_eq!(entry[..16], [2, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 255, 255, 255, 255]);
    let longs: Vec<u64> = (16..72).step_by(8).map(|at| u64_at(&entry, at)).collect();
    assert_eq!(longs, [0x20_0000, 4096, 10, 20, 0x77, 10, 20]);
    for branch in [535, 550, 560] {
        let world = World::new(branch);
        assert_eq!(world.ioctl(&world.tools, 76, &mut params), -libc::EINVAL, "driver {branch}");
    }
}

#[test]
fn a_full_ring_drops_counts_by_type_and_never_overwrites() {
    let (world, ring, control) = attached(560, 4);
    let mut sink = world.sink();
    sink.put(&fault(1, PageMask::span(0, 5), 0));
    sink.put(&Notice::GpuFaultReplay { device: DeviceId(0), batch: 1, at: Nanos(0) });
    assert_eq!(control.word(12).load(Ordering::Acquire), 3, "one slot stays free");
    assert_eq!((control.long(16 + 8 * 3), control.long(16 + 8 * 4)), (2, 1));
    assert_eq!(u64_at(&ring.bytes(0, 64), 8), 2 << 20);
    // The reader takes two; two more fit, across the end.
    control.word(0).store(2, Ordering::Release);
    control.word(4).store(2, Ordering::Release);
    sink.put(&fault(2, PageMask::span(0, 3), 0));
    assert_eq!(control.word(12).load(Ordering::Acquire), 1);
    assert_eq!(control.long(16 + 8 * 3), 3);
    sink.drop_one(&fault(2, PageMask::span(0, 2), 1));
    assert_eq!(control.long(16 + 8 * 3), 6, "dropped on request, entry by entry");
}

#[test]
fn a_hostile_reader_hurts_only_itself() {
    let (world, _ring, control) = attached(535, 4);
    let mut sink = world.sink();
    for garbage in [u32::MAX, 0x8000_0001, 4, 77] {
        for offset in [0, 4, 8, 12] {
            control.word(offset).store(garbage, Ordering::Release);
        }
        sink.put(&fault(1, PageMask::span(0, 9), 3));
        let _ = (sink.unread(), world.uvm.poll(key(&world.tools)));
    }
}

#[test]
fn only_what_is_enabled_is_put() {
    let (world, _ring, control) = attached(550, 16);
    assert_eq!(world.tools(59, 8, 0x7ffe), 0);
    assert!(!world.sink().wanted());
    world.sink().put(&fault(1, PageMask::span(0, 3), 0));
    assert_eq!(control.word(12).load(Ordering::Acquire), 0);
    assert_eq!(world.tools(58, 8, 1 << 4), 0);
    world.sink().put(&fault(1, PageMask::span(0, 3), 0));
    world.sink().put(&Notice::GpuFaultReplay { device: DeviceId(0), batch: 1, at: Nanos(0) });
    assert_eq!(control.word(12).load(Ordering::Acquire), 1);
    assert_eq!(world.tools(58, 8, 1), NvStatus::INVALID_ARGUMENT.0, "there is no event 0");
    assert_eq!(world.tools(58, 8, 1 << 62), NvStatus::INVALID_ARGUMENT.0, "test events are off");
}

#[test]
fn pollers_are_woken_at_the_threshold_once_per_position_of_the_reader() {
    let (world, _ring, control) = attached(580, 16);
    assert_eq!(world.tools(57, 4, 3), 0);
    let mut sink = world.sink();
    sink.put(&fault(1, PageMask::span(0, 2), 0));
    assert!(!world.readable() && !world.uvm.poll(key(&world.tools)));
    sink.put(&fault(1, PageMask::span(2, 4), 0));
    // As the node does before a poll: what is there is taken, and the device looks again.
    let taken = || {
        let mut byte = [0u8; 8];
        // SAFETY: reads into a buffer of ours.
        unsafe { libc::recv(world.tools.as_raw_fd(), byte.as_mut_ptr().cast(), 8, libc::MSG_DONTWAIT) }
    };
    assert_eq!((taken(), taken()), (1, -1), "one wake-up, though the rule held twice");
    assert!(world.uvm.poll(key(&world.tools)) && world.readable(), "it holds still");
    assert_eq!((taken(), taken()), (1, -1));
    control.word(0).store(4, Ordering::Release);
    control.word(4).store(4, Ordering::Release);
    assert!(!world.uvm.poll(key(&world.tools)) && !world.readable() && !world.sink().unread());
    // Lowering the threshold wakes as well.
    sink.put(&fault(1, PageMask::span(0, 2), 0));
    assert!(!world.readable());
    assert_eq!(world.tools(57, 4, 1), 0);
    assert!(world.readable() && world.sink().unread());
}

#[test]
fn private_memory_serves_as_a_queue_too() {
    let world = World::new(535);
    world.initialise();
    let (ring, control) = (Pages::new(4096, false), Pages::new(4096, false));
    assert_eq!(world.attach(&ring, &control, 64, world.space.as_raw_fd()), 0);
    assert_eq!(world.tools(58, 8, 8), 0);
    world.sink().put(&fault(1, PageMask::span(0, 1), 0));
    assert_eq!((control.word(12).load(Ordering::Acquire), ring.bytes(0, 1)[0]), (1, 3));
    let World { uvm, tools, .. } = world;
    drop(tools);
    assert!(!uvm.sink().unread(), "the closed file is gone before its memory is");
}

#[test]
fn a_closed_tools_file_ends_its_tracker_even_if_the_ring_is_unmapped() {
    let (world, ring, control) = attached(580, 64);
    drop((ring, control));
    // Shared pages stay written to, as pinned pages would.
    world.sink().put(&fault(1, PageMask::span(0, 1), 0));
    assert!(world.sink().unread());
    let World { uvm, tools, .. } = world;
    drop(tools);
    let mut sink = uvm.sink();
    sink.put(&fault(1, PageMask::span(0, 1), 0));
    assert!(!sink.unread() && !sink.wanted());
}
