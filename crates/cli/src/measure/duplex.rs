//! Both ways at once, and how much each gets: out unmapped, in by calls that wait, and as the engine asks for it, awaited by calls or by words (facts 4.10, 4.11).

use super::link::gb_s;
use super::row::Rows;
use super::world::{GPU, ON_GPU, World, pieces};
use anyhow::{Result, bail};
use deepum_core::units::{AddrRange, Bytes, Nanos};
use deepum_kmod_bridge::{MigrateError, Semaphores, Stay};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Blocks that are moved each way for a figure: 256 MiB.
const BLOCKS: u64 = 128;
const TRIES: usize = 5;

/// How blocks come in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comes {
    /// By one call, which waits.
    Waits,
    /// As the engine asks for them, awaited by calls.
    Fetch,
    /// The same, awaited by words.
    Words,
}

impl Comes {
    fn bring(self, world: &World, range: AddrRange, words: Option<&mut Semaphores>) -> Result<()> {
        match (self, words) {
            (Self::Waits, _) => world.space.migrate(range, ON_GPU)?,
            (Self::Words, Some(words)) => {
                if !world.space.fetch_with(range, GPU, words, false, |word| world.until(word))? {
                    bail!("a word was not written within two seconds");
                }
            }
            (Self::Fetch | Self::Words, _) => world.space.fetch(range, GPU)?,
        }
        Ok(())
    }
}

pub fn measure(world: &World, rows: &mut Rows, stay: Stay) -> Result<()> {
    use Comes::{Fetch, Waits, Words};
    let (mut one, mut other) = (world.managed(BLOCKS)?, world.managed(BLOCKS)?);
    let leave = |range| pieces(range, 16).try_for_each(|piece| world.space.leave(piece, stay));
    for memory in [&one, &other] {
        world.fill(memory.range, 1)?;
        leave(memory.range)?;
    }
    let mut words = world.space.semaphores();
    if let Err(why) = &words {
        rows.untried("words", why.to_string());
    }
    let has_words = words.is_ok();
    let is_had = |comes: Comes| has_words || comes != Comes::Words;
    for (comes, blocks, name) in [
        (Fetch, 1, "fetch_2mib_gb_s"),
        (Fetch, 4, "fetch_8mib_gb_s"),
        (Fetch, 16, "fetch_32mib_gb_s"),
        (Words, 1, "words_2mib_gb_s"),
        (Words, 4, "words_8mib_gb_s"),
        (Words, 16, "words_32mib_gb_s"),
    ] {
        let mut tries = Vec::new();
        for _ in (0..TRIES).filter(|_| is_had(comes)) {
            let mut bring = |piece| comes.bring(world, piece, words.as_mut().ok());
            let time = world.time(|| one.pieces(blocks).try_for_each(&mut bring))?;
            tries.push(gb_s(one.range.len, time));
            leave(one.range)?;
        }
        rows.figure(name, "in as the engine asks for it, in so much at a time, awaited by calls or by words", tries);
    }
    if let Ok(words) = &mut words {
        Words.bring(world, one.range, Some(words))?;
        told_by_words(world, rows, one.range, words, stay)?;
    }
    world.space.migrate(one.range, ON_GPU)?;
    for (comes, blocks, [out, back]) in [
        (Waits, 1, ["leave_2mib_beside_waits_gb_s", "waits_beside_leave_2mib_gb_s"]),
        (Fetch, 1, ["leave_2mib_beside_fetch_gb_s", "fetch_beside_leave_2mib_gb_s"]),
        (Words, 1, ["leave_2mib_beside_words_gb_s", "words_beside_leave_2mib_gb_s"]),
        (Waits, 4, ["leave_8mib_beside_waits_gb_s", "waits_beside_leave_8mib_gb_s"]),
        (Fetch, 4, ["leave_8mib_beside_fetch_gb_s", "fetch_beside_leave_8mib_gb_s"]),
        (Words, 4, ["leave_8mib_beside_words_gb_s", "words_beside_leave_8mib_gb_s"]),
        (Waits, 16, ["leave_32mib_beside_waits_gb_s", "waits_beside_leave_32mib_gb_s"]),
        (Fetch, 16, ["leave_32mib_beside_fetch_gb_s", "fetch_beside_leave_32mib_gb_s"]),
        (Words, 16, ["leave_32mib_beside_words_gb_s", "words_beside_leave_32mib_gb_s"]),
    ] {
        let (mut left, mut came) = (Vec::new(), Vec::new());
        for _ in (0..TRIES).filter(|_| is_had(comes)) {
            let bring = |piece| comes.bring(world, piece, words.as_mut().ok());
            let both = at_once(world, (one.range, blocks, stay), (other.range, bring))?;
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

/// What comes by words has its contents. That a word is written no sooner than it may be, contents do not show, since a copy waits for what is on its way: the figure does, of a call behind it that
/// should have nothing to wait for.
fn told_by_words(world: &World, rows: &mut Rows, range: AddrRange, words: &mut Semaphores, stay: Stay) -> Result<()> {
    const CHECK: &str = "words";
    world.fill(range, 5)?;
    let (mut waits, mut wrong) = (Vec::new(), 0);
    for piece in pieces(range, 4) {
        world.space.leave(piece, stay)?;
        Comes::Words.bring(world, piece, Some(words))?;
        waits.push(world.time(|| world.space.migrate(piece, ON_GPU))?.0 as f64);
        wrong += u32::from(world.ends(piece)? != [5; 128]);
    }
    rows.figure("touch_behind_words_ns", "a call that waits for four blocks whose words are written", waits);
    if world.is_emulated() && wrong > 0 {
        rows.untried(CHECK, "this emulated device keeps no contents");
    } else {
        rows.check(
            CHECK,
            wrong == 0,
            format!("{wrong} of {} pieces whose words were written had other bytes", BLOCKS / 4),
        );
    }
    Ok(())
}

/// Both ways until one is through: GB/s out and in until then.
fn at_once(
    world: &World,
    (out, blocks, stay): (AddrRange, u64, Stay),
    (back, mut comes): (AddrRange, impl FnMut(AddrRange) -> Result<()>),
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
            comes(piece)?;
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
