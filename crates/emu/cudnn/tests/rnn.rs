//! Recurrent networks of the stand-in cuDNN: weights tile their space, passes touch what they are given.

#[path = "../../abi/fake/mod.rs"]
#[allow(dead_code, reason = "what other tests look at")]
mod fake;

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use deepum_emu_abi::params::{READ, WRITE};
use fake::{Bench, bench, call, shape};

const LIBRARY: &str = "libdeepum_emu_cudnn.so";
const FLOAT: c_int = 0;
const RELU: c_int = 0;
const LSTM: c_int = 2;
const GRU: c_int = 3;
const DOUBLE_BIAS: c_int = 2;
const BAD_PARAM: c_int = 2000;
type Object = *mut c_void;

const NULL: Object = null_mut();

fn at(address: usize) -> Object {
    std::ptr::without_provenance_mut(address)
}

/// An object by one of the functions that create it.
macro_rules! create {
    ($bench:expr, $name:ident) => {{
        let mut object = NULL;
        assert_eq!(call!($bench, $name: &raw mut object), 0);
        object
    }};
}

/// Single precision, two biases.
#[derive(Clone, Copy, Debug)]
struct Net {
    cell: c_int,
    directions: c_int,
    input: c_int,
    hidden: c_int,
    projection: c_int,
    layers: c_int,
}

fn network(bench: &Bench, net: Net) -> Object {
    let rnn = create!(bench, cudnnCreateRNNDescriptor);
    let set = call!(bench, cudnnSetRNNDescriptor_v8: rnn, 0, net.cell, DOUBLE_BIAS, net.directions - 1, 0, FLOAT, FLOAT, 0,
        net.input, net.hidden, net.projection, net.layers, NULL, 0_u32);
    assert_eq!(set, 0);
    rnn
}

fn weight_bytes(bench: &Bench, rnn: Object) -> usize {
    let mut size = 0_usize;
    assert_eq!(call!(bench, cudnnGetRNNWeightSpaceSize: NULL, rnn, &raw mut size), 0);
    size
}

fn sequences(bench: &Bench, layout: c_int, vector: c_int, lengths: &[c_int]) -> Object {
    let data = create!(bench, cudnnCreateRNNDataDescriptor);
    let (longest, batch) = (*lengths.iter().max().expect("some"), c_int::try_from(lengths.len()).expect("few"));
    let set =
        call!(bench, cudnnSetRNNDataDescriptor: data, FLOAT, layout, longest, batch, vector, lengths.as_ptr(), NULL);
    assert_eq!(set, 0);
    data
}

/// Offset and size of each matrix and bias.
fn parts(bench: &Bench, net: Net, rnn: Object) -> Vec<(usize, usize)> {
    const BASE: usize = 0x10_0000;
    let size = weight_bytes(bench, rnn);
    let descriptors = [(); 2].map(|()| create!(bench, cudnnCreateTensorDescriptor));
    let mut parts = Vec::new();
    for pseudo in 0..net.directions * net.layers {
        for id in 0..9 {
            let (mut matrix, mut bias) = (NULL, NULL);
            let get = call!(bench, cudnnGetRNNWeightParams: NULL, rnn, pseudo, size, at(BASE), id, descriptors[0],
                &raw mut matrix, descriptors[1], &raw mut bias);
            assert_eq!(get, 0);
            for (found, descriptor) in [matrix, bias].into_iter().zip(descriptors).filter(|(found, _)| *found != NULL) {
                let (mut elem, mut n, mut dims, mut strides): (c_int, c_int, [c_int; 3], [c_int; 3]) =
                    (9, 0, [0; 3], [0; 3]);
                let read = call!(bench, cudnnGetTensorNdDescriptor: descriptor, 3, &raw mut elem, &raw mut n,
                    dims.as_mut_ptr(), strides.as_mut_ptr());
                assert_eq!((read, elem, n, dims[0]), (0, FLOAT, 3, 1));
                parts.push((found.addr() - BASE, 4 * usize::try_from(dims[1] * dims[2]).expect("positive")));
            }
        }
    }
    parts
}

#[test]
fn matrices_and_biases_tile_the_weight_space() {
    let bench = bench(LIBRARY);
    let plain = Net { cell: RELU, directions: 1, input: 3, hidden: 5, projection: 5, layers: 1 };
    for net in [
        plain,
        Net { cell: LSTM, directions: 2, layers: 3, ..plain },
        Net { cell: GRU, directions: 2, input: 7, hidden: 4, projection: 4, layers: 2 },
        Net { cell: LSTM, directions: 2, input: 6, hidden: 8, projection: 3, layers: 2 },
    ] {
        let rnn = network(&bench, net);
        let mut parts = parts(&bench, net, rnn);
        parts.sort_unstable();
        let end = parts.into_iter().fold(0, |end, (start, len)| {
            assert_eq!(start, end, "{net:?} leaves a gap or overlaps");
            start + len
        });
        assert_eq!(end, weight_bytes(&bench, rnn), "{net:?}");
    }
    // One plain layer: two matrices of 5 rows, two biases.
    assert_eq!(weight_bytes(&bench, network(&bench, plain)), 4 * (5 * 3 + 5 * 5 + 5 + 5));
}

#[test]
fn a_packed_batch_has_no_padding_and_too_little_workspace_is_refused() {
    let bench = bench(LIBRARY);
    let handle = create!(bench, cudnnCreate);
    let rnn = network(&bench, Net { cell: LSTM, directions: 2, input: 16, hidden: 32, projection: 32, layers: 1 });
    let weights = weight_bytes(&bench, rnn);
    for (layout, rows) in [(0, 21), (1, 12)] {
        let [x, y] = [16, 64].map(|vector| sequences(&bench, layout, vector, &[7, 4, 1]));
        let (mut work, mut kept) = (0_usize, 0_usize);
        assert_eq!(call!(bench, cudnnGetRNNTempSpaceSizes: handle, rnn, 1, x, &raw mut work, &raw mut kept), 0);
        bench.forget();
        let run = |work: usize, x, y| {
            call!(bench, cudnnRNNForward: handle, rnn, 1, NULL, x, at(0x1000), y, at(0x2000), NULL, NULL, at(0x3000), NULL,
                at(0x4000), at(0x5000), weights, at(0x6000), work, at(0x7000), kept, at(0x8000))
        };
        assert_eq!(run(work - 1, x, y), BAD_PARAM, "workspace too small");
        assert_eq!(run(work, y, x), BAD_PARAM, "widths exchanged");
        assert!(bench.launches().is_empty());
        assert_eq!(run(work, x, y), 0);
        let launch = bench.launch();
        assert_eq!(launch.name, "deepum_emu_rnn_fprop");
        let got: Vec<_> = launch.operands.iter().map(shape).collect();
        let states = 2 * 3 * 32;
        assert_eq!(
            got,
            [
                (0x1000, 4, vec![(rows * 16, 1)], READ),
                (0x2000, 4, vec![(rows * 64, 1)], WRITE),
                (0x3000, 4, vec![(states, 1)], WRITE),
                (0x4000, 4, vec![(states, 1)], READ),
                (0x5000, 4, vec![(states, 1)], WRITE),
                (0x6000, 4, vec![(weights as u64 / 4, 1)], READ),
                (0x7000, 1, vec![(work as u64, 1)], READ | WRITE),
                (0x8000, 1, vec![(kept as u64, 1)], WRITE),
            ]
        );
        // Two directions, four gates of 32 rows, 16 and 32 columns; a multiply and an add each.
        assert_eq!(launch.header.flops, 2.0 * (2 * 4 * 32 * (16 + 32) * rows) as f64);
    }
}

#[test]
fn gradients_touch_what_they_are_given_with_the_arithmetic_of_the_forward_pass() {
    let bench = bench(LIBRARY);
    let h = create!(bench, cudnnCreate);
    let rnn = network(&bench, Net { cell: GRU, directions: 1, input: 3, hidden: 5, projection: 5, layers: 1 });
    let size = weight_bytes(&bench, rnn);
    let [x, y] = [3, 5].map(|vector| sequences(&bench, 0, vector, &[2, 1]));
    let got = || {
        let launch = bench.launch();
        // Three gates of 5 rows, 3 and 5 columns, for two steps of two sequences, one of which is padded.
        assert_eq!(launch.header.flops, 2.0 * 120.0 * 4.0);
        (launch.name, launch.operands.iter().map(|o| (o.ptr >> 12, o.access)).collect::<Vec<_>>())
    };
    let rc = call!(bench, cudnnRNNBackwardData_v8: h, rnn, at(0xb000), y, at(0x1000), at(0x2000), x, at(0x3000), NULL, at(0x4000),
        at(0x5000), at(0x6000), NULL, at(0x7000), at(0x8000), at(0x9000), size, at(0xa000), 64_usize, at(0xc000), 64_usize, at(0xd000));
    assert_eq!(rc, 0);
    const RW: u32 = READ | WRITE;
    let states = [(4, READ), (5, READ), (6, WRITE)];
    let expected =
        [&[(1, READ), (2, READ), (3, WRITE)][..], &states, &[(10, READ), (11, READ), (12, RW), (13, RW)]].concat();
    assert_eq!(got(), ("deepum_emu_rnn_bprop_data".to_owned(), expected), "a GRU has no cells");
    let weights = |mode| {
        call!(bench, cudnnRNNBackwardWeights_v8: h, rnn, mode, at(0x5000), x, at(0x1000), NULL, at(0x2000), y, at(0x3000), size,
            at(0x4000), 64_usize, at(0x6000), 64_usize, at(0x7000))
    };
    assert_eq!(weights(0), 0);
    let expected = vec![(1, READ), (2, READ), (3, READ), (4, RW), (5, READ), (6, RW), (7, READ)];
    assert_eq!(got(), ("deepum_emu_rnn_bprop_weights".to_owned(), expected));
    assert_eq!((weights(1), bench.refused().as_str()), (3000, "cuDNN RNN with weight gradient mode 1"));
}
