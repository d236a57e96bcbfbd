//! What was learned, out of the engine and into it: see [`crate::correlate::saved`].

use super::Engine;
use crate::correlate::saved::{self, Learned, Owner, SavedError};
use crate::exec_id::Interner;

impl Engine {
    /// Everything learned, for [`Self::take_over`] of a later run of the same workload, which refuses more than [`saved::LIMIT`] bytes. False if
    /// the policy learns nothing.
    pub fn save(&self, workload: u64, out: &mut Vec<u8>) -> bool {
        let Some((rules, tables)) = self.policy.learned() else { return false };
        let owner = Owner { workload, rules, geometry: self.geometry };
        saved::write(owner, &self.known.places, &self.known.exec_ids, tables, out);
        true
    }
    /// Goes on from what [`Self::save`] gave in an earlier run. Returns how many execution IDs are known by it.
    ///
    /// # Errors
    /// Says what is wrong with the bytes, or that it is too late; then everything is as it was.
    pub fn take_over(&mut self, bytes: &[u8], workload: u64) -> Result<usize, SavedError> {
        let name = self.policy.name().as_str();
        let (rules, _) = self.policy.learned().ok_or(SavedError::NoTables(name))?;
        if !self.known.places.is_empty() || !self.known.exec_ids.is_empty() {
            return Err(SavedError::TooLate);
        }
        let owner = Owner { workload, rules, geometry: self.geometry };
        let Learned { places, keys, tables } = saved::read(bytes, owner, self.most_exec_ids)?;
        self.known.exec_ids = Interner::of(&keys, self.most_exec_ids);
        self.known.places = places;
        self.policy.take_over(tables);
        self.foretold = !keys.is_empty();
        Ok(keys.len())
    }
    /// Times something new was learned. While it stays the same, saving again is saving the same.
    pub fn changes(&self) -> u64 {
        self.policy.learned().map_or(0, |(_, tables)| tables.changes + tables.exec.changes())
    }
}
