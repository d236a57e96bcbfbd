//! A *run*: one program on one device under one configuration, the unit that is measured, kept and shared between rows.
//!
//! All that are made come from here, so that what two sections call the same is the same run.

use super::manifest::{Largest, Manifest, Network};
use crate::compare::UNLIMITED;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A card on which nothing moves has all of the host's memory but one part in so many: what it holds is less than what the host does.
const ROOMY: u64 = 512;

/// The scale that changes nothing.
pub const AS_IS: &str = "as-is";

/// Who manages memory in a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Nobody: device memory as PyTorch asks for it.
    Plain,
    /// Naive unified memory.
    Demand,
    DeepUm,
    /// The paper's own algorithm, in its configuration.
    AsInPaper,
    /// A device with room for everything: the ideal.
    Unlimited,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Demand => "demand",
            Self::DeepUm => "deepum",
            Self::AsInPaper => "as in the paper",
            Self::Unlimited => "unlimited",
        }
    }

    /// `DEEPUM_POLICY`, where DeepUM is preloaded.
    pub fn policy(self) -> Option<&'static str> {
        match self {
            Self::Demand => Some("demand"),
            Self::DeepUm => Some("deepum"),
            Self::AsInPaper => Some("deepum_paper"),
            Self::Plain | Self::Unlimited => None,
        }
    }
}

/// One program, run once.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Run {
    pub network: String,
    pub script: String,
    pub args: Vec<String>,
    pub batch: u32,
    pub iterations: u32,
    pub device: String,
    pub mode: Mode,
    pub env: BTreeMap<String, String>,
}

impl Manifest {
    /// A run of a network as it stands.
    pub fn run(&self, network: &Network, batch: u32, mode: Mode) -> Run {
        let mut run = Run {
            network: network.id.clone(),
            script: network.script.clone(),
            args: network.args.clone(),
            batch,
            iterations: self.iterations(network),
            device: self.device.clone(),
            mode,
            env: BTreeMap::new(),
        };
        network.keys.iter().for_each(|key| run.add_key(key));
        match mode {
            Mode::Unlimited => run.add_key(UNLIMITED),
            Mode::AsInPaper => run.env.extend(self.as_in_paper.clone()),
            Mode::Plain | Mode::Demand | Mode::DeepUm => {}
        }
        run
    }

    /// The run of `deepum` that single-batch sections take, and the same once more under another name.
    pub fn twice(&self, network: &Network) -> [Run; 2] {
        let run = self.run(network, network.one_batch(), Mode::DeepUm);
        let again = run.clone().with("DEEPUM_TABLE", &self.again);
        [run, again]
    }

    /// A run that tells whether a batch trains on the device of a table of largest batches: the second of its iterations has the optimizer's
    /// state.
    pub fn probe(&self, network: &Network, table: &Largest, batch: u32) -> Run {
        let mut run = Run { iterations: 2, device: table.device.clone(), ..self.run(network, batch, Mode::DeepUm) };
        network.keys.iter().for_each(|key| run.add_key(key));
        run
    }

    /// The same on a card with nearly all of the host's memory, where nothing moves: it refuses what the host refuses, in a fraction of the
    /// time.
    pub fn roomy_probe(&self, network: &Network, table: &Largest, batch: u32) -> Result<Run> {
        let room = super::host_memory(&table.device)?;
        let mut run = self.probe(network, table, batch);
        run.add_key(&format!("memory={}", room - room / ROOMY));
        Ok(run)
    }

    /// A run with a number of the device scaled; [`AS_IS`] scales none.
    pub fn scaled(&self, network: &Network, mode: Mode, scale: &str) -> Run {
        let mut run = self.run(network, network.one_batch(), mode);
        run.iterations = self.sensitivity.iterations;
        if scale != AS_IS {
            run.add_key(&format!("scale={scale}"));
        }
        run
    }
}

impl Run {
    /// In a person's words.
    pub fn described(&self) -> String {
        let mut text = format!("{}, batch {}, {}", self.network, self.batch, self.mode.name());
        self.env.iter().for_each(|(name, value)| text += &format!(", {name}={value}"));
        if let Some(remedy) = self.args.iter().position(|arg| arg == "--remedy") {
            text += &format!(", {}", self.args[remedy + 1]);
        }
        text + ", on " + &self.device
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    pub fn with_all(mut self, env: &BTreeMap<String, String>) -> Self {
        self.env.extend(env.clone());
        self
    }

    pub fn add_key(&mut self, key: &str) {
        self.device.push(if self.device.contains(':') { ',' } else { ':' });
        self.device.push_str(key);
    }
}
