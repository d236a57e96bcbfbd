//! The four channels: one for each direction and tier, each with a queue and at most one transfer under way.
//!
//! Work is counted in byte-nanoseconds per second, so that nothing is rounded before a transfer ends: a transfer of `b` bytes needs `b` times
//! 10^9 of them, and gets its rate for each nanosecond. While the SSD moves bytes in a direction, the link has that much less for the host's.

use super::super::ledger::Direction;
use crate::tiers::{Tier, Tiers};
use deepum_core::units::{Bytes, Nanos};
use deepum_trace::program::TensorId;
use std::collections::VecDeque;

/// A transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Job {
    pub tensor: TensorId,
    pub size: Bytes,
}

#[derive(Clone, Copy, Debug)]
struct Active {
    job: Job,
    latency: Nanos,
    work: u128,
}

#[derive(Clone, Default, Debug)]
struct Channel {
    rate: u64,
    latency: Nanos,
    queue: VecDeque<Job>,
    active: Option<Active>,
}

#[derive(Clone, Debug)]
pub(super) struct Channels {
    pub now: Nanos,
    /// By direction, then tier.
    channels: [[Channel; 2]; 2],
}

const WAYS: [(Direction, Tier); 4] = [
    (Direction::Out, Tier::Host),
    (Direction::Out, Tier::Ssd),
    (Direction::Back, Tier::Host),
    (Direction::Back, Tier::Ssd),
];

impl Channels {
    pub fn new(tiers: &Tiers) -> Self {
        let mut channels: [[Channel; 2]; 2] = Default::default();
        for (to, tier) in WAYS {
            let pipe = tiers.to(tier).map(|way| if to == Direction::Out { way.out } else { way.back });
            if let Some(pipe) = pipe {
                // A pipe that carries nothing would never end a transfer: a byte a second is as good as that.
                let most = if to == Direction::Out { tiers.link.out } else { tiers.link.back };
                let rate = pipe.rate.0.min(most.rate.0).max(1);
                channels[to as usize][tier as usize] = Channel { rate, latency: pipe.latency, ..Channel::default() };
            }
        }
        Self { now: Nanos::ZERO, channels }
    }

    pub fn push(&mut self, to: Direction, tier: Tier, job: Job, first: bool) {
        let queue = &mut self.channels[to as usize][tier as usize].queue;
        if first { queue.push_front(job) } else { queue.push_back(job) }
    }
    /// What waits at the head of a channel that is free.
    pub fn waiting(&self, to: Direction, tier: Tier) -> Option<Job> {
        let channel = &self.channels[to as usize][tier as usize];
        if channel.active.is_some() { None } else { channel.queue.front().copied() }
    }
    /// Begins what waits there.
    pub fn begin(&mut self, to: Direction, tier: Tier) {
        let channel = &mut self.channels[to as usize][tier as usize];
        if let Some(job) = channel.queue.pop_front() {
            let work = u128::from(job.size.0) * 1_000_000_000;
            channel.active = Some(Active { job, latency: channel.latency, work });
        }
    }
    /// Where a tensor that leaves, or waits for it, is going.
    pub fn leaving(&self, tensor: TensorId) -> Option<Tier> {
        [Tier::Host, Tier::Ssd].into_iter().find(|&tier| {
            let channel = &self.channels[Direction::Out as usize][tier as usize];
            channel
                .active
                .iter()
                .map(|active| active.job)
                .chain(channel.queue.iter().copied())
                .any(|job| job.tensor == tensor)
        })
    }
    /// Puts the fetch of a tensor at the head of its queue.
    pub fn first(&mut self, tensor: TensorId) {
        for channel in &mut self.channels[Direction::Back as usize] {
            if let Some(at) = channel.queue.iter().position(|job| job.tensor == tensor)
                && let Some(job) = channel.queue.remove(at)
            {
                channel.queue.push_front(job);
            }
        }
    }
    /// Whether no transfer is under way.
    pub fn idle(&self) -> bool {
        self.channels.iter().flatten().all(|channel| channel.active.is_none())
    }

    /// What a channel moves per nanosecond now.
    fn pace(&self, to: Direction, tier: Tier) -> u128 {
        let [host, ssd] = &self.channels[to as usize];
        let moving = |channel: &Channel| channel.active.is_some_and(|active| active.latency == Nanos::ZERO);
        u128::from(match tier {
            Tier::Ssd => ssd.rate,
            Tier::Host if moving(ssd) => host.rate.saturating_sub(ssd.rate),
            Tier::Host => host.rate,
        })
    }

    /// Lets time pass until a transfer ends or has had its latency, or to `until` if that comes first. What ended, out before back.
    pub fn advance(&mut self, until: Option<Nanos>) -> Vec<(Direction, Tier, Job)> {
        let due = |(to, tier): (Direction, Tier)| {
            let active = self.channels[to as usize][tier as usize].active?;
            let pace = self.pace(to, tier);
            match active.latency {
                Nanos::ZERO if active.work == 0 => Some(0),
                Nanos::ZERO if pace == 0 => None,
                Nanos::ZERO => Some(u64::try_from(active.work.div_ceil(pace)).unwrap_or(u64::MAX)),
                latency => Some(latency.0),
            }
        };
        let limit = until.map(|until| until.saturating_sub(self.now).0);
        let Some(passes) = WAYS.into_iter().filter_map(due).chain(limit).min() else { return Vec::new() };
        let mut ended = Vec::new();
        let paces = WAYS.map(|(to, tier)| self.pace(to, tier));
        for ((to, tier), pace) in WAYS.into_iter().zip(paces) {
            let channel = &mut self.channels[to as usize][tier as usize];
            let Some(active) = &mut channel.active else { continue };
            if active.latency > Nanos::ZERO {
                active.latency = active.latency.saturating_sub(Nanos(passes));
            } else {
                active.work = active.work.saturating_sub(pace * u128::from(passes));
            }
            if active.latency == Nanos::ZERO && active.work == 0 {
                ended.push((to, tier, active.job));
                channel.active = None;
            }
        }
        self.now += Nanos(passes);
        ended
    }
}
