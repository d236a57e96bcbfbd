//! Both ways at once, and how much each gets: out unmapped, in by calls that wait, and as the engine asks for it, by two threads, awaited by calls or by words (facts 4.10, 4.11).

use super::link::gb_s;
use super::row::Rows;
use super::world::{GPU, ON_GPU, World, pieces};
use anyhow::{Result, bail};
use deepum_core::queues::BATCH;
use deepum_core::units::{AddrRange, Bytes, Nanos};
use deepum_kmod_bridge::{MigrateError, Semaphores, Stay};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Blocks that are moved each way for a figure: 256 MiB.
const BLOCKS: u64 = 128;
const TRIES: usize = 5;

/// How blocks come in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comes {
    /// By calls of 32 MiB that wait, one behind the other.
    Alone,
    /// As the engine asks for them: by calls of 8 MiB from two threads, each of which waits for its own in the driver.
    Calls,
    /// The same, which wait for words.
    Words,
}

impl Comes {
    /// All of `range`; `moved` is told of each piece, and whether it is enough.
    fn bring(
        self,
        world: &World,
        range: AddrRange,
        words: Option<&Semaphores>,
        moved: impl Fn(Bytes) -> bool + Sync,
    ) -> Result<()> {
        let (threads, blocks) = if self == Self::Alone { (1, 16) } else { (2, u64::from(BATCH)) };
        let pieces: Vec<AddrRange> = pieces(range, blocks).collect();
        let next = AtomicUsize::new(0);
        let hand = || {
            while let Some(&piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                match words.filter(|_| self == Self::Words) {
                    Some(words) => {
                        if !world.space.migrate_with(piece, GPU, words, false, |word| world.until(word))? {
                            bail!("a word was not written within two seconds");
                        }
                    }
                    None => world.space.migrate(piece, ON_GPU)?,
                }
                if moved(piece.len) {
                    break;
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let hands: Vec<_> = (0..threads).map(|_| scope.spawn(hand)).collect();
            hands
                .into_iter()
                .try_for_each(|hand| hand.join().unwrap_or_else(|_| bail!("a thread that moves ended early")))
        })
    }
}

pub fn measure(world: &World, rows: &mut Rows, stay: Stay) -> Result<()> {
    use Comes::{Alone, Calls, Words};
    let (mut one, mut other) = (world.managed(BLOCKS)?, world.managed(BLOCKS)?);
    let leave = |range| pieces(range, 16).try_for_each(|piece| world.space.leave(piece, stay));
    for memory in [&one, &other] {
        world.fill(memory.range, 1)?;
        leave(memory.range)?;
    }
    let words = world.space.semaphores();
    if let Err(why) = &words {
        rows.untried("words", why.to_string());
    }
    let words = words.as_ref().ok();
    let tries = |comes: Comes| (0..TRIES).filter(move |_| words.is_some() || comes != Words);
    for (comes, name) in [(Calls, "fetch_gb_s"), (Words, "words_gb_s")] {
        let mut all = Vec::new();
        for _ in tries(comes) {
            all.push(gb_s(one.range.len, world.time(|| comes.bring(world, one.range, words, |_| false))?));
            leave(one.range)?;
        }
        rows.figure(name, "in as the engine asks for it, awaited by calls or by words", all);
    }
    if let Some(words) = words {
        Words.bring(world, one.range, Some(words), |_| false)?;
        told_by_words(world, rows, one.range, words, stay)?;
    }
    world.space.migrate(one.range, ON_GPU)?;
    for (comes, blocks, [out, back]) in [
        (Alone, 1, ["leave_2mib_beside_waits_gb_s", "waits_beside_leave_2mib_gb_s"]),
        (Calls, 1, ["leave_2mib_beside_fetch_gb_s", "fetch_beside_leave_2mib_gb_s"]),
        (Words, 1, ["leave_2mib_beside_words_gb_s", "words_beside_leave_2mib_gb_s"]),
        (Alone, 4, ["leave_8mib_beside_waits_gb_s", "waits_beside_leave_8mib_gb_s"]),
        (Calls, 4, ["leave_8mib_beside_fetch_gb_s", "fetch_beside_leave_8mib_gb_s"]),
        (Words, 4, ["leave_8mib_beside_words_gb_s", "words_beside_leave_8mib_gb_s"]),
        (Alone, 16, ["leave_32mib_beside_waits_gb_s", "waits_beside_leave_32mib_gb_s"]),
        (Calls, 16, ["leave_32mib_beside_fetch_gb_s", "fetch_beside_leave_32mib_gb_s"]),
        (Words, 16, ["leave_32mib_beside_words_gb_s", "words_beside_leave_32mib_gb_s"]),
    ] {
        let (mut left, mut came) = (Vec::new(), Vec::new());
        for _ in tries(comes) {
            let both = at_once(world, (one.range, blocks, stay), (other.range, comes, words))?;
            left.push(both.0);
            came.push(both.1);
            leave(one.range)?;
            world.space.migrate(other.range, ON_GPU)?;
            std::mem::swap(&mut one, &mut other);
        }
        rows.figure(out, "out unmapped, in so much at a time, while blocks come in", left);
        rows.figure(back, "what comes meanwhile: by calls of 32 MiB, or as the engine asks for it", came);
    }
    Ok(())
}

/// What comes by words has its contents. That a word is written no sooner than it may be, contents do not show, since a copy waits for what is on its way: the figure does, of a call behind it that
/// should have nothing to wait for.
fn told_by_words(world: &World, rows: &mut Rows, range: AddrRange, words: &Semaphores, stay: Stay) -> Result<()> {
    const CHECK: &str = "words";
    world.fill(range, 5)?;
    let (mut waits, mut wrong) = (Vec::new(), 0);
    for piece in pieces(range, 4) {
        world.space.leave(piece, stay)?;
        Comes::Words.bring(world, piece, Some(words), |_| false)?;
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
    (back, comes, words): (AddrRange, Comes, Option<&Semaphores>),
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
        comes.bring(world, back, words, |piece| moved(&came, piece, back.len))?;
        match leaves.join() {
            Ok(left) => anyhow::Ok(left?),
            Err(_) => anyhow::bail!("a thread that moves ended early"),
        }
    })?;
    let time = Nanos(end.load(Ordering::Relaxed).saturating_sub(begun.0));
    Ok((gb_s(Bytes(left.load(Ordering::Relaxed)), time), gb_s(Bytes(came.load(Ordering::Relaxed)), time)))
}
