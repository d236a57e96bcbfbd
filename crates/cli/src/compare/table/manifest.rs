//! The manifest of a table: networks as scripts beside it, and how much of the memory that each needs it gets.

use crate::runs::{Mode, Run};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;

/// What a run in which nothing moves costs of one in which much does.
const UNMANAGED: f64 = 0.5;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub title: String,
    /// Where in the source tree the document belongs. None: it stays in the folder of results.
    pub document: Option<String>,
    /// A value of `DEEPUM_EMU`, without its memory.
    pub device: String,
    pub iterations: u32,
    /// Of these, how many come before the steady ones.
    pub warm_up: u32,
    /// Memory, in per cent of what a network needs.
    pub memory_percent: Vec<u32>,
    /// Values of the scripts' `--remedy`.
    pub remedies: Vec<String>,
    pub target: Target,
    /// What is to be known of the figures.
    #[serde(default)]
    pub notes: Vec<String>,
    #[serde(rename = "network")]
    pub networks: Vec<Network>,
}

/// What `horizon` is held to, beside being ahead of `deepum`: one of these shares of speed.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Of the ideal.
    pub of_ideal: f64,
    /// Of the bound.
    pub of_bound: f64,
}

impl Target {
    /// Whether these shares are near enough; of the bound there may be none.
    pub fn is_met(self, of_ideal: f64, of_bound: Option<f64>) -> bool {
        of_ideal >= self.of_ideal || of_bound.is_some_and(|share| share >= self.of_bound)
    }
}

/// One network.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    pub id: String,
    pub name: String,
    /// From the manifest's folder.
    pub script: String,
    #[serde(default)]
    pub args: Vec<String>,
    pub batch: u32,
    /// What a sample is, and what is trained how.
    pub data: String,
    /// How long a run in which much moves takes on an idle core, for the estimate of what is left.
    #[serde(default)]
    pub seconds: f64,
}

impl Manifest {
    /// Reads it.
    ///
    /// # Errors
    /// A file that is not there, or does not say what it should.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let manifest: Self = toml::from_str(&text).with_context(|| format!("{} is not a manifest", path.display()))?;
        manifest.check(path.parent().unwrap_or(path)).with_context(|| path.display().to_string())?;
        Ok(manifest)
    }

    fn check(&self, folder: &Path) -> Result<()> {
        format!("emu:{}", self.device).parse::<crate::gpu::Gpu>().map_err(anyhow::Error::msg)?;
        ensure!(
            self.iterations > self.warm_up,
            "iterations = {} leaves none behind warm_up = {}; allowed: more than that",
            self.iterations,
            self.warm_up
        );
        for percent in &self.memory_percent {
            ensure!((1..=100).contains(percent), "memory_percent has {percent}; allowed: 1 to 100");
        }
        let mut ids = BTreeSet::new();
        for network in &self.networks {
            ensure!(ids.insert(&network.id), "two networks are called {}", network.id);
            ensure!(folder.join(&network.script).is_file(), "{}: no script {}", network.id, network.script);
        }
        Ok(())
    }

    /// A run of a network on the device as it stands.
    pub fn run(&self, network: &Network, mode: Mode) -> Run {
        Run {
            network: network.id.clone(),
            script: network.script.clone(),
            args: network.args.clone(),
            batch: network.batch,
            iterations: self.iterations,
            warm_up: self.warm_up,
            device: self.device.clone(),
            mode,
            env: Default::default(),
        }
    }

    /// Seconds a run takes on an idle core, about.
    pub fn cost(&self, run: &Run) -> f64 {
        let network = self.networks.iter().find(|network| network.id == run.network);
        let share = match run.mode {
            Mode::Plain | Mode::Unlimited | Mode::Bound => UNMANAGED,
            Mode::Demand | Mode::DeepUm | Mode::Horizon | Mode::TwoCopies | Mode::AsInPaper => 1.0,
        };
        network.map_or(0.0, |network| network.seconds) * share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smoke manifest of the repository, with one thing changed.
    fn changed(from: &str, to: &str) -> Result<Manifest> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/networks");
        let text = std::fs::read_to_string(folder.join("smoke.toml")).unwrap();
        assert!(text.contains(from), "{from}");
        let manifest: Manifest = toml::from_str(&text.replacen(from, to, 1))?;
        manifest.check(&folder)?;
        Ok(manifest)
    }

    #[test]
    fn the_manifests_in_the_repository_name_what_there_is() {
        for file in ["manifest.toml", "smoke.toml"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/networks").join(file);
            assert!(!Manifest::read(&path).unwrap().networks.is_empty());
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_name_value_and_what_is_allowed() {
        let refused = |from, to| format!("{:#}", changed(from, to).unwrap_err());
        assert!(refused("warm_up = 3", "warm_up = 9").contains("allowed: more than that"));
        assert!(refused("memory_percent = [50]", "memory_percent = [50, 0]").contains("allowed: 1 to 100"));
        assert!(refused("device = \"v100-32g\"", "device = \"v1\"").contains("v100-32g"));
        assert!(refused("mobilenet.py", "mobilnet.py").contains("no script ../paper/mobilnet.py"));
        let twice =
            "[[network]]\nid = \"mobilenet\"\nname = \"\"\nscript = \"vit.py\"\nbatch = 1\ndata = \"\"\n[[network]]";
        assert!(refused("[[network]]", twice).contains("two networks are called mobilenet"));
    }
}
