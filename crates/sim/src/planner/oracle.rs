//! What plans of whole tensors can reach: Belady's choice with knowledge of channels and stalls.
//!
//! Problem: to say how good a planner is, one needs a plan that knows everything. The best one is out of reach (even without channels, choosing
//! among sizes is NP-hard); a very good one will do as a mark.
//! Idea: kernels are gone through in order. Whenever one is over capacity, that idle tensor leaves which is wanted *furthest* ahead, weighed by
//! what it costs. If only a part of it has to leave, it may count by that part. One with a true copy elsewhere (*clean*: fetched or saved, and not
//! written since) counts double, as only one of its two transfers is left. What leaves is written *ahead of need*: when it becomes idle, or even
//! as soon as nothing writes it any more, while it is still read; it is dropped later. Dead contents leave by themselves. Fetches are moved forward
//! into free memory.
//!
//! Where channels cannot keep up, kernels wait, and that gives channels time which a plan on ideal times does not know of. So the plan is played
//! ([`play`]), and made again with kernels that take as long as they took then; [`ROUNDS`] times, by each of a few rules none of which is best
//! everywhere; the best plan counts.
//!
//! Invariants: no better than ideal; deterministic. What it does not do: parts of tensors, or another order of kernels.

use super::absence::{self, Absence};
use super::ledger::{Direction, Ledger};
use super::play::{Played, play};
use super::schedule::{Failure, Outcome, Plan};
use super::vitality::{Period, Span, ideal_times, periods};
use crate::tiers::{Tier, Tiers};
use deepum_core::units::{Bytes, Nanos};
use deepum_trace::program::{Life, Program};
use std::ops::Range;

/// Plans made, each with the times of the one before.
pub const ROUNDS: usize = 3;

/// Plans one iteration; the SSD is used where host memory cannot hold all that lives.
///
/// # Errors
/// [`Failure::TooLarge`].
pub fn plan(program: &Program, tiers: &Tiers) -> Outcome {
    best(program, tiers).map(|(plan, _)| plan)
}

/// The best plan, and what it took.
fn best(program: &Program, tiers: &Tiers) -> Result<(Plan, Played), Failure> {
    let mut best: Option<(Plan, Played)> = None;
    for rule in Rule::all(program, tiers) {
        let mut times = ideal_times(program);
        for _ in 0..ROUNDS {
            let plan = Round::new(program, tiers, &times, rule).plan()?;
            let played = play(program, tiers, &plan.schedule)?;
            times.clone_from(&played.times);
            if best.as_ref().is_none_or(|(_, known)| played.time < known.time) {
                best = Some((plan, played));
            }
        }
    }
    Ok(best.unwrap_or_default())
}

/// What is tried both ways. Writes ahead and the SSD first take channel time from what is due sooner; parts leave large tensors to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rule {
    /// A tensor of which only a part has to leave counts by that part.
    fitting: bool,
    /// What is dirty is written as soon as nothing writes it any more, and not only when it is idle.
    save: bool,
    /// The SSD takes what it can bring back in time, and leaves the host to others.
    ssd_first: bool,
}

impl Rule {
    /// The SSD comes first only where the host cannot hold all that lives.
    fn all(program: &Program, tiers: &Tiers) -> Vec<Self> {
        let tight = tiers.ssd.is_some() && program.live().into_iter().any(|live| live > tiers.host);
        let firsts: &[bool] = if tight { &[false, true] } else { &[false] };
        let either = [false, true];
        let rules = firsts.iter().flat_map(|&ssd_first| {
            either.into_iter().flat_map(move |save| either.map(|fitting| Self { fitting, save, ssd_first }))
        });
        rules.collect()
    }
}

struct Round<'a> {
    program: &'a Program,
    ledger: Ledger,
    /// All of them, those of a tensor together and in order.
    periods: Vec<Period>,
    /// By period.
    chosen: Vec<Option<Absence>>,
    clean: Vec<bool>,
    /// By tensor: where it always goes.
    home: Vec<Option<Tier>>,
    rule: Rule,
}

impl<'a> Round<'a> {
    fn new(program: &'a Program, tiers: &Tiers, times: &[Nanos], rule: Rule) -> Self {
        let periods = periods(program, times);
        let (chosen, clean) = (vec![None; periods.len()], vec![false; periods.len()]);
        let home = vec![None; program.tensors().len()];
        let ledger = Ledger::new(program, tiers, times);
        let mut round = Self { program, ledger, periods, chosen, clean, home, rule };
        for index in 0..round.periods.len() {
            round.clean[index] = round.has_copy(index);
        }
        round
    }

    fn plan(mut self) -> Outcome {
        let line = self.ledger.tiers().gpu;
        let kernels = self.ledger.kernels();
        let mut begin = vec![Vec::new(); kernels as usize];
        let mut idle = Vec::new();
        for (index, period) in self.periods.iter().enumerate() {
            begin[period.idle.from as usize].push(index);
            if period.idle.from > 0 && period.idle.offset(0, kernels).is_some() {
                idle.push(index);
            }
        }
        for kernel in 0..kernels {
            idle.append(&mut begin[kernel as usize]);
            idle.retain(|&index| {
                self.periods[index].idle.offset(kernel, kernels).is_some() && self.chosen[index].is_none()
            });
            while self.ledger.resident()[kernel as usize] > line {
                let ahead = |index: usize| self.weight(index, kernel);
                let Some(at) = (0..idle.len()).max_by_key(|&at| (ahead(idle[at]), std::cmp::Reverse(idle[at]))) else {
                    break;
                };
                self.leave(idle.swap_remove(at), kernel);
            }
        }
        self.let_stay(line);
        self.settle_copies();
        let mut absences: Vec<_> = self.chosen.iter().flatten().copied().collect();
        absence::eager(&mut self.ledger, &mut absences, line, |_| 0);
        absence::plan(self.program, &self.ledger, &absences)
    }

    /// How many kernels ahead it is wanted, times two if nothing has to go out, by the part that has to leave; in 2^20ths.
    fn weight(&self, index: usize, kernel: u32) -> u128 {
        let Period { idle, size, .. } = self.periods[index];
        let passed = idle.offset(kernel, self.ledger.kernels()).unwrap_or_default();
        let ahead = u128::from(idle.len - passed) * if self.clean[index] { 2 } else { 1 };
        let over = self.ledger.resident()[kernel as usize].saturating_sub(self.ledger.tiers().gpu);
        let part = if self.rule.fitting { over.min(size) } else { size };
        (ahead << 20) * u128::from(part.0) / u128::from(size.0)
    }

    fn leave(&mut self, index: usize, kernel: u32) {
        let period @ Period { tensor, size, idle, .. } = self.periods[index];
        let passed = idle.offset(kernel, self.ledger.kernels()).unwrap_or_default();
        let tier = self.home[tensor.index()].unwrap_or_else(|| self.take_home(period, passed));
        let clean = self.clean[index];
        let saved = if self.rule.save { self.since_write(period) } else { 0 };
        let mut absence = Absence { period, tier, clean, saved, gone: 0, back: 0 };
        if !clean {
            let out = self.ledger.fit(Direction::Out, tier, size, absence.out(self.ledger.kernels()));
            // Kernels wait for what is not out when its room is needed.
            absence.gone = out.map_or(passed, |done| done.saturating_sub(absence.saved)).min(passed);
        }
        absence.back = self.ledger.fit(Direction::Back, tier, size, idle).unwrap_or_default().max(passed + 1);
        absence.book(&mut self.ledger);
        self.chosen[index] = Some(absence);
        for other in self.of_same(index) {
            self.clean[other] = self.has_copy(other);
        }
    }

    /// How many kernels before its period a tensor was written last.
    fn since_write(&self, Period { tensor, idle, .. }: Period) -> u32 {
        let kernels = self.ledger.kernels();
        let global = self.program.tensor(tensor).life == Life::Global;
        let uses = self.program.uses(tensor).iter().filter(|&&kernel| global || kernel < idle.from);
        let writes = uses.filter(|&&kernel| self.program.kernels()[kernel as usize].writes.contains(&tensor));
        writes.map(|kernel| (idle.from + kernels - 1 - kernel) % kernels).min().unwrap_or_default()
    }

    /// Takes back what later choices have made needless.
    fn let_stay(&mut self, line: Bytes) {
        let kernels = self.ledger.kernels();
        for index in 0..self.periods.len() {
            let Some(absence) = self.chosen[index] else { continue };
            let (size, free) = (absence.period.size, absence.free(kernels));
            if free.kernels(kernels).all(|kernel| self.ledger.resident()[kernel] + size <= line) {
                self.ledger.hold(size, free);
                self.chosen[index] = None;
                for other in self.of_same(index) {
                    self.clean[other] = self.has_copy(other);
                }
            }
        }
    }

    /// All periods of the tensor that this one is of.
    fn of_same(&self, index: usize) -> Range<usize> {
        let tensor = self.periods[index].tensor;
        let from = self.periods[..index].iter().rposition(|period| period.tensor != tensor).map_or(0, |at| at + 1);
        let until = self.periods[index..].iter().position(|period| period.tensor != tensor);
        from..until.map_or(self.periods.len(), |after| index + after)
    }

    /// Where a tensor goes from its first absence on. Its place there is its own for as long as it lives, and so its copy can stay.
    fn take_home(&mut self, Period { tensor, size, idle, .. }: Period, passed: u32) -> Tier {
        let kernels = self.ledger.kernels();
        let life = match (self.program.tensor(tensor).life, self.program.span(tensor)) {
            (Life::Intermediate, Some(span)) => Span { from: *span.start(), len: span.end() - span.start() + 1 },
            _ => Span { from: 0, len: kernels },
        };
        let fits = |to| self.ledger.fit(to, Tier::Ssd, size, idle);
        let in_time = fits(Direction::Out).is_ok_and(|gone| gone <= passed)
            && fits(Direction::Back).is_ok_and(|back| back > passed);
        let full = self.ledger.tiers().ssd.is_some() && !self.ledger.host_has(size, life);
        let tier = if full || (self.rule.ssd_first && in_time) { Tier::Ssd } else { Tier::Host };
        if tier == Tier::Host {
            self.ledger.host_takes(size, life);
        }
        self.home[tensor.index()] = Some(tier);
        tier
    }

    /// Whether there is a true copy when this period begins: its tensor was away before, in the iteration before if it is a global, and was not
    /// written since; or it is never written, and was away at first.
    fn has_copy(&self, index: usize) -> bool {
        let Range { start, end } = self.of_same(index);
        let kernels = self.ledger.kernels();
        let mut after = index;
        loop {
            let before = match self.program.tensor(self.periods[index].tensor).life {
                Life::Global if after == start => end - 1,
                Life::Intermediate if after == start => return false,
                _ => after - 1,
            };
            let (last, next) = (self.periods[before].idle, self.periods[after].idle);
            let from = (last.from + last.len) % kernels;
            let between = Span { from, len: (next.from + kernels - from) % kernels };
            let writes = |kernel: usize| self.program.kernels()[kernel].writes.contains(&self.periods[index].tensor);
            if between.kernels(kernels).any(writes) {
                return false;
            }
            if before == index || self.chosen[before].is_some() {
                return true;
            }
            after = before;
        }
    }

    /// A period that was chosen before the one it follows may turn out clean.
    fn settle_copies(&mut self) {
        for (absence, &clean) in self.chosen.iter_mut().zip(&self.clean) {
            if let Some(absence) = absence {
                absence.clean = clean;
            }
        }
    }
}

#[cfg(test)]
mod tests;
