//! Element types, compute types and operations: what cuBLAS's integers mean for bytes and arithmetic.

use std::ffi::c_int;

use deepum_emu_abi::params::Class;

use crate::edge::Status;

/// `cudaDataType`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elem {
    F32,
    F64,
    F16,
    Bf16,
    C32,
    C64,
    I8,
    I32,
    F8E4m3,
    F8E5m2,
}

impl Elem {
    /// From the C value. Types no operation here takes are not supported.
    pub fn new(value: c_int) -> Result<Self, Status> {
        Ok(match value {
            0 => Self::F32,
            1 => Self::F64,
            2 => Self::F16,
            3 => Self::I8,
            4 => Self::C32,
            5 => Self::C64,
            10 => Self::I32,
            14 => Self::Bf16,
            28 => Self::F8E4m3,
            29 => Self::F8E5m2,
            _ => return Err(Status::NotSupported),
        })
    }
    pub const fn bytes(self) -> u32 {
        match self {
            Self::I8 | Self::F8E4m3 | Self::F8E5m2 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::C32 => 8,
            Self::C64 => 16,
        }
    }
    pub const fn is_complex(self) -> bool {
        matches!(self, Self::C32 | Self::C64)
    }
    pub const fn is_fp8(self) -> bool {
        matches!(self, Self::F8E4m3 | Self::F8E5m2)
    }
    /// Floating-point operations of one multiply-add.
    pub const fn multiply_add(self) -> f64 {
        if self.is_complex() { 8.0 } else { 2.0 }
    }
    /// The units that work on this type when nothing faster is allowed.
    pub const fn class(self) -> Class {
        match self {
            Self::F64 | Self::C64 => Class::Fp64,
            Self::F32 | Self::C32 | Self::I32 => Class::Fp32,
            // Integer and 8-bit tensor cores are at least as fast as 16-bit ones; counted as those.
            Self::F16 | Self::Bf16 | Self::I8 | Self::F8E4m3 | Self::F8E5m2 => Class::Half,
        }
    }
    /// Whether the scalar at `at` is zero, real and imaginary part.
    ///
    /// # Safety
    /// `at` points to a host value of this type.
    pub unsafe fn is_zero(self, at: *const std::ffi::c_void) -> bool {
        // SAFETY: the caller promises `bytes()` readable bytes.
        let bytes = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), self.bytes() as usize) };
        let word = if self.is_complex() { bytes.len() / 2 } else { bytes.len() };
        let integer = matches!(self, Self::I8 | Self::I32);
        // Minus zero is zero: of each little-endian float the top bit does not count.
        bytes.chunks(word).all(|part| {
            part.iter().enumerate().all(|(i, &byte)| {
                let sign = if !integer && i + 1 == part.len() { 0x7f } else { 0xff };
                byte & sign == 0
            })
        })
    }
}

/// `cublasComputeType_t`: which scalar type alpha and beta have, and which units work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compute {
    F16,
    F32,
    F32FastHalf,
    F32FastTf32,
    F64,
    I32,
}

impl Compute {
    pub fn new(value: c_int) -> Result<Self, Status> {
        Ok(match value {
            64 | 65 => Self::F16,
            68 | 69 => Self::F32,
            70 | 71 => Self::F64,
            72 | 73 => Self::I32,
            74 | 75 => Self::F32FastHalf,
            77 => Self::F32FastTf32,
            // cublasGemmEx of cuBLAS 10 took a cudaDataType here, and its header still lets callers.
            0 => Self::F32,
            1 => Self::F64,
            2 => Self::F16,
            10 => Self::I32,
            _ => return Err(Status::NotSupported),
        })
    }
    /// Type of alpha and beta for operands of type `elem`.
    pub const fn scalar(self, elem: Elem) -> Elem {
        match self {
            Self::F16 => Elem::F16,
            Self::F64 if elem.is_complex() => Elem::C64,
            Self::F64 => Elem::F64,
            Self::I32 => Elem::I32,
            _ if elem.is_complex() => Elem::C32,
            _ => Elem::F32,
        }
    }
    /// The units that bound a product of operands of type `elem` on a device of this compute capability. `tf32`: whether the
    /// handle's math mode allows TF32. Tensor cores: fp16 from 7.0, bf16 and TF32 from 8.0 (CUDA C++ Programming Guide,
    /// "Compute Capabilities"); without them the work is done in fp32.
    pub fn class(self, elem: Elem, tf32: bool, capability: (i32, i32)) -> Class {
        let half = capability >= if elem == Elem::Bf16 || self == Self::F32FastHalf { (8, 0) } else { (7, 0) };
        match (self, elem.class()) {
            (Self::F64, _) | (_, Class::Fp64) => Class::Fp64,
            (_, Class::Half) | (Self::F32FastHalf, _) if half => Class::Half,
            (Self::F32FastTf32, Class::Fp32) if capability >= (8, 0) => Class::Tf32,
            (Self::F32, Class::Fp32) if tf32 && capability >= (8, 0) => Class::Tf32,
            _ => Class::Fp32,
        }
    }
}

/// `cublasOperation_t`: whether the operand is used transposed.
pub fn transposed(operation: c_int) -> Result<bool, Status> {
    match operation {
        0 => Ok(false),
        1 | 2 => Ok(true),
        _ => Err(Status::InvalidValue),
    }
}

/// `cublasSideMode_t`: whether the triangular or symmetric matrix stands left.
pub fn left(side: c_int) -> Result<bool, Status> {
    match side {
        0 => Ok(true),
        1 => Ok(false),
        _ => Err(Status::InvalidValue),
    }
}
