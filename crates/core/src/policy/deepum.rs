//! `deepum`: correlation prefetching as in the paper (DeepUM, ASPLOS'23), with the differences its parts name.
//!
//! A fault belongs to the executing launch (`window`). It is queued as a fetch of the whole block, since the
//! driver itself brings in only part of it (facts 2.5, 5), and it teaches the table of that launch's
//! execution ID (`learner`). The plan (`predict`) is kept N launches ahead; where a table is not known yet, arguments stand in for it.

use super::faults::fetch_now;
use super::learner::Learner;
use super::{Policy, PolicyName, TableSizes};
use crate::command::Commands;
use crate::correlate::{Geometry, Tables};
use crate::known::Known;
use crate::predict::Predict;
use crate::residency::{Block, Handle, Ticket};
use crate::units::LaunchSeq;
use crate::window::Issued;

/// See the module.
#[derive(Debug)]
pub struct Deepum {
    learner: Learner,
    predict: Predict,
}

impl Deepum {
    /// Plans `degree` launches ahead, with tables of this geometry.
    pub fn new(degree: u32, geometry: Geometry) -> Self {
        Self { learner: Learner::new(geometry), predict: Predict::new(degree) }
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
        self.predict.launch(seq, known, &mut self.learner.tables, out);
    }
    fn copy(&mut self, seq: LaunchSeq, _known: &mut Known) {
        self.predict.copy(seq);
    }
    fn finished(&mut self, launch: &Issued, known: &mut Known) {
        self.predict.finished(launch, known, &mut self.learner.tables);
        self.learner.settle(launch, known);
    }
    fn progressed(&mut self, known: &mut Known, out: &mut Commands) {
        self.predict.advance(known, &mut self.learner.tables, out);
    }
    fn shrunk(&mut self, known: &mut Known, out: &mut Commands) {
        self.predict.again(known, &mut self.learner.tables, out);
    }
    fn fault(&mut self, at: Handle, known: &mut Known, out: &mut Commands) {
        fetch_now(at, known, out);
        let block = known.residency.get(at).block;
        let Self { learner, predict } = self;
        let taught = learner.fault(block, known, |seq, known| predict.faulted(seq, block, known));
        if let Some(exec) = taught {
            predict.taught(exec, &learner.tables);
        }
    }
    fn evicted(&mut self, at: Handle, known: &mut Known, out: &mut Commands) {
        self.predict.evicted(at, known, &self.learner.tables, out);
    }
    fn freed(&mut self, _at: Handle, block: &Block, front: Ticket) {
        self.predict.freed(block, front);
    }
    fn sleep(&mut self, known: &mut Known, out: &mut Commands) {
        self.predict.stop(known, out);
        self.learner.sleep();
    }
    fn gate(&mut self, known: &Known) -> Option<LaunchSeq> {
        self.predict.gate(known)
    }
    fn learned(&self) -> Option<(u32, &Tables)> {
        Some((1, &self.learner.tables))
    }
    fn take_over(&mut self, tables: Tables) {
        self.learner.tables = tables;
    }
    fn tables(&self) -> TableSizes {
        self.learner.sizes(self.predict.planned_blocks())
    }
}
