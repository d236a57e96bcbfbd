//! `deepum doctor`: what on this machine stands in DeepUM's way, what each miss costs, and how to mend it.
//!
//! Problem: most of what can be wrong (a node that a container lacks, a limit, a driver half updated) shows only as a program that is slower than it could be.
//! Idea: look first (`driver`, `host`, `environment`, `program`: pure functions of a [`System`], so that tests can plant any illness), then try: a process of our own
//! starts CUDA under the shim and attaches to the driver as the engine would (`probe`), and what it saw is judged (`judge`). With `--gpu emu:…` what is
//! the real driver's is left out.
//!
//! Changes nothing on the machine. Ends with 0 if nothing stands in the way.

mod driver;
mod environment;
mod finding;
mod host;
mod judge;
mod probe;
mod program;
mod system;

use crate::gpu::Gpu;
use crate::launch::Launch;
use crate::libraries::Libraries;
use crate::say::say;
use anyhow::{Context, Result};
use deepum_config::{Config, Reading};
use deepum_core::units::Bytes;
use finding::{Finding, Verdict};
use judge::Trial;
use serde_json::json;
use std::ffi::OsString;
use std::io::{Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use system::{Here, System};

#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// One JSON object: `schema` and `rows[]`, each with `check`, `verdict` (ok, unknown, costs, stops), `saw`, `cost`, `remedy`
    #[arg(long)]
    json: bool,
    /// `real`, or `emu:PROFILE[:key=value,…]` to examine an emulated one
    #[arg(long, default_value = "real")]
    gpu: Gpu,
    /// Be the process that tries the driver
    #[arg(long, hide = true)]
    probe: bool,
    /// A program that is to run, which is looked at, too; a Python is asked for its PyTorch
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// How long a process may take to start CUDA, or PyTorch. A cold start on a machine with eight GPUs takes tens of seconds.
const PATIENCE: Duration = Duration::from_secs(120);

pub fn doctor(args: &DoctorArgs) -> Result<ExitCode> {
    if args.probe {
        probe::probe()?;
        return Ok(ExitCode::SUCCESS);
    }
    let findings = examine(args, &Here);
    if args.json {
        say(&format!("{}\n", json!({ "schema": "deepum-doctor/1", "rows": findings })))?;
    } else {
        say(&finding::page(&findings))?;
    }
    let is_well = findings.iter().all(|finding| finding.verdict <= Verdict::Unknown);
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn examine(args: &DoctorArgs, system: &dyn System) -> Vec<Finding> {
    let Reading { config, lines } = Config::read(system.variables());
    let is_real = args.gpu == Gpu::Real;
    let mut found = look(system, is_real, &config, &lines);
    let is_there = !is_real || driver::is_loaded(system);
    let trial = is_there.then(|| try_driver(&args.gpu).unwrap_or_else(|why| Trial::Broken(format!("{why:#}"))));
    // An emulated device has a host of its own.
    if is_real {
        let gpus: Vec<Bytes> = match &trial {
            Some(Trial::Seen(seen)) => seen.gpus.iter().map(probe::SeenGpu::memory).collect(),
            _ => Vec::new(),
        };
        found.push(host::memory(system, &config, &gpus));
    }
    found.extend(trial.iter().flat_map(judge::judge));
    if let Some(word) = args.command.first() {
        found.extend(program::examine(word, |python| {
            if !is_there {
                return Err("without a GPU it was not asked".to_owned());
            }
            ask(&args.gpu, false, &[python.into(), "-c".into(), program::ASK.into()]).map_err(|why| format!("{why:#}"))
        }));
    }
    found
}

/// All that can be known without starting anything.
fn look(system: &dyn System, is_real: bool, config: &Config, lines: &[String]) -> Vec<Finding> {
    let mut found = Vec::new();
    if is_real {
        found.push(driver::loaded(system));
        if driver::is_loaded(system) {
            found.extend(driver::uvm_module(system));
            found.extend(driver::nodes(system, host::container(system).is_some()));
            found.extend(driver::link(system));
        }
        found.extend(host::platform(system));
    }
    found.extend(host::limits(system));
    found.extend(environment::foreign(system));
    found.extend(environment::ours(config, lines));
    found.extend(environment::places(system, config));
    found
}

fn try_driver(gpu: &Gpu) -> Result<Trial> {
    let exe = std::env::current_exe().context("cannot tell where the deepum executable is")?;
    let said = match ask(gpu, true, &[exe.into(), "doctor".into(), "--probe".into()]) {
        Ok(said) => said,
        Err(why) => return Ok(Trial::Broken(format!("{why:#}"))),
    };
    Ok(Trial::Seen(serde_json::from_str(&said).with_context(|| format!("printed {said:?}"))?))
}

/// Runs a program and gives what it printed; `shim`: with ours preloaded and off.
fn ask(gpu: &Gpu, shim: bool, words: &[OsString]) -> Result<String> {
    let libraries = Libraries::find()?;
    let launch = Launch { libraries: &libraries, gpu, shim, policy: None, budget: None, flight_log: None };
    let mut command = launch.command(words)?;
    command.env("DEEPUM", "0");
    printed(command)
}

fn printed(mut command: Command) -> Result<String> {
    let (mut out, mut err) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(err.try_clone()?).process_group(0);
    let mut child =
        command.spawn().with_context(|| format!("cannot start {}", Path::new(command.get_program()).display()))?;
    let begun = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if begun.elapsed() > PATIENCE => {
                child.kill().ok();
                // One that hangs in the driver may not even die.
                anyhow::bail!("did not end within {} s", PATIENCE.as_secs());
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let text = |file: &mut std::fs::File| -> Result<String> {
        let mut bytes = Vec::new();
        file.rewind()?;
        file.take(1 << 20).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    if status.success() {
        return text(&mut out);
    }
    let said = text(&mut err)?;
    let last = said.lines().last().unwrap_or("nothing");
    match status.signal() {
        Some(signal) => anyhow::bail!("was ended by signal {signal} and said: {last}"),
        None => anyhow::bail!("ended with {} and said: {last}", status.code().unwrap_or(-1)),
    }
}

#[cfg(test)]
mod tests;
