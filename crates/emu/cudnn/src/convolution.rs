//! Convolutions by plain function calls, for programs that do not use the graph interface.
//!
//! One algorithm is offered for each direction (implicit matrix product, number 1), needing no workspace.

use std::ffi::{c_int, c_void};

use deepum_emu_abi::kernels::{CONV_DGRAD, CONV_FWD, CONV_WGRAD};
use deepum_emu_abi::params::{READ, WRITE};

use crate::batch_norm::blended;
use crate::descriptors::{ActivationDescriptor, ConvolutionDescriptor, FilterDescriptor, TensorDescriptor};
use crate::edge::{Outcome, Status, edge, get, put};
use crate::handle::Handle;
use crate::tensor::{Elem, convolution_flops};

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

/// Whether tensor cores work on this convolution: there are some, and fp32 is not kept from them (math type 3).
fn tensor_cores(handle: &Handle, convolution: &ConvolutionDescriptor, elem: Elem) -> bool {
    elem.on_tensor_cores(handle.capability) && !(elem == Elem::F32 && convolution.math_type == 3)
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
        get(handle)?;
        let math_type = get(convolution)?.math_type;
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
        put(found, offer)?;
        put(returned, 1)
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
            edge(|| unsafe { offer(handle, convolution, requested, returned, found) })
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
            edge(|| unsafe { offer(handle, convolution, requested, returned, found) })
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
            edge(|| if algorithm == ALGORITHM { unsafe { put(size, 0) } } else { Err(Status::NotSupported) })
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
    edge(|| unsafe {
        let (handle, convolution) = (get(handle)?, get(convolution)?);
        let (x, w, y) = (get(x)?.tensor()?, get(w)?.tensor()?, get(y)?.tensor()?);
        convolution.fits(x)?;
        let operands = [
            x.operand(x_data.addr() as u64, READ),
            w.operand(w_data.addr() as u64, READ),
            y.operand(y_data.addr() as u64, blended(beta, x.elem)?),
        ];
        let class = x.elem.class(tensor_cores(handle, convolution, x.elem));
        let flops = convolution_flops(&w, y);
        handle.launch::<{ CONV_FWD.operands }>(CONV_FWD, y.elements(), flops, class, &operands)
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
    edge(|| unsafe {
        let (handle, convolution) = (get(handle)?, get(convolution)?);
        let (x, w, y) = (get(x)?.tensor()?, get(w)?.tensor()?, get(y)?.tensor()?);
        convolution.fits(x)?;
        // With alpha2 zero, z is not read.
        let z_ptr = if blended(alpha2, x.elem)? == WRITE { 0 } else { z_data.addr() as u64 };
        let operands = [
            x.operand(x_data.addr() as u64, READ),
            w.operand(w_data.addr() as u64, READ),
            get(z)?.tensor()?.operand(z_ptr, READ),
            get(bias)?.tensor()?.operand(bias_data.addr() as u64, READ),
            y.operand(y_data.addr() as u64, WRITE),
        ];
        let class = x.elem.class(tensor_cores(handle, convolution, x.elem));
        let flops = convolution_flops(&w, y) + 2.0 * y.elements() as f64;
        handle.launch::<{ CONV_FWD.operands }>(CONV_FWD, y.elements(), flops, class, &operands)
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
    edge(|| unsafe {
        let (handle, convolution) = (get(handle)?, get(convolution)?);
        let (w, dy, dx) = (get(w)?.tensor()?, get(dy)?.tensor()?, get(dx)?.tensor()?);
        convolution.fits(dy)?;
        let operands = [
            w.operand(w_data.addr() as u64, READ),
            dy.operand(dy_data.addr() as u64, READ),
            dx.operand(dx_data.addr() as u64, blended(beta, dy.elem)?),
        ];
        let class = dy.elem.class(tensor_cores(handle, convolution, dy.elem));
        let flops = convolution_flops(&w, dy);
        handle.launch::<{ CONV_DGRAD.operands }>(CONV_DGRAD, dx.elements(), flops, class, &operands)
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
    edge(|| unsafe {
        let (handle, convolution) = (get(handle)?, get(convolution)?);
        let (x, dy, dw) = (get(x)?.tensor()?, get(dy)?.tensor()?, get(dw)?.tensor()?);
        convolution.fits(x)?;
        let operands = [
            x.operand(x_data.addr() as u64, READ),
            dy.operand(dy_data.addr() as u64, READ),
            dw.operand(dw_data.addr() as u64, blended(beta, x.elem)?),
        ];
        let class = x.elem.class(tensor_cores(handle, convolution, x.elem));
        let flops = convolution_flops(&dw, dy);
        handle.launch::<{ CONV_WGRAD.operands }>(CONV_WGRAD, dw.elements(), flops, class, &operands)
    })
}
