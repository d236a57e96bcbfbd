//! Ways off and onto the GPU beside plain calls: out without the host's page tables, in without waiting (facts 4.9).

use super::kernel::Fill;
use super::link::gb_s;
use super::row::Rows;
use super::world::{GPU, Managed, ON_GPU, World, pieces};
use anyhow::Result;
use deepum_core::units::AddrRange;
use deepum_kmod_bridge::Stay;

/// Blocks that are moved for a figure: 128 MiB.
const BLOCKS: u64 = 64;
const TRIES: usize = 5;

pub fn measure(world: &World, rows: &mut Rows) -> Result<()> {
    let stay = match world.space.stay() {
        Ok(stay) => stay,
        Err(why) => {
            rows.untried("out unmapped", why.to_string());
            return Ok(());
        }
    };
    let memory = world.managed(BLOCKS)?;
    world.fill(memory.range, 9)?;
    let leave = |piece: AddrRange| Ok(gb_s(piece.len, world.time(|| world.space.leave(piece, stay))?));
    rows.figure(
        "leave_first_8mib_gb_s",
        "out unmapped, for the first time",
        memory.pieces(4).map(leave).collect::<Result<_>>()?,
    );
    let kept = memory.pieces(1).all(|piece| world.ends(piece).is_ok_and(|ends| ends == [9; 128]));
    world.space.migrate(memory.range, ON_GPU)?;
    let still = memory.pieces(1).all(|piece| world.ends(piece).is_ok_and(|ends| ends == [9; 128]));
    if world.is_emulated() && !(kept && still) {
        rows.untried("out unmapped", "this emulated device keeps no contents");
    } else {
        rows.check("out unmapped", kept && still, format!("contents on the host {kept}, and back {still}"));
    }
    for (blocks, out, back, begun) in [
        (1, "leave_2mib_gb_s", "in_left_2mib_gb_s", "in_begun_2mib_gb_s"),
        (4, "leave_8mib_gb_s", "in_left_8mib_gb_s", "in_begun_8mib_gb_s"),
        (16, "leave_32mib_gb_s", "in_left_32mib_gb_s", "in_begun_32mib_gb_s"),
    ] {
        rows.figure(out, "out unmapped, again", memory.pieces(blocks).map(leave).collect::<Result<_>>()?);
        let each =
            memory.pieces(blocks).map(|piece| Ok(gb_s(piece.len, world.time(|| world.space.migrate(piece, ON_GPU))?)));
        rows.figure(back, "and back", each.collect::<Result<_>>()?);
        let mut all = Vec::new();
        for _ in 0..TRIES {
            memory.pieces(16).try_for_each(|piece| world.space.leave(piece, stay))?;
            all.push(gb_s(memory.range.len, world.time(|| begin_all(world, memory.range, blocks))?));
        }
        rows.figure(begun, "back by calls that do not wait, all together", all);
    }
    preferred(world, rows, &memory, stay)?;
    let touches = memory.pieces(1).map(|piece| Ok(world.time(|| world.space.begin(piece, GPU))?.0 as f64));
    rows.figure(
        "touch_begun_ns",
        "a call that does not wait, for a block that is there",
        touches.collect::<Result<_>>()?,
    );
    let flushes = (0..TRIES * 4).map(|_| Ok(world.time(|| world.space.flush())?.0 as f64));
    rows.figure("flush_ns", "asking to be told of all moves that are over", flushes.collect::<Result<_>>()?);
    // As much as the emulated device's kernels compute.
    kernels(world, rows, &world.managed(BLOCKS / 2)?, stay)?;
    super::duplex::measure(world, rows, stay)
}

/// Out, with the host preferred from then on, and what it takes to forget that where it has the blocks and where a GPU has.
fn preferred(world: &World, rows: &mut Rows, memory: &Managed<'_>, stay: Stay) -> Result<()> {
    let out = |piece: AddrRange| Ok(gb_s(piece.len, world.time(|| world.space.leave_preferred(piece, stay))?));
    let forget = |piece: AddrRange| {
        let time = world.time(|| world.space.forget_preference(piece))?;
        Ok(time.0 as f64 / piece.blocks().len() as f64)
    };
    // The first of these makes the preference.
    memory.pieces(16).try_for_each(|piece| world.space.leave_preferred(piece, stay))?;
    world.space.migrate(memory.range, ON_GPU)?;
    rows.figure(
        "leave_preferred_32mib_gb_s",
        "out unmapped, the host being preferred before and after",
        memory.pieces(16).map(out).collect::<Result<_>>()?,
    );
    rows.figure(
        "forget_left_ns",
        "to prefer the host no more for 32 MiB that it has, a block",
        memory.pieces(16).map(forget).collect::<Result<_>>()?,
    );
    memory.pieces(16).try_for_each(|piece| world.space.leave_preferred(piece, stay))?;
    world.space.migrate(memory.range, ON_GPU)?;
    rows.figure("forget_here_ns", "the same for what a GPU has", memory.pieces(16).map(forget).collect::<Result<_>>()?);
    Ok(())
}

/// All pieces without waiting, then until the last is there.
fn begin_all(world: &World, range: AddrRange, blocks: u64) -> Result<()> {
    for piece in pieces(range, blocks) {
        world.space.begin(piece, GPU)?;
    }
    Ok(world.space.migrate(range, ON_GPU)?)
}

fn kernels(world: &World, rows: &mut Rows, memory: &Managed<'_>, stay: Stay) -> Result<()> {
    let kernel = Fill::load(world)?;
    kernel.run(world, memory.range)?;
    let there = world.time(|| kernel.run(world, memory.range))?;
    let each = |with: u64| (with as f64 - there.0 as f64) / memory.range.blocks().len() as f64;
    let (mut faulted, mut early, mut waited, mut afar) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TRIES {
        world.space.leave_preferred(memory.range, stay)?;
        afar.push(each(world.time(|| kernel.run(world, memory.range))?.0));
        world.space.migrate(memory.range, ON_GPU)?;
        world.space.forget_preference(memory.range)?;
        world.space.leave(memory.range, stay)?;
        faulted.push(each(world.time(|| kernel.run(world, memory.range))?.0));
        world.space.leave(memory.range, stay)?;
        let begun = world.now();
        world.space.begin(memory.range, GPU)?;
        kernel.run(world, memory.range)?;
        early.push(each(world.now().0.saturating_sub(begun.0)));
        world.space.leave(memory.range, stay)?;
        let begun = world.now();
        world.space.migrate(memory.range, ON_GPU)?;
        kernel.run(world, memory.range)?;
        waited.push(each(world.now().0.saturating_sub(begun.0)));
    }
    rows.figure("faulted_left_ns", "a block out unmapped that a kernel faults on", faulted);
    rows.figure("faulted_preferred_ns", "one for which the host is still preferred", afar);
    rows.figure("early_ns", "blocks that come, and a kernel that does not wait for them, each", early);
    rows.figure("waited_ns", "the same, waiting", waited);
    Ok(())
}
