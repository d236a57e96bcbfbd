//! A tool attaches, reads and commands, as the facts say it is done (section 2.8), against every driver.

use super::caller::FileKey;
use super::sys::{self, NvStatus};
use super::{Backend, Node, Uvm, gpu_uuid};
use crate::machine::NoticeSink;
use deepum_core::event::MigrationCause;
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, Nanos, Place, UmBlock};
use deepum_model::{FaultAccess, Notice, PageMask};
use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const DRIVERS: [u16; 4] = [535, 550, 560, 580];

#[derive(Default)]
struct Moves(Mutex<Vec<String>>);

impl Backend for Moves {
    fn migrate(&self, range: AddrRange, to: Place, wait: bool) -> Result<(), NvStatus> {
        self.0.lock().unwrap().push(format!("migrate {:x?}+{:x} {to:?} {wait}", range.start, range.len.0));
        if range.start.0 == 0x1000 { Err(NvStatus::NO_MEMORY) } else { Ok(()) }
    }
    fn discard(&self, range: AddrRange, unmap: bool) -> Result<(), NvStatus> {
        self.0.lock().unwrap().push(format!("discard {:x?}+{:x} {unmap}", range.start, range.len.0));
        Ok(())
    }
    fn flush(&self) {
        self.0.lock().unwrap().push("flush".to_owned());
    }
}

/// Pages of a memfd (or private ones), as a tool has them.
struct Pages {
    at: *mut u8,
    len: usize,
}

impl Pages {
    fn new(len: usize, shared: bool) -> Self {
        // SAFETY: a fresh mapping of a fresh memfd, or of nothing.
        let at = unsafe {
            if shared {
                let fd = memfd();
                assert_eq!(libc::ftruncate(fd.as_raw_fd(), i64::try_from(len).unwrap()), 0);
                let rw = libc::PROT_READ | libc::PROT_WRITE;
                libc::mmap(null_mut(), len, rw, libc::MAP_SHARED, fd.as_raw_fd(), 0)
            } else {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                libc::mmap(null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
            }
        };
        assert_ne!(at, libc::MAP_FAILED);
        Self { at: at.cast(), len }
    }
    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset + 4 <= self.len);
        // SAFETY: inside the mapping and aligned; accessed atomically on both sides.
        unsafe { AtomicU32::from_ptr(self.at.add(offset).cast()) }
    }
    fn long(&self, offset: usize) -> u64 {
        assert!(offset + 8 <= self.len);
        // SAFETY: as for `word`.
        unsafe { AtomicU64::from_ptr(self.at.add(offset).cast()) }.load(Ordering::Acquire)
    }
    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len);
        // SAFETY: inside the mapping; nothing writes to it during the copy.
        unsafe { std::slice::from_raw_parts(self.at.add(offset), len) }.to_vec()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: our own mapping, unused from here on.
        unsafe { libc::munmap(self.at.cast::<c_void>(), self.len) };
    }
}

fn memfd() -> OwnedFd {
    // SAFETY: a literal name; the new descriptor is ours alone.
    unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC)) }
}

fn pair() -> (OwnedFd, OwnedFd) {
    let mut fds = [0; 2];
    // SAFETY: two new descriptors, ours alone.
    unsafe {
        assert_eq!(libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr()), 0);
        (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]))
    }
}

fn key(fd: &OwnedFd) -> FileKey {
    FileKey::of(fd.as_raw_fd()).unwrap()
}

/// The driver with one VA-space file, and a tools file.
struct World {
    uvm: Arc<Uvm>,
    moves: Moves,
    space: OwnedFd,
    tools: OwnedFd,
}

impl World {
    fn new(branch: u16) -> Self {
        let uvm = Uvm::new(branch, 2);
        let (space, (tools, peer)) = (memfd(), pair());
        uvm.open(Node::Uvm, key(&space), None);
        uvm.open(Node::Tools, key(&tools), Some(peer));
        Self { uvm, moves: Moves::default(), space, tools }
    }

    fn ioctl(&self, fd: &OwnedFd, request: u64, params: &mut [u8; 96]) -> i32 {
        // SAFETY: the parameters are a buffer longer than any struct; queues live as long as their tools file, or are
        // shared memory.
        unsafe { self.uvm.ioctl(key(fd), request, params.as_mut_ptr() as usize, &self.moves) }
    }

    /// A request on the VA-space file; its status.
    fn ask(&self, request: u64, status_at: usize, fields: &[(usize, &[u8])]) -> u32 {
        let mut params = with(fields);
        assert_eq!(self.ioctl(&self.space, request, &mut params), 0);
        u32_at(&params, status_at)
    }

    fn initialise(&self) {
        assert_eq!(self.ask(0x3000_0001, 8, &[]), 0);
    }

    /// Section 2.1, the one buffer that serves all shapes.
    fn attach(&self, ring: &Pages, control: &Pages, entries: u64, uvm_fd: RawFd) -> u32 {
        let mut params = with(&[
            (0, &(ring.at as u64).to_le_bytes()),
            (8, &entries.to_le_bytes()),
            (16, &(control.at as u64).to_le_bytes()),
            (40, &1u32.to_le_bytes()),
            (44, &uvm_fd.to_le_bytes()),
            (48, &1u32.to_le_bytes()),
            (52, &1u32.to_le_bytes()),
        ]);
        assert_eq!(self.ioctl(&self.tools, 56, &mut params), 0);
        let (at48, at52) = (u32_at(&params, 48), u32_at(&params, 52));
        if at48 == 1 { at52 } else { at48 }
    }

    fn tools(&self, request: u64, status_at: usize, value: u64) -> u32 {
        let mut params = with(&[(0, &value.to_le_bytes()[..status_at.min(8)])]);
        assert_eq!(self.ioctl(&self.tools, request, &mut params), 0);
        u32_at(&params, status_at)
    }

    fn sink(&self) -> Box<dyn NoticeSink> {
        self.uvm.sink()
    }

    /// Whether the tools file is readable.
    fn readable(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.tools.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }
}

fn with(fields: &[(usize, &[u8])]) -> [u8; 96] {
    let mut params = [0; 96];
    for (at, bytes) in fields {
        params[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    params
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Attached with everything enabled and a threshold of 1.
fn attached(branch: u16, entries: u64) -> (World, Pages, Pages) {
    let world = World::new(branch);
    world.initialise();
    let ring = Pages::new((entries * 64).next_multiple_of(4096).try_into().unwrap(), true);
    let control = Pages::new(4096, true);
    assert_eq!(world.attach(&ring, &control, entries, world.space.as_raw_fd()), 0, "driver {branch}");
    assert_eq!(world.tools(57, 4, 1), 0);
    assert_eq!(world.tools(58, 8, 0x7ffe), 0);
    (world, ring, control)
}

fn fault(block: u64, pages: PageMask, duplicates: u32) -> Notice {
    Notice::GpuFault {
        device: DeviceId(1),
        block: UmBlock(block),
        pages,
        duplicates,
        access: FaultAccess { write: true, copy_engine: false },
        batch: 77,
        at: Nanos(1234),
    }
}

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
        begin: Nanos(10),
        end: Nanos(20),
    });
    let entry = ring.bytes(0, 72);
    assert_eq!(entry[..8], [3, 2, 2, 0, 0, 0, 0, 0]);
    assert_eq!((u64_at(&entry, 8), entry[36], entry[37]), (3 * (2u64 << 20) + 5 * 4096, 1, 2));
    let entry = ring.bytes(72, 72);
    assert_eq!(entry[..16], [2, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 255, 255, 255, 255]);
    let longs: Vec<u64> = (16..72).step_by(8).map(|at| u64_at(&entry, at)).collect();
    assert_eq!(longs, [0x20_0000, 4096, 10, 20, 0, 10, 20]);
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
    sink.put(&fault(1, PageMask::span(2, 3), 0));
    assert!(world.readable() && world.uvm.poll(key(&world.tools)));
    // The reader takes all, and the node drains the descriptor.
    control.word(0).store(3, Ordering::Release);
    control.word(4).store(3, Ordering::Release);
    let mut byte = [0u8; 8];
    // SAFETY: reads into a buffer of ours.
    let taken = unsafe { libc::recv(world.tools.as_raw_fd(), byte.as_mut_ptr().cast(), 8, libc::MSG_DONTWAIT) };
    assert_eq!(taken, 1, "one wake-up, though the rule held twice");
    assert!(!world.uvm.poll(key(&world.tools)) && !world.sink().unread());
    // Lowering the threshold wakes as well.
    sink.put(&fault(1, PageMask::span(0, 2), 0));
    assert!(!world.readable());
    assert_eq!(world.tools(57, 4, 1), 0);
    assert!(world.readable() && world.sink().unread());
}

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
        let mm = memfd();
        world.uvm.open(Node::Uvm, key(&mm), None);
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
    assert!(!sink.wanted() && !sink.unread());
}

#[test]
fn requests_are_routed_as_the_driver_routes_them() {
    for branch in DRIVERS {
        let world = World::new(branch);
        let mut params = [0; 96];
        for unknown in [0, 1, 52, 2047, 0x3000_0003] {
            assert_eq!(world.ioctl(&world.space, unknown, &mut params), -libc::EINVAL, "{unknown}");
            assert_eq!(world.ioctl(&world.tools, unknown, &mut params), -libc::EINVAL, "{unknown}");
        }
        assert_eq!(world.ioctl(&world.space, 56, &mut params), -libc::EINVAL, "a tools request on a uvm file");
        assert_eq!(world.ioctl(&world.tools, 51, &mut params), -libc::EINVAL, "and the reverse");
        let discard = world.ioctl(&world.space, 80, &mut params);
        assert_eq!(discard, if branch == 580 { 0 } else { -libc::EINVAL }, "driver {branch}");
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
        [(535, 64, 12, 3), (550, 64, 12, 3), (560, 64, 12, 33), (580, 64, 8, 33), (580, 77, 8, 257)]
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
            "migrate 0x200000+200000 Device(DeviceId(1)) true",
            "migrate 0x200000+1000 Host false",
            "migrate 0x1000+1000 Device(DeviceId(1)) true"
        ]
    );
    for (base, len) in [(0, 4096), (4096, 0), (4097, 4096), (4096, 100), (u64::MAX - 4095, 8192)] {
        assert_eq!(migrate(base, len, &gpu, &[]), NvStatus::INVALID_ADDRESS.0, "{base:#x} {len:#x}");
    }
    assert_eq!(migrate(4096, 4096, &[7; 16], &[]), NvStatus::INVALID_DEVICE.0);
    assert_eq!(migrate(4096, 4096, &gpu, &[(32, &[2])]), NvStatus::INVALID_ARGUMENT.0, "test flags");
    assert_eq!(migrate(4096, 4096, &gpu, &[(32, &[1]), (48, &[1])]), NvStatus::INVALID_ARGUMENT.0);
    assert_eq!(migrate(4096, 4096, &gpu, &[(32, &[1]), (40, &[8])]), NvStatus::INVALID_ADDRESS.0);
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
