//! Which runs a table needs: what a network needs and how fast it is at best, and from that the rows of each amount of memory.

use super::manifest::{Manifest, Network};
use crate::compare::UNLIMITED;
use crate::replay::Bounds;
use crate::runs::{Made, Measured, Mode, Run};
use deepum_core::units::Bytes;

/// A network with so much memory.
#[derive(Debug)]
pub struct Point<'a> {
    pub network: &'a Network,
    /// Memory in per cent of what it needs.
    pub percent: u32,
    pub memory: Bytes,
    /// Seconds of an iteration with room for everything.
    pub ideal: f64,
    /// Its rows, by name, in the document's order.
    pub rows: Vec<(String, Run)>,
    /// How fast anybody could be.
    pub bound: Run,
}

impl Manifest {
    /// The runs with room for everything: how fast that is, and how much is asked for if it is managed memory.
    pub fn roomy(&self, network: &Network) -> [Run; 2] {
        [Mode::Unlimited, Mode::Demand].map(|mode| self.run(network, mode).on(UNLIMITED))
    }

    /// Bytes that a network takes at most at a time, and seconds of an iteration where they are there; none if that was not measured.
    pub fn needs(&self, network: &Network, made: &Made) -> Option<(Bytes, f64)> {
        let [ideal, managed] = self.roomy(network);
        Some((Bytes(made.runs.get(&managed)?.peak_managed), made.runs.get(&ideal)?.seconds?))
    }
}

impl Point<'_> {
    /// All runs that it needs.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.rows.iter().map(|(_, run)| run).chain([&self.bound])
    }

    /// The row of a mode as it was measured.
    pub fn row<'m>(&self, mode: Mode, made: &'m Made) -> Option<&'m Measured> {
        self.rows.iter().find(|(_, run)| run.mode == mode).and_then(|(_, run)| made.runs.get(run))
    }

    /// Seconds of an iteration that nobody can be faster than.
    pub fn bound(&self, made: &Made) -> Option<f64> {
        made.runs.get(&self.bound)?.seconds
    }

    /// The least by how blocks move.
    pub fn bounds(&self, made: &Made) -> Option<Bounds> {
        made.runs.get(&self.bound)?.bounds
    }

    /// The same for those who move blocks as programs do in this mode: as a whole, and but with two copies each in one place at a time.
    pub fn bound_of(&self, mode: Mode, made: &Made) -> Option<f64> {
        let bounds = self.bounds(made)?;
        if mode == Mode::TwoCopies { bounds.blocks } else { bounds.blocks_alone }
    }
}

/// All points of the networks whose needs are known.
pub fn points<'a>(manifest: &'a Manifest, made: &Made) -> Vec<Point<'a>> {
    let mut points = Vec::new();
    for network in &manifest.networks {
        let Some((need, ideal)) = manifest.needs(network, made) else { continue };
        for &percent in &manifest.memory_percent {
            points.push(point(manifest, network, need, ideal, percent));
        }
    }
    points
}

fn point<'a>(manifest: &Manifest, network: &'a Network, need: Bytes, ideal: f64, percent: u32) -> Point<'a> {
    let mib = Bytes::mib(1).get();
    let memory = need.get() / 100 * u64::from(percent) / mib;
    let run = |mode| manifest.run(network, mode).on(&format!("memory={memory}MiB"));
    let named = |mode: Mode| (mode.name().to_owned(), run(mode));
    let remedies = manifest.remedies.iter().map(|remedy| (remedy.clone(), run(Mode::Plain).remedied(remedy)));
    let rows = std::iter::once(named(Mode::Plain))
        .chain(remedies)
        .chain([Mode::Demand, Mode::DeepUm, Mode::Horizon, Mode::TwoCopies].map(named))
        .collect();
    Point { network, percent, memory: Bytes(memory * mib), ideal, rows, bound: run(Mode::Bound) }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// The smoke manifest of the repository.
    pub fn manifest() -> Manifest {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/networks/smoke.toml");
        Manifest::read(&path).unwrap()
    }

    /// What its first network needs: 1,000 MiB, and a second for an iteration.
    pub fn needs(manifest: &Manifest) -> Made {
        let measured = Measured { seconds: Some(1.0), peak_managed: 1000 << 20, ..Measured::default() };
        let runs = manifest.roomy(&manifest.networks[0]).map(|run| (run, measured.clone()));
        Made { runs: runs.into(), ..Made::default() }
    }

    #[test]
    fn memory_is_a_share_of_what_is_needed_and_a_network_of_unknown_needs_has_no_rows() {
        let manifest = manifest();
        let made = needs(&manifest);
        let points = points(&manifest, &made);
        assert_eq!(points.len(), 1);
        assert_eq!((points[0].memory, points[0].ideal), (Bytes::mib(500), 1.0));
        let names: Vec<&str> = points[0].rows.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["plain", "save_on_cpu", "checkpoint", "demand", "deepum", "horizon", "horizon, two copies"]);
        let all: BTreeSet<&Run> = points[0].runs().collect();
        assert_eq!(all.len(), 8, "no two are the same run");
        assert!(all.iter().all(|run| run.device == "v100-32g:memory=500MiB"), "{all:?}");
    }
}
