//! The only code that knows an nvidia-uvm ioctl.
//!
//! A stock NVIDIA driver tells any process about the page faults and migrations of its own unified memory, through the
//! *tools queue*, and moves pages on request. This package attaches to both from inside the process, and lets another process use them.
//!
//! Three floors. [`sys`]: numbers and layouts. [`raw`]: owned descriptors, mapped memory, `Result`; `unsafe` ends there.
//! Above, safe code: [`version`] (known, unknown, refused), [`attach`], [`adopt`], [`fault`] (stage 3), [`migrate`] and [`advise`]. Beside them
//! [`high`]: what numbers our descriptors have.
//!
//! A driver that is missing, refuses, or is not known is an ordinary condition, never a failure: [`Bridge::open`] says what there is.
//! Not here: when to read and what to move.

pub mod adopt;
pub mod advise;
pub mod attach;
pub mod fault;
pub mod high;
pub mod leave;
pub mod migrate;
pub mod raw;
pub mod semaphores;
pub mod sys;
pub mod version;

pub use advise::{Advice, AdviseError};
pub use attach::{Bridge, Gpu, Unavailable};
pub use fault::{Notice, QueueBroken, QueueStats, QueueWatch, ToolsQueue};
pub use leave::Stay;
pub use migrate::{DiscardError, DiscardFailure, MigrateError, MigrateFailure, VaSpace};
pub use raw::{Kernel, Linux, NOTICES};
pub use semaphores::{NoSemaphores, Semaphores, Word};
pub use sys::Uuid;
pub use version::{DriverVersion, Support};
