//! `deepum measure`: what this GPU and its driver cost, and whether they do what DeepUM relies on.
//!
//! Problem: how fast blocks move, what a call costs that moves nothing, how late faults are told, whether contents survive being dropped and written anew: all of this is
//! taken from the driver's source and from papers (`docs/facts.md`, `crates/model/profiles`), and is another on each machine.
//! Idea: a process of our own does to a few blocks what the engine does, and looks at the clock. On an emulated device the clock is its own,
//! so the figures are what its profile says, which tests the measuring.
//!
//! It asks for managed memory only within a quarter of what is free on the GPU. Ends with 0 if all that could be tried holds.

mod calls;
mod contents;
mod duplex;
mod faults;
mod kernel;
mod leaves;
mod link;
mod moves;
mod notices;
mod row;
mod world;

use crate::gpu::Gpu;
use crate::launch::Launch;
use crate::libraries::Libraries;
use crate::say::say;
use anyhow::{Context, Result};
use row::Rows;
use serde_json::json;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use world::World;

#[derive(Debug, clap::Args)]
pub struct MeasureArgs {
    /// One JSON object: `schema`, `device`, `driver`, `emulated`, `figures[]` with `name` (its last word is the unit), `median`, `least`, `most`, `count`, and `checks[]` with `name`, `holds` (null: could not be tried), `detail`
    #[arg(long)]
    json: bool,
    /// `real`, or `emu:PROFILE[:key=value,…]`, whose own clock is looked at
    #[arg(long, default_value = "real")]
    gpu: Gpu,
    /// Be the process that measures
    #[arg(long, hide = true)]
    here: bool,
}

pub fn measure(args: &MeasureArgs) -> Result<ExitCode> {
    if args.here {
        return here(args.json);
    }
    let libraries = Libraries::find()?;
    let exe = std::env::current_exe().context("cannot tell where the deepum executable is")?;
    let mut words = vec![exe.into(), "measure".into(), "--here".into()];
    if args.json {
        words.push("--json".into());
    }
    let launch =
        Launch { libraries: &libraries, gpu: &args.gpu, shim: false, policy: None, budget: None, flight_log: None };
    Err(launch.command(&words)?.exec()).context("cannot start a process that measures")
}

fn here(is_json: bool) -> Result<ExitCode> {
    let mut world = World::open()?;
    let mut rows = Rows::default();
    notices::measure(&mut world, &mut rows).context("while looking for notices")?;
    link::measure(&world, &mut rows).context("while copying")?;
    moves::measure(&world, &mut rows).context("while moving blocks")?;
    leaves::measure(&world, &mut rows).context("while leaving")?;
    faults::measure(&world, &mut rows).context("while faulting")?;
    contents::measure(&world, &mut rows).context("while comparing contents")?;
    calls::measure(&world, &mut rows).context("while timing calls")?;
    let driver = world.support.version().map(ToString::to_string);
    if is_json {
        let Rows { figures, checks } = &rows;
        let (device, emulated) = (&world.device, world.is_emulated());
        let all = json!({ "schema": "deepum-measure/1", "device": device, "driver": driver, "emulated": emulated, "figures": figures, "checks": checks });
        say(&format!("{all}\n"))?;
    } else {
        let driver = driver.unwrap_or_else(|| "that does not tell its version".to_owned());
        say(&format!("{}, driver {driver}\n\n{}", world.device, rows.page()))?;
    }
    let fails = rows.checks.iter().any(|check| check.holds == Some(false));
    Ok(if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
