//! The bounded channel from the fault thread to the correlate thread.
//!
//! Full means that the sender waits: the driver's queue is then the buffer, and it counts what it drops. Closed means that
//! what waits is dropped, with its tokens, and nobody waits any more.

use crate::sync::{Condvar, Mutex, lock, wait};
use std::collections::VecDeque;

/// See the module.
#[derive(Debug)]
pub struct Inbox<T> {
    state: Mutex<State<T>>,
    bell: Condvar,
    limit: usize,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    closed: bool,
}

impl<T> Inbox<T> {
    /// A channel for at most `limit` items.
    pub fn new(limit: usize) -> Self {
        Self { state: Mutex::new(State { items: VecDeque::new(), closed: false }), bell: Condvar::new(), limit }
    }

    /// Puts an item in, waiting for room. Once closed, drops it and says false.
    pub fn push(&self, item: T) -> bool {
        let mut state = lock(&self.state);
        while state.items.len() >= self.limit && !state.closed {
            state = wait(&self.bell, state);
        }
        if state.closed {
            return false;
        }
        state.items.push_back(item);
        self.bell.notify_all();
        true
    }

    /// The oldest item, waiting for one; nothing once closed.
    pub fn pop(&self) -> Option<T> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            if let Some(item) = state.items.pop_front() {
                self.bell.notify_all();
                return Some(item);
            }
            state = wait(&self.bell, state);
        }
    }

    /// Ends it for both sides; what waits is dropped.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.items.clear();
        self.bell.notify_all();
    }
}
