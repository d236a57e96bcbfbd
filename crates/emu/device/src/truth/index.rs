//! Kernels whose data says where they go: lookups, gathers, scatters.
//!
//! Shapes are exact; which rows are picked comes from [`super::rows`]. Sources: `Indexing.cu`, `IndexKernel.cu`,
//! `IndexKernelUtils.cu`, `ScatterGatherKernel.cu` in `aten/src/ATen/native/cuda`.

use super::args::Launch;
use super::offsets::{Offsets, Shaped};
use super::touches::{Access, Touches};

/// `indexSelect{Small,Large}Index(result, source, indices, result dimension, source dimension, …)` and the family of `index_add`,
/// `indexFunc…(result, source, indices, …)`, in which the result is picked.
pub(super) fn select(l: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let [result, source, indices] = [Shaped::read(l, 0)?, Shaped::read(l, 1)?, Shaped::read(l, 2)?];
    let adds = l.signature.family.starts_with("indexFunc");
    let (table, other, dim, access) = if adds {
        (&result, &source, l.count(3)?, Access::Update)
    } else {
        (&source, &result, l.count(4)?, Access::Read)
    };
    let dim = usize::try_from(dim).ok()?;
    let &(rows, stride) = table.dims.get(dim)?;
    let picks = out.pick(indices.ptr, u32::try_from(indices.elem).ok()?, indices.elements(), rows, !adds);
    if !adds {
        out.rows.row_bytes(indices.ptr, (result.elements() / indices.elements().max(1)).saturating_mul(result.elem));
    }
    other.touch(out, if adds { Access::Read } else { Access::Write });
    indices.touch(out, Access::Read);
    let mut row = table.dims.clone();
    row.remove(dim);
    picked_boxes(out, table.ptr, table.elem, &row, &[(picks, stride)], access);
    Some(())
}

/// `vectorized_gather_kernel(out, in, indices, count, row bytes, rows, in stride, out stride, …)`, strides in bytes.
pub(super) fn vectorized_gather(l: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let (count, row, rows) = (l.count(3)?, l.count(4)?, l.count(5)?);
    let elem = u32::try_from(l.element(2)?).ok()?;
    let picks = out.pick(l.pointer(2)?, elem, count, rows, true);
    out.rows.row_bytes(l.pointer(2)?, row);
    out.strided(l.pointer(0)?, 1, &[(row, 1), (count, l.param(7)?.i64(0)?)], Access::Write);
    out.dense(l.pointer(2)?, count.checked_mul(u64::from(elem))?, Access::Read);
    out.picked(l.pointer(1)?, row, l.count(6)?, &picks, Access::Read);
    Some(())
}

/// `_scatter_gather_elementwise_kernel(N, closure)`: calculator over (self, source, index), index pointer, size of the
/// picked dimension, operation, self, stride of the picked dimension (elements), number of elements, source.
pub(super) fn scatter_gather(l: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let (n, closure) = (l.count(0)?, l.param(1)?);
    let text = &l.signature.text;
    let (_, args) = text.split_once("_cuda_scatter_gather_internal_kernel<")?;
    let args = super::name::split(args);
    let scatters = args.first()? == "true";
    let elem = u64::from(super::name::element_size(args.get(1)?)?);
    let offsets = Offsets::read(closure, 3, 4, false).filter(|o| o.positions() == Some(n))?;
    let at = Offsets::size(3, 4).next_multiple_of(8);
    let (index, size) = (closure.u64(at)?, closure.count(at + 8, 8)?);
    let (this, stride, source) = (closure.u64(at + 24)?, closure.count(at + 32, 8)?, closure.u64(at + 48)?);
    let wide = args.get(2).and_then(|t| super::name::element_size(t)).unwrap_or(8);
    let picks = out.pick(index, wide, n, size, !scatters);
    out.strided(index, u64::from(wide), &offsets.operand(2, 1), Access::Read);
    let (picked, whole) = if scatters { ((this, 0), (source, 1)) } else { ((source, 1), (this, 0)) };
    let (picked_access, access) = if scatters { (Access::Update, Access::Read) } else { (Access::Read, Access::Write) };
    out.strided(whole.0, elem, &offsets.operand(whole.1, 1), access);
    // Every position has its own pick along the dimension, on top of its place in the others.
    let places = places(&offsets.operand(picked.1, 1), picks.len());
    let addresses: Vec<u64> = picks
        .iter()
        .zip(places)
        .map(|(&p, place)| p.saturating_mul(stride).saturating_mul(elem).saturating_add(place))
        .collect();
    out.picked(picked.0, elem, 1, &addresses, picked_access);
    Some(())
}

/// The byte offsets of `count` positions spread evenly over a box.
fn places(dims: &[(u64, i64)], count: usize) -> Vec<u64> {
    let total = dims.iter().fold(1u64, |n, d| n.saturating_mul(d.0));
    let count = count as u64;
    (0..count)
        .map(|i| {
            let mut rest = u64::try_from(u128::from(i) * u128::from(total) / u128::from(count.max(1))).unwrap_or(0);
            dims.iter().fold(0u64, |offset, &(n, stride)| {
                let here = rest % n;
                rest /= n;
                offset.saturating_add(here.saturating_mul(stride.unsigned_abs()))
            })
        })
        .collect()
}

/// `index_elementwise_kernel(N, closure)` of `tensor[indices]` and `tensor[indices] = values`: calculator over (result, source, index),
/// result, source, number of index tensors, then 25 each of index pointers, sizes and strides (bytes).
pub(super) fn advanced(l: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let (n, closure) = (l.count(0)?, l.param(1)?);
    let text = &l.signature.text;
    let (puts, rest) = match text.split_once("index_put_kernel_impl<") {
        Some((_, rest)) => (true, rest),
        None => (false, text.split_once("index_kernel_impl<")?.1),
    };
    let elem = u64::from(super::name::element_size(super::name::split(rest.split_once(">(")?.0).first()?)?);
    let offsets = Offsets::read(closure, 3, 4, false).filter(|o| o.positions() == Some(n))?;
    let at = Offsets::size(3, 4).next_multiple_of(8);
    let (result, source) = (closure.u64(at)?, closure.u64(at + 8)?);
    let tensors = usize::try_from(closure.u64(at + 16)?).ok().filter(|&t| (1..=25).contains(&t))?;
    // Dimensions in which the index tensors advance are picked; the others are the row.
    let (over_index, over_row): (Vec<_>, Vec<_>) = offsets.dims.iter().partition(|(_, s)| s[2] != 0);
    let count = over_index.iter().fold(1u64, |p, (n, _)| p.saturating_mul(*n));
    let mut picked: Vec<(Vec<u64>, i64)> = Vec::with_capacity(tensors);
    for t in 0..tensors {
        let index = closure.u64(at + 24 + 8 * t)?;
        let size = closure.count(at + 224 + 8 * t, 8)?;
        let stride = closure.i64(at + 424 + 8 * t)?;
        picked.push((out.pick(index, 8, count, size, !puts), stride));
        out.strided(index, 8, &offsets.operand(2, 1), Access::Read);
    }
    let (table, column, whole, whole_column) = if puts { (result, 0, source, 1) } else { (source, 1, result, 0) };
    let access = if puts { (Access::Write, Access::Read) } else { (Access::Read, Access::Write) };
    out.strided(whole, elem, &offsets.operand(whole_column, 1), access.1);
    let row: Vec<(u64, i64)> = over_row.iter().map(|(n, s)| (*n, s[column])).collect();
    picked_boxes(out, table, elem, &row, &picked, access.0);
    Some(())
}

/// A box at each of the places that several lists of picks (with strides in bytes) name together.
fn picked_boxes(
    out: &mut Touches<'_>,
    base: u64,
    elem: u64,
    row: &[(u64, i64)],
    picked: &[(Vec<u64>, i64)],
    access: Access,
) {
    let count = picked.iter().map(|(rows, _)| rows.len()).max().unwrap_or(0);
    let mut inner: Vec<(u64, u64)> =
        row.iter().filter(|d| d.0 > 1 && d.1 != 0).map(|d| (d.0, d.1.unsigned_abs())).collect();
    inner.sort_unstable_by_key(|d| d.1);
    // The run of the row that lies together, and the steps between such runs.
    let (mut run, mut steps) = (elem, Vec::new());
    for (n, step) in inner {
        if steps.is_empty() && step <= run {
            run = run.saturating_add(step.saturating_mul(n - 1));
        } else {
            steps.push((n, step));
        }
    }
    let mut places: Vec<u64> = (0..count)
        .map(|i| {
            picked.iter().fold(0u64, |at, (rows, stride)| {
                at.saturating_add(rows.get(i).copied().unwrap_or(0).saturating_mul(stride.unsigned_abs()))
            })
        })
        .collect();
    for (n, step) in steps {
        // Rows in pieces: past a bound, the piece in between is taken along.
        if (places.len() as u64).saturating_mul(n) > 1 << 20 {
            run = run.saturating_add(step.saturating_mul(n - 1));
        } else {
            places =
                places.iter().flat_map(|&p| (0..n).map(move |i| p.saturating_add(i.saturating_mul(step)))).collect();
        }
    }
    out.picked(base, run, 1, &places, access);
}
