//! The manifest of the evaluation: networks, rows, the paper's numbers, and why ours differ.
//!
//! A TOML file in `benches/paper`. It says what is measured; the code says how, and evaluates the conditions under which
//! a reason holds. A number of the paper that is not in it is one we have no source for, and the document shows a dash.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Everything that a regeneration does.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The device of all rows that name no other: a value of `DEEPUM_EMU`.
    pub device: String,
    pub iterations: u32,
    #[serde(rename = "network")]
    pub networks: Vec<Network>,
    pub fig9a: Speed,
    pub tab3: Option<Largest>,
    pub tab7: Option<Largest>,
    pub tab4: Tables,
    pub tab5: Faults,
    pub fig10: Ablation,
    pub fig11: Degrees,
    pub fig12: Geometries,
    pub remedies: Remedies,
    pub sensitivity: Sensitivity,
    #[serde(default)]
    pub why: Vec<Why>,
}

/// One of the paper's networks, as a script beside the manifest.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    pub id: String,
    pub name: String,
    pub script: String,
    #[serde(default)]
    pub args: Vec<String>,
    /// Data set whose shapes the data have, and whose choice that is.
    pub data: String,
    pub batches: Vec<u32>,
    /// Batches of our own beside the paper's: where our program does not fit, and the paper's are below that.
    #[serde(default)]
    pub more: Vec<u32>,
    /// The batch of sections that take one; the middle one otherwise.
    pub batch: Option<u32>,
    /// More keys for the device.
    #[serde(default)]
    pub keys: Vec<String>,
    /// How long a run of `one_batch` takes on an idle core, for the estimate of what is left.
    pub seconds: f64,
    /// How long the search for its largest batch takes on an idle core, for the same estimate.
    #[serde(default)]
    pub search_seconds: f64,
    /// To how many samples the largest batch is found.
    #[serde(default = "one")]
    pub step: u32,
    /// Remedies that do nothing for this network, and why.
    #[serde(default)]
    pub no_remedy: BTreeMap<String, String>,
    #[serde(default)]
    pub paper: Figures,
}

fn one() -> u32 {
    1
}

/// What the paper says of a network.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    pub largest: Option<u32>,
    /// Least and most over its batches.
    pub tables_mb: Option<[f64; 2]>,
}

/// Fig. 9a.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speed {
    pub networks: Vec<String>,
    pub paper_average: f64,
    /// What is to be said of rows that fit.
    pub fits: String,
    /// No row may be below this.
    pub least: f64,
}

/// Tables 3 and 7.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Largest {
    pub title: String,
    pub networks: Vec<String>,
    pub device: String,
    /// Whether the networks' `paper.largest` are from this table.
    pub paper: bool,
}

/// Table 4.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tables {
    pub networks: Vec<String>,
    /// `DEEPUM_TABLE` of the paper's layout.
    pub paper_layout: String,
    /// One that is our default by another name: the same again, to see whether runs repeat.
    pub again: String,
    /// The compact layout takes at most one part in so many of the paper's size.
    pub parts: f64,
}

/// Table 5.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    pub networks: Vec<String>,
    /// In per cent of naive UM's: of most networks, and of all.
    pub paper_most: f64,
    pub paper_all: f64,
}

/// Fig. 10.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ablation {
    pub networks: Vec<String>,
    #[serde(rename = "step")]
    pub steps: Vec<Step>,
}

/// One more of DeepUM's parts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub name: String,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// By how much the paper's execution time is cut, in per cent of naive UM's.
    pub paper_cut: f64,
}

/// Fig. 11.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Degrees {
    pub networks: Vec<String>,
    pub degrees: Vec<u32>,
    pub paper_best: u32,
}

/// Fig. 12 and Table 6.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Geometries {
    pub networks: Vec<String>,
    /// Values of `DEEPUM_TABLE`.
    pub geometries: Vec<String>,
    pub paper_best: String,
}

/// What a PyTorch user has today.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remedies {
    pub networks: Vec<String>,
    /// Values of the scripts' `--remedy`.
    pub remedies: Vec<String>,
}

/// What the averages owe to the device's numbers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sensitivity {
    pub networks: Vec<String>,
    pub iterations: u32,
    /// Numbers of the device's profile.
    pub numbers: Vec<String>,
    pub percents: Vec<u32>,
}

/// Why rows differ from the paper's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Why {
    /// Row IDs, or what they begin with.
    pub rows: Vec<String>,
    pub when: When,
    pub text: String,
}

/// What must hold of a row for a reason to be one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Ours is less than nine tenths of the paper's.
    Below,
    /// Ours is more than eleven tenths of the paper's.
    Above,
    /// Either.
    Differs,
    /// Ours is less, and the link is busy for at least four fifths of an iteration.
    BelowAndLinkBound,
}

impl Manifest {
    /// Reads and checks a manifest.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let manifest: Self = toml::from_str(&text).with_context(|| format!("{} is not a manifest", path.display()))?;
        manifest.check().with_context(|| path.display().to_string())?;
        Ok(manifest)
    }

    fn check(&self) -> Result<()> {
        ensure!(self.iterations >= 4, "iterations = {}: at least 4, or there is no steady state", self.iterations);
        ensure!(self.sensitivity.iterations >= 4, "sensitivity.iterations: at least 4");
        for (n, network) in self.networks.iter().enumerate() {
            ensure!(!network.batches.is_empty() && !network.batches.contains(&0), "{}: no batches", network.id);
            ensure!(network.step > 0, "{}: step = 0", network.id);
            ensure!(!self.networks[..n].iter().any(|other| other.id == network.id), "two networks {}", network.id);
        }
        let lists = [
            &self.fig9a.networks,
            &self.tab4.networks,
            &self.tab5.networks,
            &self.fig10.networks,
            &self.fig11.networks,
            &self.fig12.networks,
            &self.remedies.networks,
            &self.sensitivity.networks,
        ];
        let largest = [&self.tab3, &self.tab7].into_iter().flatten().map(|table| &table.networks);
        for id in lists.into_iter().chain(largest).flatten() {
            self.find(id)?;
        }
        ensure!(!self.fig10.steps.is_empty(), "fig10 has no steps");
        Ok(())
    }

    fn find(&self, id: &str) -> Result<&Network> {
        match self.networks.iter().find(|network| network.id == id) {
            Some(network) => Ok(network),
            None => bail!("no network {id:?}"),
        }
    }

    /// A network that [`Self::check`] has seen.
    pub fn network(&self, id: &str) -> &Network {
        self.find(id).expect("every network that a section names was looked up when the manifest was read")
    }
}

impl Network {
    /// The paper's batches, then ours.
    pub fn all_batches(&self) -> impl Iterator<Item = u32> {
        self.batches.iter().chain(&self.more).copied()
    }

    /// The smallest and the largest of them.
    pub fn outer_batches(&self) -> impl Iterator<Item = u32> {
        let (least, most) = (self.all_batches().min(), self.all_batches().max());
        least.into_iter().chain(most.filter(|_| most != least))
    }

    /// The batch of sections that take one.
    pub fn one_batch(&self) -> u32 {
        self.batch.unwrap_or(self.batches[self.batches.len() / 2])
    }
}
