//! `CatArrayBatchedCopy*`: concatenation, one block row per input tensor.
//!
//! Metadata (`aten/src/ATen/native/cuda/Shape.cu`): input pointers[n], then of the index type offsets[n], extents along the
//! dimension[n], elements[n], then n bools, then sizes and strides of each input (or one placeholder). The output's sizes and
//! strides come as one struct of 4 + 4 numbers.

use super::args::Launch;
use super::name::{element_size, template};
use super::offsets::number;
use super::touches::{Access, Touches};

pub(super) fn concatenate(l: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let (_, meta_args) = template(l.signature.params.get(1)?)?;
    let elem = u64::from(element_size(meta_args.first()?)?);
    let index = element_size(meta_args.get(1)?)?;
    let (room, strides) = (number(meta_args.get(2)?)?, number(meta_args.get(3)?)?);
    let (meta, shape) = (l.param(1)?, l.param(2)?);
    let w = index as usize;
    let flags = 8 * room + 3 * w * room;
    let own = (flags + room).next_multiple_of(w);
    if meta.len() != (own + strides * 8 * w).next_multiple_of(8) || shape.len() != 8 * w {
        return None;
    }
    let dims = number(l.signature.args.get(2)?)?.min(4);
    let dim = usize::try_from(l.count(3)?).ok().filter(|&d| d < dims)?;
    let sizes: Vec<u64> = (0..dims).map(|d| shape.count(w * d, index)).collect::<Option<_>>()?;
    let steps: Vec<u64> = (0..dims).map(|d| shape.count(w * (4 + d), index)).collect::<Option<_>>()?;
    // The vectorized form counts sizes and strides in 16-byte pieces; what its last parameter is differs as well.
    let vectorized = l.signature.family.ends_with("_vectorized");
    let piece = if vectorized { number(l.signature.args.get(5)?)? as u64 } else { elem };
    let per_piece = if vectorized { number(l.signature.args.get(6)?)? as u64 } else { 1 };
    let last = l.count(4)?;
    let inputs = usize::try_from(l.call.grid[1]).ok().filter(|&n| n <= room)?;
    for i in 0..inputs {
        let input = meta.u64(8 * i)?;
        let field = |f: usize| meta.count(8 * room + w * (f * room + i), index);
        let (offset, extent, count) = (field(0)?, field(1)?, field(2)?);
        if count == 0 {
            continue;
        }
        let (offset, extent) = if vectorized {
            (offset.checked_mul(last)?.checked_div(per_piece)?, extent.checked_mul(last)?.checked_div(per_piece)?)
        } else {
            (offset.checked_mul(last)?, extent)
        };
        let shape = |sizes: &[u64], steps: &[u64]| -> Option<Vec<(u64, i64)>> {
            (0..dims)
                .map(|d| {
                    let n = if d == dim { extent } else { sizes[d] };
                    Some((n, steps[d].checked_mul(piece)?.cast_signed()))
                })
                .collect()
        };
        let ptr = l.pointer(0)?.checked_add(offset.checked_mul(piece)?)?;
        out.strided(ptr, piece, &shape(&sizes, &steps)?, Access::Write);
        let contiguous = strides == 1 || meta.u8(flags + i)? != 0;
        if contiguous {
            out.dense(input, count.checked_mul(elem)?, Access::Read);
        } else {
            let at = own + i * 8 * w;
            let sizes: Vec<u64> = (0..dims).map(|d| meta.count(at + w * d, index)).collect::<Option<_>>()?;
            let steps: Vec<u64> = (0..dims).map(|d| meta.count(at + w * (4 + d), index)).collect::<Option<_>>()?;
            out.strided(input, elem, &shape(&sizes, &steps)?, Access::Read);
        }
    }
    Some(())
}
