//! The stand-in cuBLASLt: descriptors, the heuristic, and what a product with an epilogue touches.

#[path = "../../abi/fake/mod.rs"]
mod fake;

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use deepum_emu_abi::params::{READ, WRITE};
use fake::{Bench, Launch, bench, call, shape};

const LIBRARY: &str = "libdeepum_emu_cublas.so";
const F32: c_int = 0;
const F16: c_int = 2;
const FP8: c_int = 28;
type Ptr = *const c_void;
type Object = *mut c_void;

fn at(address: usize) -> Ptr {
    std::ptr::without_provenance(address)
}

/// A product under construction, by C calls.
struct Product<'a> {
    bench: &'a Bench,
    handle: Object,
    operation: Object,
    layouts: [Object; 4],
}

impl<'a> Product<'a> {
    /// `m × k` times `k × n`, column-major and packed, of one type.
    fn new(bench: &'a Bench, elem: c_int, m: u64, n: u64, k: u64) -> Self {
        let [mut handle, mut operation]: [Object; 2] = [null_mut(); 2];
        assert_eq!(call!(bench, cublasLtCreate: &raw mut handle), 0);
        assert_eq!(call!(bench, cublasLtMatmulDescCreate: &raw mut operation, 68, F32), 0);
        let layout = |rows: u64, cols: u64| {
            let (mut layout, ld): (Object, i64) = (null_mut(), rows.cast_signed());
            assert_eq!(call!(bench, cublasLtMatrixLayoutCreate: &raw mut layout, elem, rows, cols, ld), 0);
            layout
        };
        Self { bench, handle, operation, layouts: [layout(m, k), layout(k, n), layout(m, n), layout(m, n)] }
    }

    fn set<T>(&self, attribute: c_int, value: T) -> c_int {
        let value: *const T = &raw const value;
        call!(self.bench, cublasLtMatmulDescSetAttribute: self.operation, attribute, value, size_of::<T>())
    }

    fn set_layout<T>(&self, which: usize, attribute: c_int, value: T) -> c_int {
        let value: *const T = &raw const value;
        call!(self.bench, cublasLtMatrixLayoutSetAttribute: self.layouts[which], attribute, value, size_of::<T>())
    }

    /// Status and number of algorithms, workspace of the first.
    fn heuristic(&self) -> (c_int, c_int, u64) {
        let mut preference: Object = null_mut();
        assert_eq!(call!(self.bench, cublasLtMatmulPreferenceCreate: &raw mut preference), 0);
        // A result is 96 bytes.
        let (mut result, mut count) = ([u64::MAX; 12], -1);
        let [a, b, c, d] = self.layouts;
        let rc = call!(self.bench, cublasLtMatmulAlgoGetHeuristic: self.handle, self.operation, a, b, c, d, preference, 1,
            &raw mut result, &raw mut count);
        (rc, count, result[8])
    }

    fn run(&self, alpha: Ptr, beta: Ptr, algorithm: *const [u64; 8]) -> c_int {
        let [a, b, c, d] = self.layouts;
        let stream = 0x77_usize;
        call!(self.bench, cublasLtMatmul: self.handle, self.operation, alpha, at(0x1000), a, at(0x2000), b, beta, at(0x3000), c,
            at(0x4000), d, algorithm, null::<c_void>(), 0_usize, stream)
    }

    /// The launch of a product with host scalars.
    fn launch(&self, alpha: f32, beta: f32) -> Launch {
        assert_eq!(self.run((&raw const alpha).cast(), (&raw const beta).cast(), null()), 0);
        self.bench.launch()
    }

    fn status(&self) -> c_int {
        let one = 1.0_f32;
        self.run((&raw const one).cast(), (&raw const one).cast(), null())
    }
}

#[test]
fn a_linear_layer_with_bias_goes_through_the_other_launch_door() {
    let bench = bench(LIBRARY);
    let product = Product::new(&bench, F16, 96, 64, 32);
    assert_eq!(product.set(7, 4_u32), 0, "epilogue: bias");
    assert_eq!(product.set(8, 0x5000_u64), 0, "bias pointer");
    assert_eq!(product.heuristic(), (0, 1, 0));
    let launch = product.launch(1.0, 0.0);
    assert!(launch.through_ex, "cuBLASLt launches with cuLaunchKernelEx");
    assert_eq!((launch.name.as_str(), launch.grid, launch.stream), ("deepum_emu_gemm", [1, 1, 1], 0x77));
    assert_eq!((launch.header.class, launch.header.flops), (3, 2.0 * 96.0 * 64.0 * 32.0));
    assert_eq!(
        launch.operands.iter().map(shape).collect::<Vec<_>>(),
        [
            (0x1000, 2, vec![(96, 1), (32, 96)], READ),
            (0x2000, 2, vec![(32, 1), (64, 32)], READ),
            (0x4000, 2, vec![(96, 1), (64, 96)], WRITE),
            (0x5000, 2, vec![(96, 1)], READ),
        ]
    );
}

#[test]
fn auxiliary_outputs_and_bias_gradients_are_counted() {
    let bench = bench(LIBRARY);
    let product = Product::new(&bench, F16, 96, 64, 32);
    // GELU with bias and auxiliary output of its input.
    assert_eq!((product.set(7, 164_u32), product.set(8, 0x5000_u64)), (0, 0));
    assert_eq!((product.set(11, 0x6000_u64), product.set(12, 96_i64)), (0, 0));
    let forward = product.launch(1.0, 1.0);
    let shapes: Vec<_> = forward.operands.iter().map(shape).collect();
    assert_eq!(shapes[2], (0x3000, 2, vec![(96, 1), (64, 96)], READ), "beta is not zero: C is read");
    assert_eq!(shapes[4..], [(0x5000, 2, vec![(96, 1)], READ), (0x6000, 2, vec![(96, 1), (64, 96)], WRITE)]);
    // Its backward: auxiliary read, bias gradient written.
    assert_eq!(product.set(7, 208_u32), 0);
    let backward = product.launch(1.0, 0.0);
    let shapes: Vec<_> = backward.operands.iter().map(shape).collect();
    assert_eq!(shapes[3..], [(0x5000, 2, vec![(96, 1)], WRITE), (0x6000, 2, vec![(96, 1), (64, 96)], READ)]);
    // ReLU keeps one bit an element.
    assert_eq!((product.set(7, 130_u32), product.set(12, 128_i64)), (0, 0));
    let mask = product.launch(1.0, 0.0);
    assert_eq!(shape(&mask.operands[3]), (0x6000, 1, vec![(12, 1), (64, 16)], WRITE));
    // Bias gradient over columns.
    assert_eq!(product.set(7, 512_u32), 0);
    assert_eq!(shape(&product.launch(1.0, 0.0).operands[3]), (0x5000, 2, vec![(64, 1)], WRITE));
}

#[test]
fn in_place_accumulation_and_batches() {
    let bench = bench(LIBRARY);
    let product = Product::new(&bench, F32, 16, 8, 4);
    for (i, stride) in [64_i64, 32, 128, 128].into_iter().enumerate() {
        assert_eq!((product.set_layout(i, 5, 3_i32), product.set_layout(i, 6, stride)), (0, 0));
    }
    assert_eq!(product.set(3, 7_i32), 7, "no such operation");
    let launch = product.launch(1.0, 0.0);
    assert_eq!(shape(&launch.operands[0]), (0x1000, 4, vec![(16, 1), (4, 16), (3, 64)], READ));
    assert_eq!(launch.header.flops, 3.0 * 2.0 * 16.0 * 8.0 * 4.0);
    // Shapes that do not fit together.
    assert_eq!(product.set_layout(1, 2, 5_u64), 0);
    assert_eq!(product.status(), 7);
    assert_eq!(product.heuristic().0, 7);
    let accumulate = Product::new(&bench, F32, 16, 8, 4);
    assert_eq!(
        accumulate.launch(1.0, 0.5).operands.iter().map(|o| o.access).collect::<Vec<_>>(),
        [READ, READ, READ, WRITE]
    );
    let scaled = accumulate.launch(0.0, 0.5);
    assert_eq!(scaled.operands.iter().map(|o| o.ptr).collect::<Vec<_>>(), [0x3000, 0x4000], "alpha is zero");
    assert_eq!(scaled.header.flops, 0.0);
}

#[test]
fn row_major_is_the_transpose_and_scalars_can_be_on_the_device() {
    let bench = bench(LIBRARY);
    let product = Product::new(&bench, F32, 16, 8, 4);
    // A as 16 rows of 4, padded to 6.
    assert_eq!((product.set_layout(0, 1, 1_i32), product.set_layout(0, 4, 6_i64)), (0, 0));
    assert_eq!(product.set(2, 1_i32), 0);
    assert_eq!(product.run(at(0x8000), at(0x9000), null()), 0);
    let launch = bench.launch();
    assert_eq!(launch.header.flops, 1024.0);
    let shapes: Vec<_> = launch.operands.iter().map(shape).collect();
    assert_eq!(shapes[0], (0x1000, 4, vec![(4, 1), (16, 6)], READ));
    assert_eq!(shapes[2..4], [(0x3000, 4, vec![(16, 1), (8, 16)], READ), (0x4000, 4, vec![(16, 1), (8, 16)], WRITE)]);
    assert_eq!(shapes[4..], [(0x8000, 4, vec![], READ), (0x9000, 4, vec![], READ)]);
}

#[test]
fn what_is_not_modelled_is_refused_by_name() {
    let bench = bench(LIBRARY);
    let product = Product::new(&bench, F16, 16, 16, 16);
    for (attribute, value, name) in [
        (99, 0, "cublasLt operation attribute 99"),
        (31, 2, "cublasLt operation attribute 31 of value 2"),
        (2, 4, "cublasLt pointer mode 4"),
    ] {
        assert_eq!((product.set(attribute, value), bench.refused().as_str()), (15, name));
    }
    assert_eq!((product.set_layout(0, 1, 2_i32), bench.refused().as_str()), (15, "cublasLt matrix order 2"));
    assert_eq!((product.set(1, 99_i32), bench.refused().as_str()), (15, "cuBLAS with data type 99"));
    assert_eq!(
        (product.set_layout(0, 0, F32), product.heuristic().0, product.set_layout(0, 0, F16)),
        (0, 15, 0),
        "factors of two types"
    );
    assert_eq!(product.set(5, 1_i32), 15, "C transposed");
    assert_eq!(product.set(7, 3_u32), 7, "no such epilogue");
    assert_eq!(product.set(8, 0_i32), 7, "wrong size");
    let one = 1.0_f32;
    assert_eq!(
        product.run((&raw const one).cast(), (&raw const one).cast(), &[1; 8]),
        7,
        "an algorithm of somebody else's"
    );
    assert_eq!((product.set(7, 4_u32), product.status()), (0, 7), "a bias that is nowhere");
    assert!(bench.launches().is_empty());
}

#[test]
fn eight_bit_products_need_a_device_that_has_them() {
    let bench = bench(LIBRARY);
    bench.capability(80);
    assert_eq!(Product::new(&bench, FP8, 16, 16, 16).heuristic(), (15, 0, u64::MAX));
    bench.capability(90);
    let product = Product::new(&bench, FP8, 16, 16, 16);
    assert_eq!((product.set(17, 0x8000_u64), product.set(18, 0x9000_u64)), (0, 0));
    assert_eq!(product.heuristic(), (0, 1, 0));
    let scales: Vec<_> = product.launch(1.0, 0.0).operands[3..].iter().map(shape).collect();
    assert_eq!(scales, [(0x8000, 4, vec![], READ), (0x9000, 4, vec![], READ)]);
    bench.capability(80);
}
