//! An operation takes its place in its device's sequence and in its stream: what launches and copies have in common.
//!
//! The page says at any moment which operations of which stream may still be running ([`deepum_protocol::inflight`]), so that nothing
//! is thrown away under them. So every operation that reads or writes managed memory is issued here, also while the engine sleeps: what
//! it finds in flight when it wakes must be known.
//!
//! Order: a place in the sequence, noted in the slot; a look whether somebody wants nobody to be in a call ([`crate::still`]); the program's own call; the progress write behind it, while
//! awake; a note in the slot that the driver has both. Asleep that is one locked instruction and two plain stores.

use crate::abi::Ptr;
use crate::streams::{self, Place};
use crate::{idle, page, progress, record, still};
use deepum_core::units::{DeviceId, LaunchSeq, StreamSlot};
use deepum_protocol::inflight::Before;
use deepum_protocol::shared::{Mode, Shared};

/// An operation between the two halves of its hook.
#[derive(Clone, Copy)]
pub struct Issue {
    /// Whose sequence.
    pub device: DeviceId,
    /// Its place there.
    pub seq: LaunchSeq,
    /// Whether the engine was awake when it began.
    pub awake: bool,
    stream: Ptr,
    per_thread: bool,
    /// Where it is followed, and what was there before.
    place: Option<(Place, Before)>,
}

impl Issue {
    /// The operation begins; `take` takes its place in the sequence, or there is none, and then nothing has happened.
    #[inline]
    pub fn begin(
        shared: &Shared<'_>,
        device: DeviceId,
        stream: Ptr,
        per_thread: bool,
        take: impl FnOnce() -> Option<LaunchSeq>,
    ) -> Option<Self> {
        let awake = shared.mode() == Mode::Awake;
        let seq = take()?;
        // Without a page there is no engine, so nothing will be thrown away.
        let place = page::in_flight().and_then(|slots| {
            let place = if progress::is_written() { streams::place(device, stream, per_thread) } else { None };
            let Some(place) = place else {
                slots.lose_sight();
                if still::is_wanted() {
                    still::wait();
                }
                return None;
            };
            let mut before = slots.issue(place.slot, seq);
            while still::is_wanted() {
                slots.refused(place.slot, before);
                still::wait();
                before = slots.issue(place.slot, seq);
            }
            Some((place, before))
        });
        Some(Self { device, seq, awake, stream, per_thread, place })
    }

    /// The stream's number for records.
    pub fn stream(&self) -> StreamSlot {
        self.place.map_or(StreamSlot::NONE, |(place, _)| place.stream)
    }

    /// Whose progress word tells when it is over, and from which place on.
    pub fn progress(&self) -> Option<(StreamSlot, LaunchSeq)> {
        self.place.map(|(place, _)| (place.slot, self.seq))
    }

    /// The driver has answered. `refused` says that the operation will never run.
    #[inline]
    pub fn end(&self, shared: &Shared<'_>, refused: bool) {
        let (Some((place, before)), Some(slots)) = (self.place, page::in_flight()) else { return };
        if refused {
            return slots.refused(place.slot, before);
        }
        let followed = (self.awake || record::wants_progress())
            && progress::write(shared, self.stream, self.per_thread, place.slot, self.seq);
        slots.given(place.slot, self.seq, followed);
        if self.awake {
            idle::look(slots, self.device, self.seq);
        }
    }
}
