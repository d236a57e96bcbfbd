//! A replay as in life: over the model of a GPU's memory, by the core or by a plan (`deepum_sim::replay`).

use super::policy::{Planner, Policy};
use super::row::Row;
use super::trace::Trace;
use crate::rows::Outcome;
use anyhow::Result;
use clap::ValueEnum;
use deepum_core::engine::Config;
use deepum_core::policy::PolicyName;
use deepum_core::units::{Bytes, Nanos};
use deepum_emu_device::config::Config as Device;
use deepum_model::{Profile, Ssd};
use deepum_sim::bound::{Limits, bound, in_blocks};
use deepum_sim::placement::as_pytorch;
use deepum_sim::replay::{ReplayError, Script, Setup, replay, replay_plan};
use deepum_sim::tiers::{Duplex, Pipe, Rate, Tiers};
use deepum_trace::program::{Pieces, Recorded};
use std::num::NonZeroU64;

/// More than any program asks for.
pub const UNLIMITED: Bytes = Bytes(64 << 40);

/// Where tensors lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Placement {
    /// Where PyTorch's caching allocator puts them
    Pytorch,
    /// Where the trace says
    Trace,
}

/// What nobody is faster than who moves so.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub enum Unit {
    /// Bytes, each by itself, with copies kept: nobody at all
    #[default]
    Bytes,
    /// UM blocks as a whole; with --one-copy, each in one place at a time
    Blocks,
}

/// Of the GPU's memory, what plans may fill: they fill it to the last byte with whole tensors, while blocks are shared, and some are always on their way.
pub fn planned(memory: Bytes) -> Bytes {
    Bytes(memory.0 / 100 * 97)
}

/// The GPU, its link, its host, and its SSD; and how traces are read.
#[derive(Clone, Debug)]
pub struct Life {
    profile: Profile,
    memory: Bytes,
    host: Bytes,
    ssd: Option<Ssd>,
    iterations: u32,
    placement: Option<Placement>,
    one_copy: bool,
    unit: Option<Unit>,
    lost: Option<NonZeroU64>,
    late: Nanos,
    vary: Option<f64>,
}

/// What is said otherwise than in the GPU's profile.
#[derive(Clone, Copy, Default, Debug)]
pub struct Otherwise {
    /// Bytes.
    pub host: Option<Bytes>,
    /// Rates.
    pub ssd: Option<Ssd>,
    /// GB/s.
    pub link: Option<f64>,
    /// Of a profile that is repeated.
    pub iterations: u32,
    /// Where tensors lie, if not where they do in such a trace.
    pub placement: Option<Placement>,
    /// Whether the driver keeps no second copies of blocks.
    pub one_copy: bool,
    /// Of whom the bound is, if one is worked out.
    pub unit: Option<Unit>,
    /// One launch in so many is lost.
    pub lost: Option<NonZeroU64>,
    /// How much later it is heard of anything.
    pub late: Nanos,
    /// How much longer or shorter kernels take, as a share.
    pub vary: Option<f64>,
}

/// A trace that is ready to be replayed.
pub struct Ready<'a> {
    life: &'a Life,
    name: String,
    read: Read,
    /// What plans are carried out on, if not on that.
    shorter: Option<Read>,
    bound: Option<Nanos>,
    ideal: Option<Nanos>,
}

/// What a program did, and what its last iteration is to a planner.
struct Read {
    script: Script,
    recorded: Result<Recorded, String>,
}

impl Life {
    /// Puts it together.
    ///
    /// # Errors
    /// A scale that makes no profile.
    pub fn new(gpu: &Device, otherwise: &Otherwise) -> Result<Self> {
        let mut profile = Profile::scaled(&gpu.profile, &gpu.scale)?;
        if let Some(rate) = otherwise.link {
            (profile.h2d_bandwidth, profile.d2h_bandwidth) = (rate * 1e9, rate * 1e9);
        }
        let memory = gpu.memory.unwrap_or(profile.memory - profile.context);
        let host = otherwise.host.or(gpu.host).unwrap_or(profile.host_memory);
        let Otherwise { ssd, iterations, placement, one_copy, unit, lost, late, vary, .. } = *otherwise;
        Ok(Self { profile, memory, host, ssd, iterations, placement, one_copy, unit, lost, late, vary })
    }

    /// Whether a policy can be replayed.
    pub fn has(policy: Policy) -> bool {
        !matches!(policy, Policy::DeepumPlus | Policy::Planner(Planner::G10Host))
    }

    /// Reads a trace, works out its bound, and how fast it is with all the memory it wants. `say`: what is going on.
    ///
    /// # Errors
    /// A trace that cannot be read or replayed.
    pub fn ready(&self, trace: &Trace, say: &mut dyn FnMut(&str)) -> Result<Ready<'_>> {
        let name = trace.to_string();
        say(&format!("{name}: reading"));
        let read = self.read(trace, self.iterations)?;
        let bound = self.unit.and_then(|unit| {
            say(&format!("{name}: bound"));
            let copies_kept = unit == Unit::Bytes || !self.one_copy;
            let bound = |recorded| self.bound(recorded, unit, copies_kept);
            let bound = read.recorded.as_ref().map_err(Clone::clone).and_then(bound);
            bound.inspect_err(|why| eprintln!("deepum: {name}: no bound: {why}")).ok()
        });
        // The first iteration also finds its memory empty.
        let second = if self.iterations < 2 { Some(self.read(trace, 2)?) } else { None };
        let script = &second.as_ref().unwrap_or(&read).script;
        let ideal =
            replay(script, &self.setup(PolicyName::Demand, UNLIMITED), launches(&name, "unlimited", say))?.iterations;
        let ideal = ideal.last().map(|last| last.time);
        Ok(Ready { life: self, name, read, shorter: None, bound, ideal })
    }

    fn read(&self, trace: &Trace, iterations: u32) -> Result<Read> {
        let mut script = trace.open(iterations, self.memory)?;
        if let Some(share) = self.vary {
            script.vary_times(share);
        }
        if script.lost > 0 {
            eprintln!(
                "deepum: {trace}: {} calls and notices of the program are missing: the recorder lost them",
                script.lost
            );
        }
        let script = match self.placement.unwrap_or(trace.placement()) {
            Placement::Pytorch => as_pytorch(&script),
            Placement::Trace => script,
        };
        let recorded = script.last_iteration().map_err(|why| why.to_string());
        Ok(Read { script, recorded })
    }

    /// Whether the GPU and host memory have room for all that lives at a time.
    pub fn has_room_for(&self, ready: &Ready<'_>) -> bool {
        let live = ready.read.recorded.as_ref().ok().and_then(|recorded| recorded.program.live().into_iter().max());
        live.is_none_or(|live| live.0 <= self.memory.0.saturating_add(self.host.0))
    }

    /// The least time that an iteration takes, whoever moves its bytes or blocks (`docs/bound.md`), with copies kept or with moves alone.
    ///
    /// # Errors
    /// Why there is no such number.
    pub fn bound(&self, recorded: &Recorded, unit: Unit, copies_kept: bool) -> Result<Nanos, String> {
        let Pieces { program, places } = recorded.by_pieces().map_err(|why| why.to_string())?;
        let program = match unit {
            Unit::Bytes => program,
            Unit::Blocks => in_blocks(&program, &places).map_err(|why| why.to_string())?,
        };
        let limits = Limits { copies_kept, ..self.limits() };
        bound(&program.with_gaps(self.profile.kernel_gap), &limits)
            .map(|bound| bound.time)
            .map_err(|why| why.to_string())
    }

    fn setup(&self, policy: PolicyName, memory: Bytes) -> Setup {
        // The driver that is modelled can.
        let engine = Config { saving: !self.one_copy, ..Config::new(policy, memory) };
        let Self { host, ssd, lost, late, .. } = *self;
        Setup { profile: self.profile.clone(), memory, host, ssd, engine, gate: true, lost, late }
    }

    fn limits(&self) -> Limits {
        let (h2d, d2h) = (whole(self.profile.h2d_bandwidth), whole(self.profile.d2h_bandwidth));
        Limits { capacity: self.memory, h2d, d2h, copies_kept: true }
    }

    fn tiers(&self) -> Tiers {
        let Limits { h2d, d2h, .. } = self.limits();
        let pipe = |rate| Pipe { rate, latency: self.profile.per_transfer };
        let ssd = self.ssd.map(|ssd| Duplex { out: pipe(whole(ssd.write)), back: pipe(whole(ssd.read)) });
        Tiers { gpu: planned(self.memory), host: self.host, link: Duplex { out: pipe(d2h), back: pipe(h2d) }, ssd }
    }
}

impl<'a> Ready<'a> {
    /// The same, plans being carried out on so many iterations: they have nothing to learn.
    ///
    /// # Errors
    /// As [`Life::ready`].
    pub fn with_plans_on(self, trace: &Trace, iterations: u32) -> Result<Self> {
        Ok(Self { shorter: Some(self.life.read(trace, iterations)?), ..self })
    }

    /// The same on another machine, with the same GPU and the same link.
    pub fn on(self, life: &'a Life) -> Self {
        Self { life, ..self }
    }

    /// Replays it.
    pub fn row(&self, policy: Policy, say: &mut dyn FnMut(&str)) -> Row {
        let label = policy.to_string();
        match self.replayed(policy, launches(&self.name, &label, say)) {
            Ok(replayed) => Row::new(&self.name, &label, &replayed, self.ideal, self.bound),
            Err(Why::OutOfMemory) => Row::broken(&self.name, &label, Outcome::OutOfMemory),
            Err(Why::Other(why)) => Row::failed(&self.name, &label, why),
        }
    }

    fn replayed(&self, policy: Policy, progress: impl FnMut(u64, u64)) -> Result<deepum_sim::replay::Replayed, Why> {
        match policy {
            Policy::Core(policy) => {
                Ok(replay(&self.read.script, &self.life.setup(policy, self.life.memory), progress)?)
            }
            Policy::DeepumPlus => Err(Why::Other("it is simulated in no other world than g10-compat".to_owned())),
            Policy::Planner(planner) => {
                let Read { script, recorded } = self.shorter.as_ref().unwrap_or(&self.read);
                let recorded = recorded.as_ref().map_err(|why| Why::Other(why.clone()))?;
                let plan = planner.plan(&recorded.program, &self.life.tiers()).map_err(Why::Other)?;
                let setup = self.life.setup(PolicyName::Demand, self.life.memory);
                Ok(replay_plan(script, &setup, recorded, &plan.schedule, progress)?)
            }
        }
    }
}

/// Says how far a replay is; not at each launch, since looking at a clock costs as much as one.
fn launches<'a>(name: &'a str, policy: &'a str, say: &'a mut dyn FnMut(&str)) -> impl FnMut(u64, u64) + 'a {
    move |done, all| {
        if done.is_multiple_of(256) {
            say(&format!("{name}: {policy}: {done} of {all} launches"));
        }
    }
}

/// Why a replay has no figures.
enum Why {
    OutOfMemory,
    Other(String),
}

impl From<ReplayError> for Why {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::OutOfMemory { .. } => Self::OutOfMemory,
            ReplayError::Trace(_) | ReplayError::Stuck { .. } => Self::Other(error.to_string()),
        }
    }
}

/// As whole bytes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float to integer cast saturates, and no link is as fast"
)]
pub const fn whole(bytes_per_second: f64) -> Rate {
    Rate(bytes_per_second as u64)
}
