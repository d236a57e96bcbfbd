//! Fused attention, in the structs of torch 2.15.0 and of 2.9.1. The memory-efficient kernels' are as both pass them for
//! `scaled_dot_product_attention` of 2 × 4 heads, 100 queries and keys of 64 floats and values of 48, causal, with dropout.

use super::*;

const FLASH: &str = "_ZN13pytorch_flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi64ELi128ELi64ELi4ELb0ELb0EN7cutlass6half_tE19Flash_kernel_traitsILi64ELi128ELi64ELi4ES3_EELb1ELb0ELb0ELb0ELb0ELb0ELb0ELb0EEEvNS_16Flash_fwd_paramsE";
const FLASH_CONVERT: &str = "_ZN13pytorch_flash27flash_bwd_convert_dq_kernelI23Flash_bwd_kernel_traitsILi64ELi64ELi128ELi8ELi2ELi4ELi4ELb1ELb0EN7cutlass6half_tE19Flash_kernel_traitsILi64ELi64ELi128ELi8ES3_EEEEvNS_16Flash_bwd_paramsEi";
const EFFICIENT: &str = "_Z39fmha_cutlassF_f32_aligned_64x64_rf_sm80N22PyTorchMemEffAttention15AttentionKernelIfN7cutlass4arch4Sm80ELb1ELi64ELi64ELi64ELb1ELb1EE6ParamsE";
const EFFICIENT_BACKWARD: &str = "_Z48fmha_cutlassB_f32_aligned_64x64_k64_dropout_sm80N22PyTorchMemEffAttention23AttentionBackwardKernelIN7cutlass4arch4Sm80EfLb1ELb1ELb0ELi64ELi64ELi64ELb0EE6ParamsE";

/// Queries, keys, values, output.
const Q: u64 = A;
const K: u64 = A + (16 << 20);
const V: u64 = A + (32 << 20);
const O: u64 = A + (48 << 20);
/// Bytes of all queries or keys, and of all values.
const WIDE: u64 = 2 * 4 * 100 * 64 * 4;
const NARROW: u64 = 2 * 4 * 100 * 48 * 4;

/// Batch 2, 128 queries and keys, 4 heads of 64 halves, Q, K and V interleaved per row of 3 × 256.
fn flash(size: usize) -> Params {
    let mut p = Params::new(size).u64s(0, &[A, A + 512, A + 1024]);
    p = p.u64s(24, &[128 * 768, 128 * 768, 128 * 768, 768, 768, 768, 64, 64, 64]).u32s(96, &[4, 4, 1]);
    p = p.u64s(112, &[B, 0, 128 * 256, 256, 64]).u64(160, C);
    p.u32s(176, &[2, 128, 128, 0, 64, 128, 128, 64])
}

#[test]
fn flash_attention_reads_heads_out_of_one_packed_tensor() {
    for (layout, size, causal_at) in [("0+472", 472, 441), ("0+464", 464, 433)] {
        let work = |p| {
            let packed = 255 * 1536 + 512;
            Case { name: FLASH, layout, params: p, grid: [1, 2, 4], block: [128, 1, 1] }.touches(&[
                (B, 2 * 128 * 512, true),
                (A, packed, false),
                (A + 512, packed, false),
                (A + 1024, packed, false),
                (C, 2 * 4 * 128 * 4, true),
            ])
        };
        let all = work(flash(size));
        assert_eq!(all.traffic, Bytes(4 * 2 * 128 * 512 + 4096), "the other two thirds of a row are not read");
        assert_eq!((all.flops, all.class), (4.0 * 8.0 * 128.0 * 128.0 * 64.0, Precision::Half));
        assert_eq!(work(flash(size).put(causal_at, [1])).flops, all.flops / 2.0, "{size} bytes");
    }
}

#[test]
fn the_backward_struct_follows_the_forward_one() {
    for (layout, size) in [("0+648,648+4", 648), ("0+640,640+4", 640)] {
        let less = 648 - size;
        let params = flash(size + 8).u64(480 - less, B).u64(504 - less, D);
        let params = params.u64(552 - less, 128 * 256).u64(576 - less, 256).u64(600 - less, 64);
        Case { name: FLASH_CONVERT, layout, params, grid: [1, 2, 4], block: [128, 1, 1] }
            .touches(&[(B, 2 * 128 * 512, true), (D, 4 * 2 * 128 * 256, false)]);
    }
}

#[test]
fn memory_efficient_attention_reads_and_writes_whole_heads() {
    for (layout, heads_at, heads) in [("0+280", 204, &[4, 1, 1][..]), ("0+264", 196, &[4, 1][..])] {
        let mut p = Params::new(280).u64s(0, &[Q, K, V]).u64(64, O).u64(80, B);
        p = p.u32s(96, &[64, 48, 100, 100, 0, 1, 64, 64, 48, 0, 192, 6400, 6400, 4800]);
        p = p.u64s(160, &[25_600, 25_600, 19_200]).u32(192, 2).u32s(heads_at, heads);
        let work = Case { name: EFFICIENT, layout, params: p, grid: [2, 4, 2], block: [32, 4, 1] }.touches(&[
            (O, NARROW, true),
            (Q, WIDE, false),
            (K, WIDE, false),
            (V, NARROW, false),
            (B, 2 * 4 * 128 * 4, true),
        ]);
        assert_eq!((work.flops, work.class), (2.0 * 8.0 * 100.0 * 100.0 * 64.0, Precision::Tf32));
    }
}

/// The backward struct from byte 168 on: torch 2.15.0, torch 2.9.1.
#[rustfmt::skip]
const NOW: &[u64] = &[
    1, 64, 64, 48, 0, 192, 0, 1, 7, 16, 0, 0, 0, 0, 48, 0x1900_0000_1900, 4800, 0, 19_200, 25_600, 25_600, 19_200, 0, 512, 128, 400, 100,
    2, 2 << 32, 19_200, 25_600, 25_600, 19_200, 0, 48, 64, 64, 48, 0,
];
#[rustfmt::skip]
const BEFORE: &[u64] = &[
    64, 64, 48, 0, 192, 0, 1, 7, 16, 0, 0, 0, 48, 0x1900_0000_1900, 4800, 0, 19_200, 25_600, 25_600, 19_200, 0, 512, 128, 400, 100,
    2 << 32 | 2, 19_200, 25_600, 25_600, 19_200, 0, 48, 64, 64, 48, 0,
];

#[test]
fn its_backward_pass_reads_them_again_and_writes_gradients() {
    let [grad_out, delta, dq, dk, dv, scratch] = std::array::from_fn(|n| B + ((n as u64) << 20));
    for (layout, words) in [("0+480", NOW), ("0+456", BEFORE)] {
        let mut p = Params::new(480).u64s(0, &[Q, K, V, 0, C, O, grad_out, delta]).u64s(80, &[dq, dk, dv, 0, scratch]);
        p = p.u32s(144, &[64, 48, 100, 100, 4, 1]).u64s(168, words);
        let case = Case { name: EFFICIENT_BACKWARD, layout, params: p, grid: [2, 4, 2], block: [32, 4, 1] };
        let work = case.touches(&[
            (Q, WIDE, false),
            (K, WIDE, false),
            (V, NARROW, false),
            (O, NARROW, false),
            (grad_out, NARROW, false),
            // 100 floats for each head, heads 128 apart, batches 512.
            (C, 2048 + 3 * 512 + 400, false),
            (delta, 2 * 4 * 100 * 4, false),
            (dq, WIDE, true),
            (dk, WIDE, true),
            (dv, NARROW, true),
            // For each head two tiles of 64 × 64 floats behind 16 bytes.
            (scratch, 2 * 4 * 2 * (64 * 64 * 4 + 16), true),
        ]);
        assert_eq!(work.flops, 5.0 * 8.0 * 100.0 * 100.0 * 64.0, "causal");
    }
}
