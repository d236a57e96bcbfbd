//! What was learned, as bytes: written by one run, taken over by the next.
//!
//! Problem: the first iteration of every run is spent learning what the run before knew.
//! Idea: everything learned is already told in terms that hold in every run (launch keys, allocations by ordinal, blocks by
//! number), so it is written down as it is. `docs/tables.md` describes the bytes.
//!
//! Reading trusts nothing: length and checksum first, then every count against the bytes there are, every number against what
//! it may be, and the order that writing gives. The result is whole or an error that names what is wrong, and nothing is taken
//! over before everything was read. What was written is equal for both layouts, and reading and writing give the same bytes.
//!
//! Not here: files, and whose tables they are (`deepum-engine`).

use std::ops::Range;

use super::exec::{NONE, RECORDS, Record};
use super::places::{MOST, Piece, Places};
use super::{BlockTable, ExecTable, Geometry, Tables};
use crate::exec_id::Interner;
use crate::mix::{Mix, Set};
use crate::units::{ExecId, LaunchKey};

const MAGIC: [u8; 8] = *b"DEEPUMTB";
const VERSION: u32 = 2;
const HEADER: usize = 72;
const CHECKSUM: Range<usize> = 64..72;
/// Most bytes that are read. A choice: a hundred times what a model of 10,000 launches leaves.
pub const LIMIT: usize = 256 << 20;

/// A UM-block table beside its entries.
pub(super) struct State {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) settled: bool,
    pub(super) blocks: u32,
}

/// Whose tables they are: they are taken over only by the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The workload, as a number of the caller's.
    pub workload: u64,
    /// The rules they were learned by, as a number of the policy's.
    pub rules: u32,
    /// The geometry of the UM-block tables; the layout does not matter.
    pub geometry: Geometry,
}

/// Why saved tables were not taken over.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SavedError {
    /// Not ours at all.
    #[error("no saved tables: the first bytes are not {}", MAGIC.escape_ascii())]
    Magic,
    /// From another version of DeepUM.
    #[error("saved tables of version {0}; version {VERSION} is known")]
    Version(u32),
    /// Cut off, or longer than it says.
    #[error("{have} bytes of saved tables, and the head says {said}")]
    Length {
        /// What there is.
        have: u64,
        /// What the head says.
        said: u64,
    },
    /// Changed since they were written.
    #[error("the checksum of the saved tables is wrong: they were changed or written in part")]
    Checksum,
    /// Somebody else's.
    #[error("saved tables of another {what}: {found}, and this run has {ours}")]
    Other {
        /// Workload, policy, or table geometry.
        what: &'static str,
        /// What the head says.
        found: String,
        /// What is allowed.
        ours: String,
    },
    /// A number that cannot be.
    #[error("saved tables with {what} {value}: {allowed}")]
    Number {
        /// What it is.
        what: &'static str,
        /// What it says.
        value: u64,
        /// What is allowed.
        allowed: &'static str,
    },
    /// The engine has learned something already, or has memory.
    #[error("saved tables can be taken over before the first allocation only")]
    TooLate,
    /// The policy learns nothing.
    #[error("the policy {0} has no tables")]
    NoTables(&'static str),
}

/// What was read.
#[derive(Debug)]
pub struct Learned {
    pub(crate) places: Places,
    pub(crate) keys: Vec<LaunchKey>,
    pub(crate) tables: Tables,
}

/// Appends everything learned to `out`; of more than [`LIMIT`] bytes, which nobody may read, only so many that it is seen.
pub fn write(owner: Owner, places: &Places, ids: &Interner, tables: &Tables, out: &mut Vec<u8>) {
    let keys = ids.keys();
    let from = out.len();
    out.extend(MAGIC);
    let geometry = owner.geometry;
    for word in [VERSION, owner.rules, geometry.rows(), geometry.ways(), geometry.successors(), 0] {
        out.extend(word.to_le_bytes());
    }
    out.extend(owner.workload.to_le_bytes());
    for count in [places.pieces().len(), keys.len(), tables.exec.records(), tables.block_tables()] {
        out.extend(u32::try_from(count).unwrap_or(NONE).to_le_bytes());
    }
    out.extend([0; 16]);
    let mut words = |words: &[u32]| {
        if out.len() - from <= LIMIT {
            out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
    };
    for piece in places.pieces() {
        words(&[piece.first, piece.blocks]);
    }
    for key in keys {
        words(&halves(key.0));
    }
    for (current, Record { before: [a, b, c], next }) in tables.exec.all() {
        words(&[current.0, *a, *b, *c, next.0]);
    }
    for (exec, table) in tables.all_blocks() {
        let state = table.state();
        words(&[exec.0, state.start, state.end, state.settled.into(), state.blocks]);
        table.entries(|tag, successors| {
            words(&[tag, u32::try_from(successors.len()).unwrap_or(NONE)]);
            words(successors);
        });
    }
    let length = (out.len() - from) as u64;
    out[from + 56..from + 64].copy_from_slice(&length.to_le_bytes());
    let sum = checksum(&out[from..]);
    out[from..][CHECKSUM].copy_from_slice(&sum.to_le_bytes());
}

fn checksum(bytes: &[u8]) -> u64 {
    Mix::new().bytes(&bytes[..CHECKSUM.start]).bytes(&bytes[CHECKSUM.end..]).end()
}

const fn halves(word: u64) -> [u32; 2] {
    #[allow(clippy::cast_possible_truncation, reason = "the halves of a u64")]
    [word as u32, (word >> 32) as u32]
}

/// Reads what [`write`] wrote, for this owner.
///
/// # Errors
/// What is wrong with it.
pub fn read(bytes: &[u8], owner: Owner, exec_ids: u32) -> Result<Learned, SavedError> {
    let head = Head::read(bytes)?;
    let other = |what, found: String, ours: String| Err(SavedError::Other { what, found, ours });
    if head.owner.workload != owner.workload {
        let hex = |workload: u64| format!("{workload:016x}");
        return other("workload", hex(head.owner.workload), hex(owner.workload));
    }
    if head.owner.rules != owner.rules {
        return other("policy", head.owner.rules.to_string(), owner.rules.to_string());
    }
    let plain = |geometry: Geometry| geometry.laid_out(super::Layout::Compact);
    if plain(head.owner.geometry) != plain(owner.geometry) {
        return other("table geometry", head.owner.geometry.to_string(), plain(owner.geometry).to_string());
    }
    head.body(bytes, owner.geometry, exec_ids)
}

/// Reads whatever bytes come, as [`read`] does for the owner they name; what is read is written again, and must be the same bytes.
/// This is what a fuzzer calls. Returns whether they were tables.
///
/// # Panics
/// If reading and writing differ.
pub fn check(bytes: &[u8]) -> bool {
    let Ok(head) = Head::read(bytes) else { return false };
    let layouts = [super::Layout::Compact, super::Layout::Paper];
    // The paper's layout takes its full size for each table; a fuzzer's memory is bounded.
    let small = head.owner.geometry.rows() <= 64 && head.counts[3] <= 64;
    let read = layouts.into_iter().take(if small { 2 } else { 1 }).map(|layout| {
        let learned = head.body(bytes, head.owner.geometry.laid_out(layout), NONE).ok()?;
        let mut again = Vec::new();
        write(head.owner, &learned.places, &Interner::of(&learned.keys, NONE), &learned.tables, &mut again);
        assert_eq!(again, bytes, "what was read is what was written");
        Some(())
    });
    let read: Vec<Option<()>> = read.collect();
    assert!(read.windows(2).all(|pair| pair[0] == pair[1]), "both layouts read the same");
    read[0].is_some()
}

struct Head {
    owner: Owner,
    /// Pieces, execution IDs, records, UM-block tables.
    counts: [u32; 4],
}

impl Head {
    fn read(bytes: &[u8]) -> Result<Self, SavedError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(SavedError::Magic);
        }
        let mut words = Words { bytes, at: MAGIC.len() };
        let cut_off = |said| SavedError::Length { have: bytes.len() as u64, said };
        let version = words.next("version")?;
        if version != VERSION {
            return Err(SavedError::Version(version));
        }
        if bytes.len() < HEADER {
            return Err(cut_off(HEADER as u64));
        }
        let mut next = || words.next("head");
        let (rules, rows, ways, successors, reserved) = (next()?, next()?, next()?, next()?, next()?);
        let workload = u64::from(next()?) | u64::from(next()?) << 32;
        let counts = [next()?, next()?, next()?, next()?];
        let length = u64::from(next()?) | u64::from(next()?) << 32;
        if length != bytes.len() as u64 || bytes.len() > LIMIT {
            return Err(cut_off(length));
        }
        let said = u64::from(next()?) | u64::from(next()?) << 32;
        if said != checksum(bytes) {
            return Err(SavedError::Checksum);
        }
        number("a reserved word of", reserved.into(), reserved == 0, "must be 0")?;
        let geometry = Geometry::new(rows, ways, successors).map_err(|error| SavedError::Other {
            what: "table geometry",
            found: error.to_string(),
            ours: "one that can be".to_owned(),
        })?;
        Ok(Self { owner: Owner { workload, rules, geometry }, counts })
    }

    fn body(&self, bytes: &[u8], geometry: Geometry, most_ids: u32) -> Result<Learned, SavedError> {
        let mut words = Words { bytes, at: HEADER };
        let [pieces, ids, records, tables] = self.counts;
        let places = read_places(&mut words, pieces)?;

        number("execution IDs", ids.into(), ids <= most_ids, "more than this run may have")?;
        words.room("execution IDs", ids, 8)?;
        let mut keys = Vec::with_capacity(ids as usize);
        let mut known = Set::default();
        for _ in 0..ids {
            let key = u64::from(words.next("key")?) | u64::from(words.next("key")?) << 32;
            number("launch key", key, known.insert(key), "it is there twice")?;
            keys.push(LaunchKey(key));
        }

        let exec = read_exec(&mut words, records, ids)?;
        let mut learned = Learned { places, keys, tables: Tables { exec, ..Tables::new(geometry) } };
        let mut least = 0;
        for _ in 0..tables {
            let exec = words.next("UM-block table")?;
            number(
                "execution ID of a UM-block table",
                exec.into(),
                exec >= least && exec < ids,
                "not in order, or unknown",
            )?;
            least = exec + 1;
            let table = read_blocks(&mut words, geometry)?;
            *learned.tables.blocks_or_new(ExecId(exec)) = table;
        }
        number("bytes behind its end:", (bytes.len() - words.at) as u64, words.at == bytes.len(), "must be 0")?;
        Ok(learned)
    }
}

fn read_places(words: &mut Words<'_>, count: u32) -> Result<Places, SavedError> {
    words.room("allocations", count, 8)?;
    let mut pieces = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let (first, blocks) = (words.next("allocation")?, words.next("allocation")?);
        let fits = blocks > 0 && first.checked_add(blocks).is_some_and(|end| end <= MOST);
        number("blocks of an allocation", blocks.into(), fits, "none, or past the last number")?;
        pieces.push(Piece { first, blocks });
    }
    let mut line = pieces.clone();
    line.sort_unstable_by_key(|piece| piece.first);
    let overlap = line.windows(2).find(|pair| pair[0].first + pair[0].blocks > pair[1].first);
    number(
        "first number of an allocation",
        overlap.map_or(0, |pair| pair[1].first.into()),
        overlap.is_none(),
        "it is another's",
    )?;
    Ok(Places::of(pieces))
}

fn read_exec(words: &mut Words<'_>, count: u32, ids: u32) -> Result<ExecTable, SavedError> {
    words.room("records", count, 20)?;
    let mut exec = ExecTable::default();
    let (mut last, mut contexts) = (0, Vec::new());
    for _ in 0..count {
        let [current, a, b, c, next] = [
            words.next("record")?,
            words.next("record")?,
            words.next("record")?,
            words.next("record")?,
            words.next("record")?,
        ];
        for id in [current, next] {
            number("execution ID of a record", id.into(), id < ids, "unknown")?;
        }
        for id in [a, b, c] {
            number("predecessor of a record", id.into(), id < ids || id == NONE, "unknown")?;
        }
        number("execution ID of a record", current.into(), current >= last, "not in order")?;
        if current > last {
            contexts.clear();
        }
        last = current;
        number("predecessor of a record", c.into(), !contexts.contains(&[a, b, c]), "the same context twice")?;
        contexts.push([a, b, c]);
        number("records of an execution ID:", contexts.len() as u64, contexts.len() <= RECORDS, "at most 1,024")?;
        exec.put(ExecId(current), Record { before: [a, b, c], next: ExecId(next) });
    }
    Ok(exec)
}

fn read_blocks(words: &mut Words<'_>, geometry: Geometry) -> Result<BlockTable, SavedError> {
    let block = |what, value: u32| number(what, value.into(), value < MOST, "no number of a block").map(|()| value);
    let end_of = |what, value: u32| if value == NONE { Ok(value) } else { block(what, value) };
    let (start, end) = (words.next("start block")?, words.next("end block")?);
    let (start, end) = (end_of("start block", start)?, end_of("end block", end)?);
    number("end block", end.into(), (start == NONE) == (end == NONE), "there is a start block, or there is none")?;
    let settled = words.next("UM-block table")?;
    number("a flag of a UM-block table of", settled.into(), settled <= 1, "must be 0 or 1")?;
    let count = words.next("UM-block table")?;
    words.room("blocks of a UM-block table", count, 8)?;
    let most = geometry.rows() * geometry.ways();
    number("blocks of a UM-block table", count.into(), count <= most, "more than its geometry holds")?;
    // Newest first in each row, as they are written; so they are put in from the last to the first.
    let mut entries: Vec<(u32, Vec<u32>)> = Vec::with_capacity(count as usize);
    let (mut row, mut in_row) = (0, 0);
    for _ in 0..count {
        let tag = block("block", words.next("block")?)?;
        let this = tag & (geometry.rows() - 1);
        number("block", tag.into(), entries.is_empty() || this >= row, "its row is not in order")?;
        in_row = if this == row { in_row + 1 } else { 1 };
        row = this;
        number("blocks of a row:", in_row.into(), in_row <= geometry.ways(), "more than its ways")?;
        let again = entries.iter().rev().take(in_row as usize - 1).any(|&(other, _)| other == tag);
        number("block", tag.into(), !again, "it is there twice")?;
        let successors = words.next("successors")?;
        number(
            "successors of a block:",
            successors.into(),
            successors <= geometry.successors(),
            "more than its geometry keeps",
        )?;
        let mut list = Vec::with_capacity(successors as usize);
        for _ in 0..successors {
            let next = block("successor", words.next("successor")?)?;
            number("successor", next.into(), next != tag && !list.contains(&next), "it is there twice, or its own")?;
            list.push(next);
        }
        entries.push((tag, list));
    }
    Ok(BlockTable::restored(geometry, (start, end), settled == 1, entries))
}

fn number(what: &'static str, value: u64, good: bool, allowed: &'static str) -> Result<(), SavedError> {
    if good { Ok(()) } else { Err(SavedError::Number { what, value, allowed }) }
}

struct Words<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Words<'_> {
    fn next(&mut self, what: &'static str) -> Result<u32, SavedError> {
        let word = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk());
        let word =
            word.ok_or(SavedError::Number { what, value: self.at as u64, allowed: "the bytes end before it" })?;
        self.at += 4;
        Ok(u32::from_le_bytes(*word))
    }
    /// Whether there are bytes for so many.
    fn room(&self, what: &'static str, count: u32, each: usize) -> Result<(), SavedError> {
        let left = self.bytes.len() - self.at;
        number(what, count.into(), count as usize <= left / each, "more than there are bytes for")
    }
}
