//! `deepum run`: starts a program with the shim preloaded, on the machine's GPU or an emulated one.
//!
//! The program replaces `deepum` (exec), so that its process ID, signals and exit status are its own.

use crate::gpu::{DEFAULT_PROFILE, Gpu, real_gpu_present};
use crate::libraries::Libraries;
use anyhow::{Context, Result, bail};
use clap::builder::PossibleValuesParser;
use deepum_core::policy::PolicyName;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Who decides what moves when [default: horizon]
    #[arg(long, value_parser = policies())]
    policy: Option<String>,
    /// Device memory to fill at most: bytes, `16GiB`, or a share of the GPU's memory such as `50%`
    #[arg(long, value_parser = budget)]
    budget: Option<String>,
    /// Write a trace of what the program does, for `deepum replay`, into this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// `real`, or `emu:PROFILE[:key=value,…]` [default: real if there is a GPU, otherwise emu:v100-32g]
    #[arg(long)]
    gpu: Option<Gpu>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The core's own list of policies.
pub fn policies() -> PossibleValuesParser {
    PolicyName::ALL.map(PolicyName::as_str).into()
}

/// Checks a budget as the shim will.
pub fn budget(text: &str) -> Result<String, String> {
    deepum_config::Budget::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// How a program is started: which device, with or without the shim.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    pub libraries: &'a Libraries,
    pub gpu: &'a Gpu,
    /// Whether DeepUM is preloaded; without it the program runs plain.
    pub shim: bool,
    /// Overrides what the environment says.
    pub policy: Option<&'a str>,
    pub budget: Option<&'a str>,
    /// Where the emulated device keeps its flight log.
    pub flight_log: Option<&'a Path>,
}

impl Launch<'_> {
    /// The program as a command ready to be spawned or exec'ed.
    pub fn command(&self, words: &[OsString]) -> Result<Command> {
        let (program, arguments) = words.split_first().context("no program given")?;
        let mut command = Command::new(program);
        command.args(arguments);
        let mut preload = Vec::new();
        if self.shim {
            preload.push(self.libraries.path("libdeepum.so")?);
        }
        if let Some(policy) = self.policy {
            command.env("DEEPUM_POLICY", policy);
        }
        if let Some(budget) = self.budget {
            command.env("DEEPUM_GPU_BUDGET", budget);
        }
        match self.gpu {
            Gpu::Real => {
                if !real_gpu_present() {
                    bail!(
                        "no NVIDIA GPU here (no /dev/nvidiactl, no loaded driver); --gpu emu:{DEFAULT_PROFILE} runs on an emulated one"
                    );
                }
            }
            Gpu::Emulated(spec) => {
                preload.push(self.libraries.path("libdeepum_emu_node.so")?);
                command.env("DEEPUM_EMU", spec);
                command.env("LD_LIBRARY_PATH", joined(self.libraries.vendor_links()?, "LD_LIBRARY_PATH"));
                // PyTorch 2.15 asks NVML whether its expandable segments could be exported, by a null pointer where there is no NVML
                // (facts 20.7). Nothing can be exported here.
                if std::env::var_os(EXPORTABLE).is_none() {
                    command.env(EXPORTABLE, "0");
                }
                if let Some(log) = self.flight_log {
                    command.env("DEEPUM_EMU_LOG", log);
                }
            }
        }
        if let Some((first, rest)) = preload.split_first() {
            let ours = rest.iter().fold(first.clone().into_os_string(), |mut list, library| {
                list.push(":");
                list.push(library);
                list
            });
            command.env("LD_PRELOAD", joined(ours, "LD_PRELOAD"));
        }
        Ok(command)
    }
}

/// PyTorch: whether expandable segments are to be memory that other processes can be given.
const EXPORTABLE: &str = "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC";

/// `value`, followed by what the variable holds already.
fn joined(value: impl Into<OsString>, variable: &str) -> OsString {
    let mut list = value.into();
    if let Some(old) = std::env::var_os(variable).filter(|old| !old.is_empty()) {
        list.push(OsStr::new(":"));
        list.push(old);
    }
    list
}

/// Runs the program in our place; comes back only if it could not be started.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let gpu = Gpu::or_default(args.gpu.as_ref());
    let libraries = Libraries::find()?;
    let launch = Launch {
        libraries: &libraries,
        gpu: &gpu,
        shim: true,
        policy: args.policy.as_deref(),
        budget: args.budget.as_deref(),
        flight_log: None,
    };
    let mut command = launch.command(&args.command)?;
    if let Some(path) = &args.record {
        // The program may go to another folder before it uses the GPU.
        command.env("DEEPUM_RECORD", std::path::absolute(path)?);
    }
    let error = command.exec();
    let program = args.command[0].to_string_lossy();
    let hint = if program.ends_with(".py") {
        format!("; did you mean: deepum run -- python {program}")
    } else {
        String::new()
    };
    eprintln!("deepum: cannot start {program}: {error}{hint}");
    // As shells say it.
    Ok(ExitCode::from(if error.kind() == ErrorKind::NotFound { 127 } else { 126 }))
}
