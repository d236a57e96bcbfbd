//! The threads around the core.
//!
//! `deepum-core` thinks: events in, commands out. This package makes events of what the shim and the driver say, in an
//! order that does not depend on chance, and carries the commands out. Embedded, it lives in the program's own process.
//!
//! Start reading at [`threads`]: every thread and channel is in its table ([`ours`]: how they are started). In the order of the flow: [`sources`] (what is
//! looked at), [`gate`] (who says when: [`pace`], [`calm`]), [`looks`], [`inbox`], [`world`] (one turn), [`desk`], [`migrate`] (stage 7); [`launch_gate`].
//! [`pending`] counts the work ([`nudges`], where it comes from another process), [`tables`] keeps what was learned from run to run,
//! [`status`] and [`socket`] tell people, of what the movers did ([`work`]) too, [`embedded`] ties it to the process, [`adopted`] to another one;
//! [`recorder`] writes down what the program does, if that is asked for;
//! [`packet`] is how processes reach each other.
//!
//! Invariants: same looks, same commands in the same order; every queue is bounded; the count of work is exact; nothing
//! here makes the program wait, print more than a line, or die.

#[cfg(not(loom))]
pub mod adopted;
pub mod calm;
pub mod desk;
#[cfg(not(loom))]
pub mod embedded;
#[cfg(not(loom))]
pub mod exports;
pub mod gate;
pub mod inbox;
pub mod invalidation;
pub mod launch_gate;
pub mod looks;
pub mod managed;
pub mod mapping;
pub mod migrate;
#[cfg(not(loom))]
pub mod nudges;
pub mod numbers;
pub mod ours;
#[cfg(not(loom))]
pub mod pace;
#[cfg(not(loom))]
pub mod packet;
pub mod pending;
#[cfg(not(loom))]
pub mod recorder;
#[cfg(not(loom))]
pub mod remote;
pub mod socket;
pub mod sources;
pub mod status;
pub mod sync;
pub mod tables;
pub mod threads;
#[cfg(not(loom))]
pub mod uvm_mover;
pub mod work;
pub mod world;

use deepum_config::Config;
use deepum_core::units::{Bytes, DeviceId};
use deepum_protocol::page::Page;
use deepum_protocol::ring::Ring;
use std::fmt;

/// What the shim hands over, once.
#[derive(Debug)]
pub struct Inputs {
    /// The record ring; `ring.shared()` carries mode and counters.
    pub ring: Ring<'static>,
    /// What shim, GPU and engine share beside it.
    pub page: Page,
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

/// Starts the engine in this process: its threads, and the status socket. At most once.
///
/// # Errors
/// [`StartError`], in words for the person. A driver that is missing or refuses is no error: the engine is off then, has said
/// so, and tells it to whoever asks for the status.
#[cfg(not(loom))]
pub fn start(inputs: Inputs) -> Result<(), StartError> {
    embedded::start(&inputs)
}
