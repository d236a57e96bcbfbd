//! The host in a replay: the program's calls, one after the other.
//!
//! A call comes when the one before it has had its time, which is what the device profile says, and the host its own time, which is the trace's. A
//! launch waits while the GPU's queue is full, and a wait of the program's until the GPU is idle. Launches and copies that are issued while the core is asleep
//! have places, too, but it is not told of them.

use super::gpu::{Gpu, Issued};
use super::mind::{Mind, Thinks};
use super::script::{Does, Script, Step, What, Work};
use super::{ReplayError, Setup};
use deepum_core::event::{Event, Launch};
use deepum_core::mix::Mix;
use deepum_core::units::{KernelId, LaunchSeq, Nanos};
use deepum_model::UnifiedMemory;
use std::num::NonZeroU64;

/// See the module.
#[derive(Debug)]
pub(super) struct Host<'a> {
    steps: &'a [Step],
    gate: bool,
    lost: Option<NonZeroU64>,
    call: Nanos,
    launch: Nanos,
    queue: usize,
    /// The next step, and when it may come.
    at: usize,
    ready: Nanos,
    issued: LaunchSeq,
    /// The last launch or copy before each mark so far.
    marks: Vec<LaunchSeq>,
}

impl<'a> Host<'a> {
    pub(super) fn new(script: &'a Script, &Setup { ref profile, gate, lost, .. }: &Setup) -> Self {
        Self {
            steps: &script.steps,
            gate,
            lost,
            call: profile.call_cost,
            launch: profile.launch_cost,
            queue: usize::try_from(profile.launch_queue).unwrap_or(usize::MAX),
            at: 0,
            ready: script.steps.first().map_or(Nanos::ZERO, |step| step.own),
            issued: LaunchSeq(0),
            marks: Vec::new(),
        }
    }
    pub(super) fn is_over(&self) -> bool {
        self.at == self.steps.len()
    }
    /// How many launches and copies were issued.
    pub(super) fn issued(&self) -> LaunchSeq {
        self.issued
    }
    /// The last launch or copy before each mark that it has come to.
    pub(super) fn marks(&self) -> &[LaunchSeq] {
        &self.marks
    }
    /// All launches and copies of the script.
    pub(super) fn launches(&self) -> u64 {
        self.steps.iter().filter(|step| matches!(step.does, Does::Issue(_))).count() as u64
    }

    /// When it goes on, if it does not wait for the GPU; with a launch, `lead` launches and copies ahead of it at most.
    pub(super) fn next(&self, now: Nanos, lead: Option<u64>, gpu: &Gpu<'_>) -> Option<Nanos> {
        let waits = match &self.steps.get(self.at)?.does {
            Does::Issue(work) => {
                let lead = lead.filter(|_| work.what != What::Copy).and_then(|lead| usize::try_from(lead).ok());
                gpu.queued() >= lead.map_or(self.queue, |lead| lead.min(self.queue))
            }
            Does::Wait => !gpu.idle(),
            Does::Alloc(_) | Does::Free(_) | Does::PtBlock { .. } | Does::Iteration => false,
        };
        (!waits).then(|| self.ready.max(now))
    }

    /// Makes its next call.
    ///
    /// # Errors
    /// [`ReplayError::Trace`].
    pub(super) fn step<T: Thinks>(
        &mut self,
        now: Nanos,
        memory: &mut UnifiedMemory,
        mind: &mut Mind<'a, T>,
        gpu: &mut Gpu<'a>,
    ) -> Result<(), ReplayError> {
        let steps = self.steps;
        let Some(step) = steps.get(self.at) else { return Ok(()) };
        let took = match &step.does {
            Does::Alloc(range) => {
                memory.map_managed(*range).map_err(ReplayError::Trace)?;
                mind.reaches(Event::Alloc { range: *range }, now);
                self.call
            }
            Does::Free(range) => {
                memory.unmap_managed(*range).map_err(ReplayError::Trace)?;
                mind.freed(*range, now);
                self.call
            }
            Does::PtBlock { range, active } => {
                mind.pt_block(*range, *active, self.issued, now);
                Nanos::ZERO
            }
            Does::Issue(work) => {
                let ours = self.issue(work, now, mind, gpu);
                Nanos(self.call.0 * ours) + if work.what == What::Copy { self.call } else { self.launch }
            }
            Does::Wait => self.call,
            Does::Iteration => {
                self.marks.push(self.issued);
                Nanos::ZERO
            }
        };
        self.at += 1;
        let own = steps.get(self.at).map_or(Nanos::ZERO, |next| next.own);
        self.ready = now + took + own;
        Ok(())
    }

    /// At random, and the same in every replay.
    fn is_lost(&self, LaunchSeq(seq): LaunchSeq) -> bool {
        self.lost.is_some_and(|lost| Mix::new().word(seq).end().is_multiple_of(lost.get()))
    }

    /// Answers how many calls of ours come with it: the progress write, and the wait at the gate.
    fn issue<T: Thinks>(&mut self, work: &'a Work, now: Nanos, mind: &mut Mind<'a, T>, gpu: &mut Gpu<'a>) -> u64 {
        self.issued = self.issued.plus(1);
        let (seq, stream) = (self.issued, work.stream);
        let awake = mind.thinks.awake();
        match &work.what {
            What::Launch { kernel, key, pointers } if awake && !self.is_lost(seq) => {
                mind.reaches(
                    Event::Launch(Launch { seq, stream, key: *key, kernel: KernelId(kernel.0.into()), pointers }),
                    now,
                );
            }
            What::Copy if awake => {
                for touch in &work.touches {
                    mind.reaches(Event::Copy { seq, stream, range: touch.range, write: touch.access.writes() }, now);
                }
            }
            What::Launch { .. } | What::Copy => {}
        }
        let gated = awake && self.gate && work.what != What::Copy && seq >= mind.thinks.clear_until();
        gpu.issue(Issued { seq, work, at: now, gated, told: awake });
        u64::from(awake) + u64::from(gated)
    }
}
