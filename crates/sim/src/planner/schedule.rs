//! The vocabulary of all planners: what leaves after which kernel and where to, and from when on it is fetched.
//!
//! Gap `k` is before kernel `k`; as the iteration repeats, gap 0 is also after the last kernel. A move may begin at its gap; when it ends is the
//! executor's business, and so is what it costs. Moves of one gap begin in the order of the list.
//!
//! A [`Schedule`] is legal by construction, over the repeating iteration:
//! - a tensor's moves alternate: away ([`Kind::Evict`] or [`Kind::Drop`]), then back ([`Kind::Prefetch`]), at different gaps;
//! - no kernel between the two touches it;
//! - an intermediate moves after its first use and before its last: earlier there is nothing, later nobody wants it. (Its memory is free after
//!   its last use without a move.)
//! - it is saved ([`Kind::Save`]) only while it is there;
//! - what is dropped has a copy: nothing wrote it since it was fetched or saved.

use crate::tiers::Tier;
use deepum_core::units::Bytes;
use deepum_trace::program::{Life, Program, TensorId};

/// What a [`Move`] does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Written to the tier; then its memory on the GPU is free.
    Evict(Tier),
    /// Written to the tier, and kept: for a drop later on.
    Save(Tier),
    /// There is a true copy, or will be when a save ends: its memory on the GPU is free then.
    Drop,
    /// Fetched from where it is.
    Prefetch,
}

/// One thing to begin at a gap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Move {
    /// Before which kernel.
    pub gap: u32,
    /// What moves.
    pub tensor: TensorId,
    /// How.
    pub kind: Kind,
}

/// Legal moves of one iteration, by gap.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Schedule {
    moves: Vec<Move>,
}

/// Why moves are no schedule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Illegal {
    /// The program has no such gap.
    #[error("a move is at gap {gap}, but the program has {kernels} kernels, and gaps before them only")]
    NoSuchGap {
        /// The gap.
        gap: u32,
        /// Kernels of the program.
        kernels: usize,
    },
    /// The program has no such tensor.
    #[error("a move is of tensor {tensor}, but the program has {tensors}")]
    NoSuchTensor {
        /// The tensor's number.
        tensor: u32,
        /// Tensors of the program.
        tensors: usize,
    },
    /// Away twice, back twice, or both at one gap.
    #[error(
        "tensor {tensor} has a move at gap {gap} that does not alternate with its others: away, then back, at different gaps"
    )]
    Order {
        /// The tensor's number.
        tensor: u32,
        /// The move's gap.
        gap: u32,
    },
    /// A kernel touches it meanwhile.
    #[error("tensor {tensor} leaves at gap {gap}, and kernel {kernel} touches it before it is back")]
    Touched {
        /// The tensor's number.
        tensor: u32,
        /// Gap at which it leaves.
        gap: u32,
        /// The first kernel that touches it.
        kernel: u32,
    },
    /// Nothing there, or nobody wants it.
    #[error("tensor {tensor} moves at gap {gap}: an intermediate moves after its first use and before its last")]
    Dead {
        /// The tensor's number.
        tensor: u32,
        /// The move's gap.
        gap: u32,
    },
    /// What would be dropped is nowhere else.
    #[error("tensor {tensor} is dropped at gap {gap}, but was written since it was fetched or saved: there is no copy")]
    NoCopy {
        /// The tensor's number.
        tensor: u32,
        /// The move's gap.
        gap: u32,
    },
}

impl Schedule {
    /// From moves in any order; those of one gap keep theirs.
    ///
    /// # Errors
    /// [`Illegal`], by tensor.
    pub fn new(program: &Program, mut moves: Vec<Move>) -> Result<Self, Illegal> {
        let (kernels, tensors) = (program.kernels().len(), program.tensors().len());
        for &Move { gap, tensor, .. } in &moves {
            if gap as usize >= kernels {
                return Err(Illegal::NoSuchGap { gap, kernels });
            }
            if tensor.index() >= tensors {
                return Err(Illegal::NoSuchTensor { tensor: tensor.0, tensors });
            }
        }
        moves.sort_by_key(|at| at.gap);
        let mut by_tensor = vec![Vec::new(); tensors];
        for at in &moves {
            by_tensor[at.tensor.index()].push(*at);
        }
        for (id, moves) in program.ids().zip(&by_tensor) {
            check(program, id, moves)?;
        }
        Ok(Self { moves })
    }
    /// All moves, by gap.
    #[must_use]
    pub fn moves(&self) -> &[Move] {
        &self.moves
    }
    /// The moves of one gap, in their order.
    #[must_use]
    pub fn at(&self, gap: u32) -> &[Move] {
        let from = self.moves.partition_point(|at| at.gap < gap);
        let until = self.moves.partition_point(|at| at.gap <= gap);
        &self.moves[from..until]
    }
}

/// Whether the kernel's number lies cyclically in the gaps `from..until`: it runs after the one and before the other.
const fn runs_between(kernel: u32, from: u32, until: u32) -> bool {
    if from < until { from <= kernel && kernel < until } else { from <= kernel || kernel < until }
}

/// The rules for one tensor's moves, by gap.
fn check(program: &Program, id: TensorId, moves: &[Move]) -> Result<(), Illegal> {
    let (tensor, uses) = (id.0, program.uses(id));
    let (saves, turns): (Vec<Move>, Vec<Move>) = moves.iter().partition(|at| matches!(at.kind, Kind::Save(_)));
    let passes_end = program.tensor(id).life == Life::Global;
    let alive = |gap: u32| passes_end || program.span(id).is_some_and(|span| *span.start() < gap && gap <= *span.end());
    // In the order in which they run from a gap on to another.
    let between = |from: u32, until: u32| {
        let (earlier, later) = uses.split_at(uses.partition_point(|&kernel| kernel < from));
        later.iter().chain(earlier).copied().filter(move |&kernel| runs_between(kernel, from, until))
    };
    for (index, here) in turns.iter().enumerate() {
        let next = turns[(index + 1) % turns.len()];
        let back = here.kind == Kind::Prefetch;
        if (next.kind == Kind::Prefetch) == back || here.gap == next.gap {
            return Err(Illegal::Order { tensor, gap: here.gap });
        }
        if !alive(here.gap) || (!back && !passes_end && next.gap < here.gap) {
            return Err(Illegal::Dead { tensor, gap: here.gap });
        }
        if let (false, Some(kernel)) = (back, between(here.gap, next.gap).next()) {
            return Err(Illegal::Touched { tensor, gap: here.gap, kernel });
        }
    }
    for &Move { gap, .. } in &saves {
        let away = before(&turns, gap, passes_end).is_some_and(|turn| turn.kind != Kind::Prefetch);
        if away || turns.iter().any(|turn| turn.gap == gap) {
            return Err(Illegal::Order { tensor, gap });
        }
        if !alive(gap) {
            return Err(Illegal::Dead { tensor, gap });
        }
    }
    let copied: Vec<_> = moves.iter().copied().filter(|at| matches!(at.kind, Kind::Prefetch | Kind::Save(_))).collect();
    let writes = |kernel: u32| program.kernels()[kernel as usize].writes.contains(&id);
    for &Move { gap, .. } in turns.iter().filter(|turn| turn.kind == Kind::Drop) {
        let true_copy = before(&copied, gap, passes_end).is_some_and(|copy| !between(copy.gap, gap).any(writes));
        if !true_copy {
            return Err(Illegal::NoCopy { tensor, gap });
        }
    }
    Ok(())
}

/// The last of these before the gap, if need be in the iteration before.
fn before(moves: &[Move], gap: u32, passes_end: bool) -> Option<Move> {
    let earlier = moves.iter().rfind(|at| at.gap < gap);
    earlier.or_else(|| moves.last().filter(|_| passes_end)).copied()
}

/// What a planner answers.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Plan {
    /// What to do.
    pub schedule: Schedule,
    /// By how much planned memory stays above the GPU's at worst: what is left to demand.
    pub over: Bytes,
}

/// A plan, or why the planner has none.
pub type Outcome = Result<Plan, Failure>;

/// A kernel cannot run: what it touches must be on the GPU at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("kernel {kernel} touches {bytes}, more than the GPU's {gpu}")]
pub struct TooLarge {
    /// The first such kernel.
    pub kernel: u32,
    /// What it touches.
    pub bytes: Bytes,
    /// What there is.
    pub gpu: Bytes,
}

/// What each kernel touches.
#[must_use]
pub fn touched(program: &Program) -> Vec<Bytes> {
    let size = |id: TensorId| program.tensor(id).size.0;
    program.kernels().iter().map(|kernel| Bytes(kernel.touches().into_iter().map(size).sum())).collect()
}

/// The same, where all of it must be on the GPU at once.
///
/// # Errors
/// [`TooLarge`], if that is more than the GPU has.
pub fn fitting(program: &Program, gpu: Bytes) -> Result<Vec<Bytes>, TooLarge> {
    let touched = touched(program);
    match (0u32..).zip(&touched).find(|(_, bytes)| **bytes > gpu) {
        Some((kernel, &bytes)) => Err(TooLarge { kernel, bytes, gpu }),
        None => Ok(touched),
    }
}

/// Why a planner has no plan.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// No plan of whole tensors can run this.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The planner needs an SSD.
    #[error("the planner sends tensors to an SSD, and there is none")]
    NoSsd,
    /// FlashNeuron: what never leaves fills the GPU.
    #[error("weights of {weights} and a kernel of {kernel} leave nothing of {gpu} to choose tensors for")]
    NoRoom {
        /// All globals.
        weights: Bytes,
        /// What the largest kernel touches.
        kernel: Bytes,
        /// What there is.
        gpu: Bytes,
    },
    /// FlashNeuron: everything it may send away is sent, and it is not enough.
    #[error(
        "with all that may be offloaded, kernel {kernel} runs while {resident} are resident: more than the GPU's {gpu}"
    )]
    TooLittleOffloaded {
        /// The first such kernel.
        kernel: u32,
        /// What is resident then.
        resident: Bytes,
        /// What there is.
        gpu: Bytes,
    },
    /// A planner's own mistake, found when its schedule was made.
    #[error("the planner made no legal schedule: {0}")]
    Illegal(#[from] Illegal),
}

#[cfg(test)]
mod tests;
