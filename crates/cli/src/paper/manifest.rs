//! The manifest of the evaluation: networks, rows, the paper's numbers, and why ours differ.
//!
//! A TOML file in `benches/paper`. It says what is measured; the code says how, and evaluates the conditions under which
//! a reason holds. A number of the paper that is not in it is one we have no source for, and the document shows a dash.

use super::reasons::COLUMNS;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Everything that a regeneration does.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The device of all rows that name no other: a value of `DEEPUM_EMU`.
    pub device: String,
    /// Of a run of a network that says nothing else.
    pub iterations: u32,
    /// Variables that make the paper's policy the paper's whole configuration.
    pub as_in_paper: BTreeMap<String, String>,
    /// A `DEEPUM_TABLE` that is our default by another name: the same again, to see whether runs repeat.
    pub again: String,
    /// What of the paper's evaluation is not here, and why.
    #[serde(default)]
    pub left_out: String,
    #[serde(rename = "network")]
    pub networks: Vec<Network>,
    pub fig9a: Speed,
    pub tab3: Option<Largest>,
    pub tab7: Option<Largest>,
    pub tab4: Tables,
    pub tab5: Faults,
    pub repeats: Repeats,
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
    /// Of its runs, where it takes longer to be the same from iteration to iteration.
    pub iterations: Option<u32>,
    /// The paper's. None: only its largest batch is looked for.
    #[serde(default)]
    pub batches: Vec<u32>,
    /// Batches of our own beside the paper's: where our program does not fit, and the paper's are below that.
    #[serde(default)]
    pub more: Vec<u32>,
    /// The batch of sections that take one: the smallest at which naive unified memory moves anything in a steady iteration. That it is, is
    /// judged with Fig. 9a.
    pub batch: Option<u32>,
    /// Where the search for its largest batch begins; at the paper's otherwise.
    pub start: Option<u32>,
    /// More keys for the device.
    #[serde(default)]
    pub keys: Vec<String>,
    /// How long a run of `one_batch` takes on an idle core, for the estimate of what is left.
    #[serde(default)]
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
    /// The compact layout takes at most one part in so many of the paper's.
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

/// The same run twice.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeats {
    pub networks: Vec<String>,
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
    /// Columns that must be at least, and at most, so much (`reasons::COLUMNS`).
    #[serde(default)]
    pub at_least: BTreeMap<String, f64>,
    #[serde(default)]
    pub at_most: BTreeMap<String, f64>,
    pub text: String,
}

impl Why {
    /// A reason that would hold of every row that differs explains none.
    fn check(&self) -> Result<()> {
        let columns: Vec<&String> = self.at_least.keys().chain(self.at_most.keys()).collect();
        ensure!(!columns.is_empty(), "why {:?}: no condition on a column", self.rows);
        for column in columns {
            ensure!(
                COLUMNS.contains(&column.as_str()),
                "why {:?}: no column {column}; there are {COLUMNS:?}",
                self.rows
            );
        }
        Ok(())
    }
}

/// On which side of the paper's a row must be for a reason to be one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Ours is less than nine tenths of the paper's.
    Below,
    /// Ours is more than eleven tenths of the paper's.
    Above,
    /// Either.
    Differs,
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
        let counts = self.networks.iter().filter_map(|network| network.iterations);
        for count in counts.chain([self.iterations, self.sensitivity.iterations]) {
            ensure!(count >= 4, "iterations = {count}: at least 4, or there is no steady state");
        }
        for (n, network) in self.networks.iter().enumerate() {
            ensure!(!network.all_batches().any(|batch| batch == 0), "{}: a batch of 0", network.id);
            let one = network.batch.is_none_or(|batch| network.all_batches().any(|other| other == batch));
            ensure!(one, "{}: batch = {:?} is none of its batches", network.id, network.batch);
            ensure!(network.step > 0, "{}: step = 0", network.id);
            ensure!(!self.networks[..n].iter().any(|other| other.id == network.id), "two networks {}", network.id);
        }
        let lists = [
            &self.fig9a.networks,
            &self.tab4.networks,
            &self.tab5.networks,
            &self.repeats.networks,
            &self.fig10.networks,
            &self.fig11.networks,
            &self.fig12.networks,
            &self.remedies.networks,
            &self.sensitivity.networks,
        ];
        for id in lists.into_iter().flatten() {
            ensure!(self.find(id)?.batch.is_some(), "{id}: a section that runs it needs its batch");
        }
        for id in [&self.tab3, &self.tab7].into_iter().flatten().flat_map(|table| &table.networks) {
            ensure!(self.find(id)?.first_guess().is_some(), "{id}: a search for its largest batch needs a start");
        }
        for why in &self.why {
            why.check()?;
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

    /// Of a run of this network.
    pub fn iterations(&self, network: &Network) -> u32 {
        network.iterations.unwrap_or(self.iterations)
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

    /// The smallest and the largest of the paper's, between or behind them that of sections that take one.
    pub fn table_batches(&self) -> BTreeSet<u32> {
        self.batches.iter().min().into_iter().chain(self.batches.iter().max()).copied().chain(self.batch).collect()
    }

    /// The batch of sections that take one.
    pub fn one_batch(&self) -> u32 {
        self.batch.expect("every network that such a section names was seen to have one when the manifest was read")
    }

    /// Where a search for its largest batch begins.
    pub fn first_guess(&self) -> Option<u32> {
        self.paper.largest.or(self.start)
    }

    /// A batch as the document names it.
    pub fn batch_name(&self, batch: u32) -> String {
        format!("{batch}{}", if self.more.contains(&batch) { " (ours)" } else { "" })
    }
}
