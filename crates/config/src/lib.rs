//! Every `DEEPUM_*` environment variable: what it means, what it may say, what holds without it.
//!
//! One list, [`schema::VARIABLES`], makes the parser, the help text of `deepum --help`, `docs/configuration.md`, and the
//! warning about a misspelt name. A bad value costs one line on stderr, which names the variable, the value
//! and what is allowed; then the default holds.
//!
//! Invariants: reading never fails, and says at most one line per variable. Nothing here prints: the
//! caller gets the lines.
#![forbid(unsafe_code)]

pub mod help;
pub mod host;
pub mod schema;
pub mod values;

pub use deepum_core::correlate::Geometry;
pub use deepum_core::policy::PolicyName;
pub use schema::{Config, Reading};
pub use values::{Await, Budget, EngineIn, ExecIdMode, Leave, LogLevel, MemInfo, TablesIn, Times};
