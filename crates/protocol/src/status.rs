//! What `deepum status` and anybody else on the status socket is told. Documented in `docs/status.md`.
//!
//! One request is one line, `{"get":"status"}`; the answer is one line, a [`Status`] as JSON, or [`Refusal`].
//! Lengths are bytes and times nanoseconds; names end in the unit. Fields may be added within a version; a field
//! that goes or changes its meaning makes a new version.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Name and version of the schema; the first field of every status.
pub const SCHEMA: &str = "deepum-status/1";

/// Folders in which the socket of a program of user `uid` may be, `PID.sock`, the likeliest first. A program takes the first that will
/// do; who asks looks into all, for its environment may be another.
pub fn folders(uid: u32) -> Vec<PathBuf> {
    folders_of(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from), uid)
}

/// As [`folders`], for a program with this folder for its user's sockets.
pub fn folders_of(runtime: Option<PathBuf>, uid: u32) -> Vec<PathBuf> {
    let runtime = runtime.filter(|path| path.is_absolute());
    let mut folders: Vec<PathBuf> =
        runtime.into_iter().chain([format!("/run/user/{uid}").into()]).map(|path| path.join("deepum")).collect();
    folders.dedup();
    folders.push(format!("/tmp/deepum-{uid}").into());
    folders
}

/// A line a client sends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What is wanted.
    pub get: Wanted,
}

/// What can be wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// One [`Status`]: of a program.
    Status,
    /// One [`crate::programs::Programs`]: of `deepumd`.
    Programs,
}

/// The answer to a line that is no request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// [`SCHEMA`].
    pub schema: String,
    /// What is wrong with the line, and what is allowed.
    pub error: String,
}

/// Everything about one program under DeepUM, at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// [`SCHEMA`].
    pub schema: String,
    /// The process.
    pub pid: u32,
    /// The policy that decides.
    pub policy: String,
    /// Who says when to look.
    pub pace: Pace,
    /// What DeepUM does now.
    pub state: State,
    /// Why, where that needs saying: why it is off, or what it works without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// One entry per GPU in use, by CUDA ordinal.
    pub devices: Vec<Device>,
    /// The event counters of engine and core, by name.
    pub counters: BTreeMap<String, u64>,
    /// The counters the shim keeps, by name.
    pub shim: BTreeMap<String, u64>,
    /// What became of the prefetches.
    pub prefetch: Prefetch,
    /// What is done about contents that nobody needs.
    #[serde(default)]
    pub invalidation: Invalidation,
    /// How big the learned tables are.
    pub tables: Tables,
    /// How far each stream is.
    pub progress: Vec<StreamProgress>,
    /// The record ring.
    pub ring: RingStatus,
    /// What the engine learns from.
    pub sources: Sources,
}

/// Who says when the engine looks at its sources.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// Its own clock (a GPU).
    #[default]
    Polling,
    /// Virtual time (the emulated device).
    Driven,
}

/// What DeepUM does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Everything fits: it counts, and moves nothing.
    #[default]
    Dormant,
    /// It learns and prefetches.
    Awake,
    /// It gave up; the program runs as plain UM.
    Off,
}

/// One GPU.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Device {
    /// CUDA ordinal.
    pub ordinal: u8,
    /// Physical memory.
    pub memory_bytes: u64,
    /// Bytes DeepUM may fill.
    pub budget_bytes: u64,
    /// Managed bytes the program holds.
    pub allocated_bytes: u64,
    /// Managed bytes on the GPU, by our shadow map.
    pub resident_bytes: u64,
    /// Launches issued.
    pub launches: u64,
    /// Different execution IDs among them.
    pub exec_ids: u64,
    /// GPU page faults seen, one per UM block and batch.
    pub faults: u64,
    /// Bytes moved to the GPU.
    pub bytes_h2d: u64,
    /// Bytes moved to the host.
    pub bytes_d2h: u64,
}

/// What is done about contents that nobody needs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Invalidation {
    /// `no`, `evict` (they leave the GPU first, with a copy) or `discard`.
    pub mode: String,
    /// Why it is less than was asked for, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub less: Option<String>,
}

/// What became of the prefetches, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Prefetch {
    /// The policy asked for.
    pub asked: u64,
    /// Given to the driver.
    pub issued: u64,
    /// Arrived, and a launch they were expected for ran without a fault on them.
    pub useful: u64,
    /// The fault came first.
    pub late: u64,
    /// Left the GPU, or were freed, before they were useful.
    pub useless: u64,
    /// Never began: no room in the queue, or taken back.
    pub dropped: u64,
}

/// How big the learned tables are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Tables {
    /// Execution IDs given out.
    pub exec_ids: u64,
    /// Records of which execution follows which.
    pub exec_records: u64,
    /// Execution IDs with a UM-block table.
    pub block_tables: u64,
    /// Memory of all tables.
    pub bytes: u64,
}

/// One stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StreamProgress {
    /// Index of its progress word.
    pub slot: u16,
    /// The newest launch finished there.
    pub done: u64,
}

/// The record ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RingStatus {
    /// Its size in 8-byte words.
    pub capacity_words: u64,
    /// Words not yet read.
    pub used_words: u64,
    /// Records that found no room.
    pub dropped: u64,
}

/// What the engine learns from, and what it lacks.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Sources {
    /// The driver's tools queue: faults and migrations.
    pub tools_queue: Source,
    /// The progress words of the streams.
    pub progress: Source,
    /// The driver's version, if it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Notices the driver dropped because the tools queue was full.
    pub notices_lost: u64,
}

/// One source.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Source {
    /// Whether it is there.
    pub attached: bool,
    /// If not: why, and what that costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Why a line is no status.
#[derive(Debug)]
pub enum StatusError {
    /// No JSON object of this shape.
    Malformed(serde_json::Error),
    /// Another schema.
    Schema {
        /// The one found.
        have: String,
    },
}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(e) => write!(f, "not a {SCHEMA} line: {e}"),
            Self::Schema { have } => write!(f, "status has schema {have:?}; this program reads {SCHEMA:?}"),
        }
    }
}

impl std::error::Error for StatusError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Malformed(e) => Some(e),
            Self::Schema { .. } => None,
        }
    }
}

impl Status {
    /// An empty status of this version.
    pub fn new(pid: u32) -> Self {
        Self { schema: SCHEMA.to_owned(), pid, ..Self::default() }
    }

    /// Reads one line.
    ///
    /// # Errors
    /// [`StatusError`]; another version is refused by name before its fields are looked at.
    pub fn parse(line: &str) -> Result<Self, StatusError> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let head: Head = serde_json::from_str(line).map_err(StatusError::Malformed)?;
        if head.schema != SCHEMA {
            return Err(StatusError::Schema { have: head.schema });
        }
        serde_json::from_str(line).map_err(StatusError::Malformed)
    }

    /// As one line, newline included.
    ///
    /// # Errors
    /// None that its own fields can cause; what `serde_json` says is handed on.
    pub fn to_line(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self).map(|mut s| {
            s.push('\n');
            s
        })
    }
}
