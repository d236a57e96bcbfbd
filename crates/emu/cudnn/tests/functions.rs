//! The plain functions of the stand-in cuDNN: batch norm, convolutions, descriptors, versions.

#[path = "../../abi/fake/mod.rs"]
mod fake;

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use deepum_emu_abi::params::{READ, WRITE};
use fake::{Bench, Launch, bench, call, shape};

const LIBRARY: &str = "libdeepum_emu_cudnn.so";
const FLOAT: c_int = 0;
const HALF: c_int = 2;
const BF16: c_int = 9;
const RW: u32 = READ | WRITE;
type Object = *mut c_void;

const NULL: Object = null_mut();

fn at(address: usize) -> Object {
    std::ptr::without_provenance_mut(address)
}

/// The address of a scalar.
fn p(scalar: &f32) -> *const f32 {
    &raw const *scalar
}

/// An object by one of the functions that create it.
macro_rules! create {
    ($bench:expr, $name:ident) => {{
        let mut object = NULL;
        assert_eq!(call!($bench, $name: &raw mut object), 0);
        object
    }};
}

fn tensor(bench: &Bench, elem: c_int, dims: [c_int; 4], strides: [c_int; 4]) -> Object {
    let tensor = create!(bench, cudnnCreateTensorDescriptor);
    assert_eq!(call!(bench, cudnnSetTensorNdDescriptor: tensor, elem, 4, dims.as_ptr(), strides.as_ptr()), 0);
    tensor
}

fn accesses(launch: &Launch) -> Vec<(u64, u32)> {
    launch.operands.iter().map(|o| (o.ptr >> 12, o.access)).collect()
}

#[test]
fn batch_norm_touches_data_and_statistics_both_ways() {
    let bench = bench(LIBRARY);
    let h = create!(bench, cudnnCreate);
    let x = tensor(&bench, HALF, [4, 16, 8, 8], [1024, 64, 8, 1]);
    let channels = tensor(&bench, FLOAT, [1, 16, 1, 1], [16, 1, 1, 1]);
    let (one, zero) = (p(&1.0), p(&0.0));
    let (x_at, y_at, scale, bias) = (at(0x1000), at(0x2000), at(0x3000), at(0x4000));
    let (running_mean, running_var, mean, inv_var) = (at(0x5000), at(0x6000), at(0x7000), at(0x8000));
    let forward = |mode, fused| {
        call!(bench, cudnnBatchNormalizationForwardTrainingEx: h, mode, fused, one, zero, x, x_at, NULL, NULL, x, y_at,
            channels, scale, bias, 0.1_f64, running_mean, running_var, 1e-5_f64, mean, inv_var, NULL, NULL, 0_usize, NULL, 0_usize)
    };
    assert_eq!((forward(1, 1), bench.refused().as_str()), (3000, "cuDNN batch norm with fused operation 1"));
    assert_eq!(forward(3, 0), 2000, "no such mode");
    assert!(bench.launches().is_empty());
    assert_eq!(forward(1, 0), 0);
    let launch = bench.launch();
    assert_eq!((launch.name.as_str(), launch.header.class), ("deepum_emu_bn_fw_tr", 0));
    // 4 × 16 × 8 × 8 elements.
    assert_eq!(launch.header.flops, 8.0 * 4096.0);
    let got: Vec<_> = launch.operands.iter().map(shape).collect();
    let data = vec![(8, 1), (8, 8), (16, 64), (4, 1024)];
    assert_eq!(got[..2], [(0x1000, 2, data.clone(), READ), (0x2000, 2, data, WRITE)]);
    let statistic = |ptr, access| (ptr, 4, vec![(16, 1)], access);
    assert_eq!(
        got[2..],
        [
            statistic(0x3000, READ),
            statistic(0x4000, READ),
            statistic(0x5000, RW),
            statistic(0x6000, RW),
            statistic(0x7000, WRITE),
            statistic(0x8000, WRITE)
        ]
    );

    let (dx, dscale, dbias) = (at(0x9000), at(0xa000), at(0xb000));
    let rc = call!(bench, cudnnBatchNormalizationBackwardEx: h, 1, 0, one, zero, one, one, x, x_at, NULL, NULL, x, y_at,
        NULL, NULL, x, dx, channels, scale, NULL, dscale, dbias, 1e-5_f64, mean, inv_var, NULL, NULL, 0_usize, NULL, 0_usize);
    assert_eq!(rc, 0);
    let launch = bench.launch();
    assert_eq!((launch.name.as_str(), launch.header.flops), ("deepum_emu_bn_bw", 11.0 * 4096.0));
    let expected = [(1, READ), (2, READ), (9, WRITE), (3, READ), (10, RW), (11, RW), (7, READ), (8, READ)];
    assert_eq!(accesses(&launch), expected);

    let rc = call!(bench, cudnnBatchNormalizationForwardInference: h, 1, one, one, x, x_at, x, y_at, channels, scale, bias,
        running_mean, running_var, 1e-5_f64);
    assert_eq!(rc, 0);
    let launch = bench.launch();
    assert_eq!((launch.name.as_str(), launch.header.flops), ("deepum_emu_bn_fw_inf", 4.0 * 4096.0));
    assert_eq!(accesses(&launch), [(1, READ), (2, RW), (3, READ), (4, READ), (5, READ), (6, READ)]);
}

#[test]
fn every_size_asked_for_is_written() {
    let bench = bench(LIBRARY);
    let forward = |fused, size: *mut usize| call!(bench, cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize: NULL, 1, fused, NULL, NULL, NULL, NULL, NULL, size);
    let mut size = usize::MAX;
    assert_eq!((forward(0, &raw mut size), size), (0, 0));
    size = usize::MAX;
    let backward = call!(bench, cudnnGetBatchNormalizationBackwardExWorkspaceSize: NULL, 1, 0, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, &raw mut size);
    assert_eq!((backward, size), (0, 0));
    size = usize::MAX;
    let reserve =
        call!(bench, cudnnGetBatchNormalizationTrainingExReserveSpaceSize: NULL, 1, 0, NULL, NULL, &raw mut size);
    assert_eq!((reserve, size), (0, 0));
    size = usize::MAX;
    assert_eq!((forward(1, &raw mut size), size), (3000, usize::MAX), "fused activation");
    assert_eq!(forward(0, null_mut()), 2002);
}

/// 8 images of 6 × 32 × 32, 16 filters of 3 × 3 × 3 (two groups) with their channels last, 30 × 30 results.
struct Convolution {
    handle: Object,
    x: Object,
    y: Object,
    w: Object,
    bias: Object,
    convolution: Object,
}

impl Convolution {
    /// 8 · 16 · 30 · 30 results of 27 multiply-adds each.
    const FLOPS: f64 = 2.0 * 115_200.0 * 27.0;

    fn new(bench: &Bench, elem: c_int) -> Self {
        let made = Self {
            handle: create!(bench, cudnnCreate),
            x: tensor(bench, elem, [8, 6, 32, 32], [6144, 1024, 32, 1]),
            y: tensor(bench, elem, [8, 16, 30, 30], [14400, 900, 30, 1]),
            w: create!(bench, cudnnCreateFilterDescriptor),
            bias: tensor(bench, elem, [1, 16, 1, 1], [16, 1, 1, 1]),
            convolution: create!(bench, cudnnCreateConvolutionDescriptor),
        };
        let (w, dims) = (made.w, [16, 3, 3, 3].as_ptr());
        assert_eq!(call!(bench, cudnnSetFilterNdDescriptor: w, elem, 1, 4, dims), 0);
        let (pads, ones) = ([0, 0].as_ptr(), [1, 1].as_ptr());
        assert_eq!(call!(bench, cudnnSetConvolutionNdDescriptor: made.convolution, 2, pads, ones, ones, 1, 0), 0);
        made
    }

    fn forward(&self, bench: &Bench, algorithm: c_int, beta: f32) -> c_int {
        let Self { handle, x, y, w, convolution, .. } = *self;
        call!(bench, cudnnConvolutionForward: handle, p(&1.0), x, at(0x1000), w, at(0x2000), convolution, algorithm, NULL, 0_usize,
            p(&beta), y, at(0x3000))
    }
}

#[test]
fn a_plain_convolution_takes_the_algorithm_it_was_offered() {
    let bench = bench(LIBRARY);
    bench.capability(80);
    let c = Convolution::new(&bench, FLOAT);
    let (mut count, mut result) = (-1, [0xff_u8; 48]);
    let rc = call!(bench, cudnnGetConvolutionForwardAlgorithm_v7: c.handle, c.x, c.w, c.convolution, c.y, 5, &raw mut count,
        &raw mut result);
    assert_eq!((rc, count), (0, 1));
    let algorithm = c_int::from_le_bytes(result[..4].try_into().expect("four bytes"));
    assert_eq!(result[16..24], [0; 8], "workspace");
    assert_eq!(c.forward(&bench, algorithm, 0.0), 0);
    let launch = bench.launch();
    assert_eq!((launch.header.class, launch.header.flops), (2, Convolution::FLOPS));
    assert_eq!(shape(&launch.operands[1]), (0x2000, 4, vec![(3, 1), (3, 3), (3, 9), (16, 27)], READ));
    assert!(!launch.through_ex && launch.stream == 0 && launch.grid[0] == 8);
}

#[test]
fn all_directions_have_the_arithmetic_of_the_forward_pass() {
    let bench = bench(LIBRARY);
    let c = Convolution::new(&bench, FLOAT);
    let (one, zero, x, w, y) = (p(&1.0), p(&0.0), at(0x1000), at(0x2000), at(0x3000));
    assert_eq!(c.forward(&bench, 1, 0.5), 0);
    let forward = bench.launch();
    assert_eq!(accesses(&forward), [(1, READ), (2, READ), (3, RW)]);
    let rc = call!(bench, cudnnConvolutionBackwardData: c.handle, one, c.w, w, c.y, y, c.convolution, 1, NULL, 0_usize, zero, c.x, x);
    assert_eq!(rc, 0);
    let data = bench.launch();
    assert_eq!(accesses(&data), [(2, READ), (3, READ), (1, WRITE)]);
    let rc = call!(bench, cudnnConvolutionBackwardFilter: c.handle, one, c.x, x, c.y, y, c.convolution, 1, NULL, 0_usize, zero, c.w, w);
    assert_eq!(rc, 0);
    let filter = bench.launch();
    assert_eq!(accesses(&filter), [(1, READ), (3, READ), (2, WRITE)]);
    let fused = |alpha2| {
        let rc = call!(bench, cudnnConvolutionBiasActivationForward: c.handle, one, c.x, x, c.w, w, c.convolution, 1, NULL, 0_usize,
            alpha2, c.y, at(0x4000), c.bias, at(0x5000), NULL, c.y, y);
        assert_eq!(rc, 0);
        bench.launch()
    };
    assert_eq!(accesses(&fused(one)), [(1, READ), (2, READ), (4, READ), (5, READ), (3, WRITE)]);
    assert_eq!(accesses(&fused(zero)), [(1, READ), (2, READ), (5, READ), (3, WRITE)], "nothing is added");
    for (launch, name) in [(forward, "fprop"), (data, "dgrad"), (filter, "wgrad"), (fused(one), "fprop")] {
        let name = format!("deepum_emu_conv_{name}");
        assert_eq!((launch.name, launch.header.flops), (name, Convolution::FLOPS));
    }
}

#[test]
fn tensor_cores_work_where_type_math_type_and_device_allow() {
    let bench = bench(LIBRARY);
    // By math type: default, tensor op, tensor op with conversion, FMA.
    let classes = |capability, elem| {
        bench.capability(capability);
        let c = Convolution::new(&bench, elem);
        bench.capability(80);
        [0, 1, 2, 3].map(|math| {
            assert_eq!(call!(bench, cudnnSetConvolutionMathType: c.convolution, math), 0);
            assert_eq!(c.forward(&bench, 1, 0.0), 0);
            bench.launch().header.class
        })
    };
    assert_eq!([classes(80, FLOAT), classes(80, HALF), classes(80, BF16)], [[2, 2, 2, 0], [3, 3, 3, 0], [3, 3, 3, 0]]);
    assert_eq!([classes(70, FLOAT), classes(70, HALF), classes(70, BF16)], [[0, 0, 0, 0], [0, 3, 3, 0], [0, 0, 0, 0]]);
}

#[test]
fn bad_descriptions_are_refused() {
    let bench = bench(LIBRARY);
    let c = Convolution::new(&bench, FLOAT);
    let (ones, pads, dims) = ([1, 1, 1].as_ptr(), [-1, 0].as_ptr(), [16, 3, 3, 3].as_ptr());
    assert_eq!(call!(bench, cudnnSetConvolutionNdDescriptor: c.convolution, 2, pads, ones, ones, 1, 0), 2000);
    let refused = call!(bench, cudnnSetFilterNdDescriptor: c.w, FLOAT, 2, 4, dims);
    assert_eq!((refused, bench.refused().as_str()), (3000, "cuDNN tensor format 2"));
    let refused = call!(bench, cudnnSetFilterNdDescriptor: c.w, 77, 0, 4, dims);
    assert_eq!((refused, bench.refused().as_str()), (3003, "cuDNN with data type 77"));
    // Three spatial dimensions, and an image of two.
    assert_eq!(call!(bench, cudnnSetConvolutionNdDescriptor: c.convolution, 3, ones, ones, ones, 1, 0), 0);
    assert_eq!(c.forward(&bench, 1, 0.0), 2000);
    let mut size = 1_usize;
    let other =
        call!(bench, cudnnGetConvolutionForwardWorkspaceSize: c.handle, c.x, c.w, c.convolution, c.y, 4, &raw mut size);
    assert_eq!((other, size), (3000, 1), "an algorithm that was not offered");
    assert!(bench.launches().is_empty());
}

#[test]
fn descriptions_can_be_read_back() {
    let bench = bench(LIBRARY);
    let x = tensor(&bench, BF16, [2, 3, 4, 5], [60, 20, 5, 1]);
    let (mut elem, mut n, mut format, mut dims, mut strides) = (-1, -1, -1, [-1; 4], [-1; 4]);
    let rc = call!(bench, cudnnGetTensorNdDescriptor: x, 3, &raw mut elem, &raw mut n, dims.as_mut_ptr(), strides.as_mut_ptr());
    assert_eq!((rc, elem, n, dims, strides), (0, 9, 4, [2, 3, 4, -1], [60, 20, 5, -1]), "room for three");
    let w = Convolution::new(&bench, FLOAT).w;
    let rc =
        call!(bench, cudnnGetFilterNdDescriptor: w, 3, &raw mut elem, &raw mut format, &raw mut n, dims.as_mut_ptr());
    assert_eq!((rc, elem, format, n, dims), (0, 0, 1, 4, [16, 3, 3, -1]), "room for three");
}

#[test]
fn versions_and_refusals() {
    let bench = bench(LIBRARY);
    // SAFETY: cudnnGetVersion's signature.
    let version = unsafe { bench.library.function::<extern "C" fn() -> usize>("cudnnGetVersion") }();
    let part = |which| {
        let mut value: c_int = -1;
        assert_eq!(call!(bench, cudnnGetProperty: which, &raw mut value), 0);
        usize::try_from(value).expect("not negative")
    };
    assert_eq!(version, part(0) * 10_000 + part(1) * 100 + part(2));
    assert_eq!(call!(bench, cudnnGetProperty: 3, NULL), 2000);
    assert_eq!(
        (call!(bench, cudnnCreateCTCLossDescriptor:), bench.refused().as_str()),
        (3000, "cudnnCreateCTCLossDescriptor")
    );
}
