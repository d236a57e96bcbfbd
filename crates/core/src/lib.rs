//! The thinking part of DeepUM: events in, commands out.
//!
//! No threads, no clock, no I/O, no `unsafe`, no randomness: the same events give the same
//! commands. Three worlds run it unchanged: the replay simulator, the emulated CUDA device under
//! real PyTorch, and a real GPU.
#![forbid(unsafe_code)]

pub mod command;
pub mod event;
pub mod units;
