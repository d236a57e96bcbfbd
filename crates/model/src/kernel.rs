//! A kernel (or a copy engine) walking over memory, one fault batch at a time. (Bodies follow.)

use crate::memory::UnifiedMemory;
use deepum_core::units::{AddrRange, DevAddr, DeviceId, Nanos};

/// One piece of memory a kernel reads or writes. Ranges outside managed memory are allowed and never fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// The bytes.
    pub range: AddrRange,
    /// Whether any is written.
    pub write: bool,
    /// Touches of a lower phase are walked to their end before those of the next; within a phase all advance
    /// together. 0 for everything, unless a kernel works through a list of tensors.
    pub phase: u32,
}

/// Who walks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accessor {
    /// A kernel on the SMs: replayable faults, in batches.
    Kernel,
    /// A copy engine (`cudaMemcpy` and `cudaMemset` on managed memory): non-replayable faults.
    CopyEngine,
}

/// What happened in one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A fault batch was served; its notices are waiting in the memory. The walk goes on at `resume_at`.
    Faulted {
        /// The batch's number.
        batch: u32,
        /// When the first miss happened.
        at: Nanos,
        /// When the warps run again.
        resume_at: Nanos,
    },
    /// Nothing was missing up to the horizon; call again then.
    Paused {
        /// The horizon as given.
        at: Nanos,
    },
    /// The walk is over.
    Done {
        /// When.
        at: Nanos,
    },
    /// The driver found no memory for a page: a fatal fault, the context is lost.
    Fatal {
        /// The page.
        addr: DevAddr,
        /// When.
        at: Nanos,
    },
}

/// One kernel in execution.
#[derive(Debug)]
pub struct KernelRun {
    device: DeviceId,
}

impl KernelRun {
    /// A kernel that touches `touches` and would take `compute` if nothing were missing.
    #[must_use]
    pub fn new(device: DeviceId, accessor: Accessor, touches: &[Touch], compute: Nanos) -> Self {
        let _ = (accessor, touches, compute);
        Self { device }
    }

    /// Walks on from `now` (the start, or the `resume_at` or `at` of the step before) until something is
    /// missing, the kernel ends, or virtual time reaches `horizon`, the next time at which anything else
    /// may change memory (a command taking effect, an engine thread returning from a call).
    pub fn step(&mut self, mem: &mut UnifiedMemory, now: Nanos, horizon: Nanos) -> Step {
        let _ = (mem, now, horizon, self.device);
        todo!()
    }
}
