//! Synthetic launches of real kernels: parameter blocks built by hand, ranges worked out by hand.
//! Names and layouts are those of torch 2.15.0.

mod attention;
mod elementwise;
mod families;
mod lookups;

use proptest::prelude::*;

use super::*;

/// Device memory: some allocations, and what can be read back of them.
#[derive(Default)]
struct Memory {
    allocations: Vec<AddrRange>,
    content: Vec<(u64, Vec<u8>)>,
}

impl DeviceView for Memory {
    fn allocation(&self, addr: DevAddr) -> Option<AddrRange> {
        self.allocations.iter().find(|a| a.contains(addr)).copied()
    }
    fn read(&self, addr: DevAddr, out: &mut [u8]) -> bool {
        self.content.iter().any(|(start, bytes)| {
            let from = usize::try_from(addr.0.wrapping_sub(*start)).unwrap_or(usize::MAX);
            bytes.get(from..).and_then(|b| b.get(..out.len())).map(|b| out.copy_from_slice(b)).is_some()
        })
    }
}

/// One allocation of 64 GiB at 0x7000_0000_0000.
fn memory() -> Memory {
    Memory { allocations: vec![AddrRange::new(DevAddr(BASE), Bytes::gib(64))], content: vec![] }
}

const BASE: u64 = 0x7000_0000_0000;
const A: u64 = BASE + (1 << 30);
const B: u64 = BASE + (2 << 30);
const C: u64 = BASE + (3 << 30);
const D: u64 = BASE + (4 << 30);

/// A parameter buffer under construction.
#[derive(Clone)]
struct Params(Vec<u8>);

impl Params {
    fn new(size: usize) -> Self {
        Self(vec![0; size])
    }
    fn put<const N: usize>(mut self, at: usize, bytes: [u8; N]) -> Self {
        self.0[at..at + N].copy_from_slice(&bytes);
        self
    }
    fn u32(self, at: usize, value: u32) -> Self {
        self.put(at, value.to_le_bytes())
    }
    fn u64(self, at: usize, value: u64) -> Self {
        self.put(at, value.to_le_bytes())
    }
    fn u64s(self, at: usize, values: &[u64]) -> Self {
        values.iter().enumerate().fold(self, |p, (n, v)| p.u64(at + 8 * n, *v))
    }
    fn u32s(self, at: usize, values: &[u32]) -> Self {
        values.iter().enumerate().fold(self, |p, (n, v)| p.u32(at + 4 * n, *v))
    }
    /// An `OffsetCalculator` over 32-bit indices: extents, and per dimension the strides of each operand.
    fn calculator(self, at: usize, dims: &[(u32, &[u32])]) -> Self {
        let mut p = self.u32(at, u32::try_from(dims.len()).expect("few"));
        for (d, (extent, strides)) in dims.iter().enumerate() {
            p = p.u32(at + 4 + 12 * d, *extent);
            p = p.u32s(at + 304 + 4 * d * strides.len(), strides);
        }
        p
    }
}

/// `offset+size` pairs, as the `kernels` example prints them.
fn layout(text: &str) -> Vec<Param> {
    let number = |n: &str| n.parse().expect("a number");
    text.split(',')
        .map(|p| p.split_once('+').expect("a pair"))
        .map(|(o, s)| Param { offset: number(o), size: number(s) })
        .collect()
}

struct Case<'a> {
    name: &'a str,
    layout: &'a str,
    params: Params,
    grid: [u32; 3],
    block: [u32; 3],
}

impl Case<'_> {
    fn run(&self, truth: &mut Truth, memory: &Memory) -> Work {
        let layout = layout(self.layout);
        let call = KernelCall {
            name: self.name,
            layout: &layout,
            params: &self.params.0,
            grid: self.grid,
            block: self.block,
            shared: Bytes::ZERO,
        };
        truth.work(&call, memory)
    }

    /// Decodes exactly into these `(start, bytes, written)`.
    #[track_caller]
    fn touches(&self, expected: &[(u64, u64, bool)]) -> Work {
        let work = self.run(&mut Truth::new(1), &memory());
        let got: Vec<_> = work.touches.iter().map(|t| (t.range.start.0, t.range.len.0, t.access.writes())).collect();
        assert_eq!(work.source, Source::Exact, "{}: {got:x?}", name::Signature::of(self.name).text);
        assert_eq!(got, expected, "{}", name::Signature::of(self.name).text);
        work
    }
}

const MEAN: &str = "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_7MeanOpsIffffEEjfLi4ELi4EEEEEvT1_";

/// A mean over the last of two dimensions: 64 outputs of 4096 floats each, block 32 × 16.
fn mean(ctas_per_output: u32) -> Case<'static> {
    // Operation and identity take 8 bytes, padding before the tail 4: 1048 = 8 + 64 + 404 + 504 + 4 + 64.
    let config = 8;
    let mut p = Params::new(1048);
    p = p.u32s(config, &[4, 4096, 64, 32, 16, ctas_per_output, 1, 0, 0, 0, 1, 32, 16, 512, 1, 1]);
    p = p.calculator(config + 64, &[(4096, &[4])]);
    p = p.calculator(config + 64 + 404, &[(64, &[4, 16_384])]);
    p = p.u64s(1048 - 64, &[A, B, 0, 0, C, D, 0]).u32(1048 - 4, 1);
    Case { name: MEAN, layout: "0+1048", params: p, grid: [4, ctas_per_output, 1], block: [32, 16, 1] }
}

#[test]
fn a_reduction_reads_its_input_and_writes_its_outputs() {
    mean(1).touches(&[(A, 64 * 16_384, false), (B, 256, true)]);
}

#[test]
fn a_reduction_over_several_blocks_passes_partial_results() {
    mean(8).touches(&[(A, 64 * 16_384, false), (B, 256, true), (C, 4 * 4 * 8, true), (D, 16, true)]);
}

const FUSED_ADAM: &str = "_ZN2at6native51_GLOBAL__N__b7f847be_18_fused_adam_impl_cu_454205f325multi_tensor_apply_kernelINS1_32FusedOptimizerTensorListMetadataILi4EEENS1_20FusedAdamMathFunctorIfLi4ELNS0_9ADAM_MODEE0ELb0EEEJPKfdddddbS9_S9_EEEvT_T0_DpT1_";
const FUSED_ADAM_LAYOUT: &str =
    "0+25544,25544+1,25552+8,25560+8,25568+8,25576+8,25584+8,25592+8,25600+1,25608+8,25616+8";

/// Two tensors, of 100,000 and 10 floats; the launch works on the last chunk of the first and all of the second.
fn fused_adam() -> Case<'static> {
    let mut p = Params::new(25_624);
    for (depth, base) in [A, B, C, D].into_iter().enumerate() {
        p = p.u64s(8 * 252 * depth, &[base, base + (1 << 20)]);
    }
    p = p.u64s(8 * 252 * 4, &[100_000, 10]);
    p = p.u64s(8 * 252 * 5, &[D + (2 << 20), D + (3 << 20)]);
    let numbers = 8 * 252 * 6;
    p = p.put(numbers, [0, 0, 1, 0]);
    p = p.u32s((numbers + 2 * 2240).next_multiple_of(4), &[1, 0]);
    Case { name: FUSED_ADAM, layout: FUSED_ADAM_LAYOUT, params: p, grid: [2, 1, 1], block: [512, 1, 1] }
}

#[test]
fn a_fused_optimizer_walks_the_chunks_it_was_given() {
    let (first, len) = (65_536 * 4, (100_000 - 65_536) * 4);
    let second = 1 << 20;
    let work = fused_adam().touches(&[
        (A + first, len, true),
        (B + first, len, false),
        (C + first, len, true),
        (D + first, len, true),
        (D + (2 << 20), 4, false),
        (A + second, 40, true),
        (B + second, 40, false),
        (C + second, 40, true),
        (D + second, 40, true),
        (D + (3 << 20), 4, false),
    ]);
    let phases: Vec<u32> = work.touches.iter().map(|t| t.phase).collect();
    assert_eq!(phases, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1], "one tensor after the other");
}

#[test]
fn a_chunk_number_past_its_tensor_is_not_believed() {
    let mut case = fused_adam();
    let chunks = (8 * 252 * 6 + 2 * 2240usize).next_multiple_of(4);
    case.params = case.params.u32(chunks, 2);
    assert_eq!(case.run(&mut Truth::new(1), &memory()).source, Source::Guessed);
}

#[test]
fn softmax_touches_rows_and_leaves_out_the_mask_that_is_not_there() {
    let case = Case {
        name: "_ZN43_GLOBAL__N__f71e7945_10_SoftMax_cu_9f978f6320softmax_warp_forwardIfffLi10ELb0ELb0ELi32EEEvPT0_PKT_iiiPKbib",
        layout: "0+8,8+8,16+4,20+4,24+4,32+8,40+4,44+1",
        params: Params::new(48).u64s(0, &[A, B]).u32s(16, &[300, 1000, 1000]),
        grid: [75, 1, 1],
        block: [32, 4, 1],
    };
    case.touches(&[(A, 1_200_000, true), (B, 1_200_000, false)]);
}

#[test]
fn tensors_that_carry_their_shape_speak_for_themselves() {
    // Dropout over 1000 floats: in, out, mask of bools, collapsed to one dimension.
    let info = |p: Params, at: usize, ptr: u64| p.u64(at, ptr).u32(at + 8, 1000).u32(at + 108, 1).u32(at + 208, 1);
    let params = info(info(info(Params::new(688), 0, A), 216, B), 432, C).u32(648, 1000);
    let case = Case {
        name: "_ZN2at6native43_GLOBAL__N__1131530d_10_Dropout_cu_0e96ed3824fused_dropout_kernel_vecIffjLi1ELi4EbEEvNS_4cuda6detail10TensorInfoIKT_T1_EENS5_IS6_S8_EENS5_IT4_S8_EES8_T0_NS_15PhiloxCudaStateE",
        layout: "0+216,216+216,432+216,648+4,652+4,656+32",
        params,
        grid: [1, 1, 1],
        block: [256, 1, 1],
    };
    case.touches(&[(A, 4000, false), (B, 4000, true), (C, 1000, true)]);
}

#[test]
fn concatenation_places_every_input_in_the_output() {
    // Two matrices of 100 × 300 and 100 × 100 floats side by side.
    let mut p = Params::new(2768).u64(0, A);
    p = p.u64s(8, &[B, C]);
    let field = |f: usize| 8 + 1024 + 4 * 128 * f;
    p = p.u32s(field(0), &[0, 300]).u32s(field(1), &[300, 100]).u32s(field(2), &[30_000, 10_000]);
    p = p.u32s(2728, &[100, 400, 0, 0, 400, 1, 0, 0]).u32s(2760, &[1, 1]);
    let case = Case {
        name: "_ZN2at6native40_GLOBAL__N__f1f992fe_8_Shape_cu_49f7391c26CatArrayBatchedCopy_contigINS1_10OpaqueTypeILj4EEEjLi2ELi128ELi1EEEvPT_NS1_25CatArrInputTensorMetadataIS5_T0_XT2_EXT3_EEENS1_16TensorSizeStrideIS8_Lj4EEEiS8_",
        layout: "0+8,8+2720,2728+32,2760+4,2764+4",
        params: p,
        grid: [264, 2, 1],
        block: [512, 1, 1],
    };
    let span = |width: u64| 99 * 1600 + width * 4;
    case.touches(&[(A, span(300), true), (B, 120_000, false), (A + 1200, span(100), true), (C, 40_000, false)]);
}

#[test]
fn the_stand_in_libraries_kernels_say_what_they_touch() {
    use deepum_emu_abi::{kernels, params};
    let a = params::Operand::read(A, 2, &[(64, 1), (32, 128)]);
    let d = params::Operand::update(B, 2, &[(8, 1), (8, 8)]).behind(2);
    let packed = params::Params::<8>::new(5e9, params::Class::Half, &[a, d]).expect("two fit in eight");
    // SAFETY: repr(C) without padding, as the crate asserts: every byte is initialised.
    let bytes = unsafe { std::slice::from_raw_parts((&raw const packed).cast::<u8>(), size_of_val(&packed)) };
    let size = u32::try_from(bytes.len()).expect("small");
    let layout = [Param { offset: 0, size }];
    let call = KernelCall {
        name: kernels::GEMM.name,
        layout: &layout,
        params: bytes,
        grid: [1; 3],
        block: [1; 3],
        shared: Bytes::ZERO,
    };
    let mut memory = memory();
    memory.content.push((B, [C, D].iter().flat_map(|p| p.to_le_bytes()).collect()));
    let work = Truth::new(1).work(&call, &memory);
    let got: Vec<_> = work.touches.iter().map(|t| (t.range.start.0, t.range.len.0, t.access.writes())).collect();
    assert_eq!(got, [(A, 31 * 256 + 128, false), (B, 16, false), (C, 128, true), (D, 128, true)]);
    assert_eq!((work.flops, work.class, work.source), (5e9, Precision::Half, Source::Exact));
}

#[test]
fn an_unknown_kernel_touches_a_stated_share_of_what_its_threads_can() {
    let case = |name| Case {
        name,
        layout: "0+8,8+8,16+4",
        params: Params::new(24).u64s(0, &[A, 0x99]).u32(16, 3),
        grid: [10, 1, 1],
        block: [100, 1, 1],
    };
    let one = case("_Z7mysteryPfS_i").run(&mut Truth::new(1), &memory());
    assert_eq!((one.source, one.touches.len()), (Source::Guessed, 1));
    let len = one.touches[0].range.len.0;
    assert!((8000..=16_000).contains(&len), "{len} of 10 × 100 × 16");
    assert_eq!(case("_Z7mysteryPfS_i").run(&mut Truth::new(1), &memory()), one);
    // Triton: no C++ name, so the integer says how many elements.
    let triton = case("triton_poi_fused_0").run(&mut Truth::new(1), &memory());
    assert!((6..=12).contains(&triton.touches[0].range.len.0), "{:?}", triton.touches);
}

proptest! {
    /// Any bytes in any of these kernels' parameters: an answer inside the allocations, quickly, without a panic.
    #[test]
    fn arbitrary_parameters_are_survived(
        which in 0..6usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..200),
        grid in any::<[u16; 3]>(),
    ) {
        let mut case = match which {
            0 => elementwise::add(),
            1 => mean(8),
            2 => fused_adam(),
            3 => lookups::gather(1000),
            4 => Case { name: elementwise::ADD_STRIDED, layout: "0+4,8+648", params: Params::new(656).u32(0, 6).calculator(8, &[(2, &[4, 4, 4]), (3, &[8, 8, 8])]), grid: [1; 3], block: [1; 3] },
            _ => Case { name: elementwise::ADD_STRIDED_CASTING, layout: "0+4,8+648", params: Params::new(656).u32(0, 6).calculator(8, &[(2, &[4, 4, 4]), (3, &[8, 8, 8])]), grid: [1; 3], block: [1; 3] },
        };
        for (at, value) in changes {
            let at = at.index(case.params.0.len());
            case.params.0[at] = value;
        }
        case.grid = grid.map(u32::from);
        let memory = memory();
        let work = case.run(&mut Truth::new(1), &memory);
        for t in &work.touches {
            let whole = memory.allocation(t.range.start).expect("inside");
            prop_assert!(t.range.end() <= whole.end());
        }
    }
}
