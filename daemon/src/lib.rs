//! `deepumd`: the engine for many programs. Design, format and bounds: `docs/daemon.md`.
//!
//! Two processes out of one file. The *parent* ([`parent`]) listens ([`listen`]), keeps who has not said Hello yet in bounds
//! ([`waiting`]), checks what is sent ([`admit`]), starts a worker ([`spawn`]), shares budgets ([`programs`], [`share`]) and
//! answers status. The *worker* ([`worker`]) runs the engine for one program. They talk in [`report`]s.
//!
//! Invariants: the parent maps nothing that a program sends, never waits for a program or a worker, and closes what it was sent as soon
//! as a worker has it or a refusal is out; all it keeps for one program is bounded; what one user does changes nothing for another.

pub mod admit;
pub mod cli;
pub mod counters;
pub mod listen;
pub mod parent;
pub mod peer;
pub mod programs;
pub mod report;
pub mod share;
pub mod spawn;
mod status;
pub mod tables;
pub mod waiting;
pub mod worker;
