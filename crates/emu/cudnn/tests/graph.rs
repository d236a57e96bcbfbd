//! The stand-in cuDNN's graph interface, driven as PyTorch's convolution code drives it.

#[path = "../../abi/fake/mod.rs"]
mod fake;

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use deepum_emu_abi::params::{READ, WRITE};
use fake::{Bench, bench, call, shape};

const LIBRARY: &str = "libdeepum_emu_cudnn.so";
type Object = *mut c_void;

const HANDLE: c_int = 0;
const DATA_TYPE: c_int = 1;
const BOOLEAN: c_int = 2;
const INT64: c_int = 3;
const DOUBLE: c_int = 5;
const VOID_PTR: c_int = 6;
const HEUR_MODE: c_int = 8;
const NUMERICAL_NOTE: c_int = 11;
const DESCRIPTOR: c_int = 15;

const FLOAT: c_int = 0;
const HALF: c_int = 2;
const BF16: c_int = 9;

/// The library, a handle, and its calls.
struct Cudnn<'a> {
    bench: &'a Bench,
    handle: Object,
}

impl<'a> Cudnn<'a> {
    fn new(bench: &'a Bench) -> Self {
        let mut handle = null_mut();
        assert_eq!(call!(bench, cudnnCreate: &raw mut handle), 0);
        Self { bench, handle }
    }
    fn create(&self, kind: c_int) -> Result<Object, c_int> {
        let mut object: Object = null_mut();
        match call!(self.bench, cudnnBackendCreateDescriptor: kind, &raw mut object) {
            0 => Ok(object),
            status => Err(status),
        }
    }
    fn set<T>(&self, object: Object, name: c_int, kind: c_int, values: &[T]) -> c_int {
        call!(self.bench, cudnnBackendSetAttribute: object, name, kind, values.len() as i64, values.as_ptr())
    }
    /// Status, and how many elements there are; fills `values`.
    fn get<T>(&self, object: Object, name: c_int, kind: c_int, values: &mut [T]) -> (c_int, i64) {
        let (mut count, room, to) = (-1_i64, values.len() as i64, values.as_mut_ptr());
        let rc = call!(self.bench, cudnnBackendGetAttribute: object, name, kind, room, &raw mut count, to);
        (rc, count)
    }
    fn destroy(&self, object: Object) {
        assert_eq!(call!(self.bench, cudnnBackendDestroyDescriptor: object), 0);
    }
    fn finalize(&self, object: Object) -> c_int {
        call!(self.bench, cudnnBackendFinalize: object)
    }
    /// A finalised descriptor with the given descriptor attributes set.
    fn node(&self, kind: c_int, set: impl FnOnce(Object)) -> Object {
        let object = self.create(kind).expect("a kind that is supported");
        set(object);
        assert_eq!(self.finalize(object), 0, "kind {kind}");
        object
    }
    fn tensor(&self, uid: i64, elem: c_int, dims: &[i64], strides: &[i64], is_virtual: bool) -> Object {
        self.node(17, |t| {
            assert_eq!(self.set(t, 901, DATA_TYPE, &[elem]), 0);
            assert_eq!(self.set(t, 902, INT64, dims), 0);
            assert_eq!(self.set(t, 903, INT64, strides), 0);
            assert_eq!(self.set(t, 906, INT64, &[uid]), 0);
            assert_eq!(self.set(t, 900, INT64, &[16_i64]), 0);
            assert_eq!(self.set(t, 907, BOOLEAN, &[is_virtual]), 0);
        })
    }
    fn convolution(&self) -> Object {
        self.node(1, |c| {
            assert_eq!(self.set(c, 100, DATA_TYPE, &[FLOAT]), 0);
            assert_eq!(self.set(c, 106, INT64, &[2_i64]), 0);
        })
    }
    /// An operation graph of finished operations.
    fn graph(&self, operations: &[Object]) -> Object {
        self.node(15, |g| {
            assert_eq!(self.set(g, 800, HANDLE, &[self.handle]), 0);
            assert_eq!(self.set(g, 801, DESCRIPTOR, operations), 0);
        })
    }
    /// Engine configurations the heuristic offers, with their numerical notes.
    fn engines(&self, graph: Object) -> Vec<(Object, Vec<c_int>)> {
        let heuristic = self.node(4, |h| {
            assert_eq!(self.set(h, 201, DESCRIPTOR, &[graph]), 0);
            assert_eq!(self.set(h, 200, HEUR_MODE, &[0_i32]), 0);
        });
        let (rc, count) = self.get::<Object>(heuristic, 202, DESCRIPTOR, &mut []);
        assert_eq!(rc, 0);
        let mut found: Vec<Object> = (0..count).map(|_| self.create(3).expect("configuration")).collect();
        assert_eq!(self.get(heuristic, 202, DESCRIPTOR, &mut found), (0, count));
        self.destroy(heuristic);
        let notes = |configuration| {
            let mut engine = [self.create(2).expect("engine")];
            assert_eq!(self.get(configuration, 300, DESCRIPTOR, &mut engine), (0, 1));
            let mut notes = [-1; 9];
            let (rc, n) = self.get(engine[0], 1303, NUMERICAL_NOTE, &mut notes);
            assert_eq!(rc, 0);
            notes[..usize::try_from(n).expect("a count")].to_vec()
        };
        found.into_iter().map(|c| (c, notes(c))).collect()
    }
    fn run(&self, configuration: Object, tensors: &[(i64, usize)]) -> c_int {
        let plan = self.node(5, |p| {
            assert_eq!(self.set(p, 400, HANDLE, &[self.handle]), 0);
            assert_eq!(self.set(p, 401, DESCRIPTOR, &[configuration]), 0);
        });
        let mut workspace = [-1_i64];
        assert_eq!((self.get(plan, 402, INT64, &mut workspace), workspace), ((0, 1), [0]));
        let ids: Vec<i64> = tensors.iter().map(|t| t.0).collect();
        let pointers: Vec<usize> = tensors.iter().map(|t| t.1).collect();
        let pack = self.node(16, |v| {
            assert_eq!(self.set(v, 1000, INT64, &ids), 0);
            assert_eq!(self.set(v, 1001, VOID_PTR, &pointers), 0);
            assert_eq!(self.set(v, 1003, VOID_PTR, &[0_usize]), 0);
        });
        call!(self.bench, cudnnBackendExecute: self.handle, plan, pack)
    }
}

/// 8 images of 3 × 32 × 32, 16 filters of 3 × 5 × 5, 28 × 28 results; x channels-last.
fn forward(cudnn: &Cudnn<'_>, elem: c_int, beta: f64) -> Object {
    let x = cudnn.tensor(i64::from(b'x'), elem, &[8, 3, 32, 32], &[3072, 1, 96, 3], false);
    let w = cudnn.tensor(i64::from(b'w'), elem, &[16, 3, 5, 5], &[75, 25, 5, 1], false);
    let y = cudnn.tensor(i64::from(b'y'), elem, &[8, 16, 28, 28], &[12544, 784, 28, 1], false);
    let convolution = cudnn.convolution();
    let operation = cudnn.node(10, |o| {
        for (name, child) in [(704, x), (703, w), (705, y), (702, convolution)] {
            assert_eq!(cudnn.set(o, name, DESCRIPTOR, &[child]), 0);
        }
        assert_eq!(cudnn.set(o, 700, DOUBLE, &[1.0_f64]), 0);
        assert_eq!(cudnn.set(o, 701, DOUBLE, &[beta]), 0);
    });
    // What was set is kept, though its descriptors are gone.
    for child in [x, w, y, convolution] {
        cudnn.destroy(child);
    }
    cudnn.graph(&[operation])
}

const PLACES: [(i64, usize); 3] = [(b'y' as i64, 0x3000), (b'x' as i64, 0x1000), (b'w' as i64, 0x2000)];
const FLOPS: f64 = 2.0 * (8 * 16 * 28 * 28) as f64 * 75.0;

#[test]
fn a_convolution_runs_from_graph_to_launch() {
    let bench = bench(LIBRARY);
    bench.capability(80);
    let cudnn = Cudnn::new(&bench);
    let engines = cudnn.engines(forward(&cudnn, HALF, 0.0));
    assert_eq!(engines.iter().map(|e| e.1.clone()).collect::<Vec<_>>(), [vec![0], vec![]]);
    assert_eq!(cudnn.run(engines[0].0, &PLACES), 0);
    let launch = bench.launch();
    assert_eq!((launch.name.as_str(), launch.through_ex, launch.stream), ("deepum_emu_conv_fprop", false, 0));
    assert_eq!((launch.header.flops, launch.header.class), (FLOPS, 3));
    assert_eq!(launch.grid, [7, 1, 1], "one block for 128 x 128 results");
    assert_eq!(
        launch.operands.iter().map(shape).collect::<Vec<_>>(),
        [
            (0x1000, 2, vec![(3, 1), (32, 3), (32, 96), (8, 3072)], READ),
            (0x2000, 2, vec![(5, 1), (5, 5), (3, 25), (16, 75)], READ),
            (0x3000, 2, vec![(28, 1), (28, 28), (16, 784), (8, 12544)], WRITE),
        ]
    );
}

#[test]
fn tf32_is_an_engine_that_can_be_declined_and_that_older_devices_lack() {
    let bench = bench(LIBRARY);
    bench.capability(80);
    let cudnn = Cudnn::new(&bench);
    let engines = cudnn.engines(forward(&cudnn, FLOAT, 0.0));
    let mut classes = Vec::new();
    for (engine, _) in &engines {
        assert_eq!(cudnn.run(*engine, &PLACES), 0);
        classes.push(bench.launch().header.class);
    }
    assert_eq!(classes, [2, 0]);
    bench.capability(70);
    let older = Cudnn::new(&bench);
    assert_eq!(older.engines(forward(&older, FLOAT, 0.0)).len(), 1);
    assert_eq!(older.engines(forward(&older, HALF, 0.0)).len(), 2);
    assert_eq!(older.engines(forward(&older, BF16, 0.0)).len(), 0);
    bench.capability(80);
}

#[test]
fn blending_reads_the_result_and_missing_pointers_are_refused() {
    let bench = bench(LIBRARY);
    let cudnn = Cudnn::new(&bench);
    let engine = cudnn.engines(forward(&cudnn, FLOAT, 1.0))[0].0;
    assert_eq!(cudnn.run(engine, &PLACES), 0);
    assert_eq!(bench.launch().operands[2].access, READ | WRITE);
    assert_eq!(cudnn.run(engine, &PLACES[..2]), 2000, "no pointer for w");
    assert!(bench.launches().is_empty());
}

#[test]
fn gradients_have_the_arithmetic_of_the_forward_pass() {
    let bench = bench(LIBRARY);
    let cudnn = Cudnn::new(&bench);
    let x = || cudnn.tensor(1, FLOAT, &[8, 3, 32, 32], &[3072, 1024, 32, 1], false);
    let w = || cudnn.tensor(2, FLOAT, &[16, 3, 5, 5], &[75, 25, 5, 1], false);
    let y = || cudnn.tensor(3, FLOAT, &[8, 16, 28, 28], &[12544, 784, 28, 1], false);
    // (kind, attributes of convolution, two inputs, output; names of tensors; kernel)
    let data = (12, [708, 709, 711, 710], [w(), y(), x()], "deepum_emu_conv_dgrad", [3, 2, 1]);
    let filter = (11, [714, 716, 717, 715], [x(), y(), w()], "deepum_emu_conv_wgrad", [1, 3, 2]);
    for (kind, names, tensors, kernel, order) in [data, filter] {
        let operation = cudnn.node(kind, |o| {
            assert_eq!(cudnn.set(o, names[0], DESCRIPTOR, &[cudnn.convolution()]), 0);
            for (name, tensor) in names[1..].iter().zip(tensors) {
                assert_eq!(cudnn.set(o, *name, DESCRIPTOR, &[tensor]), 0);
            }
        });
        let engine = cudnn.engines(cudnn.graph(&[operation]))[0].0;
        assert_eq!(cudnn.run(engine, &[(1, 0x1000), (2, 0x2000), (3, 0x3000)]), 0);
        let launch = bench.launch();
        assert_eq!((launch.name.as_str(), launch.header.flops), (kernel, FLOPS));
        let ptrs: Vec<_> = launch.operands.iter().map(|o| (o.ptr / 0x1000, o.access)).collect();
        assert_eq!(ptrs, [(order[0], READ), (order[1], READ), (order[2], WRITE)]);
    }
}

#[test]
fn fused_operations_touch_no_virtual_tensor() {
    let bench = bench(LIBRARY);
    let cudnn = Cudnn::new(&bench);
    let x = cudnn.tensor(1, FLOAT, &[8, 3, 32, 32], &[3072, 1024, 32, 1], false);
    let w = cudnn.tensor(2, FLOAT, &[16, 3, 5, 5], &[75, 25, 5, 1], false);
    let y = cudnn.tensor(3, FLOAT, &[8, 16, 28, 28], &[12544, 784, 28, 1], true);
    let bias = cudnn.tensor(4, FLOAT, &[1, 16, 1, 1], &[16, 1, 1, 1], false);
    let z = cudnn.tensor(5, FLOAT, &[8, 16, 28, 28], &[12544, 784, 28, 1], false);
    let convolution = cudnn.node(10, |o| {
        for (name, child) in [(704, x), (703, w), (705, y), (702, cudnn.convolution())] {
            assert_eq!(cudnn.set(o, name, DESCRIPTOR, &[child]), 0);
        }
    });
    let add = cudnn.node(13, |o| {
        let pointwise = cudnn.node(0, |p| assert_eq!(cudnn.set(p, 0, 14, &[0_i32]), 0));
        for (name, child) in [(750, pointwise), (751, y), (752, bias), (753, z)] {
            assert_eq!(cudnn.set(o, name, DESCRIPTOR, &[child]), 0);
        }
    });
    let engine = cudnn.engines(cudnn.graph(&[convolution, add]))[0].0;
    assert_eq!(cudnn.run(engine, &[(1, 0x1000), (2, 0x2000), (4, 0x4000), (5, 0x5000)]), 0);
    let launch = bench.launch();
    let ptrs: Vec<_> = launch.operands.iter().map(|o| (o.ptr, o.access)).collect();
    assert_eq!(ptrs, [(0x1000, READ), (0x2000, READ), (0x4000, READ), (0x5000, WRITE)]);
    assert_eq!(launch.header.flops, FLOPS);
}

#[test]
fn attention_touches_its_arguments_and_never_the_scores() {
    let bench = bench(LIBRARY);
    let cudnn = Cudnn::new(&bench);
    // 2 batches, 4 heads, 128 queries, 256 keys, 64 wide.
    let heads = |uid, rows: i64| cudnn.tensor(uid, HALF, &[2, 4, rows, 64], &[256 * rows, 64 * rows, 64, 1], false);
    let scores = |uid| cudnn.tensor(uid, FLOAT, &[2, 4, 128, 256], &[131_072, 32768, 256, 1], true);
    let column = cudnn.tensor(5, FLOAT, &[2, 4, 128, 1], &[512, 128, 1, 1], false);
    let bias = cudnn.tensor(6, HALF, &[1, 1, 128, 256], &[32768, 32768, 256, 1], false);
    let add_bias = cudnn.node(13, |o| {
        let pointwise = cudnn.node(0, |p| assert_eq!(cudnn.set(p, 0, 14, &[0_i32]), 0));
        for (name, child) in [(750, pointwise), (751, scores(10)), (752, bias), (753, scores(11))] {
            assert_eq!(cudnn.set(o, name, DESCRIPTOR, &[child]), 0);
        }
    });
    // The graph of what happens to the scores has no handle.
    let subgraph = cudnn.node(15, |g| assert_eq!(cudnn.set(g, 801, DESCRIPTOR, &[add_bias]), 0));
    let softmax = cudnn.node(45, |o| {
        for (name, child) in [(3100, scores(11)), (3101, scores(12)), (3102, column)] {
            assert_eq!(cudnn.set(o, name, DESCRIPTOR, &[child]), 0);
        }
    });
    let attention = cudnn.node(41, |o| {
        for (name, child) in [
            (2800, heads(1, 128)),
            (2801, heads(2, 256)),
            (2802, heads(3, 256)),
            (2803, heads(4, 128)),
            (2814, softmax),
            (2811, subgraph),
        ] {
            assert_eq!(cudnn.set(o, name, DESCRIPTOR, &[child]), 0);
        }
    });
    let engine = cudnn.engines(cudnn.graph(&[attention]))[0].0;
    let places = [(1, 0x1000), (2, 0x2000), (3, 0x3000), (4, 0x4000), (5, 0x5000), (6, 0x6000)];
    assert_eq!(cudnn.run(engine, &places), 0);
    let launch = bench.launch();
    assert_eq!((launch.name.as_str(), launch.header.class), ("deepum_emu_fused_graph", 3));
    let mut got: Vec<_> = launch.operands.iter().map(|o| (o.ptr >> 12, o.access)).collect();
    got.sort_unstable();
    assert_eq!(got, [(1, READ), (2, READ), (3, READ), (4, WRITE), (5, WRITE), (6, READ)]);
    // Of 8 heads, 128 × 256 scores of 64 multiply-adds, and 128 × 64 results of 256.
    assert_eq!(launch.header.flops, 2.0 * 2.0 * 8.0 * 128.0 * 256.0 * 64.0);
}

#[test]
fn the_rules_of_descriptors() {
    let bench = bench(LIBRARY);
    let cudnn = Cudnn::new(&bench);
    assert_eq!(cudnn.create(42), Err(3001), "grouped products are not supported");
    assert_eq!(bench.refused(), "cuDNN graph descriptor of kind 42");
    let open = cudnn.create(17).expect("tensor");
    assert_eq!(cudnn.get(open, 902, INT64, &mut [0_i64]), (2004, -1), "not finalised");
    assert_eq!(cudnn.finalize(open), 2000, "a tensor without a shape");
    assert_eq!(cudnn.set(open, 913, DESCRIPTOR, &[open]), 2004, "a child that is not finalised");
    assert_eq!(cudnn.set(open, 704, INT64, &[1_i64]), 3000, "an attribute of another kind");
    assert_eq!(bench.refused(), "cuDNN graph attribute 704 set for kind 17");
    let tensor = cudnn.tensor(1, FLOAT, &[4, 4], &[4, 1], false);
    assert_eq!(cudnn.set(tensor, 906, INT64, &[2_i64]), 2000, "finalised");
    let mut dims = [-1_i64; 1];
    // PyTorch asks a heuristic with two results for one, and then uses as many as the count says.
    assert_eq!((cudnn.get(tensor, 902, INT64, &mut dims), dims), ((0, 1), [4]), "no more than there is room for");
    assert_eq!(cudnn.get::<i64>(tensor, 902, INT64, &mut []), (0, 2), "how many there are");
    assert_eq!(cudnn.get(tensor, 902, DOUBLE, &mut dims).0, 2010, "another type");
    assert_eq!(cudnn.set::<i64>(null_mut(), 902, INT64, &[1]), 2002);
    let engine = cudnn.create(2).expect("engine");
    let graph = forward(&cudnn, FLOAT, 0.0);
    assert_eq!(cudnn.set(engine, 1300, DESCRIPTOR, &[graph]), 0);
    assert_eq!(cudnn.set(engine, 1301, INT64, &[25_i64]), 0);
    assert_eq!(cudnn.finalize(engine), 3000, "an engine that does not exist");
}
