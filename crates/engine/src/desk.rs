//! Between the correlate thread and the two that move: commands one way, results the other.
//!
//! The queues of `deepum-core` decide the order, and that a block is in one hand at most; this adds a lock, a bell, and the count
//! of work. There is one *slot* for each direction: off the GPU and onto it, since the link carries both ways at once
//! and a fetch that waited behind an eviction would wait for nothing. All commands of one
//! observation are handed over at once, so that what a mover picks first does not depend on how far the
//! correlate thread had come.
//!
//! The count: *one* token for each slot stands for everything its thread has to do, however many commands wait. It is taken
//! when the first command comes in, goes along while a batch is moved, and is dropped when the thread
//! finds nothing left. So while the device holds a mover in a call, the count of its slot is 1, and the device
//! holds 1: settled. A result is counted by the nudge that announces it.
//!
//! In *step* (driven pace) no mover takes a batch until all results have been seen, because what the core
//! makes of a result may change what is first; and where both slots have something to take, *in* goes first, since an outward
//! job may end without any call that the device could order (a discard of a block that was handed out again). On a GPU neither
//! waits: the link would stand idle meanwhile.

use crate::pending::{Pending, Token};
use crate::sync::{Arc, Condvar, Mutex, lock, wait};
use deepum_core::event::Event;
use deepum_core::queues::{BATCH, Batch, Direction, Lane, Queues};
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
    /// By direction.
    bells: [Condvar; Direction::ALL.len()],
    pending: Arc<Pending>,
    in_step: bool,
}

#[derive(Debug)]
struct State {
    /// By index of device.
    queues: Vec<(DeviceId, Queues)>,
    /// By direction.
    slots: [Slot; Direction::ALL.len()],
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
    fn slot(&mut self, direction: Direction) -> &mut Slot {
        &mut self.slots[direction as usize]
    }

    /// The next batch. Devices take turns, so that none waits for another's queues to be empty.
    fn pop(&mut self, direction: Direction) -> Option<(DeviceId, Batch)> {
        let turn = self.slot(direction).turn;
        for at in (turn..self.queues.len()).chain(0..turn) {
            let (device, queues) = &mut self.queues[at];
            if let Some(batch) = queues.pop_batch(direction, BATCH) {
                let device = *device;
                self.slot(direction).turn = at + 1;
                return Some((device, batch));
            }
        }
        None
    }

    /// Whether anything waits to go this way. It may be in the other hand still, and then there is nothing to take.
    fn waits(&self, direction: Direction) -> bool {
        let lanes = || Lane::ALL.into_iter().filter(|lane| lane.direction() == direction);
        self.queues.iter().any(|(_, queues)| lanes().any(|lane| queues.waiting(lane) > 0))
    }

    /// Whether a mover may take a batch now: see the module about *step*.
    fn may_take(&self, direction: Direction) -> bool {
        let first = match direction {
            Direction::In => true,
            Direction::Out => self.slots[Direction::In as usize].busy.is_none(),
        };
        !self.unseen && first
    }
}

/// A batch being moved. Give it back with [`Desk::done`].
#[derive(Debug)]
pub struct Job {
    /// What to do.
    pub batch: Batch,
    /// For which GPU.
    pub device: DeviceId,
    token: Token,
}

impl Desk {
    /// A desk for these devices. In step: see the module.
    pub fn new(pending: Arc<Pending>, devices: &[DeviceId], in_step: bool) -> Self {
        let queues = devices.iter().map(|id| (*id, Queues::default())).collect();
        let state = State { queues, slots: Default::default(), results: Vec::new(), unseen: false, closed: false };
        Self { state: Mutex::new(state), bells: Default::default(), pending, in_step }
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
        for direction in Direction::ALL {
            let work = state.waits(direction);
            let slot = state.slot(direction);
            if work && slot.busy.is_none() && !slot.in_job {
                slot.busy = Some(self.pending.token());
            }
        }
        for direction in Direction::ALL {
            let slot = state.slot(direction);
            // One in a job comes back by itself, and one that may not take yet is woken by the other.
            if slot.busy.is_some() && !slot.in_job && (!self.in_step || state.may_take(direction)) {
                self.ring(direction);
            }
        }
    }

    /// Correlate: takes the results, oldest first.
    pub fn take_results(&self, into: &mut Vec<Moved>) {
        into.append(&mut lock(&self.state).results);
    }

    /// A mover: the next batch that goes its way, waiting for one; nothing once closed.
    pub fn next(&self, direction: Direction) -> Option<Job> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            if !self.in_step || state.may_take(direction) {
                let popped = state.pop(direction);
                let slot = state.slot(direction);
                let token = slot.busy.take();
                slot.in_job = popped.is_some();
                if self.in_step && token.is_some() && state.slot(direction.opposite()).busy.is_some() {
                    // The other one may be waiting for this.
                    self.ring(direction.opposite());
                }
                if let Some((device, batch)) = popped {
                    // Without one: it was in the other hand when it was handed over, and that is open since.
                    let token = token.unwrap_or_else(|| self.pending.token());
                    return Some(Job { batch, device, token });
                }
            }
            state = wait(&self.bells[direction as usize], state);
        }
    }

    /// A mover: the batch is over. Announce the results afterwards, with a nudge.
    pub fn done(&self, job: Job, results: &[Moved]) {
        let mut state = lock(&self.state);
        let direction = job.batch.lane.direction();
        if let Some((_, queues)) = state.queues.iter_mut().find(|(device, _)| *device == job.device) {
            for moved in results {
                if let Event::MoveDone { block, ok: true, .. } | Event::Saved { block, ok: true } = moved.event {
                    queues.moved(direction, block);
                }
            }
            queues.done(direction);
        }
        state.slot(direction).in_job = false;
        if !state.closed {
            state.results.extend_from_slice(results);
            state.unseen = true;
            state.slot(direction).busy = Some(job.token);
            if !self.in_step && state.waits(direction.opposite()) {
                // What the other one passed over is open.
                self.ring(direction.opposite());
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
        Direction::ALL.into_iter().for_each(|direction| self.ring(direction));
    }

    /// Wakes the mover of this direction, if it waits.
    fn ring(&self, direction: Direction) {
        self.bells[direction as usize].notify_one();
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
        let served: Vec<u8> = (0..4).filter_map(|_| desk.next(Direction::In)).map(|job| job.device.0).collect();
        assert_eq!(served, [0, 3, 0, 0]);
    }
}
