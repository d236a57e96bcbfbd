//! MOST: a late fetch is worth its delay where it saves a longer stall (Kim et al., IEEE Computer Architecture Letters 24(2), 2025).
//!
//! Problem: G10 sends away only what can be back in time. Where memory is oversubscribed more than channels can carry, the rest is left to faults,
//! whose evictions and fetches stop the GPU: the *oversubscription stall*.
//!
//! Known to us is the paper's abstract, and what is told of it in a few words. From these: inactive periods are taken in the order of
//! B = S x I, size times inactive time; the stall of oversubscription is put into figures and set against the delay of a prefetch; a prefetch
//! begins at P_safe, if it then arrives in time, or else at P_delay; what does not shorten the iteration is left alone.
//!
//! Our reading of these words:
//! - *stall*: a kernel that runs while memory is exceeded by x waits until the smaller of x and what it touches was written out and read in,
//!   at the rate that faults reach ([`Most::fault_back`], [`Most::fault_out`]), and no faster than there is a way to where the tensor would go;
//! - *P_safe*: the latest time from which the channel brings the tensor back before its next use, by what it carries already ([`Absence::safe`]);
//! - *P_delay*: after the last kernel of the period that is over capacity, when there is memory to come back to. The *delay* is the time of those
//!   bytes for which the channel has no room from there until the next use;
//! - the flow: a period is passed over if no kernel in it is over capacity. If there is a P_safe, the tensor leaves, and comes back then. If not,
//!   but there is a P_delay, it leaves if the stall saved while it is out exceeds the delay. All ends when no kernel is over capacity;
//! - *where to*: the paper has an SSD and no host memory. Where there is both, host memory is asked first ([`Most::tiers`]), for each of the two times.
//!
//! A kernel that touches more than the GPU has is no reason not to plan: under unified memory it faults.

use super::absence::{self, Absence};
use super::ledger::{Direction, Ledger, Short};
use super::schedule::{Failure, Outcome, touched};
use super::vitality::{Period, ideal_times, periods};
use crate::tiers::{Rate, Tier, Tiers};
use deepum_core::units::{Bytes, Nanos};
use deepum_trace::program::Program;
use std::cmp::Reverse;

/// The planner and its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Most {
    /// Where tensors go, what comes first first; in the paper to the SSD.
    pub tiers: &'static [Tier],
    /// What faults bring in per second, at best.
    pub fault_back: Rate,
    /// What evictions on demand take out per second, at best.
    pub fault_out: Rate,
}

impl Most {
    /// Plans one iteration.
    ///
    /// # Errors
    /// [`Failure::NoSsd`].
    pub fn plan(&self, program: &Program, tiers: &Tiers) -> Outcome {
        if self.tiers.iter().all(|&tier| tiers.to(tier).is_none()) {
            return Err(Failure::NoSsd);
        }
        let times = ideal_times(program);
        let stall = Stall { how: *self, tiers: *tiers, touched: touched(program) };

        let mut order = periods(program, &times);
        order.sort_by_key(|period| Reverse(u128::from(period.size.0) * u128::from(period.time.0)));
        let mut ledger = Ledger::new(program, tiers, &times);
        let mut absences = Vec::new();
        for period in order {
            if ledger.over(tiers.gpu) == Bytes::ZERO {
                break;
            }
            if !ledger.is_over(tiers.gpu, period.idle) {
                continue;
            }
            let safe = self.tiers.iter().find_map(|&tier| Absence::safe(&ledger, period, tier));
            let delayed = || self.tiers.iter().find_map(|&tier| delayed(&ledger, period, tier, &stall));
            if let Some(absence) = safe.or_else(delayed) {
                absence.book(&mut ledger);
                if absence.tier == Tier::Host {
                    ledger.host_takes(period.size, period.idle);
                }
                absences.push(absence);
            }
        }
        absence::eager(&mut ledger, &mut absences, tiers.gpu, |_| 0);
        absence::plan(program, &ledger, &absences)
    }
}

/// Away until the next use, which waits for it: where that saves more than it costs.
fn delayed(ledger: &Ledger, period: Period, tier: Tier, stall: &Stall) -> Option<Absence> {
    let Period { size, idle, .. } = period;
    if tier == Tier::Host && !ledger.host_has(size, idle) {
        return None;
    }
    let gone = ledger.fit(Direction::Out, tier, size, idle).ok()?;
    let over = |kernel: usize| ledger.resident()[kernel] > ledger.tiers().gpu;
    let last = (0u32..).zip(idle.kernels(ledger.kernels())).filter(|&(_, kernel)| over(kernel)).last();
    let back = last.map_or(0, |(offset, _)| offset + 1).max(gone);
    let home = idle.part(back, idle.len, ledger.kernels());
    let late = match ledger.fit(Direction::Back, tier, size, home) {
        Ok(_) => Bytes::ZERO,
        Err(Short(late)) => late,
    };
    let delay = ledger.tiers().to(tier)?.back.time(late);
    let absence = Absence { period, tier, clean: false, saved: 0, gone, back };
    (stall.saved(ledger, &absence)? > delay).then_some(absence)
}

/// What oversubscription costs.
struct Stall {
    how: Most,
    tiers: Tiers,
    /// By kernel.
    touched: Vec<Bytes>,
}

impl Stall {
    /// How much less all kernels wait that run while this one is away.
    fn saved(&self, ledger: &Ledger, absence: &Absence) -> Option<Nanos> {
        let way = self.tiers.to(absence.tier)?;
        let rates = [self.how.fault_back.min(way.back.rate), self.how.fault_out.min(way.out.rate)];
        let saved = absence.free(ledger.kernels()).kernels(ledger.kernels()).map(|kernel| {
            let resident = ledger.resident()[kernel];
            let without = resident.saturating_sub(absence.period.size);
            self.of(kernel, resident, rates).0 - self.of(kernel, without, rates).0
        });
        Some(Nanos(saved.fold(0, u64::saturating_add)))
    }
    /// How long a kernel waits while this much is resident.
    fn of(&self, kernel: usize, resident: Bytes, rates: [Rate; 2]) -> Nanos {
        let moved = resident.saturating_sub(self.tiers.gpu).min(self.touched[kernel]);
        Nanos(rates.map(|rate| rate.time(moved).0).into_iter().fold(0, u64::saturating_add))
    }
}

#[cfg(test)]
mod tests;
