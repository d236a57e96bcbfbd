//! A tool attaches, reads and commands, as facts 2.8 say it is done, against every driver: what the tests share.

mod groups;
mod pools;
mod queue;
mod remote;
mod requests;

use super::caller::FileKey;
use super::sys::{self, NvStatus};
use super::{Backend, Uvm, gpu_uuid};
use crate::machine::NoticeSink;
use crate::uvm::Wait;
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, Nanos, Place, UmBlock};
use deepum_emu_abi::forward::{Node, PARAMS};
use deepum_model::{Advice, FaultAccess, Group, Notice, PageMask};
use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::config::DRIVERS;

#[derive(Default)]
struct Moves(Mutex<Vec<String>>);

impl Backend for Moves {
    fn now(&self) -> Nanos {
        Nanos(0x0102_0304_0506)
    }
    fn rest(&self) {
        self.0.lock().unwrap().push("rest".to_owned());
    }
    fn migrate(&self, range: AddrRange, to: Place, wait: Wait) -> Result<(), NvStatus> {
        self.0.lock().unwrap().push(format!("migrate {:x?}+{:x} {to:?} {wait:?}", range.start, range.len.0));
        if range.start.0 == 0x1000 { Err(NvStatus::NO_MEMORY) } else { Ok(()) }
    }
    fn advise(&self, range: AddrRange, advice: Advice) -> Result<(), NvStatus> {
        self.0.lock().unwrap().push(format!("{advice:?} {:x?}+{:x}", range.start, range.len.0));
        Ok(())
    }
    fn discard(&self, range: AddrRange, unmap: bool) -> Result<(), NvStatus> {
        self.0.lock().unwrap().push(format!("discard {:x?}+{:x} {unmap}", range.start, range.len.0));
        Ok(())
    }
    fn make_pool(&self) -> Result<(), NvStatus> {
        Ok(())
    }
    fn make_group(&self) -> Result<Group, NvStatus> {
        self.0.lock().unwrap().push("make".to_owned());
        Ok(Group(0x1122_3344_5566_7788))
    }
    fn end_group(&self, group: Group) -> Result<(), NvStatus> {
        self.0.lock().unwrap().push(format!("end {group:x?}"));
        Ok(())
    }
    fn set_migratable(&self, groups: &[Group], migratable: bool) -> Result<(), NvStatus> {
        self.0.lock().unwrap().push(format!("{groups:x?} {migratable}"));
        Ok(())
    }
    fn join(&self, range: AddrRange, group: Group) -> Result<(), NvStatus> {
        self.0.lock().unwrap().push(format!("join {group:x?} {:x?}+{:x}", range.start, range.len.0));
        Ok(())
    }
    fn drain(&self) {
        self.0.lock().unwrap().push("drain".to_owned());
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
        assert_eq!(libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr()), 0);
        (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]))
    }
}

/// A fresh file of the driver.
fn file(uvm: &Uvm, node: Node) -> OwnedFd {
    let (file, peer) = pair();
    uvm.open(node, key(&file), peer);
    file
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
        let (space, tools) = (file(&uvm, Node::Uvm), file(&uvm, Node::Tools));
        Self { uvm, moves: Moves::default(), space, tools }
    }

    fn ioctl(&self, fd: &OwnedFd, request: u64, params: &mut [u8; PARAMS]) -> i32 {
        self.ioctl_of(&self.moves, fd, request, params)
    }

    /// The same, of another machine.
    fn ioctl_of(&self, backend: &dyn Backend, fd: &OwnedFd, request: u64, params: &mut [u8; PARAMS]) -> i32 {
        // SAFETY: the parameters are a buffer longer than any struct; queues live as long as their tools file, or are
        // shared memory.
        unsafe { self.uvm.ioctl(key(fd), request, params.as_mut_ptr() as usize, backend) }
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

fn with(fields: &[(usize, &[u8])]) -> [u8; PARAMS] {
    let mut params = [0; PARAMS];
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
