//! G10: smart tensor eviction and prefetching (Zhang et al., MICRO'23, sections 4.3 and 4.4, Algorithm 1).
//!
//! Problem: of all inactive periods, which to spend channel time on.
//! Idea: *memory pressure* is what is resident beyond capacity. Repeatedly take the period with the greatest *benefit*, by how much being away
//! reduces pressure, over *cost*, the time its transfers take, until no pressure is left. The tensor goes to the SSD, or to host memory if the
//! SSD is saturated then and the host has room. It comes back at its latest safe time, and after all are chosen each fetch is moved forward as
//! far as memory allows.
//!
//! A kernel that touches more than the GPU has is no reason not to plan: under unified memory it faults.
//!
//! The authors' code plans by other rules, which are in [`crate::published::g10`].
//!
//! Choosing is a lazy greedy: a period's rank never rises, as pressure falls and channels fill, so ranks in a heap are upper bounds, and one that
//! is still the greatest when it is worked out again is the greatest of all.
//!
//! The paper's variants differ in where tensors may go, and in who handles what the plan leaves over, which is the executor's part: G10-GDS is
//! [`Targets::Ssd`]; G10-Host and G10 itself are [`Targets::SsdThenHost`]. [`Targets::Host`] is for machines without an SSD.

use super::absence::{self, Absence};
use super::ledger::{Direction, Ledger};
use super::schedule::{Failure, Outcome};
use super::vitality::{Period, ideal_times, periods};
use crate::tiers::{Tier, Tiers};
use deepum_core::units::{Bytes, Nanos};
use deepum_trace::program::Program;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Where tensors may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Targets {
    /// The SSD alone.
    Ssd,
    /// Host memory alone.
    Host,
    /// The SSD, and host memory when that is saturated.
    SsdThenHost,
}

impl Targets {
    const fn tiers(self) -> &'static [Tier] {
        match self {
            Self::Ssd => &[Tier::Ssd],
            Self::Host => &[Tier::Host],
            Self::SsdThenHost => &[Tier::Ssd, Tier::Host],
        }
    }
}

/// The planner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct G10 {
    /// Where tensors may go.
    pub targets: Targets,
}

impl G10 {
    /// As the paper has it.
    pub const PAPER: Self = Self { targets: Targets::SsdThenHost };

    /// Plans one iteration.
    ///
    /// # Errors
    /// [`Failure::NoSsd`].
    pub fn plan(&self, program: &Program, tiers: &Tiers) -> Outcome {
        if self.targets == Targets::Ssd && tiers.ssd.is_none() {
            return Err(Failure::NoSsd);
        }
        let times = ideal_times(program);
        let mut choice = Choice { how: *self, line: tiers.gpu, ledger: Ledger::new(program, tiers, &times), times };
        let mut absences = choice.choose(&periods(program, &choice.times));
        absence::eager(&mut choice.ledger, &mut absences, choice.line, |_| 0);
        absence::plan(program, &choice.ledger, &absences)
    }
}

struct Choice {
    how: G10,
    line: Bytes,
    ledger: Ledger,
    times: Vec<Nanos>,
}

/// First the rank, then size times idle time, then the first in the list.
type Key = (Score, u128, Reverse<usize>);

#[derive(Clone, Copy, PartialEq, Debug)]
struct Score(f64);
impl Eq for Score {}
impl Ord for Score {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Choice {
    fn choose(&mut self, periods: &[Period]) -> Vec<Absence> {
        let key = |index: usize, rank: f64| -> Key {
            let Period { size, time, .. } = periods[index];
            (Score(rank), u128::from(size.0) * u128::from(time.0), Reverse(index))
        };
        let first = periods.iter().enumerate().map(|(index, &period)| key(index, self.rank(period)));
        let mut heap: BinaryHeap<Key> = first.filter(|key| key.0.0 > 0.0).collect();
        let mut chosen = Vec::new();
        while let Some((_, _, Reverse(index))) = heap.pop()
            && self.ledger.over(self.line) > Bytes::ZERO
        {
            let now = key(index, self.rank(periods[index]));
            if now.0.0 <= 0.0 {
                continue;
            }
            if heap.peek().is_some_and(|next| *next > now) {
                heap.push(now);
                continue;
            }
            if let Some(absence) = self.destination(periods[index]) {
                absence.book(&mut self.ledger);
                if absence.tier == Tier::Host {
                    self.ledger.host_takes(absence.period.size, absence.period.idle);
                }
                chosen.push(absence);
            }
        }
        chosen
    }

    /// Pressure that being away reduces, in byte-seconds, over the time of the two transfers, on the tier where it is greatest: whether the SSD is saturated is asked only when the period's turn has come.
    fn rank(&self, period: Period) -> f64 {
        let away = self.how.targets.tiers().iter().filter_map(|&tier| Absence::safe(&self.ledger, period, tier));
        away.map(|absence| self.rank_of(&absence)).fold(0.0, f64::max)
    }

    fn rank_of(&self, absence: &Absence) -> f64 {
        let Period { size, .. } = absence.period;
        let mut reduced = 0u128;
        for kernel in absence.free(self.ledger.kernels()).kernels(self.ledger.kernels()) {
            let over = self.ledger.resident()[kernel].saturating_sub(self.line);
            reduced += u128::from(over.min(size).0) * u128::from(self.times[kernel].0);
        }
        reduced as f64 / self.transfers(absence.tier, size).0 as f64
    }

    /// What the two transfers take when they have the channel alone.
    fn transfers(&self, tier: Tier, size: Bytes) -> Nanos {
        let both = self.ledger.tiers().to(tier).map(|way| way.out.time(size).0.saturating_add(way.back.time(size).0));
        Nanos(both.unwrap_or(u64::MAX))
    }

    fn destination(&self, period: Period) -> Option<Absence> {
        let open = |tier| {
            let allowed = self.how.targets.tiers().contains(&tier);
            allowed.then(|| Absence::safe(&self.ledger, period, tier)).flatten()
        };
        let long = self.ledger.tiers().ssd.is_some_and(|ssd| period.time.0 / 2 > ssd.out.time(period.size).0);
        let ssd = open(Tier::Ssd).filter(|_| long);
        let full = self.ledger.saturated(Direction::Out, Tier::Ssd, period.size, &self.times, period.idle);
        if full { open(Tier::Host).or(ssd) } else { ssd.or_else(|| open(Tier::Host)) }
    }
}

#[cfg(test)]
mod tests;
