//! What a kernel's faults are taken to cost beside its own time.
//!
//! From what was measured with nothing there, with the inputs there, and with all there follows how fast bytes come when they fault, inputs and outputs each for
//! themselves. From the SSD they come slower, by as much as a fault there takes longer ([`SYSTEM`], [`SSD`]); nothing is faster than the link or the SSD, and what
//! the SSD takes of the link is missing to the host. What comes from the SSD and what comes from the host comes at the same time.
//!
//! As published, all three times are cut to whole seconds first. So almost all are equal, what faults is as fast as the link, and where one is above a second
//! the difference to the next is a second or none.

use super::World;
use super::memory::Away;
use deepum_core::units::{Bytes, Nanos};
use deepum_trace::g10::FaultCost;

/// What the system takes for a fault, and the SSD beside it: microseconds.
const SYSTEM: f64 = 45.0;
const SSD: f64 = 20.0;
/// As fast as what is not known to be slower: bytes per second.
const UNKNOWN: f64 = 1_063_004_400e3;
const SECOND: u64 = 1_000_000_000;

/// Of a kernel's inputs, or of its outputs: how much there is, and how much of that faulted from where.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Faulted {
    pub(super) all: Bytes,
    pub(super) from: [Bytes; 3],
}

impl Faulted {
    pub(super) fn bytes(self) -> Bytes {
        self.from.into_iter().fold(Bytes::ZERO, |sum, of| sum + of)
    }
}

/// See the module. `faulted`: inputs, outputs.
pub(super) fn of(faulted: [Faulted; 2], time: Nanos, cost: FaultCost, world: &World) -> Nanos {
    let [plain, outputs, both] = [time, time + cost.output, time + cost.output + cost.input].map(|time| {
        let cut = if world.right.faults { 0 } else { time.0 % SECOND };
        Nanos(time.0 - cut)
    });
    let (link, ssd) = (world.link.0 as f64, world.ssd.0 as f64);
    let measured = [both.saturating_sub(outputs), outputs.saturating_sub(plain)];
    let mut rates = [0.0; 2];
    let mut ssd_rates = [0.0; 2];
    for (at, of) in faulted.iter().enumerate() {
        rates[at] = if measured[at] == Nanos::ZERO { UNKNOWN } else { of.all.0 as f64 / seconds(measured[at]) };
        if of.from[Away::Ssd as usize] > Bytes::ZERO {
            ssd_rates[at] = (rates[at] * SYSTEM / (SYSTEM + SSD)).min(ssd);
        }
    }
    let taken = ssd_rates[0].max(ssd_rates[1]);
    let (mut from_ssd, mut from_host) = (0.0, 0.0);
    for (at, of) in faulted.iter().enumerate() {
        let [new, host, on_ssd] = of.from.map(|bytes| bytes.0 as f64);
        let new = if world.right.new { 0.0 } else { new };
        from_host += over(host + new, rates[at].min(link - taken));
        from_ssd += over(on_ssd, ssd_rates[at]);
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a sum of times of at most hours")]
    Nanos((f64::max(from_ssd, from_host) * SECOND as f64) as u64)
}

fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / SECOND as f64
}

fn over(bytes: f64, rate: f64) -> f64 {
    if bytes > 0.0 { bytes / rate } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::Right;

    const GB: u64 = 1_000_000_000;

    /// Inputs of 6 GB and outputs of 3, on a link of 6 GB/s and an SSD of 2; the kernel takes 0.9 s, 1.4 s if outputs fault, 3.4 s if all does. In seconds.
    fn cost(inputs: [u64; 3], outputs: [u64; 3], right: Right) -> f64 {
        let world =
            World { link: crate::tiers::Rate(6 * GB), ssd: crate::tiers::Rate(2 * GB), right, ..World::PUBLISHED };
        let faulted = |all, from: [u64; 3]| Faulted { all: Bytes(all * GB), from: from.map(|gb| Bytes(gb * GB)) };
        let measured = FaultCost { input: Nanos(2 * GB), output: Nanos(GB / 2) };
        let cost = of([faulted(6, inputs), faulted(3, outputs)], Nanos(GB * 9 / 10), measured, &world);
        (cost.0 as f64 / 1e6).round() / 1e3
    }

    #[test]
    fn measured_times_are_cut_to_whole_seconds_unless_put_right() {
        let as_measured = Right { faults: true, ..Right::default() };
        // Cut: 0, 1 and 3 s. Inputs come with 6 GB in 2 s, outputs with 3 GB in 1 s. All of the inputs and a third of the outputs: 2 + 1/3 s.
        assert_eq!(cost([0, 6, 0], [0, 1, 0], Right::default()), 2.333);
        // As measured outputs take 0.5 s, which is as fast as the link.
        assert_eq!(cost([0, 6, 0], [0, 1, 0], as_measured), 2.167);
    }

    #[test]
    fn the_ssd_is_slower_and_takes_of_the_link() {
        // 3 GB/s of inputs by 45/65, but at most 2: 2 GB take 1 s. Beside it the host's come with 3 GB/s, of which the link has 4: 4 GB take 1.333 s.
        assert_eq!(cost([0, 4, 2], [0, 0, 0], Right::default()), 1.333);
        assert_eq!(cost([0, 1, 5], [0, 0, 0], Right::default()), 2.5);
    }

    #[test]
    fn what_is_new_costs_as_if_it_came_unless_put_right() {
        let new_is_free = Right { new: true, ..Right::default() };
        assert_eq!(cost([0, 0, 0], [3, 0, 0], Right::default()), 1.0);
        assert_eq!(cost([0, 0, 0], [3, 0, 0], new_is_free), 0.0);
    }
}
