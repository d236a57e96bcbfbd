//! Batch norm: training forward and backward, inference.
//!
//! Only the plain form (no fused activation or addition) is here; PyTorch uses no other, and the others are not supported. The plain
//! form needs neither workspace nor reserve space.

use std::ffi::{c_int, c_void};

use deepum_emu_abi::edge::Failure;
use deepum_emu_abi::kernels::{BATCH_NORM_BWD, BATCH_NORM_FWD, BATCH_NORM_INF, Kernel};
use deepum_emu_abi::params::{Operand, READ, WRITE};
use deepum_emu_abi::refused;

use crate::descriptors::{ActivationDescriptor, TensorDescriptor};
use crate::handle::Handle;
use crate::status::{Outcome, Status};
use crate::tensor::{Tensor, blended};

/// Checks mode (per activation, spatial, spatial persistent) and fused operation (none).
fn check(mode: c_int, fused: c_int) -> Outcome {
    if !(0..=2).contains(&mode) {
        return Err(Status::BadParam);
    }
    if fused != 0 {
        return Err(refused!(Status::NotSupported, "cuDNN batch norm with fused operation {fused}"));
    }
    Ok(())
}

/// Launches `kernel`, which does so many operations for each element of `x`, in the precision of the parameters.
fn launch(
    handle: &Handle,
    kernel: Kernel,
    x: &Tensor,
    per_element: f64,
    parameters: &Tensor,
    operands: &[Operand],
) -> Outcome {
    const N: usize = BATCH_NORM_FWD.operands;
    const { assert!(BATCH_NORM_BWD.operands == N && BATCH_NORM_INF.operands == N) };
    let (flops, class) = (per_element * x.elements() as f64, parameters.elem.class(false));
    handle.launch::<N>(kernel, x.elements(), flops, class, operands)
}

/// Size of the workspace of [`cudnnBatchNormalizationForwardTrainingEx`]: 0.
///
/// # Safety
/// As documented by cuDNN.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    _handle: *mut Handle,
    mode: c_int,
    fused: c_int,
    _x: *const TensorDescriptor,
    _z: *const TensorDescriptor,
    _y: *const TensorDescriptor,
    _scale: *const TensorDescriptor,
    _activation: *const ActivationDescriptor,
    size: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| check(mode, fused).and_then(|()| unsafe { Status::put(size, 0) }))
}

/// Size of the workspace of [`cudnnBatchNormalizationBackwardEx`]: 0.
///
/// # Safety
/// As documented by cuDNN.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    _handle: *mut Handle,
    mode: c_int,
    fused: c_int,
    _x: *const TensorDescriptor,
    _y: *const TensorDescriptor,
    _dy: *const TensorDescriptor,
    _dz: *const TensorDescriptor,
    _dx: *const TensorDescriptor,
    _scale: *const TensorDescriptor,
    _activation: *const ActivationDescriptor,
    size: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| check(mode, fused).and_then(|()| unsafe { Status::put(size, 0) }))
}

/// Size of the space kept from forward to backward: 0, as no activation is fused.
///
/// # Safety
/// As documented by cuDNN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    _handle: *mut Handle,
    mode: c_int,
    fused: c_int,
    _activation: *const ActivationDescriptor,
    _x: *const TensorDescriptor,
    size: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| check(mode, fused).and_then(|()| unsafe { Status::put(size, 0) }))
}

/// Normalises with the statistics of the batch, and keeps them.
///
/// # Safety
/// As documented by cuDNN.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cudnnBatchNormalizationForwardTrainingEx(
    handle: *mut Handle,
    mode: c_int,
    fused: c_int,
    _alpha: *const c_void,
    beta: *const c_void,
    x: *const TensorDescriptor,
    x_data: *const c_void,
    _z: *const TensorDescriptor,
    _z_data: *const c_void,
    y: *const TensorDescriptor,
    y_data: *mut c_void,
    scale: *const TensorDescriptor,
    scale_data: *const c_void,
    bias_data: *const c_void,
    _average_factor: f64,
    running_mean: *mut c_void,
    running_var: *mut c_void,
    _epsilon: f64,
    save_mean: *mut c_void,
    save_inv_var: *mut c_void,
    _activation: *const ActivationDescriptor,
    _workspace: *mut c_void,
    _workspace_bytes: usize,
    _reserve: *mut c_void,
    _reserve_bytes: usize,
) -> c_int {
    Status::edge(|| {
        check(mode, fused)?;
        // SAFETY: the caller's promise.
        unsafe {
            let handle = Status::get(handle)?;
            let (x, y, per_channel) =
                (Status::get(x)?.tensor()?, Status::get(y)?.tensor()?, Status::get(scale)?.tensor()?);
            let operands = [
                x.operand(x_data, READ),
                y.operand(y_data, blended(beta, x.elem)?),
                per_channel.operand(scale_data, READ),
                per_channel.operand(bias_data, READ),
                per_channel.operand(running_mean, READ | WRITE),
                per_channel.operand(running_var, READ | WRITE),
                per_channel.operand(save_mean, WRITE),
                per_channel.operand(save_inv_var, WRITE),
            ];
            // Mean and variance (4 an element), then scale and shift (4).
            launch(handle, BATCH_NORM_FWD, x, 8.0, per_channel, &operands)
        }
    })
}

/// Gradients of input, scale and bias.
///
/// # Safety
/// As documented by cuDNN.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cudnnBatchNormalizationBackwardEx(
    handle: *mut Handle,
    mode: c_int,
    fused: c_int,
    _alpha_data: *const c_void,
    beta_data: *const c_void,
    _alpha_param: *const c_void,
    beta_param: *const c_void,
    x: *const TensorDescriptor,
    x_data: *const c_void,
    _y: *const TensorDescriptor,
    _y_data: *const c_void,
    dy: *const TensorDescriptor,
    dy_data: *const c_void,
    _dz: *const TensorDescriptor,
    _dz_data: *mut c_void,
    dx: *const TensorDescriptor,
    dx_data: *mut c_void,
    scale: *const TensorDescriptor,
    scale_data: *const c_void,
    _bias_data: *const c_void,
    dscale_data: *mut c_void,
    dbias_data: *mut c_void,
    _epsilon: f64,
    saved_mean: *const c_void,
    saved_inv_var: *const c_void,
    _activation: *const ActivationDescriptor,
    _workspace: *mut c_void,
    _workspace_bytes: usize,
    _reserve: *mut c_void,
    _reserve_bytes: usize,
) -> c_int {
    Status::edge(|| {
        check(mode, fused)?;
        // SAFETY: the caller's promise.
        unsafe {
            let handle = Status::get(handle)?;
            let (x, dy, dx) = (Status::get(x)?.tensor()?, Status::get(dy)?.tensor()?, Status::get(dx)?.tensor()?);
            let per_channel = Status::get(scale)?.tensor()?;
            let parameter = blended(beta_param, x.elem)?;
            let operands = [
                x.operand(x_data, READ),
                dy.operand(dy_data, READ),
                dx.operand(dx_data, blended(beta_data, x.elem)?),
                per_channel.operand(scale_data, READ),
                per_channel.operand(dscale_data, parameter),
                per_channel.operand(dbias_data, parameter),
                per_channel.operand(saved_mean, READ),
                per_channel.operand(saved_inv_var, READ),
            ];
            // Two sums over the batch (5 an element), then the gradient (6).
            launch(handle, BATCH_NORM_BWD, x, 11.0, per_channel, &operands)
        }
    })
}

/// Normalises with given statistics.
///
/// # Safety
/// As documented by cuDNN.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cudnnBatchNormalizationForwardInference(
    handle: *mut Handle,
    mode: c_int,
    _alpha: *const c_void,
    beta: *const c_void,
    x: *const TensorDescriptor,
    x_data: *const c_void,
    y: *const TensorDescriptor,
    y_data: *mut c_void,
    scale: *const TensorDescriptor,
    scale_data: *const c_void,
    bias_data: *const c_void,
    mean: *const c_void,
    var: *const c_void,
    _epsilon: f64,
) -> c_int {
    Status::edge(|| {
        check(mode, 0)?;
        // SAFETY: the caller's promise.
        unsafe {
            let handle = Status::get(handle)?;
            let (x, y, per_channel) =
                (Status::get(x)?.tensor()?, Status::get(y)?.tensor()?, Status::get(scale)?.tensor()?);
            let operands = [
                x.operand(x_data, READ),
                y.operand(y_data, blended(beta, x.elem)?),
                per_channel.operand(scale_data, READ),
                per_channel.operand(bias_data, READ),
                per_channel.operand(mean, READ),
                per_channel.operand(var, READ),
            ];
            launch(handle, BATCH_NORM_INF, x, 4.0, per_channel, &operands)
        }
    })
}
