//! What memory there is beside the GPU's, and how fast bytes get there and back.
//!
//! The SSD is reached over the same link as host memory (G10, MICRO'23, section 3), so what it carries is missing there.

use deepum_core::units::{Bytes, Nanos};

/// Bytes per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rate(pub u64);

/// One second.
const SECOND: u128 = 1_000_000_000;

impl Rate {
    /// How long `bytes` take, rounded up; for ever at a rate of 0.
    #[must_use]
    pub fn time(self, bytes: Bytes) -> Nanos {
        let work = u128::from(bytes.0) * SECOND;
        Nanos(match u128::from(self.0) {
            0 => u64::MAX,
            rate => u64::try_from(work.div_ceil(rate)).unwrap_or(u64::MAX),
        })
    }
    /// How many whole bytes pass in `time`.
    #[must_use]
    pub fn bytes(self, time: Nanos) -> Bytes {
        Bytes(u64::try_from(u128::from(self.0) * u128::from(time.0) / SECOND).unwrap_or(u64::MAX))
    }
}

/// One direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pipe {
    /// How fast bytes follow each other.
    pub rate: Rate,
    /// What each transfer takes beside its bytes.
    pub latency: Nanos,
}

impl Pipe {
    /// How long a transfer takes that has the pipe to itself.
    #[must_use]
    pub fn time(self, bytes: Bytes) -> Nanos {
        Nanos(self.rate.time(bytes).0.saturating_add(self.latency.0))
    }
}

/// Both directions of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Duplex {
    /// Off the GPU: writes.
    pub out: Pipe,
    /// Onto the GPU: reads.
    pub back: Pipe,
}

/// Where an absent tensor can be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Tier {
    /// Host memory.
    Host,
    /// The SSD.
    Ssd,
}

/// Memory and links of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tiers {
    /// GPU memory that tensors can fill.
    pub gpu: Bytes,
    /// Host memory that tensors can fill.
    pub host: Bytes,
    /// Between GPU and host; what goes to the SSD and comes from it passes here, too.
    pub link: Duplex,
    /// The SSD, if there is one; it holds whatever is brought to it.
    pub ssd: Option<Duplex>,
}

impl Tiers {
    /// The way to a tier and back: nothing if there is no such tier.
    #[must_use]
    pub fn to(&self, tier: Tier) -> Option<Duplex> {
        match tier {
            Tier::Host => Some(self.link),
            Tier::Ssd => self.ssd,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_and_bytes_down() {
        // 3 bytes at 2 bytes a second: 1.5 s. At 7: 428571428.57 ns.
        assert_eq!(Rate(2).time(Bytes(3)), Nanos(1_500_000_000));
        assert_eq!(Rate(7).time(Bytes(3)), Nanos(428_571_429));
        assert_eq!((Rate(7).time(Bytes::ZERO), Rate(0).time(Bytes(1))), (Nanos::ZERO, Nanos(u64::MAX)));
        assert_eq!((Rate(7).bytes(Nanos(428_571_428)), Rate(7).bytes(Nanos(428_571_429))), (Bytes(2), Bytes(3)));
        assert_eq!(Pipe { rate: Rate(2), latency: Nanos(5) }.time(Bytes(1)), Nanos(500_000_005));
    }
}
