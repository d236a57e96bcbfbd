//! Copy engines: one timeline per direction.
//!
//! An engine does its copies in the order they were ordered, one at a time. A copy starts when the engine
//! is free and everything it depends on is done; the thread that ordered it does not wait (the driver keeps
//! such dependencies in trackers).

use deepum_core::units::{Bytes, Nanos};

#[derive(Clone, Debug)]
pub(crate) struct Engine {
    busy_until: Nanos,
    bytes_per_second: f64,
    per_copy: Nanos,
}

impl Engine {
    pub(crate) fn new(bytes_per_second: f64, per_copy: Nanos) -> Self {
        Self { busy_until: Nanos::ZERO, bytes_per_second, per_copy }
    }

    pub(crate) fn free_at(&self) -> Nanos {
        self.busy_until
    }

    /// Orders one contiguous copy; the answer is when it begins and ends.
    pub(crate) fn copy(&mut self, earliest: Nanos, bytes: Bytes) -> (Nanos, Nanos) {
        let begin = self.busy_until.max(earliest);
        let end = begin + self.per_copy + time_of(bytes, self.bytes_per_second);
        self.busy_until = end;
        (begin, end)
    }

    /// Keeps the engine busy until `until`: the other end of a copy between devices.
    pub(crate) fn occupy(&mut self, until: Nanos) {
        self.busy_until = self.busy_until.max(until);
    }
}

/// How long `bytes` take at a rate.
#[expect(clippy::cast_possible_truncation, reason = "2^64 bytes at 100 GB/s take 1.8e17 ns")]
pub(crate) fn time_of(bytes: Bytes, bytes_per_second: f64) -> Nanos {
    Nanos((bytes.0 as f64 * 1e9 / bytes_per_second) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_queue_up_and_wait_for_what_they_need() {
        let mut e = Engine::new(1e9, Nanos(100));
        assert_eq!(e.copy(Nanos(50), Bytes(1000)), (Nanos(50), Nanos(1150)));
        assert_eq!(e.copy(Nanos(60), Bytes(1000)), (Nanos(1150), Nanos(2250)));
        assert_eq!(e.copy(Nanos(9000), Bytes(0)), (Nanos(9000), Nanos(9100)));
    }
}
