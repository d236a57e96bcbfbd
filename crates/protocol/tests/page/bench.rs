//! A page's words of a small size.

use deepum_core::units::{LaunchSeq, StreamSlot, UmBlock};
use deepum_protocol::AtomicU64;
use deepum_protocol::grace::GraceWords;
use deepum_protocol::handout::HandOuts;
use deepum_protocol::inflight::InFlight;
use std::sync::atomic::Ordering;

pub fn words(count: usize) -> &'static [AtomicU64] {
    Box::leak((0..count).map(|_| AtomicU64::new(0)).collect())
}

/// Four words of hand-outs, two streams of which the ends of eight epochs are kept.
pub struct Bench {
    pub outs: HandOuts<'static>,
    pub grace: GraceWords<'static>,
    pub streams: InFlight<'static>,
}

impl Bench {
    pub fn new() -> Self {
        let all = words(12);
        let grace = GraceWords { epoch: &all[0], ended: &all[1] };
        let streams = InFlight {
            progress: &all[2..4],
            issued: &all[4..6],
            streams: &all[6..8],
            epochs: &all[8..10],
            ends: words(2 * 8),
            used: &all[10..11],
            blind: &all[11],
            grace,
        };
        Self { outs: HandOuts::new(words(4), grace), grace, streams }
    }
    pub fn look(&self) {
        self.grace.look(&self.streams);
    }
    pub fn issue(&self, slot: u16, seq: u64) {
        let slot = StreamSlot(slot);
        self.streams.claim(slot, slot);
        self.streams.issue(slot, LaunchSeq(seq));
        self.streams.given(slot, LaunchSeq(seq), true);
    }
    pub fn finish(&self, slot: u16, seq: u64) {
        self.streams.progress[usize::from(slot)].store(seq, Ordering::Release);
    }
    pub fn release(&self, block: u64) {
        self.outs.release(UmBlock(block), self.grace.stamp());
    }
    /// Whether a discard may begin; it is ended at once.
    pub fn discardable(&self, block: u64) -> bool {
        let yes = self.outs.begin_discard(UmBlock(block));
        if yes {
            self.outs.end_discard(UmBlock(block));
        }
        yes
    }
}
