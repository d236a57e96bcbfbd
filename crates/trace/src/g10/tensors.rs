//! `B-tensors.config`: each tensor's size, life, and range in the space of its kind.

use super::lines::{Line, Text};
use super::{G10Error, G10Name};
use crate::program::{Life, Tensor, TensorId};
use deepum_core::units::Bytes;

/// Sizes are whole pages of this.
const PAGE: u64 = 4096;
/// Most bytes of a space. A choice that keeps every sum of addresses far from overflow: nine times the largest that we know.
const MOST: u64 = 1 << 44;
/// Most tensors and most kernels. A choice: two hundred times the most that we know.
pub(super) const MOST_NUMBERS: u64 = 1 << 20;

/// A tensor as a line tells it, which is the same line in every file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) id: TensorId,
    pub(super) tensor: Tensor,
    /// Where it begins in its space: that of globals, or that of intermediates.
    pub(super) low: u64,
}

impl Entry {
    /// Reads `tensorID Is weight (global)?: G, Size in byte: S, Range:LO--HI`.
    pub(super) fn read(mut line: Line<'_>) -> Result<Self, G10Error> {
        let id = line.number("tensor", MOST_NUMBERS)?;
        let life = match line.number(" Is weight (global)?: ", 1)? {
            0 => Life::Intermediate,
            _ => Life::Global,
        };
        let size = line.number(", Size in byte: ", MOST)?;
        let low = line.number(", Range:", MOST)?;
        let high = line.number("--", MOST)?;
        line.end()?;
        if size == 0 || size % PAGE != 0 {
            return Err(line.wrong(format!("size {size}"), "whole pages of 4096 bytes, one at least"));
        }
        if high != low + size {
            return Err(line.wrong(format!("range {low}--{high}"), format!("as long as the size, {size}")));
        }
        let id = TensorId(u32::try_from(id).expect("at most MOST_NUMBERS"));
        Ok(Self { id, tensor: Tensor { size: Bytes(size), life }, low })
    }
}

/// All tensors, and how many bytes the globals' space has and that of intermediates.
pub(super) fn read(name: &G10Name) -> Result<(Vec<Entry>, [Bytes; 2]), G10Error> {
    let text = Text::read(name.derived("tensors"))?;
    let mut entries = Vec::new();
    let (mut globals, mut intermediates) = (0, 0);
    for line in text.lines() {
        let entry = Entry::read(line)?;
        if entry.id.index() != entries.len() {
            return Err(line.wrong(format!("tensor{}", entry.id.0), format!("tensor{} here", entries.len())));
        }
        let space = if entry.tensor.life == Life::Global { &mut globals } else { &mut intermediates };
        if entry.low != *space {
            return Err(
                line.wrong(format!("range from {}", entry.low), format!("{space}, where the one before it ends"))
            );
        }
        *space += entry.tensor.size.0;
        entries.push(entry);
    }
    Ok((entries, [Bytes(globals), Bytes(intermediates)]))
}
