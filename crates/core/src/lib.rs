//! The thinking part of DeepUM: events in, commands out.
//!
//! No threads, no clock, no I/O, no `unsafe`, no randomness: the same events give the same
//! commands. Every world runs it unchanged: the emulated CUDA device under real PyTorch, a real GPU, and
//! scripts in tests.
//!
//! Read in this order: [`event`] and [`command`] (everything that goes in and out), [`engine`], then along
//! the pipeline: [`exec_id`], [`correlate`], [`predict`] (and [`chaining`], the paper's own), [`queues`]; [`policy`] puts them together. Who leaves
//! the GPU is in [`evict`], and whose contents are given up in [`invalidate`]; blocks in two places are in [`copies`], and what all of it is for the driver in [`steps`]; [`trial`] finds out which of two ways off a GPU is faster, and
#![forbid(unsafe_code)]

pub mod block_index;
pub mod chaining;
pub mod command;
pub mod copies;
pub mod correlate;
pub mod counters;
mod doubt;
pub mod engine;
pub mod event;
pub mod evict;
pub mod exec_id;
pub mod horizon;
pub mod invalidate;
pub mod known;
pub mod mix;
pub mod period;
pub mod policy;
pub mod pool;
pub mod predict;
pub mod pt_blocks;
pub mod queues;
pub mod residency;
pub mod sequence;
pub mod steps;
pub mod trial;
pub mod units;
pub mod window;

pub use engine::{Config, Engine};
