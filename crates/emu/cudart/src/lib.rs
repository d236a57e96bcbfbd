//! Stand-in CUDA runtime: `libcudart.so.12` and `libcudart.so.13`, one file, told apart by the name it was loaded under.
//!
//! The problem: PyTorch links the CUDA runtime, and the real one talks to the real driver only. The emulated device lives
//! behind the driver API, so what is needed is a runtime that is nothing but a client of that API.
//!
//! The idea: do what the real one does and no more. It opens `libcuda.so.1`, asks `cuGetProcAddress` for every function by
//! name and version ([`driver`]), retains primary contexts lazily ([`context`]), remembers what nvcc's start-up code registers
//! ([`registry`]) and translates each runtime call into driver calls ([`api`]). Since every answer of the driver's door is used
//! from then on, a library that replaces an answer sees each launch.
//!
//! Invariants:
//! - No device state: registered images and functions, a last error and a device number per thread, nothing else.
//! - Registration makes no driver call. A kernel image is loaded at the first use of something inside.
//! - Exported functions never call each other: an interposed symbol is seen only where the program called it.
//! - Nothing unwinds into the program ([`error::entry`]).
//!
//! Per-thread default streams: the `_ptsz` twins pass stream 0 on as the driver's per-thread stream, which the driver defines as
//! the same thing.
//!
//! Not here: graphs made node by node, memory pools and stream-ordered allocation, arrays and textures, addresses of variables,
//! clusters. Each such function that PyTorch imports is refused by name (`crates/emu/refuse.rs`).

// The vendor's names are the interface: functions, and the fields of structures that programs read.
#![allow(non_snake_case, reason = "exported names and structure fields are the vendor's")]

mod api;
mod context;
mod driver;
mod error;
mod error_text;
mod layout;
mod properties;
mod registry;
mod version;

/// A refusal is an error like any other: it becomes the thread's last one.
fn on_refusal(status: i64) -> i64 {
    i64::from(error::entry(|| error::check(i32::try_from(status).unwrap_or(i32::MAX))))
}

include!(concat!(env!("OUT_DIR"), "/refusals.rs"));
