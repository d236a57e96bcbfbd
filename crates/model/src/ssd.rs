//! An SSD behind the host: where what leaves a GPU goes when host memory is full.
//!
//! Problem: planners are compared with an SSD beside the host (G10, MICRO'23), which no driver has.
//! Idea: the host's side of a block is in host memory or on the SSD, as a whole when it leaves the GPU: on the SSD if host memory has no
//! room for it. Nothing moves between the two, unless host memory is a cache ([`crate::cache`]). Bytes go between GPU and SSD directly, so they occupy the link for as long as it takes for them, and the SSD
//! for as long as *it* takes; the later end counts.
//!
//! With an SSD host memory is worth more than the time to allocate it: a page that moves to a GPU gives its host page back, while the driver
//! keeps it (facts 4.6).

use crate::engines::Engine;
use deepum_core::units::{Bytes, Nanos};

/// What an SSD can do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ssd {
    /// Bytes a second from it.
    pub read: f64,
    /// Bytes a second to it.
    pub write: f64,
    /// Whether host memory is a cache in front of it ([`crate::cache`]).
    pub cached: bool,
}

/// Its two directions, busy or not. They do not slow each other.
#[derive(Debug)]
pub(crate) struct Drive {
    read: Engine,
    write: Engine,
}

impl Drive {
    pub(crate) fn new(ssd: Ssd) -> Self {
        Self { read: Engine::new(ssd.read, Nanos::ZERO), write: Engine::new(ssd.write, Nanos::ZERO) }
    }

    /// When a copy that is `ready` then can begin.
    pub(crate) fn reads_at(&self, ready: Nanos) -> Nanos {
        self.read.free_at().max(ready)
    }
    pub(crate) fn writes_at(&self, ready: Nanos) -> Nanos {
        self.write.free_at().max(ready)
    }
    /// A copy between it and host memory; the answer is when it is over.
    pub(crate) fn reads(&mut self, ready: Nanos, bytes: Bytes) -> Nanos {
        self.read.copy(ready, bytes).1
    }
    pub(crate) fn writes(&mut self, ready: Nanos, bytes: Bytes) -> Nanos {
        self.write.copy(ready, bytes).1
    }

    /// A copy that the link has from `begin` to `end`; the answer is when it is really over.
    pub(crate) fn beside(&mut self, reads: bool, begin: Nanos, end: Nanos, bytes: Bytes) -> Nanos {
        let engine = if reads { &mut self.read } else { &mut self.write };
        engine.copy(begin, bytes).1.max(end)
    }
}
