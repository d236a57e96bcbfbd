//! The runs of the paper's evaluation. All that are made come from here, so that what two sections call the same is the same run.

use super::manifest::{Largest, Manifest, Network};
use crate::compare::UNLIMITED;
use crate::runs::{Mode, Run, host_memory};
use anyhow::Result;
use std::collections::BTreeMap;

/// A card on which nothing moves has all of the host's memory but one part in so many: what it holds is less than what the host does.
const ROOMY: u64 = 512;

/// The scale that changes nothing.
pub const AS_IS: &str = "as-is";

/// Iterations before the steady ones.
const WARM_UP: u32 = 2;

impl Manifest {
    /// A run of a network as it stands.
    pub fn run(&self, network: &Network, batch: u32, mode: Mode) -> Run {
        let mut run = Run {
            network: network.id.clone(),
            script: network.script.clone(),
            args: network.args.clone(),
            batch,
            iterations: self.iterations(network),
            warm_up: WARM_UP,
            device: self.device.clone(),
            mode,
            env: BTreeMap::new(),
        };
        network.keys.iter().for_each(|key| run.add_key(key));
        match mode {
            Mode::Unlimited => run.add_key(UNLIMITED),
            Mode::AsInPaper => run.env.extend(self.as_in_paper.clone()),
            Mode::Plain | Mode::Demand | Mode::DeepUm | Mode::Horizon | Mode::TwoCopies | Mode::Bound => {}
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
        let room = host_memory(&table.device)?;
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
