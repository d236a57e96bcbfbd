//! The flight log: what the device did, in a file that is current at every instant.
//!
//! Programs under test end by `os._exit`, by a signal, or out of memory, so nothing may be left to a destructor:
//! the log is a shared file mapping written in place, and a reader takes whatever is there. The layout is
//! [`layout`], described byte by byte in `docs/flight-log.md` (a test holds the two together).
//!
//! One process writes one log. A second process with the same `DEEPUM_EMU_LOG` (a compiler worker, a launcher's
//! child) finds the file locked and writes `FILE.PID` instead.

pub mod layout;
mod read;
mod write;

pub use layout::{Entry, Totals};
pub use read::{FlightLog, LogError};
pub use write::LogWriter;

/// Environment variable that names the file.
pub const VARIABLE: &str = "DEEPUM_EMU_LOG";
