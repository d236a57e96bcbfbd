//! From operands to touches: boxes of elements become byte ranges.
//!
//! The driver serves nothing smaller than a 64 KiB region on x86 (its prefetcher grows every fault to one), so gaps below
//! that make no difference to what moves, and are closed: a matrix with a long leading dimension keeps its gaps, a
//! padded one does not. [`Touches::traffic`] still counts only the bytes of the elements themselves.
//!
//! Dimensions of stride 0 (broadcasts) and overlapping ones count once in ranges and traffic: caches serve the rest.

use deepum_core::units::{AddrRange, Bytes, DevAddr};

use super::rows::{Rows, Segments};
use super::{DeviceView, Precision};

/// Smaller gaps than this are closed.
pub(super) const GAP: u64 = 64 << 10;
/// What a GPU reads at least at once from its memory: one 32-byte sector (CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory").
const SECTOR: u64 = 32;
/// More ranges than this for one operand are not kept apart: its smallest gaps are closed.
const MAX_RANGES: u64 = 4096;

/// `bytes` in whole sectors.
const fn sectors(bytes: u64) -> u64 {
    bytes.saturating_add(SECTOR - 1) & !(SECTOR - 1)
}

/// What a kernel does to a piece of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It reads.
    Read,
    /// It writes all of it, and needs nothing of what was there.
    Write,
    /// It writes some of it, or needs what was there.
    Update,
}

impl Access {
    /// Whether anything is written.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }
    const fn passes(self) -> u64 {
        if matches!(self, Self::Update) { 2 } else { 1 }
    }
    /// The same where there are bytes between those that are meant.
    const fn with_gaps(self, gaps: bool) -> Self {
        if gaps && matches!(self, Self::Write) { Self::Update } else { self }
    }
}

/// One piece of memory a launch touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// The bytes.
    pub range: AddrRange,
    /// What is done with them.
    pub access: Access,
    /// As in [`deepum_model::Touch`].
    pub phase: u32,
}

impl From<Touch> for deepum_model::Touch {
    fn from(Touch { range, access, phase }: Touch) -> Self {
        Self { range, write: access.writes(), phase }
    }
}

/// Collects the touches of one launch.
pub(super) struct Touches<'a> {
    view: &'a dyn DeviceView,
    /// Source of picked rows.
    pub(super) rows: &'a mut Rows,
    pub(super) list: Vec<Touch>,
    /// Bytes moved between memory and the cores.
    pub(super) traffic: u64,
    /// An operand lay outside every allocation: whatever was decoded is wrong.
    pub(super) refuted: bool,
    /// Given to every touch from now on: work through a list is done one entry after the other.
    pub(super) phase: u32,
    pub(super) flops: f64,
    pub(super) class: Precision,
}

impl<'a> Touches<'a> {
    pub(super) fn new(view: &'a dyn DeviceView, rows: &'a mut Rows) -> Self {
        Self {
            view,
            rows,
            list: Vec::with_capacity(8),
            traffic: 0,
            refuted: false,
            phase: 0,
            flops: 0.0,
            class: Precision::Fp32,
        }
    }

    pub(super) fn view(&self) -> &'a dyn DeviceView {
        self.view
    }

    /// See [`Rows::pick`].
    pub(super) fn pick(&mut self, index: u64, elem: u32, count: u64, table: u64, fresh: bool) -> Vec<u64> {
        self.rows.pick(self.view, index, elem, count, table, fresh)
    }
    /// See [`Rows::again`].
    pub(super) fn again(&mut self, index: u64, count: u64, bytes: u64) -> Option<Vec<u64>> {
        self.rows.again(self.view, index, count, bytes)
    }
    /// See [`Rows::sorted`].
    pub(super) fn sorted(&mut self) -> Option<Segments> {
        self.rows.sorted(self.view)
    }
    /// Counts floating-point operations of the given class.
    pub(super) fn compute(&mut self, flops: f64, class: Precision) {
        self.flops += flops;
        self.class = class;
    }

    /// `bytes` from `ptr`. Null pointers and empty operands are how kernels say "not given".
    pub(super) fn dense(&mut self, ptr: u64, bytes: u64, access: Access) {
        self.strided(ptr, 1, &[(bytes, 1)], access);
    }

    /// Elements of `elem` bytes, at all combinations of the dimensions `(extent, stride in bytes)`.
    pub(super) fn strided(&mut self, ptr: u64, elem: u64, dims: &[(u64, i64)], access: Access) {
        if ptr == 0 || elem == 0 || dims.iter().any(|&(n, _)| n == 0) {
            return;
        }
        // Walk every dimension upwards.
        let mut start = ptr;
        let mut steps: Vec<(u64, u64)> = Vec::with_capacity(dims.len());
        for &(n, stride) in dims {
            if n > 1 && stride != 0 {
                let step = stride.unsigned_abs();
                if stride < 0 {
                    start = start.wrapping_sub(step.wrapping_mul(n - 1));
                }
                steps.push((n, step));
            }
        }
        steps.sort_unstable_by_key(|&(_, step)| step);
        let (mut span, mut bytes, mut gaps) = (elem, elem, false);
        let mut outer: Vec<(u64, u64)> = Vec::new();
        for (n, step) in steps {
            let reach = step.saturating_mul(n - 1);
            let closes = outer.is_empty() && (step <= span || step - span < GAP);
            // Elements that share sectors move together; others take a whole sector each.
            bytes = if step <= span {
                span.saturating_add(reach).min(bytes.saturating_mul(n))
            } else if step >= SECTOR {
                sectors(bytes).saturating_mul(n)
            } else {
                span.saturating_add(reach)
            };
            if closes {
                gaps |= step > span;
                span = span.saturating_add(reach);
            } else {
                outer.push((n, step));
            }
        }
        // Too many ranges to keep apart: close the smallest gaps.
        while outer.iter().fold(1u64, |ranges, &(n, _)| ranges.saturating_mul(n)) > MAX_RANGES {
            let (n, step) = outer.remove(0);
            gaps |= step > span;
            span = span.saturating_add(step.saturating_mul(n - 1));
        }
        self.traffic = self.traffic.saturating_add(bytes.saturating_mul(access.passes()));
        // A dimension that is closed into one with gaps has them, too.
        let access = access.with_gaps(gaps);
        if outer.is_empty() {
            self.push(start, span, access);
            return;
        }
        let mut offsets = vec![0u64];
        for &(n, step) in outer.iter().rev() {
            offsets =
                offsets.iter().flat_map(|&o| (0..n).map(move |i| o.saturating_add(i.saturating_mul(step)))).collect();
        }
        offsets.sort_unstable();
        self.spans(start, &offsets, span, access);
    }

    /// `span` bytes at each of the sorted `offsets` from `start`; adds no traffic.
    fn spans(&mut self, start: u64, offsets: &[u64], span: u64, access: Access) {
        let mut open: Option<(u64, u64, bool)> = None;
        for &offset in offsets {
            let (from, to) = (start.saturating_add(offset), start.saturating_add(offset).saturating_add(span));
            open = match open {
                Some((first, end, gaps)) if from <= end.saturating_add(GAP) => {
                    Some((first, end.max(to), gaps || from > end))
                }
                Some((first, end, gaps)) => {
                    self.push(first, end - first, access.with_gaps(gaps));
                    Some((from, to, false))
                }
                None => Some((from, to, false)),
            };
        }
        if let Some((first, end, gaps)) = open {
            self.push(first, end - first, access.with_gaps(gaps));
        }
    }

    /// `row` bytes at each of some rows (`stride` bytes apart) of a table; `rows` are row numbers in any order.
    pub(super) fn picked(&mut self, table: u64, row: u64, stride: u64, rows: &[u64], access: Access) {
        if table == 0 || row == 0 {
            return;
        }
        let mut offsets: Vec<u64> = rows.iter().map(|r| r.saturating_mul(stride)).collect();
        offsets.sort_unstable();
        let picks = offsets.len() as u64;
        offsets.dedup();
        let moved = sectors(row).saturating_mul(picks);
        self.traffic = self.traffic.saturating_add(moved.saturating_mul(access.passes()));
        self.spans(table, &offsets, row, access);
    }

    fn push(&mut self, start: u64, len: u64, access: Access) {
        let range = AddrRange::new(DevAddr(start), Bytes(len));
        let inside = self
            .view
            .allocation(range.start)
            .is_some_and(|a| start.checked_add(len).is_some_and(|end| end <= a.end().0));
        if inside {
            self.list.push(Touch { range, access, phase: self.phase });
        } else {
            self.refuted = true;
        }
    }
}
