//! Shapes: element types, dimensions, strides; and their translation to operands and arithmetic.

use std::ffi::{c_int, c_void};

use deepum_emu_abi::elem::Elem;
use deepum_emu_abi::params::{Operand, READ, WRITE};
use deepum_emu_abi::refused;

use crate::status::Status;

/// `cudnnDataType_t`, of those that some operation here takes. Signed or not makes no difference to them.
pub fn elem(value: c_int) -> Result<Elem, Status> {
    Ok(match value {
        0 => Elem::F32,
        1 => Elem::F64,
        2 => Elem::F16,
        3 | 6 => Elem::I8,
        4 => Elem::I32,
        9 => Elem::Bf16,
        10 => Elem::I64,
        11 => Elem::Bool,
        12 | 13 => Elem::F8,
        _ => return Err(refused!(Status::NotSupportedDataType, "cuDNN with data type {value}")),
    })
}

/// A tensor's shape; dimensions outermost first, as cuDNN lists them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tensor {
    pub elem: Elem,
    pub dims: Vec<u64>,
    pub strides: Vec<u64>,
}

impl Tensor {
    /// Checks that there are as many strides as dimensions, one to eight, and none negative or (dimensions) zero.
    pub fn new(elem: Elem, dims: &[i64], strides: &[i64]) -> Result<Self, Status> {
        let whole = |n: &i64| u64::try_from(*n).map_err(|_| Status::BadParam);
        if dims.is_empty() || dims.len() > 8 || dims.len() != strides.len() || dims.contains(&0) {
            return Err(Status::BadParam);
        }
        Ok(Self {
            elem,
            dims: dims.iter().map(whole).collect::<Result<_, _>>()?,
            strides: strides.iter().map(whole).collect::<Result<_, _>>()?,
        })
    }

    /// A tensor without gaps, last dimension innermost.
    pub fn packed(elem: Elem, dims: &[i64]) -> Result<Self, Status> {
        let mut strides = vec![1_i64; dims.len()];
        for i in (1..dims.len()).rev() {
            strides[i - 1] = strides[i].checked_mul(dims[i]).ok_or(Status::BadParam)?;
        }
        Self::new(elem, dims, &strides)
    }

    /// A tensor without gaps whose second dimension is innermost: [K, C, H, W] with strides [HWC, 1, WC, C].
    pub fn packed_channels_last(elem: Elem, dims: &[i64]) -> Result<Self, Status> {
        let mut tensor = Self::packed(elem, dims)?;
        if let [_, channels, inner @ ..] = &tensor.dims[..]
            && !inner.is_empty()
        {
            let (channels, whole) = (*channels, inner.iter().product::<u64>() * channels);
            tensor.strides.iter_mut().for_each(|stride| *stride *= channels);
            (tensor.strides[0], tensor.strides[1]) = (whole, 1);
        }
        Ok(tensor)
    }

    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// The memory at `at`, smallest stride innermost, dimensions of one element left out.
    pub fn operand(&self, at: *const c_void, access: u32) -> Operand {
        let mut shape: Vec<_> = self.dims.iter().copied().zip(self.strides.iter().copied()).collect();
        shape.retain(|&(extent, _)| extent > 1);
        shape.sort_by_key(|&(_, stride)| stride);
        Operand::new(at.addr() as u64, self.elem.bytes(), &shape, access)
    }
}

/// Floating-point operations of a convolution, the same forward and for either gradient: for each element of the output, a
/// multiply-add with each element of its filter. `filter` is [outputs, inputs of the group, window…].
pub fn convolution_flops(filter: &Tensor, output: &Tensor) -> f64 {
    2.0 * output.elements() as f64 * filter.dims.iter().skip(1).product::<u64>() as f64
}

/// How a result is accessed that is blended with `beta` times its old value. Scalars are `double` for double data, else `float`.
///
/// # Safety
/// `beta` is null or points to a host scalar of that type.
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
