//! Memory that stays device memory although it is large, and calls that managed memory cannot follow: each said once.
//!
//! Stream-ordered pools and virtual memory management have no managed form, so their memory cannot exceed the GPU. Managed
//! memory cannot be exported to another process. A reset of the GPU takes everything away under us and ends our help.

use crate::abi::{Dev, DevPtr, Ptr, SUCCESS, Status};
use crate::{log, registry, stage};
use deepum_core::units::DevAddr;

macro_rules! passed_through {
    ($($hook:ident($($t:ty),*): $line:literal;)*) => {$(
        #[doc = concat!("Passed through: ", $line, ".")]
        pub struct $hook;

        impl $hook {
            /// Said once, if it works.
            pub unsafe fn before($(_: $t),*) -> Option<()> {
                Some(())
            }
            /// Device memory it is.
            pub fn after((): (), status: Status) {
                if status == SUCCESS {
                    log::once!($line);
                }
            }
        }
    )*};
}
passed_through! {
    Pool(*mut Ptr, usize, Ptr): "cudaMallocAsync memory stays device memory and cannot exceed the GPU";
    FromPool(*mut Ptr, usize, Ptr, Ptr): "memory of cudaMallocFromPoolAsync stays device memory and cannot exceed the GPU";
    DriverPool(*mut DevPtr, usize, Ptr): "cuMemAllocAsync memory stays device memory and cannot exceed the GPU";
    DriverFromPool(*mut DevPtr, usize, Ptr, Ptr): "memory of cuMemAllocFromPoolAsync stays device memory and cannot exceed the GPU";
    Vmm(*mut u64, usize, Ptr, u64): "cuMemCreate memory (PyTorch: expandable_segments:True) stays device memory and cannot exceed the GPU; unset it for DeepUM to help";
}

macro_rules! ipc_doors {
    ($($hook:ident($t:ty);)*) => {$(
        /// An export to another process.
        pub struct $hook;

        impl $hook {
            /// Only managed memory is of interest.
            pub unsafe fn before(_: Ptr, ptr: $t) -> Option<()> {
                registry::map().find(DevAddr(ptr as u64)).map(drop)
            }
            /// A failure is ours to explain.
            pub fn after((): (), status: Status) {
                if status != SUCCESS {
                    log::once!("managed memory cannot be shared between processes by CUDA IPC (error {status}); DEEPUM=0 runs this program without DeepUM");
                }
            }
        }
    )*};
}
ipc_doors! {
    RuntimeIpc(Ptr);
    DriverIpc(DevPtr);
}

fn reset(status: Status) {
    if status == SUCCESS {
        stage::turn_off(
            "the program reset a GPU, which takes its memory and contexts away; DeepUM is off from here on",
        );
    }
}

/// `cudaDeviceReset`.
pub struct Reset;

impl Reset {
    /// Nothing is known before.
    pub unsafe fn before() -> Option<()> {
        Some(())
    }
    /// The end of our help.
    pub fn after((): (), status: Status) {
        reset(status);
    }
}

/// `cuDevicePrimaryCtxReset`.
pub struct DriverReset;

impl DriverReset {
    /// Nothing is known before.
    pub unsafe fn before(_: Dev) -> Option<()> {
        Some(())
    }
    /// The end of our help.
    pub fn after((): (), status: Status) {
        reset(status);
    }
}
