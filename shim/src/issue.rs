//! An operation takes its place in its device's sequence and in its stream: what launches and copies have in common.
//!
//! The page says at any moment which operations of which stream may still be running ([`deepum_protocol::inflight`]), so that nothing
//! is thrown away under them. So every operation that reads or writes managed memory is issued here, also while the engine sleeps: what
//! it finds in flight when it wakes must be known.
//!
//! Order: into the stream's slot; a place in the sequence, noted in the slot; the program's own call; the progress write behind it, while
//! awake; out of the slot.

use crate::abi::Ptr;
use crate::{page, progress, streams};
use deepum_core::units::{DeviceId, LaunchSeq, StreamSlot};
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
    slot: Option<StreamSlot>,
    /// The newest place of the stream until then.
    before: LaunchSeq,
}

impl Issue {
    /// The operation begins; `take` takes its place, or there is none, and then nothing has happened.
    #[inline]
    pub fn begin(
        shared: &Shared<'_>,
        device: DeviceId,
        stream: Ptr,
        per_thread: bool,
        take: impl FnOnce() -> Option<LaunchSeq>,
    ) -> Option<Self> {
        let awake = shared.mode() == Mode::Awake;
        let slot = if progress::is_written() { streams::slot(device, stream, per_thread) } else { None };
        let Some(streams) = page::in_flight() else {
            // No engine, so nothing will be thrown away.
            return Some(Self { device, seq: take()?, awake, stream, per_thread, slot, before: LaunchSeq(0) });
        };
        let Some(slot) = slot else {
            streams.lose_sight();
            return Some(Self { device, seq: take()?, awake, stream, per_thread, slot, before: LaunchSeq(0) });
        };
        streams.enter(slot);
        let Some(seq) = take() else {
            streams.leave(slot, || shared.issued(device));
            return None;
        };
        let before = streams.issue(slot, seq);
        Some(Self { device, seq, awake, stream, per_thread, slot: Some(slot), before })
    }

    /// The stream's number for records.
    pub fn slot(&self) -> StreamSlot {
        self.slot.unwrap_or(StreamSlot::NONE)
    }

    /// The driver has answered. `refused` says that the operation will never run.
    pub fn end(&self, shared: &Shared<'_>, refused: bool) {
        let (Some(slot), Some(streams)) = (self.slot, page::in_flight()) else { return };
        if refused {
            streams.refused(slot, self.seq, self.before);
        } else if self.awake {
            progress::write(shared, self.stream, self.per_thread, slot, self.seq);
        }
        streams.leave(slot, || shared.issued(self.device));
    }
}
