//! `deepum`: correlation prefetching as in the paper (DeepUM, ASPLOS'23), with the differences its parts name.
//!
//! A fault belongs to the executing launch (`window`). It is queued as a fetch of the whole block, since the
//! driver itself brings in only part of it (facts 2.5, 5), and it teaches the table of that launch's
//! execution ID. The plan (`predict`) is kept N launches ahead.
//!
//! Where we differ from the paper: it learns from faults alone, and so learns of a block only once it was
//! missing. Here the arguments of the first execution count too: they stand in for the table until it ran
//! (`predict`), and afterwards what they reach and was there is learned ([`BlockTable::settle`]). Where no fault
//! can be seen at all, every block they reach is. What was learned is doubted now and then (`doubt`).
//!
//! [`BlockTable::settle`]: crate::correlate::BlockTable::settle

use super::faults::{Faulting, LastFaults, fetch_now};
use super::{Policy, PolicyName, TableSizes};
use crate::command::Commands;
use crate::correlate::{Geometry, Places, Tables};
use crate::known::Known;
use crate::predict::Predict;
use crate::residency::{Block, Handle, Ticket};
use crate::units::{LaunchSeq, UmBlock};
use crate::window::Issued;

/// See the module.
#[derive(Debug)]
pub struct Deepum {
    tables: Tables,
    predict: Predict,
    /// The block that faulted last.
    last_faults: LastFaults<UmBlock>,
}

impl Deepum {
    /// Plans `degree` launches ahead, with tables of this geometry.
    pub fn new(degree: u32, geometry: Geometry) -> Self {
        Self { tables: Tables::new(geometry), predict: Predict::new(degree), last_faults: LastFaults::new() }
    }

    fn learn(&mut self, block: UmBlock, known: &mut Known) {
        let Some(launch) = Faulting::on(block, known) else { return };
        let (seq, exec) = (launch.seq, launch.exec);
        let before = self.last_faults.note(launch, |_| block);
        let Some(number) = known.places.number(block) else { return };
        let before_number = before.and_then(|before| known.places.number(before));
        if before == Some(block) {
            return;
        }
        let left_out = self.predict.faulted(seq, block, known);
        let table = self.tables.blocks_or_new(exec);
        table.used(number, left_out);
        if !table.learn(before_number, number) {
            return;
        }
        known.counters.faults_learned += 1;
        self.tables.changes += 1;
        self.predict.taught(exec, &self.tables);
    }

    /// Judges the first execution of an execution ID by what its arguments reach.
    fn settle(&mut self, launch: &Issued, places: &Places, present: impl Fn(UmBlock) -> bool) {
        let Some(exec) = launch.exec else { return };
        if launch.reach.is_empty() && self.tables.blocks_mut(exec).is_none() {
            return;
        }
        let table = self.tables.blocks_or_new(exec);
        if table.is_settled() {
            return table.ran();
        }
        let present = launch.blocks().filter(|&block| present(block));
        table.settle(present.filter_map(|block| places.number(block)));
        self.tables.changes += 1;
    }
}

impl Policy for Deepum {
    fn name(&self) -> PolicyName {
        PolicyName::Deepum
    }
    fn watches_launches(&self) -> bool {
        true
    }
    fn populates(&self) -> bool {
        true
    }
    fn launch(&mut self, seq: LaunchSeq, known: &mut Known, out: &mut Commands) {
        self.predict.launch(seq, known, &mut self.tables, out);
    }
    fn copy(&mut self, seq: LaunchSeq) {
        self.predict.copy(seq);
    }
    fn finished(&mut self, launch: &Issued, known: &mut Known) {
        self.predict.finished(launch, known, &mut self.tables);
        // Where no fault can be seen, nothing tells what is absent.
        let residency = &known.residency;
        let there = |block| residency.find(block).is_some_and(|at| residency.get(at).on_device);
        self.settle(launch, &known.places, |block| !known.faults_visible || there(block));
    }
    fn progressed(&mut self, known: &mut Known, out: &mut Commands) {
        self.predict.advance(known, &mut self.tables, out);
    }
    fn shrunk(&mut self, known: &mut Known, out: &mut Commands) {
        self.predict.again(known, &mut self.tables, out);
    }
    fn fault(&mut self, at: Handle, known: &mut Known, out: &mut Commands) {
        fetch_now(at, known, out);
        let block = known.residency.get(at).block;
        self.learn(block, known);
    }
    fn evicted(&mut self, at: Handle, known: &mut Known, out: &mut Commands) {
        self.predict.evicted(at, known, &self.tables, out);
    }
    fn freed(&mut self, block: &Block, front: Ticket) {
        self.predict.freed(block, front);
    }
    fn sleep(&mut self, known: &mut Known, out: &mut Commands) {
        self.predict.stop(known, out);
        self.last_faults.clear();
    }
    fn gate(&mut self, known: &Known) -> Option<LaunchSeq> {
        self.predict.gate(known)
    }
    fn learned(&self) -> Option<(u32, &Tables)> {
        Some((1, &self.tables))
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
            planned_blocks: self.predict.planned_blocks(),
        }
    }
}
