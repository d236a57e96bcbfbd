//! Descriptors of the older interface: tensor, filter, convolution, activation.

use std::ffi::c_int;

use deepum_emu_abi::edge::Failure;
use deepum_emu_abi::refused;

use crate::status::{Outcome, Status};
use crate::tensor::{Tensor, elem};

/// `cudnnTensorDescriptor_t`: created empty and then set; with its data type as it was given.
#[derive(Debug, Default)]
pub struct TensorDescriptor(Option<(c_int, Tensor)>);

/// `cudnnFilterDescriptor_t`: a packed tensor with its data type and order, NCHW (0) or NHWC (1).
#[derive(Debug, Default)]
pub struct FilterDescriptor(Option<(c_int, c_int, Tensor)>);

/// `cudnnConvolutionDescriptor_t`: of all that is set, the arithmetic needs the math type alone; shapes are in the tensors.
#[derive(Debug, Default)]
pub struct ConvolutionDescriptor {
    spatial: usize,
    pub math_type: c_int,
}

/// `cudnnActivationDescriptor_t`: elementwise, so that nothing about it changes what is touched.
#[derive(Debug, Default)]
pub struct ActivationDescriptor;

impl TensorDescriptor {
    pub fn tensor(&self) -> Result<&Tensor, Status> {
        self.0.as_ref().map(|(_, tensor)| tensor).ok_or(Status::BadParam)
    }
    /// `elem` as C gave it.
    pub fn set(&mut self, elem: c_int, tensor: Tensor) {
        self.0 = Some((elem, tensor));
    }
}

impl FilterDescriptor {
    pub fn tensor(&self) -> Result<&Tensor, Status> {
        self.0.as_ref().map(|(.., tensor)| tensor).ok_or(Status::BadParam)
    }
}

fn length(n: c_int) -> Result<usize, Status> {
    usize::try_from(n).ok().filter(|n| (1..=8).contains(n)).ok_or(Status::BadParam)
}

macro_rules! lifetimes {
    ($($object:ident: fn $create:ident, fn $destroy:ident;)*) => {$(
        /// Creates the descriptor.
        ///
        /// # Safety
        /// `out` is null or valid for writing a pointer.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $create(out: *mut *mut $object) -> c_int {
            // SAFETY: the caller's promise.
            Status::edge(|| unsafe { Status::create(out, || Ok($object::default())) })
        }
        /// Destroys the descriptor.
        ///
        /// # Safety
        /// `object` is null or live, and not used again.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $destroy(object: *mut $object) -> c_int {
            // SAFETY: the caller's promise.
            Status::edge(|| unsafe { Status::destroy(object) })
        }
    )*};
}
pub(crate) use lifetimes;

lifetimes! {
    TensorDescriptor: fn cudnnCreateTensorDescriptor, fn cudnnDestroyTensorDescriptor;
    FilterDescriptor: fn cudnnCreateFilterDescriptor, fn cudnnDestroyFilterDescriptor;
    ConvolutionDescriptor: fn cudnnCreateConvolutionDescriptor, fn cudnnDestroyConvolutionDescriptor;
    ActivationDescriptor: fn cudnnCreateActivationDescriptor, fn cudnnDestroyActivationDescriptor;
}

/// Changes a descriptor.
///
/// # Safety
/// `object` is null or live, and no other thread uses it now.
pub unsafe fn change<T>(object: *mut T, with: impl FnOnce(&mut T) -> Outcome) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| with(unsafe { Status::get_mut(object) }?))
}

/// Sets a tensor's type, dimensions and strides.
///
/// # Safety
/// `tensor` is null or live; the arrays have `n` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetTensorNdDescriptor(
    tensor: *mut TensorDescriptor,
    kind: c_int,
    n: c_int,
    dims: *const c_int,
    strides: *const c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        change(tensor, |tensor| {
            let n = length(n)?;
            let wide = |v: Vec<c_int>| v.into_iter().map(i64::from).collect::<Vec<_>>();
            let (dims, strides) = (wide(Status::array(dims, n)?), wide(Status::array(strides, n)?));
            tensor.0 = Some((kind, Tensor::new(elem(kind)?, &dims, &strides)?));
            Ok(())
        })
    }
}

/// Reads a tensor's description back, at most `room` dimensions.
///
/// # Safety
/// `tensor` is null or live; outputs are null or valid, the arrays for `room` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetTensorNdDescriptor(
    tensor: *const TensorDescriptor,
    room: c_int,
    elem: *mut c_int,
    n: *mut c_int,
    dims: *mut c_int,
    strides: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| unsafe {
        let (kind, tensor) = Status::get(tensor)?.0.as_ref().ok_or(Status::BadParam)?;
        Status::put(elem, *kind)?;
        Status::put(n, c_int::try_from(tensor.dims.len()).map_err(|_| Status::BadParam)?)?;
        for i in 0..tensor.dims.len().min(usize::try_from(room).unwrap_or(0)) {
            Status::put(dims.add(i), c_int::try_from(tensor.dims[i]).map_err(|_| Status::BadParam)?)?;
            Status::put(strides.add(i), c_int::try_from(tensor.strides[i]).map_err(|_| Status::BadParam)?)?;
        }
        Ok(())
    })
}

/// Sets a filter's type, order and dimensions.
///
/// # Safety
/// `filter` is null or live; the array has `n` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetFilterNdDescriptor(
    filter: *mut FilterDescriptor,
    kind: c_int,
    format: c_int,
    n: c_int,
    dims: *const c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        change(filter, |filter| {
            let dims: Vec<_> = Status::array(dims, length(n)?)?.into_iter().map(i64::from).collect();
            let tensor = match format {
                0 => Tensor::packed(elem(kind)?, &dims)?,
                1 => Tensor::packed_channels_last(elem(kind)?, &dims)?,
                _ => return Err(refused!(Status::NotSupported, "cuDNN tensor format {format}")),
            };
            filter.0 = Some((kind, format, tensor));
            Ok(())
        })
    }
}

/// Reads a filter's description back, at most `room` dimensions.
///
/// # Safety
/// `filter` is null or live; outputs are null or valid, the array for `room` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetFilterNdDescriptor(
    filter: *const FilterDescriptor,
    room: c_int,
    elem: *mut c_int,
    format: *mut c_int,
    n: *mut c_int,
    dims: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| unsafe {
        let (kind, order, tensor) = Status::get(filter)?.0.as_ref().ok_or(Status::BadParam)?;
        Status::put(elem, *kind)?;
        Status::put(format, *order)?;
        Status::put(n, c_int::try_from(tensor.dims.len()).map_err(|_| Status::BadParam)?)?;
        for (i, extent) in tensor.dims.iter().take(usize::try_from(room).unwrap_or(0)).enumerate() {
            Status::put(dims.add(i), c_int::try_from(*extent).map_err(|_| Status::BadParam)?)?;
        }
        Ok(())
    })
}

/// Sets a convolution's geometry. Shapes of input, filter and output are given with each call and are what counts; here only the
/// number of spatial dimensions is checked.
///
/// # Safety
/// `convolution` is null or live; the arrays have `n` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetConvolutionNdDescriptor(
    convolution: *mut ConvolutionDescriptor,
    n: c_int,
    pads: *const c_int,
    strides: *const c_int,
    dilations: *const c_int,
    _mode: c_int,
    compute: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        change(convolution, |convolution| {
            let n = length(n)?;
            let (pads, strides, dilations) =
                (Status::array(pads, n)?, Status::array(strides, n)?, Status::array(dilations, n)?);
            if pads.iter().any(|p| *p < 0) || strides.iter().chain(&dilations).any(|s| *s < 1) {
                return Err(Status::BadParam);
            }
            elem(compute)?;
            convolution.spatial = n;
            Ok(())
        })
    }
}

/// Sets the number of groups. A grouped filter has fewer inputs, which its descriptor says; nothing else depends on it.
///
/// # Safety
/// `convolution` is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetConvolutionGroupCount(
    convolution: *mut ConvolutionDescriptor,
    groups: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { change(convolution, |_| if groups >= 1 { Ok(()) } else { Err(Status::BadParam) }) }
}

/// Sets the math type: default (0), tensor cores (1), tensor cores with conversion (2), no TF32 (3).
///
/// # Safety
/// `convolution` is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetConvolutionMathType(convolution: *mut ConvolutionDescriptor, math: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        change(convolution, |convolution| {
            if !(0..=3).contains(&math) {
                return Err(Status::BadParam);
            }
            convolution.math_type = math;
            Ok(())
        })
    }
}

/// Sets the kind of activation.
///
/// # Safety
/// `activation` is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetActivationDescriptor(
    activation: *mut ActivationDescriptor,
    mode: c_int,
    _nan: c_int,
    _coefficient: f64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { change(activation, |_| if (0..=6).contains(&mode) { Ok(()) } else { Err(Status::BadParam) }) }
}

impl ConvolutionDescriptor {
    /// Whether a tensor's rank fits the spatial dimensions set.
    pub fn fits(&self, tensor: &Tensor) -> Outcome {
        if tensor.dims.len() == self.spatial + 2 { Ok(()) } else { Err(Status::BadParam) }
    }
}
