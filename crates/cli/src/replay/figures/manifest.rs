//! `benches/g10/manifest.toml`: which profiles are replayed, on what, and what G10's authors published for them.

use super::super::compat::Compat;
use super::super::gpu::Gpu;
use super::super::life::{Life, Otherwise, Unit};
use super::super::policy::Policy;
use anyhow::{Context, Result, anyhow, bail, ensure};
use deepum_trace::g10::G10Name;
use serde::Deserialize;
use std::path::Path;

/// Clock in which the artifact counts: cycles per second.
const CLOCK: f64 = 1.2e9;

/// Policies that have published figures at all batch sizes, as their columns stand.
const COLUMNS: [&str; 4] = ["demand", "flashneuron", "deepum_plus", "g10"];

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// As `--gpu`, `--link`, `--host` and `--ssd` take them.
    pub gpu: String,
    pub link: f64,
    pub host: String,
    pub ssd: String,
    /// As `host`: less of it.
    pub table_2_host: String,
    /// How often an iteration is repeated in life; the last one counts.
    pub iterations: u32,
    /// The same for plans, which are told it in advance and have nothing to learn.
    pub planned_iterations: u32,
    /// Policies in life, and in the published world.
    life: Vec<String>,
    compat: Vec<String>,
    /// What is to be known of the differences.
    pub notes: Vec<String>,
    #[serde(rename = "network")]
    pub networks: Vec<Network>,
}

/// A model and its batch sizes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    pub model: String,
    pub name: String,
    /// The batch size of Figure 11.
    pub figure_11: u32,
    /// Cycles there.
    g10_gds: u64,
    g10_host: u64,
    /// Batch, and cycles: ideal, then [`COLUMNS`]; 0 where it fails.
    published: Vec<[u64; 6]>,
}

/// What was published for one policy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Published {
    /// The ideal time over its own.
    Share(f64),
    /// It cannot run that.
    Fails,
}

impl Manifest {
    /// Reads it.
    ///
    /// # Errors
    /// A file that is not there, or does not say what it should.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let manifest: Self = toml::from_str(&text).with_context(|| format!("{} is not a manifest", path.display()))?;
        for network in &manifest.networks {
            ensure!(
                network.batches().any(|batch| batch == network.figure_11),
                "{}: {} has no batch {}, which is said to be Figure 11's",
                path.display(),
                network.model,
                network.figure_11
            );
        }
        Ok(manifest)
    }

    /// The machine in life; the same where the driver keeps no second copies of blocks; and the same with the host memory of the paper's Table 2.
    ///
    /// # Errors
    /// What `--gpu` and the others would refuse.
    pub fn machines(&self) -> Result<[Life; 3]> {
        let Self { host, table_2_host, .. } = self;
        Ok([self.machine(host, false)?, self.machine(host, true)?, self.machine(table_2_host, false)?])
    }
    fn machine(&self, host: &str, one_copy: bool) -> Result<Life> {
        let Gpu::Life(device) = Gpu::parse(&self.gpu).map_err(|why| anyhow!(why))? else {
            bail!("{}: the manifest's GPU is not one of life", self.gpu);
        };
        let otherwise = Otherwise {
            host: Some(super::super::bytes(host).map_err(|why| anyhow!("{host}: {why}"))?),
            ssd: Some(super::super::ssd(&self.ssd).map_err(|why| anyhow!("{}: {why}", self.ssd))?),
            link: Some(self.link),
            iterations: self.iterations,
            one_copy,
            unit: Some(Unit::Bytes),
            ..Otherwise::default()
        };
        Life::new(&device, &otherwise)
    }
    /// Policies in life.
    ///
    /// # Errors
    /// A name of none.
    pub fn in_life(&self) -> Result<Vec<Policy>> {
        named(&self.life, Life::has)
    }
    /// Policies in the published world.
    ///
    /// # Errors
    /// A name of none.
    pub fn in_compat(&self) -> Result<Vec<Policy>> {
        named(&self.compat, Compat::has)
    }
}

fn named(names: &[String], has: fn(Policy) -> bool) -> Result<Vec<Policy>> {
    let one = |name: &String| {
        let policy = Policy::named(name).filter(|policy| has(*policy));
        policy.with_context(|| format!("the manifest names a policy {name}, which is none there"))
    };
    names.iter().map(one).collect()
}

impl Network {
    /// All batch sizes.
    pub fn batches(&self) -> impl Iterator<Item = u32> + '_ {
        self.published.iter().filter_map(|row| u32::try_from(row[0]).ok())
    }
    /// The profile of one of them.
    ///
    /// # Errors
    /// A model that is no name of a folder.
    pub fn profile(&self, folder: &Path, batch: u32) -> Result<G10Name> {
        Ok(G10Name::new(folder, &self.model, batch)?)
    }
    /// Published for this batch and policy; none where nothing is.
    pub fn published(&self, batch: u32, policy: &str) -> Option<Published> {
        let row = self.published.iter().find(|row| row[0] == u64::from(batch))?;
        let cycles = match (policy, COLUMNS.iter().position(|column| *column == policy)) {
            (_, Some(at)) => row[at + 2],
            ("g10_gds", _) if batch == self.figure_11 => self.g10_gds,
            ("g10_host", _) if batch == self.figure_11 => self.g10_host,
            _ => return None,
        };
        Some(if cycles == 0 { Published::Fails } else { Published::Share(row[1] as f64 / cycles as f64) })
    }
    /// Seconds of the ideal.
    pub fn ideal(&self, batch: u32) -> Option<f64> {
        Some(self.published.iter().find(|row| row[0] == u64::from(batch))?[1] as f64 / CLOCK)
    }
    /// How much work a batch size is, compared with others: all it moves on demand.
    pub fn work(&self, batch: u32) -> u64 {
        self.published.iter().find(|row| row[0] == u64::from(batch)).map_or(0, |row| row[2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_in_the_repository_says_what_was_published() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/g10/manifest.toml");
        let manifest = Manifest::read(&path).unwrap();
        manifest.machines().unwrap();
        assert_eq!(manifest.networks.iter().map(|network| network.batches().count()).sum::<usize>(), 25);
        let shares = |policy: &str| -> Vec<String> {
            let share = |network: &Network| match network.published(network.figure_11, policy) {
                Some(Published::Share(share)) => format!("{share:.2}"),
                other => format!("{other:?}"),
            };
            manifest.networks.iter().map(share).collect()
        };
        // Figure 11 of the paper, read off.
        assert_eq!(shares("demand"), ["0.37", "0.15", "0.21", "0.24", "0.18"]);
        assert_eq!(shares("flashneuron"), ["0.71", "Some(Fails)", "Some(Fails)", "0.64", "0.53"]);
        assert_eq!(shares("deepum_plus"), ["0.80", "0.49", "0.67", "0.85", "0.69"]);
        assert_eq!(shares("g10_gds"), ["0.81", "0.57", "0.74", "0.72", "0.79"]);
        assert_eq!(shares("g10_host"), ["0.91", "0.60", "0.91", "0.97", "0.91"]);
        assert_eq!(shares("g10"), ["1.00", "0.67", "0.98", "0.98", "0.93"]);
    }
}
