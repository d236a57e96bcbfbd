//! Memory that stays device memory although it is large, and calls that managed memory cannot follow: each said once.
//!
//! Virtual memory management has no managed form, so its memory cannot exceed the GPU. PyTorch has no way back from it that we could
//! show it: it asks no attribute first, an error of `cuMemCreate` ends the program, and out-of-memory is the program's (facts 20.7). Managed
//! memory cannot be exported to another process. A reset of the GPU takes everything away under us and ends our help.

use crate::abi::{Dev, DevPtr, Ptr, SUCCESS, Status};
use crate::interpose::when_over;
use crate::{log, registry, stage};
use deepum_core::units::DevAddr;

when_over! {
    /// Physical memory to be mapped by the program.
    Vmm(*mut u64, usize, Ptr, u64) => vmm;
    /// `cudaDeviceReset`.
    Reset() => reset;
    /// `cuDevicePrimaryCtxReset`.
    DriverReset(Dev) => reset;
}

fn vmm(status: Status) {
    if status == SUCCESS {
        log::once!(
            "cuMemCreate memory (PyTorch: expandable_segments:True) stays device memory and cannot exceed the GPU; take that out \
             of PYTORCH_ALLOC_CONF (or PYTORCH_CUDA_ALLOC_CONF) for DeepUM to help"
        );
    }
}

fn reset(status: Status) {
    if status == SUCCESS {
        stage::turn_off(
            "the program reset a GPU, which takes its memory and contexts away; DeepUM is off from here on",
        );
    }
}

/// An export to another process.
pub struct Ipc;

impl Ipc {
    /// Only managed memory is of interest.
    pub unsafe fn before(_: Ptr, ptr: DevPtr) -> Option<()> {
        registry::map().find(DevAddr(ptr)).map(drop)
    }
    /// A failure is ours to explain.
    pub fn after((): (), status: Status) {
        if status != SUCCESS {
            log::once!(
                "managed memory cannot be shared between processes by CUDA IPC (error {status}); DEEPUM=0 runs this program \
                 without DeepUM"
            );
        }
    }
}
