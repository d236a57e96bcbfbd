//! Fused attention: FlashAttention-2 and the memory-efficient kernels.
//!
//! Both take one struct. Offsets below were found by compiling the structs' declarations: `Flash_fwd_params` (472 bytes)
//! and `Flash_bwd_params` (648) of FlashAttention's `flash.h`, `AttentionKernel::Params` (280) and `AttentionBackwardKernel::Params`
//! (480) of PyTorch's `mem_eff_attention`, both as in torch 2.15.0. Those of torch 2.9.1 differ by a few fields ([`Fields`]; found by
//! comparing what both pass for the same call). A struct of another size is not decoded.
//!
//! Every row of the operands is touched; blocks that a causal mask skips are skipped for queries and keys
//! alike, so no row stays untouched, but half the arithmetic falls away.

use super::Precision;
use super::args::{Launch, Words, product};
use super::name::element_size;
use super::touches::{Access, Touches};

/// A struct, read by the offsets of torch 2.15.0.
struct Fields<'a> {
    words: Words<'a>,
    /// Empty, or in a struct of torch 2.9.1: from which offset on fields lie how many bytes lower.
    lower: Lower,
}
type Lower = &'static [(usize, usize)];

/// `PhiloxCudaState` had 24 bytes, and has 32.
const FLASH: Lower = &[(432, 8)];
/// Likewise, and no number of query heads for each key head.
const EFFICIENT_FORWARD: Lower = &[(204, 8), (264, 16)];
/// Likewise, and the number of splits was narrower.
const EFFICIENT_BACKWARD: Lower = &[(168, 4), (176, 8), (264, 16), (392, 24)];

impl<'a> Fields<'a> {
    /// The struct in parameter 0, of `size` bytes in torch 2.15.0.
    fn of(l: &Launch<'a>, size: usize, lower: Lower) -> Option<Self> {
        let words = l.param(0)?;
        let less = lower.last().map_or(0, |(_, less)| *less);
        match size.checked_sub(words.len())? {
            0 => Some(Self { words, lower: &[] }),
            n if n == less => Some(Self { words, lower }),
            _ => None,
        }
    }
    fn older(&self) -> bool {
        !self.lower.is_empty()
    }
    fn at(&self, at: usize) -> usize {
        at - self.lower.iter().rev().find(|(from, _)| at >= *from).map_or(0, |(_, less)| *less)
    }
    fn u8(&self, at: usize) -> Option<u8> {
        self.words.u8(self.at(at))
    }
    fn u32(&self, at: usize) -> Option<u32> {
        self.words.u32(self.at(at))
    }
    fn u64(&self, at: usize) -> Option<u64> {
        self.words.u64(self.at(at))
    }
    fn i64(&self, at: usize) -> Option<i64> {
        self.words.i64(self.at(at))
    }
    /// A signed stride of 32 bits.
    fn i32(&self, at: usize) -> Option<i64> {
        self.u32(at).map(|n| i64::from(n.cast_signed()))
    }
    /// See [`Words::count`]; of 4 bytes.
    fn count(&self, at: usize) -> Option<u64> {
        self.words.count(self.at(at), 4)
    }
}

/// A tensor of batch × rows × heads × width.
struct Heads {
    ptr: u64,
    elem: u64,
    extents: [u64; 4],
    /// Strides in elements of batch, row and head; width is dense.
    strides: [i64; 3],
}

impl Heads {
    fn touch(&self, out: &mut Touches<'_>, access: Access) -> Option<()> {
        let elem = self.elem.cast_signed();
        let [b, r, h] = self.strides;
        let [batch, rows, heads, width] = self.extents;
        let dims =
            [(width, elem), (heads, h.checked_mul(elem)?), (rows, r.checked_mul(elem)?), (batch, b.checked_mul(elem)?)];
        out.strided(self.ptr, self.elem, &dims, access);
        Some(())
    }
}

/// Products per attention matrix element and width: two in the forward pass, five in the backward pass (Dao, "FlashAttention-2", 2023, section 4).
const FORWARD: f64 = 2.0;
const BACKWARD: f64 = 5.0;

fn flops(products: f64, batch: u64, heads: u64, rows: u64, keys: u64, width: u64, causal: bool) -> f64 {
    let full = 2.0 * products * batch as f64 * heads as f64 * rows as f64 * keys as f64 * width as f64;
    if causal { full / 2.0 } else { full }
}

/// The parts of `Flash_fwd_params` that both passes share.
struct Flash {
    batch: u64,
    queries: u64,
    keys: u64,
    heads: u64,
    kv_heads: u64,
    width: u64,
    rounded_queries: u64,
    rounded_width: u64,
    /// Sequences of different lengths are packed; their starts are in device memory.
    packed: bool,
    causal: bool,
}

impl Flash {
    fn read(p: &Fields<'_>) -> Option<Self> {
        let n = |at| p.count(at);
        let flash = Self {
            batch: n(176)?,
            queries: n(180)?,
            keys: n(184)?,
            heads: n(96)?,
            kv_heads: n(100)?,
            width: n(192)?,
            rounded_queries: n(196)?,
            rounded_width: n(204)?,
            packed: p.u64(224)? != 0,
            causal: p.u8(441).is_some_and(|c| c == 1),
        };
        let sane = flash.heads > 0
            && flash.kv_heads > 0
            && flash.width > 0
            && flash.rounded_width >= flash.width
            && flash.rounded_queries >= flash.queries
            && u64::from(p.u32(104)?) == flash.heads / flash.kv_heads;
        sane.then_some(flash)
    }

    /// Query-like: pointer, and strides of batch, row and head, at these offsets.
    fn heads(&self, p: &Fields<'_>, ptr: usize, strides: [usize; 3], rows: u64, heads: u64) -> Option<Heads> {
        let [b, r, h] = strides;
        let (batch, batch_stride) = if self.packed { (1, 0) } else { (self.batch, p.i64(b)?) };
        let rows = if self.packed { rows.checked_mul(self.batch)? } else { rows };
        Some(Heads {
            ptr: p.u64(ptr)?,
            elem: 2,
            extents: [batch, rows, heads, self.width],
            strides: [batch_stride, p.i64(r)?, p.i64(h)?],
        })
    }
}

/// `flash_fwd_kernel(Flash_fwd_params)`.
pub(super) fn flash_forward(l: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let p = &Fields::of(l, 472, FLASH)?;
    let f = Flash::read(p)?;
    if f.packed {
        // Row counts are in device memory.
        return None;
    }
    f.heads(p, 112, [128, 136, 144], f.queries, f.heads)?.touch(out, Access::Write)?;
    f.heads(p, 0, [24, 48, 72], f.queries, f.heads)?.touch(out, Access::Read)?;
    f.heads(p, 8, [32, 56, 80], f.keys, f.kv_heads)?.touch(out, Access::Read)?;
    f.heads(p, 16, [40, 64, 88], f.keys, f.kv_heads)?.touch(out, Access::Read)?;
    out.dense(p.u64(160)?, product(&[4, f.batch, f.heads, f.queries])?, Access::Write);
    out.compute(flops(FORWARD, f.batch, f.heads, f.queries, f.keys, f.width, f.causal), Precision::Half);
    Some(())
}

/// `flash_bwd_dot_do_o_kernel`: row sums of output times its gradient; clears the accumulator of dQ.
pub(super) fn flash_dot(l: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let p = &Fields::of(l, 648, FLASH)?;
    let f = Flash::read(p).filter(|f| !f.packed)?;
    f.heads(p, 112, [128, 136, 144], f.queries, f.heads)?.touch(out, Access::Read)?;
    f.heads(p, 472, [528, 536, 544], f.queries, f.heads)?.touch(out, Access::Read)?;
    out.dense(p.u64(624)?, product(&[4, f.batch, f.heads, f.rounded_queries])?, Access::Write);
    if l.signature.args.first().is_some_and(|clear| clear == "true") {
        accumulator(p, &f, out, Access::Write)?;
    }
    Some(())
}

/// `flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel`.
pub(super) fn flash_backward(l: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let p = &Fields::of(l, 648, FLASH)?;
    let f = Flash::read(p).filter(|f| !f.packed)?;
    f.heads(p, 0, [24, 48, 72], f.queries, f.heads)?.touch(out, Access::Read)?;
    f.heads(p, 8, [32, 56, 80], f.keys, f.kv_heads)?.touch(out, Access::Read)?;
    f.heads(p, 16, [40, 64, 88], f.keys, f.kv_heads)?.touch(out, Access::Read)?;
    f.heads(p, 472, [528, 536, 544], f.queries, f.heads)?.touch(out, Access::Read)?;
    // Gradients of K and V have as many heads as Q here; PyTorch adds them up afterwards.
    f.heads(p, 488, [560, 584, 608], f.keys, f.heads)?.touch(out, Access::Write)?;
    f.heads(p, 496, [568, 592, 616], f.keys, f.heads)?.touch(out, Access::Write)?;
    out.dense(p.u64(160)?, product(&[4, f.batch, f.heads, f.queries])?, Access::Read);
    out.dense(p.u64(624)?, product(&[4, f.batch, f.heads, f.rounded_queries])?, Access::Read);
    accumulator(p, &f, out, Access::Update)?;
    out.compute(flops(BACKWARD, f.batch, f.heads, f.queries, f.keys, f.width, f.causal), Precision::Half);
    Some(())
}

/// `flash_bwd_convert_dq_kernel`: from the float accumulator to dQ.
pub(super) fn flash_convert(l: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let p = &Fields::of(l, 648, FLASH)?;
    let f = Flash::read(p).filter(|f| !f.packed)?;
    f.heads(p, 480, [552, 576, 600], f.queries, f.heads)?.touch(out, Access::Write)?;
    accumulator(p, &f, out, Access::Read)
}

/// The float accumulator of dQ: batch × rounded queries × heads × rounded width.
fn accumulator(p: &Fields<'_>, f: &Flash, out: &mut Touches<'_>, access: Access) -> Option<()> {
    out.dense(p.u64(504)?, product(&[4, f.batch, f.rounded_queries, f.heads, f.rounded_width])?, access);
    Some(())
}

/// Element size and arithmetic of a memory-efficient kernel, from its `AttentionKernel<Arch, scalar, …>::Params`.
fn scalar(l: &Launch<'_>) -> Option<(u64, Precision)> {
    let (_, inner) = l.signature.params.first()?.split_once("Kernel<")?;
    // The architecture comes first in one of the two kernels, the scalar type in the other.
    let args = super::name::split(inner);
    let size = args.iter().take(2).find_map(|t| element_size(t))?;
    Some((u64::from(size), if size == 2 { Precision::Half } else { Precision::Tf32 }))
}

/// `fmha_cutlassF_*(AttentionKernel::Params)`.
pub(super) fn efficient_forward(l: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let p = &Fields::of(l, 280, EFFICIENT_FORWARD)?;
    let (elem, class) = scalar(l)?;
    let n = |at| p.count(at);
    let (width, value_width, queries, keys) = (n(96)?, n(100)?, n(104)?, n(108)?);
    let (batch, heads) = (n(192)?, n(204)?);
    let kv_heads = heads.checked_div(if p.older() { 1 } else { n(208)? })?;
    if p.u64(32)? != 0 || (l.call.grid[1], l.call.grid[2]) != (u32::try_from(heads).ok()?, u32::try_from(batch).ok()?) {
        // Packed sequences, or not this struct.
        return None;
    }
    let stride = |row: usize, head: usize, batch: usize| Some([p.i64(batch)?, p.i32(row)?, p.i32(head)?]);
    let tensor = |ptr, rows, heads, width, strides| {
        Some(Heads { ptr: p.u64(ptr)?, elem, extents: [batch, rows, heads, width], strides })
    };
    let row = p.i32(136)?;
    let output = [row.checked_mul(queries.cast_signed())?, row, value_width.cast_signed()];
    tensor(64, queries, heads, value_width, output)?.touch(out, Access::Write)?;
    tensor(0, queries, heads, width, stride(120, 140, 160)?)?.touch(out, Access::Read)?;
    tensor(8, keys, kv_heads, width, stride(124, 144, 168)?)?.touch(out, Access::Read)?;
    tensor(16, keys, kv_heads, value_width, stride(128, 148, 176)?)?.touch(out, Access::Read)?;
    // A bias of heads × queries × keys; stride 0 where it is shared.
    let bias = [p.i64(184)?, p.i32(132)?, p.i64(152)?];
    tensor(24, queries, heads, keys, bias)?.touch(out, Access::Read)?;
    let accumulator = p.u64(72)?;
    if accumulator != p.u64(64)? {
        out.dense(accumulator, product(&[4, batch, queries, heads, value_width])?, Access::Update);
    }
    out.dense(p.u64(80)?, product(&[4, batch, heads, queries.next_multiple_of(32)])?, Access::Write);
    let causal = p.u8(116)? != 0;
    out.compute(flops(FORWARD, batch, heads, queries, keys, width, causal), class);
    Some(())
}

/// `fmha_cutlassB_*(AttentionBackwardKernel::Params)`.
pub(super) fn efficient_backward(l: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let p = &Fields::of(l, 480, EFFICIENT_BACKWARD)?;
    let (elem, class) = scalar(l)?;
    let n = |at| p.count(at);
    let (width, value_width, queries, keys) = (n(144)?, n(148)?, n(152)?, n(156)?);
    let (heads, batch) = (n(160)?, n(384)?);
    let kv_heads = heads.checked_div(if p.older() { 1 } else { n(164)? })?;
    if p.u64(64)? != 0 || (l.call.grid[1], l.call.grid[2]) != (u32::try_from(heads).ok()?, u32::try_from(batch).ok()?) {
        return None;
    }
    let tensor = |ptr, rows, heads, width, strides| {
        Some(Heads { ptr: p.u64(ptr)?, elem, extents: [batch, rows, heads, width], strides })
    };
    let input = |ptr, rows, heads, width, row, head, batch| {
        tensor(ptr, rows, heads, width, [p.i64(batch)?, p.i64(row)?, p.i32(head)?])
    };
    input(0, queries, heads, width, 176, 288, 320)?.touch(out, Access::Read)?;
    input(8, keys, kv_heads, width, 184, 292, 328)?.touch(out, Access::Read)?;
    input(16, keys, kv_heads, value_width, 192, 296, 336)?.touch(out, Access::Read)?;
    let wide = |ptr, rows, width, strides: [usize; 3]| {
        let [b, r, h] = strides;
        tensor(ptr, rows, heads, width, [p.i64(b)?, p.i64(r)?, p.i64(h)?])
    };
    wide(24, queries, keys, [344, 200, 304])?.touch(out, Access::Read)?;
    let row = value_width.checked_mul(heads)?.cast_signed();
    tensor(40, queries, heads, value_width, [p.i64(312)?, row, p.i64(280)?])?.touch(out, Access::Read)?;
    wide(48, queries, value_width, [400, 208, 440])?.touch(out, Access::Read)?;
    // Row sums, once per query and head.
    for (ptr, b, h) in [(32, 352, 360), (56, 368, 376)] {
        let dims = [(queries, 4), (heads, p.i64(h)?.checked_mul(4)?), (batch, p.i64(b)?.checked_mul(4)?)];
        out.strided(p.u64(ptr)?, 4, &dims, Access::Read);
    }
    // Gradients: rows of all heads, three times as far apart when Q, K and V are one tensor.
    let packed = i64::from(p.u8(224)?);
    let row = |width: u64| packed.checked_mul(heads.cast_signed())?.checked_mul(width.cast_signed());
    let gradient = |ptr, rows, width: u64, b, h| tensor(ptr, rows, heads, width, [p.i64(b)?, row(width)?, p.i64(h)?]);
    gradient(80, queries, width, 408, 448)?.touch(out, Access::Write)?;
    gradient(88, keys, width, 416, 456)?.touch(out, Access::Write)?;
    gradient(96, keys, value_width, 424, 464)?.touch(out, Access::Write)?;
    wide(104, queries, keys, [432, 216, 472])?.touch(out, Access::Write)?;
    workspace(p, l, out, elem)?;
    let causal = p.u8(168)? != 0;
    out.compute(flops(BACKWARD, batch, heads, queries, keys, width, causal), class);
    Some(())
}

/// The accumulators of a backward pass, laid out as `Params::workspace_size` does: per batch and head, tiles of floats for
/// dQ, each behind 16 bytes of lock and counter, and for wide 16-bit heads also those of dK and dV.
fn workspace(p: &Fields<'_>, l: &Launch<'_>, out: &mut Touches<'_>, elem: u64) -> Option<()> {
    let ptr = p.u64(112)?;
    let (_, inner) = l.signature.params.first()?.split_once("Kernel<")?;
    // <architecture, scalar, aligned, dropout, preload, queries per block, keys per block, widest head, …>
    let args = super::name::split(inner);
    let number = |n: usize| args.get(n).and_then(|a| super::offsets::number(a)).map(|n| n as u64).filter(|&n| n > 0);
    let (rows, keys, widest) = (number(5)?, number(6)?, number(7)?);
    let n = |at| p.count(at);
    let (width, value_width, queries, heads, batch) = (n(144)?, n(148)?, n(152)?, n(160)?, n(384)?);
    let splits = u64::from(p.words.u16(p.at(396))?);
    let in_registers = elem == 4 || widest <= rows;
    let partial = |width: u64| {
        if in_registers { Some(0) } else { product(&[splits, keys, width.next_multiple_of(rows), 4]) }
    };
    let tile = product(&[4, rows, keys])?.checked_add(16)?;
    let tiles = product(&[queries.div_ceil(rows), width.div_ceil(keys), tile])?;
    let pair = partial(width)?.checked_add(partial(value_width)?)?.checked_add(tiles)?.checked_next_multiple_of(16)?;
    out.dense(ptr, product(&[batch, heads, pair])?, Access::Update);
    Some(())
}
