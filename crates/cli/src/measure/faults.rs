//! What it costs a kernel that its memory is not on the GPU: fetched by faults, nowhere yet, or given up; and what it costs to have it there before.

use super::kernel::Fill;
use super::row::Rows;
use super::world::{ON_GPU, World};
use anyhow::Result;
use deepum_core::units::{AddrRange, Place};

/// Blocks that are filled for a figure: 64 MiB.
const BLOCKS: u64 = 32;
const TRIES: usize = 5;

pub fn measure(world: &World, rows: &mut Rows) -> Result<()> {
    let kernel = Fill::load(world)?;
    let fill = |range: AddrRange| world.time(|| kernel.run(world, range));
    let each = |with: u64, without: u64| (with as f64 - without as f64) / BLOCKS as f64;

    let memory = world.managed(BLOCKS)?;
    let first = fill(memory.range)?;
    fill(memory.range)?;
    let there = fill(memory.range)?;
    rows.figure(
        "first_fault_ns",
        "a block that a kernel is the first to touch, more than one that is there",
        vec![each(first.0, there.0)],
    );
    let fresh = world.managed(BLOCKS)?;
    let placed = fresh.pieces(1).map(|piece| Ok(world.time(|| world.space.migrate(piece, ON_GPU))?.0 as f64));
    rows.figure("first_place_ns", "a call that gives such a block its place", placed.collect::<Result<_>>()?);
    let faulted = (0..TRIES).map(|_| {
        world.space.migrate(memory.range, Place::Host)?;
        Ok(each(fill(memory.range)?.0, there.0))
    });
    rows.figure("faulted_in_ns", "a block on the host that a kernel faults on", faulted.collect::<Result<_>>()?);
    let by_memset = (0..TRIES).map(|_| {
        world.space.migrate(memory.range, Place::Host)?;
        let with = world.time(|| world.fill(memory.range, 1))?;
        Ok(each(with.0, world.time(|| world.fill(memory.range, 1))?.0))
    });
    rows.figure("memset_faulted_in_ns", "one that a memset faults on", by_memset.collect::<Result<_>>()?);

    if let Err(why) = world.space.discards() {
        rows.untried("discard", why);
        return Ok(());
    }
    let drops = memory.pieces(1).map(|piece| Ok(world.time(|| world.space.discard(piece))?.0 as f64));
    rows.figure("discard_ns", "contents of a block given up", drops.collect::<Result<_>>()?);
    let anew = (0..TRIES).map(|_| {
        let with = fill(memory.range)?;
        memory.pieces(1).try_for_each(|piece| world.space.discard(piece))?;
        Ok(each(with.0, there.0))
    });
    rows.figure(
        "faulted_anew_ns",
        "a block that was given up and that a kernel faults on",
        anew.collect::<Result<_>>()?,
    );
    let by_memset = memory.pieces(1).map(|piece| Ok(world.time(|| world.fill(piece, 1))?.0 as f64));
    rows.figure("memset_anew_ns", "a memset of a block that was given up", by_memset.collect::<Result<_>>()?);
    memory.pieces(1).try_for_each(|piece| world.space.discard(piece))?;
    let placed = memory.pieces(1).map(|piece| Ok(world.time(|| world.space.migrate(piece, ON_GPU))?.0 as f64));
    rows.figure("placed_anew_ns", "a call that gives such a block a place", placed.collect::<Result<_>>()?);
    let filled = fill(memory.range)?;
    rows.figure(
        "filled_placed_ns",
        "a kernel on blocks that have one, more than on blocks with contents",
        vec![each(filled.0, there.0)],
    );
    Ok(())
}
