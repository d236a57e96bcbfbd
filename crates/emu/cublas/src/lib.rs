//! Stand-in `libcublas` and `libcublasLt`: one file under both names, as a cuBLAS handle is a valid cuBLASLt handle.
//!
//! Each operation checks its arguments as documented, works out which memory it reads and writes and how much arithmetic it is, and
//! launches one kernel that says so ([`deepum_emu_abi::params`]) through the driver API. No arithmetic is done here and no
//! device state is kept; what the launch costs is the emulated device's business.
//!
//! Doors, as in the real libraries: cuBLAS takes driver functions from `cuGetProcAddress` and launches with `cuLaunchKernel`;
//! cuBLASLt takes them by `dlsym` and launches with `cuLaunchKernelEx`. Neither imports the CUDA runtime.
//!
//! Functions PyTorch imports and this file does not implement are refused by name (`build.rs`).
//! Signatures and enumerations: the cuBLAS library documentation, 12.0 to 13.4.

mod batched;
mod gemm;
mod handle;
mod level3;
mod lt;
mod status;
mod types;
mod vector;

include!(concat!(env!("OUT_DIR"), "/refusals.rs"));
