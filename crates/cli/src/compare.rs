//! `deepum compare`: one program, several ways, one table.
//!
//! The program runs plain (no shim), under each policy, and on the same device with unlimited
//! memory, which is the ideal. All on an emulated device: there, times are virtual, and
//! "unlimited" exists. What each run did is read from the device's flight log, so the program needs no marks. With `--table` it is several programs,
//! each with several amounts of memory, and a document ([`table`]).

mod table;

use crate::child::{self, Watched, last_words};
use crate::gpu::{DEFAULT_PROFILE, Gpu};
use crate::launch::{Launch, budget, policies};
use crate::libraries::Libraries;
use crate::progress::Progress;
use crate::rows::{self, Outcome, Row, argument_line, gain_lines};
use crate::say::say;
use anyhow::{Context, Result, bail};
use deepum_emu_device::log::FlightLog;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// More than any program asks for; on the emulated device memory is only a number.
pub const UNLIMITED: &str = "memory=64TiB";
/// How much of a failed program's output is shown.
const TAIL_LINES: usize = 15;

#[derive(Debug, clap::Args)]
pub struct CompareArgs {
    /// Which policies, besides plain and unlimited
    #[arg(long, value_delimiter = ',', default_value = "demand,horizon", value_parser = policies())]
    policies: Vec<String>,
    /// `emu:PROFILE[:key=value,…]`
    #[arg(long, default_value_t = Gpu::Emulated(DEFAULT_PROFILE.to_owned()))]
    gpu: Gpu,
    /// Device memory the policies may fill: bytes, `16GiB`, or a share such as `50%`
    #[arg(long, value_parser = budget)]
    budget: Option<String>,
    /// One JSON object: `schema` and `rows[]`
    #[arg(long)]
    json: bool,
    /// Leave each run's output and flight log in this folder
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Instead of one program the networks of this manifest, such as benches/networks/manifest.toml, each with less and less memory; writes a document
    #[arg(long, value_name = "MANIFEST", conflicts_with_all = ["policies", "gpu", "budget", "json", "keep", "command"])]
    table: Option<PathBuf>,
    /// With --table: where results are kept, and looked for, and the document is written; relative to the current folder [default: out/networks]
    #[arg(long, value_name = "DIR", requires = "table", conflicts_with = "command")]
    out: Option<PathBuf>,
    /// With --table: programs that run at a time [default: 2]
    #[arg(long, value_name = "N", requires = "table", conflicts_with = "command", value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: Option<u16>,
    /// With --table: the Python that has PyTorch [default: .venv/bin/python of the repository]
    #[arg(long, value_name = "FILE", requires = "table", conflicts_with = "command")]
    python: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required_unless_present = "table", trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub fn compare(args: &CompareArgs) -> Result<ExitCode> {
    if let Some(manifest) = &args.table {
        return table::table(&table::Asked {
            manifest,
            out: args.out.as_deref().unwrap_or(Path::new("out/networks")),
            jobs: usize::from(args.jobs.unwrap_or(2)),
            python: args.python.as_deref(),
        });
    }
    let Gpu::Emulated(spec) = &args.gpu else {
        bail!(
            "compare needs virtual time and unlimited memory, which only an emulated device has; allowed: --gpu emu:PROFILE"
        );
    };
    let libraries = Libraries::find()?;
    let scratch;
    let folder = match &args.keep {
        Some(dir) => {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
            // The program may go to another folder before it opens its log.
            dir.canonicalize()?
        }
        None => {
            scratch = tempfile::tempdir()?;
            scratch.path().to_owned()
        }
    };
    let separator = if spec.contains(':') { ',' } else { ':' };
    let unlimited = Gpu::Emulated(format!("{spec}{separator}{UNLIMITED}"));
    let plain =
        Launch { libraries: &libraries, gpu: &args.gpu, shim: false, policy: None, budget: None, flight_log: None };

    let mut runs = vec![("plain", plain.clone())];
    for (n, policy) in args.policies.iter().enumerate() {
        if args.policies[..n].contains(policy) {
            continue;
        }
        runs.push((
            policy,
            Launch { shim: true, policy: Some(policy), budget: args.budget.as_deref(), ..plain.clone() },
        ));
    }
    runs.push(("unlimited", Launch { gpu: &unlimited, ..plain.clone() }));

    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let mut rows = Vec::new();
    for (name, launch) in runs {
        let (log, output) = (folder.join(format!("{name}.log")), folder.join(format!("{name}.out")));
        // One that an earlier comparison left is not what this run did.
        std::fs::remove_file(&log).ok();
        let launch = Launch { flight_log: Some(&log), ..launch };
        let status = watch(name, &launch, &args.command, &output, &interrupted)?;
        let flight = FlightLog::open(&log).with_context(|| {
            format!("the {name} run never reached the emulated device; is it a CUDA program?{}", tail(&output))
        })?;
        let row = Row::new(name, child::outcome(status, &output), &flight, None);
        match row.outcome {
            Outcome::Ok => {}
            Outcome::OutOfMemory => eprintln!("deepum: {name}: {}", last_words(status, &output)),
            Outcome::Failed => eprintln!("deepum: the {name} run ended with {status}:{}", tail(&output)),
        }
        rows.push(row);
    }
    Row::relate_to_ideal(&mut rows);

    let failed = rows.iter().any(|row| row.outcome == Outcome::Failed);
    if args.json {
        say(&format!("{}\n", json!({ "schema": "deepum-compare/1", "gpu": args.gpu.to_string(), "rows": rows })))?;
    } else {
        let lines = std::iter::once(gain_lines(&rows)).chain(argument_line(&rows));
        say(&format!("{}{}", rows::table(&rows), lines.collect::<String>()))?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs the program to its end, its output in a file, saying now and then how far it is.
fn watch(
    name: &str,
    launch: &Launch,
    words: &[OsString],
    output: &Path,
    interrupted: &AtomicBool,
) -> Result<ExitStatus> {
    let mut child = Watched::start(launch, words, output, &[])?;
    let mut progress = Progress::new();
    loop {
        if let Some(status) = child.ended()? {
            return Ok(status);
        }
        if interrupted.load(Ordering::Relaxed) {
            bail!("interrupted in the {name} run");
        }
        std::thread::sleep(Duration::from_millis(50));
        let totals = launch.flight_log.and_then(|log| FlightLog::totals(log).ok()).unwrap_or_default();
        let virtual_seconds = totals.virtual_ns as f64 / 1e9;
        progress.say(&match totals.launches {
            0 => format!("{name}: starting"),
            launches => format!("{name}: {launches} launches, {virtual_seconds:.1} virtual seconds"),
        });
    }
}

/// The last lines of a program's output, each indented.
fn tail(output: &Path) -> String {
    let text = std::fs::read(output).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].iter().map(|line| format!("\n    {line}")).collect()
}
