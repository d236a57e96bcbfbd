//! Recurrent networks (plain, LSTM, GRU): descriptors, and where each weight lies in the weight space.
//!
//! Each of the three passes (`pass`) is one launch; the real library makes several, at least one a layer. Weight space: of each pseudo-layer
//! (layer and direction) the input matrices of all gates, the recurrent ones, the projection; then of each pseudo-layer the biases in
//! the same order. Documented are only the order of gates, and that addresses come from [`cudnnGetRNNWeightParams`]; that the matrices
//! of one kind follow one another is what PyTorch checks (`aten/src/ATen/native/cudnn/RNN.cpp`). Source of the rest: cuDNN 9 API, "Recurrent
//! neural networks".

mod pass;

use std::ffi::{c_int, c_void};

use deepum_emu_abi::edge::Failure;
use deepum_emu_abi::elem::Elem;
use deepum_emu_abi::refused;

use crate::descriptors::{TensorDescriptor, change, lifetimes};
use crate::dropout::DropoutDescriptor;
use crate::handle::Handle;
use crate::status::Status;
use crate::tensor::{Tensor, elem};

/// `cudnnRNNDescriptor_t`.
#[derive(Debug, Default)]
pub struct RnnDescriptor(Option<Rnn>);

/// `cudnnRNNDataDescriptor_t`.
#[derive(Debug, Default)]
pub struct RnnDataDescriptor(Option<Sequences>);

lifetimes! {
    RnnDescriptor: fn cudnnCreateRNNDescriptor, fn cudnnDestroyRNNDescriptor;
    RnnDataDescriptor: fn cudnnCreateRNNDataDescriptor, fn cudnnDestroyRNNDataDescriptor;
}

/// A network's shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rnn {
    elem: Elem,
    /// `elem` as C gave it.
    kind: c_int,
    /// Matrices per input: 1, LSTM 4, GRU 3.
    gates: u64,
    lstm: bool,
    /// Bias vectors per gate: 0, 1 or 2.
    biases: u64,
    directions: u64,
    layers: u64,
    input: u64,
    hidden: u64,
    /// Length of what a layer gives on; `hidden` without projection.
    output: u64,
    /// `cudnnMathType_t`.
    math: c_int,
    drops: bool,
}

/// A batch of sequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sequences {
    elem: Elem,
    batch: u64,
    /// Vectors in memory, padding included unless the layout is packed.
    rows: u64,
    vector: u64,
}

impl Rnn {
    fn projects(&self) -> bool {
        self.output != self.hidden
    }
    fn pseudo_layers(&self) -> u64 {
        self.layers * self.directions
    }
    /// Columns of the input matrices of a pseudo-layer.
    fn columns(&self, pseudo: u64) -> u64 {
        if pseudo < self.directions { self.input } else { self.output * self.directions }
    }
    /// Elements of the matrices of a pseudo-layer.
    fn matrices(&self, pseudo: u64) -> u64 {
        let projection = if self.projects() { self.output * self.hidden } else { 0 };
        self.gates * self.hidden * (self.columns(pseudo) + self.output) + projection
    }
    /// Elements of all matrices of pseudo-layers before `pseudo`. Those of the first layer are alike, and those of all others.
    fn before(&self, pseudo: u64) -> u64 {
        let first = pseudo.min(self.directions);
        first * self.matrices(0) + (pseudo - first) * self.matrices(self.directions)
    }
    fn all_matrices(&self) -> u64 {
        self.before(self.pseudo_layers())
    }
    /// Elements of the weight space.
    fn weights(&self) -> u64 {
        self.all_matrices() + self.pseudo_layers() * self.biases * self.gates * self.hidden
    }

    /// Offset, rows and columns of matrix `id` of a pseudo-layer, in elements.
    fn matrix(&self, pseudo: u64, id: u64) -> Option<(u64, u64, u64)> {
        let (first, columns) = (self.before(pseudo), self.columns(pseudo));
        let (inputs, recurrent) = (self.gates * self.hidden * columns, self.gates * self.hidden * self.output);
        match id {
            id if id < self.gates => Some((first + id * self.hidden * columns, self.hidden, columns)),
            id if id < 2 * self.gates => {
                Some((first + inputs + (id - self.gates) * self.hidden * self.output, self.hidden, self.output))
            }
            id if id == 2 * self.gates && self.projects() => {
                Some((first + inputs + recurrent, self.output, self.hidden))
            }
            _ => None,
        }
    }
    /// Offset of bias `id` of a pseudo-layer, in elements; `hidden` long.
    fn bias(&self, pseudo: u64, id: u64) -> Option<u64> {
        let all = self.biases * self.gates;
        (id < all).then(|| self.all_matrices() + (pseudo * all + id) * self.hidden)
    }

    /// Elements of workspace and, if training, reserve space. An assumption (the library does not document them), of what must be kept:
    /// gates of one layer at work; for the backward pass gates and cells of all, and what layers give one another, twice if some of
    /// it is dropped.
    fn temporary(&self, sequences: &Sequences, training: bool) -> (u64, u64) {
        let rows = sequences.rows * self.directions;
        let gates = rows * self.gates * self.hidden;
        if !training {
            return (gates, 0);
        }
        let cells = if self.lstm { rows * self.hidden } else { 0 };
        let between = rows * self.output * if self.drops { 2 } else { 1 };
        (gates, self.layers * (gates + cells) + (self.layers - 1) * between)
    }
}

impl RnnDescriptor {
    fn rnn(&self) -> Result<&Rnn, Status> {
        self.0.as_ref().ok_or(Status::BadParam)
    }
}

impl RnnDataDescriptor {
    fn sequences(&self) -> Result<&Sequences, Status> {
        self.0.as_ref().ok_or(Status::BadParam)
    }
}

fn positive(n: c_int) -> Result<u64, Status> {
    u64::try_from(n).ok().filter(|n| *n > 0).ok_or(Status::BadParam)
}

/// Sets a network's shape.
///
/// # Safety
/// `rnn` and `dropout` are null or live.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cudnnSetRNNDescriptor_v8(
    rnn: *mut RnnDescriptor,
    _algorithm: c_int,
    cell: c_int,
    bias: c_int,
    direction: c_int,
    input_mode: c_int,
    kind: c_int,
    _precision: c_int,
    math: c_int,
    input: c_int,
    hidden: c_int,
    projection: c_int,
    layers: c_int,
    dropout: *const DropoutDescriptor,
    _flags: u32,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        change(rnn, |rnn| {
            // Relu 0, tanh 1, LSTM 2, GRU 3.
            let gates = *[1, 1, 4, 3].get(usize::try_from(cell).unwrap_or(9)).ok_or(Status::BadParam)?;
            // None 0, with the input 1, both 2, with the recurrence 3.
            let biases = *[0, 1, 2, 1].get(usize::try_from(bias).unwrap_or(9)).ok_or(Status::BadParam)?;
            if !matches!(direction, 0 | 1) || !(0..=3).contains(&math) || projection > hidden {
                return Err(Status::BadParam);
            }
            let elem = elem(kind)?;
            // Mode 1 gives inputs to the first layer without matrices.
            if input_mode != 0 || !matches!(elem, Elem::F16 | Elem::Bf16 | Elem::F32 | Elem::F64) {
                return Err(refused!(Status::NotSupported, "cuDNN RNN with input mode {input_mode}, data type {kind}"));
            }
            rnn.0 = Some(Rnn {
                elem,
                kind,
                gates,
                lstm: cell == 2,
                biases,
                directions: if direction == 1 { 2 } else { 1 },
                layers: positive(layers)?,
                input: positive(input)?,
                hidden: positive(hidden)?,
                output: positive(projection)?,
                math,
                drops: dropout.as_ref().is_some_and(DropoutDescriptor::drops),
            });
            Ok(())
        })
    }
}

/// Sets a batch's shape. Layouts: by time with padding (0), by time packed (1), by sequence with padding (2).
///
/// # Safety
/// `data` is null or live; `lengths` has `batch` elements.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cudnnSetRNNDataDescriptor(
    data: *mut RnnDataDescriptor,
    kind: c_int,
    layout: c_int,
    longest: c_int,
    batch: c_int,
    vector: c_int,
    lengths: *const c_int,
    _padding: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        change(data, |data| {
            let (longest, batch) = (positive(longest)?, positive(batch)?);
            let lengths = Status::array(lengths, usize::try_from(batch).map_err(|_| Status::BadParam)?)?;
            let lengths: Vec<u64> = lengths
                .into_iter()
                .map(|n| u64::try_from(n).ok().filter(|n| *n <= longest).ok_or(Status::BadParam))
                .collect::<Result<_, _>>()?;
            let rows = match layout {
                0 | 2 => longest * batch,
                1 => lengths.iter().sum(),
                _ => return Err(Status::BadParam),
            };
            data.0 = Some(Sequences { elem: elem(kind)?, batch, rows, vector: positive(vector)? });
            Ok(())
        })
    }
}

/// Size of the weight space.
///
/// # Safety
/// As documented by cuDNN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetRNNWeightSpaceSize(
    _handle: *mut Handle,
    rnn: *const RnnDescriptor,
    size: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| unsafe {
        let rnn = Status::get(rnn)?.rnn()?;
        Status::put(size, bytes(rnn.weights(), rnn.elem)?)
    })
}

/// Size of the workspace, and of the reserve space, which is 0 unless `mode` is training (1). Either may be null.
///
/// # Safety
/// As documented by cuDNN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetRNNTempSpaceSizes(
    _handle: *mut Handle,
    rnn: *const RnnDescriptor,
    mode: c_int,
    x: *const RnnDataDescriptor,
    workspace: *mut usize,
    reserve: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| unsafe {
        let (rnn, x) = (Status::get(rnn)?.rnn()?, Status::get(x)?.sequences()?);
        let (work, kept) = rnn.temporary(x, mode == 1);
        // PyTorch asks for one of the two in the backward pass.
        for (size, elements) in [(workspace, work), (reserve, kept)] {
            if !size.is_null() {
                Status::put(size, bytes(elements, rnn.elem)?)?;
            }
        }
        Ok(())
    })
}

/// Where matrix and bias `id` of a pseudo-layer lie in the weight space, as `[1, rows, columns]`. Address 0 and no change of the descriptor:
/// there is none. The places for either may be null.
///
/// # Safety
/// As documented by cuDNN.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cudnnGetRNNWeightParams(
    _handle: *mut Handle,
    rnn: *const RnnDescriptor,
    pseudo_layer: c_int,
    size: usize,
    space: *const c_void,
    id: c_int,
    matrix: *mut TensorDescriptor,
    matrix_at: *mut *mut c_void,
    bias: *mut TensorDescriptor,
    bias_at: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| unsafe {
        let rnn = Status::get(rnn)?.rnn()?;
        let whole = |n: c_int| u64::try_from(n).map_err(|_| Status::BadParam);
        let (pseudo, id) = (whole(pseudo_layer)?, whole(id)?);
        if pseudo >= rnn.pseudo_layers() || size < bytes(rnn.weights(), rnn.elem)? {
            return Err(Status::BadParam);
        }
        let find = |part: Option<(u64, u64, u64)>, descriptor: *mut TensorDescriptor, at: *mut *mut c_void| {
            // PyTorch asks for one of the two, and names no place for the other.
            let (Some(descriptor), false) = (descriptor.as_mut(), at.is_null()) else { return Ok(()) };
            let Some((offset, rows, columns)) = part else { return Status::put(at, std::ptr::null_mut()) };
            descriptor.set(rnn.kind, Tensor::packed(rnn.elem, &[1, rows.cast_signed(), columns.cast_signed()])?);
            Status::put(at, space.wrapping_byte_add(bytes(offset, rnn.elem)?).cast_mut())
        };
        find(rnn.matrix(pseudo, id), matrix, matrix_at)?;
        find(rnn.bias(pseudo, id).map(|offset| (offset, rnn.hidden, 1)), bias, bias_at)
    })
}

fn bytes(elements: u64, elem: Elem) -> Result<usize, Status> {
    usize::try_from(elements * u64::from(elem.bytes())).map_err(|_| Status::BadParam)
}
