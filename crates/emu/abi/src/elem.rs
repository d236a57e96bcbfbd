//! Element types of matrices and tensors: what they mean for bytes and arithmetic. Each library has its own numbers for them.

use crate::params::Class;

/// A type of element.
#[expect(missing_docs, reason = "the names say it: F float, C complex, I integer, bits of the whole or of one part")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elem {
    F64,
    F32,
    F16,
    Bf16,
    F8,
    C64,
    C32,
    I64,
    I32,
    I8,
    Bool,
}

impl Elem {
    /// Size of one.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::I8 | Self::Bool | Self::F8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 | Self::C32 => 8,
            Self::C64 => 16,
        }
    }
    /// The type of the real part.
    #[must_use]
    pub const fn real(self) -> Self {
        match self {
            Self::C64 => Self::F64,
            Self::C32 => Self::F32,
            real => real,
        }
    }
    /// Operations of one multiply-add: 2, and of a complex one 8 (four products, four sums).
    #[must_use]
    pub const fn multiply_add(self) -> f64 {
        if matches!(self, Self::C32 | Self::C64) { 8.0 } else { 2.0 }
    }
    /// The units that work on this type, `tensor_cores` among them or not.
    #[must_use]
    pub const fn class(self, tensor_cores: bool) -> Class {
        match (self, tensor_cores) {
            (Self::F64 | Self::C64, _) => Class::Fp64,
            (Self::F32 | Self::C32, true) => Class::Tf32,
            // 8-bit tensor cores are at least as fast as 16-bit ones; counted as those.
            (Self::F16 | Self::Bf16 | Self::I8 | Self::F8, true) => Class::Half,
            _ => Class::Fp32,
        }
    }
    /// Whether a device of this compute capability has tensor cores for products of this type, fp32 rounded to TF32 (CUDA C++
    /// Programming Guide, "Compute Capabilities", table of data types supported by tensor cores).
    #[must_use]
    pub fn on_tensor_cores(self, capability: (i32, i32)) -> bool {
        match self {
            Self::F16 => capability >= (7, 0),
            Self::I8 => capability >= (7, 2),
            Self::F32 | Self::C32 | Self::Bf16 => capability >= (8, 0),
            Self::F8 => capability >= (8, 9),
            Self::F64 | Self::C64 | Self::I64 | Self::I32 | Self::Bool => false,
        }
    }
}
