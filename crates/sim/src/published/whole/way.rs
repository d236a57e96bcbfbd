//! Transfers one after the other.

use deepum_core::units::Nanos;
use deepum_trace::program::TensorId;
use std::collections::VecDeque;

/// One direction of one tier.
#[derive(Default, Debug)]
pub(super) struct Way {
    queue: VecDeque<(TensorId, Nanos)>,
    /// When the first of them is over.
    ends: Nanos,
}

impl Way {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
    pub(super) fn push(&mut self, id: TensorId, now: Nanos, takes: Nanos) {
        if self.queue.is_empty() {
            self.ends = now + takes;
        }
        self.queue.push_back((id, takes));
    }
    /// When the next transfer ends.
    pub(super) fn next(&self) -> Option<Nanos> {
        (!self.queue.is_empty()).then_some(self.ends)
    }
    /// Whose transfer has ended by now; the next one begins.
    pub(super) fn ended(&mut self, now: Nanos) -> Option<TensorId> {
        if self.next()? > now {
            return None;
        }
        let (id, _) = self.queue.pop_front()?;
        if let Some((_, takes)) = self.queue.front() {
            self.ends += *takes;
        }
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_follow_each_other() {
        let (a, b) = (TensorId(0), TensorId(1));
        let mut way = Way::default();
        way.push(a, Nanos(10), Nanos(5));
        way.push(b, Nanos(12), Nanos(7));
        assert_eq!((way.ended(Nanos(14)), way.next()), (None, Some(Nanos(15))));
        assert_eq!((way.ended(Nanos(15)), way.next()), (Some(a), Some(Nanos(22))));
        assert_eq!((way.ended(Nanos(22)), way.next(), way.is_empty()), (Some(b), None, true));
        way.push(a, Nanos(30), Nanos(5));
        assert_eq!(way.next(), Some(Nanos(35)));
    }
}
