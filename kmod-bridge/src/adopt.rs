//! Attaching in one process for another: the program lends, the daemon adopts.
//!
//! Problem: the driver pins the queue's memory where the request is made and looks the address space up among the caller's
//! descriptors; but the engine that shall read the queue and move pages runs elsewhere.
//!
//! Idea: the program attaches, with the queue in a memfd, and passes on three descriptors: the address space, the tracker, the
//! memfd ([`Lent`]). `UVM_MIGRATE` acts on the address space of the *file*, whoever calls (facts 2.6, 4.1); the queue is memory, which
//! anybody can map who has the memfd ([`Adopted`]).
//!
//! Invariants: the tracker's life is the program's, which attaches one for each engine: what adopts it stops nothing when it goes; the memory stays mapped and pinned as long as the lender keeps [`LentQueue`]. Of a lender nothing is believed: the memory's
//! length and seal are checked, and its contents are read as the driver's are.
//! Not here: how descriptors travel, and whether they are what they are said to be.

use crate::attach::{Gpu, Tracker, Unavailable, attach, find_va_space};
use crate::fault::{QueueWatch, ToolsQueue};
use crate::high;
use crate::migrate::VaSpace;
use crate::raw::{Kernel, QueueMemory};
use crate::version::{DriverVersion, Support};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// What a program can pass on.
#[derive(Debug)]
pub struct Lent {
    /// Which driver it is.
    pub support: Support,
    /// The address space.
    pub uvm: Result<OwnedFd, Unavailable>,
    /// The queue of notices.
    pub queue: Result<LentQueue, Unavailable>,
}

/// An attached queue whose memory others can map. The driver writes it until this is dropped and everybody who was passed
/// the tracker is gone.
#[derive(Debug)]
pub struct LentQueue {
    tracker: Tracker,
    file: OwnedFd,
}

impl LentQueue {
    /// Notices it has room for.
    pub fn entries(&self) -> u32 {
        self.tracker.memory.capacity()
    }
    /// Length of its memory in bytes.
    pub fn bytes(&self) -> u64 {
        QueueMemory::layout(self.entries()).map_or(0, |(_, len)| len.get() as u64)
    }
    /// Its memory, to be passed on.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
    /// A view for other threads.
    pub fn watch(&self) -> QueueWatch {
        QueueWatch::over(&self.tracker.memory)
    }
    /// The tracker, to be passed on.
    pub fn tracker(&self) -> BorrowedFd<'_> {
        self.tracker.fd()
    }
}

impl Lent {
    /// Attaches on behalf of this process, with room for `entries` notices. Call it when a CUDA context exists. Never
    /// fails: each part is there or says why not.
    pub fn open(kernel: &Arc<dyn Kernel>, entries: u32) -> Self {
        let support = Support::of(kernel.driver_version());
        if let Support::Older(have) = &support {
            let refuse = || Unavailable::Driver { have: have.to_string() };
            let (uvm, queue) = (Err(refuse()), Err(refuse()));
            return Self { support, uvm, queue };
        }
        let mut fds = match kernel.uvm_fds() {
            Ok(fds) => fds,
            Err(e) => {
                let again = io::Error::new(e.kind(), e.to_string());
                let (uvm, queue) = (Err(Unavailable::FdTable(again)), Err(Unavailable::FdTable(e)));
                return Self { support, uvm, queue };
            }
        };
        match file(entries).map_err(Unavailable::Memory).and_then(|(file, memory)| {
            let (tracker, uvm) = attach(kernel, &fds, memory)?;
            Ok((LentQueue { tracker, file }, uvm))
        }) {
            Ok((queue, uvm)) => Self { support, uvm: Ok(fds.swap_remove(uvm)), queue: Ok(queue) },
            Err(reason) => {
                let tried = fds.len();
                let uvm = find_va_space(&**kernel, &fds).map(|at| fds.swap_remove(at));
                Self { support, uvm: uvm.ok_or(Unavailable::NoVaSpace { tried }), queue: Err(reason) }
            }
        }
    }
}

/// Memory for a queue, in a file that can be passed on and never changes its length.
fn file(entries: u32) -> io::Result<(OwnedFd, QueueMemory)> {
    let (_, len) = QueueMemory::layout(entries)?;
    let file = high::copy(memfd_create(c"deepum-tools", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?)?;
    ftruncate(&file, libc::off_t::try_from(len.get()).unwrap_or(libc::off_t::MAX))?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    let memory = QueueMemory::of_file(entries, file.as_fd())?;
    Ok((file, memory))
}

/// What a program passed on.
#[derive(Debug)]
pub struct Handed {
    /// The release of its driver, where it says.
    pub driver: Option<DriverVersion>,
    /// Its address space.
    pub uvm: OwnedFd,
    /// Its GPUs.
    pub gpus: Vec<Gpu>,
    /// Its queue, or why there is none.
    pub queue: Result<HandedQueue, String>,
}

/// A queue that a program passed on.
#[derive(Debug)]
pub struct HandedQueue {
    /// The tracker.
    pub tracker: OwnedFd,
    /// The memory.
    pub memory: OwnedFd,
    /// Notices it has room for.
    pub entries: u32,
}

/// What can be done with it.
#[derive(Debug)]
pub struct Adopted {
    /// Which driver it is.
    pub support: Support,
    /// The address space, in which pages can be moved.
    pub space: Arc<VaSpace>,
    /// Notices, or why there are none.
    pub queue: Result<ToolsQueue, String>,
}

impl Adopted {
    /// Makes use of what was passed on.
    ///
    /// # Errors
    /// [`Unavailable::Driver`].
    pub fn open(kernel: Arc<dyn Kernel>, handed: Handed) -> Result<Self, Unavailable> {
        let Handed { driver, uvm, gpus, queue } = handed;
        let support = Support::of(driver);
        if let Support::Older(have) = &support {
            return Err(Unavailable::Driver { have: have.to_string() });
        }
        let space = Arc::new(VaSpace::new(Arc::clone(&kernel), vec![uvm], 0, &gpus, &support));
        let queue = queue.and_then(|handed| {
            let memory = QueueMemory::of_file(handed.entries, handed.memory.as_fd()).map_err(|e| e.to_string())?;
            let tracker = Tracker::new(kernel, handed.tracker, memory, false);
            Ok(ToolsQueue::new(tracker, Arc::clone(&space), !support.is_known()))
        });
        Ok(Self { support, space, queue })
    }
}
