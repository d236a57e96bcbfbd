//! Stand-in `libcuda.so.1`: the CUDA driver API over the emulated device.
//!
//! Thin functions, one file per area; what they do is in `deepum-emu-device`. Every function that PyTorch, its
//! vendor libraries and Triton ask for exists: with a body here, or as a refusal that names itself
//! (`crates/emu/refuse.rs`). `cuGetProcAddress` answers from a table that the build makes of both.
//!
//! Rules: a function answers `CUDA_SUCCESS` only if it had the effect it promises; output pointers are written or the
//! call fails; nothing unwinds into C; `cuInit` and `cuDriverGetVersion` read the environment, nothing else does.
//!
//! Refused: contexts other than the primary ones, nodes of graphs that allocate, free, signal or decide, external memory and semaphores, textures,
//! surfaces and arrays, multicast, green contexts, the JIT linker, private export tables.

mod attribute;
mod capture;
mod context;
mod copy;
mod current;
mod edge;
mod emu;
mod error;
mod event;
mod exec;
mod graph;
mod handle;
mod init;
mod ipc;
mod launch;
mod log;
mod managed;
mod memop;
mod memory;
mod module;
mod node;
mod object;
mod pool;
mod proc;
mod stream;
mod vmm;

include!(concat!(env!("OUT_DIR"), "/refusals.rs"));
include!(concat!(env!("OUT_DIR"), "/table.rs"));
