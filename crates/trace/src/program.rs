//! One iteration of a program by its tensors: what planners that know the future are given, and what the limit is proven of.
//!
//! The iteration repeats unchanged. Between two kernels lies a *gap*; gap `k` is before kernel `k`. An intermediate lives from the first kernel
//! that names it to the last (`LO..=HI`), anew in each iteration: it is dead otherwise, and its bytes are worth nothing. A global lives
//! always; its next use after the last is its first in the next iteration.
//!
//! A program may *hold* an intermediate longer than it uses it: until it says that the memory is free, whoever moves tensors beneath it cannot know that its
//! bytes are worth nothing. Planners, who know the future, do not care; a limit for those who do not know it does.

mod from_events;
mod live;
mod pieces;

pub use from_events::{FromEventsError, Recorded, from_events};
pub use pieces::Pieces;

use deepum_core::units::{Bytes, Nanos};
use std::ops::RangeInclusive;

/// A tensor of a [`Program`]: its index there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TensorId(pub u32);

impl TensorId {
    /// As an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How long a tensor's contents matter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Life {
    /// Over all iterations: a weight.
    Global,
    /// From its first use in an iteration to its last.
    Intermediate,
}

/// A tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tensor {
    /// How large it is.
    pub size: Bytes,
    /// How long its contents matter.
    pub life: Life,
}

/// A kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kernel {
    /// What it is called.
    pub name: Box<str>,
    /// How long it takes when all it touches is on the GPU.
    pub time: Nanos,
    /// What it reads, each once.
    pub reads: Vec<TensorId>,
    /// What it writes, each once; in place, if it reads it too.
    pub writes: Vec<TensorId>,
}

impl Kernel {
    /// All it touches, each once, in the order of numbers.
    #[must_use]
    pub fn touches(&self) -> Vec<TensorId> {
        let mut all: Vec<_> = self.reads.iter().chain(&self.writes).copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// One iteration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    kernels: Vec<Kernel>,
    tensors: Vec<Tensor>,
    /// By tensor: the kernels that touch it, ascending.
    uses: Vec<Vec<u32>>,
    /// By tensor: the last kernel launched before it is handed back, if it is held that long.
    holds: Vec<Option<u32>>,
}

/// What is wrong with a program.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProgramError {
    /// No kernels.
    #[error("there are no kernels")]
    Empty,
    /// More kernels or tensors than numbers.
    #[error("{0} kernels or tensors: at most 2^32 - 1 are allowed")]
    TooMany(usize),
    /// A kernel names a tensor that is not there.
    #[error("kernel {kernel} names tensor {tensor}, but there are {tensors}")]
    NoSuchTensor {
        /// Which kernel.
        kernel: usize,
        /// The tensor's number.
        tensor: u32,
        /// How many there are.
        tensors: usize,
    },
}

impl Program {
    /// From its kernels, in the order of launches, and its tensors.
    ///
    /// # Errors
    /// [`ProgramError`].
    pub fn new(kernels: Vec<Kernel>, tensors: Vec<Tensor>) -> Result<Self, ProgramError> {
        if kernels.is_empty() {
            return Err(ProgramError::Empty);
        }
        let most = kernels.len().max(tensors.len());
        if u32::try_from(most).is_err() {
            return Err(ProgramError::TooMany(most));
        }
        let mut uses = vec![Vec::new(); tensors.len()];
        for (number, kernel) in (0u32..).zip(&kernels) {
            for tensor in kernel.touches() {
                let Some(uses) = uses.get_mut(tensor.index()) else {
                    let kernel = number as usize;
                    return Err(ProgramError::NoSuchTensor { kernel, tensor: tensor.0, tensors: tensors.len() });
                };
                uses.push(number);
            }
        }
        let holds = vec![None; tensors.len()];
        Ok(Self { kernels, tensors, uses, holds })
    }

    /// The same, and the program holds on to tensors: by tensor the last kernel that it launches before it hands the memory back. Kernels are
    /// numbered on through the next iteration. Nothing is held longer than until it is made anew. Tensors past the end of the list are not held.
    #[must_use]
    pub fn with_holds(mut self, holds: impl IntoIterator<Item = Option<u32>>) -> Self {
        let next = u32::try_from(self.kernels.len()).unwrap_or(u32::MAX);
        for ((hold, uses), told) in self.holds.iter_mut().zip(&self.uses).zip(holds) {
            let most = uses.first().map(|first| first.saturating_add(next - 1));
            *hold = told.map(|told| most.map_or(told, |most| told.min(most)));
        }
        self
    }

    /// Its kernels, in the order of launches.
    #[must_use]
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }
    /// Its tensors, by [`TensorId`].
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }
    /// Every tensor's number.
    pub fn ids(&self) -> impl Iterator<Item = TensorId> + use<> {
        let count = u32::try_from(self.tensors.len()).unwrap_or(u32::MAX);
        (0..count).map(TensorId)
    }
    /// This tensor.
    ///
    /// # Panics
    /// If it is of another program.
    #[must_use]
    pub fn tensor(&self, id: TensorId) -> Tensor {
        self.tensors[id.index()]
    }
    /// The kernels that touch it, ascending.
    ///
    /// # Panics
    /// If it is of another program.
    #[must_use]
    pub fn uses(&self, id: TensorId) -> &[u32] {
        &self.uses[id.index()]
    }
    /// The last kernel launched before the program hands its memory back, if it is known to hold it that long. `k` kernels and more is in the next iteration.
    ///
    /// # Panics
    /// If it is of another program.
    #[must_use]
    pub fn hold(&self, id: TensorId) -> Option<u32> {
        self.holds[id.index()]
    }
    /// From its first use to its last, if any kernel touches it.
    #[must_use]
    pub fn span(&self, id: TensorId) -> Option<RangeInclusive<u32>> {
        let uses = self.uses(id);
        Some(*uses.first()?..=*uses.last()?)
    }
    /// By kernel: the intermediates it is the first to touch, and those it is the last to touch.
    #[must_use]
    pub fn ends(&self) -> [Vec<Vec<TensorId>>; 2] {
        let mut ends = [0, 1].map(|_| vec![Vec::new(); self.kernels().len()]);
        for id in self.ids().filter(|id| self.tensor(*id).life == Life::Intermediate) {
            if let Some(span) = self.span(id) {
                ends[0][*span.start() as usize].push(id);
                ends[1][*span.end() as usize].push(id);
            }
        }
        ends
    }
    /// All kernels one after the other with nothing missing: the ideal time.
    #[must_use]
    pub fn ideal(&self) -> Nanos {
        Nanos(self.kernels.iter().map(|kernel| kernel.time.0).sum())
    }
    /// The same, each kernel with what a GPU takes from its end to the start of the next.
    #[must_use]
    pub fn with_gaps(mut self, gap: Nanos) -> Self {
        self.kernels.iter_mut().for_each(|kernel| kernel.time += gap);
        self
    }
    /// Bytes that live while each kernel runs: all globals, and the intermediates between first and last use.
    #[must_use]
    pub fn live(&self) -> Vec<Bytes> {
        let mut change = vec![0i128; self.kernels.len() + 1];
        for id in self.ids() {
            let Tensor { size, life } = self.tensor(id);
            let (from, to) = match (life, self.span(id)) {
                (Life::Global, _) => (0, self.kernels.len()),
                (Life::Intermediate, Some(span)) => (*span.start() as usize, *span.end() as usize + 1),
                (Life::Intermediate, None) => continue,
            };
            change[from] += i128::from(size.0);
            change[to] -= i128::from(size.0);
        }
        let mut now = 0i128;
        let running = change[..self.kernels.len()].iter().map(|by| {
            now += by;
            Bytes(u64::try_from(now).unwrap_or(u64::MAX))
        });
        running.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(time: u64, reads: &[u32], writes: &[u32]) -> Kernel {
        let ids = |numbers: &[u32]| numbers.iter().copied().map(TensorId).collect();
        Kernel { name: "k".into(), time: Nanos(time), reads: ids(reads), writes: ids(writes) }
    }

    fn tensor(mib: u64, life: Life) -> Tensor {
        Tensor { size: Bytes::mib(mib), life }
    }

    #[test]
    fn intermediates_live_from_first_use_to_last_and_globals_always() {
        let tensors = vec![tensor(1, Life::Global), tensor(2, Life::Intermediate), tensor(4, Life::Intermediate)];
        let kernels =
            vec![kernel(10, &[], &[1]), kernel(20, &[0, 1], &[2]), kernel(30, &[2], &[2]), kernel(5, &[0], &[0])];
        let program = Program::new(kernels, tensors).unwrap();
        assert_eq!(program.live(), [3, 7, 5, 1].map(Bytes::mib));
        assert_eq!((program.uses(TensorId(2)), program.span(TensorId(1))), (&[1, 2][..], Some(0..=1)));
        assert_eq!(program.ideal(), Nanos(65));
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        let tensors = vec![tensor(1, Life::Global)];
        let refused = Program::new(vec![kernel(1, &[0], &[3])], tensors.clone());
        assert_eq!(refused, Err(ProgramError::NoSuchTensor { kernel: 0, tensor: 3, tensors: 1 }));
        assert_eq!(Program::new(Vec::new(), tensors), Err(ProgramError::Empty));
    }
}
