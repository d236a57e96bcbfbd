//! The link: queues, and batches that empty them in a fixed order.
//!
//! What leaves by order goes first; then what faulted, from the SSD, from the host, and new; then what was asked for ahead, likewise. Who comes and finds no room
//! makes it: somebody leaves in the same batch, and its bytes count outwards. Who leaves goes to host memory, and to the SSD when that is full, and is asked for
//! again at once if the kernel needs it.
//!
//! A batch takes [`BATCH`] over the link each way, the SSD's share of it from there and to there, and new memory as fast as it can be mapped ([`MAPPED`]). Bytes are
//! there the instant it ends.
//!
//! There are tens of millions of batches in an iteration, and most do just what the one before did. So after each one it is counted how often it could be made
//! again before any queue's head, any stay that is emptied, or any room comes to its end, and these are made as one. The sums are the same; only in one thing they
//! are not quite: bytes that would arrive by turns from two queues arrive one queue after the other, and leave in that order later.

use super::guide::{Guides, Happened};
use super::memory::{Away, Memory, Stamp};
use super::{BATCH, World};
use crate::planner::play::Played;
use crate::tiers::{Rate, Tier};
use deepum_core::units::{Bytes, Nanos};
use deepum_trace::program::TensorId;
use std::collections::VecDeque;

/// How fast new memory is mapped: a page of 4 KiB in 4 cycles of 1.2 GHz.
pub const MAPPED: Rate = Rate(1_228_800_000_000);
/// What one eviction is of.
const PAGE: Bytes = Bytes::kib(4);

/// A queue; in this order they are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lane {
    /// Off the GPU, by order.
    Out(Tier),
    /// Onto the GPU, as a kernel waits.
    Faulted(Away),
    /// Onto the GPU.
    Ahead(Away),
}

const LANES: usize = 8;

impl Lane {
    const fn index(self) -> usize {
        match self {
            Self::Out(tier) => tier as usize,
            Self::Faulted(from) => 2 + from as usize,
            Self::Ahead(from) => 5 + from as usize,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: TensorId,
    bytes: Bytes,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    /// What time it is.
    pub(super) now: Nanos,
    /// When the next batch ends.
    next: Nanos,
    period: Nanos,
    ssd: Bytes,
    mapped: Bytes,
    lanes: [VecDeque<Waiting>; LANES],
    /// Since anybody looked.
    pub(super) happened: Vec<Happened>,
}

impl Link {
    pub(super) fn new(world: &World) -> Self {
        let period = Nanos(world.link.time(BATCH).0.max(1));
        let pages = |bytes: Bytes| Bytes((bytes.0 / PAGE.0).max(1) * PAGE.0);
        let ssd = pages(world.ssd.bytes(period));
        Self {
            now: Nanos::ZERO,
            next: Nanos::ZERO,
            period,
            ssd,
            mapped: pages(MAPPED.bytes(period)),
            lanes: Default::default(),
            happened: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, lane: Lane, id: TensorId, bytes: Bytes) {
        if bytes > Bytes::ZERO {
            self.lanes[lane.index()].push_back(Waiting { id, bytes });
        }
    }
    /// Takes out what waits in a lane of this tensor: how much.
    pub(super) fn take_back(&mut self, lane: Lane, id: TensorId) -> Bytes {
        let mut bytes = Bytes::ZERO;
        self.lanes[lane.index()].retain(|waiting| {
            let stays = waiting.id != id;
            bytes += if stays { Bytes::ZERO } else { waiting.bytes };
            stays
        });
        bytes
    }
    /// Where so much would be out first: the host, to which the SSD leaves a part of the link, unless that is full.
    pub(super) fn soonest_out(&self, bytes: Bytes, memory: &Memory) -> Tier {
        let batches = |tier, batch: Bytes| {
            let before = self.lanes[Lane::Out(tier).index()].iter().map(|waiting| waiting.bytes.0).sum::<u64>();
            (before + bytes.0).div_ceil(batch.0.max(1))
        };
        let host = batches(Tier::Host, BATCH.saturating_sub(self.ssd));
        if memory.host_free() == Bytes::ZERO || batches(Tier::Ssd, self.ssd) < host { Tier::Ssd } else { Tier::Host }
    }
    /// Whether anything that faulted is not there yet.
    pub(super) fn owes(&self) -> bool {
        Away::ALL.iter().any(|from| !self.lanes[Lane::Faulted(*from).index()].is_empty())
    }

    /// Lets time pass to the end of a batch, or of several that do the same, or to `until` if that comes first. Whether anything moved.
    pub(super) fn carry(
        &mut self,
        until: Nanos,
        waits: bool,
        memory: &mut Memory,
        guided: &mut impl Guides,
        told: &mut Played,
    ) -> bool {
        let is_idle = self.lanes.iter().all(VecDeque::is_empty);
        if self.next >= until || is_idle {
            return !(waits && is_idle) && self.rest(until);
        }
        self.now = self.next;
        self.next += self.period;
        let before = (memory.free(), memory.host_free());
        let mut batch = Batch::new(self, 1, waits, memory, guided, told);
        batch.run();
        let flow = batch.flow;
        if flow.is_nothing() {
            return !waits && self.rest(until);
        }
        let most = (until.saturating_sub(self.now).0).div_ceil(self.period.0) - 1;
        let again = flow.again(self, memory, before).min(most);
        if again > 0 {
            let passes = Nanos(self.period.0 * again);
            self.now += passes;
            self.next += passes;
            Batch::new(self, again, waits, memory, guided, told).run();
        }
        true
    }

    /// Nothing moves until then.
    fn rest(&mut self, until: Nanos) -> bool {
        self.now = until;
        let missed = until.saturating_sub(self.next).0.div_ceil(self.period.0);
        self.next += Nanos(self.period.0 * missed);
        false
    }
}

/// What a batch took from where.
#[derive(Clone, Default, Debug)]
struct Flow {
    lanes: [Bytes; LANES],
    evicted: Vec<(Stamp, Bytes)>,
    /// Somebody's last byte went.
    ended: bool,
}

impl Flow {
    fn is_nothing(&self) -> bool {
        self.lanes.iter().all(|bytes| *bytes == Bytes::ZERO)
    }
    /// How often the same can happen again.
    fn again(&self, link: &Link, memory: &Memory, (free, host_free): (Bytes, Bytes)) -> u64 {
        let room = |before: Bytes, now: Bytes| match before.saturating_sub(now) {
            Bytes::ZERO if before == Bytes::ZERO && now > Bytes::ZERO => 0,
            Bytes::ZERO => u64::MAX,
            taken => now.0 / taken.0,
        };
        let lanes = self.lanes.iter().zip(&link.lanes).filter(|(used, _)| **used > Bytes::ZERO);
        let heads = lanes.map(|(used, lane)| lane.front().map_or(0, |head| head.bytes.0 / used.0));
        let stays = self.evicted.iter().map(|(stamp, bytes)| memory.rest(*stamp).0 / bytes.0);
        let rooms = [room(free, memory.free()), room(host_free, memory.host_free())];
        if self.ended { 0 } else { heads.chain(stays).chain(rooms).min().unwrap_or(0) }
    }
}

/// One batch, or some that do the same.
struct Batch<'a, G> {
    lanes: &'a mut [VecDeque<Waiting>; LANES],
    happened: &'a mut Vec<Happened>,
    waits: bool,
    memory: &'a mut Memory,
    guided: &'a mut G,
    told: &'a mut Played,
    /// What may still go.
    back: Bytes,
    back_ssd: Bytes,
    out: Bytes,
    out_ssd: Bytes,
    mapped: Bytes,
    page: Bytes,
    flow: Flow,
}

impl<'a, G: Guides> Batch<'a, G> {
    fn new(
        link: &'a mut Link,
        times: u64,
        waits: bool,
        memory: &'a mut Memory,
        guided: &'a mut G,
        told: &'a mut Played,
    ) -> Self {
        let [all, ssd, mapped, page] =
            [BATCH, link.ssd, link.mapped, PAGE].map(|one| Bytes(one.0.saturating_mul(times)));
        let Link { lanes, happened, .. } = link;
        Self {
            lanes,
            happened,
            waits,
            memory,
            guided,
            told,
            back: all,
            back_ssd: ssd,
            out: all,
            out_ssd: ssd,
            mapped,
            page,
            flow: Flow::default(),
        }
    }

    fn run(&mut self) {
        self.leave(Tier::Ssd);
        self.leave(Tier::Host);
        for from in [Away::Ssd, Away::Host, Away::Nowhere] {
            self.bring(Lane::Faulted(from), from, true);
        }
        if self.bring(Lane::Ahead(Away::Ssd), Away::Ssd, false) {
            self.bring(Lane::Ahead(Away::Host), Away::Host, false);
        }
        self.bring(Lane::Ahead(Away::Nowhere), Away::Nowhere, false);
        // Nobody may leave for what comes ahead, and the kernel waits for that.
        if self.waits && self.flow.is_nothing() {
            for from in [Away::Ssd, Away::Host, Away::Nowhere] {
                self.bring(Lane::Ahead(from), from, true);
            }
        }
    }

    fn head(&self, lane: Lane) -> Option<Waiting> {
        self.lanes[lane.index()].front().copied()
    }
    fn took(&mut self, lane: Lane, bytes: Bytes) {
        self.flow.lanes[lane.index()] += bytes;
        let queue = &mut self.lanes[lane.index()];
        if let Some(head) = queue.front_mut() {
            head.bytes -= bytes;
            if head.bytes == Bytes::ZERO {
                let id = head.id;
                queue.pop_front();
                self.flow.ended = true;
                self.happened.push(if matches!(lane, Lane::Out(_)) { Happened::Left(id) } else { Happened::Came(id) });
            }
        }
    }

    fn leave(&mut self, tier: Tier) {
        let lane = Lane::Out(tier);
        while let Some(Waiting { id, bytes }) = self.head(lane) {
            let full = self.memory.host_free() == Bytes::ZERO;
            let (to, most) = match tier {
                Tier::Host if !full => (Away::Host, self.memory.host_free()),
                _ => (Away::Ssd, self.out_ssd),
            };
            let bytes = bytes.min(most).min(self.out);
            if bytes == Bytes::ZERO {
                break;
            }
            self.memory.left(id, bytes, to);
            self.took(lane, bytes);
            self.went(id, bytes, to);
        }
    }

    /// Brings in the heads of a queue. Whether it was room that stopped it that nobody may make.
    fn bring(&mut self, lane: Lane, from: Away, faulted: bool) -> bool {
        while let Some(Waiting { id, bytes }) = self.head(lane) {
            let crosses = match from {
                Away::Nowhere => Bytes(u64::MAX),
                Away::Host => self.back,
                Away::Ssd => self.back.min(self.back_ssd),
            };
            let mut bytes = bytes.min(crosses).min(self.mapped);
            let mut victim = None;
            if self.memory.free() > Bytes::ZERO {
                bytes = bytes.min(self.memory.free());
            } else {
                let Some((stamp, stay)) = self.guided.victim(self.memory, faulted || self.memory.is_needed(id)) else {
                    return false;
                };
                let (to, most) = self.destination(stay.id, from);
                bytes = bytes.min(stay.bytes).min(most);
                victim = Some((stamp, stay.id, to));
            }
            if bytes == Bytes::ZERO {
                break;
            }
            if from == Away::Host {
                self.memory.leaves_host(bytes);
            }
            if let Some((stamp, victim, to)) = victim {
                self.evict(stamp, victim, bytes, to);
            }
            self.memory.arrives(id, bytes);
            self.took(lane, bytes);
            self.mapped -= bytes;
            if from != Away::Nowhere {
                self.back -= bytes;
                self.told.back[(from == Away::Ssd) as usize] += bytes;
            }
            if from == Away::Ssd {
                self.back_ssd -= bytes;
            }
        }
        true
    }

    /// Where somebody goes who leaves for what comes from there, and how much of it can.
    fn destination(&self, victim: TensorId, from: Away) -> (Away, Bytes) {
        let host = self.memory.host_free();
        let full = host == Bytes::ZERO;
        if self.out == Bytes::ZERO || (full && self.out_ssd == Bytes::ZERO) {
            return (Away::Host, Bytes::ZERO);
        }
        match (self.guided.drops(victim), full, from) {
            (true, ..) => (Away::Nowhere, Bytes(u64::MAX)),
            // What comes leaves a place behind, for the next.
            (_, true, Away::Host) => (Away::Ssd, self.out_ssd.min(self.page).min(self.out)),
            (_, true, _) => (Away::Ssd, self.out_ssd.min(self.out)),
            (_, false, Away::Host) => (Away::Host, self.out),
            (..) => (Away::Host, self.out.min(host)),
        }
    }

    fn evict(&mut self, stamp: Stamp, id: TensorId, bytes: Bytes, to: Away) {
        self.memory.evicted(stamp, bytes, to);
        self.happened.push(Happened::GaveWay(id, bytes));
        match self.flow.evicted.iter_mut().find(|(known, _)| *known == stamp) {
            Some((_, sum)) => *sum += bytes,
            None => self.flow.evicted.push((stamp, bytes)),
        }
        self.flow.ended |= self.memory.rest(stamp) == Bytes::ZERO;
        if to != Away::Nowhere {
            self.went(id, bytes, to);
        } else if self.memory.is_needed(id) {
            self.ask_again(id);
        }
    }

    fn went(&mut self, id: TensorId, bytes: Bytes, to: Away) {
        self.out -= bytes;
        let tier = if to == Away::Ssd { Tier::Ssd } else { Tier::Host };
        self.told.out[tier as usize] += bytes;
        if tier == Tier::Ssd {
            self.out_ssd -= bytes;
        }
        if self.memory.is_needed(id) {
            self.ask_again(id);
        }
    }

    fn ask_again(&mut self, id: TensorId) {
        for (from, bytes) in Away::ALL.into_iter().zip(self.memory.asked_for(id)) {
            if bytes > Bytes::ZERO {
                self.lanes[Lane::Faulted(from).index()].push_back(Waiting { id, bytes });
                self.happened.push(Happened::Faulted(id));
            }
        }
    }
}
