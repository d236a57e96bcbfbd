//! One run, measured: the program is started, its flight log and its engine's status are read at its end.
//!
//! Nothing of what the caller has set for DeepUM, PyTorch or CUDA reaches it, so a run is what its description says. The device is
//! deterministic: the same calls give the same figures, whenever and wherever they are made. What PyTorch leaves unwritten in a kernel's
//! arguments differs from run to run, and so may figures.

use super::bench::Bench;
use super::run::{Mode, Run};
use crate::child::{self, Watched, last_words};
use crate::compare::UNLIMITED;
use crate::gpu::Gpu;
use crate::launch::Launch;
use crate::replay::{Bounds, bounds};
use crate::rows::{Outcome, Row};
use anyhow::{Context, Result, bail};
use deepum_emu_device::config::Config;
use deepum_emu_device::log::FlightLog;
use deepum_model::Profile;
use deepum_protocol::status::Status;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

/// A run that takes longer hangs: the longest takes a few minutes.
const PATIENCE: Duration = Duration::from_secs(1800);

/// What a run did. Figures that it did not get to are absent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    pub outcome: Outcome,
    /// How it ended and what it said last, if it did not end well; why there is no bound, if that was asked for.
    pub words: String,
    /// Of a steady iteration; so are faults and bytes. The least that one takes, where that was asked for.
    pub seconds: Option<f64>,
    /// That, and the least by how blocks move, where it was asked for.
    pub bounds: Option<Bounds>,
    pub faults_first: Option<u64>,
    pub faults: Option<f64>,
    pub bytes_h2d: Option<f64>,
    pub bytes_d2h: Option<f64>,
    pub peak_managed: u64,
    /// Share of its launches of which the device knew exactly what they touch.
    pub exact: f64,
    /// What the engine says of the whole run, where there is one.
    pub engine: Option<Engine>,
    /// Real processor time it took.
    pub cpu_seconds: f64,
}

/// From the engine's status at the end of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Engine {
    pub table_bytes: u64,
    pub exec_ids: u64,
    pub block_tables: u64,
    /// UM blocks that faulted, once for each batch of faults.
    pub faulted: u64,
    /// Of these, those left out of the plan on purpose, to see whether they are used.
    pub left_out: u64,
    /// Predicted fetches that the fault came before.
    pub late: u64,
}

impl Measured {
    /// Share of an iteration for which the busier direction of the link is busy.
    pub fn link_share(&self, device: &str) -> Option<f64> {
        let config = Config::parse(device, &Profile::NAMES).ok()?;
        let profile = Profile::scaled(&config.profile, &config.scale).ok()?;
        Some((self.bytes_h2d? / profile.h2d_bandwidth).max(self.bytes_d2h? / profile.d2h_bandwidth) / self.seconds?)
    }
}

impl Bench {
    /// Whether what a run asks for exists at all.
    pub fn check(run: &Run) -> Result<()> {
        let policy = run.mode.policy().map(|policy| ("DEEPUM_POLICY", policy));
        let env = run.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).chain(policy);
        if let Some(line) = deepum_config::Config::read(env).lines.first() {
            bail!("{line}");
        }
        format!("emu:{}", run.device).parse::<Gpu>().map_err(anyhow::Error::msg)?;
        Ok(())
    }

    /// Runs it to its end; the figures are in `scratch` for that long.
    pub fn measure(&self, run: &Run, scratch: &Path) -> Result<Measured> {
        Self::check(run)?;
        let started = Instant::now();
        let (log, output, status) = (scratch.join("flight.log"), scratch.join("output"), scratch.join("status.json"));
        let trace = (run.mode == Mode::Bound).then(|| scratch.join("trace"));
        let gpu = Gpu::Emulated(match trace {
            Some(_) => run.clone().on(UNLIMITED).device,
            None => run.device.clone(),
        });
        let policy = run.mode.policy();
        let shim = policy.is_some();
        let launch =
            Launch { libraries: &self.libraries, gpu: &gpu, shim, policy, budget: None, flight_log: Some(&log) };
        let mut words: Vec<OsString> = vec![self.python.clone().into(), self.folder.join(&run.script).into()];
        words.extend(run.args.iter().map(OsString::from));
        words.extend(["--batch".into(), run.batch.to_string().into()]);
        words.extend(["--iterations".into(), run.iterations.to_string().into()]);
        if shim {
            words.extend(["--status".into(), self.deepum.clone().into(), status.clone().into()]);
        }
        let mut env = environment(run, std::env::vars_os().map(|(name, _)| name));
        env.extend(trace.clone().map(|trace| ("DEEPUM_RECORD".into(), Some(trace.into()))));
        let mut child = Watched::start(&launch, &words, &output, &env)?;
        let mut cpu_seconds = 0.0;
        let ended = loop {
            cpu_seconds = child.cpu_seconds().unwrap_or(cpu_seconds);
            if let Some(ended) = child.ended()? {
                break ended;
            }
            if self.interrupted() {
                bail!("interrupted");
            }
            if started.elapsed() > PATIENCE {
                bail!("not ended after {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let flight = FlightLog::open(&log)
            .with_context(|| format!("it never reached the emulated device: {}", last_words(ended, &output)))?;
        let (iterations, warm_up) = (run.iterations as usize, run.warm_up as usize);
        let row = Row::after(warm_up, "", child::outcome(ended, &output), &flight, Some(iterations));
        let (mut outcome, mut words) = (row.outcome, String::new());
        if outcome != Outcome::Ok {
            words = last_words(ended, &output);
        } else if row.iterations != iterations {
            outcome = Outcome::Failed;
            words = format!("its {} iterations cannot be told apart in its launches", run.iterations);
        }
        let engine = match (shim && outcome == Outcome::Ok).then(|| std::fs::read_to_string(&status)) {
            Some(text) => Some(engine(&text.context("it left no status")?)?),
            None => None,
        };
        let bounds = match &trace {
            // Of some programs no bound can be stated, which is an answer.
            Some(trace) if outcome == Outcome::Ok => {
                bounds(trace, &run.device).map_err(|why| words = format!("{why:#}")).ok()
            }
            _ => None,
        };
        let seconds = if trace.is_some() { bounds.map(|bounds| bounds.any) } else { row.steady_seconds_per_iteration };
        Ok(Measured {
            outcome,
            words,
            seconds,
            bounds,
            faults_first: row.faults_first_iteration,
            faults: row.faults_per_steady_iteration,
            bytes_h2d: row.bytes_h2d_per_steady_iteration,
            bytes_d2h: row.bytes_d2h_per_steady_iteration,
            peak_managed: flight.totals.peak_managed,
            exact: row.launches_decoded_exactly as f64 / row.launches_decoded.max(1) as f64,
            engine,
            cpu_seconds,
        })
    }
}

/// Nothing of what the caller has set for DeepUM, PyTorch or CUDA; one thread for what PyTorch computes on the host; no way to the network.
fn environment(run: &Run, callers: impl Iterator<Item = OsString>) -> Vec<(OsString, Option<OsString>)> {
    // Those that `Launch` sets are not the caller's.
    let ours = ["DEEPUM", "DEEPUM_POLICY", "DEEPUM_EMU", "DEEPUM_EMU_LOG"];
    let theirs = ["DEEPUM", "PYTORCH_", "TORCH_", "CUDA_"];
    let removed = |name: &OsString| {
        name.to_str().is_some_and(|n| theirs.iter().any(|prefix| n.starts_with(prefix)) && !ours.contains(&n))
    };
    let mut env: Vec<(OsString, Option<OsString>)> = callers.filter(removed).map(|name| (name, None)).collect();
    let fixed =
        [("HF_HUB_OFFLINE", "1"), ("OMP_NUM_THREADS", "1"), ("PYTHONHASHSEED", "0"), ("PYTHONDONTWRITEBYTECODE", "1")];
    env.extend(fixed.into_iter().chain(run.mode.env()).map(|(name, value)| (name.into(), Some(value.into()))));
    env.extend(run.env.iter().map(|(name, value)| (name.into(), Some(value.into()))));
    env
}

/// What the answer of `deepum status --json` says.
fn engine(text: &str) -> Result<Engine> {
    let all: serde_json::Value = serde_json::from_str(text).context("its status is not JSON")?;
    let status = Status::parse(&all["rows"][0].to_string()).context("its status")?;
    let counter =
        |name: &str| status.counters.get(name).copied().with_context(|| format!("its status has no counter {name}"));
    let t = &status.tables;
    Ok(Engine {
        table_bytes: t.bytes,
        exec_ids: t.exec_ids,
        block_tables: t.block_tables,
        faulted: counter("fault_blocks")?,
        left_out: counter("doubted_used")?,
        late: status.prefetch.late,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn what_the_caller_has_set_for_the_runs_subjects_is_taken_away() {
        let env = BTreeMap::from([("DEEPUM_DEGREE".to_owned(), "8".to_owned())]);
        let run = Run {
            network: String::new(),
            script: String::new(),
            args: Vec::new(),
            batch: 1,
            iterations: 6,
            warm_up: 2,
            device: String::new(),
            mode: Mode::DeepUm,
            env,
        };
        let callers =
            ["PATH", "PYTORCH_CUDA_ALLOC_CONF", "CUDA_VISIBLE_DEVICES", "TORCH_LOGS", "DEEPUM_DEGREE", "DEEPUM_EMU"];
        let env: Vec<_> = environment(&run, callers.iter().map(OsString::from));
        let removed: Vec<_> = env.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
        assert_eq!(removed, ["PYTORCH_CUDA_ALLOC_CONF", "CUDA_VISIBLE_DEVICES", "TORCH_LOGS", "DEEPUM_DEGREE"]);
        assert_eq!(env.last().unwrap(), &("DEEPUM_DEGREE".into(), Some("8".into())), "the run's own is set after");
    }

    #[test]
    fn counters_are_read_and_a_missing_one_is_named() {
        let mut status = Status::new(1);
        status.counters = BTreeMap::from([("fault_blocks".to_owned(), 7), ("doubted_used".to_owned(), 3)]);
        let text = |status: &Status| serde_json::json!({ "rows": [status] }).to_string();
        assert_eq!(engine(&text(&status)).unwrap(), Engine { faulted: 7, left_out: 3, ..Engine::default() });
        status.counters.remove("doubted_used");
        assert!(engine(&text(&status)).unwrap_err().to_string().contains("no counter doubted_used"));
    }
}
