//! Descriptors of the older interface: tensor, filter, convolution, activation.

use std::ffi::c_int;

use crate::edge::{Outcome, Status, array, create, destroy, edge, get, put};
use crate::tensor::{Elem, Tensor};

/// A descriptor that is created empty and then set.
#[derive(Debug, Default)]
pub struct TensorDescriptor(Option<(c_int, Tensor)>);

/// A filter descriptor: a packed tensor in NCHW (0) or NHWC (1) order.
#[derive(Debug, Default)]
pub struct FilterDescriptor(Option<(c_int, c_int, Vec<i64>)>);

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
}

impl FilterDescriptor {
    pub fn tensor(&self) -> Result<Tensor, Status> {
        let (elem, format, dims) = self.0.as_ref().ok_or(Status::BadParam)?;
        let mut tensor = Tensor::packed(Elem::new(*elem)?, dims)?;
        if *format == 1 && dims.len() > 2 {
            // Channels innermost: [K, C, H, W] with strides [HWC, 1, WC, C].
            let channels = tensor.dims[1];
            let inner: u64 = tensor.dims[2..].iter().product();
            tensor.strides = tensor.strides.iter().map(|s| s * channels).collect();
            (tensor.strides[0], tensor.strides[1]) = (inner * channels, 1);
        }
        Ok(tensor)
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
            edge(|| unsafe { create(out, $object::default()) })
        }
        /// Destroys the descriptor.
        ///
        /// # Safety
        /// `object` is null or live, and not used again.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $destroy(object: *mut $object) -> c_int {
            // SAFETY: the caller's promise.
            edge(|| unsafe { destroy(object) })
        }
    )*};
}

lifetimes! {
    TensorDescriptor: fn cudnnCreateTensorDescriptor, fn cudnnDestroyTensorDescriptor;
    FilterDescriptor: fn cudnnCreateFilterDescriptor, fn cudnnDestroyFilterDescriptor;
    ConvolutionDescriptor: fn cudnnCreateConvolutionDescriptor, fn cudnnDestroyConvolutionDescriptor;
    ActivationDescriptor: fn cudnnCreateActivationDescriptor, fn cudnnDestroyActivationDescriptor;
}

/// # Safety
/// `object` is null or live, and no other thread uses it now.
unsafe fn change<T>(object: *mut T, with: impl FnOnce(&mut T) -> Outcome) -> c_int {
    // SAFETY: the caller's promise.
    edge(|| with(unsafe { object.as_mut() }.ok_or(Status::NullPointer)?))
}

/// Sets a tensor's type, dimensions and strides.
///
/// # Safety
/// `tensor` is null or live; the arrays have `n` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetTensorNdDescriptor(
    tensor: *mut TensorDescriptor,
    elem: c_int,
    n: c_int,
    dims: *const c_int,
    strides: *const c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        change(tensor, |tensor| {
            let n = length(n)?;
            let wide = |v: Vec<c_int>| v.into_iter().map(i64::from).collect::<Vec<_>>();
            let (dims, strides) = (wide(array(dims, n)?), wide(array(strides, n)?));
            tensor.0 = Some((elem, Tensor::new(Elem::new(elem)?, &dims, &strides)?));
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
    edge(|| unsafe {
        let (kind, tensor) = get(tensor)?.0.as_ref().ok_or(Status::BadParam)?;
        put(elem, *kind)?;
        put(n, c_int::try_from(tensor.dims.len()).map_err(|_| Status::BadParam)?)?;
        for i in 0..tensor.dims.len().min(usize::try_from(room).unwrap_or(0)) {
            put(dims.add(i), c_int::try_from(tensor.dims[i]).map_err(|_| Status::BadParam)?)?;
            put(strides.add(i), c_int::try_from(tensor.strides[i]).map_err(|_| Status::BadParam)?)?;
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
    elem: c_int,
    format: c_int,
    n: c_int,
    dims: *const c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        change(filter, |filter| {
            if !matches!(format, 0 | 1) {
                return Err(Status::NotSupported);
            }
            let dims = array(dims, length(n)?)?.into_iter().map(i64::from).collect();
            let set = FilterDescriptor(Some((elem, format, dims)));
            set.tensor()?;
            *filter = set;
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
    edge(|| unsafe {
        let (kind, order, shape) = get(filter)?.0.as_ref().ok_or(Status::BadParam)?;
        put(elem, *kind)?;
        put(format, *order)?;
        put(n, c_int::try_from(shape.len()).map_err(|_| Status::BadParam)?)?;
        for (i, extent) in shape.iter().take(usize::try_from(room).unwrap_or(0)).enumerate() {
            put(dims.add(i), c_int::try_from(*extent).map_err(|_| Status::BadParam)?)?;
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
            let (pads, strides, dilations) = (array(pads, n)?, array(strides, n)?, array(dilations, n)?);
            if pads.iter().any(|p| *p < 0) || strides.iter().chain(&dilations).any(|s| *s < 1) {
                return Err(Status::BadParam);
            }
            Elem::new(compute)?;
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
    unsafe { change(activation, |_| if (0..=7).contains(&mode) { Ok(()) } else { Err(Status::BadParam) }) }
}

impl ConvolutionDescriptor {
    /// Whether a tensor's rank fits the spatial dimensions set.
    pub fn fits(&self, tensor: &Tensor) -> Outcome {
        if tensor.dims.len() == self.spatial + 2 { Ok(()) } else { Err(Status::BadParam) }
    }
}
