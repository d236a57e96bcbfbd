//! What a program did, as data: the one vocabulary of importer, recorder and replay.
//!
//! Problem: policies and limits are compared on the same program, whether it was profiled on an A100, ran on the emulated device, or on a GPU.
//! Idea: a trace holds what the *program* did and nothing of what became of it. Faults, migrations and evictions are not in it: they are for
//! a replay to find. Of the hardware there is one figure in it, how long each launch takes when nothing is missing.
//!
//! A trace is of one GPU; a program with several leaves one for each. It is a [`Header`] and [`Record`]s, in the order in which the program's
//! calls came. Launches and copies have *places*, 1, 2, 3, …, in that order. What is known of one only later ([`Event::Touched`],
//! [`Event::Time`]) names its place; what was never known is not there. What comes before the first [`Event::Iteration`] is preparation, and
//! each iteration lies between two.
//!
//! Invariants ([`Order`], which every reader and writer checks): a kernel's name comes before its first launch, a launch before what is told
//! of it; no range goes past the end of addresses; lists and strings have bounds.
//!
//! Not here: how it is written down (`binary`, `text`; `docs/trace.md`).

use deepum_core::units::{AddrRange, Bytes, DevAddr, LaunchKey, LaunchSeq, Nanos, StreamSlot};

/// Most pointers or touches of a launch. A choice: a lookup of rows touches some thousands.
pub const MOST_LISTED: usize = 1 << 18;
/// Most bytes of a string. A choice: mangled names of PyTorch's kernels have up to a few thousand.
pub const MOST_STRING: usize = 1 << 16;
/// Most names. A choice: PyTorch has some ten thousand kernels.
pub const MOST_NAMES: u32 = 1 << 20;

/// What a trace is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// What ran: a command line, or a profile's name.
    pub program: Box<str>,
    /// On what: a device profile's name, or a GPU's.
    pub device: Box<str>,
    /// How much memory of the GPU the program was given.
    pub budget: Bytes,
}

/// Something the program did, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The host's clock at the call; for what became known later, when it did. The clock stands still inside the calls that are in the
    /// trace, but for what [`Event::Wait`] says: what a call costs is a replay's to know. Threads may be out of order.
    pub at: Nanos,
    /// What.
    pub event: Event,
}

/// What a program can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// It was given managed memory.
    Alloc {
        /// Where, and how much.
        range: AddrRange,
    },
    /// It gave managed memory back.
    Free {
        /// As announced by `Alloc`.
        range: AddrRange,
    },
    /// PyTorch's caching allocator handed out (`active`) or took back a PT block.
    PtBlock {
        /// The PT block.
        range: AddrRange,
        /// Whether it now holds a tensor.
        active: bool,
    },
    /// The next name of a kernel: the first is number 0.
    Name {
        /// The name.
        name: Box<str>,
    },
    /// It issued a launch, which takes the next place.
    Launch(Launch),
    /// It issued a copy or memset that is not a kernel's, which takes the next place.
    Copy {
        /// Into which stream.
        stream: StreamSlot,
        /// The managed bytes it reads, if any.
        from: Option<AddrRange>,
        /// The managed bytes it writes, if any.
        to: Option<AddrRange>,
    },
    /// All that a launch touches of managed memory.
    Touched {
        /// The launch's place.
        launch: LaunchSeq,
        /// Each range; those of one phase together, lower phases first.
        touches: Vec<Touch>,
    },
    /// How long a launch or copy takes when all it touches is where it should be.
    Time {
        /// Its place.
        launch: LaunchSeq,
        /// How long.
        time: Nanos,
    },
    /// The host waited for the GPU, and goes on at this record's time: what is between two calls beside waiting is the host's own.
    Wait {
        /// For which stream; none: for all of them.
        stream: Option<StreamSlot>,
        /// How long.
        waited: Nanos,
    },
    /// An iteration ends here, if one has begun, and the next begins.
    Iteration,
    /// So much that happened before this is not in the trace: whoever recorded it could not keep up.
    Lost {
        /// How many calls and notices.
        events: u64,
    },
}

/// The number of a kernel's name: how many came before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NameId(pub u32);

/// A kernel or graph launch as it was issued. What it does is told by [`Event::Touched`] and [`Event::Time`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    /// Into which stream.
    pub stream: StreamSlot,
    /// Which kernel.
    pub kernel: NameId,
    /// What it is: equal for the same kernel on the same data.
    pub key: LaunchKey,
    /// The managed pointers among its arguments, in argument order, repeats left out.
    pub pointers: Vec<DevAddr>,
}

/// A piece of managed memory that a launch touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// The bytes.
    pub range: AddrRange,
    /// What it does with them.
    pub access: Access,
    /// Touches of a lower phase are over before those of the next begin; 0 unless a kernel works through a list of tensors.
    pub phase: u32,
}

/// What is done with bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// They are read.
    Read,
    /// All of them are written, and nothing of what was there is needed.
    Write,
    /// Some are written, or what was there is needed.
    ReadWrite,
}

impl Access {
    /// Whether what was there is needed.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite)
    }
    /// Whether what is there is another afterwards.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }
}

/// What a trace must not have in it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EventError {
    /// A kernel that has no name yet.
    #[error("a launch of kernel {kernel}, and {names} kernels have names")]
    NoSuchKernel {
        /// Its number.
        kernel: u32,
        /// How many have names.
        names: u32,
    },
    /// Something about a place that was not taken yet.
    #[error("something about place {place}, and places 1 to {taken} are taken")]
    NoSuchPlace {
        /// The place.
        place: u64,
        /// The newest.
        taken: u64,
    },
    /// A range that cannot be.
    #[error("{len} bytes from {start:#x}: addresses end at 2^64")]
    Range {
        /// Its first address.
        start: u64,
        /// Its length.
        len: u64,
    },
    /// Too many of something.
    #[error("{count} {what}: at most {most} are allowed")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many may be.
        most: usize,
    },
}

/// Checks that each record may follow those before it.
#[derive(Clone, Copy, Default, Debug)]
pub struct Order {
    names: u32,
    places: u64,
}

impl Order {
    /// Whether a trace may be of this.
    ///
    /// # Errors
    /// [`EventError`].
    pub const fn header(header: &Header) -> Result<(), EventError> {
        match most("bytes of a program's name", header.program.len(), MOST_STRING) {
            Ok(()) => most("bytes of a device's name", header.device.len(), MOST_STRING),
            wrong => wrong,
        }
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// [`EventError`], and the event counts as not taken.
    pub fn take(&mut self, event: &Event) -> Result<(), EventError> {
        match event {
            Event::Alloc { range } | Event::Free { range } | Event::PtBlock { range, .. } => possible(*range)?,
            Event::Name { name } => {
                most("bytes of a kernel's name", name.len(), MOST_STRING)?;
                most("names", self.names as usize + 1, MOST_NAMES as usize)?;
                self.names += 1;
            }
            Event::Launch(Launch { kernel, pointers, .. }) => {
                if kernel.0 >= self.names {
                    return Err(EventError::NoSuchKernel { kernel: kernel.0, names: self.names });
                }
                most("pointers", pointers.len(), MOST_LISTED)?;
                self.places += 1;
            }
            Event::Copy { from, to, .. } => {
                from.iter().chain(to).try_for_each(|range| possible(*range))?;
                self.places += 1;
            }
            Event::Touched { launch, touches } => {
                self.taken(*launch)?;
                most("touches", touches.len(), MOST_LISTED)?;
                touches.iter().try_for_each(|touch| possible(touch.range))?;
            }
            Event::Time { launch, .. } => self.taken(*launch)?,
            Event::Wait { .. } | Event::Iteration | Event::Lost { .. } => {}
        }
        Ok(())
    }

    /// The newest place that is taken; 0 if none is.
    #[must_use]
    pub const fn places(&self) -> u64 {
        self.places
    }

    const fn taken(&self, launch: LaunchSeq) -> Result<(), EventError> {
        if launch.0 == 0 || launch.0 > self.places {
            return Err(EventError::NoSuchPlace { place: launch.0, taken: self.places });
        }
        Ok(())
    }
}

const fn most(what: &'static str, count: usize, most: usize) -> Result<(), EventError> {
    if count > most { Err(EventError::TooMany { what, count, most }) } else { Ok(()) }
}

const fn possible(range: AddrRange) -> Result<(), EventError> {
    let (start, len) = (range.start.0, range.len.0);
    if start.checked_add(len).is_none() { Err(EventError::Range { start, len }) } else { Ok(()) }
}
