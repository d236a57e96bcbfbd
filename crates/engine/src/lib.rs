//! The threads around the core. This much is the agreement with the shim (ARCHITECTURE.md, section 5).

use deepum_config::Config;
use deepum_core::units::{Bytes, DeviceId};
use deepum_protocol::AtomicU64;
use deepum_protocol::ring::Ring;
use std::fmt;

/// What the shim hands over, once.
#[derive(Debug)]
pub struct Inputs {
    /// The record ring; `ring.shared()` carries mode and counters.
    pub ring: Ring<'static>,
    /// One word per stream slot, written by the GPU.
    pub progress: &'static [AtomicU64],
    /// Every visible GPU, by CUDA ordinal.
    pub devices: Vec<DeviceFacts>,
    /// What the environment says.
    pub config: Config,
    /// Prints one line for the person.
    pub say: fn(&str),
}

/// A GPU, as the driver describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceFacts {
    /// CUDA ordinal.
    pub id: DeviceId,
    /// As in `cuDeviceGetUuid`.
    pub uuid: [u8; 16],
    /// Physical memory.
    pub memory: Bytes,
    /// Bytes that may be filled.
    pub budget: Bytes,
}

/// Why the engine cannot start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StartError(pub String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

/// Starts the engine's threads.
///
/// # Errors
/// [`StartError`], in words for the person.
pub fn start(inputs: Inputs) -> Result<(), StartError> {
    let _ = inputs;
    Err(StartError("this build has none".to_owned()))
}
