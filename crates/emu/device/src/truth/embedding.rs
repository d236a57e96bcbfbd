//! The backward pass of a lookup: gradients of the picked rows.
//!
//! Few indices: one kernel adds every gradient row to its weight row. Many: the indices are sorted, equal ones form a
//! *segment*, long segments are cut into *partials* of ten, and sums over partials are added up per segment
//! (`Embedding.cu`, `EmbeddingBackwardKernel.cu` in `aten/src/ATen/native/cuda`). How many segments and partials there are is only in device
//! memory; here it follows from the rows that the lookup picked.

use super::args::Launch;
use super::touches::{Access, Touches};

type Decode = fn(&Launch<'_>, &mut Touches<'_>) -> Option<()>;

/// The decoder of `family` with `params` parameters.
pub(super) fn decoder(family: &str, params: usize) -> Option<Decode> {
    TABLE.iter().find(|(name, count, _)| *name == family && *count == params).map(|&(_, _, decode)| decode)
}

const TABLE: &[(&str, usize, Decode)] = &[
    // indices, gradient, weight gradient, count, row length, padding
    ("embedding_backward_feature_kernel", 6, |l, o| {
        let (count, row) = (l.count(3)?, l.count(4)?);
        l.dense(o, 0, count)?;
        l.dense(o, 1, count.checked_mul(row)?)?;
        let bytes = row.checked_mul(l.element(2)?)?;
        let picks = o.again(l.pointer(0)?, count, bytes)?;
        o.picked(l.pointer(2)?, bytes, bytes, &picks, Access::Update);
        Some(())
    }),
    // partials of each segment, segment offsets, number of segments, count
    ("krn_partials_per_segment", 4, |l, o| {
        let (threads, blocks) = (l.threads(), l.blocks());
        let most = blocks.checked_mul(threads)?;
        o.rows.begin_sorted(l.count(3)?, most.checked_sub(threads)?.saturating_add(1)..=most);
        let segments = o.sorted()?.rows.len() as u64;
        l.dense(o, 0, segments)?;
        l.dense(o, 1, segments)?;
        l.dense(o, 2, 1)
    }),
    // partials of each segment, their running sum, number of segments, number of partials
    ("compute_num_of_partial_segments", 4, |l, o| {
        let last = (o.sorted()?.rows.len() as u64).checked_sub(1)?;
        for n in [0, 1] {
            o.dense(l.pointer(n)?.checked_add(last * l.element(n)?)?, l.element(n)?, Access::Read);
        }
        l.dense(o, 2, 1)?;
        l.dense(o, 3, 1)
    }),
    // partial offsets, partials of each segment, their running sum, segment offsets, number of segments
    ("krn_partial_segment_offset", 5, |l, o| {
        let s = o.sorted()?;
        l.dense(o, 0, s.partials)?;
        [1, 2, 3].iter().try_for_each(|&n| l.dense(o, n, s.rows.len() as u64))?;
        l.dense(o, 4, 1)
    }),
    // segment of each partial, partials of each segment, their running sum, number of segments
    ("krn_partial_to_segment_idx", 4, |l, o| {
        let s = o.sorted()?;
        l.dense(o, 0, s.partials)?;
        [1, 2].iter().try_for_each(|&n| l.dense(o, n, s.rows.len() as u64))?;
        l.dense(o, 3, 1)
    }),
    // order, gradient, frequencies, count, row length, partial offsets, number of partials, sums, padded row length
    ("compute_grad_weight", 9, |l, o| {
        let row = gradient(l, o)?;
        let partials = o.sorted()?.partials;
        l.dense(o, 5, partials)?;
        l.dense(o, 6, 1)?;
        l.dense(o, 7, partials.checked_mul(row)?)
    }),
    // sorted indices, weight gradient, row length, segment offsets, number of segments, sums, running sum of partials,
    // number of partials, padding, padded row length
    ("sum_and_scatter", 10, |l, o| {
        let (row, s) = (l.count(2)?, o.sorted()?);
        let segments = s.rows.len() as u64;
        [0, 3, 6].iter().try_for_each(|&n| l.dense(o, n, segments))?;
        [4, 7].iter().try_for_each(|&n| l.dense(o, n, 1))?;
        l.dense(o, 5, s.partials.checked_mul(row)?)?;
        scatter(l, o, 1, row, &s.rows)
    }),
    // order, gradient, frequencies, count, row length, partial offsets, number of partials, sorted indices, segment of each
    // partial, segment offsets, weight gradient, padding, padded row length
    ("compute_grad_weight_atomic_accumulate", 13, |l, o| {
        let row = gradient(l, o)?;
        let s = o.sorted()?;
        [5, 8].iter().try_for_each(|&n| l.dense(o, n, s.partials))?;
        l.dense(o, 6, 1)?;
        [7, 9].iter().try_for_each(|&n| l.dense(o, n, s.rows.len() as u64))?;
        scatter(l, o, 10, row, &s.rows)
    }),
];

/// Reads every row of the gradient in sorted order, and the frequencies if there are any. Gives the row length.
fn gradient(l: &Launch<'_>, out: &mut Touches<'_>) -> Option<u64> {
    let (count, row) = (l.count(3)?, l.count(4)?);
    l.dense(out, 0, count)?;
    l.dense(out, 1, count.checked_mul(row)?)?;
    l.dense(out, 2, count)?;
    Some(row)
}

/// Adds to the picked rows behind parameter `n`.
fn scatter(l: &Launch<'_>, out: &mut Touches<'_>, n: usize, row: u64, rows: &[u64]) -> Option<()> {
    let bytes = row.checked_mul(l.element(n)?)?;
    out.picked(l.pointer(n)?, bytes, bytes, rows, Access::Update);
    Some(())
}
