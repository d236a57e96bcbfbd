//! The passes of a recurrent network: forward, gradients of data, gradients of weights.
//!
//! Arithmetic: each vector of the batch meets each matrix element once per pass with a multiply-add; what the gates compute elementwise
//! is below that by the number of columns. Sequence lengths on the device are optional and read, not known.

use std::ffi::{c_int, c_void};

use deepum_emu_abi::edge::Failure;
use deepum_emu_abi::elem::Elem;
use deepum_emu_abi::kernels::{RNN_DGRAD, RNN_FWD, RNN_WGRAD};
use deepum_emu_abi::params::{Operand, READ, WRITE};
use deepum_emu_abi::refused;

use super::{Rnn, RnnDataDescriptor, RnnDescriptor, Sequences};
use crate::descriptors::TensorDescriptor;
use crate::handle::Handle;
use crate::status::Status;

/// Operands of one pass, in the network's terms.
struct Pass<'a> {
    rnn: &'a Rnn,
    x: &'a Sequences,
    y: &'a Sequences,
}

impl<'a> Pass<'a> {
    /// # Safety
    /// The descriptors are null or live.
    unsafe fn new(
        rnn: *const RnnDescriptor,
        x: *const RnnDataDescriptor,
        y: *const RnnDataDescriptor,
    ) -> Result<Self, Status> {
        // SAFETY: the caller's promise.
        let (rnn, x, y): (&'a Rnn, _, _) =
            unsafe { (Status::get(rnn)?.rnn()?, Status::get(x)?.sequences()?, Status::get(y)?.sequences()?) };
        let fits = x.vector == rnn.input
            && y.vector == rnn.output * rnn.directions
            && (x.rows, x.batch) == (y.rows, y.batch)
            && [x.elem, y.elem] == [rnn.elem; 2];
        if fits { Ok(Self { rnn, x, y }) } else { Err(Status::BadParam) }
    }
    fn flops(&self) -> f64 {
        2.0 * self.rnn.all_matrices() as f64 * self.x.rows as f64
    }
    fn bytes(&self, ptr: *const c_void, bytes: u64, access: u32) -> Operand {
        Operand::new(ptr.addr() as u64, 1, &[(bytes, 1)], access)
    }
    fn of(&self, ptr: *const c_void, elements: u64, access: u32) -> Operand {
        Operand::new(ptr.addr() as u64, self.rnn.elem.bytes(), &[(elements, 1)], access)
    }
    fn sequences(&self, ptr: *const c_void, sequences: &Sequences, access: u32) -> Operand {
        self.of(ptr, sequences.rows * sequences.vector, access)
    }
    fn lengths(&self, ptr: *const i32) -> Operand {
        Operand::read(ptr.addr() as u64, Elem::I32.bytes(), &[(self.x.batch, 1)])
    }
    fn weights(&self, ptr: *const c_void, bytes: usize, access: u32) -> Result<Operand, Status> {
        if bytes < super::bytes(self.rnn.weights(), self.rnn.elem)? {
            return Err(Status::BadParam);
        }
        Ok(self.of(ptr, self.rnn.weights(), access))
    }
    /// First or last hidden states.
    fn hidden(&self, ptr: *const c_void, access: u32) -> Operand {
        self.of(ptr, self.rnn.pseudo_layers() * self.x.batch * self.rnn.output, access)
    }
    /// First or last cells.
    fn cells(&self, ptr: *const c_void, access: u32) -> Operand {
        let ptr = if self.rnn.lstm { ptr } else { std::ptr::null() };
        self.of(ptr, self.rnn.pseudo_layers() * self.x.batch * self.rnn.hidden, access)
    }
}

/// Runs the network over a batch of sequences. `mode`: inference 0, training 1.
///
/// # Safety
/// As documented by cuDNN.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cudnnRNNForward(
    handle: *mut Handle,
    rnn: *const RnnDescriptor,
    mode: c_int,
    lengths: *const i32,
    x: *const RnnDataDescriptor,
    x_data: *const c_void,
    y: *const RnnDataDescriptor,
    y_data: *mut c_void,
    _h: *const TensorDescriptor,
    hx: *const c_void,
    hy: *mut c_void,
    _c: *const TensorDescriptor,
    cx: *const c_void,
    cy: *mut c_void,
    weight_bytes: usize,
    weights: *const c_void,
    work_bytes: usize,
    work: *mut c_void,
    reserve_bytes: usize,
    reserve: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| unsafe {
        let (handle, pass) = (Status::get(handle)?, Pass::new(rnn, x, y)?);
        let (needed, kept) = pass.rnn.temporary(pass.x, mode == 1);
        let (needed, kept) = (super::bytes(needed, pass.rnn.elem)?, super::bytes(kept, pass.rnn.elem)?);
        if work_bytes < needed || reserve_bytes < kept {
            return Err(Status::BadParam);
        }
        let operands = [
            pass.sequences(x_data, pass.x, READ),
            pass.sequences(y_data, pass.y, WRITE),
            pass.hidden(hx, READ),
            pass.hidden(hy, WRITE),
            pass.cells(cx, READ),
            pass.cells(cy, WRITE),
            pass.weights(weights, weight_bytes, READ)?,
            pass.lengths(lengths),
            pass.bytes(work, needed as u64, READ | WRITE),
            pass.bytes(reserve, kept as u64, WRITE),
        ];
        let class = handle.class(pass.rnn.elem, pass.rnn.math);
        handle.launch::<{ RNN_FWD.operands }>(RNN_FWD, pass.y.rows * pass.y.vector, pass.flops(), class, &operands)
    })
}

/// Gradients of the input and of the first states, after a forward pass in training.
///
/// # Safety
/// As documented by cuDNN.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cudnnRNNBackwardData_v8(
    handle: *mut Handle,
    rnn: *const RnnDescriptor,
    lengths: *const i32,
    y: *const RnnDataDescriptor,
    y_data: *const c_void,
    dy: *const c_void,
    x: *const RnnDataDescriptor,
    dx: *mut c_void,
    _h: *const TensorDescriptor,
    hx: *const c_void,
    dhy: *const c_void,
    dhx: *mut c_void,
    _c: *const TensorDescriptor,
    cx: *const c_void,
    dcy: *const c_void,
    dcx: *mut c_void,
    weight_bytes: usize,
    weights: *const c_void,
    work_bytes: usize,
    work: *mut c_void,
    reserve_bytes: usize,
    reserve: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| unsafe {
        let (handle, pass) = (Status::get(handle)?, Pass::new(rnn, x, y)?);
        let operands = [
            pass.sequences(y_data, pass.y, READ),
            pass.sequences(dy, pass.y, READ),
            pass.sequences(dx, pass.x, WRITE),
            pass.hidden(hx, READ),
            pass.hidden(dhy, READ),
            pass.hidden(dhx, WRITE),
            pass.cells(cx, READ),
            pass.cells(dcy, READ),
            pass.cells(dcx, WRITE),
            pass.weights(weights, weight_bytes, READ)?,
            pass.lengths(lengths),
            pass.bytes(work, work_bytes as u64, READ | WRITE),
            // The gates' gradients take the gates' place.
            pass.bytes(reserve, reserve_bytes as u64, READ | WRITE),
        ];
        let class = handle.class(pass.rnn.elem, pass.rnn.math);
        handle.launch::<{ RNN_DGRAD.operands }>(RNN_DGRAD, pass.x.rows * pass.x.vector, pass.flops(), class, &operands)
    })
}

/// Gradients of the weights, after [`cudnnRNNBackwardData_v8`]: added to (`mode` 0, the one cuDNN documents as supported).
///
/// # Safety
/// As documented by cuDNN.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cudnnRNNBackwardWeights_v8(
    handle: *mut Handle,
    rnn: *const RnnDescriptor,
    mode: c_int,
    lengths: *const i32,
    x: *const RnnDataDescriptor,
    x_data: *const c_void,
    _h: *const TensorDescriptor,
    hx: *const c_void,
    y: *const RnnDataDescriptor,
    y_data: *const c_void,
    weight_bytes: usize,
    dweights: *mut c_void,
    work_bytes: usize,
    work: *mut c_void,
    reserve_bytes: usize,
    reserve: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| unsafe {
        if mode != 0 {
            return Err(refused!(Status::NotSupported, "cuDNN RNN with weight gradient mode {mode}"));
        }
        let (handle, pass) = (Status::get(handle)?, Pass::new(rnn, x, y)?);
        let operands = [
            pass.sequences(x_data, pass.x, READ),
            pass.hidden(hx, READ),
            pass.sequences(y_data, pass.y, READ),
            pass.weights(dweights, weight_bytes, READ | WRITE)?,
            pass.lengths(lengths),
            pass.bytes(work, work_bytes as u64, READ | WRITE),
            pass.bytes(reserve, reserve_bytes as u64, READ),
        ];
        let class = handle.class(pass.rnn.elem, pass.rnn.math);
        handle.launch::<{ RNN_WGRAD.operands }>(RNN_WGRAD, pass.rnn.weights(), pass.flops(), class, &operands)
    })
}
