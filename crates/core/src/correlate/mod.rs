//! Stage 4 of 7: correlate. What follows what: the two tables that learn.
//!
//! Problem: the GPU runs the same few thousand launches again and again, and each touches nearly the
//! same memory in nearly the same order. Nobody tells us which.
//! Idea (DeepUM, ASPLOS'23, section 4): an *execution-ID table* ([`exec`]) remembers which launch came
//! after which, with three predecessors as context; for every execution ID a *UM-block table*
//! ([`block`]) remembers which block faulted after which. Three predecessors are too few to look an iteration ahead by; for that the launches themselves
//! are kept, in order ([`trail`]).
//!
//! Blocks are known by number, not by address ([`places`]), so that what is learned is as good in the next run.
//!
//! Invariants: sizes are fixed by [`Geometry`] and stated limits; the same events give the same tables, in either layout.
//! Not here: walking the tables (`predict`).

pub mod block;
pub mod exec;
mod geometry;
pub mod places;
pub mod proof;
mod ranges;
mod rows;
pub mod runs;
pub mod saved;
pub mod trail;

pub use block::BlockTable;
pub use exec::{ExecTable, History};
pub use geometry::{Geometry, GeometryError, Layout};
pub use places::{Places, StableBlock};

use crate::units::{Bytes, ExecId};

/// Both tables: everything learned.
#[derive(Debug)]
pub struct Tables {
    /// Which launch follows.
    pub exec: ExecTable,
    blocks: Vec<Option<Box<BlockTable>>>,
    geometry: Geometry,
    /// Times a UM-block table learned something new.
    pub changes: u64,
}

impl Tables {
    /// Nothing learned. UM-block tables are made when there is something to put in.
    pub fn new(geometry: Geometry) -> Self {
        Self { exec: ExecTable::default(), blocks: Vec::new(), geometry, changes: 0 }
    }

    /// The UM-block table of `exec`, if it has one.
    pub fn blocks(&self, exec: ExecId) -> Option<&BlockTable> {
        self.blocks.get(exec.0 as usize)?.as_deref()
    }

    /// The UM-block table of `exec`, to learn into, if it has one.
    pub fn blocks_mut(&mut self, exec: ExecId) -> Option<&mut BlockTable> {
        self.blocks.get_mut(exec.0 as usize)?.as_deref_mut()
    }

    /// Takes blocks that are no more out of the UM-block table of `exec`.
    pub fn forget(&mut self, exec: ExecId, blocks: &[StableBlock]) {
        if let Some(table) = self.blocks_mut(exec) {
            table.forget(blocks);
            self.changes += 1;
        }
    }

    /// The UM-block table of `exec`, made if need be.
    pub fn blocks_or_new(&mut self, exec: ExecId) -> &mut BlockTable {
        let index = exec.0 as usize;
        if self.blocks.len() <= index {
            self.blocks.resize_with(index + 1, || None);
        }
        self.blocks[index].get_or_insert_with(|| Box::new(BlockTable::new(self.geometry)))
    }

    /// Every UM-block table, by execution ID.
    fn all_blocks(&self) -> impl Iterator<Item = (ExecId, &BlockTable)> {
        (0..).map(ExecId).zip(&self.blocks).filter_map(|(exec, table)| Some((exec, table.as_deref()?)))
    }

    /// UM-block tables made so far.
    pub fn block_tables(&self) -> usize {
        self.blocks.iter().flatten().count()
    }
    /// Memory of all UM-block tables.
    pub fn block_bytes(&self) -> Bytes {
        let tables: Bytes = self.blocks.iter().flatten().map(|table| table.bytes()).fold(Bytes::ZERO, |a, b| a + b);
        tables + Bytes((self.blocks.capacity() * size_of::<Option<Box<BlockTable>>>()) as u64)
    }
}
