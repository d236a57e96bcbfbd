//! What the whole-system suites share: running a training script under the built `deepum`, and
//! reading afterwards what the device and the shim each say happened.

pub mod data;
mod driver;

pub use driver::{Driver, in_turn, on_this_driver};

use deepum_emu_device::log::{FlightLog, Totals};
use deepum_protocol::status::Status;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// Which PyTorch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Torch {
    /// 2.15.0, CUDA 13.
    Cu13,
    /// 2.9.1, CUDA 12.8.
    Cu12,
}

/// One finished run of a training script.
#[derive(Debug)]
pub struct Run {
    /// Exit status, standard output and error.
    pub output: Output,
    /// What the emulated device saw.
    pub device: FlightLog,
    /// What the shim said of itself at the end; absent if the program died.
    pub shim: Option<Status>,
    /// What it ran on.
    pub driver: Driver,
}

/// A run to be made.
#[derive(Clone, Debug)]
pub struct Script {
    torch: Torch,
    gpu: String,
    words: Vec<String>,
    env: Vec<(String, String)>,
    status: bool,
}

/// A run under way.
#[derive(Debug)]
pub struct Started {
    child: Child,
    driver: Driver,
    what: String,
    log: PathBuf,
    status: PathBuf,
    _scratch: TempDir,
}

/// The top of the source tree.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the manifest's folder has a parent")
}

/// The `deepum` that `scripts/setup` built.
#[must_use]
pub fn deepum() -> PathBuf {
    let path = root().join("target/release/deepum");
    assert!(path.is_file(), "{} is missing: run scripts/setup first", path.display());
    path
}

/// The Python that has this PyTorch.
#[must_use]
pub fn python(torch: Torch) -> PathBuf {
    let venv = match torch {
        Torch::Cu13 => ".venv",
        Torch::Cu12 => ".venv-cu12",
    };
    let path = root().join(venv).join("bin/python");
    assert!(path.exists(), "{} is missing: run scripts/setup --all first", path.display());
    path
}

impl Script {
    /// `words`: a script under `tests/train`, and its arguments.
    #[must_use]
    pub fn new(torch: Torch, words: &[&str]) -> Self {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        Self { torch, gpu: "emu:a100-40g".to_owned(), words, env: Vec::new(), status: true }
    }

    /// On this device, as `--gpu` says it.
    #[must_use]
    pub fn gpu(mut self, spec: &str) -> Self {
        spec.clone_into(&mut self.gpu);
        self
    }

    /// With this environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Without asking for the status at the end: there may be no engine to give one.
    #[must_use]
    pub const fn without_status(mut self) -> Self {
        self.status = false;
        self
    }

    /// Runs it to its end, with the shim.
    #[must_use]
    pub fn run(&self) -> Run {
        self.start().wait()
    }

    /// Starts it, with the shim.
    #[must_use]
    pub fn start(&self) -> Started {
        let python = python(self.torch);
        let scratch = tempfile::tempdir().expect("a folder for the flight log");
        let (log, status) = (scratch.path().join("flight.log"), scratch.path().join("status.json"));
        let train = root().join("tests/train");
        let gpu = on_this_driver(&self.gpu);
        let mut command = Command::new(deepum());
        command.args(["run", "--gpu", &gpu, "--"]).arg(&python);
        if self.status {
            command.args([&train.join("status_at_end.py"), &deepum(), &status]);
        }
        command
            .arg(train.join(&self.words[0]))
            .args(&self.words[1..])
            .env("DEEPUM_EMU_LOG", &log)
            .env("TRITON_CACHE_DIR", scratch.path().join("triton"))
            .env("TORCHINDUCTOR_CACHE_DIR", scratch.path().join("inductor"))
            .env("HF_HUB_OFFLINE", "1")
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        let child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the deepum executable starts");
        Started { child, driver: Driver::of(&gpu), what: self.words.join(" "), log, status, _scratch: scratch }
    }
}

impl Started {
    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What the device has counted so far; zeros before there is one.
    #[must_use]
    pub fn totals(&self) -> Totals {
        FlightLog::totals(&self.log).unwrap_or_default()
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// As `kill -9` does.
    pub fn kill(mut self) {
        self.child.kill().expect("our own child");
        self.child.wait().expect("our own child");
    }

    /// Waits for its end.
    #[must_use]
    pub fn wait(self) -> Run {
        let Self { child, driver, what, log, status, _scratch } = self;
        let output = child.wait_with_output().expect("our own child");
        let device = FlightLog::open(&log).unwrap_or_else(|error| {
            panic!("{what} left no flight log ({error}); it said:\n{}", String::from_utf8_lossy(&output.stderr))
        });
        let shim = std::fs::read_to_string(&status).ok().and_then(|text| {
            let all: serde_json::Value = serde_json::from_str(&text).ok()?;
            Status::parse(&all["rows"][0].to_string()).ok()
        });
        Run { output, device, shim, driver }
    }
}

impl Run {
    /// Our lines on stderr, but for those about the driver, which are there once each.
    #[track_caller]
    #[must_use]
    pub fn said(&self) -> Vec<String> {
        let mut lines = self.driver.said(&self.output.stderr);
        lines.retain(|line| line.starts_with("deepum: "));
        lines
    }

    /// Fails unless the program succeeded, every launch was counted exactly once, and nothing it asked for was refused.
    #[track_caller]
    pub fn assert_clean(&self) -> &Self {
        let stderr = String::from_utf8_lossy(&self.output.stderr);
        assert!(self.output.status.success(), "ended with {}:\n{stderr}", self.output.status);
        let shim = self.shim.as_ref().unwrap_or_else(|| panic!("no status from the shim:\n{stderr}"));
        let counted: u64 = shim.devices.iter().map(|device| device.launches).sum();
        assert_eq!(counted, self.device.totals.launches, "launches: shim (left) against device (right)\n{stderr}");
        assert!(counted > 0, "it launched nothing");
        assert!(!stderr.contains("not supported by the emulated device"), "something was refused:\n{stderr}");
        self
    }
}
