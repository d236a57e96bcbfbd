//! Shapes: element types, dimensions, strides; and their translation to operands and arithmetic.

use std::ffi::c_int;

use deepum_emu_abi::params::{Class, Operand};

use crate::edge::Status;

/// `cudnnDataType_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elem {
    F32,
    F64,
    F16,
    Bf16,
    I8,
    I32,
    I64,
    Bool,
    F8,
}

impl Elem {
    pub fn new(value: c_int) -> Result<Self, Status> {
        Ok(match value {
            0 => Self::F32,
            1 => Self::F64,
            2 => Self::F16,
            3 | 6 => Self::I8,
            4 => Self::I32,
            9 => Self::Bf16,
            10 => Self::I64,
            11 => Self::Bool,
            12 | 13 => Self::F8,
            _ => return Err(Status::NotSupportedDataType),
        })
    }
    pub const fn bytes(self) -> u32 {
        match self {
            Self::I8 | Self::Bool | Self::F8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }
    /// The units that bound arithmetic on this type, on tensor cores where allowed.
    pub const fn class(self, tensor_cores: bool) -> Class {
        match (self, tensor_cores) {
            (Self::F64, _) => Class::Fp64,
            (Self::F32, true) => Class::Tf32,
            (Self::F16 | Self::Bf16 | Self::I8 | Self::F8, true) => Class::Half,
            _ => Class::Fp32,
        }
    }
    /// Whether a device of this compute capability has tensor cores for this type (CUDA C++ Programming Guide, "Compute
    /// Capabilities", table of data types supported by tensor cores).
    pub fn on_tensor_cores(self, capability: (i32, i32)) -> bool {
        match self {
            Self::F16 => capability >= (7, 0),
            Self::I8 => capability >= (7, 2),
            Self::F32 | Self::Bf16 => capability >= (8, 0),
            Self::F8 => capability >= (8, 9),
            Self::F64 | Self::I32 | Self::I64 | Self::Bool => false,
        }
    }
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

    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// The memory at `ptr`, smallest stride innermost, dimensions of one element left out.
    pub fn operand(&self, ptr: u64, access: u32) -> Operand {
        let mut shape: Vec<_> = self.dims.iter().copied().zip(self.strides.iter().copied()).collect();
        shape.retain(|&(extent, _)| extent > 1);
        shape.sort_by_key(|&(_, stride)| stride);
        Operand::new(ptr, self.elem.bytes(), &shape, access)
    }
}

/// Floating-point operations of a convolution, the same forward and for either gradient: for each element of the output, a
/// multiply-add with each element of its filter. `filter` is [outputs, inputs of the group, window…].
pub fn convolution_flops(filter: &Tensor, output: &Tensor) -> f64 {
    2.0 * output.elements() as f64 * filter.dims.iter().skip(1).product::<u64>() as f64
}
