//! `/dev/nvidia-uvm` and `/dev/nvidia-uvm-tools`, as the driver answers them, byte for byte.
//!
//! Purpose: `kmod-bridge` runs unchanged against the emulated device. So everything here is written from the driver's
//! side, from facts 1, 2 and 4 (`docs/facts.md`) and nothing that `kmod-bridge` knows.
//!
//! ```text
//! preloaded node: open, ioctl, poll ──► door (C) ──► Uvm: files, requests ──► Backend: the machine
//!                                                     │ trackers ──► queue: ring and control page
//!                             machine: notices ──► sink ┘             in the caller's own memory
//! ```
//!
//! Files are real descriptors that the node makes (so that `dup`, close-on-exec and `SCM_RIGHTS` behave); here they
//! are told apart by what `fstat` says of them. Each is one end of a socket pair: through the other end come the requests of
//! other processes that were handed the file ([`remote`]); that of a tools file also wakes its pollers, and tells by a hang-up
//! that the last descriptor was closed.
//!
//! Locks: [`Uvm`] has one, held only for bookkeeping. A request that moves memory calls the backend, where it may be
//! blocked in virtual time, with no lock of this module held. The machine may call the sink with its own lock held.
//!
//! Not here: counter trackers (a tools fd with an empty queue), policies and range groups of parts of blocks, policies by which the host accesses, external ranges, V2 entries before
//! driver 565, trackers that another process attaches. Such requests are refused, and say so once on stderr.
//!
//! Range groups and preferences are the machine's, of which a process has one, and outlive the file by which they were made. Of blocks that are preferred on the host, or are in a group that does not
//! migrate, a fault of a GPU moves the page as any fault does, and leaves it in its group; the driver maps it from afar, until the next migration. A
//! processor's access to a member is a SIGBUS there, and goes unseen here, as every access of the host's does. The nodes -1 and 0 are one preference.
//!
//! Notices of faults come at once. Those of moves come when the driver looks for them: at the end of a migration that is waited for, or of a request that forbids groups to migrate, at
//! request 67, or when 1024 wait, which is a channel's length there, counted in pushes and by channel. CPU faults, which make it look, too, do not happen here.

pub mod caller;
pub mod door;
mod entry;
mod params;
mod peer;
mod pool;
mod queue;
pub mod remote;
mod requests;
mod sys;
#[cfg(test)]
mod tests;

use crate::machine::NoticeSink;
use caller::{FileKey, Memory};
use deepum_core::units::{AddrRange, DeviceId, Nanos, Place};
use deepum_emu_abi::forward::Node;
use deepum_model::{Advice, Group, Notice};
use parking_lot::Mutex;
use peer::Peer;
use pool::Pool;
use queue::Tracker;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

pub use pool::{Mapping, Semaphore};
pub use sys::NvStatus;

/// What requests make the machine do. Called with no lock of this module held; a call may block until virtual
/// time has passed.
pub trait Backend {
    /// The device's clock.
    fn now(&self) -> Nanos;
    /// Keeps the calling thread, of an engine, until all is over that it gave up.
    fn rest(&self);
    /// `UVM_MIGRATE` of whole pages.
    ///
    /// # Errors
    /// The driver's status; also if some of it may not migrate, and the rest has.
    fn migrate(&self, range: AddrRange, to: Place, wait: Wait) -> Result<(), NvStatus>;
    /// A policy of whole blocks.
    ///
    /// # Errors
    /// The driver's status.
    fn advise(&self, range: AddrRange, advice: Advice) -> Result<(), NvStatus>;
    /// `UVM_DISCARD` of whole pages.
    ///
    /// # Errors
    /// The driver's status.
    fn discard(&self, range: AddrRange, unmap: bool) -> Result<(), NvStatus>;
    /// Memory for a pool of semaphores.
    ///
    /// # Errors
    /// The driver's status.
    fn make_pool(&self) -> Result<(), NvStatus>;
    /// A new range group.
    ///
    /// # Errors
    /// The driver's status.
    fn make_group(&self) -> Result<Group, NvStatus>;
    /// A range group is no more.
    ///
    /// # Errors
    /// The driver's status.
    fn end_group(&self, group: Group) -> Result<(), NvStatus>;
    /// Groups may migrate, or not; then their members go where they are preferred.
    ///
    /// # Errors
    /// The driver's status.
    fn set_migratable(&self, groups: &[Group], migratable: bool) -> Result<(), NvStatus>;
    /// Whole blocks are in a group; if that does not migrate they go where they are preferred.
    ///
    /// # Errors
    /// The driver's status.
    fn join(&self, range: AddrRange, group: Group) -> Result<(), NvStatus>;
    /// Puts every notice up to the present into the queues, at the end of a request.
    fn drain(&self);
    /// The request that does no more than that.
    fn flush(&self);
}

/// Who waits for the copies of a migration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// The call.
    Here,
    /// Nobody, or whoever looks at a word.
    Not(Option<Semaphore>),
}

/// A GPU's UUID: the same bytes in `cuDeviceGetUuid` and here. Fixed per ordinal, so that runs repeat.
#[must_use]
pub fn gpu_uuid(device: DeviceId) -> [u8; 16] {
    let mut uuid = *b"\xde\xe9\x0d\x00emulatedgpu\x00";
    uuid[15] = device.0;
    uuid
}

/// The driver releases that can be played, by branch.
#[must_use]
pub fn release(branch: u16) -> &'static str {
    match branch {
        535 => "535.183.01",
        550 => "550.54.14",
        560 => "560.35.03",
        595 => "595.45.04",
        _ => "580.65.06",
    }
}

/// What a file of `/dev/nvidia-uvm` has become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UvmFile {
    Uninitialised,
    VaSpace { flags: u64 },
    Mm,
}

#[derive(Debug)]
enum File {
    Uvm(UvmFile),
    /// The far end of the socket pair, and the tracker once there is one.
    Tools(Arc<Peer>, Option<Tracker>),
}

#[derive(Debug, Default)]
struct Files {
    open: BTreeMap<FileKey, File>,
    pools: Vec<Pool>,
    /// Whether the VA space's memory map is held by an MM file (one per process).
    mm: bool,
}

/// The driver module's state in this process.
#[derive(Debug)]
pub struct Uvm {
    branch: u16,
    devices: u8,
    memory: Memory,
    files: Mutex<Files>,
    wanted: AtomicBool,
    /// Where other processes' requests come in, once somebody waits for them.
    remote: OnceLock<remote::Door>,
}

impl Uvm {
    /// The driver of `branch` (535, 550, 560, 580 or 595; others are played as 580) with `devices` GPUs.
    #[must_use]
    pub fn new(branch: u16, devices: u8) -> Arc<Self> {
        let branch = if matches!(branch, 535 | 550 | 560 | 595) { branch } else { 580 };
        let files = Mutex::new(Files::default());
        let (memory, wanted, remote) = (Memory::default(), AtomicBool::new(false), OnceLock::new());
        Arc::new(Self { branch, devices, memory, files, wanted, remote })
    }

    /// Takes a fresh descriptor, with the far end of its socket pair, as an open file.
    pub fn open(&self, node: Node, key: FileKey, peer: OwnedFd) {
        let peer = Arc::new(Peer::new(peer));
        let file = match node {
            Node::Uvm => File::Uvm(UvmFile::Uninitialised),
            Node::Tools => File::Tools(Arc::clone(&peer), None),
        };
        // A key seen before is that of a file closed since: inode numbers come back.
        self.files.lock().open.insert(key, file);
        if let Some(door) = self.remote.get() {
            door.watch(key, peer);
        }
    }

    /// Whether there is such a file.
    #[must_use]
    pub fn has(&self, key: FileKey) -> bool {
        self.files.lock().open.contains_key(&key)
    }

    /// The last descriptor of a file was closed.
    fn closed(&self, key: FileKey) {
        let mut files = self.files.lock();
        files.open.remove(&key);
        files.pools.retain(|pool| pool.of != key);
        files.mm = files.open.values().any(|file| matches!(file, File::Uvm(UvmFile::Mm)));
        self.settle_wanted(&files);
    }

    /// Whether a poll of a tools file is to find it readable, and sees to it that it does. Asking also re-arms the wake-up, as in
    /// the driver.
    pub fn poll(&self, key: FileKey) -> bool {
        match self.files.lock().open.get_mut(&key) {
            Some(File::Tools(peer, Some(tracker))) => {
                let due = tracker.poll();
                if due {
                    peer.wake();
                }
                due
            }
            _ => false,
        }
    }

    /// The module's face towards the machine.
    #[must_use]
    pub fn sink(self: &Arc<Self>) -> Box<dyn NoticeSink> {
        Box::new(Sink(Arc::clone(self)))
    }

    fn settle_wanted(&self, files: &Files) {
        let wanted = files.open.values().any(|f| matches!(f, File::Tools(_, Some(t)) if t.enabled() != 0));
        self.wanted.store(wanted, Ordering::Release);
    }

    /// Forgets the trackers for which `keep` says no.
    fn trackers(&self, mut keep: impl FnMut(&mut Tracker, &Peer) -> bool) {
        let mut files = self.files.lock();
        let before = files.open.len();
        files.open.retain(|_, file| match file {
            File::Tools(peer, Some(tracker)) => keep(tracker, peer),
            _ => true,
        });
        if files.open.len() != before {
            self.settle_wanted(&files);
        }
    }
}

/// To ask whether a tools file was closed is a system call: done where somebody would have to be woken, or waited for.
#[derive(Debug)]
struct Sink(Arc<Uvm>);

impl NoticeSink for Sink {
    fn wanted(&self) -> bool {
        self.0.wanted.load(Ordering::Acquire)
    }

    fn put(&mut self, notice: &Notice) {
        self.0.trackers(|tracker, peer| {
            let mut wake = false;
            entry::encode(notice, tracker.wide(), &mut |kind, bytes| wake |= tracker.put(kind, bytes));
            let open = !wake || !peer.hung_up();
            if wake && open {
                peer.wake();
            }
            open
        });
    }

    fn drop_one(&mut self, notice: &Notice) {
        self.0.trackers(|tracker, _| {
            entry::encode(notice, tracker.wide(), &mut |kind, _| tracker.drop_one(kind));
            true
        });
    }

    fn release(&mut self, semaphore: Semaphore) {
        self.0.release(semaphore);
    }

    fn unread(&self) -> bool {
        let mut unread = false;
        self.0.trackers(|tracker, peer| {
            let waits = tracker.unread();
            let open = !waits || !peer.hung_up();
            unread |= waits && open;
            open
        });
        unread
    }
}
