//! The stand-in cuBLASLt: descriptors, the heuristic, and what a product with an epilogue touches.

#[path = "../../abi/fake/mod.rs"]
mod fake;

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use deepum_emu_abi::params::{READ, WRITE};
use fake::{Bench, Launch, bench, shape};

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

fn create(bench: &Bench, name: &str) -> Object {
    let mut object = null_mut();
    // SAFETY: the signature of creations without further arguments.
    let rc = unsafe { bench.library.function::<extern "C" fn(*mut Object) -> c_int>(name)(&raw mut object) };
    assert_eq!(rc, 0, "{name}");
    object
}

impl<'a> Product<'a> {
    /// `m × k` times `k × n`, column-major and packed, of one type.
    fn new(bench: &'a Bench, elem: c_int, m: u64, n: u64, k: u64) -> Self {
        let mut operation = null_mut();
        // SAFETY: cublasLtMatmulDescCreate's signature.
        let create_operation = unsafe {
            bench.library.function::<extern "C" fn(*mut Object, c_int, c_int) -> c_int>("cublasLtMatmulDescCreate")
        };
        assert_eq!(create_operation(&raw mut operation, 68, F32), 0);
        let layout = |rows, cols| {
            let mut layout = null_mut();
            // SAFETY: cublasLtMatrixLayoutCreate's signature.
            let create = unsafe {
                bench
                    .library
                    .function::<extern "C" fn(*mut Object, c_int, u64, u64, i64) -> c_int>("cublasLtMatrixLayoutCreate")
            };
            assert_eq!(create(&raw mut layout, elem, rows, cols, rows.cast_signed()), 0);
            layout
        };
        let layouts = [layout(m, k), layout(k, n), layout(m, n), layout(m, n)];
        Self { bench, handle: create(bench, "cublasLtCreate"), operation, layouts }
    }

    fn set<T>(&self, attribute: c_int, value: T) -> c_int {
        self.set_on("cublasLtMatmulDescSetAttribute", self.operation, attribute, value)
    }

    fn set_on<T>(&self, function: &str, object: Object, attribute: c_int, value: T) -> c_int {
        // SAFETY: the signature of the attribute setters.
        let set = unsafe { self.bench.library.function::<extern "C" fn(Object, c_int, Ptr, usize) -> c_int>(function) };
        set(object, attribute, (&raw const value).cast(), size_of::<T>())
    }

    /// Status and number of algorithms, workspace of the first.
    fn heuristic(&self) -> (c_int, c_int, usize) {
        type Get = extern "C" fn(
            Object,
            Object,
            Object,
            Object,
            Object,
            Object,
            Object,
            c_int,
            *mut [u64; 12],
            *mut c_int,
        ) -> c_int;
        // SAFETY: cublasLtMatmulAlgoGetHeuristic's signature; a result is 96 bytes.
        let get: Get = unsafe { self.bench.library.function("cublasLtMatmulAlgoGetHeuristic") };
        let preference = create(self.bench, "cublasLtMatmulPreferenceCreate");
        let (mut result, mut count) = ([u64::MAX; 12], -1);
        let [a, b, c, d] = self.layouts;
        let rc = get(self.handle, self.operation, a, b, c, d, preference, 1, &raw mut result, &raw mut count);
        (rc, count, usize::try_from(result[8]).expect("64-bit"))
    }

    fn run(&self, alpha: f32, beta: f32, algorithm: *const [u64; 8]) -> c_int {
        type Matmul = extern "C" fn(
            Object,
            Object,
            Ptr,
            Ptr,
            Object,
            Ptr,
            Object,
            Ptr,
            Ptr,
            Object,
            Ptr,
            Object,
            *const [u64; 8],
            Ptr,
            usize,
            usize,
        ) -> c_int;
        // SAFETY: cublasLtMatmul's signature.
        let matmul: Matmul = unsafe { self.bench.library.function("cublasLtMatmul") };
        let [a, b, c, d] = self.layouts;
        matmul(
            self.handle,
            self.operation,
            (&raw const alpha).cast(),
            at(0x1000),
            a,
            at(0x2000),
            b,
            (&raw const beta).cast(),
            at(0x3000),
            c,
            at(0x4000),
            d,
            algorithm,
            null(),
            0,
            0x77,
        )
    }

    fn launch(&self, beta: f32) -> Launch {
        assert_eq!(self.run(1.0, beta, null()), 0);
        self.bench.launch()
    }
}

#[test]
fn a_linear_layer_with_bias_goes_through_the_other_launch_door() {
    let bench = bench(LIBRARY);
    let product = Product::new(&bench, F16, 96, 64, 32);
    assert_eq!(product.set(7, 4_u32), 0, "epilogue: bias");
    assert_eq!(product.set(8, 0x5000_u64), 0, "bias pointer");
    assert_eq!(product.heuristic(), (0, 1, 0));
    let launch = product.launch(0.0);
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
    let forward = product.launch(1.0);
    let shapes: Vec<_> = forward.operands.iter().map(shape).collect();
    assert_eq!(shapes[2], (0x3000, 2, vec![(96, 1), (64, 96)], READ), "beta is not zero: C is read");
    assert_eq!(shapes[4..], [(0x5000, 2, vec![(96, 1)], READ), (0x6000, 2, vec![(96, 1), (64, 96)], WRITE)]);
    // Its backward: auxiliary read, bias gradient written.
    assert_eq!(product.set(7, 208_u32), 0);
    let backward = product.launch(0.0);
    let shapes: Vec<_> = backward.operands.iter().map(shape).collect();
    assert_eq!(shapes[3..], [(0x5000, 2, vec![(96, 1)], WRITE), (0x6000, 2, vec![(96, 1), (64, 96)], READ)]);
    // ReLU keeps one bit an element.
    assert_eq!((product.set(7, 130_u32), product.set(12, 128_i64)), (0, 0));
    let mask = product.launch(0.0);
    assert_eq!(shape(&mask.operands[3]), (0x6000, 1, vec![(12, 1), (64, 16)], WRITE));
    // Bias gradient over columns.
    assert_eq!(product.set(7, 512_u32), 0);
    assert_eq!(shape(&product.launch(0.0).operands[3]), (0x5000, 2, vec![(64, 1)], WRITE));
}

#[test]
fn in_place_accumulation_and_batches() {
    let bench = bench(LIBRARY);
    let product = Product::new(&bench, F32, 16, 8, 4);
    for (layout, stride) in product.layouts.iter().zip([64_i64, 32, 128, 128]) {
        let name = "cublasLtMatrixLayoutSetAttribute";
        assert_eq!(product.set_on(name, *layout, 5, 3_i32), 0);
        assert_eq!(product.set_on(name, *layout, 6, stride), 0);
    }
    assert_eq!(product.set(3, 7_i32), 7, "no such operation");
    let launch = product.launch(0.0);
    assert_eq!(shape(&launch.operands[0]), (0x1000, 4, vec![(16, 1), (4, 16), (3, 64)], READ));
    assert_eq!(launch.header.flops, 3.0 * 2.0 * 16.0 * 8.0 * 4.0);
    // Shapes that do not fit together.
    assert_eq!(product.set_on("cublasLtMatrixLayoutSetAttribute", product.layouts[1], 2, 5_u64), 0);
    assert_eq!(product.run(1.0, 0.0, null()), 7);
    assert_eq!(product.heuristic().0, 7);
    let accumulate = Product::new(&bench, F32, 16, 8, 4);
    assert_eq!(accumulate.set(5, 1_i32), 15, "transposed C is not supported");
    assert_eq!(accumulate.launch(0.5).operands.iter().map(|o| o.access).collect::<Vec<_>>(), [READ, READ, READ, WRITE]);
}

#[test]
fn what_is_not_modelled_is_refused_by_name() {
    let bench = bench(LIBRARY);
    let product = Product::new(&bench, F16, 16, 16, 16);
    assert_eq!(product.set(99, 0_i32), 15);
    assert_eq!(bench.refused(), "cublasLtMatmulDescSetAttribute with an unknown attribute");
    assert_eq!(product.set(31, 2_i32), 15, "block scaling");
    assert_eq!(product.set(7, 3_u32), 7, "no such epilogue");
    assert_eq!(product.set(8, 0_i32), 7, "wrong size");
    assert_eq!(product.run(1.0, 0.0, &[1; 8]), 7, "an algorithm of somebody else's");
    assert!(bench.launches().is_empty());
}

#[test]
fn eight_bit_products_need_a_device_that_has_them() {
    let bench = bench(LIBRARY);
    bench.capability(80);
    assert_eq!(Product::new(&bench, FP8, 16, 16, 16).heuristic(), (15, 0, usize::MAX));
    bench.capability(90);
    let product = Product::new(&bench, FP8, 16, 16, 16);
    assert_eq!((product.set(17, 0x8000_u64), product.set(18, 0x9000_u64)), (0, 0));
    assert_eq!(product.heuristic(), (0, 1, 0));
    let scales: Vec<_> = product.launch(0.0).operands[3..].iter().map(shape).collect();
    assert_eq!(scales, [(0x8000, 4, vec![], READ), (0x9000, 4, vec![], READ)]);
    bench.capability(80);
}
