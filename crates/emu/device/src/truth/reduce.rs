//! `reduce_kernel(ReduceOp)`: sums, means, norms, minima over some dimensions.
//!
//! `ReduceOp<scalar_t, ops_t, index_t, out_scalar_t, …>` (`ATen/native/cuda/Reduce.cuh`) is: ops, identity, `ReduceConfig`
//! (15 ints, a bool and an int: 64 bytes), input calculator, output calculator, source, two destinations, accumulation
//! buffer, block buffer, semaphores, base index, two bools, number of outputs. Ops and identity are of unknown size, so the struct is read from its
//! end; that the config found so names the launch's own block and grid proves the position.
//!
//! Read: every combination of output and reduced position of the source. Written: every output position. A reduction over
//! several blocks per output also passes partial results through the block buffer.

use super::args::{Launch, Words};
use super::name::{element_size, split};
use super::offsets::Offsets;
use super::touches::{Access, Touches};

const CONFIG: usize = 64;
/// Source to the end of the struct.
const TAIL: usize = 64;

pub(super) fn reduce(launch: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let words = launch.param(0)?;
    let text = launch.signature.params.first()?;
    let (_, inner) = text.split_once("ReduceOp<")?;
    let args = split(inner.strip_suffix('>')?);
    let (scalar, out_scalar) = (element(&args, 0)?, element(&args, 3)?);
    let index = usize::try_from(element(&args, 2)?).ok()?;

    let tail = words.len().checked_sub(TAIL)?;
    let calculators = (Offsets::size(1, index), Offsets::size(2, index));
    let config_at = [0, 4, 8].into_iter().find_map(|padding| {
        let at = tail.checked_sub(padding + calculators.0 + calculators.1 + CONFIG)?;
        config(launch, words.from(at)?).then_some(at)
    })?;
    let config = words.from(config_at)?;
    let input = Offsets::read(words.from(config_at + CONFIG)?, 1, index, false)?;
    let output = Offsets::read(words.from(config_at + CONFIG + calculators.0)?, 2, index, false)?;
    let (inputs, outputs) = (u64::from(config.u32(4)?), u64::from(config.u32(8)?));
    if input.positions()? != inputs || output.positions()? != outputs {
        return None;
    }

    let mut source = output.operand(1, 1);
    source.extend(input.operand(0, 1));
    let tail = words.from(tail)?;
    out.strided(tail.u64(0)?, scalar, &source, Access::Read);
    let accumulate = tail.u8(56)? != 0;
    let access = if accumulate { Access::Update } else { Access::Write };
    let written = output.operand(0, 1);
    out.strided(tail.u64(8)?, out_scalar, &written, access);
    if tail.u32(60)? == 2 {
        // The second destination lies like the first; its elements are indices where positions are searched.
        let indexed = ["ArgMin", "ArgMax", "MinOps", "MaxOps"].iter().any(|n| text.contains(n));
        let second = if indexed { 8 } else { out_scalar };
        let scaled = |s: i64| (s / out_scalar.cast_signed()).saturating_mul(second.cast_signed());
        let written: Vec<_> = written.iter().map(|&(n, s)| (n, scaled(s))).collect();
        out.strided(tail.u64(16)?, second, &written, access);
    }
    if config.u32(20)? > 1 {
        // Every block leaves its partial result, a vector of outputs for each lane that does not reduce along x.
        let lanes = if config.u32(24)? == 0 { u64::from(config.u32(44)?) } else { 1 };
        let vector = u64::from(config.u32(0)?) * u64::from(config.u32(60)?);
        out.dense(tail.u64(32)?, vector.checked_mul(lanes)?.checked_mul(launch.blocks())?, Access::Update);
        out.dense(tail.u64(40)?, 4 * u64::from(launch.call.grid[0]), Access::Update);
    }
    Some(())
}

/// Whether the config at `words` describes this launch: its block, and its blocks per output.
fn config(launch: &Launch<'_>, words: Words<'_>) -> bool {
    let (call, word) = (launch.call, |at| words.u32(at).unwrap_or(0));
    word(44) == call.block[0]
        && word(48) == call.block[1]
        && word(52) == word(44).saturating_mul(word(48))
        && word(20) == call.grid[1]
        && matches!(word(60), 1 | 2 | 4 | 8)
}

fn element(args: &[String], n: usize) -> Option<u64> {
    args.get(n).and_then(|t| element_size(t)).map(u64::from)
}
