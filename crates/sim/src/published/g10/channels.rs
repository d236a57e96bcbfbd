//! What the published planner takes the channels to carry, kernel by kernel.
//!
//! Its gigabytes are 2^30 bytes here, while those of the world it is played in are 10^9. What goes to the SSD or comes from it is missing on the link; of what the
//! link carries beside, the SSD misses what the link could not carry beside a busy SSD, and that counts again with each booking.

use crate::tiers::{Rate, Tier};
use deepum_core::units::{Bytes, Nanos};

/// A rate whose gigabytes are taken for 2^30 bytes.
pub(in crate::published) fn as_binary(rate: Rate) -> Rate {
    Rate(u64::try_from((u128::from(rate.0) << 30) / 1_000_000_000).unwrap_or(u64::MAX))
}

#[derive(Clone, Debug)]
struct Channel {
    can: Vec<Bytes>,
    has: Vec<Bytes>,
}

impl Channel {
    fn new(rate: Rate, times: &[Nanos]) -> Self {
        let can = times.iter().map(|&time| as_binary(rate).bytes(time)).collect();
        Self { can, has: vec![Bytes::ZERO; times.len()] }
    }
    fn room(&self, kernel: usize) -> Bytes {
        self.can[kernel].saturating_sub(self.has[kernel])
    }
}

/// One direction: the link and the SSD.
#[derive(Clone, Debug)]
pub(super) struct Channels {
    link: Channel,
    ssd: Channel,
}

impl Channels {
    /// Nothing booked.
    pub(super) fn new(link: Rate, ssd: Rate, times: &[Nanos]) -> Self {
        Self { link: Channel::new(link, times), ssd: Channel::new(ssd, times) }
    }
    fn to(&self, tier: Tier) -> &Channel {
        if tier == Tier::Ssd { &self.ssd } else { &self.link }
    }
    /// Whether none of these kernels has room for the SSD.
    pub(super) fn saturated(&self, mut kernels: impl Iterator<Item = usize>) -> bool {
        kernels.all(|kernel| self.ssd.room(kernel) == Bytes::ZERO)
    }
    /// In which of these kernels the last of so many bytes crosses: the last of them, if there is too little room.
    pub(super) fn done(&self, tier: Tier, bytes: Bytes, kernels: impl Iterator<Item = usize>) -> usize {
        let (mut rest, mut done) = (bytes, 0);
        for kernel in kernels {
            done = kernel;
            rest = rest.saturating_sub(self.to(tier).room(kernel));
            if rest == Bytes::ZERO {
                break;
            }
        }
        done
    }
    /// Books what there is room for from this kernel on, up to so many bytes.
    pub(super) fn book(&mut self, tier: Tier, bytes: Bytes, from: usize) {
        let mut rest = bytes;
        for kernel in from..self.link.can.len() {
            let taken = rest.min(self.to(tier).room(kernel));
            if taken == Bytes::ZERO {
                continue;
            }
            rest -= taken;
            self.link.has[kernel] += taken;
            let ssd = self.ssd.can[kernel];
            self.ssd.has[kernel] += match tier {
                Tier::Ssd => taken,
                Tier::Host => self.link.has[kernel].saturating_sub(self.link.can[kernel].saturating_sub(ssd)),
            };
            self.ssd.has[kernel] = self.ssd.has[kernel].min(ssd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three kernels of 1, 2 and 4 s; a link of 10 GiB/s, an SSD of 4 GiB/s.
    fn channels() -> Channels {
        Channels::new(Rate(10_000_000_000), Rate(4_000_000_000), &[1, 2, 4].map(|s| Nanos(s * 1_000_000_000)))
    }

    #[test]
    fn gigabytes_are_binary_and_bytes_cross_where_there_is_room() {
        // 10, 20 and 40 GiB over the link; 4, 8 and 16 to the SSD.
        let mut channels = channels();
        assert_eq!(channels.done(Tier::Host, Bytes::gib(10), 0..3), 0);
        assert_eq!(channels.done(Tier::Host, Bytes::gib(11), 0..3), 1);
        assert_eq!(channels.done(Tier::Ssd, Bytes::gib(17), (0..3).rev()), 1);
        assert_eq!(channels.done(Tier::Ssd, Bytes::gib(99), (0..3).rev()), 0, "more than there is");
        channels.book(Tier::Ssd, Bytes::gib(6), 0);
        assert!(channels.saturated(0..1) && !channels.saturated(0..2));
        // Of the link 6 and 18 GiB are left.
        assert_eq!(channels.done(Tier::Host, Bytes::gib(6), 0..3), 0);
        assert_eq!(channels.done(Tier::Host, Bytes::gib(24), 0..3), 1);
    }

    #[test]
    fn a_full_link_takes_the_ssd_with_it() {
        let mut channels = channels();
        // Beside a busy SSD kernel 0 carries 6 GiB. The seventh costs the SSD one; the eighth two more, as seven and eight count again.
        channels.book(Tier::Host, Bytes::gib(7), 0);
        assert_eq!(channels.done(Tier::Ssd, Bytes::gib(3), 0..3), 0);
        channels.book(Tier::Host, Bytes::gib(1), 0);
        assert_eq!(channels.done(Tier::Ssd, Bytes::gib(1), 0..3), 0);
        assert_eq!(channels.done(Tier::Ssd, Bytes::gib(2), 0..3), 1);
    }
}
