//! Which rows a lookup picks.
//!
//! Index values come from the program's data. Small copies to the device are real, so a batch of token numbers that
//! the program copied in can be read back, and then the rows are the true ones. Indices that a kernel computed are not
//! there (the emulated device does no arithmetic); for these the rows are drawn: words of a language follow Zipf's law with an
//! exponent near 1 (Piantadosi, "Zipf's word frequency law in natural language", 2014), so the row of rank `r` is drawn with
//! probability about proportional to 1/r, and ranks are scattered over the table by a fixed permutation.
//!
//! A lookup and its backward pass draw the same rows; the next lookup through the same index tensor draws others.

use std::collections::BTreeMap;

use super::DeviceView;
use deepum_core::units::DevAddr;

/// More indices than this are represented by as many draws.
const MAX_PICKS: u64 = 1 << 20;

/// Draws rows; remembers the last lookup through each index tensor.
#[derive(Debug)]
pub(super) struct Rows {
    seed: u64,
    lookups: BTreeMap<u64, Lookup>,
    clock: u64,
    /// Index tensor of the lookup whose backward pass is under way.
    sorted: Option<u64>,
}

/// The last lookup through an index tensor.
#[derive(Clone, Copy, Debug, Default)]
struct Lookup {
    uses: u64,
    elem: u32,
    count: u64,
    table: u64,
    row_bytes: u64,
    at: u64,
}

impl Rows {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, lookups: BTreeMap::new(), clock: 0, sorted: None }
    }

    /// The rows picked from a table of `table` rows by the `count` indices of `elem` bytes at `index`.
    /// `fresh` starts a new draw for this index tensor.
    pub(super) fn pick(
        &mut self,
        view: &dyn DeviceView,
        index: u64,
        elem: u32,
        count: u64,
        table: u64,
        fresh: bool,
    ) -> Vec<u64> {
        if table == 0 || count == 0 {
            return Vec::new();
        }
        self.clock += 1;
        let lookup = self.lookups.entry(index).or_default();
        if fresh {
            *lookup = Lookup { uses: lookup.uses + 1, elem, count, table, row_bytes: 0, at: self.clock };
        }
        let picks = count.min(MAX_PICKS);
        if let Some(real) = real(view, index, elem, picks, table) {
            return real;
        }
        let stream = mix(self.seed ^ mix(index) ^ lookup.uses.rotate_left(32) ^ mix(table));
        (0..picks).map(|n| zipf(mix(stream ^ n), table)).collect()
    }

    /// Notes how long a row was in the last lookup through `index`.
    pub(super) fn row_bytes(&mut self, index: u64, bytes: u64) {
        if let Some(lookup) = self.lookups.get_mut(&index) {
            lookup.row_bytes = bytes;
        }
    }

    /// What the last lookup through `index` picked, if it was one of `count` indices into rows of `bytes`. A lookup may have gone through a
    /// copy of the indices; then it is found by its shape, and of several the smallest table is taken.
    pub(super) fn again(&mut self, view: &dyn DeviceView, index: u64, count: u64, bytes: u64) -> Option<Vec<u64>> {
        let fits = |l: &Lookup| l.count == count && l.row_bytes == bytes;
        let (index, l) = match self.lookups.get(&index) {
            Some(l) if fits(l) => (index, *l),
            _ => {
                let alike = self.lookups.iter().filter(|(_, l)| fits(l));
                let (&index, l) = alike.min_by_key(|(_, l)| (l.table, std::cmp::Reverse(l.at)))?;
                (index, *l)
            }
        };
        Some(self.pick(view, index, l.elem, l.count, l.table, false))
    }

    /// The backward pass of a lookup of `count` indices begins, with thread blocks for at most `segments` different rows: it is the lookup
    /// whose table has that many, else the latest with that count.
    pub(super) fn begin_sorted(&mut self, count: u64, segments: std::ops::RangeInclusive<u64>) {
        let alike = self.lookups.iter().filter(|(_, l)| l.count == count);
        let rank = |l: &Lookup| (segments.contains(&l.count.min(l.table)), l.at);
        self.sorted = alike.max_by_key(|(_, l)| rank(l)).map(|(&index, _)| index);
    }

    /// What the lookup whose backward pass is under way picked.
    pub(super) fn sorted(&mut self, view: &dyn DeviceView) -> Option<Segments> {
        let index = self.sorted?;
        let l = *self.lookups.get(&index)?;
        let mut rows = self.pick(view, index, l.elem, l.count, l.table, false);
        rows.sort_unstable();
        let runs = rows.chunk_by(|a, b| a == b);
        let partials = runs.map(|run| (run.len() as u64).div_ceil(PER_PARTIAL)).sum();
        rows.dedup();
        Some(Segments { rows, partials })
    }
}

/// Equal indices per partial sum, `NROWS_PER_THREAD` in `EmbeddingBackwardKernel.cu`.
const PER_PARTIAL: u64 = 10;

/// Sorted indices, cut where the row changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Segments {
    /// The rows, each once.
    pub(super) rows: Vec<u64>,
    /// Partial sums over all of them.
    pub(super) partials: u64,
}

/// The values at `index`, if they look like row numbers that somebody put there: in range, and not all the same.
fn real(view: &dyn DeviceView, index: u64, elem: u32, picks: u64, table: u64) -> Option<Vec<u64>> {
    if picks < 2 || !matches!(elem, 4 | 8) {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(picks).ok()? * elem as usize];
    if !view.read(DevAddr(index), &mut bytes) {
        return None;
    }
    let rows: Vec<u64> = if elem == 8 {
        bytes.as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b)).collect()
    } else {
        bytes.as_chunks::<4>().0.iter().map(|b| u64::from(u32::from_le_bytes(*b))).collect()
    };
    let varied = rows.iter().any(|r| r != &rows[0]);
    (varied && rows.iter().all(|&r| r < table)).then_some(rows)
}

/// A row, from a uniform word. Every octave of ranks (1, 2–3, 4–7, …) is as likely as any other, which is Zipf's law at the
/// resolution of octaves, in whole numbers, so that every machine draws the same.
fn zipf(word: u64, table: u64) -> u64 {
    let octaves = u64::from(table.ilog2()) + 1;
    let first = 1u64 << (word % octaves);
    let end = first.saturating_mul(2).min(table.saturating_add(1));
    let rank = first + mix(word) % (end - first) - 1;
    // Scatter neighbours in rank: an odd multiplier permutes 0..2^k; walk on until inside the table.
    let mask = table.checked_next_power_of_two().map_or(u64::MAX, |n| n - 1);
    let mut row = rank;
    loop {
        row = row.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x7f4a) & mask;
        if row < table {
            return row;
        }
    }
}

/// SplitMix64's finaliser (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
pub(super) fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepum_core::units::AddrRange;

    struct Memory(Vec<u8>);
    impl DeviceView for Memory {
        fn allocation(&self, _: DevAddr) -> Option<AddrRange> {
            None
        }
        fn read(&self, _: DevAddr, out: &mut [u8]) -> bool {
            let Some(from) = self.0.get(..out.len()) else { return false };
            out.copy_from_slice(from);
            true
        }
    }

    #[test]
    fn indices_that_the_program_copied_in_are_used_as_they_are() {
        let values: Vec<u8> = [7u64, 3, 7, 9].iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut rows = Rows::new(1);
        assert_eq!(rows.pick(&Memory(values.clone()), 0x1000, 8, 4, 10, true), [7, 3, 7, 9]);
        let drawn = rows.pick(&Memory(values), 0x1000, 8, 4, 5, true);
        assert!(drawn.iter().all(|&r| r < 5), "9 is no row of five, so rows are drawn: {drawn:?}");
    }

    #[test]
    fn a_lookup_and_its_backward_pass_agree_and_the_next_lookup_differs() {
        let (mut rows, zeros) = (Rows::new(1), Memory(vec![0; 1 << 16]));
        let forward = rows.pick(&zeros, 0x1000, 8, 4096, 50_257, true);
        assert_eq!(rows.pick(&zeros, 0x1000, 8, 4096, 50_257, false), forward);
        assert_ne!(rows.pick(&zeros, 0x1000, 8, 4096, 50_257, true), forward);
        assert_eq!(Rows::new(1).pick(&zeros, 0x1000, 8, 4096, 50_257, true), forward, "same seed, same draw");
        assert_ne!(Rows::new(2).pick(&zeros, 0x1000, 8, 4096, 50_257, true), forward);
    }

    #[test]
    fn draws_are_skewed_and_stay_inside_the_table() {
        let (mut rows, nothing) = (Rows::new(3), Memory(vec![]));
        for table in [1, 2, 3, 1000, 50_257] {
            let mut drawn = rows.pick(&nothing, 0x1000, 8, 10_000, table, true);
            assert!(drawn.iter().all(|&r| r < table));
            drawn.sort_unstable();
            drawn.dedup();
            let distinct = drawn.len() as u64;
            assert!(
                distinct == table || distinct < 10_000 * 6 / 10,
                "{distinct} of {table}: uniform draws would repeat less"
            );
        }
    }
}
