//! `deepum_paper`: correlation prefetching as the paper describes it (DeepUM, ASPLOS'23, section 4), where [`super::Deepum`] differs.
//!
//! It learns from faults alone: every pair of blocks that faulted one after the other in one execution, and the first and the
//! last of them. What it predicts, [`crate::chaining`] says. The rest of the paper is set beside it: `docs/policies.md` has the
//! variables. Nothing is populated ahead of its first touch, and no launch waits at the gate.

use super::faults::{Faulting, LastFaults, fetch_now};
use super::{Policy, PolicyName, TableSizes};
use crate::chaining::Chaining;
use crate::command::Commands;
use crate::correlate::{Geometry, StableBlock, Tables};
use crate::known::Known;
use crate::residency::Handle;
use crate::units::{LaunchSeq, UmBlock};
use crate::window::Issued;

/// Faults of one execution.
#[derive(Clone, Copy, Debug)]
struct Faults {
    first: StableBlock,
    last: StableBlock,
}

/// See the module.
#[derive(Debug)]
pub struct DeepumPaper {
    tables: Tables,
    chaining: Chaining,
    faults: LastFaults<Faults>,
}

impl DeepumPaper {
    /// Chains `degree` launches ahead, with tables of this geometry.
    pub fn new(degree: u32, geometry: Geometry) -> Self {
        Self { tables: Tables::new(geometry), chaining: Chaining::new(degree), faults: LastFaults::new() }
    }

    fn learn(&mut self, block: UmBlock, known: &mut Known, out: &mut Commands) {
        let Some(launch) = Faulting::on(block, known) else { return };
        let Some(number) = known.places.number(block) else { return };
        let faults =
            |before: Option<Faults>| Faults { first: before.map_or(number, |before| before.first), last: number };
        let before = self.faults.note(launch, faults).map(|before| before.last);
        if before == Some(number) {
            return;
        }
        self.tables.blocks_or_new(launch.exec).record(before, number);
        known.counters.faults_learned += 1;
        self.tables.changes += 1;
        self.chaining.fault(launch.seq, number, known, &mut self.tables, out);
    }
}

impl Policy for DeepumPaper {
    fn name(&self) -> PolicyName {
        PolicyName::DeepumPaper
    }
    fn watches_launches(&self) -> bool {
        true
    }
    fn tells_reaches_apart(&self) -> bool {
        false
    }
    fn launch(&mut self, _seq: LaunchSeq, known: &mut Known, out: &mut Commands) {
        self.chaining.look(known, &mut self.tables, out);
    }
    fn finished(&mut self, launch: &Issued, known: &mut Known) {
        if launch.is_copy() {
            return;
        }
        let all_seen = self.chaining.finished(launch, known, &mut self.tables);
        let faults = self.faults.of(launch.seq, launch.stream);
        if let (Some(faults), Some(exec)) = (faults, launch.exec) {
            let table = self.tables.blocks_or_new(exec);
            if all_seen || table.start().is_none() {
                table.bound(faults.first, faults.last);
                self.tables.changes += 1;
            }
        }
    }
    fn progressed(&mut self, known: &mut Known, out: &mut Commands) {
        self.chaining.look(known, &mut self.tables, out);
    }
    fn fault(&mut self, at: Handle, known: &mut Known, out: &mut Commands) {
        fetch_now(at, known, out);
        let block = known.residency.get(at).block;
        self.learn(block, known, out);
    }
    fn sleep(&mut self, known: &mut Known, _out: &mut Commands) {
        self.chaining.sleep(known);
        self.faults.clear();
    }
    fn learned(&self) -> Option<(u32, &Tables)> {
        Some((2, &self.tables))
    }
    fn take_over(&mut self, tables: Tables) {
        self.tables = tables;
    }
    fn tables(&self) -> TableSizes {
        TableSizes {
            exec_records: self.tables.exec.records(),
            exec_bytes: self.tables.exec.bytes(),
            block_tables: self.tables.block_tables(),
            block_bytes: self.tables.block_bytes(),
            planned_blocks: self.chaining.planned_blocks(),
            ..TableSizes::default()
        }
    }
}
