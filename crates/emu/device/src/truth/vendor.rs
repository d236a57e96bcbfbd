//! Kernels inside the stand-in cuBLAS, cuBLASLt and cuDNN: boxes of elements, as `deepum-emu-abi` defines them.

use deepum_core::units::DevAddr;
use deepum_emu_abi::params::{self, Class};

use super::Precision;
use super::args::Launch;
use super::touches::{Access, Touches};

/// More matrices than this in one batch are not looked up one by one.
const MAX_BATCH: u64 = 1 << 16;

pub(super) fn operands(l: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let (header, operands) = params::decode(l.param(0)?.0)?;
    for operand in operands {
        let elem = u64::from(operand.elem_bytes);
        let dims: Vec<(u64, i64)> = operand
            .dims
            .iter()
            .zip(operand.strides)
            .map(|(&n, stride)| Some((n, i64::try_from(stride.checked_mul(elem)?).ok()?)))
            .collect::<Option<_>>()?;
        let access = match (operand.access & params::READ != 0, operand.access & params::WRITE != 0) {
            (true, true) => Access::Update,
            (false, true) => Access::Write,
            _ => Access::Read,
        };
        if operand.access & params::INDIRECT == 0 {
            out.strided(operand.ptr, elem, &dims, access);
            continue;
        }
        let count = usize::try_from(operand.batch).ok().filter(|_| operand.batch <= MAX_BATCH)?;
        let mut array = vec![0; 8 * count];
        if !out.view().read(DevAddr(operand.ptr), &mut array) {
            return None;
        }
        out.dense(operand.ptr, 8 * operand.batch, Access::Read);
        for ptr in array.as_chunks::<8>().0 {
            out.strided(u64::from_le_bytes(*ptr), elem, &dims, access);
        }
    }
    let class = match header.class {
        c if c == Class::Fp64 as u32 => Precision::Fp64,
        c if c == Class::Tf32 as u32 => Precision::Tf32,
        c if c == Class::Half as u32 => Precision::Half,
        _ => Precision::Fp32,
    };
    out.compute(if header.flops.is_finite() { header.flops.max(0.0) } else { 0.0 }, class);
    Some(())
}
