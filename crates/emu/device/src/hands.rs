//! The engine's moving threads inside the device. A command belongs to a *hand*: out, in, or giving contents up.
//!
//! Problem: several threads of the engine command the device while it stands still for them. Which of them gets the device's lock
//! first is chance, and what a fetch evicts depends on whether an eviction came before it.
//! Idea: while the device stands still a command is only noted down. Once the engine has settled, with every thread of
//! it idle or in here, the commands are carried out in an order of their own: what is given up, outwards before inwards, then by
//! address. One whose outcome is known at once (a refusal, a discard) lets its thread go, and the engine settles again before the
//! next is carried out.
//!
//! A discard returns at the instant at which it is carried out: the program may be waiting for its end outside every call of ours (a block that is handed out again), and virtual
//! time, which only its calls move, would stand still for ever. Its thread stays until its time is over when nobody waits for it any more ([`Order::Rest`]).
//!
//! A call that does not wait returns when all is ordered, as a driver's does.
//!
//! While the device does not stand still (an engine that has just started) nothing would come to carry a command out later, so it
//! is carried out at once.
//!
//! **An engine that goes.** The pace changes hands under the state's lock alone, and whoever gives it back lets every thread go
//! that is held here. So a command is the engine's or nobody's, by one look under that lock ([`Machine::command`]); a ticket
//! is let go once, though the device may be standing still for exactly that ticket while the engine goes; and when the next
//! engine takes over, nobody is held. One thread too many or too few would be counted for ever, and the device would wait for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use deepum_core::units::{AddrRange, DevAddr, Nanos, Place};
use deepum_model::{Advice, Group, Migrated};

use crate::config::Pools;
use crate::error::{CuError, CuResult};
use crate::machine::Machine;
use crate::state::State;
use crate::uvm::Wait;

/// Which way a command goes; several threads of the engine may go one way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Hand {
    /// To nowhere.
    GiveUp,
    /// To the host.
    Out,
    /// To a device.
    In,
}

/// What the device is to do to managed memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// `UVM_MIGRATE`.
    Migrate(AddrRange, Place, Wait),
    /// `UVM_DISCARD`; `true` unmaps.
    Discard(AddrRange, bool),
    /// A policy.
    Advise(AddrRange, Advice),
    /// `UVM_SET_RANGE_GROUP`.
    Join(AddrRange, Group),
    /// The second half of `UVM_PREVENT_MIGRATION_RANGE_GROUPS`.
    Gather(Group),
    /// `UVM_TOOLS_FLUSH_EVENTS`.
    Flush,
    /// No request: a word is looked at until it is written, which is then.
    Await(Nanos),
    /// No request: what was given up takes until then.
    Rest,
}

impl Order {
    /// Whose it is. What a thread inwards tells of policies, or sends home first, counts as outwards.
    #[must_use]
    pub const fn hand(self) -> Hand {
        match self {
            Self::Discard(..) | Self::Rest => Hand::GiveUp,
            Self::Migrate(_, Place::Device(_), _) | Self::Flush | Self::Await(_) => Hand::In,
            Self::Migrate(_, Place::Host, _) | Self::Advise(..) | Self::Join(..) | Self::Gather(_) => Hand::Out,
        }
    }
    /// Where it begins; a group is nowhere.
    const fn start(self) -> DevAddr {
        match self {
            Self::Migrate(range, ..) | Self::Discard(range, _) | Self::Advise(range, _) | Self::Join(range, _) => {
                range.start
            }
            Self::Gather(_) | Self::Flush | Self::Await(_) | Self::Rest => DevAddr(0),
        }
    }
    /// Whether the driver tells of all moves that are over before it returns.
    pub(crate) const fn drains(self) -> bool {
        matches!(self, Self::Migrate(.., Wait::Here) | Self::Flush)
    }
    /// When it returns that did so much.
    pub(crate) const fn returns(self, moved: Migrated) -> Nanos {
        if matches!(self, Self::Migrate(.., Wait::Not(_))) { moved.ordered } else { moved.done }
    }
}

/// An engine thread that stands in a synchronous command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket {
    /// When it is let go.
    pub at: Nanos,
    /// Whose command: of those that end at one instant, *out* is let go first. Which arrived first is chance.
    pub hand: Hand,
    /// And then by where it begins.
    start: DevAddr,
    /// Order of arrival.
    pub number: u64,
    thread: Thread,
    /// Whether notices of moves are put before it goes.
    pub drains: bool,
    outcome: Outcome,
}

/// What became of a command that was carried out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Outcome {
    /// All of it.
    Done,
    /// What may not migrate was passed by.
    Skipped,
}

impl From<Migrated> for Outcome {
    fn from(moved: Migrated) -> Self {
        if moved.skipped { Self::Skipped } else { Self::Done }
    }
}

/// A thread of the engine, or one that stands in for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Thread(u64);

impl Thread {
    /// The one that is running.
    fn this() -> Self {
        static THREADS: AtomicU64 = AtomicU64::new(0);
        thread_local!(static NUMBER: u64 = THREADS.fetch_add(1, Ordering::Relaxed));
        // One that is ending is awake no more.
        Self(NUMBER.try_with(|number| *number).unwrap_or(u64::MAX))
    }
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    order: Order,
    thread: Thread,
    number: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Hands {
    /// Commands noted down.
    asked: Vec<Asked>,
    /// Outcomes whose threads have not seen them yet, by number.
    answers: BTreeMap<u64, CuResult<Outcome>>,
    /// Threads to be let go, soonest last.
    tickets: Vec<Ticket>,
    /// By thread, the instant at which it was last let go: it is awake then, and reacts at once.
    let_go: BTreeMap<Thread, Nanos>,
    /// When all is over that was given up.
    given_up: Nanos,
    numbers: u64,
    /// Whether the device stands still for the engine now.
    pub(crate) still: bool,
}

impl Hands {
    /// The thread to be let go next.
    #[must_use]
    pub fn next(&self) -> Option<Ticket> {
        self.tickets.last().copied()
    }
    fn take(&mut self, number: u64) -> Option<Asked> {
        let at = self.asked.iter().position(|asked| asked.number == number)?;
        Some(self.asked.swap_remove(at))
    }
}

impl State {
    /// Does what `order` says at the time `at`.
    pub(crate) fn carry_out(&mut self, order: Order, at: Nanos, machine: &Machine) -> CuResult<Migrated> {
        let at_once = |done| Migrated { ordered: done, done, skipped: false };
        let done = match order {
            Order::Migrate(range, to, wait) => {
                self.migrate_count += 1;
                if machine.config.fail_migrate.is_some_and(|n| self.migrate_count.is_multiple_of(n)) {
                    return Err(CuError::OutOfMemory);
                }
                match wait {
                    Wait::Here => self.memory.migrate(range, to, at),
                    Wait::Not(semaphore) => self.memory.begin(range, to, at).inspect(|moved| {
                        if let Some(semaphore) = semaphore.filter(|_| machine.config.pools != Pools::Silent) {
                            self.releases.add(moved.done, semaphore);
                        }
                    }),
                }
            }
            Order::Discard(range, unmap) => self.memory.discard(range, unmap, at).map(at_once),
            Order::Advise(range, advice) => self.memory.advise(range, advice, at).map(at_once),
            Order::Join(range, group) => self.memory.join(range, group, at),
            Order::Gather(group) => self.memory.gather(group, at),
            Order::Flush => Ok(at_once(at + machine.profile.flush_cost)),
            Order::Await(until) => Ok(at_once(at.max(until))),
            Order::Rest => Ok(at_once(at.max(self.hands.given_up))),
        };
        // Also what failed half-way has moved bytes.
        self.settle_bytes(machine.config.data);
        Ok(done?)
    }

    /// Begins a command of the engine: either its outcome, or nothing yet and a ticket.
    fn begin(&mut self, asked: Asked, machine: &Machine) -> Option<CuResult<Outcome>> {
        let (now, hand) = (self.now, asked.order.hand());
        let awake = self.hands.let_go.get(&asked.thread) == Some(&now);
        let mut start = if awake { now } else { now + machine.profile.engine_reaction };
        if hand == Hand::GiveUp {
            start = start.max(self.hands.given_up);
        }
        let moved = match self.carry_out(asked.order, start, machine) {
            Ok(moved) => moved,
            Err(error) => {
                // What a failed call has moved is waited for and told, too.
                if asked.order.drains() {
                    self.deliver(now, &machine.config, true);
                }
                return Some(Err(error));
            }
        };
        let outcome = Outcome::from(moved);
        let returned = asked.order.returns(moved);
        if matches!(asked.order, Order::Discard(..)) {
            self.hands.let_go.insert(asked.thread, now);
            self.hands.given_up = returned;
            return Some(Ok(outcome));
        }
        let drains = asked.order.drains();
        let (start, thread, number) = (asked.order.start(), asked.thread, asked.number);
        let ticket = Ticket { at: returned, hand, start, number, thread, drains, outcome };
        let place = self.hands.tickets.partition_point(|t| *t > ticket);
        self.hands.tickets.insert(place, ticket);
        None
    }

    /// Carries out what was noted down, in order, up to the first command whose outcome is known at once; whether there was one.
    pub(crate) fn serve(&mut self, machine: &Machine) -> bool {
        loop {
            let key = |asked: &&Asked| (asked.order.hand(), asked.order.start(), asked.number);
            let Some(number) = self.hands.asked.iter().min_by_key(key).map(|asked| asked.number) else { return false };
            let Some(asked) = self.hands.take(number) else { return false };
            if let Some(outcome) = self.begin(asked, machine) {
                self.answer(number, outcome, machine);
                return true;
            }
        }
    }

    fn answer(&mut self, number: u64, outcome: CuResult<Outcome>, machine: &Machine) {
        self.hands.answers.insert(number, outcome);
        // Before it wakes: from here on the thread is the engine's again.
        machine.pace.hold(-1);
        machine.released.notify_all();
    }

    /// Lets a thread go whose command is done, unless it was let go meanwhile.
    pub(crate) fn release(&mut self, ticket: Ticket, machine: &Machine) {
        let Some(at) = self.hands.tickets.iter().position(|t| *t == ticket) else { return };
        self.hands.tickets.remove(at);
        self.hands.let_go.insert(ticket.thread, self.now);
        self.answer(ticket.number, Ok(ticket.outcome), machine);
    }

    /// The engine drives no more: whoever stands in here goes.
    pub(crate) fn release_all(&mut self, machine: &Machine) {
        while self.serve(machine) {}
        while let Some(ticket) = self.hands.next() {
            self.release(ticket, machine);
        }
    }
}

impl Machine {
    /// The device's clock.
    ///
    /// # Errors
    /// If there is no device any more.
    pub fn now(&self) -> CuResult<Nanos> {
        self.look(|state| Ok(state.now))
    }

    /// A command of one of the engine's threads, which is held here until it is done. Nothing if the calling thread is none, or its
    /// engine drives no more.
    pub(crate) fn engine_command(&self, order: Order) -> Option<CuResult<Outcome>> {
        let mut state = self.lock();
        if !self.pace.driven() || !self.pace.is_engine_thread() {
            return None;
        }
        state.hands.numbers += 1;
        let number = state.hands.numbers;
        state.hands.asked.push(Asked { order, thread: Thread::this(), number });
        self.pace.hold(1);
        loop {
            if let Some(outcome) = state.hands.answers.remove(&number) {
                return Some(outcome);
            }
            let at_once = !state.hands.still || !self.pace.driven();
            if self.ended() {
                // What has not begun never will; what has, has an end that nobody will see.
                let began_never = state.hands.take(number).is_some();
                state.hands.tickets.retain(|ticket| ticket.number != number);
                self.pace.hold(-1);
                // Nobody will write a word of one that never began.
                let awaits = began_never && matches!(order, Order::Migrate(.., Wait::Not(Some(_))));
                return Some(if awaits { Err(CuError::Deinitialized) } else { Ok(Outcome::Done) });
            }
            if at_once && let Some(asked) = state.hands.take(number) {
                if let Some(outcome) = state.begin(asked, self) {
                    self.pace.hold(-1);
                    return Some(outcome);
                }
            } else {
                self.released.wait(&mut state);
            }
        }
    }
}
