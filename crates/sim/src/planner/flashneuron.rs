//! FlashNeuron: activations go to the SSD during the forward pass, and come back in the backward pass (Bae et al., FAST'21, section 4).
//!
//! Idea: weights and what one kernel touches stay on the GPU. Of the intermediates that the forward pass leaves for the backward pass, the first
//! ones are wanted last. So *linear tensor selection* takes them in the order of the forward pass until the rest fits. A tensor leaves after its
//! last use in the forward pass and is back for its first use in the backward pass.
//!
//! From the paper: which tensors, their order, the SSD as only place, and that nothing else moves. From the code that G10's authors compare with
//! (`platformxlab/G10` at de2c8c6): the room for the rest is the GPU less all weights less the largest kernel.
//! Our reading: fetches begin, in the order in which they are due, as soon as memory allows after the turn; kernels wait for transfers that do not
//! end in time. Not here: the second phase, which chooses tensors that compress well, as profiles hold no contents; and its allocator, which
//! fails by fragmentation, too.
//!
//! FlashNeuron fails by name: where weights and one kernel leave no room, or where memory is exceeded though all that may leave has left.

use super::absence::{self, Absence};
use super::ledger::{Direction, Ledger};
use super::schedule::{Failure, Outcome, fitting};
use super::vitality::{Period, ideal_times, periods};
use crate::tiers::{Tier, Tiers};
use deepum_core::units::Bytes;
use deepum_trace::program::{Life, Program};

/// Plans one iteration, whose backward pass begins with kernel `turn`.
///
/// # Errors
/// [`Failure::NoSsd`]; [`Failure::TooLarge`]; [`Failure::NoRoom`]; [`Failure::TooLittleOffloaded`].
pub fn plan(program: &Program, tiers: &Tiers, turn: u32) -> Outcome {
    let gpu = tiers.gpu;
    if tiers.ssd.is_none() {
        return Err(Failure::NoSsd);
    }
    let kernel = fitting(program, gpu)?.into_iter().max().unwrap_or_default();
    let room = room(program, kernel, gpu)?;
    let times = ideal_times(program);
    let mut over_turn: Vec<_> =
        periods(program, &times).into_iter().filter(|period| crosses(program, period, turn)).collect();
    over_turn.sort_by_key(|period| (program.uses(period.tensor)[0], period.tensor));

    let mut rest: u64 = over_turn.iter().map(|period| period.size.0).sum();
    let mut ledger = Ledger::new(program, tiers, &times);
    let mut absences = Vec::new();
    for period in over_turn {
        if rest <= room.0 {
            break;
        }
        rest -= period.size.0;
        let absence = leave(&ledger, period, turn);
        absence.book(&mut ledger);
        absences.push(absence);
    }
    fits(&ledger, &absences)?;
    absence::eager(&mut ledger, &mut absences, gpu, |absence| turn.saturating_sub(absence.period.idle.from));
    absence::plan(program, &ledger, &absences)
}

/// What is left for activations that stay.
fn room(program: &Program, kernel: Bytes, gpu: Bytes) -> Result<Bytes, Failure> {
    let globals = program.tensors().iter().filter(|tensor| tensor.life == Life::Global);
    let weights = globals.fold(Bytes::ZERO, |sum, tensor| sum + tensor.size);
    match gpu.saturating_sub(weights + kernel) {
        Bytes::ZERO => Err(Failure::NoRoom { weights, kernel, gpu }),
        room => Ok(room),
    }
}

/// Whether an intermediate is idle from its last use before the turn to its first after it.
fn crosses(program: &Program, period: &Period, turn: u32) -> bool {
    let from = period.idle.from;
    program.tensor(period.tensor).life == Life::Intermediate && from <= turn && turn < from + period.idle.len
}

/// Away from its last use on, at first until its next.
fn leave(ledger: &Ledger, period: Period, turn: u32) -> Absence {
    let Period { size, idle, .. } = period;
    // The forward pass waits for what is not out when its room is needed.
    let gone = ledger.fit(Direction::Out, Tier::Ssd, size, idle).unwrap_or(idle.len).min(turn - idle.from);
    Absence { period, tier: Tier::Ssd, clean: false, saved: 0, gone, back: idle.len }
}

/// Whether what stays fits if kernels wait for every transfer.
fn fits(ledger: &Ledger, absences: &[Absence]) -> Result<(), Failure> {
    let gpu = ledger.tiers().gpu;
    let mut waited = ledger.clone();
    for absence in absences {
        let (idle, size) = (absence.period.idle, absence.period.size);
        waited.hold(size, absence.free(ledger.kernels()));
        waited.release(size, idle);
    }
    let resident = (0u32..).zip(waited.resident());
    match resident.into_iter().find(|(_, resident)| **resident > gpu) {
        Some((kernel, &resident)) => Err(Failure::TooLittleOffloaded { kernel, resident, gpu }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
