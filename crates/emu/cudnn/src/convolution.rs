//! Convolutions by plain function calls, for programs that do not use the graph interface.
//!
//! One algorithm is offered for each direction (implicit matrix product, number 1), needing no workspace. The few
//! operations an element of what is fused with a convolution are not counted.

use std::ffi::{c_int, c_void};

use deepum_emu_abi::edge::Failure;
use deepum_emu_abi::kernels::{CONV_DGRAD, CONV_FWD, CONV_WGRAD, Kernel};
use deepum_emu_abi::params::{Operand, READ, WRITE};

use crate::descriptors::{ActivationDescriptor, ConvolutionDescriptor, FilterDescriptor, TensorDescriptor};
use crate::handle::Handle;
use crate::status::{Outcome, Status};
use crate::tensor::{Tensor, blended, convolution_flops};

/// The algorithm offered: `CUDNN_CONVOLUTION_*_ALGO_1`, or `IMPLICIT_PRECOMP_GEMM` forward.
const ALGORITHM: c_int = 1;

/// `cudnnConvolutionFwdAlgoPerf_t`, and the two others, which are laid out alike.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Performance {
    algorithm: c_int,
    status: c_int,
    milliseconds: f32,
    memory: usize,
    deterministic: c_int,
    math_type: c_int,
    reserved: [c_int; 3],
}
const _: () = assert!(size_of::<Performance>() == 48);

/// A tensor and where it is.
type Place<'a> = (&'a Tensor, *const c_void);

/// One direction of a convolution: two inputs, a result blended with `beta` times its old value. `filter` and `output` are
/// those among them.
///
/// # Safety
/// Pointers are null or live; `beta` points to a host scalar.
#[allow(clippy::too_many_arguments, reason = "what the three directions have in common")]
unsafe fn convolve(
    kernel: Kernel,
    handle: *const Handle,
    convolution: *const ConvolutionDescriptor,
    inputs: [Place<'_>; 2],
    beta: *const c_void,
    result: Place<'_>,
    [filter, output]: [&Tensor; 2],
) -> Outcome {
    let [(first, first_data), (second, second_data)] = inputs;
    // SAFETY: the caller's promise.
    let access = unsafe { blended(beta, first.elem) }?;
    let operands =
        [first.operand(first_data, READ), second.operand(second_data, READ), result.0.operand(result.1, access)];
    // SAFETY: the caller's promise.
    unsafe { launch(kernel, handle, convolution, result.0, convolution_flops(filter, output), output, &operands) }
}

/// # Safety
/// Pointers are null or live.
unsafe fn launch(
    kernel: Kernel,
    handle: *const Handle,
    convolution: *const ConvolutionDescriptor,
    result: &Tensor,
    flops: f64,
    output: &Tensor,
    operands: &[Operand],
) -> Outcome {
    const N: usize = CONV_FWD.operands;
    const { assert!(CONV_DGRAD.operands == N && CONV_WGRAD.operands == N) };
    // SAFETY: the caller's promise.
    let (handle, convolution) = unsafe { (Status::get(handle)?, Status::get(convolution)?) };
    convolution.fits(output)?;
    let class = handle.class(output.elem, convolution.math_type);
    handle.launch::<N>(kernel, result.elements(), flops, class, operands)
}

/// # Safety
/// Pointers are null or point to live objects; `found` has room for `requested` results.
unsafe fn offer(
    handle: *const Handle,
    convolution: *const ConvolutionDescriptor,
    requested: c_int,
    returned: *mut c_int,
    found: *mut Performance,
) -> Outcome {
    // SAFETY: the caller's promise.
    unsafe {
        Status::get(handle)?;
        let math_type = Status::get(convolution)?.math_type;
        if requested < 1 {
            return Err(Status::BadParam);
        }
        // Found by rule, not by running: the time is not known, which the documentation expresses as -1.
        let offer = Performance {
            algorithm: ALGORITHM,
            status: 0,
            milliseconds: -1.0,
            memory: 0,
            deterministic: 1,
            math_type,
            reserved: [0; 3],
        };
        Status::put(found, offer)?;
        Status::put(returned, 1)
    }
}

/// Three functions of one direction whose signatures differ only in what the descriptors describe.
macro_rules! direction {
    ($(fn $heuristic:ident, fn $find:ident, fn $workspace:ident: $first:ident, $second:ident, $third:ident;)*) => {$(
        /// Offers the algorithm.
        ///
        /// # Safety
        /// As documented by cuDNN.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
        pub unsafe extern "C" fn $heuristic(
            handle: *mut Handle, _first: *const $first, _second: *const $second,
            convolution: *const ConvolutionDescriptor, _third: *const $third, requested: c_int, returned: *mut c_int,
            found: *mut Performance,
        ) -> c_int {
            // SAFETY: the caller's promise.
            Status::edge(|| unsafe { offer(handle, convolution, requested, returned, found) })
        }
        /// Offers the algorithm; nothing is run, as there is one only.
        ///
        /// # Safety
        /// As documented by cuDNN.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
        pub unsafe extern "C" fn $find(
            handle: *mut Handle, _first: *const $first, _x: *const c_void, _second: *const $second, _y: *const c_void,
            convolution: *const ConvolutionDescriptor, _third: *const $third, _z: *mut c_void, requested: c_int,
            returned: *mut c_int, found: *mut Performance, _workspace: *mut c_void, _bytes: usize,
        ) -> c_int {
            // SAFETY: the caller's promise.
            Status::edge(|| unsafe { offer(handle, convolution, requested, returned, found) })
        }
        /// Size of the workspace: 0.
        ///
        /// # Safety
        /// As documented by cuDNN.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $workspace(
            _handle: *mut Handle, _first: *const $first, _second: *const $second,
            _convolution: *const ConvolutionDescriptor, _third: *const $third, algorithm: c_int, size: *mut usize,
        ) -> c_int {
            // SAFETY: the caller's promise.
            Status::edge(|| if algorithm == ALGORITHM { unsafe { Status::put(size, 0) } } else { Err(Status::NotSupported) })
        }
    )*};
}

direction! {
    fn cudnnGetConvolutionForwardAlgorithm_v7, fn cudnnFindConvolutionForwardAlgorithmEx,
        fn cudnnGetConvolutionForwardWorkspaceSize: TensorDescriptor, FilterDescriptor, TensorDescriptor;
    fn cudnnGetConvolutionBackwardDataAlgorithm_v7, fn cudnnFindConvolutionBackwardDataAlgorithmEx,
        fn cudnnGetConvolutionBackwardDataWorkspaceSize: FilterDescriptor, TensorDescriptor, TensorDescriptor;
    fn cudnnGetConvolutionBackwardFilterAlgorithm_v7, fn cudnnFindConvolutionBackwardFilterAlgorithmEx,
        fn cudnnGetConvolutionBackwardFilterWorkspaceSize: TensorDescriptor, TensorDescriptor, FilterDescriptor;
}

/// `y = alpha conv(x, w) + beta y`.
///
/// # Safety
/// As documented by cuDNN.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cudnnConvolutionForward(
    handle: *mut Handle,
    _alpha: *const c_void,
    x: *const TensorDescriptor,
    x_data: *const c_void,
    w: *const FilterDescriptor,
    w_data: *const c_void,
    convolution: *const ConvolutionDescriptor,
    _algorithm: c_int,
    _workspace: *mut c_void,
    _workspace_bytes: usize,
    beta: *const c_void,
    y: *const TensorDescriptor,
    y_data: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| unsafe {
        let (x, w, y) = (Status::get(x)?.tensor()?, Status::get(w)?.tensor()?, Status::get(y)?.tensor()?);
        let inputs = [(x, x_data), (w, w_data)];
        convolve(CONV_FWD, handle, convolution, inputs, beta, (y, y_data), [w, y])
    })
}

/// `y = activation(alpha1 conv(x, w) + alpha2 z + bias)`.
///
/// # Safety
/// As documented by cuDNN.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cudnnConvolutionBiasActivationForward(
    handle: *mut Handle,
    _alpha1: *const c_void,
    x: *const TensorDescriptor,
    x_data: *const c_void,
    w: *const FilterDescriptor,
    w_data: *const c_void,
    convolution: *const ConvolutionDescriptor,
    _algorithm: c_int,
    _workspace: *mut c_void,
    _workspace_bytes: usize,
    alpha2: *const c_void,
    z: *const TensorDescriptor,
    z_data: *const c_void,
    bias: *const TensorDescriptor,
    bias_data: *const c_void,
    _activation: *const ActivationDescriptor,
    y: *const TensorDescriptor,
    y_data: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| unsafe {
        let (x, w, y) = (Status::get(x)?.tensor()?, Status::get(w)?.tensor()?, Status::get(y)?.tensor()?);
        let (z, bias) = (Status::get(z)?.tensor()?, Status::get(bias)?.tensor()?);
        // With alpha2 zero, z is not read.
        let z = if blended(alpha2, x.elem)? == WRITE { Operand::default() } else { z.operand(z_data, READ) };
        let operands = [
            x.operand(x_data, READ),
            w.operand(w_data, READ),
            z,
            bias.operand(bias_data, READ),
            y.operand(y_data, WRITE),
        ];
        launch(CONV_FWD, handle, convolution, y, convolution_flops(w, y), y, &operands)
    })
}

/// Gradient of the input: `dx = alpha conv'(w, dy) + beta dx`.
///
/// # Safety
/// As documented by cuDNN.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cudnnConvolutionBackwardData(
    handle: *mut Handle,
    _alpha: *const c_void,
    w: *const FilterDescriptor,
    w_data: *const c_void,
    dy: *const TensorDescriptor,
    dy_data: *const c_void,
    convolution: *const ConvolutionDescriptor,
    _algorithm: c_int,
    _workspace: *mut c_void,
    _workspace_bytes: usize,
    beta: *const c_void,
    dx: *const TensorDescriptor,
    dx_data: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| unsafe {
        let (w, dy, dx) = (Status::get(w)?.tensor()?, Status::get(dy)?.tensor()?, Status::get(dx)?.tensor()?);
        let inputs = [(w, w_data), (dy, dy_data)];
        convolve(CONV_DGRAD, handle, convolution, inputs, beta, (dx, dx_data), [w, dy])
    })
}

/// Gradient of the filter: `dw = alpha conv'(x, dy) + beta dw`.
///
/// # Safety
/// As documented by cuDNN.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cudnnConvolutionBackwardFilter(
    handle: *mut Handle,
    _alpha: *const c_void,
    x: *const TensorDescriptor,
    x_data: *const c_void,
    dy: *const TensorDescriptor,
    dy_data: *const c_void,
    convolution: *const ConvolutionDescriptor,
    _algorithm: c_int,
    _workspace: *mut c_void,
    _workspace_bytes: usize,
    beta: *const c_void,
    dw: *const FilterDescriptor,
    dw_data: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| unsafe {
        let (x, dy, dw) = (Status::get(x)?.tensor()?, Status::get(dy)?.tensor()?, Status::get(dw)?.tensor()?);
        let inputs = [(x, x_data), (dy, dy_data)];
        convolve(CONV_WGRAD, handle, convolution, inputs, beta, (dw, dw_data), [dw, dy])
    })
}
