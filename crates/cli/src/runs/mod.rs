//! Programs that are run for a document: what a run is (`run`), what all have in common (`bench`), one of them measured (`one`), what was measured
//! already (`store`), and several at a time (`pool`).
//!
//! `deepum paper` and `deepum compare --table` say which runs they want and what to make of them. Nothing here decides a figure: those come
//! from the flight log of the device, the status of the engine and, for bounds, from the trace.

mod bench;
mod one;
mod pool;
mod run;
mod store;

pub use bench::{Bench, Setting};
pub use one::{Engine, Measured};
pub use pool::{Job, carry_out, spoken};
pub use run::{Mode, Run};
pub use store::{Made, Store};

use anyhow::{Result, bail};
use deepum_emu_device::config::Config;
use deepum_model::Profile;

/// Host memory of a device, in bytes.
pub fn host_memory(device: &str) -> Result<u64> {
    let config = Config::parse(device, &Profile::NAMES)?;
    let Ok(profile) = Profile::named(&config.profile) else { bail!("no profile {}", config.profile) };
    Ok(config.host.unwrap_or(profile.host_memory).get())
}
