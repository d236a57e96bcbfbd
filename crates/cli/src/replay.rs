//! `deepum replay`: what a program did once, under each policy, on a GPU that need not be there.
//!
//! A trace is G10's profile of a network or a file that was recorded (`docs/trace.md`). It is replayed over the model of a GPU's memory by the same core
//! that runs in programs (`deepum_sim::replay`), once for each policy, and once with all the memory it wants, which is the ideal. How fast any schedule
//! could be at most is worked out beside (`docs/bound.md`).

mod policy;
mod published;
mod row;
mod trace;

use crate::progress::Progress;
use crate::rows::Outcome;
use crate::say::say;
use anyhow::Result;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use deepum_core::engine::Config;
use deepum_core::policy::PolicyName;
use deepum_core::units::Bytes;
use deepum_emu_device::config::Config as Device;
use deepum_model::{Profile, Ssd};
use deepum_sim::bound::{Limits, bound};
use deepum_sim::placement::as_pytorch;
use deepum_sim::replay::{ReplayError, Setup, replay as run, replay_plan};
use deepum_sim::tiers::{Duplex, Pipe, Rate, Tiers};
use policy::Policy;
use published::Published;
use row::{Row, table};
use serde_json::json;
use std::process::ExitCode;
use trace::Trace;

/// More than any program asks for.
const UNLIMITED: Bytes = Bytes(64 << 40);

#[derive(Debug, clap::Args)]
pub struct ReplayArgs {
    /// Files of recorded traces, and profiles of G10's artifact as g10:DIR:MODEL:BATCH
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<Trace>,
    /// Under which policies; g10, most and oracle are told the whole iteration in advance
    #[arg(long, value_delimiter = ',', default_value = "demand,deepum", value_parser = policies())]
    policy: Vec<Policy>,
    /// PROFILE[:key=value,…], as with `deepum run --gpu emu:…`; allowed keys are memory, host and scale
    #[arg(long, default_value = "a100-40g", value_parser = device)]
    gpu: Device,
    /// Host memory that may be filled: bytes, or `128GiB` [default: the GPU profile's]
    #[arg(long, value_parser = bytes)]
    host: Option<Bytes>,
    /// An SSD that takes in what finds no room in host memory: its rates, GB/s, as r3.2,w3.0
    #[arg(long, value_name = "rGB/S,wGB/S", value_parser = ssd)]
    ssd: Option<Ssd>,
    /// The link's rate in each direction, GB/s [default: the GPU profile's]
    #[arg(long, value_name = "GB/S", value_parser = rate)]
    link: Option<f64>,
    /// How often a profile's iteration is repeated; the last one counts. Recorded traces have iterations of their own
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    iterations: u32,
    /// Where tensors lie [default: where a recorded trace says; of a profile, whose addresses are made up, where PyTorch puts them]
    #[arg(long, value_enum)]
    placement: Option<Placement>,
    /// As in the simulator that G10 was published with
    #[arg(long, value_enum, value_delimiter = ',', value_name = "DIFFERENCE")]
    published: Vec<Published>,
    /// One JSON object: `schema` and `rows[]`
    #[arg(long)]
    json: bool,
}

/// Where tensors lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Placement {
    /// Where PyTorch's caching allocator puts them
    Pytorch,
    /// Where the trace says
    Trace,
}

fn policies() -> impl TypedValueParser<Value = Policy> {
    let names = PossibleValuesParser::new(Policy::all().map(|(name, _)| name));
    names.map(|name| Policy::named(&name).expect("one of the names that are allowed"))
}

fn device(text: &str) -> Result<Device, String> {
    let text = text.strip_prefix("emu:").unwrap_or(text);
    let device = Device::parse(text, &Profile::NAMES).map_err(|error| error.to_string())?;
    let Device { memory, host, scale, profile, .. } = device.clone();
    if device != (Device { memory, host, scale, ..Device::of_profile(&profile) }) {
        return Err("only the keys memory, host and scale mean something in a replay".to_owned());
    }
    Ok(device)
}

fn bytes(text: &str) -> Result<Bytes, String> {
    match deepum_config::Budget::parse(text) {
        Ok(deepum_config::Budget::Fixed(bytes)) => Ok(bytes),
        Ok(_) => Err("allowed: bytes, or a number with KiB, MiB, GiB or TiB".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.1..=2000.0).contains(&rate) => Ok(rate),
        _ => Err("allowed: GB/s, from 0.1 to 2000".to_owned()),
    }
}

fn ssd(text: &str) -> Result<Ssd, String> {
    let allowed = "allowed: rRATE,wRATE, such as r3.2,w3.0, in GB/s";
    let rates = text.strip_prefix('r').and_then(|rest| rest.split_once(",w")).ok_or(allowed)?;
    let [read, write] = [rates.0, rates.1].map(|text| rate(text).map(|rate| rate * 1e9));
    Ok(Ssd { read: read?, write: write? })
}

/// The GPU, its link, its host, and its SSD.
struct Machine {
    profile: Profile,
    memory: Bytes,
    host: Bytes,
    ssd: Option<Ssd>,
    computes_meanwhile: bool,
    new_pages_cross_link: bool,
}

impl Machine {
    fn new(args: &ReplayArgs) -> Result<Self> {
        let mut profile = Profile::scaled(&args.gpu.profile, &args.gpu.scale)?;
        if let Some(rate) = args.link {
            (profile.h2d_bandwidth, profile.d2h_bandwidth) = (rate * 1e9, rate * 1e9);
        }
        let memory = args.gpu.memory.unwrap_or(profile.memory - profile.context);
        let host = args.host.or(args.gpu.host).unwrap_or(profile.host_memory);
        args.published.iter().for_each(|difference| difference.apply(&mut profile));
        let is = |difference| args.published.contains(&difference);
        let (computes_meanwhile, new_pages_cross_link) = (is(Published::Faults), is(Published::NewPages));
        Ok(Self { profile, memory, host, ssd: args.ssd, computes_meanwhile, new_pages_cross_link })
    }

    fn setup(&self, policy: PolicyName, memory: Bytes) -> Setup {
        let engine = Config::new(policy, memory);
        Setup {
            profile: self.profile.clone(),
            memory,
            host: self.host,
            ssd: self.ssd,
            computes_meanwhile: self.computes_meanwhile,
            new_pages_cross_link: self.new_pages_cross_link,
            engine,
            gate: true,
        }
    }

    fn limits(&self) -> Limits {
        let (h2d, d2h) = (whole(self.profile.h2d_bandwidth), whole(self.profile.d2h_bandwidth));
        Limits { capacity: self.memory, h2d, d2h, copies_kept: true }
    }

    fn tiers(&self) -> Tiers {
        let Limits { h2d, d2h, .. } = self.limits();
        let pipe = |rate| Pipe { rate, latency: self.profile.per_transfer };
        // What plans fill to the last byte are whole tensors; in the world blocks are shared, and some are always on their way.
        let gpu = Bytes(self.memory.0 / 100 * 97);
        let ssd = self.ssd.map(|ssd| Duplex { out: pipe(whole(ssd.write)), back: pipe(whole(ssd.read)) });
        Tiers { gpu, host: self.host, link: Duplex { out: pipe(d2h), back: pipe(h2d) }, ssd }
    }
}

pub fn replay(args: &ReplayArgs) -> Result<ExitCode> {
    let machine = Machine::new(args)?;
    let mut policies: Vec<Policy> = Vec::new();
    for &policy in &args.policy {
        if !policies.contains(&policy) {
            policies.push(policy);
        }
    }
    let fastest = args.published.contains(&Published::Fastest);
    let mut rows = Vec::new();
    let mut progress = Progress::new();
    for trace in &args.traces {
        let name = trace.to_string();
        progress.say(&format!("{name}: reading"));
        let script = trace.open(args.iterations, machine.memory)?;
        if script.lost > 0 {
            eprintln!(
                "deepum: {name}: {} calls and notices of the program are missing: the recorder lost them",
                script.lost
            );
        }
        let script = match args.placement.unwrap_or(trace.placement()) {
            Placement::Pytorch => as_pytorch(&script),
            Placement::Trace => script,
        };
        progress.say(&format!("{name}: bound"));
        let recorded = script.last_iteration().map_err(|why| why.to_string());
        let bound = recorded
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|recorded| bound(&recorded.program, &machine.limits()).map_err(|why| why.to_string()));
        if let Err(why) = &bound {
            eprintln!("deepum: {name}: no bound: {why}");
        }
        let say = |policy: &str, progress: &mut Progress, done: u64, all: u64| {
            // Not at each: looking at a clock costs as much as a launch.
            if done.is_multiple_of(256) {
                progress.say(&format!("{name}: {policy}: {done} of {all} launches"));
            }
        };
        let ideal = Setup { new_pages_cross_link: false, ..machine.setup(PolicyName::Demand, UNLIMITED) };
        let ideal = run(&script, &ideal, |done, all| say("unlimited", &mut progress, done, all))?;
        let ideal = ideal.iterations.last().map(|last| last.time);
        for &policy in &policies {
            let label = policy.to_string();
            let watch = |done, all| say(&label, &mut progress, done, all);
            let replayed = match (policy, &recorded) {
                (Policy::Core(policy), _) => {
                    run(&script, &machine.setup(policy, machine.memory), watch).map_err(Why::from)
                }
                (Policy::Planner(_), Err(why)) => Err(Why::Other(why.clone())),
                (Policy::Planner(planner), Ok(recorded)) => planner
                    .plan(&recorded.program, &machine.tiers())
                    .map_err(|why| Why::Other(why.to_string()))
                    .and_then(|plan| {
                        let setup = machine.setup(PolicyName::Demand, machine.memory);
                        Ok(replay_plan(&script, &setup, recorded, &plan.schedule, watch)?)
                    }),
            };
            rows.push(match replayed {
                Ok(replayed) => {
                    Row::new(&name, &label, &replayed, fastest, ideal, bound.as_ref().ok().map(|bound| bound.time))
                }
                Err(Why::OutOfMemory) => Row::broken(&name, &label, Outcome::OutOfMemory),
                Err(Why::Other(why)) => {
                    eprintln!("deepum: {name}, {label}: {why}");
                    Row::broken(&name, &label, Outcome::Failed)
                }
            });
        }
    }
    drop(progress);
    if args.json {
        say(&format!("{}\n", json!({ "schema": "deepum-replay/1", "rows": rows })))?;
    } else {
        say(&table(&rows))?;
    }
    let failed = rows.iter().any(|row| row.outcome == Outcome::Failed);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
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

#[expect(clippy::cast_possible_truncation, reason = "a float to integer cast saturates, and no link is as fast")]
const fn whole(bytes_per_second: f64) -> Rate {
    Rate(bytes_per_second as u64)
}
