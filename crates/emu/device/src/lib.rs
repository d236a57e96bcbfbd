//! The emulated CUDA device.
//!
//! A GPU whose kernels do no arithmetic, but whose memory system is modelled, in virtual time. The stand-in
//! `libcuda.so.1` is a thin skin over this crate; nothing else holds device state.
//!
//!     call ──turn──► Machine ──► streams ──► run: what happens next ──► model (faults, copies, evictions)
//!                       ▲                          │ notices, progress words, launches
//!                       └── engine's commands (hands) ◄── pace: stand still until the engine has settled
//!
//! Where to look: [`machine`] who may touch what when; [`state`] what there is; [`run`] the event loop; [`stream`] order; [`space`] addresses; [`pool`] stream-ordered memory; [`vmm`] addresses that a program maps itself; [`ipc`] what other processes have;
//! [`bytes`] real bytes; [`results`] what kernels leave; [`pace`] the engine; [`watch`] who records; [`truth`] what kernels touch; [`fatbin`] what is in an image;
//! [`capture`] and [`graph`] CUDA graphs; [`log`] the flight log; [`config`] `DEEPUM_EMU`.
//!
//! Invariants: same calls in the same order, same virtual times, whatever the wall clock; what a kernel touches
//! never comes from the shim's records; nothing here calls CUDA.
//!
//! Not modelled: the program's processor touching managed memory directly (copies through CUDA calls are); concurrent
//! kernels, also of one graph. The driver API refuses those by name.

pub mod bytes;
pub mod capture;
pub mod command;
pub mod config;
pub mod context;
pub mod error;
pub mod event;
pub mod fatbin;
pub mod graph;
pub mod hands;
pub mod ipc;
pub mod kernel;
pub mod launch;
pub mod log;
pub mod machine;
pub mod memory;
pub mod pace;
pub mod pool;
pub mod releases;
pub mod results;
pub mod run;
pub mod space;
mod stack;
pub mod start;
pub mod state;
pub mod stream;
pub mod testing;
pub mod truth;
pub mod uvm;
pub mod vmm;
pub mod watch;
pub mod work;

/// One line on stderr, marked as ours.
#[expect(clippy::print_stderr, reason = "this is where the device speaks")]
pub fn say(line: &str) {
    eprintln!("deepum-emu: {line}");
}

/// A length or address as a machine word of this process.
#[expect(clippy::cast_possible_truncation, reason = "only 64-bit systems are built for, see below")]
pub(crate) const fn word(n: u64) -> usize {
    n as usize
}
const _: () = assert!(usize::BITS == 64, "the emulated device shares the 64-bit address space of its process");
