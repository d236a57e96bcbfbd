//! Which rows there are, and which runs each of them needs. A *row* is one line of the document; `--only` picks rows.

use super::manifest::{Manifest, Network};
use super::run::AS_IS;
use crate::runs::{Mode, Run};
use anyhow::{Result, bail};

/// The parts of the document, in its order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Section {
    Fig9a,
    Tab3,
    Tab7,
    Tab4,
    Tab5,
    Repeats,
    Fig10,
    Fig11,
    Fig12,
    Remedies,
    Sensitivity,
}

impl Section {
    pub const ALL: [Self; 11] = [
        Self::Fig9a,
        Self::Tab3,
        Self::Tab7,
        Self::Tab4,
        Self::Tab5,
        Self::Repeats,
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
            Self::Repeats => "repeats",
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
            Self::Repeats => "The same run twice: what is chance",
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
    /// Rows that search make more.
    pub runs: Vec<Run>,
}

impl Manifest {
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
                let runs = self.runs(network, batch, &[Mode::Demand, Mode::DeepUm, Mode::Unlimited]);
                add(Section::Fig9a, network, batch, String::new(), runs);
            }
        }
        for (section, table) in [(Section::Tab3, &self.tab3), (Section::Tab7, &self.tab7)] {
            for (table, network) in table.iter().flat_map(|table| self.each(&table.networks).map(move |n| (table, n))) {
                // What a program needs at the paper's largest batch says whether the host bounds it there.
                let largest = network.paper.largest.filter(|_| table.paper);
                let runs = largest.and_then(|batch| self.roomy_probe(network, table, batch).ok()).into_iter().collect();
                add(section, network, 0, String::new(), runs);
            }
        }
        for network in self.each(&self.tab4.networks) {
            for batch in network.table_batches() {
                let ours = self.run(network, batch, Mode::DeepUm);
                let layout = ours.clone().with("DEEPUM_TABLE", &self.tab4.paper_layout);
                let mut runs = vec![ours, layout];
                if batch == network.one_batch() {
                    runs.extend([self.twice(network)[1].clone(), self.run(network, batch, Mode::AsInPaper)]);
                }
                add(Section::Tab4, network, batch, String::new(), runs);
            }
        }
        for network in self.each(&self.tab5.networks) {
            for batch in network.all_batches() {
                let runs = self.runs(network, batch, &[Mode::Demand, Mode::DeepUm]);
                add(Section::Tab5, network, batch, String::new(), runs);
            }
        }
        for network in self.each(&self.repeats.networks) {
            add(Section::Repeats, network, network.one_batch(), String::new(), self.twice(network).to_vec());
        }
        // Behind a section's own runs those that tell what is chance.
        for network in self.each(&self.fig10.networks) {
            let batch = network.one_batch();
            let steps = self.fig10.steps.iter().map(|step| self.run(network, batch, Mode::DeepUm).with_all(&step.env));
            let runs = std::iter::once(self.run(network, batch, Mode::Demand))
                .chain(steps)
                .chain(self.twice(network))
                .collect();
            add(Section::Fig10, network, batch, String::new(), runs);
        }
        for &degree in &self.fig11.degrees {
            for network in self.each(&self.fig11.networks) {
                let batch = network.one_batch();
                let [ours, again] = self.twice(network);
                let run = ours.clone().with("DEEPUM_DEGREE", &degree.to_string());
                let runs = vec![run, self.run(network, batch, Mode::Demand), ours, again];
                add(Section::Fig11, network, batch, degree.to_string(), runs);
            }
        }
        for geometry in &self.fig12.geometries {
            for network in self.each(&self.fig12.networks) {
                let batch = network.one_batch();
                let [ours, again] = self.twice(network);
                let run = ours.clone().with("DEEPUM_TABLE", geometry);
                let runs = vec![run, self.run(network, batch, Mode::Demand), ours, again];
                add(Section::Fig12, network, batch, geometry.replace(',', "x"), runs);
            }
        }
        for network in self.each(&self.remedies.networks) {
            let batch = network.one_batch();
            for remedy in &self.remedies.remedies {
                let mut runs = Vec::new();
                if !network.no_remedy.contains_key(remedy) {
                    runs.push(self.run(network, batch, Mode::Plain).remedied(remedy));
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

    /// A network's runs in these modes, and behind them, at the batch of sections that take one, in the paper's.
    fn runs(&self, network: &Network, batch: u32, modes: &[Mode]) -> Vec<Run> {
        let paper = (batch == network.one_batch()).then_some(Mode::AsInPaper);
        modes.iter().copied().chain(paper).map(|mode| self.run(network, batch, mode)).collect()
    }

    fn each<'a>(&'a self, ids: &'a [String]) -> impl Iterator<Item = &'a Network> {
        ids.iter().map(|id| self.network(id))
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
    use super::*;
    use crate::runs::Bench;
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
