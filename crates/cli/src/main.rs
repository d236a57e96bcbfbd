//! `deepum`: run a program with more GPU memory than the GPU has, look at it while it runs, and
//! compare policies on it.
//!
//! Each command is a file; what they share is how a program is started (`launch`) and where our
//! libraries lie (`libraries`).

mod child;
mod columns;
mod compare;
mod cuda;
mod doctor;
mod gpu;
mod iterations;
mod launch;
mod libraries;
mod measure;
mod paper;
mod progress;
mod replay;
mod rows;
mod runs;
mod say;
mod source;
mod status;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Train models that do not fit in GPU memory, unmodified, close to full speed.
#[derive(Debug, Parser)]
#[command(name = "deepum", version, propagate_version = true)]
#[command(after_help = deepum_config::help::text())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a program under DeepUM
    Run(launch::RunArgs),
    /// Show what DeepUM is doing in running programs
    Status(status::StatusArgs),
    /// Say what on this machine stands in DeepUM's way, what that costs, and how to mend it
    Doctor(doctor::DoctorArgs),
    /// Measure what this GPU and its driver cost, and whether they do what DeepUM relies on
    Measure(measure::MeasureArgs),
    /// Run a program plain, under each policy, and with unlimited memory, on an emulated GPU; print one table
    Compare(compare::CompareArgs),
    /// Replay what a program did, under each policy, on a modelled GPU; print one table
    Replay(Box<replay::ReplayArgs>),
    /// Regenerate the DeepUM paper's evaluation on emulated GPUs, beside the paper's numbers
    ///
    /// All of it takes between one and two hours on two idle cores, and each run holds up to 4 GB of memory; interrupted, it goes on from where it was. At its end
    /// it writes deepum-paper.md into the folder of results and, if all rows were asked for and nothing failed, docs/results/deepum-paper.md of the
    /// source tree.
    Paper(paper::PaperArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => launch::run(&args),
        Command::Status(args) => status::status(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Measure(args) => measure::measure(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Replay(args) => replay::replay(&args),
        Command::Paper(args) => paper::paper(&args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("deepum: {error:#}");
            ExitCode::FAILURE
        }
    }
}
