//! The account that all planners share: bytes resident while each kernel runs, and bytes that each channel can still carry meanwhile.
//!
//! Problem: whether a tensor can be away for a while depends on what the channels carry already; how much that helps, on what is resident then.
//! Idea: one bucket per kernel. A kernel that takes 2 ms lets a channel of 3 GB/s carry 6 MB; a transfer takes from bucket after bucket what is
//! left there, with its latency as further bytes. What leaves goes as early as possible, what comes back comes as late as possible: the one
//! frees memory soonest, the other fills it latest. A transfer begins and ends at gaps, so an answer errs by less than a kernel at either end, and
//! never in favour of the plan.
//!
//! Invariants: no bucket carries more than its kernel's time allows, and the link carries what passes it to and from the SSD, too; a query
//! changes nothing; what is booked is what was asked for, or all there was in the span.
//!
//! Costs: a query walks the buckets it uses, so at most the span; the 2,300 kernels of a large network take microseconds.

use super::vitality::{Span, count};
use crate::tiers::{Pipe, Tier, Tiers};
use deepum_core::units::{Bytes, Nanos};
use deepum_trace::program::Program;

/// Which way a transfer goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Off the GPU.
    Out,
    /// Onto the GPU.
    Back,
}

/// This much of a transfer found no room in the span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Short(pub Bytes);

/// See the module.
#[derive(Clone, Debug)]
pub struct Ledger {
    tiers: Tiers,
    kernels: u32,
    resident: Vec<Bytes>,
    /// On the host, by kernel.
    hosted: Vec<Bytes>,
    /// By direction: what the link and the SSD can carry yet, by kernel.
    link: [Vec<Bytes>; 2],
    ssd: [Vec<Bytes>; 2],
}

impl Ledger {
    /// With everything that lives resident, nothing booked, and kernels that take `times`.
    #[must_use]
    pub fn new(program: &Program, tiers: &Tiers, times: &[Nanos]) -> Self {
        let room = |pipe: Pipe| times.iter().map(|&time| pipe.rate.bytes(time)).collect();
        let ssd = tiers.ssd.map_or_else(Default::default, |ssd| [room(ssd.out), room(ssd.back)]);
        Self {
            tiers: *tiers,
            kernels: count(program),
            resident: program.live(),
            hosted: vec![Bytes::ZERO; times.len()],
            link: [room(tiers.link.out), room(tiers.link.back)],
            ssd,
        }
    }
    /// How many kernels there are.
    #[must_use]
    pub fn kernels(&self) -> u32 {
        self.kernels
    }
    /// Memory and links.
    #[must_use]
    pub fn tiers(&self) -> &Tiers {
        &self.tiers
    }
    /// Bytes resident while each kernel runs.
    #[must_use]
    pub fn resident(&self) -> &[Bytes] {
        &self.resident
    }
    /// By how much the fullest kernel is above `line`.
    #[must_use]
    pub fn over(&self, line: Bytes) -> Bytes {
        self.resident.iter().map(|held| held.saturating_sub(line)).max().unwrap_or_default()
    }
    /// Whether a kernel of the span is above `line`.
    #[must_use]
    pub fn is_over(&self, line: Bytes, span: Span) -> bool {
        span.kernels(self.kernels).any(|kernel| self.resident[kernel] > line)
    }
    /// Not resident in these kernels.
    pub fn release(&mut self, size: Bytes, span: Span) {
        for kernel in span.kernels(self.kernels) {
            self.resident[kernel] -= size;
        }
    }
    /// Resident in these kernels again.
    pub fn hold(&mut self, size: Bytes, span: Span) {
        for kernel in span.kernels(self.kernels) {
            self.resident[kernel] += size;
        }
    }
    /// Whether host memory has room for this in all kernels of the span.
    #[must_use]
    pub fn host_has(&self, size: Bytes, span: Span) -> bool {
        span.kernels(self.kernels).all(|kernel| self.hosted[kernel].0.saturating_add(size.0) <= self.tiers.host.0)
    }
    /// Takes host memory in all kernels of the span.
    pub fn host_takes(&mut self, size: Bytes, span: Span) {
        for kernel in span.kernels(self.kernels) {
            self.hosted[kernel] += size;
        }
    }

    /// How a transfer fits into the span: kernels from its beginning until it is *out*; or kernels from there until it has to begin in order to
    /// be *back* by the end.
    ///
    /// # Errors
    /// [`Short`] of this much; of all, if there is no such tier.
    pub fn fit(&self, to: Direction, tier: Tier, size: Bytes, span: Span) -> Result<u32, Short> {
        self.walk(to, tier, size, span, |_, _| ())
    }
    /// Books what [`Ledger::fit`] finds, or all there is.
    ///
    /// # Errors
    /// As [`Ledger::fit`]; what there was is taken then.
    pub fn book(&mut self, to: Direction, tier: Tier, size: Bytes, span: Span) -> Result<u32, Short> {
        let mut taken = Vec::new();
        let fits = self.walk(to, tier, size, span, |kernel, bytes| taken.push((kernel, bytes)));
        for (kernel, bytes) in taken {
            self.link[to as usize][kernel] -= bytes;
            if tier == Tier::Ssd {
                self.ssd[to as usize][kernel] -= bytes;
            }
        }
        fits
    }
    /// Whether a channel carries nothing more in the kernels that a transfer would take if it went at once and alone: the channel is
    /// saturated there.
    #[must_use]
    pub fn saturated(&self, to: Direction, tier: Tier, size: Bytes, times: &[Nanos], span: Span) -> bool {
        let Some(pipe) = self.pipe(to, tier) else { return true };
        let mut left = pipe.time(size);
        for kernel in span.kernels(self.kernels) {
            if self.room(to, tier, kernel) > Bytes::ZERO {
                return false;
            }
            left = left.saturating_sub(times[kernel]);
            if left == Nanos::ZERO {
                break;
            }
        }
        true
    }

    fn pipe(&self, to: Direction, tier: Tier) -> Option<Pipe> {
        let duplex = self.tiers.to(tier)?;
        Some(match to {
            Direction::Out => duplex.out,
            Direction::Back => duplex.back,
        })
    }
    fn room(&self, to: Direction, tier: Tier, kernel: usize) -> Bytes {
        let link = self.link[to as usize][kernel];
        match tier {
            Tier::Host => link,
            Tier::Ssd => link.min(self.ssd[to as usize][kernel]),
        }
    }
    fn walk(
        &self,
        to: Direction,
        tier: Tier,
        size: Bytes,
        span: Span,
        mut takes: impl FnMut(usize, Bytes),
    ) -> Result<u32, Short> {
        let pipe = self.pipe(to, tier).ok_or(Short(size))?;
        let mut left = Bytes(size.0.saturating_add(pipe.rate.bytes(pipe.latency).0));
        for step in 0..span.len {
            let offset = if to == Direction::Out { step } else { span.len - 1 - step };
            let kernel = ((span.from + offset) % self.kernels) as usize;
            let taken = self.room(to, tier, kernel).min(left);
            if taken > Bytes::ZERO {
                takes(kernel, taken);
                left -= taken;
            }
            if left == Bytes::ZERO {
                return Ok(if to == Direction::Out { offset + 1 } else { offset });
            }
        }
        Err(Short(left.min(size)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::tests::{duplex, global, kernel, program, tiers};
    use crate::planner::vitality::ideal_times;
    use crate::tiers::Rate;

    /// Five kernels of 1, 2, 4, 2 and 1 s; a link of 10 B/s out and 20 back; an SSD of 4 B/s out and 5 back.
    fn example() -> (Ledger, Vec<Nanos>) {
        let program =
            program([1, 2, 4, 2, 1].map(|time| kernel(time * 1_000_000_000, &[0], &[])).into(), vec![global(7)]);
        let tiers = Tiers { link: duplex(10, 20), ssd: Some(duplex(4, 5)), host: Bytes(100), ..tiers(100) };
        let times = ideal_times(&program);
        (Ledger::new(&program, &tiers, &times), times)
    }
    const OVER: Span = Span { from: 3, len: 4 };

    #[test]
    fn what_leaves_goes_early_and_what_comes_back_comes_late() {
        let (mut ledger, _) = example();
        // Kernels 3, 4, 0, 1 take 2 + 1 + 1 + 2 s: 20 + 10 + 10 + 20 B out, so 25 B are out after two of them.
        assert_eq!(ledger.fit(Direction::Out, Tier::Host, Bytes(25), OVER), Ok(2));
        assert_eq!(ledger.fit(Direction::Out, Tier::Host, Bytes(61), OVER), Err(Short(Bytes(1))));
        // Back: 40 + 20 + 20 + 40 B. 41 B take all of kernel 1 and some of kernel 0, the third.
        assert_eq!(ledger.book(Direction::Back, Tier::Host, Bytes(41), OVER), Ok(2));
        // 19 B are left in kernel 0.
        assert_eq!(ledger.fit(Direction::Back, Tier::Host, Bytes(19), OVER), Ok(2));
        assert_eq!(ledger.fit(Direction::Back, Tier::Host, Bytes(20), OVER), Ok(1));
        assert_eq!(ledger.fit(Direction::Out, Tier::Host, Bytes(25), OVER), Ok(2), "the other direction is another");
    }

    #[test]
    fn the_link_carries_what_the_ssd_gets() {
        let (mut ledger, times) = example();
        let two = Span { from: 0, len: 2 };
        // 4 + 8 B to the SSD; 10 + 20 over the link.
        assert_eq!(ledger.book(Direction::Out, Tier::Ssd, Bytes(12), two), Ok(2));
        assert_eq!(ledger.fit(Direction::Out, Tier::Host, Bytes(19), two), Err(Short(Bytes(1))));
        assert_eq!(ledger.fit(Direction::Out, Tier::Ssd, Bytes(1), two), Err(Short(Bytes(1))));
        // Alone 12 B would take 3 s: just kernels 0 and 1, which are full. 13 B reach into kernel 2.
        let all = Span { from: 0, len: 5 };
        assert!(ledger.saturated(Direction::Out, Tier::Ssd, Bytes(12), &times, all));
        assert!(!ledger.saturated(Direction::Out, Tier::Ssd, Bytes(13), &times, all));
        // The other way round: a full link lets nothing to the SSD.
        assert_eq!(ledger.book(Direction::Back, Tier::Host, Bytes(60), two), Ok(0));
        assert_eq!(ledger.fit(Direction::Back, Tier::Ssd, Bytes(1), two), Err(Short(Bytes(1))));
    }

    #[test]
    fn a_latency_takes_the_time_of_so_many_bytes() {
        let (ledger, _) = example();
        let mut slow = *ledger.tiers();
        slow.link.out = Pipe { rate: Rate(10), latency: Nanos(500_000_000) };
        let ledger = Ledger { tiers: slow, ..ledger };
        let first = Span { from: 0, len: 1 };
        assert_eq!(ledger.fit(Direction::Out, Tier::Host, Bytes(5), first), Ok(1));
        assert_eq!(ledger.fit(Direction::Out, Tier::Host, Bytes(6), first), Err(Short(Bytes(1))));
    }

    #[test]
    fn memory_is_counted_by_kernel() {
        let (mut ledger, _) = example();
        ledger.release(Bytes(7), Span { from: 4, len: 2 });
        assert_eq!(ledger.resident(), [0, 7, 7, 7, 0].map(Bytes));
        ledger.hold(Bytes(7), Span { from: 0, len: 1 });
        assert_eq!((ledger.over(Bytes(5)), ledger.is_over(Bytes(5), Span { from: 4, len: 1 })), (Bytes(2), false));
        ledger.host_takes(Bytes(60), Span { from: 4, len: 2 });
        assert!(ledger.host_has(Bytes(41), Span { from: 1, len: 3 }) && !ledger.host_has(Bytes(41), OVER));
    }
}
