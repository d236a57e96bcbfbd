//! Whether contents are what was written last, whoever moves or drops blocks meanwhile: what the product's use of `UVM_DISCARD` rests on (facts 4.3).

use super::row::Rows;
use super::world::{Managed, ON_GPU, World};
use crate::cuda::call;
use anyhow::Result;
use deepum_core::units::Place;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const CHECK: &str = "contents";
/// Blocks that are dropped and written anew, and as many that are moved meanwhile.
const BLOCKS: u64 = 16;
const ROUNDS: u8 = 40;

pub fn measure(world: &World, rows: &mut Rows) -> Result<()> {
    let (mine, moved) = (world.managed(BLOCKS)?, world.managed(BLOCKS)?);
    world.fill(moved.range, 200)?;
    if !are(world, &moved, 200)? {
        match world.is_emulated() {
            true => rows.untried(CHECK, "this emulated device keeps no contents; one with data=1 does"),
            false => rows.check(CHECK, false, "what a memset wrote is not what a copy read"),
        }
        return Ok(());
    }
    beside_leaving(world, rows, &moved)?;
    let discards = world.space.discards().is_ok();
    let ends = AtomicBool::new(false);
    let wrong = std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            for piece in std::iter::repeat_with(|| moved.pieces(1)).flatten() {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                world.space.migrate(piece, Place::Host)?;
                world.space.migrate(piece, ON_GPU)?;
            }
            anyhow::Ok(())
        });
        let wrong = rewrite(world, &mine, discards);
        ends.store(true, Ordering::Relaxed);
        mover.join().map_err(|_| anyhow::anyhow!("a thread that moves ended early"))??;
        wrong
    })?;
    let detail = match (wrong, are(world, &moved, 200)?) {
        (None, true) => {
            let how = if discards { "moved, dropped and written anew" } else { "moved and written anew" };
            rows.check(
                CHECK,
                true,
                format!("{BLOCKS} blocks {how} {ROUNDS} times, {BLOCKS} others moved meanwhile: all as written last"),
            );
            return Ok(());
        }
        (Some(round), _) => format!("a block was not what round {round} wrote"),
        (None, false) => "a block that was only moved has other contents".to_owned(),
    };
    rows.check(CHECK, false, detail);
    Ok(())
}

/// The first round whose writing is not what is read.
fn rewrite(world: &World, mine: &Managed<'_>, discards: bool) -> Result<Option<u8>> {
    for round in 1..=ROUNDS {
        for (number, piece) in mine.pieces(1).enumerate() {
            // Each has been everywhere when it is dropped: on the GPU, on the host, nowhere.
            if number % 3 == usize::from(round % 3) {
                world.space.migrate(piece, Place::Host)?;
            }
            if discards && number % 2 == usize::from(round % 2) {
                world.space.discard(piece)?;
            }
            world.fill(piece, round)?;
        }
        if !are(world, mine, round)? {
            return Ok(Some(round));
        }
    }
    Ok(None)
}

fn are(world: &World, memory: &Managed<'_>, byte: u8) -> Result<bool> {
    for piece in memory.pieces(1) {
        if world.ends(piece)? != [byte; 128] {
            return Ok(false);
        }
    }
    Ok(true)
}

/// While a block leaves unmapped the host must not look at it: whether CUDA does, when it copies small or large pieces from or to it. If it does, this process ends.
fn beside_leaving(world: &World, rows: &mut Rows, memory: &Managed<'_>) -> Result<()> {
    const NAME: &str = "copies beside leaving";
    const ROUNDS: usize = 100;
    let stay = match world.space.stay() {
        Ok(stay) => stay,
        Err(why) => {
            rows.untried(NAME, why.to_string());
            return Ok(());
        }
    };
    let (ends, left) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (mut copies, mut wrong) = (0, 0);
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            for piece in std::iter::repeat_with(|| memory.pieces(1)).flatten() {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                world.space.leave(piece, stay)?;
                left.fetch_add(1, Ordering::Relaxed);
                world.space.migrate(piece, ON_GPU)?;
            }
            anyhow::Ok(())
        });
        let mut copy = || -> Result<()> {
            for round in 0..ROUNDS {
                for piece in memory.pieces(1) {
                    let len = [4, 64, 4096, 65_536, 1 << 20][round % 5];
                    let mut bytes = vec![200; len];
                    call!(world.cuda, cuMemcpyHtoD_v2(piece.start.0 => u64, bytes.as_ptr() => *const u8, len => usize))?;
                    bytes.fill(0);
                    call!(world.cuda, cuMemcpyDtoH_v2(bytes.as_mut_ptr() => *mut u8, piece.start.0 => u64, len => usize))?;
                    wrong += usize::from(bytes.iter().any(|&byte| byte != 200));
                    copies += 2;
                }
            }
            Ok(())
        };
        let copied = copy();
        ends.store(true, Ordering::Relaxed);
        mover.join().map_err(|_| anyhow::anyhow!("a thread that moves ended early"))??;
        copied
    })?;
    let left = left.into_inner();
    rows.check(
        NAME,
        wrong == 0 && left > 0,
        format!("{copies} copies while blocks left {left} times, {wrong} of them wrong"),
    );
    Ok(())
}
