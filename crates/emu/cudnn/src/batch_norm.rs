//! Batch norm: training forward and backward, inference.
//!
//! Only the plain form (no fused activation or addition) is here; PyTorch uses no other, and the others are not supported. The plain
//! form needs neither workspace nor reserve space.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::AtomicBool;

use deepum_emu_abi::kernels::{BATCH_NORM_BWD, BATCH_NORM_FWD, BATCH_NORM_INF};
use deepum_emu_abi::params::{Operand, READ, WRITE};

use crate::descriptors::{ActivationDescriptor, TensorDescriptor};
use crate::edge::{Outcome, Status, edge, get, put};
use crate::handle::Handle;
use crate::refusals::refuse;
use crate::tensor::{Elem, Tensor};

/// Checks mode (per activation, spatial, spatial persistent) and fused operation (none).
fn check(mode: c_int, fused: c_int) -> Outcome {
    static SAID: AtomicBool = AtomicBool::new(false);
    const NAME: &CStr = c"cuDNN batch norm with fused activation";
    if !(0..=2).contains(&mode) {
        return Err(Status::BadParam);
    }
    if fused != 0 {
        refuse(NAME, &SAID);
        return Err(Status::NotSupported);
    }
    Ok(())
}

/// How a result that is blended with `beta` times its old value is accessed. Scalars are `double` for double data, else `float`.
///
/// # Safety
/// `beta` points to a host scalar of that type.
pub unsafe fn blended(beta: *const c_void, elem: Elem) -> Result<u32, Status> {
    if beta.is_null() {
        return Err(Status::NullPointer);
    }
    // SAFETY: the caller's promise.
    let zero = unsafe {
        if elem == Elem::F64 {
            beta.cast::<f64>().read_unaligned() == 0.0
        } else {
            beta.cast::<f32>().read_unaligned() == 0.0
        }
    };
    Ok(if zero { WRITE } else { READ | WRITE })
}

fn at(tensor: &Tensor, ptr: *const c_void, access: u32) -> Operand {
    tensor.operand(ptr.addr() as u64, access)
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
    edge(|| check(mode, fused).and_then(|()| unsafe { put(size, 0) }))
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
    edge(|| check(mode, fused).and_then(|()| unsafe { put(size, 0) }))
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
    edge(|| check(mode, fused).and_then(|()| unsafe { put(size, 0) }))
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
    edge(|| {
        check(mode, fused)?;
        // SAFETY: the caller's promise.
        unsafe {
            let handle = get(handle)?;
            let (x, y, per_channel) = (get(x)?.tensor()?, get(y)?.tensor()?, get(scale)?.tensor()?);
            let operands = [
                at(x, x_data, READ),
                at(y, y_data, blended(beta, x.elem)?),
                at(per_channel, scale_data, READ),
                at(per_channel, bias_data, READ),
                at(per_channel, running_mean, READ | WRITE),
                at(per_channel, running_var, READ | WRITE),
                at(per_channel, save_mean, WRITE),
                at(per_channel, save_inv_var, WRITE),
            ];
            let class = per_channel.elem.class(false);
            // Mean and variance (4 an element), then scale and shift (4).
            let flops = 8.0 * x.elements() as f64;
            handle.launch::<{ BATCH_NORM_FWD.operands }>(BATCH_NORM_FWD, x.elements(), flops, class, &operands)
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
    edge(|| {
        check(mode, fused)?;
        // SAFETY: the caller's promise.
        unsafe {
            let handle = get(handle)?;
            let (x, dy, dx) = (get(x)?.tensor()?, get(dy)?.tensor()?, get(dx)?.tensor()?);
            let per_channel = get(scale)?.tensor()?;
            let parameter = blended(beta_param, x.elem)?;
            let operands = [
                at(x, x_data, READ),
                at(dy, dy_data, READ),
                at(dx, dx_data, blended(beta_data, x.elem)?),
                at(per_channel, scale_data, READ),
                at(per_channel, dscale_data, parameter),
                at(per_channel, dbias_data, parameter),
                at(per_channel, saved_mean, READ),
                at(per_channel, saved_inv_var, READ),
            ];
            let class = per_channel.elem.class(false);
            // Two sums over the batch (5 an element), then the gradient (6).
            let flops = 11.0 * x.elements() as f64;
            handle.launch::<{ BATCH_NORM_BWD.operands }>(BATCH_NORM_BWD, x.elements(), flops, class, &operands)
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
    edge(|| {
        check(mode, 0)?;
        // SAFETY: the caller's promise.
        unsafe {
            let handle = get(handle)?;
            let (x, y, per_channel) = (get(x)?.tensor()?, get(y)?.tensor()?, get(scale)?.tensor()?);
            let operands = [
                at(x, x_data, READ),
                at(y, y_data, blended(beta, x.elem)?),
                at(per_channel, scale_data, READ),
                at(per_channel, bias_data, READ),
                at(per_channel, mean, READ),
                at(per_channel, var, READ),
            ];
            let class = per_channel.elem.class(false);
            let flops = 4.0 * x.elements() as f64;
            handle.launch::<{ BATCH_NORM_INF.operands }>(BATCH_NORM_INF, x.elements(), flops, class, &operands)
        }
    })
}
