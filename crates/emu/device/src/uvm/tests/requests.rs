//! Requests: what each driver knows, checks and answers.

use super::*;

#[test]
fn the_wrong_kind_of_descriptor_gives_the_drivers_status() {
    for branch in DRIVERS {
        let world = World::new(branch);
        let (ring, control) = (Pages::new(4096, true), Pages::new(4096, true));
        let attach = |fd: RawFd| world.attach(&ring, &control, 64, fd);
        // Not initialised yet; not a uvm file; a tools file; no file at all.
        assert_eq!(attach(world.space.as_raw_fd()), NvStatus::ILLEGAL_ACTION.0);
        world.initialise();
        assert_eq!(attach(memfd().as_raw_fd()), NvStatus::INSUFFICIENT_PERMISSIONS.0);
        assert_eq!(attach(world.tools.as_raw_fd()), NvStatus::INSUFFICIENT_PERMISSIONS.0);
        assert_eq!(attach(-1), NvStatus::INSUFFICIENT_PERMISSIONS.0);
        // An MM file.
        let mm = file(&world.uvm, Node::Uvm);
        let mut params = with(&[(0, &world.space.as_raw_fd().to_le_bytes())]);
        assert_eq!((world.ioctl(&mm, 75, &mut params), u32_at(&params, 4)), (0, 0));
        assert_eq!(attach(mm.as_raw_fd()), NvStatus::ILLEGAL_ACTION.0);
        assert_eq!((world.ioctl(&mm, 75, &mut params), u32_at(&params, 4)), (0, NvStatus::IN_USE.0));
        // A duplicate of the right one is as good, and one tracker per tools file.
        let copy = world.space.try_clone().unwrap();
        assert_eq!(attach(copy.as_raw_fd()), 0, "driver {branch}");
        assert_eq!(attach(copy.as_raw_fd()), NvStatus::INVALID_ARGUMENT.0);
    }
}

#[test]
fn queues_that_cannot_be_are_refused() {
    let world = World::new(580);
    world.initialise();
    let (ring, control) = (Pages::new(4096, true), Pages::new(4096, true));
    let fd = world.space.as_raw_fd();
    for entries in [1, 3, 63, 1 << 32, u64::MAX] {
        assert_eq!(world.attach(&ring, &control, entries, fd), NvStatus::INVALID_ARGUMENT.0, "{entries}");
    }
    assert_eq!(world.attach(&ring, &control, 0, fd), NvStatus::NOT_SUPPORTED.0, "counters");
    let off = Pages { at: ring.at.wrapping_add(64), len: 0 };
    assert_eq!(world.attach(&off, &control, 2, fd), NvStatus::INVALID_ADDRESS.0);
    assert_eq!(world.attach(&ring, &control, 128, fd), NvStatus::INVALID_ARGUMENT.0, "past the mapping");
    std::mem::forget(off);
    assert_eq!(world.attach(&ring, &control, 64, fd), 0);
}

#[test]
fn requests_are_routed_as_the_driver_routes_them() {
    for branch in DRIVERS {
        let world = World::new(branch);
        let mut params = [0; PARAMS];
        for unknown in [0, 1, 52, 2047, 0x3000_0003] {
            assert_eq!(world.ioctl(&world.space, unknown, &mut params), -libc::EINVAL, "{unknown}");
            assert_eq!(world.ioctl(&world.tools, unknown, &mut params), -libc::EINVAL, "{unknown}");
        }
        assert_eq!(world.ioctl(&world.space, 56, &mut params), -libc::EINVAL, "a tools request on a uvm file");
        assert_eq!(world.ioctl(&world.tools, 51, &mut params), -libc::EINVAL, "and the reverse");
        let discard = world.ioctl(&world.space, 80, &mut params);
        assert_eq!(discard, if branch >= 580 { 0 } else { -libc::EINVAL }, "driver {branch}");
        // SAFETY: address 8 is checked and refused.
        assert_eq!(unsafe { world.uvm.ioctl(key(&world.space), 51, 8, &world.moves) }, -libc::EFAULT);
        // Everything but INITIALIZE needs an initialised file.
        assert_eq!(world.ask(67, 0, &[]), NvStatus::ILLEGAL_ACTION.0);
        world.initialise();
        world.initialise();
        assert_eq!(world.ask(0x3000_0001, 8, &[(0, &[4])]), NvStatus::INVALID_ARGUMENT.0, "other flags");
        assert_eq!(world.ask(67, 0, &[]), 0);
        let register = |uuid: &[u8]| world.ask(37, 36, &[(0, uuid)]);
        assert_eq!(register(&gpu_uuid(DeviceId(1))), 0);
        assert_eq!(register(&gpu_uuid(DeviceId(2))), NvStatus::INVALID_DEVICE.0);
        assert_eq!(*world.moves.0.lock().unwrap(), ["flush"]);
        // SAFETY: not a file of the driver.
        assert_eq!(unsafe { world.uvm.ioctl(key(&memfd()), 51, 8, &world.moves) }, -libc::ENOTTY);
    }
}

#[test]
fn the_uuid_table_has_the_shape_of_its_driver() {
    for (branch, request, status, filled) in
        [(535, 64, 12, 3), (550, 64, 12, 33), (560, 64, 12, 33), (580, 64, 8, 33), (580, 77, 8, 257)]
    {
        let world = World::new(branch);
        world.initialise();
        let table = vec![0xeeu8; 257 * 16];
        let mut params = with(&[(0, &(table.as_ptr() as u64).to_le_bytes())]);
        if branch == 560 {
            params[8] = 1;
        }
        assert_eq!(world.ioctl(&world.space, request, &mut params), 0);
        assert_eq!(u32_at(&params, status), 0, "driver {branch}");
        if branch < 560 {
            assert_eq!(u32_at(&params, 8), 3, "the CPU and two GPUs");
        }
        assert_eq!(table[..16], sys::CPU_UUID);
        assert_eq!(table[16..32], gpu_uuid(DeviceId(0)));
        assert_eq!(table[32..48], gpu_uuid(DeviceId(1)));
        assert!(table[48..16 * filled].iter().all(|b| *b == 0));
        assert!(table[16 * filled..].iter().all(|b| *b == 0xee), "not past its {filled} places, driver {branch}");
        assert_eq!(world.ask(request, status, &[(0, &8u64.to_le_bytes()), (8, &[u8::from(branch == 560)])]), 0x1e);
    }
}

#[test]
fn driver_550_says_which_version_it_grants() {
    let (world, space) = (World::new(550), Pages::new(8192, true));
    world.initialise();
    let at = space.at as u64;
    let mut params = with(&[
        (0, &at.to_le_bytes()),
        (8, &64u64.to_le_bytes()),
        (16, &(at + 4096).to_le_bytes()),
        (44, &world.space.as_raw_fd().to_le_bytes()),
        (52, &1u32.to_le_bytes()),
    ]);
    assert_eq!((world.ioctl(&world.tools, 56, &mut params), u32_at(&params, 48)), (0, 0));
    assert_eq!(u32_at(&params, 56), 1);
    // Of the UUID table: the second, to a caller who says how many places it has; then no more are filled.
    for (places, version, filled) in [(0u32, 1, 33), (3, 2, 3), (1000, 2, 257)] {
        let table = vec![0xeeu8; 258 * 16];
        let mut params = with(&[(0, &(table.as_ptr() as u64).to_le_bytes()), (8, &places.to_le_bytes())]);
        assert_eq!(world.ioctl(&world.space, 64, &mut params), 0);
        assert_eq!([u32_at(&params, 12), u32_at(&params, 8), u32_at(&params, 16)], [0, 3, version]);
        assert!(table[16 * filled..].iter().all(|b| *b == 0xee) && table[16 * filled - 1] != 0xee, "{places}");
    }
}

#[test]
fn migrate_checks_what_the_driver_checks() {
    let world = World::new(580);
    world.initialise();
    let gpu = gpu_uuid(DeviceId(1));
    let migrate = |base: u64, len: u64, uuid: &[u8; 16], more: &[(usize, &[u8])]| {
        let mut fields: Vec<(usize, &[u8])> = Vec::new();
        let (base, len) = (base.to_le_bytes(), len.to_le_bytes());
        fields.extend([(0, &base[..]), (8, &len[..]), (16, &uuid[..])]);
        fields.extend(more);
        world.ask(51, 72, &fields)
    };
    assert_eq!(migrate(0x20_0000, 0x20_0000, &gpu, &[]), 0);
    assert_eq!(migrate(0x20_0000, 0x1000, &sys::CPU_UUID, &[(32, &[1]), (52, &[255; 4])]), 0);
    assert_eq!(migrate(0x1000, 0x1000, &gpu, &[]), NvStatus::NO_MEMORY.0);
    assert_eq!(
        *world.moves.0.lock().unwrap(),
        [
            "migrate 0x200000+200000 Device(DeviceId(1)) Here",
            "migrate 0x200000+1000 Host Not(None)",
            "migrate 0x1000+1000 Device(DeviceId(1)) Here"
        ]
    );
    for (base, len) in [(0, 4096), (4096, 0), (4097, 4096), (4096, 100), (u64::MAX - 4095, 8192)] {
        assert_eq!(migrate(base, len, &gpu, &[]), NvStatus::INVALID_ADDRESS.0, "{base:#x} {len:#x}");
    }
    assert_eq!(migrate(4096, 4096, &[7; 16], &[]), NvStatus::INVALID_DEVICE.0);
    assert_eq!(migrate(4096, 4096, &gpu, &[(32, &[2])]), NvStatus::INVALID_ARGUMENT.0, "test flags");
    assert_eq!(migrate(4096, 4096, &gpu, &[(32, &[1]), (48, &[1])]), NvStatus::INVALID_ARGUMENT.0);
    assert_eq!(migrate(4096, 4096, &gpu, &[(32, &[1]), (40, &[8])]), NvStatus::INVALID_ADDRESS.0, "in no pool");
    assert_eq!(migrate(4096, 4096, &gpu, &[(40, &[8])]), NvStatus::INVALID_ARGUMENT.0, "it waits");
    assert_eq!(migrate(4096, 4096, &sys::CPU_UUID, &[(52, &[3])]), NvStatus::INVALID_ARGUMENT.0);
    assert_eq!(world.moves.0.lock().unwrap().len(), 3, "nothing refused reaches the machine");
}

#[test]
fn discard_knows_its_two_flags() {
    let world = World::new(580);
    world.initialise();
    let discard = |flags: u8| world.ask(80, 24, &[(0, &[0, 0, 32]), (8, &[0, 16]), (16, &[flags])]);
    assert_eq!([discard(0), discard(1), discard(2)], [0, 0, NvStatus::INVALID_ARGUMENT.0]);
    assert_eq!(*world.moves.0.lock().unwrap(), ["discard 0x200000+1000 false", "discard 0x200000+1000 true"]);
}

#[test]
fn policies_are_answered_where_their_driver_has_the_status() {
    for branch in DRIVERS {
        let world = World::new(branch);
        world.initialise();
        let (base, len) = (0x20_0000u64.to_le_bytes(), 0x40_0000u64.to_le_bytes());
        let range: [(usize, &[u8]); 2] = [(0, &base), (8, &len)];
        let gpu = gpu_uuid(DeviceId(1));
        let of = |uuid: &'static [u8]| [range[0], range[1], (16, uuid)];
        let gpu: &'static [u8] = Box::leak(Box::new(gpu));
        let preferred = if branch == 535 { 32 } else { 36 };
        for (request, status, fields) in [
            (42, preferred, of(gpu).to_vec()),
            (43, 16, range.to_vec()),
            (44, 16, range.to_vec()),
            (45, 16, range.to_vec()),
            (46, 32, of(gpu).to_vec()),
            (47, 32, of(gpu).to_vec()),
        ] {
            let mut params = with(&fields);
            params[status..status + 4].fill(7);
            assert_eq!((world.ioctl(&world.space, request, &mut params), u32_at(&params, status)), (0, 0), "{request}");
        }
        assert_eq!(
            *world.moves.0.lock().unwrap(),
            [
                "Prefer(Some(Device(DeviceId(1)))) 0x200000+400000",
                "Prefer(None) 0x200000+400000",
                "Duplicate(true) 0x200000+400000",
                "Duplicate(false) 0x200000+400000",
                "AccessedBy(DeviceId(1), true) 0x200000+400000",
                "AccessedBy(DeviceId(1), false) 0x200000+400000",
            ]
        );
        assert_eq!(world.ask(42, preferred, &of(&[7; 16])), NvStatus::INVALID_DEVICE.0);
        assert_eq!(world.ask(46, 32, &of(&sys::CPU_UUID)), NvStatus::NOT_SUPPORTED.0);
        assert_eq!(world.ask(44, 16, &[(0, &base), (8, &[1])]), NvStatus::INVALID_ADDRESS.0);
        assert_eq!(world.moves.0.lock().unwrap().len(), 6, "nothing refused reaches the machine");
    }
}
