//! The structs by which PyTorch's kernels carry shapes: offset calculators, `TensorInfo`, packed accessors.
//!
//! | struct | layout | source in PyTorch |
//! | --- | --- | --- |
//! | `OffsetCalculator<N, I>` | i32 dims; 25 dividers (u32: divisor and two magic words; u64: divisor); `I` strides[25][max(N, 1)] | `ATen/cuda/detail/OffsetCalculator.cuh`, `IntegerDivider.cuh` |
//! | `TensorInfo<T, I>` | pointer; `I` sizes[25]; `I` strides[25]; i32 dims | `ATen/cuda/detail/TensorInfo.cuh` |
//! | `PackedTensorAccessor<T, N, I>` | pointer; `I` sizes[N]; `I` strides[N] | `ATen/core/TensorAccessor.h` |

use super::args::{Launch, Words};
use super::name::{element_size, split, template};
use super::touches::{Access, Touches};

const MAX_DIMS: usize = 25;

/// A decoded `OffsetCalculator`: extent per dimension, and strides per dimension and operand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Offsets {
    pub(super) dims: Vec<(u64, Vec<i64>)>,
}

impl Offsets {
    /// Size of `OffsetCalculator<operands, index>`.
    pub(super) const fn size(operands: usize, index: usize) -> usize {
        let operands = if operands == 0 { 1 } else { operands };
        let divider = if index == 4 { 12 } else { 8 };
        // Behind `dims`, the dividers start at their own alignment.
        index + MAX_DIMS * divider + MAX_DIMS * operands * index
    }

    /// Reads one at the start of `words`. `None` unless it can be one: at most 25 dimensions, none of them empty.
    pub(super) fn read(words: Words<'_>, operands: usize, index: usize, signed: bool) -> Option<Self> {
        let divider = if index == 4 { 12 } else { 8 };
        let count = words.u32(0)? as usize;
        if count > MAX_DIMS || words.len() < Self::size(operands, index) {
            return None;
        }
        let strides = index + MAX_DIMS * divider;
        let columns = operands.max(1);
        let mut dims = Vec::with_capacity(count);
        for d in 0..count {
            let extent = words.count(index + d * divider, if index == 4 { 4 } else { 8 })?;
            if extent == 0 {
                return None;
            }
            let stride = |operand: usize| {
                let at = strides + (d * columns + operand) * index;
                if index == 8 {
                    words.i64(at)
                } else if signed {
                    words.u32(at).map(|s| i64::from(s.cast_signed()))
                } else {
                    words.u32(at).map(i64::from)
                }
            };
            dims.push((extent, (0..operands).map(stride).collect::<Option<_>>()?));
        }
        Some(Self { dims })
    }

    /// How many positions there are.
    pub(super) fn positions(&self) -> Option<u64> {
        self.dims.iter().try_fold(1u64, |product, &(n, _)| product.checked_mul(n))
    }

    /// The dimensions as one operand sees them: extent, and stride times `scale` bytes.
    pub(super) fn operand(&self, operand: usize, scale: u64) -> Vec<(u64, i64)> {
        let scale = i64::try_from(scale).unwrap_or(i64::MAX);
        self.dims.iter().map(|(n, strides)| (*n, strides.get(operand).map_or(0, |s| s.saturating_mul(scale)))).collect()
    }
}

/// A tensor that carries its own shape.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Shaped {
    pub(super) ptr: u64,
    pub(super) elem: u64,
    /// Extent, and stride in bytes, outermost first.
    pub(super) dims: Vec<(u64, i64)>,
    pub(super) constant: bool,
}

impl Shaped {
    /// Reads parameter `n` if its type is a `TensorInfo` or a packed accessor.
    pub(super) fn read(launch: &Launch<'_>, n: usize) -> Option<Self> {
        let (kind, element, index) = Self::kind(launch.signature.params.get(n)?)?;
        let words = launch.param(n)?;
        let (element, constant) = element.strip_suffix(" const").map_or((element.as_str(), false), |e| (e, true));
        let elem = u64::from(element_size(element)?);
        let index_size = u32::try_from(index).ok()?;
        let (room, count) = match kind {
            Kind::Info => {
                let at = 8 + 2 * MAX_DIMS * index;
                (MAX_DIMS, words.u32(at)? as usize)
            }
            Kind::Packed(dims) => (dims, dims),
        };
        if count > room || words.len() < 8 + 2 * room * index {
            return None;
        }
        let dims = (0..count)
            .map(|d| {
                let extent = words.count(8 + d * index, index_size)?;
                let at = 8 + (room + d) * index;
                let stride = if index == 8 { words.i64(at)? } else { i64::from(words.u32(at)?.cast_signed()) };
                Some((extent, stride.checked_mul(elem.cast_signed())?))
            })
            .collect::<Option<_>>()?;
        Some(Self { ptr: words.u64(0)?, elem, dims, constant })
    }

    /// What kind of shaped tensor the type `text` is, its element type, and the size of its index type.
    pub(super) fn kind(text: &str) -> Option<(Kind, String, usize)> {
        let (name, args) = template(text)?;
        let index = |text: &str| element_size(text).map(|s| s as usize).filter(|s| matches!(s, 4 | 8));
        match name {
            "TensorInfo" => Some((Kind::Info, args.first()?.clone(), index(args.get(1)?)?)),
            "GenericPackedTensorAccessor" => {
                // Accessor, bounds check, element, dimensions, traits, index.
                Some((Kind::Packed(number(args.get(3)?)?), args.get(2)?.clone(), index(args.get(5)?)?))
            }
            "PackedTensorAccessor" | "PackedTensorAccessor32" | "PackedTensorAccessor64" => {
                let fixed = if name.ends_with("64") { Some(8) } else { None };
                let given = args.get(3).and_then(|a| index(a));
                Some((Kind::Packed(number(args.get(1)?)?), args.first()?.clone(), given.or(fixed).unwrap_or(4)))
            }
            _ => None,
        }
    }

    pub(super) fn elements(&self) -> u64 {
        self.dims.iter().fold(1, |product, &(n, _)| product.saturating_mul(n))
    }

    pub(super) fn touch(&self, out: &mut Touches<'_>, access: Access) {
        out.strided(self.ptr, self.elem, &self.dims, access);
    }

    /// Touches the whole tensor: reading if it is `const`, else writing.
    pub(super) fn touch_all(&self, out: &mut Touches<'_>) {
        self.touch(out, if self.constant { Access::Read } else { Access::Write });
    }
}

/// The kinds of tensor that carry their shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Info,
    Packed(usize),
}

/// A template argument such as `4` or `(unsigned long)4`.
pub(super) fn number(text: &str) -> Option<usize> {
    text.rsplit(')').next()?.trim().trim_end_matches(['u', 'l']).parse().ok()
}

/// `OffsetCalculator<N, I, signed>` and its trivial sister, from the type's text: operands, index size, signed; `None` for others.
pub(super) fn calculator(text: &str) -> Option<(bool, usize, usize, bool)> {
    let inner = text.split_once('<').map(|(name, inner)| (name, split(inner.strip_suffix('>').unwrap_or(inner))))?;
    let (name, args) = inner;
    let trivial = match name {
        "OffsetCalculator" => false,
        "TrivialOffsetCalculator" => true,
        _ => return None,
    };
    let index = args.get(1).map_or(Some(4), |t| element_size(t))? as usize;
    Some((trivial, number(args.first()?)?, index, args.get(2).is_some_and(|s| s == "true")))
}
