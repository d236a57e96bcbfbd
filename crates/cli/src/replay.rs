//! `deepum replay`: what a program did once, under each policy, on a GPU that need not be there.
//!
//! A trace is G10's profile of a network or a file that was recorded (`docs/trace.md`). It is replayed over the model of a GPU's memory by the same core
//! that runs in programs ([`life`]), once for each policy, and once with all the memory it wants, which is the ideal; how fast any schedule
//! could be at most is worked out beside (`docs/bound.md`). Or it is played by the rules of the simulator that G10 was published with ([`compat`]).

mod compat;
mod figures;
mod gpu;
mod life;
mod policy;
mod row;
mod trace;

use crate::progress::Progress;
use crate::rows::Outcome;
use crate::say::say;
use anyhow::{Context, Result, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use compat::{Compat, Mistake};
use deepum_core::units::{Bytes, Nanos};
use deepum_emu_device::config::Config as Device;
use deepum_model::{Profile, Ssd};
use deepum_sim::published::World;
use gpu::{COMPAT, Gpu};
use life::{Life, Otherwise, Placement, UNLIMITED, Unit, whole};
use policy::Policy;
use row::{Row, table};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trace::Trace;

#[derive(Debug, clap::Args)]
pub struct ReplayArgs {
    /// Files of recorded traces, and profiles of G10's artifact as g10:DIR:MODEL:BATCH
    #[arg(required_unless_present = "table", value_name = "TRACE")]
    traces: Vec<Trace>,
    /// G10's Figures 11 and 15, in life and as published: all of their profiles, which are in this folder, and a document of it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["traces", "policy", "gpu", "host", "ssd", "link", "iterations", "placement", "one_copy", "bound", "no_bound", "lost", "late", "vary", "put_right", "json"])]
    table: Option<PathBuf>,
    /// With --table: the document [default: docs/results/g10-traces.md of the source tree]
    #[arg(long, value_name = "FILE", requires = "table")]
    document: Option<PathBuf>,
    /// With --table: profiles that are replayed at a time
    #[arg(long, value_name = "N", requires = "table", value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: Option<u16>,
    /// Under which policies; planners such as g10 and oracle are told the whole iteration in advance [default: demand,horizon; on g10-compat demand,deepum_plus,g10]
    #[arg(long, value_delimiter = ',', value_parser = policies())]
    policy: Vec<Policy>,
    /// PROFILE[:key=value,…], as with `deepum run --gpu emu:…`; allowed keys are memory, host and scale. Or g10-compat[:memory=…,host=…], the world
    /// that G10 was published with; it has a host, an SSD and a link of its own where nothing is said
    #[arg(long, default_value = "a100-40g", value_parser = Gpu::parse)]
    gpu: Gpu,
    /// Host memory that may be filled: bytes, or `128GiB`; 0: none, and all goes to the SSD [default: the GPU profile's]
    #[arg(long, value_parser = bytes)]
    host: Option<Bytes>,
    /// An SSD that takes in what finds no room in host memory: its rates, GB/s, as r3.2,w3.0; with `,cached` host memory is a cache in front of it
    #[arg(long, value_name = "rGB/S,wGB/S[,cached]", value_parser = ssd)]
    ssd: Option<Ssd>,
    /// The link's rate in each direction, GB/s [default: the GPU profile's]
    #[arg(long, value_name = "GB/S", value_parser = rate)]
    link: Option<f64>,
    /// How often a profile's iteration is repeated; the last one counts. Recorded traces have iterations of their own [default: 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    iterations: Option<u32>,
    /// Where tensors lie [default: where a recorded trace says; of a profile, whose addresses are made up, where PyTorch puts them]
    #[arg(long, value_enum)]
    placement: Option<Placement>,
    /// The driver keeps no second copies of blocks, one on the GPU and one on the host: of those only horizon makes use
    #[arg(long)]
    one_copy: bool,
    /// Of whom the bound is: nobody is faster who moves
    #[arg(long, value_enum, value_name = "UNIT", default_value_t)]
    bound: Unit,
    /// Work out no bound: of a large program it takes longer than all else
    #[arg(long, conflicts_with = "bound")]
    no_bound: bool,
    /// One launch in N is lost before the policy hears of it, on average
    #[arg(long, value_name = "N")]
    lost: Option<NonZeroU64>,
    /// The policy hears so many microseconds later of what the program does, and of how far the GPU is
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    late: Option<u64>,
    /// Kernels take this share longer or shorter at most, each time another one
    #[arg(long, value_name = "SHARE", value_parser = share)]
    vary: Option<f64>,
    /// On g10-compat: what is not as published
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MISTAKE")]
    put_right: Vec<Mistake>,
    /// One JSON object: `schema` and `rows[]`
    #[arg(long)]
    json: bool,
}

fn policies() -> impl TypedValueParser<Value = Policy> {
    let names = PossibleValuesParser::new(Policy::all().map(|(name, _)| name));
    names.map(|name| Policy::named(&name).expect("one of the names that are allowed"))
}

fn bytes(text: &str) -> Result<Bytes, String> {
    if text == "0" {
        return Ok(Bytes::ZERO);
    }
    match deepum_config::Budget::parse(text) {
        Ok(deepum_config::Budget::Fixed(bytes)) => Ok(bytes),
        Ok(_) => Err("allowed: 0, bytes, or a number with KiB, MiB, GiB or TiB".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.1..=2000.0).contains(&rate) => Ok(rate),
        _ => Err("allowed: GB/s, from 0.1 to 2000".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).parse::<f64>().map(|percent| percent / 100.0);
    match percent {
        Ok(share) if (0.0..1.0).contains(&share) => Ok(share),
        _ => Err("allowed: percent, from 0 % to less than 100 %, such as 25%".to_owned()),
    }
}

fn ssd(text: &str) -> Result<Ssd, String> {
    let allowed = "allowed: rRATE,wRATE or rRATE,wRATE,cached, such as r3.2,w3.0, in GB/s, from 0.1 to 2000";
    let (text, cached) = text.strip_suffix(",cached").map_or((text, false), |text| (text, true));
    let rates = text.strip_prefix('r').and_then(|rest| rest.split_once(",w")).ok_or(allowed)?;
    let [read, write] = [rates.0, rates.1].map(|text| rate(text).map(|rate| rate * 1e9).map_err(|_| allowed));
    Ok(Ssd { read: read?, write: write?, cached })
}

/// How often a profile's iteration is repeated.
const ITERATIONS: u32 = 3;

pub fn replay(args: &ReplayArgs) -> Result<ExitCode> {
    if let Some(folder) = &args.table {
        return figures::figures(folder, usize::from(args.jobs.unwrap_or(2)), args.document.as_deref());
    }
    let rows = match &args.gpu {
        Gpu::Life(device) => {
            if !args.put_right.is_empty() {
                bail!("--put-right means something with --gpu {COMPAT} only");
            }
            let otherwise = Otherwise {
                host: args.host,
                ssd: args.ssd,
                link: args.link,
                iterations: args.iterations.unwrap_or(ITERATIONS),
                placement: args.placement,
                one_copy: args.one_copy,
                unit: (!args.no_bound).then_some(args.bound),
                lost: args.lost,
                late: Nanos::micros(args.late.unwrap_or(0)),
                vary: args.vary,
            };
            in_life(args, &Life::new(device, &otherwise)?)?
        }
        Gpu::Compat(world) => {
            let life = [
                args.iterations.is_some(),
                args.placement.is_some(),
                args.one_copy,
                args.bound != Unit::default() || args.no_bound,
                args.lost.is_some(),
                args.late.is_some(),
                args.vary.is_some(),
            ];
            if life.contains(&true) {
                bail!(
                    "{COMPAT} has its own iterations, placement, copies, bounds, records and times: of these options none is allowed with it"
                );
            }
            let both = args.ssd.map(|ssd| (whole(ssd.read), whole(ssd.write)));
            if args.ssd.is_some_and(|ssd| ssd.cached) {
                bail!("host memory is no cache on {COMPAT}");
            }
            let ssd = match both {
                Some((read, write)) if read != write => bail!("the SSD of {COMPAT} reads as fast as it writes"),
                both => both.map_or(world.ssd, |(read, _)| read),
            };
            let link = args.link.map_or(world.link, |rate| whole(rate * 1e9));
            let world = &World { host: args.host.unwrap_or(world.host), link, ssd, ..*world };
            as_published(args, Compat::new(world, &args.put_right))?
        }
    };
    if args.json {
        say(&format!("{}\n", json!({ "schema": "deepum-replay/1", "rows": rows })))?;
    } else {
        say(&table(&rows))?;
    }
    let failed = rows.iter().any(|row| row.outcome == Outcome::Failed);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Seconds that an iteration takes at least (`docs/bound.md`).
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Bounds {
    /// Whoever moves its bytes.
    pub any: f64,
    /// If no byte has two copies.
    pub moves_alone: f64,
    /// If UM blocks move as a whole; none where a kernel touches more of them than there is room for.
    pub blocks: Option<f64>,
    /// If they do, and none has two copies.
    pub blocks_alone: Option<f64>,
}

/// Those of a recorded program on an emulated device.
///
/// # Errors
/// A trace that cannot be read, or a program for which no bound can be stated.
pub fn bounds(trace: &Path, device: &str) -> Result<Bounds> {
    let device = Device::parse(device, &Profile::NAMES)?;
    let otherwise = Otherwise { iterations: ITERATIONS, ..Otherwise::default() };
    let life = Life::new(&device, &otherwise)?;
    let recorded = Trace::File(trace.to_owned()).open(ITERATIONS, UNLIMITED)?.last_iteration()?;
    let seconds = |unit, copies_kept| -> Result<f64> {
        let bound = life.bound(&recorded, unit, copies_kept).map_err(anyhow::Error::msg).context("no bound")?;
        Ok(bound.0 as f64 / 1e9)
    };
    let [any, moves_alone] = [seconds(Unit::Bytes, true)?, seconds(Unit::Bytes, false)?];
    let [blocks, blocks_alone] = [true, false].map(|copies_kept| seconds(Unit::Blocks, copies_kept).ok());
    // Who may do less is no faster; what is found is a little below what could be proven, here more and there less.
    let moves_alone = moves_alone.max(any);
    let blocks = blocks.map(|blocks| blocks.max(any));
    let blocks_alone = blocks_alone.map(|alone| alone.max(moves_alone).max(blocks.unwrap_or(any)));
    Ok(Bounds { any, moves_alone, blocks, blocks_alone })
}

fn in_life(args: &ReplayArgs, life: &Life) -> Result<Vec<Row>> {
    let policies = chosen(&args.policy, &["demand", "horizon"], Life::has)?;
    let mut progress = Progress::new();
    let mut say = |what: &str| progress.say(what);
    let mut rows = Vec::new();
    for trace in &args.traces {
        let ready = life.ready(trace, &mut say)?;
        rows.extend(policies.iter().map(|policy| ready.row(*policy, &mut say)));
    }
    Ok(rows)
}

fn as_published(args: &ReplayArgs, compat: Compat) -> Result<Vec<Row>> {
    let policies = chosen(&args.policy, &["demand", "deepum_plus", "g10"], Compat::has)?;
    let mut rows = Vec::new();
    for trace in &args.traces {
        let profile = trace.profile()?;
        rows.extend(policies.iter().map(|policy| compat.row(&profile, *policy)));
    }
    Ok(rows)
}

/// What was asked for, each once, or else these; all must be there.
fn chosen(asked: &[Policy], default: &[&str], has: fn(Policy) -> bool) -> Result<Vec<Policy>> {
    let mut policies: Vec<Policy> = Vec::new();
    let default = default.iter().filter_map(|name| Policy::named(name)).filter(|_| asked.is_empty());
    for policy in asked.iter().copied().chain(default) {
        if !has(policy) {
            let allowed: Vec<_> = Policy::all().filter(|(_, policy)| has(*policy)).map(|(name, _)| name).collect();
            bail!("--policy {policy} is not of this world; allowed are {}", allowed.join(", "));
        }
        if !policies.contains(&policy) {
            policies.push(policy);
        }
    }
    Ok(policies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ssd_is_its_rates_and_whether_host_memory_is_a_cache() {
        let of = |cached| Ssd { read: 3.2e9, write: 3e9, cached };
        assert_eq!((ssd("r3.2,w3.0"), ssd("r3.2,w3.0,cached")), (Ok(of(false)), Ok(of(true))));
        for wrong in ["r3.2", "w3.0,r3.2", "r3.2,w3.0,", "r3.2,w3.0,direct", "r0,w1"] {
            assert!(ssd(wrong).unwrap_err().contains("allowed"), "{wrong}");
        }
    }
}
