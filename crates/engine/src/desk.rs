//! Between the correlate thread and those that move: commands one way, results the other.
//!
//! The queues of `deepum-core` decide the order, and that a block is in one hand at most; this adds a lock, a bell, and the count
//! of work. There is one *slot* for each hand: off the GPU and onto it, since the link carries both ways at once
//! and a fetch that waited behind an eviction would wait for nothing; a second one onto it, for while the first hears that its batch is there; and one that gives contents up, which takes time and no link. All commands of one
//! observation are handed over at once, so that what a mover picks first does not depend on how far the
//! correlate thread had come.
//!
//! The count: *one* token for each slot stands for everything its thread has to do, however many commands wait. It is taken
//! when the first command comes in, goes along while a batch is moved, and is dropped when the thread
//! finds nothing left. So while the device holds a mover in a call, the count of its slot is 1, and the device
//! holds 1: settled. A result is counted by the nudge that announces it.
//!
//! In *step* (driven pace) no mover takes a batch until all results have been seen, because what the core
//! makes of a result may change what is first; and where several slots have something to take, *in* goes first and giving up last, since a
//! job may end without any call that the device could order (a discard of a block that was handed out again). On a GPU none
//! waits: the link would stand idle meanwhile.

use crate::pending::{Pending, Token};
use crate::sync::{Arc, Condvar, Mutex, lock, wait};
use deepum_core::event::Event;
use deepum_core::queues::{BATCH, Batch, Hand, Lane, Queues};
use deepum_core::units::DeviceId;

/// What became of one block of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// Whose command it was.
    pub device: DeviceId,
    /// What the core is to be told.
    pub event: Event<'static>,
}

/// See the module.
#[derive(Debug)]
pub struct Desk {
    state: Mutex<State>,
    /// By hand.
    bells: [Condvar; Hand::ALL.len()],
    pending: Arc<Pending>,
    /// Whose threads there are.
    hands: &'static [Hand],
    in_step: bool,
}

#[derive(Debug)]
struct State {
    /// By index of device.
    queues: Vec<(DeviceId, Queues)>,
    /// By hand.
    slots: [Slot; Hand::ALL.len()],
    results: Vec<Moved>,
    unseen: bool,
    closed: bool,
}

/// One mover's side of the desk.
#[derive(Debug, Default)]
struct Slot {
    /// Index of the device whose turn it is.
    turn: usize,
    /// The thread's token while it is not in a job and not idle.
    busy: Option<Token>,
    in_job: bool,
}

impl State {
    fn slot(&mut self, hand: Hand) -> &mut Slot {
        &mut self.slots[hand as usize]
    }

    /// The next batch. Devices take turns, so that none waits for another's queues to be empty.
    fn pop(&mut self, hand: Hand) -> Option<(DeviceId, Batch)> {
        let turn = self.slot(hand).turn;
        for at in (turn..self.queues.len()).chain(0..turn) {
            let (device, queues) = &mut self.queues[at];
            if let Some(batch) = queues.pop_batch(hand, BATCH) {
                let device = *device;
                self.slot(hand).turn = at + 1;
                return Some((device, batch));
            }
        }
        None
    }

    /// Whether anything waits for this hand. Another one may have it still, and then there is nothing to take.
    fn waits(&self, hand: Hand) -> bool {
        self.queues.iter().any(|(_, queues)| hand.lanes().iter().any(|&lane| queues.waiting(lane) > 0))
    }

    /// Whether a mover may take a batch now: see the module about *step*.
    fn may_take(&self, hand: Hand) -> bool {
        !self.unseen && self.slots[hand as usize + 1..].iter().all(|slot| slot.busy.is_none())
    }

    /// The other hands for which this holds.
    fn others(&self, hand: Hand, which: impl Fn(&Self, Hand) -> bool) -> impl Iterator<Item = Hand> {
        Hand::ALL.map(|other| (other != hand && which(self, other)).then_some(other)).into_iter().flatten()
    }
}

/// A batch being moved. Give it back with [`Desk::done`].
#[derive(Debug)]
pub struct Job {
    /// What to do.
    pub batch: Batch,
    /// For which GPU.
    pub device: DeviceId,
    hand: Hand,
    token: Token,
}

impl Desk {
    /// A desk for these devices, with a thread for each hand. In step: see the module.
    pub fn new(pending: Arc<Pending>, devices: &[DeviceId], in_step: bool) -> Self {
        Self::of(&Hand::ALL, pending, devices, in_step)
    }

    /// The same, with threads for these hands alone, one of which serves each lane that is asked for.
    pub fn of(hands: &'static [Hand], pending: Arc<Pending>, devices: &[DeviceId], in_step: bool) -> Self {
        let queues = devices.iter().map(|id| (*id, Queues::default())).collect();
        let state = State { queues, slots: Default::default(), results: Vec::new(), unseen: false, closed: false };
        Self { state: Mutex::new(state), bells: Default::default(), pending, hands, in_step }
    }

    /// Correlate: gives `put` the queues, in the order of the devices, to put commands in. Call it at the end of every
    /// observation, which is also what tells the movers that their results were seen.
    pub fn hand_over(&self, put: impl FnOnce(&mut [(DeviceId, Queues)])) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        put(&mut state.queues);
        // Results that came in since they were taken have a nudge on its way.
        state.unseen = !state.results.is_empty();
        for &hand in self.hands {
            let work = state.waits(hand);
            let slot = state.slot(hand);
            if work && slot.busy.is_none() && !slot.in_job {
                slot.busy = Some(self.pending.token());
            }
        }
        for &hand in self.hands {
            let slot = state.slot(hand);
            // One in a job comes back by itself, and one that may not take yet is woken by another.
            if slot.busy.is_some() && !slot.in_job && (!self.in_step || state.may_take(hand)) {
                self.ring(hand);
            }
        }
    }

    /// Correlate: takes the results, oldest first.
    pub fn take_results(&self, into: &mut Vec<Moved>) {
        into.append(&mut lock(&self.state).results);
    }

    /// A mover: the next batch that is its, waiting for one; nothing once closed.
    pub fn next(&self, hand: Hand) -> Option<Job> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            if !self.in_step || state.may_take(hand) {
                let popped = state.pop(hand);
                let slot = state.slot(hand);
                let token = slot.busy.take();
                slot.in_job = popped.is_some();
                if self.in_step && token.is_some() {
                    // They may be waiting for this.
                    let busy = |state: &State, other: Hand| state.slots[other as usize].busy.is_some();
                    state.others(hand, busy).for_each(|other| self.ring(other));
                }
                if let Some((device, batch)) = popped {
                    // Without one: another hand had it when it was handed over, and that is open since.
                    let token = token.unwrap_or_else(|| self.pending.token());
                    return Some(Job { batch, device, hand, token });
                }
            }
            state = wait(&self.bells[hand as usize], state);
        }
    }

    /// A mover: the batch is over. Announce the results afterwards, with a nudge.
    pub fn done(&self, job: Job, results: &[Moved]) {
        let mut state = lock(&self.state);
        let hand = job.hand;
        if let Some((_, queues)) = state.queues.iter_mut().find(|(device, _)| *device == job.device) {
            for moved in results {
                if let Event::MoveDone { block, ok: true, .. } | Event::Saved { block, ok: true } = moved.event {
                    queues.moved(hand, block);
                }
            }
            queues.done(hand);
        }
        state.slot(hand).in_job = false;
        if !state.closed {
            state.results.extend_from_slice(results);
            state.unseen = true;
            state.slot(hand).busy = Some(job.token);
            if !self.in_step {
                // What they passed over is open.
                state.others(hand, State::waits).for_each(|other| self.ring(other));
            }
        }
    }

    /// Blocks that wait, by lane, all devices together.
    pub fn waiting(&self) -> [(Lane, usize); Lane::ALL.len()] {
        let state = lock(&self.state);
        Lane::ALL.map(|lane| (lane, state.queues.iter().map(|(_, queues)| queues.waiting(lane)).sum()))
    }

    /// Ends it for all sides; what waits is forgotten.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.queues.clear();
        state.results.clear();
        for slot in &mut state.slots {
            slot.busy = None;
        }
        Hand::ALL.into_iter().for_each(|hand| self.ring(hand));
    }

    /// Wakes this mover, if it waits.
    fn ring(&self, hand: Hand) {
        self.bells[hand as usize].notify_one();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use deepum_core::command::{Command, Why};
    use deepum_core::units::UmBlock;

    #[test]
    fn devices_take_turns_however_much_waits_for_one() {
        let devices = [DeviceId(0), DeviceId(3)];
        let desk = Desk::new(Arc::default(), &devices, false);
        desk.hand_over(|queues| {
            for block in [10, 20, 30, 40].map(UmBlock) {
                queues[0].1.push(Command::Fetch { block, why: Why::Fault });
            }
            let by = Default::default();
            queues[1].1.push(Command::Fetch { block: UmBlock(90), why: Why::Predicted { by } });
        });
        let served: Vec<u8> = (0..4).filter_map(|_| desk.next(Hand::In)).map(|job| job.device.0).collect();
        assert_eq!(served, [0, 3, 0, 0]);
    }
}
