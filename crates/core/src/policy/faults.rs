//! What the policies make of a fault: a fetch of the whole block, the launch it belongs to, and what faulted before it there.

use crate::command::{Command, Commands, Why};
use crate::known::Known;
use crate::residency::{Ask, Handle};
use crate::units::{ExecId, LaunchSeq, StreamSlot, UmBlock};
use crate::window::Issued;

/// A launch that faulted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faulting {
    pub(super) seq: LaunchSeq,
    pub(super) exec: ExecId,
    stream: StreamSlot,
}

impl Faulting {
    /// The launch that a fault on `block` belongs to, if it has an execution ID.
    pub(super) fn on(block: UmBlock, known: &mut Known) -> Option<Self> {
        // Of a launch that nobody told of the next one would learn all that it uses, and keep it.
        let is_told = |launch: &&Issued| launch.reaches(block) || !known.follows_untold(launch);
        let Some(launch) = known.window.attribute(block).filter(is_told) else {
            known.counters.faults_unattributed += 1;
            return None;
        };
        Some(Self { seq: launch.seq, exec: launch.exec?, stream: launch.stream })
    }
}

/// For each stream the launch that faulted last there, and what was noted of its faults.
#[derive(Debug)]
pub(super) struct LastFaults<T> {
    streams: Vec<Option<(LaunchSeq, T)>>,
}

impl<T: Copy> LastFaults<T> {
    pub(super) fn new() -> Self {
        Self { streams: Vec::new() }
    }
    /// What was noted of this launch, if it is the one that faulted last in `stream`.
    pub(super) fn of(&self, seq: LaunchSeq, stream: StreamSlot) -> Option<T> {
        let last = self.streams.get(stream.0 as usize).copied().flatten();
        last.filter(|&(other, _)| other == seq).map(|(_, noted)| noted)
    }
    /// Notes something of a launch that faults. Returns what was noted of the same launch before.
    pub(super) fn note(&mut self, launch: Faulting, note: impl FnOnce(Option<T>) -> T) -> Option<T> {
        let before = self.of(launch.seq, launch.stream);
        let stream = launch.stream.0 as usize;
        if self.streams.len() <= stream {
            self.streams.resize(stream + 1, None);
        }
        self.streams[stream] = Some((launch.seq, note(before)));
        before
    }
    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.streams.clear();
    }
}

/// Asks for the rest of a block the GPU waits for. A block faults several times while it waits; the queues know.
pub(super) fn fetch_now(at: Handle, known: &mut Known, out: &mut Commands) {
    let state = known.residency.get(at);
    known.counters.fault_fetch_asked += u64::from(state.ask() != Ask::Urgent);
    out.push(Command::Fetch { block: state.block, why: Why::Fault });
    known.residency.set_ask(at, Ask::Urgent);
}
