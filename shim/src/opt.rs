//! The environment, read once.

use deepum_config::{Config, Reading};
use std::sync::OnceLock;

static OPTIONS: OnceLock<Options> = OnceLock::new();

struct Options {
    reading: Reading,
    variables: String,
}

fn options() -> &'static Options {
    OPTIONS.get_or_init(|| {
        // Only our own variables are made text: others may be anything.
        let ours: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| {
                let name = name.into_string().ok().filter(|n| n.starts_with("DEEPUM"))?;
                Some((name, value.to_string_lossy().into_owned()))
            })
            .collect();
        // No value with a control character is allowed for any of them.
        let plain = ours.iter().filter(|(name, value)| !name.chars().chain(value.chars()).any(char::is_control));
        let variables = plain.map(|(name, value)| format!("{name}={value}\n")).collect();
        Options { reading: Config::read(ours), variables }
    })
}

/// What the environment says. With `DEEPUM=0` nothing in it is printed.
pub fn get() -> &'static Reading {
    &options().reading
}

/// The configuration.
pub fn config() -> &'static Config {
    &get().config
}

/// Our variables as they were read, `NAME=value`, one a line: for an engine in another process.
pub fn variables() -> &'static str {
    &options().variables
}
