//! The driver's own calls, as the moving threads make them, and which way blocks leave.
//!
//! Here meet what the core knows of that ([`Trial`]), the clock of this world, and the requests (`deepum-kmod-bridge`).

use crate::migrate::Mover;
use crate::pace::Clock;
use crate::sync::{Mutex, lock};
use deepum_config::Leave;
use deepum_core::trial::Trial;
use deepum_core::units::{AddrRange, DeviceId, Nanos, Place, UmBlock};
use deepum_kmod_bridge::{Advice, AdviseError, DiscardError, MigrateError, MigrateFailure, Stay, VaSpace};
use deepum_protocol::ring::Ring;
use deepum_protocol::status::Pace;
use std::sync::{Arc, OnceLock};

/// See the module.
#[derive(Debug)]
pub struct UvmMover {
    space: Arc<VaSpace>,
    /// Where the program says whether it looks at managed memory.
    ring: Ring<'static>,
    /// How blocks had better leave.
    trial: Mutex<Trial>,
    /// What that takes is measured by this.
    clock: Clock,
    /// How they leave unmapped, if the driver has that; asked at the first.
    stay: OnceLock<Result<Stay, String>>,
    /// Where it is said that they do not although they were to.
    say: Option<fn(&str)>,
}

impl UvmMover {
    /// Of this address space of the program that the ring is of.
    pub fn new(space: Arc<VaSpace>, ring: Ring<'static>, leave: Leave, pace: Pace, say: fn(&str)) -> Self {
        let trial = match leave {
            Leave::Mapped => Trial::decided(false),
            Leave::Unmapped => Trial::decided(true),
            Leave::Measured => Trial::default(),
        };
        // Who did not ask for it misses nothing that was promised.
        let say = (leave == Leave::Unmapped).then_some(say);
        Self { space, ring, trial: Mutex::new(trial), clock: Clock::of(pace), stay: OnceLock::new(), say }
    }

    /// Nothing if it is not to leave unmapped.
    fn leave_unmapped(&self, range: AddrRange) -> Option<Result<(), MigrateError>> {
        if !lock(&self.trial).is_unmapped() {
            return None;
        }
        let stay = self.stay.get_or_init(|| self.space.stay().map_err(|why| why.to_string()));
        let left = match stay {
            Ok(stay) => self.ring.shared().unlooked(|| self.space.leave(range, *stay)),
            Err(why) => {
                self.refused(why);
                None
            }
        };
        if let Some(Err(MigrateError { why: MigrateFailure::Other(why), .. })) = &left {
            self.refused(&why.to_string());
            return None;
        }
        left
    }

    /// They leave mapped from now on. One thread takes what goes off the GPU, so it is said once.
    fn refused(&self, why: &str) {
        lock(&self.trial).refuse();
        if let Some(say) = self.say {
            say(&format!("DEEPUM_LEAVE=unmapped: {why}; blocks leave mapped"));
        }
    }
}

impl Mover for UvmMover {
    fn migrate(&self, range: AddrRange, to: Place) -> Result<(), MigrateError> {
        self.space.migrate(range, to)
    }
    fn fetch(&self, range: AddrRange, to: DeviceId) -> Result<(), MigrateError> {
        self.space.fetch(range, to)
    }
    fn leave(&self, range: AddrRange) -> Result<(), MigrateError> {
        let begun = self.clock.now();
        let left = self.leave_unmapped(range);
        let unmapped = left.is_some();
        left.unwrap_or_else(|| self.space.migrate(range, Place::Host))?;
        if let Some(begun) = begun
            && let Some(now) = self.clock.now()
        {
            lock(&self.trial).note(unmapped, range.len.0 / UmBlock::SIZE.0, now.saturating_sub(begun));
        }
        Ok(())
    }
    fn advise(&self, range: AddrRange, advice: Advice) -> Result<(), AdviseError> {
        self.space.advise(range, advice)
    }
    fn discard(&self, range: AddrRange) -> Result<(), DiscardError> {
        self.space.discard(range)
    }
    fn now(&self) -> Option<Nanos> {
        self.clock.now()
    }
}
