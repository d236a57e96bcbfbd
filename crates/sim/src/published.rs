//! The world that G10 was published with: how a program would do there, under a guide.
//!
//! Problem: G10's figures (MICRO'23, Figures 11 and 15) come from a simulator whose faults, evictions and link are not life's. To be compared with them, a policy
//! has to be played by its rules.
//! Idea: the rules as the code has them (G10's artifact, commit de2c8c6, `src/simulationEvents.cc`, `src/simulationComponents.cc`), but with bytes of whole tensors
//! instead of pages one by one: which of a tensor's pages are where makes no difference to anything. What a policy decides comes in from outside ([`Guide`]); one of the core's is
//! told what happens, and plays by UM blocks ([`online`]).
//!
//! A kernel begins when the one before ends; what it touches and nobody has asked for faults then. It ends when all is there, but not before its own time is over
//! and the time that its faults are taken to cost ([`cost`]). The link works in batches of [`BATCH`], in a fixed order of queues ([`link`]). What arrived longest
//! ago leaves first ([`memory`]).
//!
//! Four things in it are no decision, but mistakes or conveniences. [`Right`] puts them right, one by one:
//!
//! | | as published | put right |
//! | --- | --- | --- |
//! | [`Right::faults`] | measured times with faults are cut to whole seconds before they are used | used as measured |
//! | [`Right::dead`] | plain unified memory and DeepUM+ never free anything: what is dead stays, and under the former is written out like all else | memory is free after the last use |
//! | [`Right::new`] | the first touch of what never had contents costs as much as a transfer | it costs the room that it needs |
//! | (the caller's) | the faster of two iterations counts, which may be the first | the last |
//!
//! Invariants: no more is on the GPU than it has, no more on the host than it has; a tensor's bytes are each in one place or on one way; the order of everything is
//! fixed, so that the same is played always.
//!
//! FlashNeuron, G10-GDS and G10-Host are not played by these rules there, nor here: [`whole`].
//!
//! Not here: what calls take, and what the host does between them. The replay has that.

mod blocks;
mod cost;
pub mod g10;
mod guide;
mod link;
mod memory;
mod online;
mod player;
#[cfg(test)]
mod tests;
pub mod whole;

pub use guide::Guide;

use crate::planner::play::Played;
use crate::planner::schedule::TooLarge;
use crate::tiers::Rate;
use blocks::Blocks;
use deepum_core::policy::PolicyName;
use deepum_core::units::Bytes;
use deepum_trace::g10::FaultCost;
use deepum_trace::program::{Program, ProgramError};
use guide::Guided;
use online::Online;
use player::Player;

/// What the link carries at once, each way: 50 pages of 4 KiB.
pub const BATCH: Bytes = Bytes::kib(200);

/// The machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct World {
    /// Memory of the GPU.
    pub gpu: Bytes,
    /// Memory of the host.
    pub host: Bytes,
    /// The link, each way.
    pub link: Rate,
    /// The SSD behind it, each way.
    pub ssd: Rate,
    /// What of it is put right.
    pub right: Right,
}

impl World {
    /// The one of Figures 11 and 15.
    pub const PUBLISHED: Self = Self {
        gpu: Bytes::gib(40),
        host: Bytes::gib(128),
        link: Rate(15_754_000_000),
        ssd: Rate(3_200_000_000),
        right: Right { faults: false, dead: false, new: false },
    };
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Right {
    /// What faults cost.
    pub faults: bool,
    /// What becomes of the dead.
    pub dead: bool,
    /// What new pages cost.
    pub new: bool,
}

/// Why a program cannot be played.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PublishedError {
    /// It can run nowhere.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// It has too many UM blocks.
    #[error(transparent)]
    Blocks(#[from] ProgramError),
    /// Memory is in pieces, and none is as large.
    #[error("kernel {kernel} finds no {bytes} in one piece, and nothing that moves will make room")]
    NoPiece {
        /// The kernel.
        kernel: usize,
        /// What it looks for.
        bytes: Bytes,
    },
    /// A mistake of ours.
    #[error("nothing moves any more, and kernel {kernel} waits; this is a mistake in DeepUM")]
    Stuck {
        /// Which one.
        kernel: usize,
    },
}

/// Plays so many iterations. `faults`: what they cost, kernel by kernel.
///
/// # Errors
/// [`PublishedError`].
pub fn play(
    program: &Program,
    faults: &[FaultCost],
    world: &World,
    guide: Guide<'_>,
    iterations: u32,
) -> Result<Vec<Played>, PublishedError> {
    let guided = Guided::new(program, guide, world.right.dead);
    let mut player = Player::new(program, faults, world, guided)?;
    (0..iterations).map(|_| player.iteration()).collect()
}

/// Plays so many iterations by UM blocks under a policy of the core, which learns from one to the next. One that fetches on and on as it faults, as `deepum_paper` does,
/// may come to no end where a kernel needs nearly all of the GPU: what comes ahead pushes out what the kernel waits for, and that faults again.
///
/// # Errors
/// [`PublishedError`].
pub fn play_core(
    program: &Program,
    faults: &[FaultCost],
    world: &World,
    policy: PolicyName,
    iterations: u32,
) -> Result<Vec<Played>, PublishedError> {
    let blocks = Blocks::new(program)?;
    let online = Online::new(program, &blocks, policy, world.gpu);
    let mut player = Player::new(&blocks.program, faults, world, online)?;
    (0..iterations).map(|_| player.iteration()).collect()
}
