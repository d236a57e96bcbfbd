//! Which rows there are, and which runs each of them needs.
//!
//! A *run* is one program on one device under one configuration: the unit that is measured, kept and shared between
//! rows. A *row* is one line of the document; `--only` picks rows.

use super::manifest::{Manifest, Network};
use crate::compare::UNLIMITED;
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// A device with room for everything: the ideal.
    Unlimited,
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

/// The parts of the document, in its order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Section {
    Fig9a,
    Tab3,
    Tab7,
    Tab4,
    Tab5,
    Fig10,
    Fig11,
    Fig12,
    Remedies,
    Sensitivity,
}

impl Section {
    pub const ALL: [Self; 10] = [
        Self::Fig9a,
        Self::Tab3,
        Self::Tab7,
        Self::Tab4,
        Self::Tab5,
        Self::Fig10,
        Self::Fig11,
        Self::Fig12,
        Self::Remedies,
        Self::Sensitivity,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Fig9a => "fig9a",
            Self::Tab3 => "tab3",
            Self::Tab7 => "tab7",
            Self::Tab4 => "tab4",
            Self::Tab5 => "tab5",
            Self::Fig10 => "fig10",
            Self::Fig11 => "fig11",
            Self::Fig12 => "fig12",
            Self::Remedies => "remedies",
            Self::Sensitivity => "sensitivity",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Fig9a => "Fig. 9a: speed-up over naive unified memory, and distance to ideal",
            Self::Tab3 => "Table 3: largest batch",
            Self::Tab7 => "Table 7: largest batch on the small card",
            Self::Tab4 => "Table 4: size of the correlation tables",
            Self::Tab5 => "Table 5: page faults in an iteration",
            Self::Fig10 => "Fig. 10: what each part does",
            Self::Fig11 => "Fig. 11: how far ahead",
            Self::Fig12 => "Fig. 12 and Table 6: thirteen table geometries",
            Self::Remedies => "What a PyTorch user would do today",
            Self::Sensitivity => "What ±50 % on each number of the device does to the averages",
        }
    }
}

/// One line of the document.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    pub section: Section,
    /// `section/network/…`: unique.
    pub id: String,
    pub network: String,
    pub batch: u32,
    /// What the section varies: a degree, a geometry, a remedy, a scaled number.
    pub vary: String,
    /// Empty for rows that search.
    pub runs: Vec<Run>,
}

impl Manifest {
    /// A run of a network as it stands.
    pub fn run(&self, network: &Network, batch: u32, mode: Mode) -> Run {
        let mut run = Run {
            network: network.id.clone(),
            script: network.script.clone(),
            args: network.args.clone(),
            batch,
            iterations: self.iterations,
            device: self.device.clone(),
            mode,
            env: BTreeMap::new(),
        };
        network.keys.iter().for_each(|key| run.add_key(key));
        if mode == Mode::Unlimited {
            run.add_key(UNLIMITED);
        }
        run
    }

    /// Every row, in the document's order.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut add = |section: Section, network: &Network, batch, vary: String, runs| {
            let middle = if section == Section::Fig9a || section == Section::Tab4 || section == Section::Tab5 {
                format!("/{batch}")
            } else if vary.is_empty() {
                String::new()
            } else {
                format!("/{vary}")
            };
            let id = format!("{}/{}{middle}", section.name(), network.id);
            rows.push(Row { section, id, network: network.id.clone(), batch, vary, runs });
        };
        for network in self.each(&self.fig9a.networks) {
            for batch in network.all_batches() {
                let runs = [Mode::Demand, Mode::DeepUm, Mode::Unlimited].map(|mode| self.run(network, batch, mode));
                add(Section::Fig9a, network, batch, String::new(), runs.to_vec());
            }
        }
        for (section, table) in [(Section::Tab3, &self.tab3), (Section::Tab7, &self.tab7)] {
            let networks = table.iter().flat_map(|table| self.each(&table.networks));
            networks.for_each(|network| add(section, network, 0, String::new(), Vec::new()));
        }
        for network in self.each(&self.tab4.networks) {
            for batch in network.outer_batches() {
                let ours = self.run(network, batch, Mode::DeepUm);
                let with = |table: &str| ours.clone().with("DEEPUM_TABLE", table);
                let mut runs = vec![ours.clone(), with(&self.tab4.paper_layout)];
                runs.extend((batch == network.one_batch()).then(|| with(&self.tab4.again)));
                add(Section::Tab4, network, batch, String::new(), runs);
            }
        }
        for network in self.each(&self.tab5.networks) {
            for batch in network.all_batches() {
                let runs = [Mode::Demand, Mode::DeepUm].map(|mode| self.run(network, batch, mode));
                add(Section::Tab5, network, batch, String::new(), runs.to_vec());
            }
        }
        for network in self.each(&self.fig10.networks) {
            let batch = network.one_batch();
            let steps = self.fig10.steps.iter().map(|step| self.run(network, batch, Mode::DeepUm).with_all(&step.env));
            let runs = std::iter::once(self.run(network, batch, Mode::Demand)).chain(steps).collect();
            add(Section::Fig10, network, batch, String::new(), runs);
        }
        for &degree in &self.fig11.degrees {
            for network in self.each(&self.fig11.networks) {
                let batch = network.one_batch();
                let ours = self.run(network, batch, Mode::DeepUm);
                let run = ours.clone().with("DEEPUM_DEGREE", &degree.to_string());
                let runs = vec![run, self.run(network, batch, Mode::Demand), ours];
                add(Section::Fig11, network, batch, degree.to_string(), runs);
            }
        }
        for geometry in &self.fig12.geometries {
            for network in self.each(&self.fig12.networks) {
                let batch = network.one_batch();
                let run = self.run(network, batch, Mode::DeepUm).with("DEEPUM_TABLE", geometry);
                let runs = vec![run, self.run(network, batch, Mode::Demand)];
                add(Section::Fig12, network, batch, geometry.replace(',', "x"), runs);
            }
        }
        for network in self.each(&self.remedies.networks) {
            let batch = network.one_batch();
            for remedy in &self.remedies.remedies {
                let mut runs = Vec::new();
                if !network.no_remedy.contains_key(remedy) {
                    let mut run = self.run(network, batch, Mode::Plain);
                    run.args.extend(["--remedy".to_owned(), remedy.clone()]);
                    runs.push(run);
                }
                runs.extend([Mode::Demand, Mode::DeepUm, Mode::Unlimited].map(|mode| self.run(network, batch, mode)));
                add(Section::Remedies, network, batch, remedy.clone(), runs);
            }
        }
        let s = &self.sensitivity;
        let scales = s.numbers.iter().flat_map(|number| s.percents.iter().map(move |p| format!("{number}*{p}")));
        for scale in std::iter::once(AS_IS.to_owned()).chain(scales) {
            for network in self.each(&s.networks) {
                let runs = [Mode::Demand, Mode::DeepUm].map(|mode| self.scaled(network, mode, &scale));
                add(Section::Sensitivity, network, network.one_batch(), scale.clone(), runs.to_vec());
            }
        }
        rows
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

    fn each<'a>(&'a self, ids: &'a [String]) -> impl Iterator<Item = &'a Network> {
        ids.iter().map(|id| self.network(id))
    }
}

impl Run {
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

/// The rows that `only` names: IDs, or what they begin with up to a slash. All without any.
pub fn choose(rows: Vec<Row>, only: &[String]) -> Result<Vec<Row>> {
    let names = |row: &Row, wanted: &str| {
        row.id
            .strip_prefix(wanted)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || wanted.ends_with('/'))
    };
    if let Some(unknown) = only.iter().find(|wanted| wanted.is_empty() || !rows.iter().any(|row| names(row, wanted))) {
        let sections: Vec<&str> = Section::ALL.into_iter().map(Section::name).collect();
        bail!("--only {unknown}: no such row; `--list` shows all, or name a section: {}", sections.join(", "));
    }
    Ok(match only {
        [] => rows,
        _ => rows.into_iter().filter(|row| only.iter().any(|wanted| names(row, wanted))).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::one::Bench;
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn rows(file: &str) -> Vec<Row> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/paper");
        let manifest = Manifest::read(&folder.join(file)).unwrap();
        manifest.networks.iter().for_each(|n| assert!(folder.join(&n.script).is_file(), "{}", n.script));
        manifest.rows()
    }

    #[test]
    fn every_run_asks_for_what_there_is_and_every_row_has_its_own_name() {
        for file in ["manifest.toml", "smoke.toml"] {
            let rows = rows(file);
            let names: BTreeSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
            assert_eq!(names.len(), rows.len());
            for run in rows.iter().flat_map(|row| &row.runs) {
                assert!(Bench::check(run).is_ok(), "{run:?}: {:?}", Bench::check(run));
            }
        }
    }

    #[test]
    fn rows_are_chosen_by_whole_parts_of_their_names() {
        let choose = |only: &str| super::choose(rows("manifest.toml"), &[only.to_owned()]).map(|rows| rows.len());
        assert_eq!(choose("fig9a/gpt2-xl").unwrap(), 3);
        assert_eq!(choose("fig9a/gpt2-xl/3").unwrap(), 1);
        assert!(choose("fig9a/gpt2").is_err() && choose("fig9").is_err() && choose("").is_err());
        assert_eq!(super::choose(rows("manifest.toml"), &[]).unwrap(), rows("manifest.toml"));
    }

    #[test]
    fn a_run_that_asks_for_what_there_is_not_is_refused() {
        let run = rows("smoke.toml")[0].runs[0].clone();
        assert!(Bench::check(&run.clone().with("DEEPUM_DEGREEE", "8")).is_err());
        assert!(Bench::check(&run.clone().with("DEEPUM_DEGREE", "0")).is_err());
        let mut scaled = run;
        scaled.add_key("scale=h2d*50");
        assert!(Bench::check(&scaled).is_err());
    }
}
