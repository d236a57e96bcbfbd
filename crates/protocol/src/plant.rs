//! Faults that the model check plants on purpose, to show that it would find them. Outside of it there are none.

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(loom), allow(dead_code, reason = "named where it would be, planted under loom only"))]
pub enum Plant {
    /// A hold does not wait for the discard in flight.
    NoWait,
    /// Turning off leaves out what is closed at the moment.
    ClosedAreLeftOut,
    /// What is closed is free for the next one, also after turning off.
    CloseFreesAll,
    /// A discard does not look for holders.
    NoCount,
    /// The end of a discard is not ordered after it.
    LooseEnd,
    /// A hold is not ordered after the end of the discard.
    LooseHold,
    /// A discard is not ordered after the last release.
    LooseRelease,
    /// What was issued before a release is not ordered before its stamp.
    LooseStamp,
    /// The engine's look at slots is not ordered behind the epoch that it found.
    LooseLook,
    /// The engine looks at the epoch after the slots.
    LateLook,
    /// A slot tells its newest epoch before the ends of those before it.
    EpochBeforeEnds,
    /// An operation behind a release begins no epoch.
    StayInEpoch,
    /// A discard takes the epoch in which the release fell for one before it.
    SameEpoch,
    /// A stream is asked whether it is idle while an operation for it is on its way to the driver.
    AskedInCall,
    /// A refused operation stays in its slot.
    RefusedForGood,
    /// A reader does not say what it is taking.
    NoTaken,
}

#[cfg(loom)]
mod planted {
    use super::Plant;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    static NOW: Mutex<Option<Plant>> = Mutex::new(None);
    static LIFE: AtomicU32 = AtomicU32::new(0);

    /// Has the reader that comes to its `steps`th place to die from now, die there; 0 has nobody die.
    pub fn set_life(steps: u32) {
        LIFE.store(steps, Ordering::Relaxed);
    }

    /// Whether the reader dies here.
    pub fn dies() -> bool {
        let left = LIFE.load(Ordering::Relaxed);
        LIFE.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 1
    }

    /// Plants one, or none.
    pub fn set(fault: Option<Plant>) {
        *NOW.lock().unwrap() = fault;
    }

    /// Whether this one is planted.
    pub fn is(fault: Plant) -> bool {
        *NOW.lock().unwrap() == Some(fault)
    }
}
#[cfg(loom)]
pub use planted::{dies, is, set, set_life};

/// Whether this one is planted.
#[cfg(not(loom))]
pub const fn is(_: Plant) -> bool {
    false
}

/// Whether a reader dies here, between two of its stores.
#[cfg(not(loom))]
pub const fn dies() -> bool {
    false
}
