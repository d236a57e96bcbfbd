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
use deepum_core::queues::{Batch, Lane, Queues};
use deepum_core::units::{DeviceId, Place, UmBlock};

/// Most blocks moved by one call: 32 MiB, the most that is still called back soon enough (facts 4.1).
pub const BATCH: u32 = 16;

/// What became of one block of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// Whose command it was.
    pub device: DeviceId,
    /// The block.
    pub block: UmBlock,
    /// Where it was to go.
    pub to: Place,
    /// Whether it did.
    pub ok: bool,
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
    /// The migrate thread's token while it is not in a job and not idle.
    busy: Option<Token>,
    in_job: bool,
    results: Vec<Moved>,
    unseen: bool,
    closed: bool,
}

/// A batch being moved. Give it back with [`Desk::done`]; dropping it says that the migrate thread is gone.
#[derive(Debug)]
pub struct Job<'a> {
    /// What to do.
    pub batch: Batch,
    /// For which GPU.
    pub device: DeviceId,
    desk: &'a Desk,
    token: Option<Token>,
}

impl Job<'_> {
    /// Where the blocks shall go.
    pub const fn to(&self) -> Place {
        match self.batch.lane {
            Lane::Evict => Place::Host,
            Lane::Fault | Lane::Keep | Lane::Predicted => Place::Device(self.device),
        }
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        lock(&self.desk.state).in_job = false;
    }
}

impl Desk {
    /// A desk for these devices. In step: no batch before the last result was seen.
    pub fn new(pending: Arc<Pending>, devices: &[DeviceId], in_step: bool) -> Self {
        let queues = devices.iter().map(|id| (*id, Queues::default())).collect();
        let state = State { queues, busy: None, in_job: false, results: Vec::new(), unseen: false, closed: false };
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
    pub fn next(&self) -> Option<Job<'_>> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            if !(self.in_step && state.unseen) {
                if let Some((device, batch)) = pop(&mut state.queues) {
                    state.in_job = true;
                    let token = state.busy.take();
                    return Some(Job { batch, device, desk: self, token });
                }
                state.busy = None;
            }
            state = wait(&self.bell, state);
        }
    }

    /// Migrate: the batch is over. Announce the results afterwards, with a nudge.
    pub fn done(&self, mut job: Job<'_>, results: &[Moved]) {
        let token = job.token.take();
        let mut state = lock(&self.state);
        state.in_job = false;
        if let Some((_, queues)) = state.queues.iter_mut().find(|(device, _)| *device == job.device) {
            queues.done();
        }
        if !state.closed {
            state.results.extend_from_slice(results);
            state.unseen = true;
            state.busy = token;
        }
        drop(state);
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

/// From the device on which a GPU waits, else from the first that wants anything.
fn pop(queues: &mut [(DeviceId, Queues)]) -> Option<(DeviceId, Batch)> {
    let urgent = queues.iter().position(|(_, queues)| queues.waiting(Lane::Fault) > 0);
    let at = urgent.or_else(|| queues.iter().position(|(_, queues)| !queues.is_empty()));
    let taken = at.and_then(|at| queues[at].1.pop_batch(BATCH).map(|batch| (queues[at].0, batch)));
    if taken.is_none() {
        // So that no queue believes its last batch is still being moved.
        for (_, queues) in queues {
            let _ = queues.pop_batch(BATCH);
        }
    }
    taken
}
