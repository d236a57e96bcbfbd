//! Each family of the stand-in cuBLAS, called as a C program calls it: what the driver then sees.

#[path = "../../abi/fake/mod.rs"]
mod fake;

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use deepum_emu_abi::params::{INDIRECT, READ, WRITE};
use fake::{Bench, bench, shape};

const LIBRARY: &str = "libdeepum_emu_cublas.so";
const N: c_int = 0;
const T: c_int = 1;
const RW: u32 = READ | WRITE;

type Handle = *mut c_void;
type Ptr = *const c_void;

fn at(address: usize) -> Ptr {
    std::ptr::without_provenance(address)
}

fn handle(bench: &Bench) -> Handle {
    let mut handle = null_mut();
    // SAFETY: cublasCreate's signature.
    let rc =
        unsafe { bench.library.function::<extern "C" fn(*mut Handle) -> c_int>("cublasCreate_v2")(&raw mut handle) };
    assert_eq!(rc, 0);
    handle
}

fn set(bench: &Bench, name: &str, handle: Handle, value: c_int) -> c_int {
    // SAFETY: the signature of cuBLAS's integer setters.
    unsafe { bench.library.function::<extern "C" fn(Handle, c_int) -> c_int>(name)(handle, value) }
}

type Gemm =
    extern "C" fn(Handle, c_int, c_int, c_int, c_int, c_int, Ptr, Ptr, c_int, Ptr, c_int, Ptr, Ptr, c_int) -> c_int;

fn sgemm(bench: &Bench) -> Gemm {
    // SAFETY: cublasSgemm's signature.
    unsafe { bench.library.function("cublasSgemm_v2") }
}

#[test]
fn a_product_touches_its_matrices_with_their_leading_dimensions() {
    let bench = bench(LIBRARY);
    let h = handle(&bench);
    // SAFETY: the setter's signature.
    let set_stream = unsafe { bench.library.function::<extern "C" fn(Handle, usize) -> c_int>("cublasSetStream_v2") };
    assert_eq!(set_stream(h, 0x5555), 0);
    let (alpha, beta) = (1.0_f32, 0.5_f32);
    let (pa, pb) = ((&raw const alpha).cast(), (&raw const beta).cast());
    assert_eq!(sgemm(&bench)(h, T, N, 300, 200, 100, pa, at(0x1000), 128, at(0x2000), 100, pb, at(0x3000), 512), 0);
    let launch = bench.launch();
    assert_eq!((launch.name.as_str(), launch.through_ex, launch.stream), ("deepum_emu_gemm", false, 0x5555));
    assert_eq!(launch.grid, [3, 2, 1]);
    assert_eq!((launch.header.flops, launch.header.class), (2.0 * 300.0 * 200.0 * 100.0, 0));
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
    let (zero, minus_zero, one) = (0.0_f32, -0.0_f32, 1.0_f32);
    let p = |x: &f32| (&raw const *x).cast();
    let run = |alpha, beta| sgemm(&bench)(h, N, N, 8, 8, 8, alpha, at(0x1000), 8, at(0x2000), 8, beta, at(0x3000), 8);
    assert_eq!(run(p(&one), p(&minus_zero)), 0);
    assert_eq!(bench.launch().operands.iter().map(|o| o.access).collect::<Vec<_>>(), [READ, READ, WRITE]);
    assert_eq!(run(p(&zero), p(&one)), 0);
    let scaled = bench.launch();
    assert_eq!(scaled.operands.iter().map(|o| (o.ptr, o.access)).collect::<Vec<_>>(), [(0x3000, RW)]);
    assert_eq!(scaled.header.flops, 0.0);
    // With the scalars on the device nobody can know, and they are read too.
    assert_eq!(set(&bench, "cublasSetPointerMode_v2", h, 1), 0);
    assert_eq!(run(at(0x8000), at(0x9000)), 0);
    let ptrs: Vec<_> = bench.launch().operands.iter().map(|o| (o.ptr, o.access)).collect();
    assert_eq!(ptrs, [(0x1000, READ), (0x2000, READ), (0x3000, RW), (0x8000, READ), (0x9000, READ)]);
}

#[test]
fn bad_arguments_are_refused_and_empty_products_launch_nothing() {
    let bench = bench(LIBRARY);
    let h = handle(&bench);
    let one = 1.0_f32;
    let p: Ptr = (&raw const one).cast();
    let run = |h, op, m, lda| sgemm(&bench)(h, op, N, m, 8, 8, p, at(0x1000), lda, at(0x2000), 8, p, at(0x3000), 64);
    assert_eq!(run(null_mut(), N, 8, 8), 1, "no handle");
    assert_eq!(run(h, 9, 8, 8), 7, "no such operation");
    assert_eq!(run(h, N, -1, 8), 7, "negative size");
    assert_eq!(run(h, N, 16, 15), 7, "leading dimension below the rows");
    assert_eq!(sgemm(&bench)(h, N, N, 8, 8, 8, null(), at(1), 8, at(2), 8, p, at(3), 8), 7, "no alpha");
    assert_eq!(run(h, N, 0, 8), 0, "empty");
    assert!(bench.launches().is_empty());
}

#[test]
fn typed_and_batched_products_say_types_strides_and_pointer_arrays() {
    let bench = bench(LIBRARY);
    let h = handle(&bench);
    let (one, zero) = (1.0_f32, 0.0_f32);
    let (p1, p0): (Ptr, Ptr) = ((&raw const one).cast(), (&raw const zero).cast());
    type Ex = extern "C" fn(
        Handle,
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
        Ptr,
        Ptr,
        c_int,
        c_int,
        i64,
        Ptr,
        c_int,
        c_int,
        i64,
        Ptr,
        Ptr,
        c_int,
        c_int,
        i64,
        c_int,
        c_int,
        c_int,
    ) -> c_int;
    // SAFETY: cublasGemmStridedBatchedEx's signature.
    let ex: Ex = unsafe { bench.library.function("cublasGemmStridedBatchedEx") };
    let bf16 = 14;
    let rc = ex(
        h,
        N,
        N,
        64,
        32,
        16,
        p1,
        at(0x1000),
        bf16,
        64,
        1024,
        at(0x2000),
        bf16,
        16,
        0,
        p0,
        at(0x3000),
        0,
        64,
        2048,
        5,
        68,
        -1,
    );
    assert_eq!(rc, 0);
    let launch = bench.launch();
    assert_eq!((launch.header.flops, launch.header.class), (5.0 * 2.0 * 64.0 * 32.0 * 16.0, 3));
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
    // An unknown element type is not supported.
    assert_eq!(ex(h, N, N, 64, 32, 16, p1, at(1), 99, 64, 0, at(2), bf16, 16, 0, p0, at(3), 0, 64, 0, 5, 68, -1), 15);

    type Batched = extern "C" fn(
        Handle,
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
        Ptr,
        Ptr,
        c_int,
        Ptr,
        c_int,
        Ptr,
        Ptr,
        c_int,
        c_int,
    ) -> c_int;
    // SAFETY: cublasDgemmBatched's signature.
    let batched: Batched = unsafe { bench.library.function("cublasDgemmBatched") };
    let double = 1.0_f64;
    let pd: Ptr = (&raw const double).cast();
    assert_eq!(batched(h, N, N, 4, 4, 4, pd, at(0x1000), 4, at(0x2000), 4, pd, at(0x3000), 4, 9), 0);
    let launch = bench.launch();
    assert_eq!(launch.header.class, 1);
    assert!(launch.operands.iter().all(|o| o.access & INDIRECT != 0 && o.batch == 9 && o.elem_bytes == 8));
    assert_eq!(launch.operands[2].access, RW | INDIRECT);
}

#[test]
fn tf32_is_used_when_the_math_mode_allows_it_and_fp32_otherwise() {
    let bench = bench(LIBRARY);
    let h = handle(&bench);
    let one = 1.0_f32;
    let p: Ptr = (&raw const one).cast();
    for (mode, class) in [(0, 0), (3, 2), (3 | 16, 2), (2, 0)] {
        assert_eq!(set(&bench, "cublasSetMathMode", h, mode), 0);
        assert_eq!(sgemm(&bench)(h, N, N, 8, 8, 8, p, at(0x1000), 8, at(0x2000), 8, p, at(0x3000), 8), 0);
        assert_eq!(bench.launch().header.class, class, "math mode {mode}");
        let mut back = -1;
        // SAFETY: cublasGetMathMode's signature.
        let get = unsafe { bench.library.function::<extern "C" fn(Handle, *mut c_int) -> c_int>("cublasGetMathMode") };
        assert_eq!((get(h, &raw mut back), back), (0, mode));
    }
    assert_eq!(set(&bench, "cublasSetMathMode", h, 8), 15, "emulated precision is not modelled");
    bench.capability(70);
    let volta = handle(&bench);
    bench.capability(80);
    assert_eq!(set(&bench, "cublasSetMathMode", volta, 3), 0);
    assert_eq!(sgemm(&bench)(volta, N, N, 8, 8, 8, p, at(0x1000), 8, at(0x2000), 8, p, at(0x3000), 8), 0);
    assert_eq!(bench.launch().header.class, 0, "compute capability 7.0 has no TF32");
}

#[test]
fn results_come_to_the_host_through_the_workspace_and_stay_on_the_device_in_device_mode() {
    let bench = bench(LIBRARY);
    let h = handle(&bench);
    type Dot = extern "C" fn(Handle, c_int, Ptr, c_int, Ptr, c_int, *mut c_void) -> c_int;
    // SAFETY: cublasDdot's signature.
    let dot: Dot = unsafe { bench.library.function("cublasDdot_v2") };
    let mut result = 0_u64;
    assert_eq!(dot(h, 1000, at(0x1000), 2, at(0x2000), -1, (&raw mut result).cast()), 0);
    assert_eq!(result, 0x4242_4242_4242_4242, "what the driver copied");
    let shapes: Vec<_> = bench.launch().operands.iter().map(shape).collect();
    assert_eq!(shapes[1..], [(0x1000, 8, vec![(1000, 2)], READ), (0x2000, 8, vec![(1000, 1)], READ)]);
    assert_eq!((shapes[0].1, shapes[0].3), (8, WRITE));
    assert_eq!(set(&bench, "cublasSetPointerMode_v2", h, 1), 0);
    assert_eq!(dot(h, 1000, at(0x1000), 2, at(0x2000), 1, at(0x7000).cast_mut()), 0);
    assert_eq!(bench.launch().operands[0].ptr, 0x7000);
}

#[test]
fn solves_and_factorisations_touch_what_they_name() {
    let bench = bench(LIBRARY);
    let h = handle(&bench);
    let one = 1.0_f32;
    let p: Ptr = (&raw const one).cast();
    type Trsm = extern "C" fn(Handle, c_int, c_int, c_int, c_int, c_int, c_int, Ptr, Ptr, c_int, Ptr, c_int) -> c_int;
    // SAFETY: cublasStrsm's signature.
    let trsm: Trsm = unsafe { bench.library.function("cublasStrsm_v2") };
    let right = 1;
    assert_eq!(trsm(h, right, 0, 0, 0, 64, 32, p, at(0x1000), 40, at(0x2000), 64), 0);
    let shapes: Vec<_> = bench.launch().operands.iter().map(shape).collect();
    assert_eq!(shapes, [(0x1000, 4, vec![(32, 1), (32, 40)], READ), (0x2000, 4, vec![(64, 1), (32, 64)], RW)]);
    type Getrs = extern "C" fn(Handle, c_int, c_int, c_int, Ptr, c_int, Ptr, Ptr, c_int, *mut c_int, c_int) -> c_int;
    // SAFETY: cublasSgetrsBatched's signature.
    let getrs: Getrs = unsafe { bench.library.function("cublasSgetrsBatched") };
    let mut info = -7;
    assert_eq!(getrs(h, N, 10, 3, at(0x1000), 10, at(0x2000), at(0x3000), 10, &raw mut info, 6), 0);
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
    handle(&bench);
    let after: u64 = bench.ask("fake_allocated");
    assert_eq!(after - before, (32 << 20) + (4 << 20));
    assert!(bench.ask::<c_int>("fake_asked_for_itself") > 0, "cuGetProcAddress is asked for itself first");
}

#[test]
fn a_refused_function_says_so_to_the_driver_and_returns_not_supported() {
    let bench = bench(LIBRARY);
    // SAFETY: a refusal takes anything.
    let refused = unsafe { bench.library.function::<extern "C" fn() -> c_int>("cublasSgelsBatched") };
    assert_eq!(refused(), 15);
    assert_eq!(bench.refused(), "cublasSgelsBatched");
}
