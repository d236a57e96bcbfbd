//! What `deepumd` tells of itself and the programs it serves. Documented in `docs/daemon.md`.
//!
//! One request is one line, `{"get":"programs"}`; the answer is one line, a [`Programs`] as JSON, or a
//! [`crate::status::Refusal`]. Rules of versions and units as for [`crate::status`].

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Name and version of the schema; the first field of every answer.
pub const SCHEMA: &str = "deepum-daemon/1";

/// Where a daemon that takes programs at `socket` answers.
pub fn socket_beside(socket: &Path) -> PathBuf {
    socket.with_extension("status")
}

/// The daemon and its programs, at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Programs {
    /// [`SCHEMA`].
    pub schema: String,
    /// The daemon's process.
    pub pid: u32,
    /// Its release.
    pub release: String,
    /// Where it takes programs.
    pub socket: String,
    /// How long it runs, in milliseconds.
    pub up_ms: u64,
    /// The programs that whoever asks may see.
    pub programs: Vec<Program>,
    /// The daemon's counters, by name.
    pub counters: BTreeMap<String, u64>,
}

/// One program.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Program {
    /// Its process.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// What it calls itself (`/proc/PID/comm`).
    pub command: String,
    /// The process that serves it.
    pub worker: u32,
    /// How often it has attached, as it says.
    pub attachment: u32,
    /// Its part among its user's programs.
    pub weight: u32,
    /// How long it has been attached, in milliseconds.
    pub up_ms: u64,
    /// Whether it has launched in the last second.
    pub active: bool,
    /// Its GPUs.
    pub devices: Vec<ProgramDevice>,
}

/// One GPU of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProgramDevice {
    /// Hexadecimal, as the driver has it.
    pub uuid: String,
    /// What the program wants to fill at most.
    pub wanted_bytes: u64,
    /// What it may fill now.
    pub share_bytes: u64,
    /// Managed bytes it holds.
    pub managed_bytes: u64,
    /// Of these on the GPU.
    pub resident_bytes: u64,
    /// Launches issued.
    pub launches: u64,
}

impl Programs {
    /// Reads one line.
    ///
    /// # Errors
    /// What is wrong with it, in words; another version is refused by name before its fields are looked at.
    pub fn parse(line: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let malformed = |e: serde_json::Error| format!("not a {SCHEMA} line: {e}");
        let head: Head = serde_json::from_str(line).map_err(malformed)?;
        if head.schema != SCHEMA {
            return Err(format!("daemon's status has schema {:?}; this program reads {SCHEMA:?}", head.schema));
        }
        serde_json::from_str(line).map_err(malformed)
    }

    /// As one line, newline included.
    ///
    /// # Errors
    /// None that its own fields can cause; what `serde_json` says is handed on.
    pub fn to_line(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self).map(|line| line + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_back_and_another_schema_is_named() {
        let program = Program { pid: 7, devices: vec![ProgramDevice::default()], ..Program::default() };
        let one = Programs { schema: SCHEMA.to_owned(), pid: 1, programs: vec![program], ..Programs::default() };
        let line = one.to_line().unwrap();
        assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
        assert_eq!(Programs::parse(&line), Ok(one));
        let error = Programs::parse(r#"{"schema":"deepum-daemon/9"}"#).unwrap_err();
        assert!(error.contains("deepum-daemon/9") && error.contains(SCHEMA), "{error}");
        assert!(Programs::parse("[]").unwrap_err().contains("not a deepum-daemon/1 line"));
    }

    #[test]
    fn the_two_sockets_lie_beside_each_other() {
        assert_eq!(socket_beside(Path::new("/run/deepum/deepumd.sock")), Path::new("/run/deepum/deepumd.status"));
    }
}
