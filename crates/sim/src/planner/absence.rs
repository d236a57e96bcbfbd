//! A tensor away for a part of an inactive period, booked on the ledger; and from all of a plan's absences its schedule.
//!
//! A tensor that leaves is out `gone` kernels into its period, and begins to come back at `back`: its memory is free between the two. All planners
//! bring it back at the *latest safe* time first; then [`eager`] moves the fetches forward into memory that nobody needs (G10, MICRO'23,
//! section 4.4), in the order in which they are due.

use super::ledger::{Direction, Ledger};
use super::schedule::{Kind, Move, Schedule};
use super::vitality::{Period, Span};
use super::{schedule::Failure, schedule::Outcome, schedule::Plan};
use crate::tiers::Tier;
use deepum_core::units::Bytes;
use deepum_trace::program::Program;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Absence {
    /// When it is idle, and who.
    pub period: Period,
    /// Where it goes.
    pub tier: Tier,
    /// Whether a true copy is there already, so that nothing goes out.
    pub clean: bool,
    /// How many kernels before the period it is written already, while it is still read; 0: as it leaves.
    pub saved: u32,
    /// After how many kernels of the period it is out.
    pub gone: u32,
    /// From which kernel of the period on it comes back.
    pub back: u32,
}

impl Absence {
    /// The longest time that a tensor can be away and be back in time, by what the channels can still carry; nothing if it cannot be away while
    /// at least one kernel runs, or the host has no room for it.
    #[must_use]
    pub fn safe(ledger: &Ledger, period: Period, tier: Tier) -> Option<Self> {
        let Period { size, idle, .. } = period;
        let gone = ledger.fit(Direction::Out, tier, size, idle).ok()?;
        let back = ledger.fit(Direction::Back, tier, size, idle).ok()?;
        let housed = tier != Tier::Host || ledger.host_has(size, idle);
        (gone < back && housed).then_some(Self { period, tier, clean: false, saved: 0, gone, back })
    }
    /// The kernels during which it can be written.
    #[must_use]
    pub fn out(&self, kernels: u32) -> Span {
        let idle = self.period.idle;
        Span { from: (idle.from + kernels - self.saved) % kernels, len: idle.len + self.saved }
    }
    /// The kernels during which its memory is free.
    #[must_use]
    pub fn free(&self, kernels: u32) -> Span {
        self.period.idle.part(self.gone, self.back, kernels)
    }
    /// Takes what it needs of the channels, as far as there is any, and frees its memory. Its place on the host is for the planner to take.
    pub fn book(&self, ledger: &mut Ledger) {
        let Period { size, idle, .. } = self.period;
        if !self.clean {
            // What finds no room goes late: the planner has weighed that.
            let _late = ledger.book(Direction::Out, self.tier, size, self.out(ledger.kernels()));
        }
        let home = idle.part(self.back, idle.len, ledger.kernels());
        let _late = ledger.book(Direction::Back, self.tier, size, home);
        ledger.release(size, self.free(ledger.kernels()));
    }
}

/// Begins fetches earlier, in the order in which they are due, each as long as memory stays below `line` and it is out by then; it stays away for
/// at least one kernel.
///
/// `floor` is the first kernel of its period in which an absence may begin to end.
pub fn eager(ledger: &mut Ledger, absences: &mut [Absence], line: Bytes, floor: impl Fn(&Absence) -> u32) {
    let kernels = ledger.kernels();
    absences.sort_by_key(|absence| (absence.period.idle.from + absence.back) % kernels);
    for absence in absences {
        let Period { size, idle, .. } = absence.period;
        let least = floor(absence).max(absence.gone).max(1);
        let fits = |offset: u32| {
            let kernel = (idle.from + offset) % kernels;
            ledger.resident()[kernel as usize] + size <= line
        };
        let late = absence.back;
        while absence.back > least && fits(absence.back - 1) {
            absence.back -= 1;
        }
        ledger.hold(size, idle.part(absence.back, late, kernels));
    }
}

/// The plan that these absences make; what stays over is counted against the whole GPU.
///
/// # Errors
/// [`Failure::Illegal`], which no planner should come to.
pub fn plan(program: &Program, ledger: &Ledger, absences: &[Absence]) -> Outcome {
    let kernels = ledger.kernels();
    let moves = absences.iter().flat_map(|absence| {
        let Period { tensor, idle, .. } = absence.period;
        let saved = !absence.clean && absence.saved > 0;
        let kind = if absence.clean || saved { Kind::Drop } else { Kind::Evict(absence.tier) };
        let at = |offset: u32| (idle.from + offset) % kernels;
        let save = Move { gap: absence.out(kernels).from, tensor, kind: Kind::Save(absence.tier) };
        let turns = [Move { gap: at(0), tensor, kind }, Move { gap: at(absence.back), tensor, kind: Kind::Prefetch }];
        saved.then_some(save).into_iter().chain(turns)
    });
    let schedule = Schedule::new(program, moves.collect()).map_err(Failure::Illegal)?;
    Ok(Plan { schedule, over: ledger.over(ledger.tiers().gpu) })
}
