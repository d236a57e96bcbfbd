//! A program that is run for its flight log: in a process group of its own, its output in a file, and never left behind.

use crate::launch::Launch;
use crate::rows::Outcome;
use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
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

/// How a program ended: by its status, and by what it printed. It ran out of memory if it ended by itself and says so; what was refused to
/// it on the way tells nothing, since PyTorch tries again. To abort is to end by itself: so does C++ with an error that nobody catches, and
/// so did PyTorch on a busy machine, once, after a backward pass that had run out of memory.
pub fn outcome(status: ExitStatus, output: &Path) -> Outcome {
    let by_itself = status.code().is_some() || status.signal() == Some(Signal::SIGABRT as i32);
    match status.success() {
        true => Outcome::Ok,
        false if by_itself && complaint(output).is_some() => Outcome::OutOfMemory,
        false => Outcome::Failed,
    }
}

/// What a person would quote from a program that did not end well, behind how it ended.
pub fn last_words(status: ExitStatus, output: &Path) -> String {
    let quote = complaint(output).or_else(|| lines(output).pop());
    format!("{status}: {}", quote.as_deref().unwrap_or("it printed nothing"))
}

/// The last line that says that memory is out, as PyTorch (`CUDA out of memory`) and CUDA (`out of memory`) word it.
fn complaint(output: &Path) -> Option<String> {
    lines(output).into_iter().rev().find(|line| line.contains("out of memory"))
}

fn lines(output: &Path) -> Vec<String> {
    let text = std::fs::read(output).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn ended(script: &str) -> (Outcome, String) {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("output");
        let status = Command::new("sh").args(["-c", script]).stdout(File::create(&output).unwrap()).status().unwrap();
        (outcome(status, &output), last_words(status, &output))
    }

    #[test]
    fn a_program_ran_out_of_memory_only_if_it_ended_by_itself_and_says_so() {
        assert_eq!(ended("echo 'CUDA out of memory'; echo; exit 0").0, Outcome::Ok);
        let refused = ended("echo 'torch.OutOfMemoryError: CUDA out of memory.'; echo bye; exit 1");
        let said = "exit status: 1: torch.OutOfMemoryError: CUDA out of memory.";
        assert_eq!(refused, (Outcome::OutOfMemory, said.to_owned()));
        assert_eq!(ended("echo CUDA out of memory; kill -ABRT $$").0, Outcome::OutOfMemory);
        assert_eq!(ended("kill -ABRT $$").0, Outcome::Failed);
        assert_eq!(ended("echo no such file; exit 2"), (Outcome::Failed, "exit status: 2: no such file".to_owned()));
    }

    #[test]
    fn one_that_was_killed_failed_whatever_it_printed() {
        assert_eq!(ended("kill -9 $$"), (Outcome::Failed, "signal: 9 (SIGKILL): it printed nothing".to_owned()));
        assert_eq!(ended("echo out of memory; kill -9 $$").0, Outcome::Failed);
    }
}
