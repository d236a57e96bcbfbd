//! Memory that stays device memory although it is large, and calls that managed memory cannot follow: each said once.
//!
//! Virtual memory management has no managed form, so its memory cannot exceed the GPU. PyTorch has no way back from it that we could
//! show it: it asks no attribute first, an error of `cuMemCreate` ends the program, and out-of-memory is the program's (facts 20.7). A reset of the GPU takes everything away under us and ends our help.

use crate::abi::{Dev, Ptr, SUCCESS, Status};
use crate::interpose::when_over;
use crate::{log, stage};

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
