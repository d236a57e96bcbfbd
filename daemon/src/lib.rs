//! `deepumd`: the engine for many programs. Design, format and bounds: `docs/daemon.md`.
//!
//! Two processes out of one file. The *parent* ([`parent`]) listens ([`listen`]), keeps who has not said Hello yet in bounds
//! ([`door`], [`waiting`]), checks what is sent ([`visit`], [`admit`], [`places`]), starts a worker ([`spawn`], [`started`]), shares budgets ([`programs`], [`share`], [`room`]) and
//! answers status. The *worker* ([`worker`]) runs the engine for one program. They talk in [`report`]s.
//!
//! Invariants: the parent maps nothing that a program sends, never waits for a program or a worker, also not by closing what they sent
//! ([`apart`]), and closes that as soon as a worker has it or a refusal is out; all it keeps for one program is bounded; what one user does changes nothing for another.

pub mod admit;
pub mod apart;
pub mod cli;
pub mod counters;
mod door;
mod lines;
pub mod listen;
pub mod parent;
pub mod peer;
mod places;
pub mod programs;
pub mod report;
pub mod room;
pub mod share;
pub mod spawn;
mod started;
mod status;
pub mod tables;
mod visit;
pub mod waiting;
pub mod worker;
