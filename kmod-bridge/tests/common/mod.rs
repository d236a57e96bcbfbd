//! A driver to attach to: answers the requests as driver 535, 550, 560 or 580 does, and fills the queue byte by byte.
//! Written from facts 2.1 to 2.4, 4.1, 4.3 and 4.7, not from the code under test; offsets here are bare numbers on purpose.

#![allow(dead_code, reason = "each test program uses its part")]

use deepum_core::units::DeviceId;
use deepum_kmod_bridge::raw::Params;
use deepum_kmod_bridge::{Bridge, DriverVersion, Gpu, Kernel, Uuid};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub const GPU0: Gpu = Gpu { id: DeviceId(0), uuid: Uuid([0x10; 16]) };
pub const GPU1: Gpu = Gpu { id: DeviceId(1), uuid: Uuid([0x11; 16]) };
pub const CPU_UUID: [u8; 16] =
    [0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73];

/// Shape of the two structs that changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// 515 to 550.40.
    D535,
    /// 550.54 to 555.
    D550,
    /// 560.
    D560,
    /// 565 to 595.
    D580,
}

pub const SHAPES: [(Shape, &str); 4] =
    [(Shape::D535, "535.183.01"), (Shape::D550, "550.163.01"), (Shape::D560, "560.35.03"), (Shape::D580, "580.65.06")];

/// The queue's memory, as it was handed in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    pub entries: u64,
    pub capacity: u32,
    pub control: u64,
}

impl Memory {
    /// A word of the control page.
    pub fn word(&self, at: u64) -> &AtomicU32 {
        // SAFETY: inside the control page, which outlives the tracker, and this is used while it is attached.
        unsafe { AtomicU32::from_ptr((self.control + at) as *mut u32) }
    }

    /// A counter of dropped notices.
    pub fn dropped(&self, event: u64) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr((self.control + 16 + event * 8) as *mut u64) }
    }

    /// Writes an entry.
    pub fn write(&self, index: u32, entry: [u8; 64]) {
        assert!(index < self.capacity);
        // SAFETY: inside the queue; the reader's threads are this one.
        unsafe { (self.entries as *mut [u8; 64]).add(index as usize).write(entry) };
    }
}

/// What the fake driver knows and was told.
#[derive(Debug, Default)]
pub struct State {
    pub memory: Memory,
    pub threshold: Option<u32>,
    pub enabled: u64,
    pub migrations: Vec<(u64, u64, [u8; 16], u32, u32)>,
    /// Base, length, flags.
    pub discards: Vec<(u64, u64, u64)>,
    /// Request, base, length, and a UUID's first byte where there is one.
    pub policies: Vec<(u32, u64, u64, u8)>,
    pub requests: Vec<u32>,
    put: u32,
}

#[derive(Debug)]
pub struct Fake {
    pub shape: Shape,
    pub version: Option<&'static str>,
    pub tools_missing: bool,
    /// Answered to every request of this number, instead of carrying it out.
    pub refuse: Option<(u32, u32)>,
    /// Which of the two uvm descriptors is the address space; none: neither.
    pub va_space: Option<usize>,
    /// Fails `ioctl` itself.
    pub errno: Option<i32>,
    fds: Mutex<Vec<i32>>,
    tools: Mutex<Vec<i32>>,
    pub state: Mutex<State>,
}

impl Fake {
    pub fn new(shape: Shape, version: &'static str) -> Self {
        Self {
            shape,
            version: Some(version),
            tools_missing: false,
            refuse: None,
            va_space: Some(1),
            errno: None,
            fds: Mutex::default(),
            tools: Mutex::default(),
            state: Mutex::default(),
        }
    }

    pub fn open(self, entries: u32) -> (Arc<Self>, Bridge) {
        let fake = Arc::new(self);
        let bridge = Bridge::open(Arc::clone(&fake) as Arc<dyn Kernel>, &[GPU0, GPU1], entries);
        (fake, bridge)
    }

    fn uvm_status(&self, fd: i32) -> u32 {
        match self.fds.lock().unwrap().iter().position(|f| *f == fd) {
            None => 0x1b,
            at if at == self.va_space => 0,
            _ => 0x16,
        }
    }

    /// What the struct of this shape carries out, after what was asked.
    unsafe fn tracker(&self, p: &mut Params) {
        let (status_at, version_at) = match self.shape {
            Shape::D535 | Shape::D580 => (48, None),
            Shape::D550 => (48, Some(52)),
            Shape::D560 => (52, Some(48)),
        };
        let mut status = self.uvm_status(p.u32(44) as i32);
        if version_at.is_some_and(|at| !(1..=2).contains(&p.u32(at))) {
            status = 0x1f;
        }
        let (queue, capacity, control) = (p.u64(0), p.u64(8), p.u64(16));
        if queue % 4096 != 0 || control % 4096 != 0 || !capacity.is_power_of_two() || capacity < 2 {
            status = 0x1f;
        }
        if status == 0 {
            let mut state = self.state.lock().unwrap();
            state.memory = Memory { entries: queue, capacity: capacity.try_into().unwrap(), control };
        }
        p.put_u32(status_at, status);
        if self.shape == Shape::D550 {
            p.put_u32(56, 1);
        }
    }

    unsafe fn uuids(&self, fd: i32, p: &mut Params) {
        let status_at = if self.shape == Shape::D580 { 8 } else { 12 };
        let mut status = self.uvm_status(fd);
        // 560 wants a version; 550.54 takes a count other than 0 for a version 2 table of that many rows.
        if self.shape == Shape::D560 && !(1..=2).contains(&p.u32(8)) {
            status = 0x1f;
        }
        assert!(self.shape != Shape::D550 || p.u32(8) == 0, "a version 2 table was asked for");
        if status == 0 {
            // Index 1 is a GPU of some other process's, 2 and 3 are ours.
            for (i, uuid) in [CPU_UUID, [0x77; 16], GPU0.uuid.0, GPU1.uuid.0].into_iter().enumerate() {
                // SAFETY: the caller handed in room for 257 rows.
                unsafe { ((p.u64(0) as *mut [u8; 16]).add(i)).write_unaligned(uuid) };
            }
        }
        if matches!(self.shape, Shape::D535 | Shape::D550) {
            p.put_u32(8, 4);
        }
        if self.shape == Shape::D550 {
            p.put_u32(16, 1);
        }
        p.put_u32(status_at, status);
    }

    /// Puts an entry in, as the driver does; full: counts it as dropped.
    pub fn put(&self, entry: [u8; 64]) {
        let mut state = self.state.lock().unwrap();
        assert!(state.enabled >> entry[0] & 1 == 1, "event type {} was never asked for", entry[0]);
        let memory = state.memory;
        let mask = memory.capacity - 1;
        let get = memory.word(4).load(Ordering::Acquire) & mask;
        if (state.put + 1) & mask == get {
            memory.dropped(entry[0].into()).fetch_add(1, Ordering::Relaxed);
            return;
        }
        memory.write(state.put, entry);
        state.put = (state.put + 1) & mask;
        memory.word(8).store(state.put, Ordering::Release);
        memory.word(12).store(state.put, Ordering::Release);
    }

    pub fn memory(&self) -> Memory {
        self.state.lock().unwrap().memory
    }
}

impl Kernel for Fake {
    fn driver_version(&self) -> Option<DriverVersion> {
        self.version.and_then(DriverVersion::parse)
    }

    fn open_tools(&self) -> io::Result<OwnedFd> {
        if self.tools_missing {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        let fd: OwnedFd = File::open("/dev/null")?.into();
        self.tools.lock().unwrap().push(fd.as_raw_fd());
        Ok(fd)
    }

    fn uvm_fds(&self) -> io::Result<Vec<OwnedFd>> {
        let fds = [File::open("/dev/null")?.into(), File::open("/dev/null")?.into()];
        *self.fds.lock().unwrap() = fds.iter().map(OwnedFd::as_raw_fd).collect();
        Ok(fds.into())
    }

    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, p: &mut Params) -> io::Result<()> {
        self.state.lock().unwrap().requests.push(request);
        if let Some(errno) = self.errno {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let fd = fd.as_raw_fd();
        if let Some((number, status)) = self.refuse.filter(|(number, _)| *number == request) {
            let at = match (number, self.shape) {
                (23, _) => 8,
                (31, _) => 24,
                (40, _) => 264,
                (42, Shape::D535) => 32,
                (42, _) => 36,
                (43..=45, _) => 16,
                (46 | 47, _) => 32,
                (51, _) => 72,
                (80, _) => 24,
                (56, Shape::D560) => 52,
                (56, _) => 48,
                (57, _) => 4,
                (58, _) => 8,
                (64, Shape::D580) => 8,
                (64, _) => 12,
                _ => panic!("no status offset for {number}"),
            };
            p.put_u32(at, status);
            return Ok(());
        }
        let on_tools = self.tools.lock().unwrap().contains(&fd);
        match (on_tools, request) {
            // SAFETY: handed on.
            (true, 56) => unsafe { self.tracker(p) },
            (true, 57) => {
                self.state.lock().unwrap().threshold = Some(p.u32(0));
                p.put_u32(4, 0);
            }
            (true, 58) => {
                self.state.lock().unwrap().enabled |= p.u64(0);
                p.put_u32(8, 0);
            }
            (true, 59) => {
                self.state.lock().unwrap().enabled &= !p.u64(0);
                p.put_u32(8, 0);
            }
            // SAFETY: handed on.
            (false, 64) => unsafe { self.uuids(fd, p) },
            (false, 51) => {
                let status = self.uvm_status(fd);
                let mut uuid = [0; 16];
                uuid[..8].copy_from_slice(&p.u64(16).to_le_bytes());
                uuid[8..].copy_from_slice(&p.u64(24).to_le_bytes());
                if status == 0 {
                    let call = (p.u64(0), p.u64(8), uuid, p.u32(32), p.u32(52));
                    self.state.lock().unwrap().migrations.push(call);
                }
                p.put_u32(72, status);
            }
            (false, 23) => {
                p.put_u64(0, 7);
                p.put_u32(8, self.uvm_status(fd));
            }
            (false, 40) => p.put_u32(264, if (p.u64(0), p.u64(256)) == (7, 1) { 0 } else { 0x57 }),
            (false, 31) => {
                self.state.lock().unwrap().policies.push((31, p.u64(8), p.u64(16), p.u64(0).to_le_bytes()[0]));
                p.put_u32(24, 0);
            }
            (false, 42..=47) => {
                let of_processor = matches!(request, 42 | 46 | 47);
                let status_at = match request {
                    42 if self.shape != Shape::D535 => 36,
                    42 | 46 | 47 => 32,
                    _ => 16,
                };
                let (base, length) = (p.u64(0), p.u64(8));
                // The page behind the first is nobody's.
                let status = if base == 0x1000 || base % 4096 != 0 { 0x1e } else { self.uvm_status(fd) };
                if status == 0 {
                    let uuid = if of_processor { p.u64(16).to_le_bytes()[0] } else { 0 };
                    self.state.lock().unwrap().policies.push((request, base, length, uuid));
                }
                p.put_u32(status_at, status);
            }
            (false, 80) if self.shape == Shape::D580 => {
                let status = match (self.uvm_status(fd), p.u64(0), p.u64(8), p.u64(16)) {
                    (0, _, _, 2..) => 0x1f,
                    (0, base, len, _) if base % 4096 != 0 || len % 4096 != 0 || len == 0 => 0x1e,
                    (status, ..) => status,
                };
                if status == 0 {
                    self.state.lock().unwrap().discards.push((p.u64(0), p.u64(8), p.u64(16)));
                }
                p.put_u32(24, status);
            }
            _ => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
        Ok(())
    }
}

/// A GpuFault entry (facts 2.4).
pub fn fault(gpu: u8, batch: u32, address: u64, access: u8, at: u64) -> [u8; 64] {
    let mut e = [0; 64];
    e[0] = 3;
    e[1] = 2;
    e[2] = access;
    e[3] = gpu;
    e[8..16].copy_from_slice(&address.to_le_bytes());
    e[16..24].copy_from_slice(&at.to_le_bytes());
    e[32..36].copy_from_slice(&batch.to_le_bytes());
    e[36] = 1;
    e
}

/// A Migration entry (facts 2.4).
pub fn migration(cause: u8, src: u8, dst: u8, address: u64, bytes: u64, end: u64) -> [u8; 64] {
    let mut e = [0; 64];
    (e[0], e[1], e[2], e[3]) = (2, cause, src, dst);
    e[8..16].copy_from_slice(&address.to_le_bytes());
    e[16..24].copy_from_slice(&bytes.to_le_bytes());
    e[24..32].copy_from_slice(&(end - 1).to_le_bytes());
    e[32..40].copy_from_slice(&end.to_le_bytes());
    e
}
