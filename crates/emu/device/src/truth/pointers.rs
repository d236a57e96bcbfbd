//! Kernels with plain pointers and sizes: softmax, norms, losses, pooling, and the like.
//!
//! The signature gives element sizes and which pointers are `const`; what is written here, per kernel, is how many elements lie
//! behind each pointer. Sources: the kernels' files in `aten/src/ATen/native/cuda` (named beside each group).
//! Where a count is the number of rows and a thread block takes a row, the grid gives it.

use super::args::Launch;
use super::offsets::Shaped;
use super::rows::mix;
use super::touches::{Access, Touches};

type Decode = fn(&Launch<'_>, &mut Touches<'_>) -> Option<()>;

/// The decoder of `family` with `params` parameters.
pub(super) fn decoder(family: &str, params: usize) -> Option<Decode> {
    TABLE.iter().find(|(name, count, _)| *name == family && *count == params).map(|&(_, _, decode)| decode)
}

/// Touches `count` elements behind each of the pointer parameters `of`.
fn each(l: &Launch<'_>, out: &mut Touches<'_>, of: &[usize], count: u64) -> Option<()> {
    of.iter().try_for_each(|&n| l.dense(out, n, count))
}

/// Family, number of parameters, and the counts.
const TABLE: &[(&str, usize, Decode)] = &[
    // SoftMax.cu, PersistentSoftmax.cuh: result, input, then sizes.
    ("softmax_warp_forward", 8, |l, o| {
        let (rows, stride, len) = (l.count(2)?, l.count(3)?, l.count(4)?);
        [0, 1].iter().try_for_each(|&n| rows_of(l, o, n, rows, stride, len))?;
        mask(l, o, 5, rows, stride, len, l.count(6))
    }),
    ("softmax_warp_backward", 7, |l, o| {
        let (rows, stride, len) = (l.count(3)?, l.count(4)?, l.count(5)?);
        [0, 1, 2].iter().try_for_each(|&n| rows_of(l, o, n, rows, stride, len))?;
        mask(l, o, 6, rows, stride, len, None)
    }),
    ("cunn_SoftMaxForward", 3, row_per_block),
    ("cunn_SoftMaxForwardSmem", 3, row_per_block),
    ("cunn_SoftMaxForwardGmem", 3, row_per_block),
    ("cunn_SoftMaxForwardReg", 3, row_per_block),
    ("cunn_SoftMaxBackward", 4, row_per_block),
    ("cunn_SoftMaxBackwardSmem", 4, row_per_block),
    ("cunn_SpatialSoftMaxForward", 5, |l, o| each(l, o, &[0, 1], l.product(&[2, 3, 4])?)),
    ("cunn_SpatialSoftMaxBackward", 6, |l, o| each(l, o, &[0, 1, 2], l.product(&[3, 4, 5])?)),
    // layer_norm_kernel.cu. A block takes a row of N elements; mean and rstd have one element a row.
    ("vectorized_layer_norm_kernel", 8, |l, o| {
        let (n, rows) = (l.count(0)?, u64::from(l.call.grid[0]));
        each(l, o, &[2, 7], n.checked_mul(rows)?)?;
        each(l, o, &[3, 4], n)?;
        each(l, o, &[5, 6], rows)
    }),
    ("RowwiseMomentsCUDAKernel", 5, |l, o| moments(l, o, l.count(0)?, 2)),
    ("RowwiseMomentsCUDAKernel", 6, |l, o| moments(l, o, l.count(1)?, 3)),
    ("LayerNormForwardCUDAKernel", 7, |l, o| layer_norm_forward(l, o, l.count(0)?, 1)),
    ("LayerNormForwardCUDAKernel", 8, |l, o| layer_norm_forward(l, o, l.count(1)?, 2)),
    ("layer_norm_grad_input_kernel", 7, layer_norm_grad_input),
    ("layer_norm_grad_input_kernel_vectorized", 7, layer_norm_grad_input),
    ("GammaBetaBackwardCUDAKernelTemplate", 8, gamma_beta),
    ("GammaBetaBackwardSimpleCUDAKernel", 8, gamma_beta),
    // NLLLoss.cu, NLLLoss2d.cu: one element of each row is picked by its target.
    ("nll_loss_forward_reduce_cuda_kernel_2d", 10, |l, o| {
        let rows = l.count(6)?;
        target(l, o, 2, 3, rows, l.count(8)?, Access::Read)?;
        each(l, o, &[0, 1], 1)
    }),
    ("nll_loss_forward_reduce_cuda_kernel_1d", 8, |l, o| {
        each(l, o, &[0, 1], 1)?;
        target(l, o, 2, 3, 1, l.count(6)?, Access::Read)
    }),
    ("nll_loss_backward_reduce_cuda_kernel_2d", 10, |l, o| {
        let rows = l.count(6)?;
        target(l, o, 0, 2, rows, l.count(8)?, Access::Write)?;
        each(l, o, &[1, 4], 1)
    }),
    ("nll_loss_backward_reduce_cuda_kernel_1d", 8, |l, o| {
        each(l, o, &[1, 2], 1)?;
        target(l, o, 0, 3, 1, l.count(6)?, Access::Write)
    }),
    // DilatedMaxPool2d.cu, AveragePool2d.cu.
    ("max_pool_forward_nchw", 17, |l, o| {
        let outputs = l.count(0)?;
        each(l, o, &[1], per(outputs, l.product(&[5, 6])?, l.product(&[3, 4])?)?)?;
        each(l, o, &[15, 16], outputs)
    }),
    ("max_pool_backward_nchw", 17, |l, o| {
        each(l, o, &[0, 1], l.product(&[2, 3, 6, 7])?)?;
        each(l, o, &[16], l.product(&[2, 3, 4, 5])?)
    }),
    ("max_pool_forward_nhwc", 23, |l, o| {
        each(l, o, &[0], l.product(&[1, 2, 3, 4])?)?;
        each(l, o, &[21, 22], l.product(&[1, 2, 5, 6])?)
    }),
    ("max_pool_backward_nhwc", 22, |l, o| {
        each(l, o, &[0, 1], l.product(&[2, 3, 6, 7])?)?;
        each(l, o, &[21], l.product(&[2, 3, 4, 5])?)
    }),
    ("avg_pool2d_out_cuda_frame", 17, |l, o| {
        let outputs = l.count(0)?;
        each(l, o, &[1], per(outputs, l.product(&[5, 6])?, l.product(&[3, 4])?)?)?;
        each(l, o, &[13], outputs)
    }),
    ("avg_pool2d_backward_nonoverlap_frame", 13, avg_pool_backward::<9>),
    // 17 parameters up to torch 2.9.
    ("avg_pool2d_backward_out_cuda_frame", 17, avg_pool_backward::<13>),
    ("avg_pool2d_backward_out_cuda_frame", 18, avg_pool_backward::<13>),
    // im2col.cuh: columns have a row per filter element.
    ("im2col_kernel", 15, |l, o| {
        let positions = l.product(&[12, 13])?;
        each(l, o, &[1], per(l.count(0)?, positions, l.product(&[2, 3])?)?)?;
        each(l, o, &[14], l.product(&[0, 4, 5])?)
    }),
    ("col2im_kernel", 15, |l, o| {
        let pixels = l.count(0)?;
        let channels = per(pixels, l.product(&[2, 3])?, 1)?;
        each(l, o, &[1], channels.checked_mul(l.product(&[4, 5, 12, 13])?)?)?;
        each(l, o, &[14], pixels)
    }),
    // UpSampleNearest2d.cu, UpSampleBilinear2d.cu.
    ("upsample_nearest2d_out_frame", 9, |l, o| {
        each(l, o, &[0], l.product(&[1, 2, 3])?)?;
        each(l, o, &[6], l.product(&[1, 4, 5])?)
    }),
    ("upsample_nearest2d_backward_out_frame", 10, |l, o| {
        each(l, o, &[0], l.product(&[1, 2, 3, 4])?)?;
        each(l, o, &[7], l.product(&[1, 2, 5, 6])?)
    }),
    ("upsample_bilinear2d_backward_out_frame", 10, |l, o| {
        let inputs = l.count(0)?;
        l.dense_as(o, 8, inputs, Access::Update)?;
        each(l, o, &[9], per(inputs, l.product(&[1, 2])?, l.product(&[3, 4])?)?)
    }),
    // Normalization.cuh, channels last: tensors of rows × channels, statistics of channels.
    ("batch_norm_transform_input_channels_last_kernel", 10, |l, o| {
        let (rows, channels) = (l.count(7)?, l.count(8)?);
        each(l, o, &[0, 1, 6], rows.checked_mul(channels)?)?;
        each(l, o, &[2, 3, 4, 5], channels)
    }),
    ("batch_norm_collect_statistics_channels_last_kernel", 8, |l, o| {
        let (rows, channels) = (l.count(5)?, l.count(6)?);
        each(l, o, &[0], rows.checked_mul(channels)?)?;
        each(l, o, &[1, 2], channels)?;
        staging(l, o, 3, 4, channels)
    }),
    ("batch_norm_backward_reduce_channels_last_kernel", 12, |l, o| {
        let (rows, channels) = (l.count(10)?, l.count(11)?);
        each(l, o, &[0, 1], rows.checked_mul(channels)?)?;
        each(l, o, &[2, 3, 4, 5, 6, 7], channels)?;
        staging(l, o, 8, 9, channels)
    }),
    ("batch_norm_backward_elemt_channels_last_kernel", 11, |l, o| {
        let (rows, channels) = (l.count(9)?, l.count(10)?);
        each(l, o, &[0, 1, 7], rows.checked_mul(channels)?)?;
        each(l, o, &[2, 3, 4, 5, 6], channels)
    }),
    // AmpKernels.cu, ForeachReduceOp.cu.
    ("amp_update_scale_cuda_kernel", 6, |l, o| {
        l.dense_as(o, 0, 1, Access::Update)?;
        l.dense_as(o, 1, 1, Access::Update)?;
        l.dense(o, 2, 1)
    }),
    // A block per tensor adds up its partial results. Up to torch 2.9 those of a tensor are a fixed number of chunks apart ...
    ("lpnorm_cleanup", 3, |l, o| {
        l.dense(o, 0, l.count(2)?.checked_mul(u64::from(l.call.grid[0]))?)?;
        norm_of_each(l, o)
    }),
    // ... and since then an array in device memory says where they begin.
    ("lpnorm_cleanup", 4, |l, o| {
        let tensors = u64::from(l.call.grid[0]);
        let places = l.pointer(2)?.checked_add(l.count(3)?.checked_mul(8)?)?;
        o.dense(places, tensors.checked_add(1)?.checked_mul(8)?, Access::Read);
        l.dense(o, 0, tensors)?;
        norm_of_each(l, o)
    }),
    // TensorFactories.cu, Copy.cu.
    ("tril_indices_kernel", 6, |l, o| each(l, o, &[0], l.count(5)?.checked_mul(2)?)),
    ("triu_indices_kernel", 6, |l, o| each(l, o, &[0], l.count(5)?.checked_mul(2)?)),
    ("glu_backward_kernel", 7, |l, o| {
        // The result has two halves of the given size, as far apart as the last parameters say (in elements).
        let (n, elem) = (l.count(0)?, l.element(1)?);
        let halves = [(n, elem.cast_signed()), (2, l.param(5)?.i64(0)?.checked_mul(elem.cast_signed())?)];
        o.strided(l.pointer(1)?, elem, &halves, Access::Write);
        o.strided(
            l.pointer(2)?,
            elem,
            &[halves[0], (2, l.param(6)?.i64(0)?.checked_mul(elem.cast_signed())?)],
            Access::Read,
        );
        l.dense(o, 3, n)
    }),
    // ScanKernels: rows × row length.
    ("tensor_kernel_scan_innermost_dim", 7, |l, o| each(l, o, &[0, 1], l.product(&[2, 3])?)),
    ("tensor_kernel_scan_outer_dim", 7, |l, o| each(l, o, &[0, 1], l.product(&[2, 3, 4])?)),
    ("tensor_kernel_scan_innermost_dim_with_indices", 9, |l, o| each(l, o, &[0, 1, 2], l.product(&[3, 4])?)),
    ("tensor_kernel_scan_outer_dim_with_indices", 8, |l, o| each(l, o, &[0, 1, 2], l.product(&[3, 4, 5])?)),
];

/// Writes a number behind each address of parameter 1, one per thread block.
fn norm_of_each(l: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let results = l.param(1)?;
    let elem = l.signature.args.iter().rev().find_map(|t| super::name::element_size(t))?;
    for t in 0..(l.call.grid[0] as usize).min(results.len() / 8) {
        out.dense(results.u64(8 * t)?, u64::from(elem), Access::Write);
    }
    Some(())
}

/// Gradients: of the output behind parameter 1, of the input behind parameter `INPUT`.
fn avg_pool_backward<const INPUT: usize>(l: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let inputs = l.count(0)?;
    each(l, out, &[1], per(inputs, l.product(&[3, 4])?, l.product(&[5, 6])?)?)?;
    each(l, out, &[INPUT], inputs)
}

/// `n / from * to`, where `n` counts in groups of `from`.
fn per(n: u64, from: u64, to: u64) -> Option<u64> {
    n.checked_div(from)?.checked_mul(to)
}

/// `rows` rows of `len` elements behind pointer `n`, `stride` elements apart.
fn rows_of(l: &Launch<'_>, out: &mut Touches<'_>, n: usize, rows: u64, stride: u64, len: u64) -> Option<()> {
    let elem = l.element(n)?;
    let step = stride.checked_mul(elem)?.cast_signed();
    out.strided(l.pointer(n)?, elem, &[(len, elem.cast_signed()), (rows, step)], l.access(n)?);
    Some(())
}

/// A softmax's mask: an element for each input, or, where heads share it, a row per `chunk` rows.
fn mask(
    l: &Launch<'_>,
    out: &mut Touches<'_>,
    n: usize,
    rows: u64,
    stride: u64,
    len: u64,
    chunk: Option<u64>,
) -> Option<()> {
    match chunk.filter(|&c| c > 0) {
        Some(chunk) => rows_of(l, out, n, rows.div_ceil(chunk), stride, len),
        None => rows_of(l, out, n, rows, stride, len),
    }
}

/// Softmax of long rows: a block takes a row; the last parameter is its length, all others are tensors of rows.
fn row_per_block(l: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let last = l.call.layout.len() - 1;
    let count = l.count(last)?.checked_mul(u64::from(l.call.grid[0]))?;
    (0..last).try_for_each(|n| l.dense(out, n, count))
}

fn moments(l: &Launch<'_>, out: &mut Touches<'_>, len: u64, input: usize) -> Option<()> {
    let rows = u64::from(l.call.grid[0]);
    each(l, out, &[input], len.checked_mul(rows)?)?;
    each(l, out, &[input + 1, input + 2], rows)
}

fn layer_norm_forward(l: &Launch<'_>, out: &mut Touches<'_>, len: u64, input: usize) -> Option<()> {
    let rows = u64::from(l.call.grid[0]);
    each(l, out, &[input, input + 5], len.checked_mul(rows)?)?;
    each(l, out, &[input + 1, input + 2], rows)?;
    each(l, out, &[input + 3, input + 4], len)
}

fn layer_norm_grad_input(l: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let (len, rows) = (l.count(6)?, u64::from(l.call.grid[0]));
    each(l, out, &[0, 1, 5], len.checked_mul(rows)?)?;
    each(l, out, &[2, 3], rows)?;
    each(l, out, &[4], len)
}

/// Gradients of scale and shift, M × N; with the grid split over rows, a partial result for each part.
fn gamma_beta(l: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let (rows, len) = (l.count(0)?, l.count(1)?);
    each(l, out, &[2, 3], rows.checked_mul(len)?)?;
    each(l, out, &[4, 5], rows)?;
    each(l, out, &[6, 7], len.checked_mul(u64::from(l.call.grid[1]))?)
}

/// The buffers through which blocks along y combine their sums, if there are several.
fn staging(l: &Launch<'_>, out: &mut Touches<'_>, buffer: usize, semaphores: usize, channels: u64) -> Option<()> {
    let (x, y) = (u64::from(l.call.grid[0]), u64::from(l.call.grid[1]));
    if y > 1 {
        // Two sums per channel and block, as floats.
        out.dense(l.pointer(buffer)?, channels.checked_mul(y)?.checked_mul(8)?, Access::Update);
        out.dense(l.pointer(semaphores)?, 4 * x, Access::Update);
    }
    Some(())
}

/// One element of each of `rows` rows of `len` elements behind pointer `n`: the column is data; it is drawn evenly.
fn target(
    l: &Launch<'_>,
    out: &mut Touches<'_>,
    n: usize,
    targets: usize,
    rows: u64,
    len: u64,
    access: Access,
) -> Option<()> {
    let elem = l.element(n)?;
    l.dense(out, targets, rows)?;
    if len == 0 {
        return Some(());
    }
    let seed = mix(l.pointer(targets)?);
    let picks: Vec<u64> =
        (0..rows.min(1 << 20)).map(|r| r.saturating_mul(len).saturating_add(mix(seed ^ r) % len)).collect();
    out.picked(l.pointer(n)?, elem, elem, &picks, access);
    Some(())
}

/// Any kernel whose tensors all carry their shape: each is touched whole.
pub(super) fn shaped(l: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    for n in 0..l.call.layout.len() {
        if let Some(tensor) = Shaped::read(l, n) {
            tensor.touch_all(out);
        } else if l.access(n).is_some() {
            // Flags and counters beside the tensors: one element.
            l.dense(out, n, 1)?;
        }
    }
    Some(())
}
