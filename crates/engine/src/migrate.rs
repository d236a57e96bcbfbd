//! Stage 7 of 7: migrate. Four threads carry out what waits, one for each hand.
//!
//! The only code that moves pages. `deepum-evict` takes what goes off the GPU, `deepum-migrate` and `deepum-migrate2` what comes onto it: the link
//! carries both ways at once, and on a driver all these calls run beside each other (facts 4.1). `deepum-give-up` gives contents up, which waits and uses no link. Each takes the most urgent batch of its
//! hand, moves it with one call, or the few that `deepum_core::steps` lists, and waits until the bytes are
//! there; so at most two batches are under way when something more urgent comes. A call that fails for a batch is
//! repeated block by block: part of a range may have been freed meanwhile, and the rest is still wanted. What cannot be
//! moved is reported as not moved and never tried again by itself: to ask again is the core's decision.
//!
//! A discard is carried out between [`HandOuts::begin_discard`] and `end_discard` of each of its blocks. Whoever
//! hands such a block out waits in between, so nothing that is written afterwards is lost; a block that somebody holds already is
//! left alone and reported as handed out.

use crate::desk::{Desk, Job, Moved};
use crate::work::Work;
use deepum_core::event::{DiscardOutcome, Event};
use deepum_core::queues::{Direction, Hand, Lane};
use deepum_core::steps::Step;
use deepum_core::units::{AddrRange, Bytes, DeviceId, Nanos, Place, UmBlock};
use deepum_kmod_bridge::{Advice, AdviseError, DiscardError, DiscardFailure, MigrateError, MigrateFailure};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Does; never decides. All four threads call it, at the same time.
pub trait Mover: Send + Sync {
    /// Moves all of `range`, whole UM blocks, and returns when it is there.
    ///
    /// # Errors
    /// [`MigrateError`]; part of the range may have moved.
    fn migrate(&self, range: AddrRange, to: Place) -> Result<(), MigrateError>;

    /// Moves all of `range`, whole UM blocks, to the host, which need not map it, and returns when it is there.
    ///
    /// # Errors
    /// As [`Self::migrate`].
    fn leave(&self, range: AddrRange) -> Result<(), MigrateError>;

    /// Tells the driver about all of `range`, whole UM blocks.
    ///
    /// # Errors
    /// [`AdviseError`]; it may hold for part of the range.
    fn advise(&self, range: AddrRange, advice: Advice) -> Result<(), AdviseError>;

    /// Gives up the contents of all of `range`, whole UM blocks, which are nowhere when it returns.
    ///
    /// # Errors
    /// [`DiscardError`]; part of the contents may be gone.
    fn discard(&self, range: AddrRange) -> Result<(), DiscardError>;

    /// Nobody asks for moves any more: what the driver was told of blocks that left is taken back.
    fn settle(&self) {}

    /// Returns when all is over that the calling thread gave up, which nobody waits for any more.
    fn rest(&self) {}

    /// What the time is where it moves; nothing if nobody tells.
    fn now(&self) -> Option<Nanos> {
        None
    }
}

/// Who has which block in hand; shared with whoever hands memory out.
pub trait HandOuts: Send + Sync {
    /// Whether nobody has the block. If so, whoever is to get it waits until [`Self::end_discard`].
    fn begin_discard(&self, block: UmBlock) -> bool;
    /// The call about the block has returned.
    fn end_discard(&self, block: UmBlock);
}

/// The words that the shim holds blocks by.
impl HandOuts for deepum_protocol::handout::HandOuts<'static> {
    fn begin_discard(&self, block: UmBlock) -> bool {
        Self::begin_discard(self, block)
    }
    fn end_discard(&self, block: UmBlock) {
        Self::end_discard(self, block);
    }
}

/// A call that did not do what it should.
enum Failure {
    Move(MigrateError),
    Advise(AdviseError),
    Discard(DiscardError),
}

impl Failure {
    /// Memory that was freed meanwhile is daily life.
    const fn is_daily(&self) -> bool {
        match self {
            Self::Move(error) => matches!(error.why, MigrateFailure::NotManaged),
            Self::Advise(error) => matches!(error.why, MigrateFailure::NotManaged),
            Self::Discard(error) => matches!(error.why, DiscardFailure::NotManaged),
        }
    }
}

/// Which kinds of failure were said; one for all threads that move.
#[derive(Debug, Default)]
pub struct Said {
    moves: AtomicBool,
    advice: AtomicBool,
    discards: AtomicBool,
}

impl Said {
    /// Whether this is the first of its kind.
    fn is_first(&self, failure: &Failure) -> bool {
        let said = match failure {
            Failure::Move(_) => &self.moves,
            Failure::Advise(_) => &self.advice,
            Failure::Discard(_) => &self.discards,
        };
        !said.swap(true, Ordering::Relaxed)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Move(error) => write!(
                f,
                "{error}; the driver goes on by itself where we fail (said once, then counted as moves_failed)"
            ),
            Self::Advise(error) => {
                write!(f, "{error}; such blocks have one copy (said once, then counted as moves_failed)")
            }
            Self::Discard(error) => {
                write!(f, "{error}; such blocks are moved out instead (said once, then counted as discards_failed)")
            }
        }
    }
}

/// What a mover works with.
pub struct Tools<'a> {
    /// Where the work comes from.
    pub desk: &'a Desk,
    /// What does it.
    pub mover: &'a dyn Mover,
    /// Whom it may not be taken from.
    pub hand_outs: &'a dyn HandOuts,
    /// What was said of failures.
    pub said: &'a Said,
    /// What was done.
    pub work: &'a Work,
}

impl fmt::Debug for Tools<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tools").field("desk", self.desk).finish_non_exhaustive()
    }
}

impl Tools<'_> {
    /// The body of a mover's thread. `announce` tells the fault thread to look.
    pub fn run(&self, hand: Hand, announce: impl Fn(), say: impl Fn(&str)) {
        let mut results = Vec::new();
        while let Some(job) = self.desk.next(hand) {
            let begun = self.mover.now();
            let failure = match job.batch.lane {
                Lane::Discard => {
                    let failure = self.discard(&job, &mut results).map(Failure::Discard);
                    self.mover.rest();
                    failure
                }
                _ => self.carry_out(&job, &mut results),
            };
            let took = begun.and_then(|begun| Some(self.mover.now()?.saturating_sub(begun)));
            self.work.add(job.batch, took.unwrap_or_default());
            self.desk.done(job, &results);
            announce();
            results.clear();
            // Anything but daily life is said once and counted from then on.
            if let Some(failure) = failure.filter(|failure| !failure.is_daily() && self.said.is_first(failure)) {
                say(&failure.to_string());
            }
        }
        if hand == Hand::Out {
            self.mover.settle();
        }
    }

    /// Moves a batch; what became of each block is appended to `results`. Gives the last failure that stood.
    fn carry_out(&self, job: &Job, results: &mut Vec<Moved>) -> Option<Failure> {
        let batch = job.batch;
        let mut failure = None;
        let mut ok = vec![true; batch.count as usize];
        for &step in batch.steps() {
            let call = |range| self.step(step, range, job.device);
            let left: Vec<UmBlock> = batch.blocks().zip(&ok).filter(|(_, ok)| **ok).map(|(block, _)| block).collect();
            let mut became = |block: UmBlock, outcome: Result<(), Failure>| {
                ok[usize::try_from(block.0 - batch.first.0).unwrap_or_default()] = outcome.is_ok();
                failure = outcome.err().or(failure.take());
            };
            if left.len() == batch.count as usize {
                Run { first: batch.first, count: batch.count }.call(call, &mut became);
            } else {
                left.into_iter().for_each(|block| became(block, call(block.range())));
            }
        }
        let to = match batch.lane.direction() {
            Direction::Out => Place::Host,
            Direction::In => Place::Device(job.device),
        };
        results.extend(batch.blocks().zip(ok).map(|(block, ok)| {
            let event = match batch.lane {
                Lane::Save => Event::Saved { block, ok },
                _ => Event::MoveDone { block, to, ok },
            };
            Moved { device: job.device, event }
        }));
        failure
    }

    fn step(&self, step: Step, range: AddrRange, device: DeviceId) -> Result<(), Failure> {
        let advise = |advice| self.mover.advise(range, advice).map_err(Failure::Advise);
        match step {
            Step::Leave => self.mover.leave(range).map_err(Failure::Move),
            Step::ToHost => self.mover.migrate(range, Place::Host).map_err(Failure::Move),
            Step::ToDevice => self.mover.migrate(range, Place::Device(device)).map_err(Failure::Move),
            Step::Duplicate(on) => advise(Advice::Duplicate(on)),
            Step::Prefer(on) => advise(Advice::Prefer(on.then_some(device))),
            Step::Access(on) => advise(Advice::AccessedBy(device, on)),
        }
    }

    /// Gives up a batch, but for blocks that somebody has; as [`Self::carry_out`].
    fn discard(&self, job: &Job, results: &mut Vec<Moved>) -> Option<DiscardError> {
        let mut failure = None;
        let mut run: Option<Run> = None;
        let mut give_up = |run: Run, results: &mut Vec<Moved>| {
            let held = Held { hand_outs: self.hand_outs, run };
            run.call(
                |range| self.mover.discard(range),
                |block, outcome| {
                    let became = if outcome.is_ok() { DiscardOutcome::Done } else { DiscardOutcome::Failed };
                    failure = outcome.err().or(failure.take());
                    results.push(Moved { device: job.device, event: Event::Discarded { block, outcome: became } });
                },
            );
            drop(held);
        };
        for block in job.batch.blocks() {
            if self.hand_outs.begin_discard(block) {
                run.get_or_insert(Run { first: block, count: 0 }).count += 1;
                continue;
            }
            if let Some(run) = run.take() {
                give_up(run, results);
            }
            let event = Event::Discarded { block, outcome: DiscardOutcome::HandedOut };
            results.push(Moved { device: job.device, event });
        }
        if let Some(run) = run {
            give_up(run, results);
        }
        failure
    }
}

/// Blocks in a row.
#[derive(Clone, Copy)]
struct Run {
    first: UmBlock,
    count: u32,
}

impl Run {
    fn blocks(self) -> impl Iterator<Item = UmBlock> {
        (0..u64::from(self.count)).map(move |n| UmBlock(self.first.0 + n))
    }

    /// One call for all of them, and where it fails one for each; `became` is told the outcome of each.
    fn call<E>(self, call: impl Fn(AddrRange) -> Result<(), E>, mut became: impl FnMut(UmBlock, Result<(), E>)) {
        let whole = call(AddrRange::new(self.first.start(), Bytes(UmBlock::SIZE.get() * u64::from(self.count))));
        match whole {
            Err(error) if self.count == 1 => became(self.first, Err(error)),
            Err(_) => self.blocks().for_each(|block| became(block, call(block.range()))),
            Ok(()) => self.blocks().for_each(|block| became(block, Ok(()))),
        }
    }
}

/// Blocks whose hand-outs wait for us. Also a panic lets them go on: it is in our code, so no call of the driver is under way.
struct Held<'a> {
    hand_outs: &'a dyn HandOuts,
    run: Run,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.run.blocks().for_each(|block| self.hand_outs.end_discard(block));
    }
}
