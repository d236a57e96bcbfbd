//! What `deepum` and `horizon` learn by: faults, and what the arguments of a first execution reach.
//!
//! A fault teaches the table of the executing launch's execution ID ([`BlockTable::learn`]). The paper learns from faults alone, and so of a block only
//! once it was missing. Here the arguments of the first execution count too: what they reach and was there when it was over is taken to be used
//! ([`BlockTable::settle`]). Where no fault can be seen at all, every block they reach is. What was learned is doubted now and then (`doubt`).
//!
//! [`BlockTable::learn`]: crate::correlate::BlockTable::learn
//! [`BlockTable::settle`]: crate::correlate::BlockTable::settle

use super::TableSizes;
use super::faults::{Faulting, LastFaults};
use crate::correlate::{Geometry, Tables};
use crate::known::Known;
use crate::units::{ExecId, LaunchSeq, UmBlock};
use crate::window::Issued;

/// See the module.
#[derive(Debug)]
pub(super) struct Learner {
    pub(super) tables: Tables,
    /// The block that faulted last.
    last_faults: LastFaults<UmBlock>,
}

impl Learner {
    pub(super) fn new(geometry: Geometry) -> Self {
        Self { tables: Tables::new(geometry), last_faults: LastFaults::new() }
    }

    /// The GPU faulted on `block`. Says whose table was taught by that; `left_out` is asked whether the block had been left out for the launch.
    pub(super) fn fault(
        &mut self,
        block: UmBlock,
        known: &mut Known,
        left_out: impl FnOnce(LaunchSeq, &mut Known) -> bool,
    ) -> Option<ExecId> {
        let launch = Faulting::on(block, known)?;
        let (seq, exec) = (launch.seq, launch.exec);
        let before = self.last_faults.note(launch, |_| block);
        let number = known.places.number(block)?;
        let before_number = before.and_then(|before| known.places.number(before));
        if before == Some(block) {
            return None;
        }
        let left_out = left_out(seq, known);
        let table = self.tables.blocks_or_new(exec);
        table.used(number, left_out);
        if !table.learn(before_number, number) {
            return None;
        }
        known.counters.faults_learned += 1;
        self.tables.changes += 1;
        Some(exec)
    }

    /// A launch is over: judges the first execution of an execution ID by what its arguments reach. Says whose it was, if it was the first.
    pub(super) fn settle(&mut self, launch: &Issued, known: &Known) -> Option<ExecId> {
        let exec = launch.exec?;
        if launch.reach.is_empty() && self.tables.blocks_mut(exec).is_none() {
            return None;
        }
        let table = self.tables.blocks_or_new(exec);
        if table.is_settled() {
            table.ran();
            return None;
        }
        // Where no fault can be seen, nothing tells what is absent.
        let there = |block| known.residency.find(block).is_some_and(|at| known.residency.get(at).on_device);
        let present = launch.blocks().filter(|&block| !known.faults_visible || there(block));
        table.settle(present.filter_map(|block| known.places.number(block)));
        self.tables.changes += 1;
        Some(exec)
    }

    /// Nothing is under way any more.
    pub(super) fn sleep(&mut self) {
        self.last_faults.clear();
    }

    /// For people; `planned` blocks are those that are expected to be used.
    pub(super) fn sizes(&self, planned: usize) -> TableSizes {
        TableSizes {
            exec_records: self.tables.exec.records(),
            exec_bytes: self.tables.exec.bytes(),
            block_tables: self.tables.block_tables(),
            block_bytes: self.tables.block_bytes(),
            planned_blocks: planned,
            ..TableSizes::default()
        }
    }
}
