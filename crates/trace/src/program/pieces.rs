//! A recorded iteration by pieces of tensors.
//!
//! Problem: a [`Program`] says of a kernel which tensors it touches. One that looks up a few rows of a table touches the table, one that works on the first third of a tensor the tensor; for planners, which move
//! whole tensors, that is so, but nobody has to have the rest on the GPU, and a lower bound must not say so.
//! Idea: a tensor is cut wherever a touch begins or ends, and its *pieces* are the tensors of the program. What no kernel touches is nothing. A table of which many rows
//! are looked up would be cut into too many: it is cut at the ends of long touches only. Who touches all of a piece touches it, and look-ups need nothing.
//!
//! Leaving out a touch must not make anything harder. Where some were left out before the first that is kept, because they are look-ups or of the iteration before, the contents
//! may have a copy on the host by then, made after a write that is not in the program; so such a piece begins with the first kernel that writes it.
//!
//! And a program that overwrites what it holds says so to nobody: whoever moves memory beneath it brings back what will be overwritten, too. So all but the
//! first use of an intermediate count as reads.

use super::{Kernel, Life, Program, ProgramError, Tensor, TensorId};
use crate::event::Access;
use deepum_core::units::{AddrRange, Bytes};
use std::cmp::Reverse;
use std::ops::Range;

/// Most pieces of a tensor. Where touches would make more, those that are shorter than the tensor's so manieth part make none.
const MOST: usize = 64;

/// A program by pieces of its tensors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pieces {
    /// Its tensors are the pieces.
    pub program: Program,
    /// By piece: where it is.
    pub places: Vec<AddrRange>,
}

/// A kernel's touch of a tensor: from the one byte of it up to the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub kernel: u32,
    pub tensor: TensorId,
    pub from: Bytes,
    pub to: Bytes,
    pub access: Access,
}

/// Where a tensor is cut, its beginning and its end among it.
struct Cuts {
    at: Vec<Bytes>,
    is_rough: bool,
    /// By piece: its number, once somebody touches it.
    numbers: Vec<Option<TensorId>>,
}

impl Cuts {
    /// Of a tensor of this size, by its touches.
    fn new(mut touches: Vec<(Bytes, Bytes)>, size: Bytes) -> Self {
        let mut at: Vec<Bytes> = touches.iter().flat_map(|&(from, to)| [from, to]).chain([Bytes::ZERO, size]).collect();
        at.sort_unstable();
        at.dedup();
        let is_rough = at.len() > MOST + 1;
        if is_rough {
            touches.sort_unstable_by_key(|&(from, to)| (Reverse(to - from), from));
            touches.dedup();
            at = vec![Bytes::ZERO, size];
            for (from, to) in touches.into_iter().take_while(|&(from, to)| (to - from).0 >= size.0 / MOST as u64) {
                for end in [from, to] {
                    if at.len() <= MOST
                        && let Err(before) = at.binary_search(&end)
                    {
                        at.insert(before, end);
                    }
                }
            }
        }
        Self { is_rough, numbers: vec![None; at.len() - 1], at }
    }

    /// The pieces that are touched whole.
    fn within(&self, from: Bytes, to: Bytes) -> Range<usize> {
        let first = self.at.partition_point(|&cut| cut < from);
        first..self.at.partition_point(|&cut| cut <= to).saturating_sub(1).max(first)
    }
}

/// This program by pieces. By tensor: `before`, whether it was there before the iteration, and `places`, where it is.
///
/// # Errors
/// Too many pieces to have numbers.
pub(super) fn by_pieces(
    program: &Program,
    before: &[bool],
    places: &[AddrRange],
    parts: &[Part],
) -> Result<Pieces, ProgramError> {
    let mut touches = vec![Vec::new(); program.tensors().len()];
    for part in parts {
        touches[part.tensor.index()].push((part.from, part.to));
    }
    let sizes = program.tensors().iter().map(|of| of.size);
    let mut cuts: Vec<Cuts> = touches.into_iter().zip(sizes).map(|(touches, size)| Cuts::new(touches, size)).collect();
    let bare = |kernel: &Kernel| Kernel { reads: Vec::new(), writes: Vec::new(), ..kernel.clone() };
    let mut kernels: Vec<Kernel> = program.kernels().iter().map(bare).collect();
    let (mut tensors, mut holds, mut lie) = (Vec::new(), Vec::new(), Vec::new());
    for part in parts {
        let of = program.tensor(part.tensor);
        let touched = cuts[part.tensor.index()].within(part.from, part.to);
        let Cuts { at, is_rough, numbers } = &mut cuts[part.tensor.index()];
        let is_global = of.life == Life::Global;
        let is_cut_off = !is_global && (*is_rough || before[part.tensor.index()]);
        let kernel = &mut kernels[part.kernel as usize];
        for piece in touched {
            if numbers[piece].is_none() && is_cut_off && !part.access.writes() {
                continue;
            }
            let is_needed = part.access.reads() || is_global || numbers[piece].is_some();
            let number = *numbers[piece].get_or_insert_with(|| {
                let size = at[piece + 1] - at[piece];
                tensors.push(Tensor { size, ..of });
                lie.push(AddrRange::new(places[part.tensor.index()].start.offset(at[piece]), size));
                holds.push(program.hold(part.tensor));
                TensorId(u32::try_from(tensors.len() - 1).unwrap_or(u32::MAX))
            });
            for (list, is_in) in [(&mut kernel.reads, is_needed), (&mut kernel.writes, part.access.writes())] {
                if is_in && !list.contains(&number) {
                    list.push(number);
                }
            }
        }
    }
    Ok(Pieces { program: Program::new(kernels, tensors)?.with_holds(holds), places: lie })
}
