//! Finding this process's UVM address space and attaching a tools queue to it.
//!
//! Problem: parameter structs changed their shape three times between driver 515 and 595, and a process has two
//! nvidia-uvm descriptors since 535, of which one is the wrong one.
//!
//! Idea: one buffer that every known shape reads alike (facts 2.1). The tracker's version goes into both words
//! where some driver reads it, 48 and 52; the outcome is in 48 unless 48 still holds what we put there.
//! And rather than know which descriptor is the address space, try each: the wrong one is refused.
//!
//! A refusal is an ordinary value, [`Unavailable`], with the words for the user. Nothing here panics or retries for long.

use crate::fault::ToolsQueue;
use crate::migrate::VaSpace;
use crate::raw::{self, Kernel, Params, QueueMemory, RequestError};
use crate::sys::{self, Uuid, request};
use crate::version::{self, Support};
use deepum_core::units::{DeviceId, Place};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A GPU this process uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gpu {
    /// Its CUDA ordinal.
    pub id: DeviceId,
    /// Its UUID by `cuDeviceGetUuid_v2`. The driver names the parent of a MIG slice in notices, which is another
    /// UUID; notices of slices are therefore counted as foreign.
    pub uuid: Uuid,
}

/// Why part of the driver cannot be used. Its text says what that costs and how to mend it.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The tools node does not open.
    #[error(
        "cannot open /dev/nvidia-uvm-tools: {0}; GPU faults stay unseen and prefetching works from launch arguments alone; \
         `nvidia-modprobe -u -c 0` makes the node, and a container needs it passed in"
    )]
    ToolsNode(io::Error),
    /// No descriptor of ours is an address space.
    #[error(
        "no UVM address space among this process's {tried} descriptors of /dev/nvidia-uvm; nothing can be prefetched; \
         it appears with the first CUDA context"
    )]
    NoVaSpace {
        /// How many descriptors there were.
        tried: usize,
    },
    /// `/proc/self/fd` does not list.
    #[error(
        "cannot list /proc/self/fd: {0}; without it the UVM address space is not found, and nothing can be prefetched"
    )]
    FdTable(io::Error),
    /// Memory for the queue is short.
    #[error(
        "no memory for the queue of driver notices: {0}; GPU faults stay unseen and prefetching works from launch arguments alone"
    )]
    Memory(io::Error),
    /// The driver refuses.
    #[error(
        "the driver refuses the queue of notices: {0}; GPU faults stay unseen and prefetching works from launch arguments alone"
    )]
    Tools(RequestError),
    /// The driver is too old.
    #[error("NVIDIA driver {have} is not supported ({} to {} are); the program runs as plain unified memory; a newer driver mends it",
            version::KNOWN.0, version::KNOWN.1)]
    Driver {
        /// Its version.
        have: String,
    },
}

/// What the driver gave us.
#[derive(Debug)]
pub struct Bridge {
    /// Which driver it is.
    pub support: Support,
    /// Notices: faults and migrations.
    pub queue: Result<ToolsQueue, Unavailable>,
    /// The address space, in which pages can be moved.
    pub va_space: Result<Arc<VaSpace>, Unavailable>,
}

impl Bridge {
    /// Attaches to the driver on behalf of this process, with room for `entries` notices (a power of two).
    /// Call it when a CUDA context exists. Never fails: each part is there or says why not.
    pub fn open(kernel: Arc<dyn Kernel>, gpus: &[Gpu], entries: u32) -> Self {
        let support = Support::of(kernel.driver_version());
        if let Support::Older(have) = &support {
            let refuse = || Unavailable::Driver { have: have.to_string() };
            let (queue, va_space) = (Err(refuse()), Err(refuse()));
            return Self { support, queue, va_space };
        }
        let fds = match kernel.uvm_fds() {
            Ok(fds) => fds,
            Err(e) => {
                let again = io::Error::new(e.kind(), e.to_string());
                let (queue, va_space) = (Err(Unavailable::FdTable(e)), Err(Unavailable::FdTable(again)));
                return Self { support, queue, va_space };
            }
        };
        let attached = QueueMemory::new(entries).map_err(Unavailable::Memory);
        match attached.and_then(|memory| attach(&kernel, &fds, memory)) {
            Ok((tracker, uvm)) => {
                let space = Arc::new(VaSpace::new(kernel, fds, uvm, gpus, &support));
                let queue = ToolsQueue::new(tracker, Arc::clone(&space), !support.is_known());
                Self { support, queue: Ok(queue), va_space: Ok(space) }
            }
            Err(reason) => {
                let va_space = match find_va_space(&*kernel, &fds) {
                    Some(uvm) => Ok(Arc::new(VaSpace::new(kernel, fds, uvm, gpus, &support))),
                    None => Err(Unavailable::NoVaSpace { tried: fds.len() }),
                };
                Self { support, queue: Err(reason), va_space }
            }
        }
    }
}

/// An attached tracker and the memory it writes.
#[derive(Debug)]
pub(crate) struct Tracker {
    // In this order: the driver must have let go of the memory before it goes.
    tools: TrackerFd,
    pub(crate) memory: Arc<QueueMemory>,
}

#[derive(Debug)]
struct TrackerFd {
    kernel: Arc<dyn Kernel>,
    fd: OwnedFd,
    /// Whether we attached it; if not, others go on with it after us.
    ours: bool,
}

impl Drop for TrackerFd {
    /// Closing would do, but a forked child may hold the file open.
    fn drop(&mut self) {
        if !self.ours {
            return;
        }
        let mut params = Params::default();
        params.put_u64(offset_of!(sys::EnableEvents, event_type_flags), u64::MAX);
        // SAFETY: no address among the parameters. A driver that refuses has nothing enabled.
        let _ = unsafe { self.kernel.ioctl(self.fd.as_fd(), request::TOOLS_EVENT_QUEUE_DISABLE_EVENTS, &mut params) };
    }
}

impl Tracker {
    /// `ours`: whether the driver shall put nothing more once this is dropped.
    pub(crate) fn new(kernel: Arc<dyn Kernel>, fd: OwnedFd, memory: QueueMemory, ours: bool) -> Self {
        Self { tools: TrackerFd { kernel, fd, ours }, memory: Arc::new(memory) }
    }

    /// Readable when there are notices, most of the time: the driver can lose a wake-up (facts 2.2), so wait with a timeout.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.tools.fd.as_fd()
    }
}

/// What we ask the driver to tell.
const EVENTS: u64 = 1 << sys::event::MIGRATION
    | 1 << sys::event::GPU_FAULT
    | 1 << sys::event::FATAL_FAULT
    | 1 << sys::event::THRASHING
    | 1 << sys::event::MAP_REMOTE;

/// Facts 2.8. Gives the tracker, and which of `fds` is the address space.
pub(crate) fn attach(
    kernel: &Arc<dyn Kernel>,
    fds: &[OwnedFd],
    memory: QueueMemory,
) -> Result<(Tracker, usize), Unavailable> {
    let fd = kernel.open_tools().map_err(Unavailable::ToolsNode)?;
    let tracker = Tracker::new(Arc::clone(kernel), fd, memory, true);

    let mut refusal = None;
    let found = fds.iter().position(|uvm| match init(&**kernel, &tracker, uvm.as_fd()) {
        Ok(()) => true,
        Err(e) => {
            refusal = Some(e);
            false
        }
    });
    let Some(uvm) = found else {
        return Err(refusal.map_or(Unavailable::NoVaSpace { tried: fds.len() }, Unavailable::Tools));
    };

    let mut threshold = Params::default();
    threshold.put_u32(offset_of!(sys::SetThreshold, notification_threshold), 1);
    let mut enable = Params::default();
    enable.put_u64(offset_of!(sys::EnableEvents, event_type_flags), EVENTS);
    // SAFETY: no address among the parameters of either request.
    unsafe {
        raw::call(&**kernel, tracker.fd(), request::TOOLS_SET_NOTIFICATION_THRESHOLD, &mut threshold, |p| {
            p.u32(offset_of!(sys::SetThreshold, rm_status))
        })
        .and_then(|()| {
            raw::call(&**kernel, tracker.fd(), request::TOOLS_EVENT_QUEUE_ENABLE_EVENTS, &mut enable, |p| {
                p.u32(offset_of!(sys::EnableEvents, rm_status))
            })
        })
    }
    .map_err(Unavailable::Tools)?;
    Ok((tracker, uvm))
}

/// Binds the tracker to one address space.
fn init(kernel: &dyn Kernel, tracker: &Tracker, uvm: BorrowedFd<'_>) -> Result<(), RequestError> {
    const VERSION_1: u32 = 1;
    const FIRST: usize = offset_of!(sys::InitTracker515, rm_status);
    const SECOND: usize = offset_of!(sys::InitTracker560, rm_status);
    let memory = &tracker.memory;
    let mut params = Params::default();
    params.put_u64(offset_of!(sys::InitTrackerHead, queue_buffer), memory.entries_address());
    params.put_u64(offset_of!(sys::InitTrackerHead, queue_buffer_size), u64::from(memory.capacity()));
    params.put_u64(offset_of!(sys::InitTrackerHead, control_buffer), memory.control_address());
    params.put_u32(offset_of!(sys::InitTrackerHead, all_processors), 1);
    params.put_u32(offset_of!(sys::InitTrackerHead, uvm_fd), uvm.as_raw_fd().unsigned_abs());
    params.put_u32(FIRST, VERSION_1);
    params.put_u32(SECOND, VERSION_1);
    // SAFETY: queue and control page are ours, as long as stated, and dropped after the tracker's descriptor.
    unsafe {
        raw::call(kernel, tracker.fd(), request::TOOLS_INIT_EVENT_TRACKER, &mut params, |p| {
            if p.u32(FIRST) == VERSION_1 { p.u32(SECOND) } else { p.u32(FIRST) }
        })
    }
}

/// The first descriptor that answers as an address space; for when no tracker told us.
pub(crate) fn find_va_space(kernel: &dyn Kernel, fds: &[OwnedFd]) -> Option<usize> {
    fds.iter().position(|fd| uuid_table(kernel, fd.as_fd()).is_ok())
}

/// The driver's processors, by the index that notices carry; rows not in use are zero.
///
/// # Errors
/// [`RequestError`], for instance because `uvm` is no address space.
pub(crate) fn uuid_table(kernel: &dyn Kernel, uvm: BorrowedFd<'_>) -> Result<Vec<Uuid>, RequestError> {
    // Word 8 is the outcome (from 565), the number of rows (to 555: 0 asks for version 1), or the version (560).
    // Word 12 is the outcome in all others. So the outcome is in 12 if 12 changed, and 560 is asked again.
    const UNTOUCHED: u32 = u32::MAX;
    const LATE: usize = offset_of!(sys::UuidTable515, rm_status);
    const EARLY: usize = offset_of!(sys::UuidTable565, rm_status);
    let ask = |version: u32| {
        let mut table = vec![[0u64; 2]; sys::UUID_TABLE_ROWS];
        let mut params = Params::default();
        params.put_u64(offset_of!(sys::UuidTable515, table_ptr), table.as_mut_ptr() as u64);
        params.put_u32(EARLY, version);
        params.put_u32(LATE, UNTOUCHED);
        // SAFETY: the table is as long as the longest one any driver copies out, and lives until the call is over.
        unsafe {
            raw::call(kernel, uvm, request::TOOLS_GET_PROCESSOR_UUID_TABLE, &mut params, |p| {
                if p.u32(LATE) == UNTOUCHED { p.u32(EARLY) } else { p.u32(LATE) }
            })
        }
        .map(|()| table)
    };
    let table = match ask(0) {
        Err(e) if e.status() == Some(sys::NvStatus::INVALID_ARGUMENT) => ask(1)?,
        other => other?,
    };
    let bytes = |[low, high]: [u64; 2]| {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&low.to_le_bytes());
        uuid[8..].copy_from_slice(&high.to_le_bytes());
        Uuid(uuid)
    };
    Ok(table.into_iter().map(bytes).collect())
}

/// Where the processor with this UUID keeps its bytes, if it is one of ours.
pub(crate) fn place_of(uuid: Uuid, gpus: &[Gpu]) -> Option<Place> {
    if uuid == Uuid::CPU {
        return Some(Place::Host);
    }
    gpus.iter().find(|gpu| gpu.uuid == uuid).map(|gpu| Place::Device(gpu.id))
}
