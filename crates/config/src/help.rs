//! The schema as text: for `deepum --help`, and as `docs/configuration.md`.

use crate::schema::{Config, VARIABLES};
use std::fmt::Write;

/// For a terminal: one paragraph per variable.
pub fn text() -> String {
    let config = Config::default();
    VARIABLES.iter().fold("Environment:\n".to_owned(), |mut out, v| {
        // Writing into a String cannot fail.
        let _ = writeln!(out, "  {}={}\n      {} [default: {}]", v.name, v.values, v.help, (v.default)(&config));
        out
    })
}

/// The whole of `docs/configuration.md`.
pub fn markdown() -> String {
    let config = Config::default();
    let mut out = "# Configuration\n\nDeepUM is configured by environment variables. A misspelt name or a value that is not allowed costs one \
                   line on stderr and nothing else: the default holds.\n\n\
                   This page is made from `crates/config/src/schema.rs`; `BLESS=1 cargo test -p deepum-config` rewrites it.\n\n\
                   | variable | values | default | what it is for |\n| --- | --- | --- | --- |\n"
        .to_owned();
    for v in VARIABLES {
        let _ = writeln!(
            out,
            "| `{}` | `{}` | {} | {} |",
            v.name,
            v.values.replace('|', "\\|"),
            (v.default)(&config),
            v.help
        );
    }
    out
}
