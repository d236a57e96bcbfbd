//! Each family of the stand-in cuBLAS, called as a C program calls it: what the driver then sees.

#[path = "../../abi/fake/mod.rs"]
mod fake;

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use deepum_emu_abi::params::{INDIRECT, READ, WRITE};
use fake::{Bench, bench, call, shape};

const LIBRARY: &str = "libdeepum_emu_cublas.so";
const N: c_int = 0;
const T: c_int = 1;
const LEFT: c_int = 0;
const RIGHT: c_int = 1;
const UPPER: c_int = 1;
const RW: u32 = READ | WRITE;
const FP32: u32 = 0;
const FP64: u32 = 1;
const TF32: u32 = 2;
const HALF: u32 = 3;

type Handle = *mut c_void;
type Ptr = *const c_void;

const A: Ptr = std::ptr::without_provenance(0x1000);
const B: Ptr = std::ptr::without_provenance(0x2000);
const C: Ptr = std::ptr::without_provenance(0x3000);

fn at(address: usize) -> Ptr {
    std::ptr::without_provenance(address)
}

/// The address of a scalar.
fn p<S>(scalar: &S) -> Ptr {
    (&raw const *scalar).cast()
}

fn handle(bench: &Bench) -> Handle {
    let mut handle: Handle = null_mut();
    assert_eq!(call!(bench, cublasCreate_v2: &raw mut handle), 0);
    handle
}

/// cublasSgemm of packed 8 × 8 matrices.
fn sgemm8(bench: &Bench, h: Handle, alpha: Ptr, beta: Ptr) -> c_int {
    call!(bench, cublasSgemm_v2: h, N, N, 8, 8, 8, alpha, A, 8, B, 8, beta, C, 8)
}

#[test]
fn a_product_touches_its_matrices_with_their_leading_dimensions() {
    let bench = bench(LIBRARY);
    let h = handle(&bench);
    assert_eq!(call!(bench, cublasSetStream_v2: h, 0x5555_usize), 0);
    let (alpha, beta) = (&1.0_f32, &0.5_f32);
    assert_eq!(call!(bench, cublasSgemm_v2: h, T, N, 300, 200, 100, p(alpha), A, 128, B, 100, p(beta), C, 512), 0);
    let launch = bench.launch();
    assert_eq!((launch.name.as_str(), launch.through_ex, launch.stream), ("deepum_emu_gemm", false, 0x5555));
    assert_eq!(launch.grid, [3, 2, 1]);
    assert_eq!((launch.header.flops, launch.header.class), (12e6, FP32));
    let shapes: Vec<_> = launch.operands.iter().map(shape).collect();
    assert_eq!(
        shapes,
        [
            (0x1000, 4, vec![(100, 1), (300, 128)], READ),
            (0x2000, 4, vec![(100, 1), (200, 100)], READ),
            (0x3000, 4, vec![(300, 1), (200, 512)], RW),
        ]
    );
}

#[test]
fn beta_zero_does_not_read_c_and_alpha_zero_reads_no_factor() {
    let bench = bench(LIBRARY);
    let h = handle(&bench);
    let (zero, minus_zero, one) = (&0.0_f32, &-0.0_f32, &1.0_f32);
    assert_eq!(sgemm8(&bench, h, p(one), p(minus_zero)), 0);
    assert_eq!(bench.launch().operands.iter().map(|o| o.access).collect::<Vec<_>>(), [READ, READ, WRITE]);
    assert_eq!(sgemm8(&bench, h, p(zero), p(one)), 0);
    let scaled = bench.launch();
    assert_eq!(scaled.operands.iter().map(|o| (o.ptr, o.access)).collect::<Vec<_>>(), [(0x3000, RW)]);
    assert_eq!(scaled.header.flops, 0.0);
    // A complex scalar is zero if both its parts are.
    let imaginary = &[0.0_f32, 1.0];
    assert_eq!(call!(bench, cublasCsyrk_v2: h, UPPER, N, 8, 8, p(imaginary), A, 8, p(imaginary), C, 8), 0);
    assert_eq!(bench.launch().operands.iter().map(|o| o.access).collect::<Vec<_>>(), [READ, RW]);
    // With the scalars on the device nobody can know, and they are read too.
    assert_eq!(call!(bench, cublasSetPointerMode_v2: h, 1), 0);
    assert_eq!(sgemm8(&bench, h, at(0x8000), at(0x9000)), 0);
    let ptrs: Vec<_> = bench.launch().operands.iter().map(|o| (o.ptr, o.access)).collect();
    assert_eq!(ptrs, [(0x1000, READ), (0x2000, READ), (0x3000, RW), (0x8000, READ), (0x9000, READ)]);
}

#[test]
fn scalars_on_the_device_have_the_type_of_their_operation() {
    let bench = bench(LIBRARY);
    let h = handle(&bench);
    assert_eq!(call!(bench, cublasSetPointerMode_v2: h, 1), 0);
    let (alpha, beta) = (at(0x8000), at(0x9000));
    let scalars = |rc| {
        assert_eq!(rc, 0);
        let operands = bench.launch().operands.into_iter();
        operands.filter(|o| o.ptr >= 0x8000).map(|o| o.elem_bytes).collect::<Vec<_>>()
    };
    assert_eq!(scalars(call!(bench, cublasZsyrk_v2: h, UPPER, N, 8, 8, alpha, A, 8, beta, C, 8)), [16, 16]);
    assert_eq!(scalars(call!(bench, cublasZherk_v2: h, UPPER, N, 8, 8, alpha, A, 8, beta, C, 8)), [8, 8]);
    assert_eq!(scalars(call!(bench, cublasZher2k_v2: h, UPPER, N, 8, 8, alpha, A, 8, B, 8, beta, C, 8)), [16, 8]);
    assert_eq!(scalars(call!(bench, cublasCscal_v2: h, 8, alpha, A, 1)), [8]);
    assert_eq!(scalars(call!(bench, cublasCsscal_v2: h, 8, alpha, A, 1)), [4]);
    // Half-precision matrices, single-precision scalars.
    let half = 2;
    let rc = call!(bench, cublasGemmEx: h, N, N, 8, 8, 8, alpha, A, half, 8, B, half, 8, beta, C, half, 8, 68, -1);
    assert_eq!(scalars(rc), [4, 4]);
}

#[test]
fn bad_arguments_are_refused_and_empty_products_launch_nothing() {
    let bench = bench(LIBRARY);
    let h = handle(&bench);
    let one = p(&1.0_f32);
    let run = |h, op, m, lda| call!(bench, cublasSgemm_v2: h, op, N, m, 8, 8, one, A, lda, B, 8, one, C, 64);
    assert_eq!(run(null_mut(), N, 8, 8), 1, "no handle");
    assert_eq!(run(h, 9, 8, 8), 7, "no such operation");
    assert_eq!(run(h, N, -1, 8), 7, "negative size");
    assert_eq!(run(h, N, 16, 15), 7, "leading dimension below the rows");
    assert_eq!(sgemm8(&bench, h, null(), one), 7, "no alpha");
    assert_eq!(
        call!(bench, cublasSgemm_v2: h, N, N, 8, 8, 8, one, A, 8, B, 8, one, null::<c_void>(), 8),
        7,
        "no result"
    );
    assert_eq!(call!(bench, cublasSaxpy_v2: h, 8, null::<c_void>(), A, 1, B, 1), 7, "no alpha");
    assert_eq!(call!(bench, cublasStrsm_v2: h, LEFT, 2, N, 0, 8, 8, one, A, 8, B, 8), 7, "neither lower nor upper");
    assert_eq!(call!(bench, cublasSgemv_v2: h, N, 8, 8, one, A, 8, B, 0, one, C, 1), 7, "a vector that goes nowhere");
    assert_eq!(run(h, N, 0, 8), 0, "empty");
    assert!(bench.launches().is_empty());
}

#[test]
fn typed_and_batched_products_say_types_strides_and_pointer_arrays() {
    let bench = bench(LIBRARY);
    let h = handle(&bench);
    let (one, zero, f32, bf16) = (p(&1.0_f32), p(&0.0_f32), 0, 14);
    let ex = |a_type| {
        let (a, b, c) = (1024_i64, 0_i64, 2048_i64);
        call!(bench, cublasGemmStridedBatchedEx: h, N, N, 64, 32, 16, one, A, a_type, 64, a, B, bf16, 16, b,
            zero, C, f32, 64, c, 5, 68, -1)
    };
    assert_eq!(ex(bf16), 0);
    let launch = bench.launch();
    assert_eq!((launch.header.flops, launch.header.class), (5.0 * 65536.0, HALF));
    assert_eq!(launch.grid, [1, 1, 5]);
    let shapes: Vec<_> = launch.operands.iter().map(shape).collect();
    assert_eq!(
        shapes,
        [
            (0x1000, 2, vec![(64, 1), (16, 64), (5, 1024)], READ),
            (0x2000, 2, vec![(16, 1), (32, 16), (5, 0)], READ),
            (0x3000, 4, vec![(64, 1), (32, 64), (5, 2048)], WRITE),
        ]
    );
    assert_eq!((ex(f32), bench.refused().as_str()), (15, "cuBLAS product of F32 and Bf16"));
    assert_eq!((ex(99), bench.refused().as_str()), (15, "cuBLAS with data type 99"));

    let double = p(&1.0_f64);
    assert_eq!(call!(bench, cublasDgemmBatched: h, N, N, 4, 4, 4, double, A, 4, B, 4, double, C, 4, 9), 0);
    let launch = bench.launch();
    assert_eq!((launch.header.flops, launch.header.class), (9.0 * 128.0, FP64));
    assert!(launch.operands.iter().all(|o| o.access & INDIRECT != 0 && o.batch == 9 && o.elem_bytes == 8));
    assert_eq!(launch.operands[2].access, RW | INDIRECT);
}

/// Products are counted, a multiply-add as two operations, a complex one as eight. The numbers are worked out by hand.
#[test]
fn arithmetic_is_counted() {
    let bench = bench(LIBRARY);
    let h = handle(&bench);
    let (s, z) = (p(&1.0_f32), p(&[1.0_f64, 0.0]));
    let mut info = -7;
    let flops = |rc| {
        assert_eq!(rc, 0);
        bench.launch().header.flops
    };
    // 2 × 3 results of 4 products each.
    assert_eq!(flops(call!(bench, cublasSgemm_v2: h, N, N, 2, 3, 4, s, A, 2, B, 4, s, C, 2)), 48.0);
    assert_eq!(flops(call!(bench, cublasZgemm_v2: h, N, N, 2, 3, 4, z, A, 2, B, 4, z, C, 2)), 192.0);
    // 3 × 5 results of 3 products each, or of 5 from the right.
    assert_eq!(flops(call!(bench, cublasSsymm_v2: h, LEFT, UPPER, 3, 5, s, A, 3, B, 3, s, C, 3)), 90.0);
    assert_eq!(flops(call!(bench, cublasSsymm_v2: h, RIGHT, UPPER, 3, 5, s, A, 5, B, 3, s, C, 3)), 150.0);
    // A triangle of 1 + 2 + 3 products and 0 + 1 + 2 sums for each of 5 columns.
    assert_eq!(flops(call!(bench, cublasStrmm_v2: h, LEFT, UPPER, N, N, 3, 5, s, A, 3, B, 3, C, 3)), 45.0);
    assert_eq!(flops(call!(bench, cublasStrsm_v2: h, LEFT, UPPER, N, N, 3, 5, s, A, 3, B, 3)), 45.0);
    assert_eq!(flops(call!(bench, cublasStrsmBatched: h, LEFT, UPPER, N, N, 3, 5, s, A, 3, B, 3, 7)), 315.0);
    // Half of 10 × 10 results of 4 products each; twice that for two factors.
    assert_eq!(flops(call!(bench, cublasSsyrk_v2: h, UPPER, N, 10, 4, s, A, 10, s, C, 10)), 400.0);
    assert_eq!(flops(call!(bench, cublasSsyr2k_v2: h, UPPER, N, 10, 4, s, A, 10, B, 10, s, C, 10)), 800.0);
    assert_eq!(flops(call!(bench, cublasZherk_v2: h, UPPER, N, 10, 4, z, A, 10, z, C, 10)), 1600.0);
    assert_eq!(flops(call!(bench, cublasSgemv_v2: h, T, 6, 4, s, A, 6, B, 1, s, C, 1)), 48.0);
    assert_eq!(flops(call!(bench, cublasSger_v2: h, 6, 4, s, A, 1, B, 1, C, 6)), 48.0);
    // 2/3 6³ for an LU factorisation; 2 × 6² for each of 3 solutions; 2 × 6 × 3² - 2/3 3³ for QR, tall or wide. In batches of 2.
    assert_eq!(flops(call!(bench, cublasSgetrfBatched: h, 6, A, 6, B, C, 2)), 2.0 * 144.0);
    assert_eq!(flops(call!(bench, cublasSgetrsBatched: h, N, 6, 3, A, 6, B, C, 6, &raw mut info, 2)), 2.0 * 216.0);
    assert_eq!(flops(call!(bench, cublasSgeqrfBatched: h, 6, 3, A, 6, B, &raw mut info, 2)), 2.0 * 90.0);
    assert_eq!(flops(call!(bench, cublasSgeqrfBatched: h, 3, 6, A, 3, B, &raw mut info, 2)), 2.0 * 90.0);
}

#[test]
fn tensor_cores_work_where_type_math_mode_and_device_allow() {
    let bench = bench(LIBRARY);
    let one = p(&1.0_f32);
    let on = |capability, math_mode, elem, compute| {
        bench.capability(capability);
        let h = handle(&bench);
        assert_eq!(call!(bench, cublasSetMathMode: h, math_mode), 0);
        let mut back = -1;
        assert_eq!((call!(bench, cublasGetMathMode: h, &raw mut back), back), (0, math_mode));
        let rc =
            call!(bench, cublasGemmEx: h, N, N, 8, 8, 8, one, A, elem, 8, B, elem, 8, one, C, elem, 8, compute, -1);
        bench.capability(80);
        assert_eq!(rc, 0);
        bench.launch().header.class
    };
    let (f32, f16, i8, bf16) = (0, 2, 3, 14);
    // fp32 by math mode: default, tensor op, pedantic, TF32, and TF32 without reduced-precision sums.
    assert_eq!([0, 1, 2, 3, 3 | 16].map(|mode| on(80, mode, f32, 68)), [FP32, HALF, FP32, TF32, TF32]);
    assert_eq!([0, 1, 2, 3].map(|mode| on(70, mode, f32, 68)), [FP32, HALF, FP32, FP32], "7.0 has no TF32");
    // By compute type: default, pedantic, fast fp16, fast bf16, fast TF32. A compute type stands above the math mode.
    assert_eq!([68, 69, 74, 75, 77].map(|compute| on(80, 3, f32, compute)), [TF32, FP32, HALF, HALF, TF32]);
    assert_eq!([68, 69, 74, 75, 77].map(|compute| on(70, 0, f32, compute)), [FP32, FP32, HALF, FP32, FP32]);
    assert_eq!([f16, bf16].map(|elem| on(70, 3, elem, 68)), [HALF, FP32]);
    assert_eq!([f16, bf16].map(|elem| on(80, 3, elem, 68)), [HALF, HALF]);
    assert_eq!([70, 75, 80].map(|capability| on(capability, 0, i8, 72)), [FP32, HALF, HALF]);
    let h = handle(&bench);
    assert_eq!(call!(bench, cublasSetMathMode: h, 8), 15, "emulated precision is not modelled");
    assert_eq!(bench.refused(), "cuBLAS math mode 8");
}

#[test]
fn results_come_to_the_host_through_the_workspace_and_stay_on_the_device_in_device_mode() {
    let bench = bench(LIBRARY);
    let h = handle(&bench);
    let mut result = 0_u64;
    assert_eq!(call!(bench, cublasDdot_v2: h, 1000, A, 2, B, -1, &raw mut result), 0);
    assert_eq!(result, 0x4242_4242_4242_4242, "what the driver copied");
    let shapes: Vec<_> = bench.launch().operands.iter().map(shape).collect();
    assert_eq!(shapes[1..], [(0x1000, 8, vec![(1000, 2)], READ), (0x2000, 8, vec![(1000, 1)], READ)]);
    assert_eq!((shapes[0].1, shapes[0].3), (8, WRITE));
    assert_eq!(call!(bench, cublasSetPointerMode_v2: h, 1), 0);
    assert_eq!(call!(bench, cublasDdot_v2: h, 1000, A, 2, B, 1, at(0x7000)), 0);
    assert_eq!(bench.launch().operands[0].ptr, 0x7000);
}

#[test]
fn solves_and_factorisations_touch_what_they_name() {
    let bench = bench(LIBRARY);
    let h = handle(&bench);
    let (one, zero) = (p(&1.0_f32), p(&0.0_f32));
    assert_eq!(call!(bench, cublasStrsm_v2: h, RIGHT, 0, 0, 0, 64, 32, one, A, 40, B, 64), 0);
    let shapes: Vec<_> = bench.launch().operands.iter().map(shape).collect();
    assert_eq!(shapes, [(0x1000, 4, vec![(32, 1), (32, 40)], READ), (0x2000, 4, vec![(64, 1), (32, 64)], RW)]);
    assert_eq!(call!(bench, cublasSsyrk_v2: h, UPPER, T, 64, 32, one, A, 40, zero, C, 64), 0);
    let shapes: Vec<_> = bench.launch().operands.iter().map(shape).collect();
    assert_eq!(shapes, [(0x1000, 4, vec![(32, 1), (64, 40)], READ), (0x3000, 4, vec![(64, 1), (64, 64)], WRITE)]);
    let mut info = -7;
    assert_eq!(call!(bench, cublasSgetrsBatched: h, N, 10, 3, A, 10, B, C, 10, &raw mut info, 6), 0);
    assert_eq!(info, 0);
    let launch = bench.launch();
    assert_eq!(launch.name, "deepum_emu_factor");
    assert_eq!(
        launch.operands.iter().map(shape).collect::<Vec<_>>(),
        [
            (0x1000, 4, vec![(10, 1), (10, 10)], READ | INDIRECT),
            (0x2000, 4, vec![(60, 1)], READ),
            (0x3000, 4, vec![(10, 1), (3, 10)], RW | INDIRECT),
        ]
    );
}

#[test]
fn a_handle_allocates_its_workspace_and_asks_the_driver_as_the_real_library_does() {
    let bench = bench(LIBRARY);
    let before: u64 = bench.ask("fake_allocated");
    bench.capability(90);
    handle(&bench);
    bench.capability(80);
    let modules: c_int = bench.ask("fake_modules");
    let h = handle(&bench);
    assert_eq!((call!(bench, cublasDestroy_v2: h), bench.ask("fake_modules")), (0, modules), "its kernels go with it");
    let after: u64 = bench.ask("fake_allocated");
    assert_eq!(after - before, (32 << 20) + (4 << 20));
    assert!(bench.ask::<c_int>("fake_asked_for_itself") > 0, "cuGetProcAddress is asked for itself first");
}

#[test]
fn a_refused_function_says_so_to_the_driver_and_returns_not_supported() {
    let bench = bench(LIBRARY);
    assert_eq!(call!(bench, cublasSgelsBatched:), 15);
    assert_eq!(bench.refused(), "cublasSgelsBatched");
}

#[test]
fn a_handle_without_memory_for_its_workspace_is_none() {
    let bench = bench(LIBRARY);
    let limit = |bytes: u64| {
        // SAFETY: fake_cuda.c defines it so.
        unsafe { bench.driver.function::<extern "C" fn(u64)>("fake_limit")(bytes) }
    };
    let modules: c_int = bench.ask("fake_modules");
    limit(0);
    let mut handle: Handle = null_mut();
    let rc = call!(bench, cublasCreate_v2: &raw mut handle);
    limit(u64::MAX);
    assert_eq!((rc, handle, bench.ask("fake_modules")), (3, null_mut(), modules));
}
