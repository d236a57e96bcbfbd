//! A *run*: one program on one device under one configuration, the unit that is measured, kept and shared between rows.
//!
//! What two rows of a document call the same is the same run, and is made once.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Who manages memory in a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Nobody: device memory as PyTorch asks for it.
    Plain,
    /// Naive unified memory.
    Demand,
    DeepUm,
    /// Whoever is needed last leaves.
    Horizon,
    /// The same, and blocks may be on both sides at once.
    TwoCopies,
    /// The paper's own algorithm, in its configuration.
    AsInPaper,
    /// A device with room for everything: the ideal.
    Unlimited,
    /// Nobody can be faster on this device: the program is recorded on one with room for everything, and the proven lower bound is worked out
    /// from that (`docs/bound.md`).
    Bound,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Demand => "demand",
            Self::DeepUm => "deepum",
            Self::Horizon => "horizon",
            Self::TwoCopies => "horizon, two copies",
            Self::AsInPaper => "as in the paper",
            Self::Unlimited => "unlimited",
            Self::Bound => "bound",
        }
    }

    /// `DEEPUM_POLICY`, where DeepUM is preloaded.
    pub fn policy(self) -> Option<&'static str> {
        match self {
            Self::Demand | Self::Bound => Some("demand"),
            Self::DeepUm => Some("deepum"),
            Self::Horizon | Self::TwoCopies => Some("horizon"),
            Self::AsInPaper => Some("deepum_paper"),
            Self::Plain | Self::Unlimited => None,
        }
    }

    /// What else makes it what it is.
    pub fn env(self) -> Option<(&'static str, &'static str)> {
        (self == Self::TwoCopies).then_some(("DEEPUM_COPIES", "2"))
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
    /// Of these, how many come before the steady ones.
    pub warm_up: u32,
    pub device: String,
    pub mode: Mode,
    pub env: BTreeMap<String, String>,
}

impl Run {
    /// With this done against too little device memory (`--remedy` of the scripts).
    pub fn remedied(mut self, remedy: &str) -> Self {
        self.args.extend(["--remedy".to_owned(), remedy.to_owned()]);
        self
    }

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

    /// The same on a device with one more key.
    pub fn on(mut self, key: &str) -> Self {
        self.add_key(key);
        self
    }

    pub fn add_key(&mut self, key: &str) {
        self.device.push(if self.device.contains(':') { ',' } else { ':' });
        self.device.push_str(key);
    }
}
