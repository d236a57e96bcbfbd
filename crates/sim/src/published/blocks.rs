//! A program by UM blocks, which the core's policies know.
//!
//! Problem: in the published world a tensor has addresses of its own, which no other ever has. A policy that learns from addresses sees contents end when others come in
//! their place; so there it would see no end of any.
//! Idea: tensors lie where PyTorch's caching allocator puts them ([`Allocator`]), as soon as it does the same in each iteration. A block is then a tensor of its own in what is played: a
//! kernel touches all blocks that its tensors reach into, and small tensors share some. What is dead stays until it is given up, or the next tensor is there.

use crate::placement::Allocator;
use deepum_core::units::{AddrRange, Bytes, UmBlock};
use deepum_trace::program::{Kernel, Life, Program, ProgramError, Tensor, TensorId};

/// The first block; a choice, far from zero.
const FIRST: UmBlock = UmBlock(1 << 20);

/// See the module.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Its tensors are blocks.
    pub(super) program: Program,
    /// Where tensors lie, by number.
    pub(super) places: Vec<AddrRange>,
    /// What the allocator took, in whole blocks.
    pub(super) segments: Vec<AddrRange>,
}

impl Blocks {
    /// Of a program by tensors.
    ///
    /// # Errors
    /// More blocks than there are numbers.
    pub(super) fn new(tensors: &Program) -> Result<Self, ProgramError> {
        let Placed { places, segments, .. } = Placed::new(tensors);
        let count = segments
            .last()
            .map_or(0, |last| AddrRange::new(FIRST.start(), Bytes(last.end().0 - FIRST.start().0)).blocks().len());
        let mut blocks = vec![Tensor { size: UmBlock::SIZE, life: Life::Intermediate }; count];
        for id in tensors.ids().filter(|id| tensors.tensor(*id).life == Life::Global) {
            places[id.index()].blocks().filter_map(number).for_each(|block| blocks[block.index()].life = Life::Global);
        }
        let reached = |ids: &[TensorId]| {
            let reaches = |id: &TensorId| AddrRange::new(places[id.index()].start, tensors.tensor(*id).size).blocks();
            let mut reached: Vec<_> = ids.iter().flat_map(reaches).filter_map(number).collect();
            reached.sort_unstable();
            reached.dedup();
            reached
        };
        let kernels = tensors.kernels().iter().map(|kernel| Kernel {
            name: kernel.name.clone(),
            time: kernel.time,
            reads: reached(&kernel.reads),
            writes: reached(&kernel.writes),
        });
        Ok(Self { program: Program::new(kernels.collect(), blocks)?, places, segments })
    }
}

/// Tensors by where they lie.
struct Placed<'a> {
    tensors: &'a Program,
    allocator: Allocator,
    places: Vec<AddrRange>,
    segments: Vec<AddrRange>,
}

impl<'a> Placed<'a> {
    fn new(tensors: &'a Program) -> Self {
        let nowhere = AddrRange::new(FIRST.start(), Bytes::ZERO);
        let mut placed = Self {
            tensors,
            allocator: Allocator::new(FIRST.start()),
            places: vec![nowhere; tensors.tensors().len()],
            segments: Vec::new(),
        };
        for id in tensors.ids().filter(|id| tensors.tensor(*id).life == Life::Global) {
            placed.take(id);
        }
        let [births, deaths] = tensors.ends();
        // If nothing new was needed to cut from, the next iteration is as this one. It comes to that, for what was cut from stays.
        loop {
            let before = placed.segments.len();
            for (births, deaths) in births.iter().zip(&deaths) {
                births.iter().for_each(|id| placed.take(*id));
                deaths.iter().for_each(|id| placed.give_back(*id));
            }
            if placed.segments.len() == before {
                return placed;
            }
        }
    }

    fn take(&mut self, id: TensorId) {
        let (place, segment) = self.allocator.take(self.tensors.tensor(id).size);
        self.places[id.index()] = place;
        self.segments.extend(segment);
    }
    fn give_back(&mut self, id: TensorId) {
        self.allocator.give_back(self.places[id.index()].start);
    }
}

/// A block's number as a tensor.
pub(super) fn number(block: UmBlock) -> Option<TensorId> {
    Some(TensorId(u32::try_from(block.0.checked_sub(FIRST.0)?).ok()?))
}

/// The block of this number.
pub(super) const fn block(id: TensorId) -> UmBlock {
    UmBlock(FIRST.0 + id.0 as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::tests::{global, intermediate, kernel, program};

    /// In MiB from the first.
    fn at(place: &AddrRange) -> (u64, u64) {
        ((place.start.0 - FIRST.start().0) >> 20, place.len.0 >> 20)
    }

    #[test]
    fn tensors_lie_where_pytorch_puts_them_and_small_ones_share_blocks() {
        let mib = |mib: u64| mib << 20;
        // A weight of 5 in a segment of 20; x of 2 and y of 3, which live at once, behind it; z of 2, made when x is dead, in its place.
        let tensors = vec![intermediate(mib(2)), global(mib(5)), intermediate(mib(3)), intermediate(mib(2))];
        let kernels = vec![kernel(7, &[1], &[0]), kernel(8, &[0], &[2]), kernel(9, &[2], &[3])];
        let blocks = Blocks::new(&program(kernels, tensors)).unwrap();
        assert_eq!(blocks.segments.iter().map(at).collect::<Vec<_>>(), [(0, 20)]);
        assert_eq!(blocks.places.iter().map(at).collect::<Vec<_>>(), [(5, 2), (0, 5), (7, 3), (5, 2)]);
        let touched = |kernel: usize| {
            let Kernel { reads, writes, .. } = &blocks.program.kernels()[kernel];
            [reads, writes].map(|ids| ids.iter().map(|id| id.0).collect::<Vec<_>>())
        };
        assert_eq!(
            [0, 1, 2].map(touched),
            [[vec![0, 1, 2], vec![2, 3]], [vec![2, 3], vec![3, 4]], [vec![3, 4], vec![2, 3]]]
        );
        let globals = blocks.program.ids().filter(|id| blocks.program.tensor(*id).life == Life::Global);
        assert_eq!((globals.count(), blocks.program.tensors().len()), (3, 10));
        assert_eq!(number(block(TensorId(9))), Some(TensorId(9)));
    }
}
