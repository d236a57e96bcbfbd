//! Operations of vendor libraries: they name the kernels inside them.
//!
//! A kernel of cuBLAS may serve many operations, and before CUDA 12.3 has no name at all. While a library call runs on a
//! thread, its name is mixed into the identity of each kernel launched there.

use crate::abi::{Ptr, Status};
use crate::fence::here;
use deepum_core::mix::Mix;
use std::ffi::c_int;

/// What was running before.
pub struct Outer(u64);

fn enter(name: &str) -> Option<Outer> {
    Some(Outer(here(|h| h.op.replace(Mix::new().bytes(name.as_bytes()).end()))))
}

fn leave(outer: &Outer) {
    here(|h| h.op.set(outer.0));
}

/// Hash of the operation this thread is in, or 0.
pub fn current() -> u64 {
    here(|h| h.op.get())
}

macro_rules! operations {
    ($($hook:ident = $name:literal ( $($t:ty),* );)*) => {$(
        #[doc = concat!("`", $name, "`.")]
        pub struct $hook;

        impl $hook {
            /// The operation begins.
            #[allow(clippy::too_many_arguments, reason = "the library's own")]
            pub unsafe fn before($(_: $t),*) -> Option<Outer> {
                enter($name)
            }
            /// It ends.
            pub fn after(outer: Outer, _: Status) {
                leave(&outer);
            }
        }
    )*};
}
operations! {
    GemmEx = "cublasGemmEx" (Ptr, c_int, c_int, c_int, c_int, c_int, Ptr, Ptr, c_int, c_int, Ptr, c_int, c_int, Ptr, Ptr, c_int, c_int, c_int, c_int);
    GemmStridedBatchedEx = "cublasGemmStridedBatchedEx" (Ptr, c_int, c_int, c_int, c_int, c_int, Ptr, Ptr, c_int, c_int, i64, Ptr, c_int, c_int, i64, Ptr, Ptr, c_int, c_int, i64, c_int, c_int, c_int);
    Sgemm = "cublasSgemm" (Ptr, c_int, c_int, c_int, c_int, c_int, Ptr, Ptr, c_int, Ptr, c_int, Ptr, Ptr, c_int);
    Dgemm = "cublasDgemm" (Ptr, c_int, c_int, c_int, c_int, c_int, Ptr, Ptr, c_int, Ptr, c_int, Ptr, Ptr, c_int);
    LtMatmul = "cublasLtMatmul" (Ptr, Ptr, Ptr, Ptr, Ptr, Ptr, Ptr, Ptr, Ptr, Ptr, Ptr, Ptr, Ptr, Ptr, usize, Ptr);
    CudnnExecute = "cudnnBackendExecute" (Ptr, Ptr, Ptr);
}
