//! The plain functions of the stand-in cuDNN: batch norm, convolutions, descriptors, versions.

#[path = "../../abi/fake/mod.rs"]
mod fake;

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use deepum_emu_abi::params::{READ, WRITE};
use fake::{Bench, bench, shape};

const LIBRARY: &str = "libdeepum_emu_cudnn.so";
const RW: u32 = READ | WRITE;
type Object = *mut c_void;
type Ptr = *const c_void;

fn at(address: usize) -> Object {
    std::ptr::without_provenance_mut(address)
}

fn create(bench: &Bench, name: &str) -> Object {
    let mut object = null_mut();
    // SAFETY: the signature of all creations.
    let create = unsafe { bench.library.function::<extern "C" fn(*mut Object) -> c_int>(name) };
    assert_eq!(create(&raw mut object), 0, "{name}");
    object
}

fn tensor(bench: &Bench, elem: c_int, dims: [c_int; 4], strides: [c_int; 4]) -> Object {
    let tensor = create(bench, "cudnnCreateTensorDescriptor");
    type Set = extern "C" fn(Object, c_int, c_int, *const c_int, *const c_int) -> c_int;
    // SAFETY: cudnnSetTensorNdDescriptor's signature.
    let set: Set = unsafe { bench.library.function("cudnnSetTensorNdDescriptor") };
    assert_eq!(set(tensor, elem, 4, dims.as_ptr(), strides.as_ptr()), 0);
    tensor
}

#[test]
fn batch_norm_touches_data_and_statistics_both_ways() {
    let bench = bench(LIBRARY);
    let handle = create(&bench, "cudnnCreate");
    let x = tensor(&bench, 2, [4, 16, 8, 8], [1024, 64, 8, 1]);
    let channels = tensor(&bench, 0, [1, 16, 1, 1], [16, 1, 1, 1]);
    let (one, zero) = (1.0_f32, 0.0_f32);
    let (p1, p0): (Ptr, Ptr) = ((&raw const one).cast(), (&raw const zero).cast());
    type Forward = extern "C" fn(
        Object,
        c_int,
        c_int,
        Ptr,
        Ptr,
        Object,
        Ptr,
        Object,
        Ptr,
        Object,
        Object,
        Object,
        Ptr,
        Ptr,
        f64,
        Object,
        Object,
        f64,
        Object,
        Object,
        Object,
        Object,
        usize,
        Object,
        usize,
    ) -> c_int;
    // SAFETY: cudnnBatchNormalizationForwardTrainingEx's signature.
    let forward: Forward = unsafe { bench.library.function("cudnnBatchNormalizationForwardTrainingEx") };
    let run = |fused| {
        forward(
            handle,
            1,
            fused,
            p1,
            p0,
            x,
            at(0x1000),
            null_mut(),
            null(),
            x,
            at(0x2000),
            channels,
            at(0x3000),
            at(0x4000),
            0.1,
            at(0x5000),
            at(0x6000),
            1e-5,
            at(0x7000),
            at(0x8000),
            null_mut(),
            null_mut(),
            0,
            null_mut(),
            0,
        )
    };
    assert_eq!(run(1), 3000, "fused activation");
    assert!(bench.launches().is_empty());
    assert_eq!(run(0), 0);
    let launch = bench.launch();
    assert_eq!(launch.name, "deepum_emu_bn_fw_tr");
    let got: Vec<_> = launch.operands.iter().map(shape).collect();
    let data = vec![(8, 1), (8, 8), (16, 64), (4, 1024)];
    assert_eq!(got[..2], [(0x1000, 2, data.clone(), READ), (0x2000, 2, data.clone(), WRITE)]);
    let stat = |ptr, access| (ptr, 4, vec![(16, 1)], access);
    assert_eq!(
        got[2..],
        [
            stat(0x3000, READ),
            stat(0x4000, READ),
            stat(0x5000, RW),
            stat(0x6000, RW),
            stat(0x7000, WRITE),
            stat(0x8000, WRITE)
        ]
    );

    type Backward = extern "C" fn(
        Object,
        c_int,
        c_int,
        Ptr,
        Ptr,
        Ptr,
        Ptr,
        Object,
        Ptr,
        Object,
        Ptr,
        Object,
        Ptr,
        Object,
        Object,
        Object,
        Object,
        Object,
        Ptr,
        Ptr,
        Object,
        Object,
        f64,
        Ptr,
        Ptr,
        Object,
        Object,
        usize,
        Object,
        usize,
    ) -> c_int;
    // SAFETY: cudnnBatchNormalizationBackwardEx's signature.
    let backward: Backward = unsafe { bench.library.function("cudnnBatchNormalizationBackwardEx") };
    let rc = backward(
        handle,
        1,
        0,
        p1,
        p0,
        p1,
        p1,
        x,
        at(0x1000),
        null_mut(),
        null(),
        x,
        at(0x2000),
        null_mut(),
        null_mut(),
        x,
        at(0x9000),
        channels,
        at(0x3000),
        null(),
        at(0xa000),
        at(0xb000),
        1e-5,
        at(0x7000),
        at(0x8000),
        null_mut(),
        null_mut(),
        0,
        null_mut(),
        0,
    );
    assert_eq!(rc, 0);
    let launch = bench.launch();
    assert_eq!(launch.name, "deepum_emu_bn_bw");
    let got: Vec<_> = launch.operands.iter().map(|o| (o.ptr >> 12, o.access)).collect();
    assert_eq!(got, [(1, READ), (2, READ), (9, WRITE), (3, READ), (10, RW), (11, RW), (7, READ), (8, READ)]);
}

#[test]
fn every_size_asked_for_is_written() {
    let bench = bench(LIBRARY);
    type Forward = extern "C" fn(Object, c_int, c_int, Object, Object, Object, Object, Object, *mut usize) -> c_int;
    type Reserve = extern "C" fn(Object, c_int, c_int, Object, Object, *mut usize) -> c_int;
    let name = "cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize";
    // SAFETY: its signature.
    let forward: Forward = unsafe { bench.library.function(name) };
    // SAFETY: the signature.
    let reserve: Reserve = unsafe { bench.library.function("cudnnGetBatchNormalizationTrainingExReserveSpaceSize") };
    let n = null_mut();
    let mut size = usize::MAX;
    assert_eq!((forward(n, 1, 0, n, n, n, n, n, &raw mut size), size), (0, 0));
    size = usize::MAX;
    assert_eq!((reserve(n, 1, 0, n, n, &raw mut size), size), (0, 0));
    assert_eq!(forward(n, 1, 0, n, n, n, n, n, null_mut()), 2002);
}

#[test]
fn a_plain_convolution_takes_the_algorithm_it_was_offered() {
    let bench = bench(LIBRARY);
    bench.capability(80);
    let handle = create(&bench, "cudnnCreate");
    let x = tensor(&bench, 0, [8, 6, 32, 32], [6144, 1024, 32, 1]);
    let y = tensor(&bench, 0, [8, 16, 30, 30], [14400, 900, 30, 1]);
    let w = create(&bench, "cudnnCreateFilterDescriptor");
    type SetFilter = extern "C" fn(Object, c_int, c_int, c_int, *const c_int) -> c_int;
    // SAFETY: cudnnSetFilterNdDescriptor's signature.
    let set_filter: SetFilter = unsafe { bench.library.function("cudnnSetFilterNdDescriptor") };
    assert_eq!(set_filter(w, 0, 1, 4, [16, 3, 3, 3].as_ptr()), 0, "NHWC, two groups");
    let convolution = create(&bench, "cudnnCreateConvolutionDescriptor");
    type SetConvolution = extern "C" fn(Object, c_int, *const c_int, *const c_int, *const c_int, c_int, c_int) -> c_int;
    // SAFETY: cudnnSetConvolutionNdDescriptor's signature.
    let set_convolution: SetConvolution = unsafe { bench.library.function("cudnnSetConvolutionNdDescriptor") };
    let ones = [1, 1];
    assert_eq!(set_convolution(convolution, 2, [-1, 0].as_ptr(), ones.as_ptr(), ones.as_ptr(), 1, 0), 2000);
    assert_eq!(set_convolution(convolution, 2, [0, 0].as_ptr(), ones.as_ptr(), ones.as_ptr(), 1, 0), 0);

    type Offer = extern "C" fn(Object, Object, Object, Object, Object, c_int, *mut c_int, *mut [u8; 48]) -> c_int;
    // SAFETY: cudnnGetConvolutionForwardAlgorithm_v7's signature.
    let offer: Offer = unsafe { bench.library.function("cudnnGetConvolutionForwardAlgorithm_v7") };
    let (mut count, mut result) = (-1, [0xff; 48]);
    assert_eq!((offer(handle, x, w, convolution, y, 5, &raw mut count, &raw mut result), count), (0, 1));
    let algorithm = c_int::from_le_bytes(result[..4].try_into().expect("four bytes"));
    assert_eq!(result[16..24], [0; 8], "workspace");

    let (one, zero) = (1.0_f32, 0.0_f32);
    type Forward = extern "C" fn(
        Object,
        Ptr,
        Object,
        Ptr,
        Object,
        Ptr,
        Object,
        c_int,
        Object,
        usize,
        Ptr,
        Object,
        Object,
    ) -> c_int;
    // SAFETY: cudnnConvolutionForward's signature.
    let forward: Forward = unsafe { bench.library.function("cudnnConvolutionForward") };
    let rc = forward(
        handle,
        (&raw const one).cast(),
        x,
        at(0x1000),
        w,
        at(0x2000),
        convolution,
        algorithm,
        null_mut(),
        0,
        (&raw const zero).cast(),
        y,
        at(0x3000),
    );
    assert_eq!(rc, 0);
    let launch = bench.launch();
    assert_eq!((launch.header.class, launch.header.flops), (2, 2.0 * (8 * 16 * 30 * 30) as f64 * 27.0));
    assert_eq!(shape(&launch.operands[1]), (0x2000, 4, vec![(3, 1), (3, 3), (3, 9), (16, 27)], READ));
    assert!(!launch.through_ex && launch.stream == 0 && launch.grid[0] == 8);
}

#[test]
fn descriptions_can_be_read_back() {
    let bench = bench(LIBRARY);
    let x = tensor(&bench, 9, [2, 3, 4, 5], [60, 20, 5, 1]);
    type Get = extern "C" fn(Object, c_int, *mut c_int, *mut c_int, *mut c_int, *mut c_int) -> c_int;
    // SAFETY: cudnnGetTensorNdDescriptor's signature.
    let get: Get = unsafe { bench.library.function("cudnnGetTensorNdDescriptor") };
    let (mut elem, mut n, mut dims, mut strides) = (-1, -1, [-1; 4], [-1; 4]);
    assert_eq!(get(x, 3, &raw mut elem, &raw mut n, dims.as_mut_ptr(), strides.as_mut_ptr()), 0);
    assert_eq!((elem, n, dims, strides), (9, 4, [2, 3, 4, -1], [60, 20, 5, -1]), "room for three");
}

#[test]
fn versions_and_refusals() {
    let bench = bench(LIBRARY);
    // SAFETY: cudnnGetVersion's signature.
    let version = unsafe { bench.library.function::<extern "C" fn() -> usize>("cudnnGetVersion") }();
    // SAFETY: cudnnGetProperty's signature.
    let property = unsafe { bench.library.function::<extern "C" fn(c_int, *mut c_int) -> c_int>("cudnnGetProperty") };
    let part = |which| {
        let mut value = -1;
        assert_eq!(property(which, &raw mut value), 0);
        usize::try_from(value).expect("not negative")
    };
    assert_eq!(version, part(0) * 10_000 + part(1) * 100 + part(2));
    assert_eq!(property(3, null_mut()), 2000);
    // SAFETY: a refusal takes anything.
    let rnn = unsafe { bench.library.function::<extern "C" fn() -> c_int>("cudnnCreateRNNDescriptor") };
    assert_eq!((rnn(), bench.refused().as_str()), (3000, "cudnnCreateRNNDescriptor"));
}
