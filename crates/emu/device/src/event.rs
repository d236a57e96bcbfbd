//! Events: a point in a stream, and the time at which the device passed it.

use std::collections::HashMap;

use deepum_core::units::{DeviceId, Nanos};

use crate::error::{CuError, CuResult};
use crate::stream::Mark;

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The device whose context it was made in.
    pub device: DeviceId,
    /// Whether it takes the time.
    pub timing: bool,
    /// Whether other processes may have it, too ([`crate::ipc`]).
    pub shared: bool,
    /// Behind which work it was last recorded; none before the first record.
    pub mark: Option<Mark>,
    /// When the last record that was reached was reached.
    pub at: Nanos,
}

/// Every event of the process.
#[derive(Debug, Default)]
pub struct Events {
    next: u32,
    live: HashMap<u32, Event>,
}

impl Events {
    /// A new event of `device`.
    pub fn create(&mut self, device: DeviceId, timing: bool, shared: bool) -> u32 {
        self.next += 1;
        self.live.insert(self.next, Event { device, timing, shared, mark: None, at: Nanos::ZERO });
        self.next
    }

    /// Ends an event; what waits for its mark still does.
    ///
    /// # Errors
    /// `InvalidHandle`.
    pub fn destroy(&mut self, id: u32) -> CuResult {
        self.live.remove(&id).map(drop).ok_or(CuError::InvalidHandle)
    }

    /// The event.
    ///
    /// # Errors
    /// `InvalidHandle`.
    pub fn get(&self, id: u32) -> CuResult<Event> {
        self.live.get(&id).copied().ok_or(CuError::InvalidHandle)
    }

    /// It was recorded behind `mark`.
    ///
    /// # Errors
    /// `InvalidHandle`.
    pub fn record(&mut self, id: u32, mark: Mark) -> CuResult {
        let event = self.live.get_mut(&id).ok_or(CuError::InvalidHandle)?;
        event.mark = Some(mark);
        Ok(())
    }

    /// The device passed a record of it.
    pub fn reach(&mut self, id: u32, at: Nanos) {
        if let Some(event) = self.live.get_mut(&id) {
            event.at = at;
        }
    }
}
