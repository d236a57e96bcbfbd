//! A program that is run for its flight log: in a process group of its own, its output in a file, and never left behind.

use crate::launch::Launch;
use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};

/// A running program; killed with all that it started when it is dropped before its end.
#[derive(Debug)]
pub struct Watched(Child);

impl Watched {
    /// Starts `words` as `launch` says, with these environment variables set or, without a value, removed.
    pub fn start(
        launch: &Launch<'_>,
        words: &[OsString],
        output: &Path,
        env: &[(OsString, Option<OsString>)],
    ) -> Result<Self> {
        let out = File::create(output).with_context(|| format!("cannot make {}", output.display()))?;
        let mut command = launch.command(words)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).process_group(0);
        for (name, value) in env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        // Whatever the environment says or preloads.
        command.env("DEEPUM", if launch.shim { "1" } else { "0" });
        let child = command.spawn().with_context(|| format!("cannot start {}", words[0].to_string_lossy()))?;
        Ok(Self(child))
    }

    /// Processor time it has taken so far, all its threads; none once it has ended.
    pub fn cpu_seconds(&self) -> Option<f64> {
        // `PID (name) state …`, the name may hold anything; user and system time are the 12th and 13th words after it.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).ok()?;
        let mut words = stat.rsplit_once(')')?.1.split_whitespace().skip(11).map(str::parse::<f64>);
        let ticks = words.next()?.ok()? + words.next()?.ok()?;
        let rate = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
        (ticks > 0.0).then(|| ticks / rate as f64)
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.0.try_wait()?)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let Ok(group) = i32::try_from(self.0.id()) else { return };
        if matches!(self.0.try_wait(), Ok(None)) {
            // Fails only if it has just ended, which is what we want.
            killpg(Pid::from_raw(group), Signal::SIGKILL).ok();
            self.0.wait().ok();
        }
    }
}

/// The line a person would quote from a program that ran out of memory.
pub fn last_words(output: &Path) -> String {
    let text = std::fs::read(output).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let quote = text.lines().rev().find(|line| line.contains("out of memory")).or_else(|| text.lines().last());
    quote.unwrap_or("out of memory").trim().to_owned()
}
