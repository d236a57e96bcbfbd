//! What it costs to move blocks and to touch them (facts 4.1, 4.2).

use super::link::gb_s;
use super::row::Rows;
use super::world::{ON_GPU, World, pieces};
use anyhow::Result;
use deepum_core::units::{AddrRange, Bytes, Place};

/// Blocks that are moved for a figure: 128 MiB.
const BLOCKS: u64 = 64;
const TRIES: usize = 5;
/// Blocks in one call.
const PIECES: [(u64, &str, &str); 3] = [
    (1, "out_2mib_gb_s", "in_2mib_gb_s"),
    (4, "out_8mib_gb_s", "in_8mib_gb_s"),
    (16, "out_32mib_gb_s", "in_32mib_gb_s"),
];

pub fn measure(world: &World, rows: &mut Rows) -> Result<()> {
    let memory = world.managed(BLOCKS)?;
    world.fill(memory.range, 1)?;
    let each = |to, pieces: &mut dyn Iterator<Item = AddrRange>| -> Result<Vec<f64>> {
        pieces.map(|piece| Ok(gb_s(piece.len, world.time(|| world.space.migrate(piece, to))?))).collect()
    };
    // Nothing of it was on the host yet.
    rows.figure(
        "out_first_2mib_gb_s",
        "to the host for the first time, in calls of 2 MiB",
        each(Place::Host, &mut memory.pieces(1))?,
    );
    rows.figure("in_first_2mib_gb_s", "and back", each(ON_GPU, &mut memory.pieces(1))?);
    for (blocks, out, back) in PIECES {
        rows.figure(out, "to the host again", each(Place::Host, &mut memory.pieces(blocks))?);
        rows.figure(back, "and back", each(ON_GPU, &mut memory.pieces(blocks))?);
    }
    let touches = memory.pieces(1).map(|piece| Ok(world.time(|| world.space.migrate(piece, ON_GPU))?.0 as f64));
    rows.figure("touch_ns", "a call for a block that is there", touches.collect::<Result<_>>()?);

    at_once(world, rows)
}

/// Calls from several threads, each with its share of some memory: whether they go at once, or wait for one lock, one copy engine, one processor.
fn threads(world: &World, jobs: &[(AddrRange, Place)], threads: usize, blocks: u64) -> Result<f64> {
    let time = world.time(|| {
        std::thread::scope(|scope| {
            let workers: Vec<_> = jobs
                .iter()
                .flat_map(|&(range, to)| (0..threads).map(move |first| (range, to, first)))
                .map(|(range, to, first)| {
                    let mine = pieces(range, blocks).skip(first).step_by(threads);
                    scope.spawn(move || mine.into_iter().try_for_each(|piece| world.space.migrate(piece, to)))
                })
                .collect();
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(moved) => moved.map_err(anyhow::Error::from),
                Err(_) => anyhow::bail!("a thread that moves ended early"),
            })
        })
    })?;
    Ok(gb_s(Bytes(jobs.iter().map(|(range, _)| range.len.0).sum()), time))
}

/// One direction from several threads, and both directions at once: on two copy engines, unless something holds one up for the other.
fn at_once(world: &World, rows: &mut Rows) -> Result<()> {
    let (mut one, mut other) = (world.managed(BLOCKS)?, world.managed(BLOCKS)?);
    world.fill(one.range, 1)?;
    world.fill(other.range, 1)?;
    world.space.migrate(other.range, Place::Host)?;
    let first = threads(world, &[(one.range, Place::Host), (other.range, ON_GPU)], 1, 4)?;
    rows.figure(
        "both_ways_first_gb_s",
        "out for the first time and in at once, in calls of 8 MiB, together",
        vec![first],
    );
    let mut swapped = |count, blocks| -> Result<Vec<f64>> {
        (0..TRIES)
            .map(|_| {
                // What went out comes in next.
                std::mem::swap(&mut one, &mut other);
                threads(world, &[(one.range, Place::Host), (other.range, ON_GPU)], count, blocks)
            })
            .collect()
    };
    for (name, count, blocks) in [
        ("both_ways_2mib_gb_s", 1, 1),
        ("both_ways_8mib_gb_s", 1, 4),
        ("both_ways_32mib_gb_s", 1, 16),
        ("both_ways_8mib_2_threads_gb_s", 2, 4),
        ("both_ways_8mib_4_threads_gb_s", 4, 4),
    ] {
        rows.figure(
            name,
            "out and in at once, in calls of so much, by one thread each way or more",
            swapped(count, blocks)?,
        );
    }
    world.space.migrate(other.range, ON_GPU)?;
    for (out, back, count) in [
        ("out_8mib_2_threads_gb_s", "in_8mib_2_threads_gb_s", 2),
        ("out_8mib_4_threads_gb_s", "in_8mib_4_threads_gb_s", 4),
    ] {
        let (mut outs, mut backs) = (Vec::new(), Vec::new());
        for _ in 0..TRIES {
            outs.push(threads(world, &[(other.range, Place::Host)], count, 4)?);
            backs.push(threads(world, &[(other.range, ON_GPU)], count, 4)?);
        }
        rows.figure(out, "to the host from several threads", outs);
        rows.figure(back, "and back", backs);
    }
    Ok(())
}
