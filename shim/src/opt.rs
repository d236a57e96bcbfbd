//! The environment, read once.

use deepum_config::{Config, Reading};
use std::sync::OnceLock;

static OPTIONS: OnceLock<Reading> = OnceLock::new();

/// What the environment says. With `DEEPUM=0` nothing in it is printed.
pub fn get() -> &'static Reading {
    OPTIONS.get_or_init(|| {
        // Only our own variables are made text: others may be anything.
        Config::read(std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok().filter(|n| n.starts_with("DEEPUM"))?;
            Some((name, value.to_string_lossy().into_owned()))
        }))
    })
}

/// The configuration.
pub fn config() -> &'static Config {
    &get().config
}
