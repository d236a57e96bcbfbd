//! The GPU in a replay: one thing after the other, in the order in which it was issued.
//!
//! A trace does not say which streams wait for which, so the order of issue stands for it; training in PyTorch uses one stream for nearly
//! all it does. Each kernel walks over what it touches, and faults on what is not there ([`KernelRun`]).

use super::ReplayError;
use super::mind::GPU;
use super::script::{What, Work};
use deepum_core::units::{Bytes, LaunchSeq, Nanos, Place, StreamSlot};
use deepum_model::{Accessor, KernelRun, Precision, Profile, Step, Touch, UnifiedMemory};
use std::collections::VecDeque;

/// See the module.
#[derive(Default, Debug)]
pub(super) struct Gpu<'a> {
    queue: VecDeque<Issued<'a>>,
    running: Option<Running>,
    /// When the last kernel ended, and the gap after it.
    free: Nanos,
    /// When all that came with it is over, too.
    followed: Nanos,
    pub(super) finished: LaunchSeq,
    /// When it ended.
    pub(super) finished_at: Nanos,
    /// Where the gate stands: this launch and those after it shall not start.
    pub(super) gate: Option<LaunchSeq>,
    /// Time that launches stood at the gate.
    pub(super) stood: Nanos,
}

/// Something the GPU was given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Issued<'a> {
    pub(super) seq: LaunchSeq,
    pub(super) work: &'a Work,
    pub(super) at: Nanos,
    /// Whether it stops at the gate.
    pub(super) gated: bool,
    /// Whether its end is told by a progress write behind it.
    pub(super) told: bool,
}

#[derive(Debug)]
struct Running {
    seq: LaunchSeq,
    stream: StreamSlot,
    told: bool,
    run: KernelRun,
    at: Nanos,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Walks,
    /// Its notices are due; it goes on then.
    Faulted(Nanos),
    Over,
}

/// What became of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Happened {
    /// Nothing that others see.
    Went,
    /// The driver has something to report.
    Faulted,
    /// This is finished.
    Finished(StreamSlot, LaunchSeq),
}

impl<'a> Gpu<'a> {
    pub(super) fn issue(&mut self, issued: Issued<'a>) {
        self.queue.push_back(issued);
    }
    /// Launches and copies that are not finished.
    pub(super) fn queued(&self) -> usize {
        self.queue.len() + usize::from(self.running.is_some())
    }
    pub(super) fn idle(&self) -> bool {
        self.queued() == 0
    }

    /// When it does something next, if nobody else has to first.
    pub(super) fn next(&self, now: Nanos, profile: &Profile) -> Option<Nanos> {
        if let Some(running) = &self.running {
            return Some(running.at);
        }
        let head = self.queue.front()?;
        let open = !head.gated || self.gate.is_none_or(|gate| head.seq < gate);
        // The wait for the gate is an operation of the stream's, as the progress write before it.
        let wait = if head.gated { profile.stream_write_cost } else { Nanos::ZERO };
        open.then(|| now.max(self.free).max(self.followed.max(head.at) + wait))
    }

    /// Does it. Nobody else does anything before `horizon`.
    ///
    /// # Errors
    /// [`ReplayError::OutOfMemory`] if a page that is touched finds no room.
    pub(super) fn step(
        &mut self,
        memory: &mut UnifiedMemory,
        now: Nanos,
        horizon: Nanos,
    ) -> Result<Happened, ReplayError> {
        let Some(running) = &mut self.running else {
            self.start(memory, now);
            return Ok(Happened::Went);
        };
        match running.stage {
            Stage::Over => {
                let Running { stream, seq, told, .. } = *running;
                self.running = None;
                (self.finished, self.finished_at) = (seq, now);
                let profile = memory.profile();
                self.free = now + profile.kernel_gap;
                self.followed = if told { now + profile.stream_write_cost } else { now };
                Ok(Happened::Finished(stream, seq))
            }
            Stage::Faulted(resume_at) => {
                (running.stage, running.at) = (Stage::Walks, resume_at.max(now));
                Ok(Happened::Faulted)
            }
            Stage::Walks => {
                // Even if something else happens at this very instant, the walk goes on.
                let horizon = horizon.max(now + Nanos(1));
                let (at, stage) = match running.run.step(memory, now, horizon) {
                    Step::Faulted { noticed, resume_at, .. } => (noticed, Stage::Faulted(resume_at)),
                    Step::Paused { at } => (at, Stage::Walks),
                    Step::Done { at } => (at, Stage::Over),
                    Step::Fatal { .. } => return Err(ReplayError::OutOfMemory { place: Place::Host }),
                };
                (running.at, running.stage) = (at.max(now), stage);
                Ok(Happened::Went)
            }
        }
    }

    fn start(&mut self, memory: &UnifiedMemory, now: Nanos) {
        let Some(Issued { seq, work, at, gated, told }) = self.queue.pop_front() else { return };
        let wait = if gated { memory.profile().stream_write_cost } else { Nanos::ZERO };
        self.stood += now.saturating_sub(self.free.max(self.followed.max(at) + wait));
        let touches = work.touches.iter().map(|touch| Touch {
            range: touch.range,
            write: touch.access.writes(),
            phase: touch.phase,
        });
        let touches: Vec<Touch> = touches.collect();
        let accessor = if work.what == What::Copy { Accessor::CopyEngine } else { Accessor::Kernel };
        let bytes = Bytes(touches.iter().map(|touch| touch.range.len.0).sum());
        let time = work.time.unwrap_or_else(|| memory.profile().kernel_time(bytes, 0.0, Precision::Fp32));
        let run = KernelRun::new(GPU, accessor, &touches, time);
        self.running = Some(Running { seq, stream: work.stream, told, run, at: now, stage: Stage::Walks });
    }
}
