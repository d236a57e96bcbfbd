//! A kernel (or a copy engine) walking over memory, one fault batch at a time.
//!
//! A real kernel is thousands of threads, each with its own misses. What matters to the driver is the *front*:
//! which pages are asked for at about the same time. So a kernel is modelled as a walk: the operands of a phase
//! advance together from their first to their last page, and the kernel's computing time passes evenly over the
//! walk. When the walk comes to a page that is not there, the warps that are under way ask for the missing pages
//! of the next piece of the walk (`front_pages`), a batch takes as many of them as it has entries, and the whole
//! kernel waits until they are there: the other warps soon miss something too.
//!
//! ```text
//! operand a  ████████▓▓▓▓░░░░░░        █ passed   ▓ front   ░ ahead
//! operand b  ████▓▓░░░                 (b is half as long and so walked half as fast)
//! ```
//!
//! Position is computing time inside the phase: page `k` of an operand of `n` pages is touched at `k / n` of
//! the phase. A page that the walk has passed is not needed again, so a working set larger than memory thrashes
//! but ends: each batch passes at least the page that began it. Of what is touched at one and the same instant, as are the rows that
//! a lookup picks, the operands named first come first.

use crate::memory::UnifiedMemory;
use crate::pages::{PAGE, PAGES, PageMask};
use crate::service::{Faulted, Served};
use deepum_core::units::{AddrRange, DevAddr, DeviceId, Nanos, UmBlock};
use std::ops::Range;

/// One piece of memory a kernel reads or writes. Ranges outside managed memory are allowed and never fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// The bytes.
    pub range: AddrRange,
    /// Whether any is written.
    pub write: bool,
    /// Touches of a lower phase are walked to their end before those of the next; within a phase all advance
    /// together. 0 for everything, unless a kernel works through a list of tensors.
    pub phase: u32,
}

/// Who walks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accessor {
    /// A kernel on the SMs: replayable faults, in batches.
    Kernel,
    /// A copy engine (`cudaMemcpy` and `cudaMemset` on managed memory): its faults are marked as such, and
    /// otherwise served alike.
    CopyEngine,
}

/// What happened in one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A fault batch was served; its notices are waiting in the memory. The walk goes on at `resume_at`.
    Faulted {
        /// The batch's number.
        batch: u32,
        /// When the first miss happened.
        at: Nanos,
        /// When the last of its faults was reported: a tool can know all of them from here on, while the copies still run.
        noticed: Nanos,
        /// When the warps run again.
        resume_at: Nanos,
    },
    /// Nothing was missing up to the horizon; call again then.
    Paused {
        /// The horizon as given.
        at: Nanos,
    },
    /// The walk is over. Further steps say so again.
    Done {
        /// When.
        at: Nanos,
    },
    /// The driver found no memory for a page: a fatal fault, the context is lost. The walk is over.
    Fatal {
        /// The page.
        addr: DevAddr,
        /// When.
        at: Nanos,
    },
}

/// Fronts of missing pages among which a batch is looked for. A lookup's rows are all due at one instant, thousands of them, and a
/// batch needs only the first.
const FRONTS: u64 = 4;

/// An operand on its way: `passed` of its `pages` pages, which start at page number `first`.
#[derive(Clone, Copy, Debug)]
struct Operand {
    first: u64,
    pages: u64,
    passed: u64,
    write: bool,
}

#[derive(Clone, Copy, Debug)]
struct Phase {
    /// Its operands, as indexes; the first of them that are over are left out.
    begin: usize,
    end: usize,
    /// Pages of the longest of them.
    longest: u64,
    /// Pages of all of them.
    pages: u64,
    /// Computing time; at least a nanosecond per page of the longest.
    time: u64,
}

/// One kernel in execution.
#[derive(Debug)]
pub struct KernelRun {
    device: DeviceId,
    copy_engine: bool,
    operands: Vec<Operand>,
    phases: Vec<Phase>,
    /// The phase being walked, and how much of its time is over.
    at_phase: usize,
    walked: u64,
    faults: Vec<Faulted>,
}

/// Computing time beyond which a kernel is taken to take just this long: 104 days. Keeps all sums inside 64 bits.
const LONGEST: u64 = 1 << 53;

/// Pages of an operand of `pages` that are touched up to and including instant `walked` of `time`.
fn touched_by(walked: u64, time: u64, pages: u64) -> u64 {
    let touched = (u128::from(walked) + 1) * u128::from(pages);
    u64::try_from(touched.div_ceil(u128::from(time))).map_or(pages, |n| n.min(pages))
}

/// When page `k` of `pages` is touched.
fn touched_at(k: u64, time: u64, pages: u64) -> u64 {
    u64::try_from(u128::from(k) * u128::from(time) / u128::from(pages)).unwrap_or(time)
}

impl KernelRun {
    /// A kernel that touches `touches` and would take `compute` if nothing were missing.
    #[must_use]
    pub fn new(device: DeviceId, accessor: Accessor, touches: &[Touch], compute: Nanos) -> Self {
        let mut sorted: Vec<&Touch> = touches.iter().filter(|t| !t.range.is_empty()).collect();
        sorted.sort_by_key(|t| t.phase);
        let mut operands = Vec::with_capacity(sorted.len());
        let mut phases: Vec<Phase> = Vec::new();
        let mut phase_of_last = None;
        for touch in sorted {
            let first = touch.range.start.0 / PAGE;
            let pages = (touch.range.end().0 - 1) / PAGE - first + 1;
            if phase_of_last != Some(touch.phase) {
                phase_of_last = Some(touch.phase);
                let begin = operands.len();
                phases.push(Phase { begin, end: begin, longest: 0, pages: 0, time: 0 });
            }
            operands.push(Operand { first, pages, passed: 0, write: touch.write });
            if let Some(phase) = phases.last_mut() {
                phase.end += 1;
                phase.longest = phase.longest.max(pages);
                phase.pages += pages;
            }
        }
        if phases.is_empty() {
            phases.push(Phase { begin: 0, end: 0, longest: 0, pages: 1, time: 0 });
        }
        let (mut pages_left, mut time_left) = (phases.iter().map(|p| p.pages).sum::<u64>(), compute.0.min(LONGEST));
        for phase in &mut phases {
            // The share of what is left, so that rounding does not lose time.
            let share = u128::from(time_left) * u128::from(phase.pages) / u128::from(pages_left.max(1));
            let share = u64::try_from(share).unwrap_or(time_left);
            time_left -= share.min(time_left);
            pages_left -= phase.pages;
            phase.time = share.max(phase.longest);
        }
        let copy_engine = accessor == Accessor::CopyEngine;
        Self { device, copy_engine, operands, phases, at_phase: 0, walked: 0, faults: Vec::new() }
    }

    /// Walks on from `now` (the start, or the `resume_at` or `at` of the step before) until something is
    /// missing, the kernel ends, or virtual time reaches `horizon`, the next time at which anything else
    /// may change memory (a command taking effect, an engine thread returning from a call).
    pub fn step(&mut self, mem: &mut UnifiedMemory, now: Nanos, horizon: Nanos) -> Step {
        let Ok(d) = mem.device_index(self.device) else { return Step::Done { at: now } };
        let (mut now, phases) = (now, self.phases.len());
        while let Some(phase) = self.phases.get_mut(self.at_phase) {
            let over = self.operands[phase.begin..phase.end].iter().take_while(|o| o.passed == o.pages).count();
            phase.begin += over;
            let phase = *phase;
            // A stretch in which the longest operand advances by a block, or what the horizon allows.
            let stretch = (phase.time * 512).checked_div(phase.longest).unwrap_or(phase.time).max(1);
            // Once nothing is left to touch nobody can change how it ends; so two copies of plain memory side by side do not stop each other at
            // every nanosecond.
            let touches_no_more = phase.begin == phase.end && self.at_phase + 1 == phases;
            let horizon = if touches_no_more { Nanos(u64::MAX) } else { horizon };
            let time_left = horizon.saturating_sub(now).0;
            let until = phase.time.min(self.walked + stretch.min(time_left));
            let mut afar = 0;
            let miss = self.first_miss(mem, d, &phase, now, until, &mut afar);
            now += mem.walked_afar(d, afar);
            match miss {
                Some((operand, page)) => {
                    let o = self.operands[operand];
                    let miss = touched_at(page - o.first, phase.time, o.pages).max(self.walked);
                    let at = now + Nanos(miss - self.walked);
                    mem.devices[d].totals.compute += at - now;
                    self.pass_before(phase.begin..operand, operand..phase.end, phase.time, miss);
                    self.walked = miss;
                    return self.fault(mem, d, &phase, (operand, page), at);
                }
                None => {
                    let walked = until - self.walked;
                    for o in &mut self.operands[phase.begin..phase.end] {
                        let pages = touched_by(until, phase.time, o.pages);
                        o.passed = o.passed.max(pages);
                    }
                    mem.devices[d].totals.compute += Nanos(walked);
                    now += Nanos(walked);
                    self.walked = until;
                    if until == phase.time {
                        self.at_phase += 1;
                        self.walked = 0;
                    } else if now >= horizon {
                        return Step::Paused { at: now.max(horizon) };
                    }
                }
            }
        }
        Step::Done { at: now }
    }

    /// The earliest missing page touched up to instant `until`, with its operand; `afar` counts what comes before it, or before that instant, and is reached from afar.
    fn first_miss(
        &self,
        mem: &UnifiedMemory,
        d: usize,
        phase: &Phase,
        now: Nanos,
        until: u64,
        afar: &mut u64,
    ) -> Option<(usize, u64)> {
        let mut until = until;
        let mut found = None;
        for (i, o) in self.operands.iter().enumerate().take(phase.end).skip(phase.begin) {
            let end = o.first + touched_by(until, phase.time, o.pages);
            let time_of = |page: u64| {
                let instant = touched_at(page - o.first, phase.time, o.pages);
                now + Nanos(instant.saturating_sub(self.walked))
            };
            let pages = o.first + o.passed..end;
            let Some(page) = mem.first_missing(d, pages, o.write, now, time_of, afar) else { continue };
            let instant = touched_at(page - o.first, phase.time, o.pages).max(self.walked);
            if found.is_none() || instant < until {
                found = Some((i, page));
                until = until.min(instant);
            }
            if instant == self.walked {
                break;
            }
        }
        found
    }

    /// Everything touched before instant `miss` has been there; of the operands `before` the one that missed, at that instant too.
    fn pass_before(&mut self, before: Range<usize>, others: Range<usize>, time: u64, miss: u64) {
        for o in &mut self.operands[before] {
            o.passed = o.passed.max(touched_by(miss, time, o.pages));
        }
        if miss > 0 {
            for o in &mut self.operands[others] {
                o.passed = o.passed.max(touched_by(miss - 1, time, o.pages));
            }
        }
    }

    /// Gathers the missing pages of the front and has them served.
    fn fault(&mut self, mem: &mut UnifiedMemory, d: usize, phase: &Phase, first: (usize, u64), at: Nanos) -> Step {
        let cap = mem.batch_pages();
        let front = u128::from(mem.profile().front_pages) * u128::from(phase.time);
        let mut width = u64::try_from(front / u128::from(phase.pages)).unwrap_or(phase.time).max(1);
        // A batch takes the first pages of the front. Missing pages may lie thinly or thickly in it, so the width
        // that yields a full batch is found by trying, and the rest is cut.
        for _ in 0..4 {
            let pages = self.gather(mem, d, phase, first, width, at);
            if pages <= u64::from(cap) || width == 1 {
                break;
            }
            width = (width * u64::from(cap) / pages).max(1);
        }
        let mut room = cap;
        self.faults.retain_mut(|fault| {
            fault.pages = fault.pages.lowest(room);
            fault.written = fault.written & fault.pages;
            room -= fault.pages.count();
            !fault.pages.is_empty()
        });
        let served = mem.serve(self.device, &self.faults, self.copy_engine, at);
        // The page that began the batch is touched as soon as the warps run again, whatever else has happened.
        let (operand, page) = first;
        let o = &mut self.operands[operand];
        o.passed = o.passed.max(page + 1 - o.first);
        match served {
            Ok(Served { batch, noticed, resume_at }) => Step::Faulted { batch, at, noticed, resume_at },
            Err(_) => {
                self.at_phase = self.phases.len();
                Step::Fatal { addr: DevAddr(page * PAGE), at }
            }
        }
    }

    /// Fills `faults` with the missing pages touched in the `width` after the present instant, by block, the
    /// first one first, up to [`FRONTS`] or a little more; the answer is their number.
    fn gather(
        &mut self,
        mem: &UnifiedMemory,
        d: usize,
        phase: &Phase,
        first: (usize, u64),
        width: u64,
        at: Nanos,
    ) -> u64 {
        let until = self.walked.saturating_add(width - 1).min(phase.time);
        self.faults.clear();
        let mut pages = 0;
        let most = FRONTS * u64::from(mem.profile().front_pages);
        let others = (phase.begin..phase.end).filter(|&i| i != first.0);
        for i in std::iter::once(first.0).chain(others) {
            if pages >= most {
                break;
            }
            let o = self.operands[i];
            let end = o.first + touched_by(until, phase.time, o.pages);
            // Of the operand that missed first, everything before the miss is there.
            let begin = if i == first.0 { first.1 } else { o.first + o.passed };
            for_each_block(begin, end, |block, part| {
                let Some(slot) = mem.space.slot(block) else { return };
                let on = &mem.devices[d].on[slot];
                let mut missing = part.without(on.resident).without(on.afar);
                if o.write {
                    missing = missing | (part & on.read_only);
                }
                if on.arrives > at {
                    missing = missing | (part & on.in_flight);
                }
                if missing.is_empty() {
                    return;
                }
                match self.faults.iter_mut().find(|f| f.slot == slot) {
                    Some(fault) => {
                        pages += u64::from(missing.without(fault.pages).count());
                        fault.pages = fault.pages | missing;
                        fault.written = fault.written | if o.write { missing } else { PageMask::EMPTY };
                    }
                    None => {
                        pages += u64::from(missing.count());
                        let written = if o.write { missing } else { PageMask::EMPTY };
                        self.faults.push(Faulted { slot, pages: missing, written });
                    }
                }
            });
        }
        pages
    }
}

/// Calls `f` for each block of the pages `begin..end` (page numbers) with the pages of it that are inside.
fn for_each_block(begin: u64, end: u64, mut f: impl FnMut(UmBlock, PageMask)) {
    let mut page = begin;
    while page < end {
        let block = page / 512;
        let stop = end.min((block + 1) * 512);
        #[expect(clippy::cast_possible_truncation, reason = "both are below 512 from the block's start")]
        let part = PageMask::span((page - block * 512) as u32, (stop - block * 512) as u32);
        f(UmBlock(block), part);
        page = stop;
    }
}

impl UnifiedMemory {
    /// The first of `pages` (page numbers) that is managed but not on device `d` at the time it is touched,
    /// which is `now` or later, or may not be written there if it is to be.
    fn first_missing(
        &self,
        d: usize,
        pages: Range<u64>,
        write: bool,
        now: Nanos,
        time_of: impl Fn(u64) -> Nanos,
        afar: &mut u64,
    ) -> Option<u64> {
        let Range { start: mut page, end } = pages;
        while page < end {
            let block = page / 512;
            let stop = end.min((block + 1) * 512);
            if let Some(slot) = self.space.slot(UmBlock(block)) {
                let on = &self.devices[d].on[slot];
                if !on.resident.is_full() || on.arrives > now || write && !on.read_only.is_empty() {
                    let base = block * 512;
                    #[expect(clippy::cast_possible_truncation, reason = "both are at most 512")]
                    let part = PageMask::span((page - base) as u32, (stop - base) as u32);
                    let mut missing = part.without(on.resident).without(on.afar);
                    if write {
                        missing = missing | (part & on.read_only);
                    }
                    // Of the pages in flight the first touched decides: the others are touched later.
                    if let Some(first) = (part & on.in_flight).first()
                        && on.arrives > time_of(base + u64::from(first))
                    {
                        missing.insert(first);
                    }
                    let first = missing.first();
                    if !on.afar.is_empty() {
                        let before = PageMask::span(0, first.unwrap_or(PAGES));
                        *afar += u64::from((part & on.afar & before).count());
                    }
                    if let Some(first) = first {
                        return Some(base + u64::from(first));
                    }
                }
            }
            page = stop;
        }
        None
    }
}
