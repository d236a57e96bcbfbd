//! Memory in pieces: whoever asks gets the lowest that is large enough, or the highest, and only in one piece.

use deepum_core::units::Bytes;
use std::collections::BTreeMap;

/// From which end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Low,
    High,
}

/// What is free: by where it begins, how long. No two pieces touch.
#[derive(Debug)]
pub(super) struct Space {
    free: BTreeMap<Bytes, Bytes>,
    held: Bytes,
}

impl Space {
    /// All of it free.
    pub(super) fn new(bytes: Bytes) -> Self {
        Self { free: BTreeMap::from([(Bytes::ZERO, bytes)]), held: Bytes::ZERO }
    }
    /// Takes a piece: where it begins.
    pub(super) fn take(&mut self, bytes: Bytes, end: End) -> Option<Bytes> {
        let mut large = self.free.iter().map(|(at, len)| (*at, *len)).filter(|(_, len)| *len >= bytes);
        let (at, len) = if end == End::Low { large.next() } else { large.next_back() }?;
        self.free.remove(&at);
        let rest = len - bytes;
        let (taken, left) = if end == End::Low { (at, at + bytes) } else { (at + rest, at) };
        if rest > Bytes::ZERO {
            self.free.insert(left, rest);
        }
        self.held += bytes;
        Some(taken)
    }
    /// Gives a piece back.
    pub(super) fn give_back(&mut self, at: Bytes, bytes: Bytes) {
        self.held -= bytes;
        let (mut from, mut len) = (at, bytes);
        if let Some((&before, &its)) = self.free.range(..at).next_back()
            && before + its == at
        {
            self.free.remove(&before);
            (from, len) = (before, its + len);
        }
        if let Some(its) = self.free.remove(&(at + bytes)) {
            len += its;
        }
        self.free.insert(from, len);
    }
    /// How much is taken.
    pub(super) const fn held(&self) -> Bytes {
        self.held
    }
    /// The largest piece.
    pub(super) fn largest(&self) -> Bytes {
        self.free.values().copied().max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_taken_from_either_end_and_join_again() {
        let mut space = Space::new(Bytes(100));
        let low = [space.take(Bytes(10), End::Low), space.take(Bytes(20), End::Low)];
        let high = [space.take(Bytes(30), End::High), space.take(Bytes(5), End::High)];
        assert_eq!((low, high), ([Some(Bytes(0)), Some(Bytes(10))], [Some(Bytes(70)), Some(Bytes(65))]));
        // 35 are left, from 30 on; and 10 when the first is given back: 45, but not in one piece.
        space.give_back(Bytes(0), Bytes(10));
        assert_eq!((space.largest(), space.take(Bytes(36), End::High)), (Bytes(35), None));
        assert_eq!(space.held(), Bytes(55));
        // The one between joins them.
        space.give_back(Bytes(10), Bytes(20));
        assert_eq!((space.largest(), space.take(Bytes(65), End::High)), (Bytes(65), Some(Bytes(0))));
        space.give_back(Bytes(70), Bytes(30));
        space.give_back(Bytes(65), Bytes(5));
        assert_eq!(space.take(Bytes(35), End::Low), Some(Bytes(65)));
    }
}
