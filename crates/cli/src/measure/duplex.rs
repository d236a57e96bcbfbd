//! Both ways at once, and how much each gets: out unmapped, in by calls that wait and as the engine asks for it (facts 4.10).

use super::link::gb_s;
use super::row::Rows;
use super::world::{GPU, ON_GPU, World, pieces};
use anyhow::Result;
use deepum_core::units::{AddrRange, Bytes, Nanos};
use deepum_kmod_bridge::{MigrateError, Stay};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Blocks that are moved each way for a figure: 256 MiB.
const BLOCKS: u64 = 128;
const TRIES: usize = 5;

/// A call that brings blocks in.
type Comes = fn(&World, AddrRange) -> Result<(), MigrateError>;

const WAITS: Comes = |world, range| world.space.migrate(range, ON_GPU);
const FETCH: Comes = |world, range| world.space.fetch(range, GPU);

pub fn measure(world: &World, rows: &mut Rows, stay: Stay) -> Result<()> {
    let (mut one, mut other) = (world.managed(BLOCKS)?, world.managed(BLOCKS)?);
    let leave = |range| pieces(range, 16).try_for_each(|piece| world.space.leave(piece, stay));
    for memory in [&one, &other] {
        world.fill(memory.range, 1)?;
        leave(memory.range)?;
    }
    for (blocks, name) in [(1, "fetch_2mib_gb_s"), (4, "fetch_8mib_gb_s"), (16, "fetch_32mib_gb_s")] {
        let mut tries = Vec::new();
        for _ in 0..TRIES {
            let time = world.time(|| one.pieces(blocks).try_for_each(|piece| FETCH(world, piece)))?;
            tries.push(gb_s(one.range.len, time));
            leave(one.range)?;
        }
        rows.figure(name, "in as the engine asks for it, in so much at a time", tries);
    }
    world.space.migrate(one.range, ON_GPU)?;
    for (comes, blocks, [out, back]) in [
        (WAITS, 1, ["leave_2mib_beside_waits_gb_s", "waits_beside_leave_2mib_gb_s"]),
        (FETCH, 1, ["leave_2mib_beside_fetch_gb_s", "fetch_beside_leave_2mib_gb_s"]),
        (WAITS, 4, ["leave_8mib_beside_waits_gb_s", "waits_beside_leave_8mib_gb_s"]),
        (FETCH, 4, ["leave_8mib_beside_fetch_gb_s", "fetch_beside_leave_8mib_gb_s"]),
        (WAITS, 16, ["leave_32mib_beside_waits_gb_s", "waits_beside_leave_32mib_gb_s"]),
        (FETCH, 16, ["leave_32mib_beside_fetch_gb_s", "fetch_beside_leave_32mib_gb_s"]),
    ] {
        let (mut left, mut came) = (Vec::new(), Vec::new());
        for _ in 0..TRIES {
            let both = at_once(world, (one.range, blocks, stay), (other.range, comes))?;
            left.push(both.0);
            came.push(both.1);
            leave(one.range)?;
            world.space.migrate(other.range, ON_GPU)?;
            std::mem::swap(&mut one, &mut other);
        }
        rows.figure(out, "out unmapped, in so much at a time, while blocks come in by calls of 32 MiB", left);
        rows.figure(back, "what comes meanwhile", came);
    }
    Ok(())
}

/// Both ways until one is through: GB/s out and in until then.
fn at_once(
    world: &World,
    (out, blocks, stay): (AddrRange, u64, Stay),
    (back, comes): (AddrRange, Comes),
) -> Result<(f64, f64)> {
    let (left, came, over, end) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    // Whether it is over, now that a piece has moved.
    let moved = |count: &AtomicU64, piece: Bytes, all: Bytes| {
        let is_last = count.fetch_add(piece.0, Ordering::Relaxed) + piece.0 == all.0;
        if is_last && !over.swap(true, Ordering::Relaxed) {
            end.store(world.now().0, Ordering::Relaxed);
        }
        over.load(Ordering::Relaxed)
    };
    let begun = world.now();
    std::thread::scope(|scope| {
        let leaves = scope.spawn(|| {
            for piece in pieces(out, blocks) {
                world.space.leave(piece, stay)?;
                if moved(&left, piece.len, out.len) {
                    break;
                }
            }
            Ok::<_, MigrateError>(())
        });
        for piece in pieces(back, 16) {
            comes(world, piece)?;
            if moved(&came, piece.len, back.len) {
                break;
            }
        }
        match leaves.join() {
            Ok(left) => anyhow::Ok(left?),
            Err(_) => anyhow::bail!("a thread that moves ended early"),
        }
    })?;
    let time = Nanos(end.load(Ordering::Relaxed).saturating_sub(begun.0));
    Ok((gb_s(Bytes(left.load(Ordering::Relaxed)), time), gb_s(Bytes(came.load(Ordering::Relaxed)), time)))
}
