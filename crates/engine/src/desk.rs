//! Between the correlate and the migrate thread: commands one way, results the other.
//!
//! The queues of `deepum-core` decide the order; this adds a lock, a bell, and the count of work. All commands of one
//! observation are handed over at once, so that what the mover picks first does not depend on how far the
//! correlate thread had come.
//!
//! The count: *one* token stands for everything the migrate thread has to do, however many commands wait. It is taken
//! when the first command comes in, goes along while a batch is moved, and is dropped when the thread
//! finds nothing left. So while the device holds that thread in a call, the count is 1, and the device
//! holds 1: settled. A result is counted by the nudge that announces it.
//!
//! In *step* (driven pace) the migrate thread takes no new batch until its last result has been seen, because what the core
//! makes of a result may change what is first. On a GPU it does not wait: the link would stand idle meanwhile.

use crate::pending::{Pending, Token};
use crate::sync::{Arc, Condvar, Mutex, lock, wait};
use deepum_core::event::Event;
use deepum_core::queues::{Batch, Direction, Lane, Queues};
use deepum_core::units::{DeviceId, Place};

/// Most blocks moved by one call: 32 MiB, the most that is still called back soon enough (facts 4.1).
pub const BATCH: u32 = 16;

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
    bell: Condvar,
    pending: Arc<Pending>,
    in_step: bool,
}

#[derive(Debug)]
struct State {
    /// By index of device.
    queues: Vec<(DeviceId, Queues)>,
    /// Index of the device whose turn it is.
    turn: usize,
    /// The migrate thread's token while it is not in a job and not idle.
    busy: Option<Token>,
    in_job: bool,
    results: Vec<Moved>,
    unseen: bool,
    closed: bool,
}

impl State {
    /// The next batch. Devices take turns, so that none waits for another's queues to be empty.
    fn pop(&mut self) -> Option<(DeviceId, Batch)> {
        let at = (self.turn..self.queues.len()).chain(0..self.turn).find(|&at| !self.queues[at].1.is_empty())?;
        self.turn = at + 1;
        let (device, queues) = &mut self.queues[at];
        let batch = Direction::ALL.into_iter().find_map(|direction| queues.pop_batch(direction, BATCH));
        batch.map(|batch| (*device, batch))
    }
}

/// A batch being moved. Give it back with [`Desk::done`].
#[derive(Debug)]
pub struct Job {
    /// What to do.
    pub batch: Batch,
    /// For which GPU.
    pub device: DeviceId,
    token: Option<Token>,
}

impl Job {
    /// Where the blocks shall go.
    pub const fn to(&self) -> Place {
        match self.batch.lane {
            Lane::Discard | Lane::Evict => Place::Host,
            Lane::Fault | Lane::Keep | Lane::Predicted => Place::Device(self.device),
        }
    }
}

impl Desk {
    /// A desk for these devices. In step: no batch before the last result was seen.
    pub fn new(pending: Arc<Pending>, devices: &[DeviceId], in_step: bool) -> Self {
        let queues = devices.iter().map(|id| (*id, Queues::default())).collect();
        let state =
            State { queues, turn: 0, busy: None, in_job: false, results: Vec::new(), unseen: false, closed: false };
        Self { state: Mutex::new(state), bell: Condvar::new(), pending, in_step }
    }

    /// Correlate: gives `put` the queues, in the order of the devices, to put commands in. Call it at the end of every
    /// observation, which is also what tells the migrate thread that its results were seen.
    pub fn hand_over(&self, put: impl FnOnce(&mut [(DeviceId, Queues)])) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        put(&mut state.queues);
        // Results that came in since they were taken have a nudge on its way.
        state.unseen = !state.results.is_empty();
        let work = state.queues.iter().any(|(_, queues)| !queues.is_empty());
        if work && state.busy.is_none() && !state.in_job {
            state.busy = Some(self.pending.token());
        }
        self.bell.notify_all();
    }

    /// Correlate: takes the results, oldest first.
    pub fn take_results(&self, into: &mut Vec<Moved>) {
        into.append(&mut lock(&self.state).results);
    }

    /// Migrate: the next batch, waiting for one; nothing once closed.
    pub fn next(&self) -> Option<Job> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            if !(self.in_step && state.unseen) {
                if let Some((device, batch)) = state.pop() {
                    state.in_job = true;
                    let token = state.busy.take();
                    return Some(Job { batch, device, token });
                }
                state.busy = None;
            }
            state = wait(&self.bell, state);
        }
    }

    /// Migrate: the batch is over. Announce the results afterwards, with a nudge.
    pub fn done(&self, job: Job, results: &[Moved]) {
        let mut state = lock(&self.state);
        state.in_job = false;
        if let Some((_, queues)) = state.queues.iter_mut().find(|(device, _)| *device == job.device) {
            queues.done(job.batch.lane.direction());
        }
        if !state.closed {
            state.results.extend_from_slice(results);
            state.unseen = true;
            state.busy = job.token;
        }
    }

    /// Blocks that wait, by lane, all devices together.
    pub fn waiting(&self) -> [(Lane, usize); Lane::ALL.len()] {
        let state = lock(&self.state);
        Lane::ALL.map(|lane| (lane, state.queues.iter().map(|(_, queues)| queues.waiting(lane)).sum()))
    }

    /// Ends it for both sides; what waits is forgotten.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.queues.clear();
        state.results.clear();
        state.busy = None;
        self.bell.notify_all();
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
        let served: Vec<u8> = (0..4).filter_map(|_| desk.next()).map(|job| job.device.0).collect();
        assert_eq!(served, [0, 3, 0, 0]);
    }
}
