//! Elementwise kernels: one result, a few arguments, all walked together.
//!
//! Four shapes of the same thing, from `ATen/native/cuda/CUDALoops.cuh`:
//!
//! | kernel | parameters | how elements lie |
//! | --- | --- | --- |
//! | `vectorized_elementwise_kernel` | N, f, pointers | contiguous |
//! | `unrolled_elementwise_kernel` | N, f, pointers, input and output calculator, loader, storer | contiguous or strided (in elements); converting loaders carry element sizes |
//! | `…_for_multi_outputs` | N, f, pointers, input and output calculator | as above; results first |
//! | `elementwise_kernel` | N, closure | strided (in bytes): calculator, pointers, f, and dtypes if it converts |
//!
//! A closure holds its captures in the order of their first use. That order is nowhere declared, so it is not trusted: the calculator
//! must describe exactly N positions, else the launch counts as not understood.

use super::args::{Launch, Words};
use super::functor::{self, Elements, elements};
use super::name::{split, template};
use super::offsets::{Offsets, calculator, number};
use super::touches::{Access, Touches};

/// One operand: where it is, how wide its elements are, and how they lie.
struct Operand {
    ptr: u64,
    elem: u64,
    dims: Vec<(u64, i64)>,
}

/// Touches results, then arguments; an argument that is also a result is updated in place.
fn touch(out: &mut Touches<'_>, results: &[Operand], arguments: &[Operand]) {
    let same = |a: &Operand, b: &Operand| a.ptr == b.ptr && a.elem == b.elem && a.dims == b.dims;
    for r in results {
        let access = if arguments.iter().any(|a| same(a, r)) { Access::Update } else { Access::Write };
        out.strided(r.ptr, r.elem, &r.dims, access);
    }
    for (n, a) in arguments.iter().enumerate() {
        if !results.iter().chain(&arguments[..n]).any(|r| same(r, a)) {
            out.strided(a.ptr, a.elem, &a.dims, Access::Read);
        }
    }
}

/// `vectorized_elementwise_kernel(N, f, pointers)`.
pub(super) fn vectorized(launch: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let n = launch.count(0)?;
    let data = launch.param(2)?;
    let count = data.len() / 8;
    let types = elements(launch.signature.params.get(1)?, count.checked_sub(1)?)?;
    let operand = |i: usize, elem: u32| contiguous(data, i, u64::from(elem), n);
    let result = operand(0, types.result)?;
    let arguments: Vec<_> =
        types.arguments.iter().enumerate().map(|(i, &e)| operand(i + 1, e)).collect::<Option<_>>()?;
    touch(out, &[result], &arguments);
    Some(())
}

/// `unrolled_elementwise_kernel(N, f, pointers, input calculator, output calculator, loader, storer)` and the kernel for several outputs,
/// which has neither loader nor storer.
pub(super) fn unrolled(launch: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let n = launch.count(0)?;
    let data = launch.param(2)?;
    let types = &launch.signature.params;
    let inputs = calculator(types.get(3)?)?.1;
    let results = (data.len() / 8).checked_sub(inputs)?;
    let known = || elements(types.get(1)?, inputs);
    let loaded = |i: usize| -> Option<u64> {
        match converting(launch, 5) {
            Some((sizes, arity)) => sizes.u32(arity.next_multiple_of(4) + 4 * i).map(u64::from),
            None => known()?.arguments.get(i).copied().map(u64::from),
        }
    };
    let stored = |i: usize| -> Option<u64> {
        match converting(launch, 6) {
            Some((sizes, arity)) => sizes.u32(arity.next_multiple_of(4) + 4 * i).map(u64::from),
            None => known().map(|e| u64::from(e.result)),
        }
    };
    let results: Vec<_> =
        (0..results).map(|i| calculated(launch, 4, i, data, i, stored(i)?, n)).collect::<Option<_>>()?;
    let first = results.len();
    let arguments: Vec<_> =
        (0..inputs).map(|i| calculated(launch, 3, i, data, first + i, loaded(i)?, n)).collect::<Option<_>>()?;
    touch(out, &results, &arguments);
    Some(())
}

/// The bytes and arity of parameter `n` if it is a converting loader or storer.
fn converting<'a>(launch: &Launch<'a>, n: usize) -> Option<(Words<'a>, usize)> {
    let (name, args) = template(launch.signature.params.get(n)?)?;
    let arity = number(args.first()?)?.max(1);
    matches!(name, "LoadWithCast" | "StoreWithCast").then_some((launch.param(n)?, arity))
}

fn contiguous(data: Words<'_>, slot: usize, elem: u64, n: u64) -> Option<Operand> {
    Some(Operand { ptr: data.u64(8 * slot)?, elem, dims: vec![(n, elem.cast_signed())] })
}

/// Operand `column` of the calculator in parameter `param`, whose strides count elements.
fn calculated(
    launch: &Launch<'_>,
    param: usize,
    column: usize,
    data: Words<'_>,
    slot: usize,
    elem: u64,
    n: u64,
) -> Option<Operand> {
    let (trivial, operands, index, signed) = calculator(launch.signature.params.get(param)?)?;
    if trivial {
        return contiguous(data, slot, elem, n);
    }
    let offsets = Offsets::read(launch.param(param)?, operands, index, signed).filter(|o| o.positions() == Some(n))?;
    Some(Operand { ptr: data.u64(8 * slot)?, elem, dims: offsets.operand(column, elem) })
}

/// `elementwise_kernel(N, closure)` from `gpu_kernel_impl` (which converts) and `gpu_kernel_impl_nocast`.
pub(super) fn closure(launch: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let n = launch.count(0)?;
    let closure = launch.param(1)?;
    let text = launch.signature.params.get(1)?;
    let (maker, rest) = text.split_once("gpu_kernel_impl")?;
    if maker.contains('<') || maker.contains('{') {
        return None;
    }
    let (converts, rest) = match rest.strip_prefix("_nocast<") {
        Some(rest) => (false, rest),
        None => (true, rest.strip_prefix('<')?),
    };
    let functor = split(rest).first().map(|f| trim_unbalanced(f).to_owned())?;
    // As many operands as fit: a calculator column and a pointer cost 108 bytes each, a functor is smaller than that.
    let operands = (1..=16).rev().find(|&k| Offsets::size(k, 4).next_multiple_of(8) + 8 * k < closure.len())?;
    let offsets = Offsets::read(closure, operands, 4, false).filter(|o| o.positions() == Some(n))?;
    let pointers = Offsets::size(operands, 4).next_multiple_of(8);
    let after = pointers + 8 * operands;
    let sizes = if converts {
        dtypes(closure, after, operands, &offsets)?
    } else {
        let Elements { result, arguments } = elements(&functor, operands - 1)?;
        std::iter::once(result).chain(arguments).map(u64::from).collect()
    };
    let mut all = Vec::with_capacity(operands);
    for (i, &elem) in sizes.iter().enumerate() {
        all.push(Operand { ptr: closure.u64(pointers + 8 * i)?, elem, dims: offsets.operand(i, 1) });
    }
    let arguments = all.split_off(1);
    touch(out, &all, &arguments);
    Some(())
}

/// Element sizes from the dtypes behind the functor. How long the functor is, is in no name, so every place where it can end is looked
/// at: the dtypes must be valid and fit strides and pointers; of several such places the one wins whose sizes are most often the
/// smallest stride, as they are where neighbours lie together.
fn dtypes(closure: Words<'_>, after: usize, operands: usize, offsets: &Offsets) -> Option<Vec<u64>> {
    let smallest: Vec<u64> = (0..operands)
        .map(|i| offsets.dims.iter().map(|(_, s)| s[i].unsigned_abs()).filter(|&s| s > 0).min().unwrap_or(0))
        .collect();
    let candidate = |at: usize| -> Option<(usize, Vec<u64>)> {
        let sizes: Vec<u64> =
            (0..operands).map(|i| functor::scalar_type(closure.u8(at + i)?).map(u64::from)).collect::<Option<_>>()?;
        let fits = |(i, &size): (usize, &u64)| {
            offsets.dims.iter().all(|(_, s)| s[i].unsigned_abs().is_multiple_of(size))
                && closure.u64(after - 8 * operands + 8 * i).is_some_and(|ptr| ptr.is_multiple_of(size))
        };
        let neighbours = sizes.iter().zip(&smallest).filter(|(size, stride)| size == stride).count();
        sizes.iter().enumerate().all(fits).then_some((neighbours, sizes))
    };
    let ends = (after + 1..=closure.len().checked_sub(operands)?)
        .filter(|at| (at - after).is_power_of_two() || (at - after).is_multiple_of(4));
    // The first of the best: `max_by_key` would take the last.
    ends.filter_map(candidate).reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, sizes)| sizes)
}

/// Cuts a template argument off where its list ends, when the list was split without its opening bracket.
fn trim_unbalanced(text: &str) -> &str {
    let mut depth = 0i32;
    for (at, c) in text.char_indices() {
        match c {
            '<' | '(' | '{' => depth += 1,
            '>' | ')' | '}' => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return &text[..at];
        }
    }
    text
}

/// `distribution_elementwise_grid_stride_kernel(numel, philox, f, closure)`: random fills. The closure holds either pointer and stride, or
/// calculator and pointer (`ATen/native/cuda/DistributionTemplates.h`).
pub(super) fn distribution(launch: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let n = launch.count(0)?;
    let closure = launch.param(3)?;
    let calculator = Offsets::size(1, 4).next_multiple_of(8);
    let element = || {
        let text = launch.signature.params.get(3)?;
        let (_, rest) = text.split_once("distribution_nullary_kernel<")?;
        super::name::element_size(split(rest).first()?).map(u64::from)
    };
    if closure.len() > calculator {
        let offsets = Offsets::read(closure, 1, 4, false).filter(|o| o.positions() == Some(n))?;
        out.strided(closure.u64(calculator)?, element()?, &offsets.operand(0, 1), Access::Write);
    } else {
        let stride = u64::from(closure.u32(8)?);
        let elem = element()?;
        if stride != elem {
            return None;
        }
        out.dense(closure.u64(0)?, n.checked_mul(elem)?, Access::Write);
    }
    Some(())
}

/// `elementwise_kernel_with_index(N, f, result)`, which is `arange`. Its result type is in no name but for the number of the lambda: the
/// position of the type among those the operation is compiled for (`aten/src/ATen/native/cuda/RangeFactories.cu`; torch 2.15).
pub(super) fn with_index(launch: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    /// Byte, char, int, long, short, double, float, half, bfloat16.
    const TYPES: [u64; 9] = [1, 1, 4, 8, 2, 8, 4, 2, 2];
    let text = launch.signature.params.get(1)?;
    let (_, rest) = text.split_once("::arange_cuda_out(")?;
    // …::{lambda()#1}::operator()() const::{lambda()#4}::operator()() const::{lambda(long)#1}
    let (_, number) = rest.rsplit_once("{lambda()#")?;
    let number: usize = number.split_once('}')?.0.parse().ok()?;
    let elem = *TYPES.get(number.checked_sub(1)?)?;
    out.dense(launch.pointer(2)?, launch.count(0)?.checked_mul(elem)?, Access::Write);
    Some(())
}
