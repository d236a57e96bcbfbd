//! G10 as its authors' code plans (artifact, commit de2c8c6, `src/analysis.cc`): what the published figures are of.
//!
//! Problem: played in the published world, the plan of the paper ([`crate::planner::g10`]) and that of the code are not the same.
//! Idea: the code's rules, with its numbers:
//!
//! | | here |
//! | --- | --- |
//! | memory | intermediates have theirs as long before their first use as mapping it takes ([`mapped_from`]); the first tensor counts twice, and always |
//! | who is next | size, times the time that the GPU's memory is exceeded while it is away; away is from the middle of one transfer to the middle of the other, over the SSD |
//! | until | nothing is above [`LINE`] of the GPU's memory |
//! | where to | to the SSD if idle for [`SLACK`] of a transfer there; to the host, if so for one there; else it stays |
//! | or rather | to the host if the SSD is saturated in all kernels that its transfer would take alone, but the last: so whatever leaves within one kernel goes to the host |
//! | over the end of the iteration | to the SSD as above, and fetched [`EARLY`] of a transfer before the use: nobody asks what the channels carry, and nothing is booked |
//! | fetches | as late as the channels allow; then those within the iteration earlier, in the order in which they are due, as far as memory allows |
//!
//! A slip of an index counts the second iteration's times one kernel late, and the first kernel's as all there is, the other way: who is idle over the
//! end while the GPU's memory is exceeded in the first kernel is never chosen.
//!
//! Not here: where nobody is left who would relieve the GPU, and it is not enough, the code goes on with whoever its sorting leaves in front. We end there.
//! It matters where memory is tight and little can be moved in time: BERT-512, ViT-1024 and ViT-1280 of Figure 15.

mod channels;

use super::World;
use super::guide::mapped_from;
use crate::planner::schedule::{Kind, Move, Outcome, Plan, Schedule, TooLarge, fitting};
use crate::planner::vitality::{Period, ideal_times, periods};
use crate::tiers::Tier;
use channels::Channels;
pub(super) use channels::as_binary;
use deepum_core::units::{Bytes, Nanos};
use deepum_trace::program::{Life, Program};
use std::cmp::Reverse;
use std::ops::Range;

/// Percent of the GPU's memory.
const LINE: u64 = 99;
/// Percent of [`Direct::line`].
const HILL: u64 = 90;
/// Percent of a transfer's time.
const SLACK: u64 = 250;
/// Percent of a transfer's time.
const EARLY: u64 = 150;
/// What each transfer takes beside its bytes, and one to or from the SSD beside that.
const SYSTEM: Nanos = Nanos::micros(45);
const SSD: Nanos = Nanos::micros(20);

/// Plans one iteration.
///
/// # Errors
/// [`Failure::TooLarge`](crate::planner::schedule::Failure::TooLarge).
pub fn plan(program: &Program, world: &World) -> Outcome {
    fitting(program, world.gpu)?;
    let periods = periods(program, &ideal_times(program));
    let mut planner = Planner::new(program, world, percent(world.gpu.0, LINE));
    planner.choose(periods);
    let moves = planner.moves();
    let over = planner.resident.iter().map(|held| held.saturating_sub(world.gpu)).max().unwrap_or_default();
    Ok(Plan { schedule: Schedule::new(program, moves)?, over })
}

/// How it plans for G10-GDS and G10-Host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Direct {
    /// Whether the host is used: G10-Host.
    pub host: bool,
    /// Instead of [`LINE`], in ten thousandths.
    pub line: u64,
}

impl Direct {
    /// As for all networks but one.
    pub const LINE: u64 = 10_500;
    /// As for ViT with G10-Host.
    pub const VIT: u64 = 12_567;
}

/// Plans one iteration for [`super::whole::direct`]. In the end those leave for the SSD, too, and are fetched on demand, that are idle over the kernel in which most lived, the largest
/// times idle time first, until there is less than [`HILL`] of the line. So not all that leaves comes back.
///
/// # Errors
/// [`TooLarge`].
pub fn plan_direct(program: &Program, world: &World, direct: Direct) -> Result<Vec<Move>, TooLarge> {
    fitting(program, world.gpu)?;
    let world = World { host: if direct.host { world.host } else { Bytes::ZERO }, ..*world };
    let periods = periods(program, &ideal_times(program));
    let mut planner = Planner::new(program, &world, percent(world.gpu.0, direct.line).map(|line| line / 100));
    let hill = (0..planner.kernels).max_by_key(|kernel| (planner.resident[*kernel], Reverse(*kernel)));
    planner.choose(periods.clone());
    let mut moves = planner.moves();
    if let Some(hill) = hill {
        planner.lower(hill, periods, &mut moves);
    }
    moves.sort_by_key(|at| at.gap);
    Ok(moves)
}

/// A tensor that leaves.
#[derive(Clone, Copy, Debug)]
struct Away {
    period: Period,
    tier: Tier,
    /// In which kernel it is out, and with which its fetch begins; counted on over the end of the iteration.
    out: usize,
    back: usize,
}

struct Planner<'a> {
    world: &'a World,
    line: Bytes,
    kernels: usize,
    /// When each kernel begins, of two iterations.
    begins: Vec<Nanos>,
    resident: Vec<Bytes>,
    hosted: Vec<Bytes>,
    out: Channels,
    back: Channels,
    away: Vec<Away>,
}

impl<'a> Planner<'a> {
    fn new(program: &Program, world: &'a World, line: Option<u64>) -> Self {
        let times = ideal_times(program);
        let mut begins = vec![Nanos::ZERO];
        for &time in times.iter().chain(&times) {
            begins.push(begins[begins.len() - 1] + time);
        }
        let mut resident = vec![Bytes::ZERO; times.len()];
        for id in program.ids() {
            let size = program.tensor(id).size;
            let held = match (program.tensor(id).life, program.span(id)) {
                _ if id.0 == 0 => 0..times.len(),
                (Life::Global, _) => 0..times.len(),
                (Life::Intermediate, Some(span)) => {
                    mapped_from(&begins, *span.start() as usize, size)..*span.end() as usize + 1
                }
                (Life::Intermediate, None) => 0..0,
            };
            let counted = if id.0 == 0 { size + size } else { size };
            resident[held].iter_mut().for_each(|resident| *resident += counted);
        }
        let channels = Channels::new(world.link, world.ssd, &times);
        Self {
            world,
            line: line.map_or(world.gpu, Bytes),
            kernels: times.len(),
            begins,
            hosted: vec![Bytes::ZERO; times.len()],
            resident,
            out: channels.clone(),
            back: channels,
            away: Vec::new(),
        }
    }

    fn loops(&self, period: Period) -> bool {
        span(period).end >= self.kernels
    }
    fn fits(&self, mut kernels: Range<usize>) -> bool {
        kernels.all(|kernel| self.resident[kernel % self.kernels] <= self.line)
    }
    /// What a transfer takes that has the channel alone.
    fn alone(&self, tier: Tier, size: Bytes) -> Nanos {
        let (rate, latency) = match tier {
            Tier::Ssd => (self.world.ssd, SYSTEM + SSD),
            Tier::Host => (self.world.link, SYSTEM),
        };
        Nanos(as_binary(rate).time(size).0.saturating_add(latency.0))
    }
    /// The kernel that runs at this time.
    fn at(&self, time: Nanos) -> usize {
        self.begins.partition_point(|begins| *begins <= time).saturating_sub(1)
    }

    /// Takes who is next, until nothing is above the line.
    fn choose(&mut self, mut periods: Vec<Period>) {
        while !self.fits(0..self.kernels) {
            let pressed = self.pressed();
            let key = |(index, period): (usize, &Period)| {
                let worth = u128::from(period.size.0) * u128::from(period.time.0);
                (self.rank(&pressed, *period), worth, Reverse(index))
            };
            let Some((1.., _, Reverse(index))) = periods.iter().enumerate().map(key).max() else { break };
            let period = periods.swap_remove(index);
            if period.idle.len == 1 || self.fits(span(period)) {
                continue;
            }
            let long = |tier: &Tier| {
                let one = percent(self.alone(*tier, period.size).0, SLACK);
                one.is_some_and(|slack| period.time.0 > slack)
            };
            match [Tier::Ssd, Tier::Host].into_iter().find(long) {
                Some(tier) if self.loops(period) => self.leave_blindly(period, tier),
                Some(tier) => self.leave(period, tier),
                None => {}
            }
        }
    }

    /// For how many nanoseconds the GPU's memory is exceeded before each kernel of two iterations begins, with the slip.
    fn pressed(&self) -> Vec<i128> {
        let took = |kernel: usize| i128::from((self.begins[kernel + 1] - self.begins[kernel]).0);
        let all = -i128::from(self.begins[self.kernels].0);
        let times = (0..self.kernels).map(took).chain([all]).chain((0..self.kernels - 1).map(took));
        let mut sums = vec![0];
        for (kernel, time) in times.enumerate() {
            let over = self.resident[kernel % self.kernels] > self.world.gpu;
            sums.push(sums[kernel] + if over { time } else { 0 });
        }
        sums
    }

    fn rank(&self, pressed: &[i128], period: Period) -> i128 {
        let Range { start, end } = span(period);
        let half = Bytes(period.size.0 / 2);
        let (from, until) = match self.loops(period) {
            true => (start, end),
            false => {
                let out = self.out.done(Tier::Ssd, half, start..self.kernels);
                (out, self.back.done(Tier::Ssd, half, (0..end).rev()))
            }
        };
        if from < until { i128::from(period.size.0) * (pressed[until] - pressed[from]) } else { 0 }
    }

    fn host_has(&self, size: Bytes) -> bool {
        self.hosted.iter().all(|hosted| *hosted + size <= self.world.host)
    }
    fn host_takes(&mut self, period: Period) {
        for kernel in span(period) {
            self.hosted[kernel % self.kernels] += period.size;
        }
    }

    fn leave(&mut self, period: Period, long_for: Tier) {
        let (Range { start, end }, size) = (span(period), period.size);
        let tier = match long_for {
            Tier::Host if !self.host_has(size) => return,
            Tier::Host => Tier::Host,
            Tier::Ssd => {
                let alone = self.at(self.begins[start] + self.alone(Tier::Ssd, size));
                if self.out.saturated(start..alone) && self.host_has(size) { Tier::Host } else { Tier::Ssd }
            }
        };
        let out = self.out.done(tier, size, start..self.kernels);
        let back = self.back.done(tier, size, (0..end).rev());
        if back > out {
            self.out.book(tier, size, start);
            self.back.book(tier, size, back);
            self.goes(Away { period, tier, out, back });
        }
        // What is long enough for the host alone takes its place there even if it stays.
        if tier == Tier::Host && (back > out || long_for == Tier::Host) {
            self.host_takes(period);
        }
    }

    fn leave_blindly(&mut self, period: Period, tier: Tier) {
        if tier == Tier::Host {
            if !self.host_has(period.size) {
                return;
            }
            self.host_takes(period);
        }
        let (Range { start, end }, one) = (span(period), self.alone(tier, period.size));
        let out = self.at(self.begins[start] + one);
        let early = percent(one.0, EARLY).map_or(Nanos(u64::MAX), Nanos);
        let back = self.at(self.begins[end].saturating_sub(early));
        if back > start {
            self.goes(Away { period, tier, out, back });
        }
    }

    fn goes(&mut self, away: Away) {
        for kernel in away.out + 1..away.back {
            self.resident[kernel % self.kernels] -= away.period.size;
        }
        self.away.push(away);
    }

    /// All that is to be done, fetches moved forward.
    fn moves(&mut self) -> Vec<Move> {
        let mut all = std::mem::take(&mut self.away);
        all.sort_by_key(|away| away.back);
        let mut moves = Vec::new();
        for away in all {
            let gap = if self.loops(away.period) { away.back } else { self.earlier(away) };
            let (tensor, from) = (away.period.tensor, away.period.idle.from);
            let gap = u32::try_from(gap % self.kernels).unwrap_or(u32::MAX);
            moves.push(Move { gap: from, tensor, kind: Kind::Evict(away.tier) });
            moves.push(Move { gap, tensor, kind: Kind::Prefetch });
        }
        moves
    }

    /// Lets those leave, too, that are idle over this kernel.
    fn lower(&mut self, hill: usize, mut periods: Vec<Period>, moves: &mut Vec<Move>) {
        let leaves = |moves: &[Move], period: &Period| {
            let same = |at: &Move| (at.tensor, at.gap) == (period.tensor, period.idle.from);
            moves.iter().any(|at| same(at) && matches!(at.kind, Kind::Evict(_)))
        };
        periods.retain(|period| !self.loops(*period) && span(*period).contains(&hill) && !leaves(moves, period));
        periods.sort_by_key(|period| Reverse(u128::from(period.size.0) * u128::from(period.time.0)));
        let low = percent(self.line.0, HILL).map_or(self.line, Bytes);
        for period in periods {
            if self.resident[hill] < low {
                break;
            }
            moves.push(Move { gap: period.idle.from, tensor: period.tensor, kind: Kind::Evict(Tier::Ssd) });
            self.resident[hill] = self.resident[hill].saturating_sub(period.size);
        }
    }

    fn earlier(&mut self, Away { period, out, back, .. }: Away) -> usize {
        let mut gap = back;
        while gap > out + 1 && self.resident[gap - 1] < self.line {
            gap -= 1;
        }
        self.resident[gap..back].iter_mut().for_each(|resident| *resident += period.size);
        gap
    }
}

/// The kernels of a period, counted on over the end of the iteration.
fn span(period: Period) -> Range<usize> {
    let from = period.idle.from as usize;
    from..from + period.idle.len as usize
}

/// So many percent of it, if there is such a number.
fn percent(of: u64, percent: u64) -> Option<u64> {
    u64::try_from(u128::from(of) * u128::from(percent) / 100).ok()
}

#[cfg(test)]
mod tests;
