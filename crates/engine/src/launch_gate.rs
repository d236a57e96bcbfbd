//! Moving the launch gate, and the last line of defence around it.
//!
//! What the gate is: [`deepum_protocol::gate`]. Where it is to stand: the core (`Engine::gate`). Here it is moved, at the end of each
//! turn, before the turn's token is dropped; so in driven pace the device never sees a gate that is not settled.
//!
//! It must never stay closed. What the core waits for are fetches, and every fetch ends: its result comes back, or it was
//! never queued, or the engine turns itself off and opens everything. Should a move hang inside the driver all the same, the
//! GPU would wait with it, which it would not without us. So in polling pace [`Watchdog`] opens the gate for good once it
//! has been closed for [`PATIENCE`] without any move ending. In driven pace virtual time stands still while the engine works, and
//! the device says when it gives the engine up (`given_up` of the hooks), which opens the gate for good, too.

use deepum_core::units::LaunchSeq;
use deepum_protocol::gate::Gates;
use deepum_protocol::shared::Shared;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the gate may be closed with no move ending. One move is at most 64 MiB: six milliseconds of a PCIe 3.0 link.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// The most that counts between two checks: a process that was stopped meanwhile did not move anything either.
const CHECK: Duration = Duration::from_millis(50);

/// See the module.
#[derive(Debug)]
pub struct LaunchGate {
    gates: Gates,
    enabled: bool,
    /// Never to be closed again.
    given_up: AtomicBool,
    /// Moves that ended, in whatever way.
    moves: AtomicU64,
}

impl LaunchGate {
    /// Over the shim's words; not `enabled`, they stay open.
    pub const fn new(gates: Gates, enabled: bool) -> Self {
        Self { gates, enabled, given_up: AtomicBool::new(false), moves: AtomicU64::new(0) }
    }

    /// A turn ended, in which so many moves did, and `first` of the GPU with this ordinal shall not start yet.
    pub fn set(&self, ordinal: usize, first: Option<LaunchSeq>, shared: &Shared<'_>) {
        let first = first.filter(|_| self.enabled && !self.given_up.load(Ordering::Relaxed));
        self.gates.set(ordinal, first, shared);
        // Either we see what another thread decided, or it opens after us.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.given_up.load(Ordering::Relaxed) {
            self.gates.open();
        }
    }

    /// So many moves ended.
    pub fn moved(&self, count: usize) {
        self.moves.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Opens it for good. Takes no lock.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::SeqCst);
        self.gates.open();
    }
}

/// Watches, from a thread that neither decides nor moves.
#[derive(Debug)]
pub struct Watchdog {
    last: Instant,
    moves: u64,
    closed: Duration,
}

impl Watchdog {
    /// Begins to watch.
    pub const fn new(now: Instant) -> Self {
        Self { last: now, moves: 0, closed: Duration::ZERO }
    }

    /// To be called often. Whether the gate was opened for good, because nothing has moved for too long.
    pub fn check(&mut self, gate: &LaunchGate, now: Instant) -> bool {
        let moves = gate.moves.load(Ordering::Relaxed);
        let passed = now.saturating_duration_since(std::mem::replace(&mut self.last, now)).min(CHECK);
        let stands = moves == std::mem::replace(&mut self.moves, moves) && gate.gates.is_closed();
        self.closed = if stands { self.closed + passed } else { Duration::ZERO };
        let hangs = self.closed >= PATIENCE;
        if hangs {
            gate.give_up();
            self.closed = Duration::ZERO;
        }
        hangs
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use deepum_protocol::AtomicU64 as Word;
    use deepum_protocol::ring::{HEADER_WORDS, Ring};

    fn words(count: usize) -> &'static [Word] {
        Box::leak((0..count).map(|_| Word::new(0)).collect())
    }

    struct Bench {
        gate: LaunchGate,
        ring: Ring<'static>,
        dog: Watchdog,
        now: Instant,
    }

    impl Bench {
        fn new(enabled: bool) -> Self {
            let now = Instant::now();
            let gate = LaunchGate::new(Gates::new(words(1)), enabled);
            Self { gate, ring: Ring::format(words(HEADER_WORDS + 64)).unwrap(), dog: Watchdog::new(now), now }
        }
        fn close(&self, first: u64) {
            self.gate.set(0, Some(LaunchSeq(first)), &self.ring.shared());
        }
        /// Checks every `step` for `time`; whether it barked.
        fn watch(&mut self, step: Duration, time: Duration) -> bool {
            let end = self.now + time;
            let mut barked = false;
            while self.now < end {
                self.now += step;
                barked |= self.dog.check(&self.gate, self.now);
            }
            barked
        }
    }

    const STEP: Duration = Duration::from_millis(5);

    #[test]
    fn a_gate_nobody_moves_is_opened_for_good() {
        let mut b = Bench::new(true);
        b.close(7);
        assert!(!b.watch(STEP, PATIENCE / 2) && b.gate.gates.is_closed());
        assert!(b.watch(STEP, PATIENCE) && !b.gate.gates.is_closed());
        b.close(8);
        assert!(!b.gate.gates.is_closed());
        assert!(!b.watch(STEP, 3 * PATIENCE), "said once");
    }

    #[test]
    fn moves_that_end_and_an_open_gate_keep_it_quiet() {
        let mut b = Bench::new(true);
        for _ in 0..10 {
            b.close(7);
            assert!(!b.watch(STEP, PATIENCE / 2));
            b.gate.moved(1);
            assert!(!b.watch(STEP, PATIENCE / 2));
            b.gate.set(0, None, &b.ring.shared());
            assert!(!b.watch(STEP, PATIENCE * 2));
        }
        b.close(9);
        assert!(b.gate.gates.is_closed());
    }

    #[test]
    fn a_process_that_was_stopped_is_not_a_gate_that_hangs() {
        let mut b = Bench::new(true);
        b.close(7);
        for _ in 0..10 {
            assert!(!b.watch(Duration::from_secs(3600), Duration::from_secs(3600)));
        }
    }

    #[test]
    fn switched_off_it_never_closes() {
        let b = Bench::new(false);
        b.close(7);
        assert!(!b.gate.gates.is_closed());
    }
}
