//! Whether the driver tells of faults, in which order, and how late (facts 2.5).

use super::row::Rows;
use super::world::{ON_GPU, World};
use crate::cuda::call;
use anyhow::Result;
use deepum_core::event::Event;
use deepum_core::units::{AddrRange, Nanos, Place, UmBlock};
use deepum_kmod_bridge::ToolsQueue;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::time::{Duration, Instant};

const CHECK: &str = "notices";
const BLOCKS: u64 = 32;
/// What does not come within this does not come.
const PATIENCE: Duration = Duration::from_millis(500);

pub fn measure(world: &mut World, rows: &mut Rows) -> Result<()> {
    let mut queue = match std::mem::replace(&mut world.queue, Err("in use".to_owned())) {
        Ok(queue) => queue,
        Err(why) => {
            rows.untried(CHECK, why);
            return Ok(());
        }
    };
    let told = watch(world, &mut queue, rows);
    world.queue = Ok(queue);
    told
}

fn watch(world: &World, queue: &mut ToolsQueue, rows: &mut Rows) -> Result<()> {
    let memory = world.managed(BLOCKS)?;
    world.fill(memory.range, 1)?;
    world.space.migrate(memory.range, Place::Host)?;
    let mut notices = Vec::new();
    queue.drain(&mut notices)?;
    notices.clear();

    let (start, len) = (memory.range.start.0, usize::try_from(memory.range.len.0)?);
    call!(world.cuda, cuMemsetD8Async(start => u64, 2 => u8, len => usize, std::ptr::null_mut() => *mut c_void))?;
    if world.is_emulated() {
        // Its time passes in calls alone.
        call!(world.cuda, cuCtxSynchronize())?;
    }
    let (mut faults, mut moves, mut delays) = (Vec::<(UmBlock, Nanos)>::new(), BTreeSet::new(), Vec::new());
    // Notices of moves come when something has the driver look which copies are over, a request of ours for one (facts 2.5).
    let (mut begun, mut alone) = (Instant::now(), None);
    loop {
        queue.drain(&mut notices)?;
        let read = world.now();
        for notice in notices.drain(..) {
            match notice.event {
                Event::Fault(fault) => {
                    faults.push((fault.block, fault.at));
                    delays.push(read.0.saturating_sub(fault.at.0) as f64);
                }
                Event::Migrated(moved) => _ = moves.insert(moved.block),
                _ => {}
            }
        }
        let wanted: BTreeSet<UmBlock> = memory.range.blocks().collect();
        if wanted.is_subset(&moves) {
            break;
        }
        if begun.elapsed() > PATIENCE {
            if alone.is_some() {
                break;
            }
            alone = Some(moves.len());
            world.space.migrate(AddrRange::new(memory.range.start, UmBlock::SIZE), ON_GPU)?;
            begun = Instant::now();
        }
        std::thread::yield_now();
    }
    call!(world.cuda, cuCtxSynchronize())?;
    let told: BTreeSet<UmBlock> = faults.iter().map(|&(block, _)| block).collect();
    let (named, moved) = (
        memory.range.blocks().filter(|block| told.contains(block)).count(),
        memory.range.blocks().filter(|block| moves.contains(block)).count(),
    );
    // The tree prefetcher brings no other block than the one that faulted, so each faults.
    rows.check("faults named", named as u64 == BLOCKS, format!("{named} of {BLOCKS} blocks that a memset faulted on"));
    rows.check(
        "migrations named",
        moved as u64 == BLOCKS,
        match alone {
            None => format!("{moved} of {BLOCKS} blocks that came by that"),
            Some(alone) => format!("{moved} of {BLOCKS} blocks that came by that, {alone} before another request"),
        },
    );
    rows.check(
        "order of faults",
        faults.is_sorted_by_key(|&(_, at)| at),
        "time stamps of fault notices, in the order in which they were read",
    );
    rows.figure(
        "notice_delay_ns",
        "from a fault's time stamp to its being read, by a thread that does nothing else (emulated: once all is over)",
        delays,
    );
    Ok(())
}
