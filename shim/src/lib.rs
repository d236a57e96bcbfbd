//! `libdeepum.so`: DeepUM inside somebody else's process.
//!
//! The rules of being a guest:
//!
//! 1. A watched call reaches the real function exactly once, with the program's own arguments, on its own thread.
//! 2. Never block (but [`lead`] and [`still`]), exit, unwind into, or print into the program; a panic turns the shim off, not the program.
//! 3. Leave `errno` and the current context as they were.
//! 4. Nothing before the program's first CUDA call: no thread, no file, no output. `ls` under the preload is `ls`.
//! 5. Off means gone: with `DEEPUM=0`, after a panic, and in a forked child, every call goes straight on.
//! 6. After warm-up the launch path takes no lock and allocates nothing, unless what the program does is recorded ([`record`]); a CUDA graph's launch takes one
//!    ([`graph`]).
//!
//! Reading order: [`symbols`] is the list of everything we touch; [`interpose`] makes a row of it an exported function;
//! [`launch`], [`alloc`], [`pools`], [`query`] and [`pt`] are what happens then; [`link`] is where it goes.

#![cfg_attr(test, allow(dead_code, reason = "unit tests do not export, so nothing calls what is exported"))]

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")))]
compile_error!("libdeepum.so knows the calling convention and dynamic linker of x86-64 GNU/Linux only");

mod abi;
mod alloc;
mod apart;
mod arguments;
mod contexts;
mod copy;
mod doors;
mod extent;
mod fence;
mod graph;
mod idle;
mod interpose;
mod ipc;
mod issue;
mod kept;
mod launch;
mod lead;
mod link;
mod log;
mod map;
mod names;
mod nodes;
mod ops;
mod opt;
mod page;
mod pointers;
mod pools;
mod progress;
mod pt;
mod query;
mod real;
mod record;
mod registry;
mod remote;
mod stage;
mod still;
mod streams;
mod symbols;
