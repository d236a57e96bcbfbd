//! One run, measured: the program is started, its flight log and its engine's status are read at its end.
//!
//! Nothing of the caller's `DEEPUM_*` reaches it, so a run is what its description says, and virtual time makes the
//! figures the same whenever and wherever that is.

use super::plan::{Mode, Run};
use crate::child::{Watched, last_words};
use crate::gpu::Gpu;
use crate::launch::Launch;
use crate::libraries::Libraries;
use crate::rows::{Outcome, Row};
use anyhow::{Context, Result, bail};
use deepum_emu_device::log::FlightLog;
use deepum_protocol::status::Status;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A run that takes longer hangs: the longest takes a few minutes.
const PATIENCE: Duration = Duration::from_secs(1800);

/// What a run did. Figures that it did not get to are absent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    pub outcome: Ended,
    /// What it said last, if it ended early.
    pub words: String,
    pub iterations: usize,
    pub seconds_first: Option<f64>,
    /// Of an iteration, from the third on; so are faults and bytes.
    pub seconds: Option<f64>,
    pub faults_first: Option<u64>,
    pub faults: Option<f64>,
    pub bytes_h2d: Option<f64>,
    pub bytes_d2h: Option<f64>,
    pub peak_managed: u64,
    pub launches: u64,
    pub launches_exact: u64,
    /// Of the correlation tables, at the end.
    pub tables: Option<TableSizes>,
    /// Real time it took, and processor time.
    pub wall_seconds: f64,
    pub cpu_seconds: f64,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    Ok,
    OutOfMemory,
    Failed,
}

/// The correlation tables as the engine reports them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableSizes {
    pub bytes: u64,
    pub exec_ids: u64,
    pub block_tables: u64,
}

/// What all runs have in common.
#[derive(Debug)]
pub struct Bench<'a> {
    pub libraries: &'a Libraries,
    /// The folder with the networks' scripts.
    pub scripts: PathBuf,
    pub python: PathBuf,
    /// The `deepum` that scripts ask for the status.
    pub deepum: PathBuf,
    pub interrupted: &'a AtomicBool,
}

impl Bench<'_> {
    /// Whether what a run asks for exists at all.
    pub fn check(run: &Run) -> Result<()> {
        if let Some(line) = deepum_config::Config::read(run.env.iter()).lines.first() {
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
        let gpu = Gpu::Emulated(run.device.clone());
        let shim = matches!(run.mode, Mode::Demand | Mode::DeepUm);
        let policy = match run.mode {
            Mode::Demand => Some("demand"),
            Mode::DeepUm => Some("deepum"),
            Mode::Plain | Mode::Unlimited => None,
        };
        let launch =
            Launch { libraries: self.libraries, gpu: &gpu, shim, policy, budget: None, flight_log: Some(&log) };
        let mut words: Vec<OsString> = vec![self.python.clone().into(), self.scripts.join(&run.script).into()];
        words.extend(run.args.iter().map(OsString::from));
        words.extend(["--batch".into(), run.batch.to_string().into()]);
        words.extend(["--iterations".into(), run.iterations.to_string().into()]);
        if shim {
            words.extend(["--status".into(), self.deepum.clone().into(), status.clone().into()]);
        }
        let mut child = Watched::start(&launch, &words, &output, &environment(run))?;
        let mut cpu_seconds = 0.0;
        let ended = loop {
            cpu_seconds = child.cpu_seconds().unwrap_or(cpu_seconds);
            if let Some(ended) = child.ended()? {
                break ended;
            }
            if self.interrupted.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            if started.elapsed() > PATIENCE {
                bail!("not ended after {} s; its last words: {}", PATIENCE.as_secs(), last_words(&output));
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let flight = FlightLog::open(&log)
            .with_context(|| format!("it never reached the emulated device: {}", last_words(&output)))?;
        let row = Row::new("", ended.success(), &flight);
        let mut said = if ended.success() { String::new() } else { last_words(&output) };
        let mut outcome = match row.outcome {
            Outcome::Ok => Ended::Ok,
            Outcome::OutOfMemory => Ended::OutOfMemory,
            // What the shim refuses for want of host memory never reaches the device.
            Outcome::Failed if said.contains("CUDA out of memory") => Ended::OutOfMemory,
            Outcome::Failed => Ended::Failed,
        };
        if outcome == Ended::Ok && run.iterations >= 4 && row.steady_seconds_per_iteration.is_none() {
            outcome = Ended::Failed;
            "no iterations could be told apart in its launches".clone_into(&mut said);
        }
        let tables = match (shim && outcome == Ended::Ok).then(|| std::fs::read_to_string(&status)) {
            Some(text) => Some(table_sizes(&text.context("it left no status")?)?),
            None => None,
        };
        Ok(Measured {
            outcome,
            words: said,
            iterations: row.iterations,
            seconds_first: row.seconds_first_iteration,
            seconds: row.steady_seconds_per_iteration,
            faults_first: row.faults_first_iteration,
            faults: row.faults_per_steady_iteration,
            bytes_h2d: row.bytes_h2d_per_steady_iteration,
            bytes_d2h: row.bytes_d2h_per_steady_iteration,
            peak_managed: flight.totals.peak_managed,
            launches: row.launches,
            launches_exact: row.launches_decoded_exactly,
            tables,
            wall_seconds: started.elapsed().as_secs_f64(),
            cpu_seconds,
        })
    }
}

/// Nothing of the caller's DeepUM, one thread for what PyTorch computes on the host, no way to the network.
fn environment(run: &Run) -> Vec<(OsString, Option<OsString>)> {
    // Those that `Launch` sets are not the caller's.
    let ours = ["DEEPUM", "DEEPUM_POLICY", "DEEPUM_EMU", "DEEPUM_EMU_LOG"];
    let callers = std::env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| name.to_str().is_some_and(|n| n.starts_with("DEEPUM") && !ours.contains(&n)));
    let mut env: Vec<(OsString, Option<OsString>)> = callers.map(|name| (name, None)).collect();
    let fixed =
        [("HF_HUB_OFFLINE", "1"), ("OMP_NUM_THREADS", "1"), ("PYTHONHASHSEED", "0"), ("PYTHONDONTWRITEBYTECODE", "1")];
    env.extend(fixed.map(|(name, value)| (name.into(), Some(value.into()))));
    env.extend(run.env.iter().map(|(name, value)| (name.into(), Some(value.into()))));
    env
}

/// The tables in the answer of `deepum status --json`.
fn table_sizes(text: &str) -> Result<TableSizes> {
    let all: serde_json::Value = serde_json::from_str(text).context("its status is not JSON")?;
    let status = Status::parse(&all["rows"][0].to_string()).context("its status")?;
    let t = &status.tables;
    Ok(TableSizes { bytes: t.bytes, exec_ids: t.exec_ids, block_tables: t.block_tables })
}
