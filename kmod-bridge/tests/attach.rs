//! Attaching to drivers of all four shapes, and being refused.

mod common;

use common::{Fake, GPU1, SHAPES, Shape};
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, Place};
use deepum_kmod_bridge::{Advice, DiscardFailure, MigrateFailure, Support, Unavailable};

#[test]
fn every_shape_attaches_and_finds_the_address_space() {
    for (shape, version) in SHAPES {
        let (fake, bridge) = Fake::new(shape, version).open(1024);
        assert!(bridge.queue.is_ok() && bridge.va_space.is_ok(), "{shape:?}: {bridge:?}");
        assert_eq!(bridge.support.version().unwrap().to_string(), version);
        let state = fake.state.lock().unwrap();
        assert_eq!(state.memory.capacity, 1024);
        assert_eq!(state.threshold, Some(1));
        assert_eq!(state.enabled, 1 << 2 | 1 << 3 | 1 << 6 | 1 << 10 | 1 << 13);
    }
}

#[test]
fn a_refusal_is_read_from_the_word_of_its_shape() {
    for (shape, version) in SHAPES {
        let mut fake = Fake::new(shape, version);
        fake.refuse = Some((56, 0x56));
        let (_, bridge) = fake.open(64);
        let text = bridge.queue.unwrap_err().to_string();
        assert!(text.contains("NOT_SUPPORTED (0x56)") && text.contains("launch arguments"), "{shape:?}: {text}");
        assert!(bridge.va_space.is_ok(), "moving pages does not need notices");
    }
}

#[test]
fn without_the_tools_node_pages_can_still_be_moved() {
    for (shape, version) in SHAPES {
        let mut fake = Fake::new(shape, version);
        fake.tools_missing = true;
        let (fake, bridge) = fake.open(64);
        let reason = bridge.queue.unwrap_err();
        assert!(matches!(reason, Unavailable::ToolsNode(_)));
        assert!(reason.to_string().contains("/dev/nvidia-uvm-tools"), "{reason}");
        let range = AddrRange::new(DevAddr(0x4000_0000), Bytes::mib(4));
        bridge.va_space.unwrap().migrate(range, Place::Device(DeviceId(1))).unwrap();
        assert_eq!(fake.state.lock().unwrap().migrations, [(0x4000_0000, 4 << 20, GPU1.uuid.0, 0, u32::MAX)]);
    }
}

#[test]
fn no_address_space_means_nothing_to_work_with() {
    for (shape, version) in SHAPES {
        let mut fake = Fake::new(shape, version);
        fake.va_space = None;
        let (_, bridge) = fake.open(64);
        assert!(bridge.queue.unwrap_err().to_string().contains("ILLEGAL_ACTION (0x16)"));
        assert!(matches!(bridge.va_space, Err(Unavailable::NoVaSpace { tried: 2 })), "{shape:?}");
    }
}

#[test]
fn later_refusals_leave_the_queue_detached() {
    for number in [57, 58] {
        let mut fake = Fake::new(Shape::D580, "580.65.06");
        fake.refuse = Some((number, 0x40));
        let (fake, bridge) = fake.open(64);
        assert!(bridge.queue.unwrap_err().to_string().contains("INVALID_STATE"));
        assert_eq!(
            fake.state.lock().unwrap().requests.iter().filter(|r| **r == 59).count(),
            1,
            "disabled on the way out"
        );
    }
}

#[test]
fn a_failing_system_call_is_named() {
    let mut fake = Fake::new(Shape::D535, "535.54.03");
    fake.errno = Some(libc::EINVAL);
    let (_, bridge) = fake.open(64);
    assert!(bridge.queue.unwrap_err().to_string().contains("UVM_TOOLS_INIT_EVENT_TRACKER failed"));
    assert!(matches!(bridge.va_space, Err(Unavailable::NoVaSpace { .. })));
}

#[test]
fn an_old_driver_is_left_alone_and_a_new_one_attached_warily() {
    let (fake, bridge) = Fake::new(Shape::D535, "470.256.02").open(64);
    assert!(bridge.queue.unwrap_err().to_string().contains("470.256.02"));
    assert!(matches!(bridge.va_space, Err(Unavailable::Driver { .. })));
    assert_eq!(fake.state.lock().unwrap().requests, [], "nothing was asked of it");

    let (_, bridge) = Fake::new(Shape::D580, "640.10").open(64);
    assert!(bridge.queue.is_ok() && matches!(bridge.support, Support::Newer(_)));
    let mut unnamed = Fake::new(Shape::D560, "");
    unnamed.version = None;
    let (_, bridge) = unnamed.open(64);
    assert!(bridge.queue.is_ok() && bridge.support == Support::Unnamed && bridge.support.warning().is_some());
}

#[test]
fn queue_sizes_the_driver_would_refuse_are_refused_by_name() {
    for entries in [0, 1, 3, 1 << 25] {
        let (_, bridge) = Fake::new(Shape::D580, "580.65.06").open(entries);
        assert!(bridge.queue.unwrap_err().to_string().contains(&entries.to_string()));
    }
}

#[test]
fn migrations_go_where_they_are_told_and_failures_have_a_reason() {
    let host = Place::Host;
    let range = AddrRange::new(DevAddr(0x7f00_0020_0000), Bytes::mib(2));
    let (fake, bridge) = Fake::new(Shape::D580, "595.45.04").open(64);
    let space = bridge.va_space.unwrap();
    space.migrate(range, host).unwrap();
    assert_eq!(fake.state.lock().unwrap().migrations, [(0x7f00_0020_0000, 2 << 20, common::CPU_UUID, 0, u32::MAX)]);
    let nowhere = space.migrate(range, Place::Device(DeviceId(9))).unwrap_err();
    assert!(matches!(nowhere.why, MigrateFailure::NoDevice));

    for (status, text) in
        [(0x51, "no memory"), (0x1e, "freed meanwhile"), (0x26, "no such device"), (0x40, "INVALID_STATE")]
    {
        let mut fake = Fake::new(Shape::D580, "595.45.04");
        fake.refuse = Some((51, status));
        let (_, bridge) = fake.open(64);
        let error = bridge.va_space.unwrap().migrate(range, host).unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("2.00 MiB at 0x7f0000200000 to host memory"), "{error}");
    }
}

#[test]
fn what_goes_home_does_not_wait_in_the_driver_for_notices() {
    let range = AddrRange::new(DevAddr(0x7f00_0020_0000), Bytes::mib(6));
    let (fake, bridge) = Fake::new(Shape::D580, "580.65.06").open(64);
    let space = bridge.va_space.unwrap();
    space.migrate_home(range).unwrap();
    space.migrate(range, Place::Host).unwrap();
    let asked = std::mem::take(&mut fake.state.lock().unwrap().migrations);
    let asked: Vec<_> = asked.into_iter().map(|(base, length, to, flags, _)| (base, length, to, flags)).collect();
    let home = |flags| (range.start.0, range.len.0, deepum_kmod_bridge::Uuid::CPU.0, flags);
    assert_eq!(asked, [home(1), home(0)]);

    let mut fake = Fake::new(Shape::D580, "595.45.04");
    fake.refuse = Some((51, 0x51));
    let (_, bridge) = fake.open(64);
    let refused = bridge.va_space.unwrap().migrate_home(range).unwrap_err();
    assert!(matches!(refused.why, MigrateFailure::NoMemory));
}

#[test]
fn contents_are_given_up_unmapped_and_failures_have_a_reason() {
    let range = AddrRange::new(DevAddr(0x7f00_0020_0000), Bytes::mib(6));
    let (fake, bridge) = Fake::new(Shape::D580, "580.65.06").open(64);
    let space = bridge.va_space.unwrap();
    assert_eq!(space.discards(), Ok(()));
    space.discard(range).unwrap();
    assert_eq!(fake.state.lock().unwrap().discards, [(0x7f00_0020_0000, 6 << 20, 1)]);
    assert_eq!(fake.state.lock().unwrap().migrations, []);
    let half_a_page = AddrRange::new(DevAddr(0x7f00_0020_0800), Bytes::mib(2));
    assert!(matches!(space.discard(half_a_page).unwrap_err().why, DiscardFailure::NotManaged));

    for (status, text) in [(0x1e, "freed meanwhile"), (0x40, "UVM_DISCARD answered INVALID_STATE")] {
        let mut fake = Fake::new(Shape::D580, "595.45.04");
        fake.refuse = Some((80, status));
        let (_, bridge) = fake.open(64);
        let error = bridge.va_space.unwrap().discard(range).unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("6.00 MiB at 0x7f0000200000"), "{error}");
    }
}

/// A number that means something else, or nothing, in another driver is never sent to it.
#[test]
fn a_driver_that_is_not_known_to_discard_is_not_asked() {
    let range = AddrRange::new(DevAddr(0x7f00_0020_0000), Bytes::mib(2));
    let others = SHAPES.into_iter().filter(|(shape, _)| *shape != Shape::D580);
    for (shape, version) in others.chain([(Shape::D580, "575.64.05"), (Shape::D580, "640.10")]) {
        let (fake, bridge) = Fake::new(shape, version).open(64);
        let space = bridge.va_space.unwrap();
        assert!(space.discards().unwrap_err().contains(version), "{version}");
        let error = space.discard(range).unwrap_err();
        assert!(matches!(error.why, DiscardFailure::Driver(_)) && error.to_string().contains(version), "{error}");
        assert!(!fake.state.lock().unwrap().requests.contains(&80));
    }
}

#[test]
fn policies_are_told_in_every_shape_and_refusals_have_a_reason() {
    let range = AddrRange::new(DevAddr(0x7f00_0020_0000), Bytes::mib(4));
    let (base, length) = (0x7f00_0020_0000, 4 << 20);
    for (shape, version) in SHAPES {
        let (fake, bridge) = Fake::new(shape, version).open(64);
        let space = bridge.va_space.unwrap();
        assert_eq!(space.duplicates(), Ok(()), "{shape:?}");
        for advice in [
            Advice::Prefer(Some(GPU1.id)),
            Advice::Prefer(None),
            Advice::Duplicate(true),
            Advice::Duplicate(false),
            Advice::AccessedBy(GPU1.id, true),
            Advice::AccessedBy(GPU1.id, false),
        ] {
            space.advise(range, advice).unwrap();
        }
        let told = [(42, 0x11), (43, 0), (44, 0), (45, 0), (46, 0x11), (47, 0x11)];
        let told = told.map(|(request, uuid)| (request, base, length, uuid));
        assert_eq!(fake.state.lock().unwrap().policies, told, "{shape:?}: the question before left nothing");
        assert!(matches!(
            space.advise(range, Advice::Prefer(Some(DeviceId(9)))).unwrap_err().why,
            MigrateFailure::NoDevice
        ));

        for (request, advice) in [
            (42, Advice::Prefer(Some(GPU1.id))),
            (44, Advice::Duplicate(true)),
            (46, Advice::AccessedBy(GPU1.id, true)),
        ] {
            for (status, text) in [(0x1e, "freed meanwhile"), (0x51, "no memory"), (0x40, "INVALID_STATE")] {
                let mut fake = Fake::new(shape, version);
                fake.refuse = Some((request, status));
                let (_, bridge) = fake.open(64);
                let error = bridge.va_space.unwrap().advise(range, advice).unwrap_err().to_string();
                assert!(error.contains(text) && error.contains("4.00 MiB at 0x7f0000200000"), "{shape:?}: {error}");
            }
        }
    }
}

#[test]
fn a_range_leaves_by_its_group_in_every_shape_and_is_out_of_it_again_whatever_fails() {
    let range = AddrRange::new(DevAddr(0x7f00_0020_0000), Bytes::mib(4));
    let (base, length) = (0x7f00_0020_0000, 4 << 20);
    for (shape, version) in SHAPES {
        let (fake, bridge) = Fake::new(shape, version).open(64);
        let space = bridge.va_space.unwrap();
        let stay = space.stay().unwrap();
        space.leave(range, stay).unwrap();
        // The host's UUID begins with a6; the group is number 7.
        let told = [(42, base, length, 0xa6), (31, base, length, 7), (43, base, length, 0)];
        assert_eq!(fake.state.lock().unwrap().policies, told, "{shape:?}");

        for refused in [42, 31, 43] {
            for (status, text) in [(0x1e, "freed meanwhile"), (0x51, "no memory"), (0x40, "INVALID_STATE")] {
                let mut fake = Fake::new(shape, version);
                fake.refuse = Some((refused, status));
                let (fake, bridge) = fake.open(64);
                let space = bridge.va_space.unwrap();
                let error = space.leave(range, stay).unwrap_err().to_string();
                assert!(error.contains(text) && error.contains("4.00 MiB at 0x7f0000200000 to host memory"), "{error}");
                assert_eq!(fake.state.lock().unwrap().requests.last(), Some(&43), "{shape:?}");
            }
        }
    }
    for refused in [23, 40] {
        let mut fake = Fake::new(Shape::D580, "580.65.06");
        fake.refuse = Some((refused, 0x56));
        let (_, bridge) = fake.open(64);
        assert!(bridge.va_space.unwrap().stay().unwrap_err().to_string().contains("NOT_SUPPORTED"));
    }
}

/// Whoever was killed between the requests of a leave left the range in its group.
#[test]
fn a_range_that_was_left_in_a_group_is_taken_out_before_it_moves() {
    let mut fake = Fake::new(Shape::D580, "580.65.06");
    fake.refuse = Some((51, 0x1_0005));
    let (fake, bridge) = fake.open(64);
    let range = AddrRange::new(DevAddr(0x7f00_0020_0000), Bytes::mib(2));
    bridge.va_space.unwrap().migrate(range, Place::Host).unwrap_err();
    let requests = &fake.state.lock().unwrap().requests;
    assert_eq!(requests[requests.len() - 3..], [51, 43, 51], "once more, and no more");
}

#[test]
fn whether_there_can_be_two_copies_is_asked_of_known_drivers_and_of_the_driver_itself() {
    let (fake, bridge) = Fake::new(Shape::D580, "640.10").open(64);
    assert!(bridge.va_space.unwrap().duplicates().unwrap_err().contains("640.10"));
    assert!(!fake.state.lock().unwrap().requests.contains(&45), "a number that may mean something else is not sent");
    for (status, text) in [(0x56, "NOT_SUPPORTED"), (0, "nobody's")] {
        let mut fake = Fake::new(Shape::D580, "595.45.04");
        fake.refuse = Some((45, status));
        let (_, bridge) = fake.open(64);
        let why = bridge.va_space.unwrap().duplicates().unwrap_err();
        assert!(why.contains(text), "{why}");
    }
}

#[test]
fn dropping_the_queue_stops_the_driver_first() {
    let (fake, bridge) = Fake::new(Shape::D580, "580.65.06").open(64);
    drop(bridge);
    let state = fake.state.lock().unwrap();
    assert_eq!((state.enabled, state.requests.last()), (0, Some(&59)));
}
