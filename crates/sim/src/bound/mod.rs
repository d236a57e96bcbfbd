//! How fast one iteration can be at most, whoever moves the tensors: a proven lower bound on its time.
//!
//! Problem: a policy that takes 1.3 times the ideal may be bad, or the best there is.
//! Idea: moves and room are given prices. What every schedule pays, whatever it decides, is a bound, whatever the prices are (`prices.rs`). Those that
//! prove most are found by letting tensors be fluid, which is a linear program (`relaxation.rs`), over the iteration cut into steps
//! (`steps.rs`). Prices of zero prove the sum of all kernels; one price for the whole iteration, what its bytes take; those of
//! each step, what they take when there is little time for them.
//!
//! The model, of which the bound is proven (`docs/bound.md`):
//! - kernels run in the order of launches, one at a time, and all that one touches is on the GPU while it runs, whole;
//! - each direction of the link moves so many bytes per second; both work at once, and beside kernels; host memory is unlimited;
//! - a kernel reads all of what it reads and writes all of what it writes; nothing else makes contents or needs them;
//! - an iteration follows the other, and the time of one is what many of them take on average.
//!
//! Who moves no bytes, but blocks, has a bound of the same kind, of the program by its blocks (`blocks.rs`).
//!
//! Not here: what a schedule that comes near would do. And a kernel that begins before all it touches is there is no part of the model: with page
//! faults, a kernel may work on one end of a tensor while the other is on its way, and so be faster than this says.

mod blocks;
mod contents;
mod prices;
mod relaxation;
#[cfg(test)]
mod search;
mod steps;
#[cfg(test)]
mod tests;

pub use blocks::in_blocks;

use crate::tiers::Rate;
use deepum_core::units::{Bytes, Nanos};
use deepum_trace::program::Program;
use prices::Prices;
use relaxation::Link;
use std::collections::BTreeSet;
use steps::{Steps, cuts};

/// What a schedule has to do with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The GPU's memory.
    pub capacity: Bytes,
    /// How fast bytes move onto the GPU.
    pub h2d: Rate,
    /// How fast they move off it.
    pub d2h: Rate,
    /// Whether a tensor that was fetched has its copy on the host still, and can be dropped without another until a kernel writes it. If not,
    /// it moves: whatever leaves is copied (unified memory without read duplication).
    pub copies_kept: bool,
}

/// What a [`Bound`] comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// The kernels' own time.
    Compute,
    /// Bytes that have to move in one direction, whenever it is.
    Bytes,
    /// Bytes that have to move when there is little time for them.
    Relaxation,
}

/// No schedule's iterations take less than [`Self::time`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// The highest of the three below.
    pub time: Nanos,
    /// The first of them that is as high, but for a part in 10,000.
    pub by: By,
    /// All kernels, one after the other.
    pub compute: Nanos,
    /// By the bytes that have to move over a whole iteration.
    pub bytes: Nanos,
    /// By bytes and time together.
    pub relaxation: Nanos,
}

/// Why there is no bound.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BoundError {
    /// A kernel that can never run.
    #[error("kernel {kernel} ({name}) touches {touches}, and the capacity is {capacity}: it cannot run at all")]
    Impossible {
        /// Its number.
        kernel: usize,
        /// What it is called.
        name: Box<str>,
        /// How much it touches.
        touches: Bytes,
        /// What there is.
        capacity: Bytes,
    },
    /// A link that moves nothing.
    #[error("0 bytes per second {0}: at least 1 is needed")]
    NoLink(&'static str),
    /// Sums would leave 64 bits.
    #[error("{what} sum up to more than 2^62 {unit}, which is the most that is allowed")]
    TooLarge {
        /// Of what.
        what: &'static str,
        /// In what.
        unit: &'static str,
    },
}

/// Into how many steps an iteration is cut at most: more are tighter, as a rule, and slower to solve. It is cut anew each time, so fewer may happen to be tighter, too.
const STEPS: [usize; 2] = [256, 384];

/// And for what its bytes prove alone, where one step for each kernel is not many.
const STARTS: usize = 4096;

/// The lower bound on the time of one iteration of many.
///
/// # Errors
/// [`BoundError`]: above all, that a kernel touches more than the capacity.
pub fn bound(program: &Program, limits: &Limits) -> Result<Bound, BoundError> {
    check(program, limits)?;
    let compute = program.ideal();
    let (mut bytes, mut relaxation) = (Nanos::ZERO, Nanos::ZERO);
    if contents::live(program).iter().any(|&live| live > limits.capacity) {
        let proven = |moments: &[usize], link| {
            let steps = Steps::new(program, limits.copies_kept, moments);
            Prices::new(&relaxation::best(&steps, limits, link), limits).bound(&steps, limits).0
        };
        let kernels = program.kernels().len();
        let starts =
            if kernels <= STARTS { (0..kernels).map(|kernel| 2 * kernel).collect() } else { cuts(program, STARTS) };
        bytes = proven(&starts, Link::Whole);
        let all_cuts: BTreeSet<Vec<usize>> = STEPS.iter().map(|&most| cuts(program, most)).collect();
        relaxation = all_cuts.iter().map(|cuts| proven(cuts, Link::Steps)).max().unwrap_or_default();
    }
    let time = compute.max(bytes).max(relaxation);
    let explains = |part: Nanos| time.0 - part.0 <= time.0 / 10_000;
    let by = if explains(compute) {
        By::Compute
    } else if explains(bytes) {
        By::Bytes
    } else {
        By::Relaxation
    };
    Ok(Bound { time, by, compute, bytes, relaxation })
}

fn check(program: &Program, limits: &Limits) -> Result<(), BoundError> {
    for (rate, way) in [(limits.h2d, "onto the GPU"), (limits.d2h, "off the GPU")] {
        if rate.0 == 0 {
            return Err(BoundError::NoLink(way));
        }
    }
    within(program.kernels().iter().map(|kernel| kernel.time.0))
        .ok_or(BoundError::TooLarge { what: "the kernels' times", unit: "nanoseconds" })?;
    // Each use of a tensor begins at most one idle time.
    let touched = |kernel: usize| program.kernels()[kernel].touches().into_iter().map(|id| program.tensor(id).size.0);
    let kernels = 0..program.kernels().len();
    within(kernels.clone().flat_map(touched))
        .ok_or(BoundError::TooLarge { what: "what the kernels touch", unit: "bytes" })?;
    for kernel in kernels {
        let touches = Bytes(touched(kernel).sum());
        if touches > limits.capacity {
            let name = program.kernels()[kernel].name.clone();
            return Err(BoundError::Impossible { kernel, name, touches, capacity: limits.capacity });
        }
    }
    Ok(())
}

/// Whether these sum up to no more than 2^62.
fn within(numbers: impl Iterator<Item = u64>) -> Option<()> {
    let sum = numbers.map(u128::from).sum::<u128>();
    (sum <= 1 << 62).then_some(())
}
