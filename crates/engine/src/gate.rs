//! Where the fault thread waits to be told to look.
//!
//! Nudges that arrive before the last one was taken are one nudge: to look once shows everything. A nudge is work from the
//! moment it is given; its token goes on with what the look finds.

use crate::pending::{Pending, Token};
use crate::sync::{Arc, Condvar, Mutex, lock, wait, wait_for};
use std::time::Duration;

/// Why the wait is over.
#[derive(Debug)]
pub enum Wake {
    /// Somebody says: look now.
    Nudged(Token),
    /// Time is up.
    Late,
    /// Nobody will nudge any more.
    Closed,
}

/// See the module.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<State>,
    bell: Condvar,
    pending: Arc<Pending>,
}

#[derive(Debug, Default)]
struct State {
    nudged: Option<Token>,
    closed: bool,
}

impl Gate {
    /// A gate whose nudges are counted in `pending`.
    pub fn new(pending: Arc<Pending>) -> Self {
        Self { state: Mutex::new(State::default()), bell: Condvar::new(), pending }
    }

    /// Look at everything now. Counted before this returns; nothing happens once closed.
    pub fn nudge(&self) {
        let mut state = lock(&self.state);
        if !state.closed && state.nudged.is_none() {
            state.nudged = Some(self.pending.token());
            self.bell.notify_one();
        }
    }

    /// As [`Self::nudge`], by somebody who has counted it.
    pub fn pass_on(&self, token: Token) {
        let mut state = lock(&self.state);
        if !state.closed && state.nudged.is_none() {
            state.nudged = Some(token);
            self.bell.notify_one();
        }
    }

    /// Waits for a nudge, at most so long if that is said. One thread waits.
    pub fn wait(&self, at_most: Option<Duration>) -> Wake {
        let mut state = lock(&self.state);
        let mut late = false;
        loop {
            if state.closed {
                return Wake::Closed;
            }
            if let Some(token) = state.nudged.take() {
                return Wake::Nudged(token);
            }
            if late {
                return Wake::Late;
            }
            state = match at_most {
                None => wait(&self.bell, state),
                Some(time) => {
                    late = true;
                    wait_for(&self.bell, state, time)
                }
            };
        }
    }

    /// Ends waiting and nudging for good.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.nudged = None;
        self.bell.notify_all();
    }
}
