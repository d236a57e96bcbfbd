//! When shares of one GPU are told: those that shrink at once, those that grow once room was made for them.
//!
//! Problem: a share that shrinks takes effect only when the worker has evicted. Told at the same moment, growing ones would promise the
//! GPU twice for that long, and the driver would evict by its own lights. But shares may shrink a little all the time,
//! and growing ones cannot wait until that is over.
//!
//! Idea: a share that shrinks opens a [`Room`], with a time that nothing pushes out and what each share is to be by then. At that time
//! shares grow, but only to this: what shrank meanwhile goes with the next room. So whoever may grow waits for
//! twice [`MAKING_ROOM`] at most, and what is told now and what may still be held add up to no more than there is.
//!
//! Pure: no clock. What the shares are is said elsewhere ([`crate::share`]); each GPU has a room of its own.

use crate::programs::ProgramId;
use deepum_core::units::Bytes;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long room may take to be made: two reports.
pub const MAKING_ROOM: Duration = Duration::from_millis(200);

/// One program's share of the GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Whose.
    pub who: ProgramId,
    /// As told last.
    pub told: Bytes,
    /// As it is to be.
    pub target: Bytes,
}

/// Room that is being made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Room {
    ready: Instant,
    /// What shares may grow to when it is ready. Who came later has no part in it.
    up_to: BTreeMap<ProgramId, Bytes>,
    /// Whether shares shrank after it was begun.
    more: bool,
}

impl Room {
    fn new(shares: &[Share], now: Instant) -> Self {
        Self {
            ready: now + MAKING_ROOM,
            up_to: shares.iter().map(|share| (share.who, share.target)).collect(),
            more: false,
        }
    }

    /// When to ask [`tell`] again.
    pub const fn ready(&self) -> Instant {
        self.ready
    }
}

/// What to tell of each share, in their order, and the room that is to be kept until then.
pub fn tell(room: Option<Room>, shares: &[Share], now: Instant) -> (Vec<Bytes>, Option<Room>) {
    let shrinks = shares.iter().any(|share| share.target < share.told);
    let up_to = |share: &Share| match &room {
        None if !shrinks => share.target,
        Some(room) if now >= room.ready => room.up_to.get(&share.who).copied().unwrap_or_default(),
        _ => Bytes::ZERO,
    };
    let told: Vec<Bytes> = shares.iter().map(|share| share.target.min(share.told.max(up_to(share)))).collect();
    let waits = shares.iter().zip(&told).any(|(share, told)| *told < share.target);
    let room = match room {
        Some(room) if now < room.ready => Some(Room { more: room.more || shrinks, ..room }),
        before => (shrinks || waits || before.is_some_and(|room| room.more)).then(|| Room::new(shares, now)),
    };
    (told, room)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Programs at a GPU of 1000 bytes, and a clock.
    struct World {
        start: Instant,
        now: Duration,
        room: Option<Room>,
        told: Vec<u64>,
        /// What was told before, and until when it may still be held.
        held: Vec<(usize, u64, Duration)>,
    }

    impl World {
        fn new(told: &[u64]) -> Self {
            Self { start: Instant::now(), now: Duration::ZERO, room: None, told: told.to_vec(), held: Vec::new() }
        }

        fn tell(&mut self, millis: u64, targets: &[u64]) -> &[u64] {
            self.now += Duration::from_millis(millis);
            let share = |(i, (told, target)): (usize, (&u64, &u64))| Share {
                who: ProgramId::numbered(i as u64),
                told: Bytes(*told),
                target: Bytes(*target),
            };
            let shares: Vec<Share> = self.told.iter().zip(targets).enumerate().map(share).collect();
            let (told, room) = tell(self.room.take(), &shares, self.start + self.now);
            for (i, told) in told.into_iter().enumerate() {
                self.held.push((i, self.told[i], self.now + MAKING_ROOM));
                self.told[i] = told.get();
            }
            self.room = room;
            self.held.retain(|(_, _, until)| *until > self.now);
            &self.told
        }

        /// The most that all may hold now.
        fn held(&self) -> u64 {
            let most = |i: usize| self.held.iter().filter(|held| held.0 == i).map(|held| held.1).max().unwrap_or(0);
            (0..self.told.len()).map(|i| self.told[i].max(most(i))).sum()
        }
    }

    #[test]
    fn shrinking_is_told_at_once_and_growing_when_room_was_made() {
        let mut world = World::new(&[900, 100]);
        assert_eq!(world.tell(0, &[400, 600]), [400, 100]);
        assert_eq!(world.tell(199, &[400, 600]), [400, 100]);
        assert_eq!(world.room.as_ref().map(Room::ready), Some(world.start + MAKING_ROOM));
        assert_eq!(world.tell(1, &[400, 600]), [400, 600]);
        assert_eq!(world.room, None);
        // Nobody shrank: nothing to wait for.
        assert_eq!(world.tell(5000, &[300, 600]), [300, 600]);
        assert_eq!(world.tell(200, &[300, 600]), [300, 600]);
        assert_eq!(world.tell(1, &[300, 700]), [300, 700]);
    }

    #[test]
    fn steady_small_shrinking_does_not_defer_growth() {
        let mut world = World::new(&[900, 100]);
        for turn in 0..40 {
            let left = 800 - turn * 10;
            let told = world.tell(50, &[left, 1000 - left])[1];
            // What the first had 400 ms ago, the second has now.
            let then = 800 - turn.saturating_sub(8) * 10;
            assert!(turn < 8 || told >= 1000 - then, "turn {turn}: {told}");
        }
    }

    #[test]
    fn what_shrinks_while_room_is_made_makes_the_next_room() {
        let mut world = World::new(&[900, 100]);
        world.tell(0, &[800, 100]);
        world.tell(199, &[500, 100]);
        // Nobody wants it until the first has been told for two milliseconds.
        world.tell(1, &[500, 100]);
        assert_eq!(world.tell(1, &[500, 500]), [500, 100]);
        assert!(world.held() <= 1000 && world.room.is_some());
        world.tell(199, &[500, 500]);
        assert_eq!(world.tell(200, &[500, 500]), [500, 500]);
    }

    proptest! {
        /// Whatever the shares, the GPU is not promised twice, and once they rest everybody has his own.
        #[test]
        fn nothing_is_promised_twice_and_nobody_waits_for_ever(turns in prop::collection::vec((0u64..150, 0u64..500, 0u64..500, 0u64..500), 1..60)) {
            let mut world = World::new(&[0, 0, 0]);
            let mut last = [0; 3];
            for (millis, a, b, c) in turns {
                let sum = (a + b + c).max(1000);
                last = [a, b, c].map(|part| part * 1000 / sum);
                let told = world.tell(millis, &last);
                prop_assert!(told.iter().zip(&last).all(|(told, target)| told <= target));
                prop_assert!(world.held() <= 1000, "{:?} {:?}", world.told, world.held);
            }
            world.tell(200, &last);
            prop_assert_eq!(world.tell(200, &last), &last);
        }
    }
}
