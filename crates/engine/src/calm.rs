//! How long to wait before the next look, where nobody says when to look.
//!
//! Faults come in trains a few microseconds apart, so after some the thread stays awake for [`BUSY`] at most. Otherwise it
//! sleeps, longer the longer nothing happens: a training program costs some thousand looks a second,
//! one that waits for its user a few hundred, a dormant one fifty. A look at nothing is a few loads.
//!
//! Decides only; the waiting is done at the gate, so that a nudge ends it. The steps are choices, not measurements:
//! 50 us is the order of one fault's service time (facts 6), and a look costs well under a
//! hundredth of each sleep.

use std::time::Duration;

/// Longest time spent without sleeping, after notices came.
pub const BUSY: Duration = Duration::from_micros(50);

/// What to do before the next look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Look again at once, for [`BUSY`] at most.
    Busy,
    /// Sleep this long.
    Sleep(Duration),
}

/// What the last look showed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Saw {
    /// Nothing new.
    Nothing,
    /// Records or progress.
    Life,
    /// Driver notices.
    Notices,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Calm {
    quiet: u32,
}

impl Calm {
    /// The wait after a look that showed `saw`, while the engine is `awake` or not.
    pub fn after(&mut self, saw: Saw, awake: bool) -> Wait {
        self.quiet = if saw == Saw::Nothing { self.quiet.saturating_add(1) } else { 0 };
        let micros = match (awake, self.quiet) {
            (true, 0) if saw == Saw::Notices => return Wait::Busy,
            (true, 0..20) => 50,
            (true, 20..100) => 200,
            (true, 100..1000) => 1_000,
            (true, _) => 5_000,
            (false, 0..20) => 1_000,
            (false, _) => 20_000,
        };
        Wait::Sleep(Duration::from_micros(micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_nothing_happens_the_longer_the_sleep() {
        for (awake, looks_in_a_minute) in [(true, 13_000), (false, 3_100)] {
            let mut calm = Calm::default();
            let (mut slept, mut looks, mut last) = (Duration::ZERO, 0, Duration::ZERO);
            while slept < Duration::from_secs(60) {
                let Wait::Sleep(time) = calm.after(Saw::Nothing, awake) else { panic!("busy over nothing") };
                assert!(time >= last);
                (slept, looks, last) = (slept + time, looks + 1, time);
            }
            assert!(looks < looks_in_a_minute, "{looks} looks in a quiet minute, awake: {awake}");
        }
    }

    #[test]
    fn only_notices_keep_an_awake_engine_busy_and_life_resets_the_sleep() {
        let mut calm = Calm::default();
        assert_eq!(calm.after(Saw::Notices, true), Wait::Busy);
        assert_eq!(calm.after(Saw::Life, true), Wait::Sleep(Duration::from_micros(50)));
        assert!(matches!(calm.after(Saw::Notices, false), Wait::Sleep(_)));
        for _ in 0..5000 {
            calm.after(Saw::Nothing, true);
        }
        assert_eq!(calm.after(Saw::Life, true), Wait::Sleep(Duration::from_micros(50)));
    }
}
