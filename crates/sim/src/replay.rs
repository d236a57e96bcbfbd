//! Replays what a program did, under a policy, on a modelled GPU.
//!
//! Problem: whether one policy is better than another is asked of programs that take hours, on GPUs that are not there.
//! Idea: the world around the real core is put together from what there is already, in one thread: the host does what the [`Script`] says
//! ([`host`]), the GPU works through what it was given ([`gpu`]) over the same memory model as the emulated device's, and the core thinks and
//! moves ([`mind`]). The next thing that happens is the earliest; of several at one instant the GPU's comes first, then what moves, then the
//! host's.
//!
//! So a replay answers what the emulated device would, without PyTorch and without its time. What it leaves out: what the host does beside CUDA's
//! calls is as long as it was in the trace; streams wait for each other in the order of issue; copies between host and device take their time and
//! do not share the link.
//!
//! Invariants: same script and setup, same outcome, but for the core's real time; an iteration lasts from the end of the last work before its mark to the
//! end of the last work before the next.

mod gpu;
mod host;
mod iterations;
mod job;
mod mind;
mod planned;
mod script;
#[cfg(test)]
mod tests;

pub use script::{Does, Script, ScriptError, Step, What, Work};

use crate::planner::schedule::Schedule;
use deepum_core::counters::Counters;
use deepum_core::engine::{Config, Engine, Snapshot};
use deepum_core::event::Event;
use deepum_core::units::{Bytes, LaunchSeq, Nanos, Place};
use deepum_model::{ModelError, Options, Profile, Ssd, Totals, UnifiedMemory};
use deepum_trace::program::Recorded;
use gpu::{Gpu, Happened};
use host::Host;
use mind::{GPU, Mind, Thinks};
use planned::Planned;
use std::num::NonZeroU64;
use std::time::Duration;

/// On what, and under which policy.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The GPU, its link, its driver.
    pub profile: Profile,
    /// What programs can fill of the GPU's memory.
    pub memory: Bytes,
    /// What they can of the host's.
    pub host: Bytes,
    /// What takes in what finds no room there.
    pub ssd: Option<Ssd>,
    /// How the core is set up.
    pub engine: Config,
    /// Whether launches wait for what is on its way for them.
    pub gate: bool,
    /// One launch in so many is lost before the core hears of it, on average.
    pub lost: Option<NonZeroU64>,
    /// So much later the core hears of what the program does, and of how far the GPU is.
    pub late: Nanos,
}

/// What came of a replay.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Each iteration.
    pub iterations: Vec<Iteration>,
    /// The core at the end; none where a plan was carried out.
    pub core: Option<(Counters, Snapshot)>,
    /// Real time that the core took for all of it.
    pub thought: Duration,
    /// Launches and copies.
    pub launches: u64,
}

/// One iteration, or all of them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Iteration {
    /// How long.
    pub time: Nanos,
    /// Of that, how long launches stood at the gate.
    pub gate: Nanos,
    /// What moved and what was waited for; peaks are those since the start.
    pub totals: Totals,
}

/// Why a replay came to no end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplayError {
    /// What must leave the GPU has nowhere to go, or what is touched no place.
    #[error("out of memory: {place:?} is full")]
    OutOfMemory {
        /// What is full.
        place: Place,
    },
    /// The trace takes or gives back memory as no program could.
    #[error("the trace is of no program: {0}")]
    Trace(ModelError),
    /// A mistake of ours.
    #[error(
        "nothing can happen any more at {now:?}, after {finished} launches and copies; this is a mistake in DeepUM"
    )]
    Stuck {
        /// When.
        now: Nanos,
        /// The last that ended.
        finished: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Next {
    Gpu,
    Hand(u8),
    Heard,
    Host,
}

/// Replays all of a script under the core's policy. `progress` is told how many of how many launches are finished.
///
/// # Errors
/// [`ReplayError`].
pub fn replay(script: &Script, setup: &Setup, progress: impl FnMut(u64, u64)) -> Result<Replayed, ReplayError> {
    let (mut replayed, mind) = play(script, setup, Mind::new(Engine::new(setup.engine), setup.late), progress)?;
    replayed.core = Some((*mind.thinks.counters(), mind.thinks.snapshot()));
    Ok(replayed)
}

/// Replays all of a script, whose `recorded` last iteration has this schedule.
///
/// # Errors
/// [`ReplayError`].
pub fn replay_plan(
    script: &Script,
    setup: &Setup,
    recorded: &Recorded,
    schedule: &Schedule,
    progress: impl FnMut(u64, u64),
) -> Result<Replayed, ReplayError> {
    let planned = Planned::new(script, recorded, schedule);
    Ok(play(script, setup, Mind::new(planned, Nanos::ZERO), progress)?.0)
}

fn play<'a, T: Thinks>(
    script: &'a Script,
    setup: &Setup,
    mut mind: Mind<'a, T>,
    mut progress: impl FnMut(u64, u64),
) -> Result<(Replayed, Mind<'a, T>), ReplayError> {
    let options =
        Options { memory: Some(setup.memory), host_memory: Some(setup.host), ssd: setup.ssd, ..Options::default() };
    let mut memory = UnifiedMemory::new(&setup.profile, &options);
    let mut gpu = Gpu::default();
    let mut host = Host::new(script, setup);
    let (mut marks, mut over) = (Marks::default(), Over::default());
    let launches = host.launches();
    let mut now = Nanos::ZERO;
    while !(host.is_over() && gpu.idle()) {
        let hand = mind.next();
        let others = [
            hand.map(|(at, direction)| (at, Next::Hand(direction as u8))),
            mind.hears().map(|at| (at, Next::Heard)),
            host.next(now, mind.thinks.lead(), &gpu).map(|at| (at, Next::Host)),
        ];
        let other = others.into_iter().flatten().min();
        let next = gpu.next(now, &setup.profile).map(|at| (at, Next::Gpu)).into_iter().chain(other).min();
        let Some((at, next)) = next else { return Err(ReplayError::Stuck { now, finished: gpu.finished.0 }) };
        now = now.max(at);
        match next {
            Next::Gpu => {
                let horizon = other.map_or(Nanos(u64::MAX), |(at, _)| at);
                match gpu.step(&mut memory, now, horizon)? {
                    Happened::Went => continue,
                    Happened::Faulted => mind.look(&mut memory, now),
                    Happened::Finished(stream, done) => {
                        mind.reaches(Event::Progress { stream, done }, now);
                        over.pass(done, now, &host, &mut mind);
                        progress(done.0, launches);
                        marks.pass(&host, &gpu, &memory);
                    }
                }
            }
            Next::Hand(_) => {
                if let Some((_, direction)) = hand
                    && !mind.returns(direction, &mut memory, now)?
                {
                    continue;
                }
            }
            Next::Heard => mind.hear(now),
            Next::Host => {
                host.step(now, &mut memory, &mut mind, &mut gpu)?;
                marks.pass(&host, &gpu, &memory);
            }
        }
        gpu.gate = mind.act(&mut memory, now, gpu.finished)?.filter(|_| setup.gate);
    }
    Ok((Replayed { iterations: marks.iterations(), core: None, thought: mind.thought, launches }, mind))
}

/// What is known to be over although it was not told: all that was issued when it was asked (in life, at the beginning of a period of grace).
#[derive(Default, Debug)]
struct Over {
    asked: Option<LaunchSeq>,
}

impl Over {
    fn pass<T: Thinks>(&mut self, done: LaunchSeq, now: Nanos, host: &Host<'_>, mind: &mut Mind<'_, T>) {
        if let Some(seq) = self.asked.filter(|&asked| asked <= done) {
            mind.reaches(Event::Over { seq }, now);
            self.asked = None;
        }
        if self.asked.is_none() && mind.thinks.doubts() {
            self.asked = Some(host.issued());
        }
    }
}

/// Where iterations begin and end, as the GPU passes their marks.
#[derive(Default, Debug)]
struct Marks {
    passed: Vec<Iteration>,
}

impl Marks {
    /// Notes the sums at each mark that the GPU has passed by now.
    fn pass(&mut self, host: &Host<'_>, gpu: &Gpu<'_>, memory: &UnifiedMemory) {
        while host.marks().get(self.passed.len()).is_some_and(|mark| *mark <= gpu.finished) {
            let (time, gate, totals) = (gpu.finished_at, gpu.stood, memory.totals(GPU));
            self.passed.push(Iteration { time, gate, totals });
        }
    }
    fn iterations(&self) -> Vec<Iteration> {
        self.passed.windows(2).map(|pair| pair[1].since(&pair[0])).collect()
    }
}

impl Iteration {
    /// What came between two sums. Peaks are those of the later.
    fn since(&self, earlier: &Self) -> Self {
        Self {
            time: self.time - earlier.time,
            gate: self.gate - earlier.gate,
            totals: self.totals.since(&earlier.totals),
        }
    }
}
