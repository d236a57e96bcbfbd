//! What a program and `deepumd` say to each other on the daemon's socket. Layout in `docs/daemon.md`.
//!
//! Problem: the daemon serves many users, and anybody may connect and send anything; a program may meet a daemon of another
//! release.
//!
//! Idea: a Unix socket of kind SEQPACKET, so one packet is one message and the kernel keeps them apart. A packet begins with
//! 24 bytes that never change: magic, version, kind, length. Every number behind them has a place and a range, every text a
//! largest length; [`Packet::parse`] gives a packet all of whose values are allowed, or an error that names field, value and what
//! is allowed. Descriptors travel with the Hello, in the order of [`Descriptor`].
//!
//! Invariants: parsing reads nothing outside the packet, allocates no more than the packet's own length, never panics, and
//! takes back what [`Packet::to_bytes`] made. [`Packet::Refused`] has the same layout in every version, so that both sides
//! can say why they do not understand each other.
//!
//! Not here: sockets and descriptors (`deepum-engine`, `packet`), what they mean (`daemon/`).

use crate::shared::MAX_DEVICES;
use deepum_core::units::{Bytes, DeviceId};
use std::fmt;
use std::path::PathBuf;

mod bytes;
mod hello;
use bytes::{Reader, Writer};
use hello::ordinal;

/// `"DEEPUMCT"`, first byte lowest.
pub const MAGIC: u64 = u64::from_le_bytes(*b"DEEPUMCT");
/// Version of everything behind the header.
pub const VERSION: u32 = 1;
/// Longest packet.
pub const PACKET_BYTES: usize = 16 << 10;
/// Longest text of variables in a Hello.
pub const CONFIG_BYTES: usize = 8 << 10;
/// Longest of the other texts.
pub const TEXT_BYTES: usize = 1 << 10;
/// Largest ring, page or tools queue that is taken.
pub const MAPPING_BYTES: u64 = 1 << 31;
/// Largest weight; the smallest and usual one is 1.
pub const WEIGHT: u32 = 100;

/// Where a daemon may listen, in the order in which a program looks: the user's own, the system's.
pub fn sockets() -> Vec<PathBuf> {
    sockets_of(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from))
}

/// As [`sockets`], for a program with this folder for its user's sockets.
pub fn sockets_of(runtime: Option<PathBuf>) -> Vec<PathBuf> {
    let own = runtime.filter(|path| path.is_absolute()).map(|path| path.join("deepum/deepumd.sock"));
    own.into_iter().chain([PathBuf::from(SYSTEM_SOCKET)]).collect()
}

/// Where root's daemon listens.
pub const SYSTEM_SOCKET: &str = "/run/deepum/deepumd.sock";

/// The descriptors that come with a Hello, by place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Descriptor {
    /// Memory of the record ring.
    Ring,
    /// Memory of the page.
    Page,
    /// The UVM address space.
    Uvm,
    /// Event counter: look now.
    Nudge,
    /// Memory of the tools queue.
    ToolsMemory,
    /// The tracker that writes it.
    Tools,
}

impl Descriptor {
    /// All of them; the last two only where there is a tools queue.
    pub const ALL: [Self; 6] = [Self::Ring, Self::Page, Self::Uvm, Self::Nudge, Self::ToolsMemory, Self::Tools];

    /// How many come with a Hello.
    pub const fn count(tools: bool) -> usize {
        if tools { 6 } else { 4 }
    }

    /// Its name in refusals.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ring => "record ring",
            Self::Page => "page",
            Self::Uvm => "UVM address space",
            Self::Nudge => "nudge",
            Self::ToolsMemory => "tools queue",
            Self::Tools => "tools tracker",
        }
    }
}

/// One packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packet {
    /// Program: serve me.
    Hello(Hello),
    /// Daemon: you are served.
    Welcome(Welcome),
    /// Daemon: you are not, and why.
    Refused(Refused),
    /// Daemon: a line for the person at the program.
    Say(String),
    /// Daemon: what the program may fill from now on, by GPU; for information, the engine knows already.
    Budget(Vec<(DeviceId, Bytes)>),
    /// Program: I end as I should.
    Bye,
}

/// What a program says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Size of the ring's memory.
    pub ring: Bytes,
    /// Size of the page's memory.
    pub page: Bytes,
    /// The driver's queue of notices, or why there is none.
    pub tools: Result<ToolsQueue, String>,
    /// Whether virtual time decides when to look (emulated device).
    pub driven: bool,
    /// 1 for the first time that this program attaches, one more each time.
    pub attachment: u32,
    /// Its share among the programs of its user, 1 to [`WEIGHT`].
    pub weight: u32,
    /// What it works on, so that tables learned before can be found; 0 where that is not known.
    pub workload: u64,
    /// The GPUs it uses, at least one, by rising ordinal.
    pub devices: Vec<Device>,
    /// The driver's release; empty where it does not say.
    pub driver: String,
    /// Its `DEEPUM_*` variables, `NAME=value`, one a line.
    pub config: String,
}

/// The tools queue that a program has attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ToolsQueue {
    /// Notices it has room for, a power of two.
    pub entries: u32,
    /// Size of its memory.
    pub memory: Bytes,
}

/// A GPU of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device {
    /// CUDA ordinal in the program.
    pub id: DeviceId,
    /// As in `cuDeviceGetUuid`.
    pub uuid: [u8; 16],
    /// Physical memory.
    pub memory: Bytes,
    /// What it wants to fill at most; not more than there is.
    pub budget: Bytes,
}

/// The answer to a Hello.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The process that serves this program.
    pub worker: u32,
    /// The daemon's release.
    pub release: String,
}

/// The other answer to a Hello. Afterwards the daemon hangs up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// What kind of reason.
    pub reason: Reason,
    /// The reason, for people: field, value, what is allowed.
    pub text: String,
}

/// Why a program is not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Another version of this protocol, of ring or of page.
    Version,
    /// A packet with a value that is not allowed.
    Malformed,
    /// A descriptor of the wrong kind, size or number.
    Descriptors,
    /// This user is not served here.
    User,
    /// As many programs as are served are served.
    Full,
    /// The daemon cannot at the moment.
    Internal,
}

impl Reason {
    /// All of them, by their number in a packet, from 1.
    pub const ALL: [Self; 6] =
        [Self::Version, Self::Malformed, Self::Descriptors, Self::User, Self::Full, Self::Internal];

    /// Whether asking again later cannot help.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Version | Self::Malformed | Self::Descriptors | Self::User)
    }

    /// One word for counters and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Malformed => "malformed",
            Self::Descriptors => "descriptors",
            Self::User => "user",
            Self::Full => "full",
            Self::Internal => "internal",
        }
    }
}

/// Why bytes are no packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlError {
    /// Not of this protocol.
    Magic {
        /// Bytes that came.
        len: usize,
    },
    /// Of another version.
    Version {
        /// The one found.
        have: u32,
    },
    /// A value that is not allowed.
    Field {
        /// Which.
        name: &'static str,
        /// What it says.
        have: String,
        /// What it may say.
        allowed: String,
    },
}

impl ControlError {
    pub(crate) fn field(name: &'static str, have: impl fmt::Display, allowed: impl fmt::Display) -> Self {
        Self::Field { name, have: have.to_string(), allowed: allowed.to_string() }
    }

    /// The reason to refuse with.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Version { .. } => Reason::Version,
            Self::Magic { .. } | Self::Field { .. } => Reason::Malformed,
        }
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic { len } => write!(f, "{len} bytes that do not begin as a packet of deepumd does"),
            Self::Version { have } => write!(f, "packet of version {have}; this program reads version {VERSION}"),
            Self::Field { name, have, allowed } => write!(f, "{name} is {have}; allowed is {allowed}"),
        }
    }
}

impl std::error::Error for ControlError {}

/// As many GPUs as a program may have.
const DEVICES: u32 = 16;
const _: () = assert!(DEVICES as usize == MAX_DEVICES);

const HELLO: u32 = 1;
const WELCOME: u32 = 2;
const REFUSED: u32 = 3;
const SAY: u32 = 4;
const BUDGET: u32 = 5;
const BYE: u32 = 6;

impl Packet {
    /// As it is sent. Texts longer than allowed are cut; every other value must be one that [`Packet::parse`] takes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::default();
        let kind = match self {
            Self::Hello(hello) => {
                hello.write(&mut w);
                HELLO
            }
            Self::Welcome(welcome) => {
                w.u32(welcome.worker);
                w.text(&welcome.release, TEXT_BYTES);
                WELCOME
            }
            Self::Refused(refused) => {
                w.count(Reason::ALL.iter().position(|r| *r == refused.reason).map_or(0, |at| at + 1));
                w.text(&refused.text, TEXT_BYTES);
                REFUSED
            }
            Self::Say(line) => {
                w.text(line, TEXT_BYTES);
                SAY
            }
            Self::Budget(budgets) => {
                w.count(budgets.len());
                for (id, bytes) in budgets {
                    w.u32(id.0.into());
                    w.u64(bytes.get());
                }
                BUDGET
            }
            Self::Bye => BYE,
        };
        w.packet(MAGIC, VERSION, kind)
    }

    /// Reads one packet, as it came from the socket.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn parse(packet: &[u8]) -> Result<Self, ControlError> {
        let mut r = Reader::new(packet);
        if r.u64("magic").ok() != Some(MAGIC) {
            return Err(ControlError::Magic { len: packet.len() });
        }
        let (version, kind, len) = (r.u32("version")?, r.u32("kind")?, r.u64("length")?);
        // What does not change with the version: that both sides can read a refusal.
        if version != VERSION && kind != REFUSED {
            return Err(ControlError::Version { have: version });
        }
        if len != packet.len() as u64 || packet.len() > PACKET_BYTES {
            let allowed = format!("what came, {} bytes, and at most {PACKET_BYTES}", packet.len());
            return Err(ControlError::field("length", len, allowed));
        }
        let parsed = match kind {
            HELLO => Self::Hello(Hello::read(&mut r)?),
            WELCOME => Self::Welcome(Welcome { worker: r.u32("worker")?, release: r.text("release", TEXT_BYTES)? }),
            REFUSED => {
                let code = r.u32("reason")?;
                // A later version may know more of them.
                let reason = Reason::ALL.get((code as usize).wrapping_sub(1)).copied().unwrap_or(Reason::Version);
                Self::Refused(Refused { reason, text: r.text("text", TEXT_BYTES)? })
            }
            SAY => Self::Say(r.text("line", TEXT_BYTES)?),
            BUDGET => {
                let count = r.range("budgets", 0..=DEVICES)?;
                let one = |r: &mut Reader<'_>| Ok((ordinal(r)?, Bytes(r.u64("budget")?)));
                Self::Budget((0..count).map(|_| one(&mut r)).collect::<Result<_, _>>()?)
            }
            BYE => Self::Bye,
            other => return Err(ControlError::field("kind", other, "1 to 6")),
        };
        r.end()?;
        Ok(parsed)
    }
}
