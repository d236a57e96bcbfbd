//! What the program issues, and what of it is over.

use super::{Engine, PATIENCE};
use crate::command::Commands;
use crate::event::Launch;
use crate::exec_id::reaching;
use crate::invalidate;
use crate::units::{AddrRange, LaunchSeq, StreamSlot};
use crate::window::Issued;

impl Engine {
    pub(super) fn launch(&mut self, launch: &Launch<'_>, out: &mut Commands) {
        if !self.awake {
            return;
        }
        let known = &mut self.known;
        known.counters.launches += 1;
        let reach = known.window.reach(launch.pointers, &known.pt_blocks);
        let key = if self.policy.tells_reaches_apart() { reaching(launch.key, &reach) } else { launch.key };
        let exec = known.exec_ids.intern(key);
        known.counters.exec_ids_refused += u64::from(exec.is_none());
        let pushed_out = known.window.issue(launch, exec, reach);
        self.told(launch.seq, launch.stream, pushed_out);
        self.policy.launch(launch.seq, &mut self.known, out);
        self.finish(out);
        if self.foretold && self.known.counters.launches >= PATIENCE && self.fits() {
            self.foretold = false;
            self.wake_or_sleep(out);
        }
    }

    pub(super) fn copy(
        &mut self,
        seq: LaunchSeq,
        stream: StreamSlot,
        range: AddrRange,
        write: bool,
        out: &mut Commands,
    ) {
        if !self.awake {
            return;
        }
        self.known.counters.copies += 1;
        let pushed_out = self.known.window.issue_copy(seq, stream, range, write);
        self.told(seq, stream, pushed_out);
        self.policy.copy(seq, &mut self.known);
        self.finish(out);
    }

    /// A launch or copy is in the window, and another one may have had to leave it for that.
    fn told(&mut self, seq: LaunchSeq, stream: StreamSlot, pushed_out: Option<Issued>) {
        if std::mem::take(&mut self.just_awake) {
            let known = self.known.sequence.told();
            self.known.behind = (seq > known.plus(1)).then_some(seq);
        }
        self.known.sequence.tell(seq);
        if stream == StreamSlot::NONE {
            self.known.sequence.lose(seq);
        }
        if let Some(pushed_out) = pushed_out {
            self.known.sequence.lose(pushed_out.seq);
            self.over(pushed_out);
        }
    }

    pub(super) fn finish(&mut self, out: &mut Commands) {
        let mut any = false;
        while let Some(launch) = self.known.window.pop_finished() {
            self.over(launch);
            any = true;
        }
        if any {
            invalidate::quieten(&mut self.known, out);
            self.policy.progressed(&mut self.known, out);
        }
    }

    /// All up to this one are finished, told or not.
    pub(super) fn all_over(&mut self, seq: LaunchSeq, out: &mut Commands) {
        let before = self.known.sequence.doubt();
        self.known.sequence.over(seq);
        if self.known.sequence.doubt() < before {
            self.known.dying.ask_again();
            invalidate::quieten(&mut self.known, out);
        }
    }

    fn over(&mut self, launch: Issued) {
        if self.known.behind.is_some_and(|first| launch.seq >= first) {
            self.known.behind = None;
        }
        if !self.known.faults_visible {
            self.known.used(&launch);
        }
        self.policy.finished(&launch, &mut self.known);
        self.known.window.recycle(launch);
    }
}
