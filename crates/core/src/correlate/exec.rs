//! The execution-ID table: which execution ID comes after this one, given the three before it.
//!
//! Problem: a kernel that zeroes the same scalar, or a library's reduction on the same workspace, has one
//! execution ID and many successors; only what came before tells them apart.
//! Idea (DeepUM, ASPLOS'23, section 4.1): an entry for each execution ID holds records *three
//! predecessors → next*, as many as there are contexts.
//!
//! ```text
//! … 7 3 9 │ 4 │→ 5          entry 4: [7 3 9 → 5], [2 2 9 → 8]
//! ```
//!
//! Invariants: within an entry no context appears twice, and the record learned last is at the end; an
//! entry holds at most [`RECORDS`] and forgets the one learned longest ago.
//! Where we differ: without a record for the context the entry's newest record answers. A wrong answer is
//! noticed when the launch is issued, and its fetches are taken back (`predict`).

use crate::units::{Bytes, ExecId};

/// Most records of one entry. What comes in turn and is one more than there is room for is never found again, and the prediction ends there: GPT-2 XL has a launch with 106
/// contexts an iteration (`examples/gpt2_xl.py`). With all of them the scan goes over 16 KiB.
pub const RECORDS: usize = 1024;

/// No execution ID.
pub(super) const NONE: u32 = u32::MAX;

/// The last four execution IDs, oldest first; the last is the current one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct History([u32; 4]);

impl Default for History {
    fn default() -> Self {
        Self([NONE; 4])
    }
}

impl History {
    /// What the history is once `next` has come.
    pub fn push(&mut self, next: Option<ExecId>) {
        let [_, a, b, c] = self.0;
        self.0 = [a, b, c, next.map_or(NONE, |id| id.0)];
    }
    /// The current one.
    pub fn current(self) -> Option<ExecId> {
        Some(self.0[3]).filter(|&id| id != NONE).map(ExecId)
    }
    fn split(self) -> Option<([u32; 3], ExecId)> {
        let [a, b, c, _] = self.0;
        Some(([a, b, c], self.current()?))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) before: [u32; 3],
    pub(super) next: ExecId,
}

/// See the module.
#[derive(Default, Debug)]
pub struct ExecTable {
    entries: Vec<Vec<Record>>,
    records: usize,
    /// Times something new was learned.
    changes: u64,
}

impl ExecTable {
    /// Learns that `next` came after `history`.
    pub fn learn(&mut self, history: History, next: ExecId) {
        let Some((before, current)) = history.split() else { return };
        let entry = self.entry_mut(current);
        let newest = entry.len().wrapping_sub(1);
        match entry.iter().rposition(|record| record.before == before) {
            Some(at) if at == newest => {
                let known = std::mem::replace(&mut entry[at].next, next);
                self.changes += u64::from(known != next);
            }
            Some(at) => {
                let known = entry.remove(at).next;
                entry.push(Record { before, next });
                self.changes += u64::from(known != next);
            }
            None => {
                if entry.len() == RECORDS {
                    entry.remove(0);
                    entry.push(Record { before, next });
                } else {
                    self.put(current, Record { before, next });
                }
                self.changes += 1;
            }
        }
    }

    fn entry_mut(&mut self, current: ExecId) -> &mut Vec<Record> {
        let index = current.0 as usize;
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, Vec::new);
        }
        &mut self.entries[index]
    }

    /// Puts a record behind the others of `current`. It has room, and its context is not there.
    pub(super) fn put(&mut self, current: ExecId, record: Record) {
        let entry = self.entry_mut(current);
        // Nearly every entry has one record, and stays so.
        entry.reserve_exact(1);
        entry.push(record);
        self.records += 1;
    }

    /// All records, by current execution ID; of one, the one learned last is last.
    pub(super) fn all(&self) -> impl Iterator<Item = (ExecId, &Record)> {
        let entries = (0..).map(ExecId).zip(&self.entries);
        entries.flat_map(|(current, entry)| entry.iter().map(move |record| (current, record)))
    }

    /// Times something new was learned.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// What is expected after `history`; nothing if its current ID was never followed by anything.
    pub fn next(&self, history: History) -> Option<ExecId> {
        let (before, entry) = self.entry(history)?;
        entry.iter().rfind(|record| record.before == before).or(entry.last()).map(|record| record.next)
    }

    /// What came after `history` the last time; nothing if it was never followed by anything. This is the paper's lookup.
    pub fn next_in_context(&self, history: History) -> Option<ExecId> {
        let (before, entry) = self.entry(history)?;
        entry.iter().rfind(|record| record.before == before).map(|record| record.next)
    }

    fn entry(&self, history: History) -> Option<([u32; 3], &[Record])> {
        let (before, current) = history.split()?;
        Some((before, self.entries.get(current.0 as usize)?))
    }

    /// Records in all entries.
    pub fn records(&self) -> usize {
        self.records
    }
    /// Memory of the table.
    pub fn bytes(&self) -> Bytes {
        let records: usize = self.entries.iter().map(Vec::capacity).sum();
        Bytes((self.entries.capacity() * size_of::<Vec<Record>>() + records * size_of::<Record>()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(ids: [u32; 4]) -> History {
        History(ids)
    }

    #[test]
    fn the_context_tells_two_successors_apart() {
        let mut table = ExecTable::default();
        table.learn(history([7, 3, 9, 4]), ExecId(5));
        table.learn(history([2, 2, 9, 4]), ExecId(8));
        assert_eq!(table.next(history([7, 3, 9, 4])), Some(ExecId(5)));
        assert_eq!(table.next(history([2, 2, 9, 4])), Some(ExecId(8)));
        assert_eq!(table.next(history([1, 1, 1, 4])), Some(ExecId(8)), "unknown context: the newest");
        assert_eq!(table.next_in_context(history([1, 1, 1, 4])), None);
        assert_eq!(table.next_in_context(history([7, 3, 9, 4])), Some(ExecId(5)));
        assert_eq!(table.next(history([7, 3, 9, 6])), None, "never seen as current");
        assert_eq!(table.records(), 2);
    }

    #[test]
    fn the_newest_follower_of_a_context_replaces_the_older() {
        let mut table = ExecTable::default();
        table.learn(history([1, 2, 3, 4]), ExecId(5));
        table.learn(history([1, 2, 3, 4]), ExecId(6));
        assert_eq!(table.next(history([1, 2, 3, 4])), Some(ExecId(6)));
        assert_eq!(table.records(), 1);
    }

    #[test]
    fn a_launch_without_an_id_breaks_the_history_and_is_not_learned_across() {
        let mut table = ExecTable::default();
        let mut broken = history([1, 2, 3, 4]);
        broken.push(None);
        table.learn(broken, ExecId(5));
        assert_eq!(table.records(), 0);
        broken.push(Some(ExecId(9)));
        table.learn(broken, ExecId(5));
        assert_eq!(table.next(broken), Some(ExecId(5)), "a gap further back is a context like any other");
    }

    #[test]
    fn a_full_entry_forgets_the_record_learned_longest_ago() {
        let mut table = ExecTable::default();
        let last = u32::try_from(RECORDS).unwrap();
        for n in 0..last {
            table.learn(history([n, 0, 0, 1]), ExecId(n));
        }
        table.learn(history([0, 0, 0, 1]), ExecId(0)); // now the newest
        table.learn(history([last, 0, 0, 1]), ExecId(last)); // pushes out context 1
        assert_eq!(table.next(history([0, 0, 0, 1])), Some(ExecId(0)));
        assert_eq!(table.next(history([1, 0, 0, 1])), Some(ExecId(last)), "forgotten: the newest answers");
        assert_eq!(table.records(), RECORDS);
    }
}
