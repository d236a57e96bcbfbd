//! The emulated CUDA device.

pub mod fatbin;
pub mod truth;
