//! Who decides, and what follows from it: what is asked for as a kernel begins, or as something happens, and who leaves when room is short.
//!
//! Under [`Guide::Plan`] intermediates get their memory before the kernel that first touches them, by as long as mapping it takes, and lose it after the last;
//! that is part of the published planner, and so of every planner here. What a plan saves ahead is not written ahead, and what it drops leaves as all else.

use super::link::MAPPED;
use super::memory::{Memory, Stamp, Stay};
use crate::planner::schedule::{Kind, Schedule};
use crate::tiers::Tier;
use deepum_core::units::{Bytes, Nanos};
use deepum_trace::program::{Life, Program, TensorId};

/// Who decides.
#[derive(Clone, Copy, Debug)]
pub enum Guide<'a> {
    /// Nobody: what is missing faults, and what came longest ago leaves.
    Demand,
    /// DeepUM as G10's authors simulate it (MICRO'23, section 6, "DeepUM+"): the kernels that come next are known. As one begins, all is asked for that the one so
    /// many places later touches; what one of those between touches does not leave for that; what is dead is dropped as it leaves.
    Window(u32),
    /// A plan.
    Plan(&'a Schedule),
}

/// What is to be begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Fetch(TensorId),
    /// To where it says, or where it is out first.
    Leave(TensorId, Option<Tier>),
    Forget(TensorId),
    /// What has not left yet does not.
    Stay(TensorId),
    /// What has not come yet does not, unless the kernel waits for it.
    Unask(TensorId),
}

/// What has happened meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Happened {
    /// The kernel needs it, and some of it was neither there to stay nor asked for: when the kernel began, or since, as it had to leave meanwhile.
    Faulted(TensorId),
    /// What was asked for of it has come from one of the places where it was; or it was there.
    Came(TensorId),
    /// All of it that was ordered to leave has.
    Left(TensorId),
    /// Some of it made room for something else.
    GaveWay(TensorId, Bytes),
    /// The kernel is over.
    Ended,
}

/// A guide at work.
pub(super) trait Guides {
    /// A kernel begins: what is to be begun with it.
    fn begins(&mut self, kernel: usize) -> Vec<Order>;
    /// Whether the kernel shall not start yet, as long as anything moves.
    fn holds(&mut self) -> bool;
    /// What it waited for is there.
    fn goes_on(&mut self);
    /// Who leaves next; `urgent`: for what the kernel waits for.
    fn victim(&mut self, memory: &Memory, urgent: bool) -> Option<(Stamp, Stay)>;
    /// Whether what leaves is dropped.
    fn drops(&self, id: TensorId) -> bool;
    /// Takes in what happened; what is to be begun for that is appended to `orders`.
    fn hears(&mut self, happened: Happened, now: Nanos, orders: &mut Vec<Order>);
}

/// One that decides kernel by kernel, and minds nothing that happens between.
#[derive(Debug)]
pub(super) struct Guided<'a> {
    program: &'a Program,
    window: Option<usize>,
    /// By kernel.
    orders: Vec<Vec<Order>>,
    kernel: usize,
    /// Nobody who came before may leave for what comes ahead, until the next kernel begins.
    base: Stamp,
}

impl<'a> Guided<'a> {
    /// `frees`: what dies is forgotten under every guide.
    pub(super) fn new(program: &'a Program, guide: Guide<'a>, frees: bool) -> Self {
        let kernels = program.kernels().len();
        let mut orders = vec![Vec::new(); kernels];
        let planned = matches!(guide, Guide::Plan(_));
        let intermediates = || program.ids().filter(|id| program.tensor(*id).life == Life::Intermediate);
        let lives = || intermediates().filter_map(|id| Some((id, program.span(id)?)));
        if planned || frees {
            for (id, span) in lives() {
                orders[(*span.end() as usize + 1) % kernels].push(Order::Forget(id));
            }
        }
        if planned {
            let mut begins = vec![Nanos::ZERO];
            for kernel in program.kernels() {
                begins.push(begins[begins.len() - 1] + kernel.time);
            }
            for (id, span) in lives() {
                let gap = mapped_from(&begins, *span.start() as usize, program.tensor(id).size);
                orders[gap].push(Order::Fetch(id));
            }
        }
        if let Guide::Plan(schedule) = guide {
            for at in schedule.moves() {
                orders[at.gap as usize].extend(match at.kind {
                    Kind::Evict(tier) => Some(Order::Leave(at.tensor, Some(tier))),
                    Kind::Drop => Some(Order::Leave(at.tensor, Some(Tier::Host))),
                    Kind::Prefetch => Some(Order::Fetch(at.tensor)),
                    Kind::Save(_) => None,
                });
            }
        }
        let mut window = None;
        if let Guide::Window(degree) = guide {
            let degree = degree as usize;
            for (kernel, orders) in orders.iter_mut().enumerate() {
                let later = &program.kernels()[(kernel + degree) % kernels];
                // In the order of a hash table there: most often what is only written comes first.
                let written = later.writes.iter().filter(|id| !later.reads.contains(id));
                orders.extend(written.chain(&later.reads).copied().map(Order::Fetch));
            }
            window = Some(degree);
        }
        Self { program, window, orders, kernel: 0, base: Stamp(0) }
    }

    /// How many kernels until it is touched: 0 if this one does.
    fn next_use(&self, id: TensorId) -> usize {
        let uses = self.program.uses(id);
        let later = uses.get(uses.partition_point(|&kernel| (kernel as usize) < self.kernel));
        let over = || uses.first().map(|&kernel| kernel as usize + self.program.kernels().len());
        later.map(|&kernel| kernel as usize).or_else(over).map_or(usize::MAX, |next| next - self.kernel)
    }
}

impl Guides for Guided<'_> {
    fn begins(&mut self, kernel: usize) -> Vec<Order> {
        (self.kernel, self.base) = (kernel, Stamp(0));
        self.orders[kernel].clone()
    }
    fn holds(&mut self) -> bool {
        false
    }
    fn goes_on(&mut self) {
        self.base = Stamp(0);
    }

    fn victim(&mut self, memory: &Memory, urgent: bool) -> Option<(Stamp, Stay)> {
        let Some(window) = self.window.filter(|_| !urgent) else { return memory.oldest(Stamp(0), |_| true) };
        let found = memory.oldest(self.base, |id| self.next_use(id) >= window);
        self.base = found.map_or(Stamp(u64::MAX), |(stamp, _)| stamp);
        found
    }
    fn drops(&self, id: TensorId) -> bool {
        let alive = || {
            self.program
                .span(id)
                .is_some_and(|span| (*span.start() as usize..=*span.end() as usize).contains(&self.kernel))
        };
        self.window.is_some() && self.program.tensor(id).life == Life::Intermediate && !alive()
    }
    fn hears(&mut self, _happened: Happened, _now: Nanos, _orders: &mut Vec<Order>) {}
}

/// During which kernel new memory is begun to be mapped, so that it is there when kernel `birth` begins. `begins`: when each kernel does.
pub(super) fn mapped_from(begins: &[Nanos], birth: usize, size: Bytes) -> usize {
    let by = begins[birth].saturating_sub(MAPPED.time(size));
    begins.partition_point(|begins| *begins <= by).saturating_sub(1).min(birth.saturating_sub(1))
}
