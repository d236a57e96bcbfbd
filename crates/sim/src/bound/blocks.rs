//! A program as those see it who move UM blocks, and those whole.
//!
//! Problem: the bound counts bytes, each by itself. What DeepUM's policies move is a block of 2 MiB, with whatever is in it; so part of what they are short of the bound by
//! is owed to the unit, and part to the choice.
//! Idea: the same bound, of another program, whose tensors are the blocks. A block is needed, or held, while anything in it is; from a kernel that finds nothing in it that is,
//! to where nothing is any more, it is one tensor. A kernel touches it that touches anything in it. Every schedule of whole blocks is one of that program (`docs/bound.md`, section 7).
//!
//! Blocks with the same tensors in them are one tensor, of as many bytes.

use super::contents::Contents;
use deepum_core::units::{AddrRange, Bytes, UmBlock};
use deepum_trace::program::{Kernel, Life, Program, ProgramError, Tensor, TensorId};
use std::collections::BTreeMap;

/// This program by whole blocks. `places`: by tensor, where it is.
///
/// # Errors
/// More tensors than there are numbers.
pub fn in_blocks(program: &Program, places: &[AddrRange]) -> Result<Program, ProgramError> {
    let mut inside: BTreeMap<UmBlock, Vec<TensorId>> = BTreeMap::new();
    for (id, place) in program.ids().zip(places) {
        place.blocks().for_each(|block| inside.entry(block).or_default().push(id));
    }
    let mut alike: BTreeMap<Vec<TensorId>, u64> = BTreeMap::new();
    inside.into_values().for_each(|ids| *alike.entry(ids).or_default() += 1);
    let mut blocks = Blocks::new(program);
    for (ids, count) in alike {
        blocks.add(&ids, Bytes(count * UmBlock::SIZE.0));
    }
    Ok(Program::new(blocks.kernels, blocks.tensors)?.with_holds(blocks.holds))
}

/// The program as far as it is made.
struct Blocks<'a> {
    program: &'a Program,
    kernels: Vec<Kernel>,
    tensors: Vec<Tensor>,
    holds: Vec<Option<u32>>,
}

impl<'a> Blocks<'a> {
    fn new(program: &'a Program) -> Self {
        let bare = |kernel: &Kernel| Kernel { reads: Vec::new(), writes: Vec::new(), ..kernel.clone() };
        let kernels = program.kernels().iter().map(bare).collect();
        Self { program, kernels, tensors: Vec::new(), holds: Vec::new() }
    }

    /// Blocks in which these tensors are, of so many bytes together.
    fn add(&mut self, ids: &[TensorId], size: Bytes) {
        let kernels = self.kernels.len();
        let contents: Vec<Contents> = ids.iter().flat_map(|&id| Contents::of(self.program, id)).collect();
        // By kernel that touches anything: whether it writes.
        let mut uses: BTreeMap<usize, bool> = BTreeMap::new();
        for one in contents.iter().flat_map(|contents| &contents.uses) {
            *uses.entry(one.kernel % kernels).or_default() |= one.writes;
        }
        // Whether anything is kept from this kernel to the next.
        let mut kept_after = vec![false; kernels];
        for kept in contents.iter().map(Contents::kept) {
            (*kept.start()..*kept.end()).for_each(|kernel| kept_after[kernel % kernels] = true);
        }
        if kept_after.iter().all(|&kept| kept) {
            let id = self.tensor(Tensor { size, life: Life::Global }, None);
            uses.into_iter().for_each(|(kernel, writes)| self.touch(id, kernel, true, writes));
            return;
        }
        let begins = |kernel: usize| !kept_after[(kernel + kernels - 1) % kernels];
        for &first in uses.keys().filter(|&&kernel| begins(kernel)) {
            let end = (first..).find(|&kernel| !kept_after[kernel % kernels]).unwrap_or(first);
            let used = |kernel: &usize| uses.contains_key(&(kernel % kernels));
            let last = (first..=end).rev().find(used).unwrap_or(first);
            // What lives over the mark is a global that is made anew in each iteration; that it may be held behind its last use, too, is left out.
            let passes = last >= kernels;
            let life = if passes { Life::Global } else { Life::Intermediate };
            let hold = u32::try_from(end).ok().filter(|_| end > last && !passes);
            let id = self.tensor(Tensor { size, life }, hold);
            self.touch(id, first, false, true);
            for kernel in (first + 1..=last).filter(used) {
                self.touch(id, kernel % kernels, true, uses[&(kernel % kernels)]);
            }
        }
    }

    fn tensor(&mut self, tensor: Tensor, hold: Option<u32>) -> TensorId {
        self.tensors.push(tensor);
        self.holds.push(hold);
        TensorId(u32::try_from(self.tensors.len() - 1).unwrap_or(u32::MAX))
    }

    fn touch(&mut self, id: TensorId, kernel: usize, reads: bool, writes: bool) {
        let kernel = &mut self.kernels[kernel];
        kernel.reads.extend(reads.then_some(id));
        kernel.writes.extend(writes.then_some(id));
    }
}
