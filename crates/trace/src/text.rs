//! Traces as lines, for people: to read, to compare, to write small ones by hand.
//!
//! Four lines of header, then one a record: its time in nanoseconds, its kind, and what belongs to it. A range is `START+LENGTH`, a place `@N`, a
//! kernel `#N`; strings are as in JSON. Lines without anything in them, and lines that begin with `;`, are left out. `docs/trace.md` has an example.
//!
//! [`Record`](crate::event::Record) prints as its line and is parsed from it; [`header`] and [`Reader`] are for whole traces. The same records are allowed as in `binary`.

mod parse;
mod print;

pub use parse::{Reader, TextError, Unreadable};
pub use print::header;

/// What the first line says.
const FIRST: &str = "deepum trace 1";

#[cfg(test)]
mod tests;
