//! What it costs to move blocks, to touch them, and to drop them (facts 4.1 to 4.3).

use super::row::Rows;
use super::world::{ON_GPU, World};
use anyhow::{Context, Result};
use deepum_core::units::{AddrRange, Bytes, Nanos, Place, UmBlock};

/// Blocks that are moved for a figure: 128 MiB.
const BLOCKS: u64 = 64;
/// Blocks in one call.
const PIECES: [(u64, &str, &str); 3] = [
    (1, "out_2mib_gb_s", "in_2mib_gb_s"),
    (4, "out_8mib_gb_s", "in_8mib_gb_s"),
    (16, "out_32mib_gb_s", "in_32mib_gb_s"),
];

pub fn measure(world: &World, rows: &mut Rows) -> Result<()> {
    let memory = world.managed(BLOCKS)?;
    world.fill(memory.range, 1)?;
    let each = |to, blocks, pieces: &mut dyn Iterator<Item = AddrRange>| -> Result<Vec<f64>> {
        pieces.map(|piece| Ok(gb_s(blocks, world.time(|| world.space.migrate(piece, to))?))).collect()
    };
    // Nothing of it was on the host yet.
    rows.figure(
        "out_first_2mib_gb_s",
        "to the host for the first time, in calls of 2 MiB",
        each(Place::Host, 1, &mut memory.pieces(1))?,
    );
    rows.figure("in_first_2mib_gb_s", "and back", each(ON_GPU, 1, &mut memory.pieces(1))?);
    for (blocks, out, back) in PIECES {
        rows.figure(out, "to the host again", each(Place::Host, blocks, &mut memory.pieces(blocks))?);
        rows.figure(back, "and back", each(ON_GPU, blocks, &mut memory.pieces(blocks))?);
    }
    let touches = memory.pieces(1).map(|piece| Ok(world.time(|| world.space.migrate(piece, ON_GPU))?.0 as f64));
    rows.figure("touch_ns", "a call for a block that is there", touches.collect::<Result<_>>()?);

    // By faults instead: the same write, on blocks that are there and on blocks that are not.
    let there = world.time(|| world.fill(memory.range, 2))?;
    world.space.migrate(memory.range, Place::Host)?;
    let faulted = world.time(|| world.fill(memory.range, 3))?;
    let each = |time: Nanos| time.0 as f64 / BLOCKS as f64;
    rows.figure(
        "faulted_in_ns",
        "a block that a memset faults on, more than one that is there",
        vec![each(faulted) - each(there)],
    );

    if let Err(why) = world.space.discards() {
        rows.untried("discard", why);
    } else {
        let drops = memory.pieces(1).map(|piece| Ok(world.time(|| world.space.discard(piece))?.0 as f64));
        rows.figure("discard_ns", "contents of a block given up", drops.collect::<Result<_>>()?);
        let anew = memory.pieces(1).map(|piece| Ok(world.time(|| world.fill(piece, 4))?.0 as f64));
        rows.figure("filled_anew_ns", "a memset of a block that was given up", anew.collect::<Result<_>>()?);
    }
    both_ways(world, rows)
}

/// Whether both directions go at once: two copy engines, and no lock that one call holds against the other.
fn both_ways(world: &World, rows: &mut Rows) -> Result<()> {
    let (one, other) = (world.managed(BLOCKS)?, world.managed(BLOCKS)?);
    world.fill(one.range, 1)?;
    world.fill(other.range, 1)?;
    world.space.migrate(other.range, Place::Host)?;
    let time = world.time(|| {
        std::thread::scope(|scope| {
            let out = scope.spawn(|| one.pieces(4).try_for_each(|piece| world.space.migrate(piece, Place::Host)));
            other.pieces(4).try_for_each(|piece| world.space.migrate(piece, ON_GPU))?;
            out.join().map_err(|_| anyhow::anyhow!("a thread that moves ended early"))?.context("moving out")
        })
    })?;
    rows.figure("both_ways_gb_s", "out and in at once, in calls of 8 MiB, together", vec![gb_s(2 * BLOCKS, time)]);
    Ok(())
}

fn gb_s(blocks: u64, time: Nanos) -> f64 {
    Bytes(blocks * UmBlock::SIZE.0).0 as f64 / time.0.max(1) as f64
}
