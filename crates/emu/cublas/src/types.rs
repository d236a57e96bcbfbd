//! Element types, compute types, operations and scalars: what cuBLAS's arguments mean for bytes and arithmetic.

use std::ffi::{c_int, c_void};

use deepum_emu_abi::elem::Elem;
use deepum_emu_abi::params::{Class, Operand, READ, WRITE};
use deepum_emu_abi::refused;

use crate::status::Status;

/// `cudaDataType`, of those that some operation here takes.
pub fn elem(value: c_int) -> Result<Elem, Status> {
    Ok(match value {
        0 => Elem::F32,
        1 => Elem::F64,
        2 => Elem::F16,
        3 => Elem::I8,
        4 => Elem::C32,
        5 => Elem::C64,
        10 => Elem::I32,
        14 => Elem::Bf16,
        28 | 29 => Elem::F8,
        _ => return Err(refused!(Status::NotSupported, "cuBLAS with data type {value}")),
    })
}

/// `cublasComputeType_t`: which scalar type alpha and beta have, and which units work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compute {
    F16,
    F32,
    F32Pedantic,
    F32FastF16,
    F32FastBf16,
    F32FastTf32,
    F64,
    I32,
}

impl Compute {
    pub fn new(value: c_int) -> Result<Self, Status> {
        Ok(match value {
            64 | 65 => Self::F16,
            68 => Self::F32,
            69 => Self::F32Pedantic,
            70 | 71 => Self::F64,
            72 | 73 => Self::I32,
            74 => Self::F32FastF16,
            75 => Self::F32FastBf16,
            77 => Self::F32FastTf32,
            _ => return Err(refused!(Status::NotSupported, "cuBLAS with compute type {value}")),
        })
    }
    /// Type of alpha and beta for operands of type `elem`.
    pub const fn scalar(self, elem: Elem) -> Elem {
        match self {
            Self::F16 => Elem::F16,
            Self::F64 if matches!(elem, Elem::C64) => Elem::C64,
            Self::F64 => Elem::F64,
            Self::I32 => Elem::I32,
            _ if matches!(elem, Elem::C32) => Elem::C32,
            _ => Elem::F32,
        }
    }
    /// The units that bound a product of operands of type `elem` under a `cublasMath_t`, on a device of this compute capability.
    ///
    /// Narrow types go to tensor cores wherever there are some. fp32 does if the compute type or, with the default one, the math
    /// mode allows rounding its operands: "tensor op" (1) to fp16, "TF32" (3) to TF32.
    pub fn class(self, elem: Elem, math_mode: c_int, capability: (i32, i32)) -> Class {
        let rounded = match (elem, self, math_mode & !DISALLOW_REDUCED_PRECISION) {
            (Elem::F32 | Elem::C32, Self::F32FastF16, _) | (Elem::F32 | Elem::C32, Self::F32, 1) => Elem::F16,
            (Elem::F32 | Elem::C32, Self::F32FastBf16, _) => Elem::Bf16,
            (Elem::F32 | Elem::C32, Self::F32FastTf32, _) | (Elem::F32 | Elem::C32, Self::F32, 3) => Elem::F32,
            (Elem::F32 | Elem::C32, ..) => return Class::Fp32,
            (narrow, ..) => narrow,
        };
        rounded.class(rounded.on_tensor_cores(capability))
    }
}

/// `CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION`, a flag beside the math mode.
const DISALLOW_REDUCED_PRECISION: c_int = 16;

/// `cublasMath_t`: default, tensor op (deprecated), pedantic, TF32. Emulated fp32 (4) and fp64 (8) would change the arithmetic.
pub fn math_mode(mode: c_int) -> Result<c_int, Status> {
    match mode & !DISALLOW_REDUCED_PRECISION {
        0..=3 => Ok(mode),
        _ => Err(refused!(Status::NotSupported, "cuBLAS math mode {mode}")),
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

/// `cublasPointerMode_t`: where alpha, beta and results are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PointerMode {
    Host = 0,
    Device = 1,
}

impl PointerMode {
    pub fn new(mode: c_int) -> Result<Self, Status> {
        match mode {
            0 => Ok(Self::Host),
            1 => Ok(Self::Device),
            _ => Err(Status::InvalidValue),
        }
    }
}

/// Alpha or beta.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scalar {
    /// Where the kernel reads it, if it lies in device memory.
    pub operand: Operand,
    /// Whether it is known to be zero; nobody here knows of one in device memory.
    pub is_zero: bool,
}

impl Scalar {
    /// # Safety
    /// `at` is null or, in host mode, points to a value of type `elem`.
    pub unsafe fn new(mode: PointerMode, at: *const c_void, elem: Elem) -> Result<Self, Status> {
        if at.is_null() {
            return Err(Status::InvalidValue);
        }
        Ok(match mode {
            // SAFETY: the caller's promise.
            PointerMode::Host => Self { operand: Operand::default(), is_zero: unsafe { is_zero(at, elem) } },
            PointerMode::Device => {
                Self { operand: Operand::read(at.addr() as u64, elem.bytes(), &[(1, 1)]), is_zero: false }
            }
        })
    }

    /// As alpha: what is left of an operand and of the arithmetic that it is multiplied with. What is not needed is not read.
    pub fn times(self, operand: Operand) -> Operand {
        if self.is_zero { Operand::default() } else { operand }
    }

    /// As beta: how the result is accessed that is blended with its old value.
    pub fn blend(self) -> u32 {
        if self.is_zero { WRITE } else { READ | WRITE }
    }
}

/// Whether the scalar at `at` is zero, real and imaginary part.
///
/// # Safety
/// `at` points to a host value of type `elem`.
unsafe fn is_zero(at: *const c_void, elem: Elem) -> bool {
    let part = elem.real().bytes() as usize;
    // SAFETY: the caller promises that many readable bytes.
    let bytes = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), elem.bytes() as usize) };
    // Minus zero is zero: of each little-endian float the top bit does not count.
    let top = if elem == Elem::I32 { 0xff } else { 0x7f };
    bytes
        .chunks(part)
        .all(|part| part.split_last().is_none_or(|(last, rest)| last & top == 0 && rest.iter().all(|b| *b == 0)))
}
