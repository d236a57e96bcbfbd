//! What the driver and the mover report: faults, pieces that moved, commands that ended.
//!
//! **What a migration teaches.** Where it comes with a fault, by the fault itself or by the driver's tree prefetcher, which stays within the
//! block (facts 2.5), the fault's notice has said as much before. If the GPU had nothing of the block, that notice was lost, and the migration stands in for
//! it: the launch under way used the block. A migration by call is ours or the program's, ahead of use or in vain, and an eviction is the driver's
//! choice by age (facts 4.2): neither says what a launch uses. They change the residency map and what is taken to fit, and an expected block that
//! the driver evicted is fetched again (`predict`); one that we asked to leave is not, for it was to make room.

use super::{Engine, blocks_of};
use crate::command::{Command, Commands};
use crate::copies;
use crate::event::{DiscardOutcome, Fault, Migration, MigrationCause};
use crate::residency::{Ask, Handle};
use crate::units::{Place, UmBlock};

impl Engine {
    pub(super) fn fault(&mut self, fault: &Fault, out: &mut Commands) {
        let known = &mut self.known;
        known.counters.fault_blocks += 1;
        known.counters.fault_entries += u64::from(fault.entries);
        if self.last_batch.replace(fault.batch) != Some(fault.batch) {
            known.counters.fault_batches += 1;
        }
        let Some(at) = known.residency.find(fault.block) else { return };
        if fault.write {
            copies::lost(at, known);
        }
        let block = known.residency.get(at);
        if fault.write && block.duplicated && block.whole() {
            self.taken_back(at, out);
            self.policy.overwritten(at, &mut self.known, out);
        } else {
            self.faulted(at, out);
        }
    }

    /// The GPU faulted on the block `at`.
    fn faulted(&mut self, at: Handle, out: &mut Commands) {
        self.taken_back(at, out);
        let known = &mut self.known;
        match known.residency.get(at).ask() {
            Ask::Predicted | Ask::Unproven => {
                known.counters.prefetch_late += 1;
                known.residency.set_ask(at, Ask::None);
            }
            Ask::Own => known.residency.set_ask(at, Ask::None),
            _ => {}
        }
        known.residency.faulted(at);
        self.policy.fault(at, known, out);
    }

    /// The GPU uses the block `at`: it does not leave, nor is it saved.
    fn taken_back(&mut self, at: Handle, out: &mut Commands) {
        let block = self.known.residency.get(at);
        if block.ask().leaves() || block.ask() == Ask::Save {
            out.push(Command::Cancel { block: block.block });
            self.known.residency.set_ask(at, Ask::None);
        }
    }

    pub(super) fn migrated(&mut self, piece: &Migration, out: &mut Commands) {
        let device = Place::Device(self.known.residency.device());
        self.known.counters.migrated(piece, device);
        if piece.to == device
            && matches!(piece.cause, MigrationCause::Coherence | MigrationCause::Prefetch)
            && let Some(at) = self.known.residency.find(piece.block)
        {
            let block = self.known.residency.get(at);
            if self.known.residency.lacks(at) {
                // Its fault notice is put first (facts 2.5), so that was lost.
                self.known.counters.faults_inferred += 1;
                self.faulted(at, out);
            } else if block.duplicated && block.whole() {
                // The driver had evicted it, without a notice.
                self.faulted(at, out);
            }
        }
        let known = &mut self.known;
        let left = known.residency.migrated(piece);
        if left && piece.cause == MigrationCause::Eviction {
            known.was_full();
        } else {
            known.holds();
        }
        if left && let Some(at) = known.residency.find(piece.block) {
            self.left(at, out);
        }
    }

    /// The block `at` is on the GPU no more.
    fn left(&mut self, at: Handle, out: &mut Commands) {
        let known = &mut self.known;
        match known.residency.get(at).ask() {
            Ask::Unproven => {
                known.counters.prefetch_useless += 1;
                known.residency.set_ask(at, Ask::None);
            }
            Ask::Keep | Ask::Save => known.residency.set_ask(at, Ask::None),
            Ask::Drop => return known.residency.set_ask(at, Ask::None),
            ask @ (Ask::Evict | Ask::PreEvict) => {
                known.counters.preevicted += u64::from(ask == Ask::PreEvict);
                return known.residency.set_ask(at, Ask::None);
            }
            // Its contents are on the host now, and are given up there.
            Ask::Discard => return,
            Ask::None | Ask::Populate | Ask::Urgent | Ask::Predicted | Ask::Own => {}
        }
        self.policy.evicted(at, known, out);
    }

    /// Without notices: what came in pushed out the blocks made resident longest ago, as the driver does it (facts 4.2). It knows of no budget.
    pub(super) fn assume_evictions(&mut self, out: &mut Commands) {
        let fit = blocks_of(self.device_memory);
        while self.known.residency.blocks_on_device() > fit {
            let Some(oldest) = self.known.residency.oldest_first().next() else { return };
            self.known.residency.leave(oldest);
            self.left(oldest, out);
        }
    }

    pub(super) fn move_done(&mut self, block: UmBlock, to: Place, ok: bool) {
        let known = &mut self.known;
        known.counters.moves_failed += u64::from(!ok);
        let Some(at) = known.residency.find(block) else { return };
        let ask = known.residency.get(at).ask();
        let to_device = to == Place::Device(known.residency.device());
        if to_device && ask == Ask::Predicted {
            known.counters.prefetch_issued += 1;
            known.counters.prefetch_failed += u64::from(!ok);
        }
        if ok {
            copies::moved(at, ask, to_device, known);
        }
        match (to_device, ok) {
            (true, true) => {
                known.residency.fetched(at);
                self.brought += 1;
                known.holds();
            }
            (false, true) => {
                known.counters.preevicted += u64::from(ask == Ask::PreEvict);
                known.residency.leave(at);
            }
            // It could not leave; next time another one is asked to first.
            (false, false) => known.residency.asked(at),
            (true, false) => {}
        }
        match (to_device, ask) {
            (true, Ask::Predicted) if ok => known.residency.set_ask(at, Ask::Unproven),
            (true, Ask::Predicted | Ask::Urgent | Ask::Populate | Ask::Keep | Ask::Own)
            | (false, Ask::Evict | Ask::PreEvict | Ask::Drop) => {
                known.residency.set_ask(at, Ask::None);
            }
            _ => {}
        }
    }

    pub(super) fn discarded(&mut self, block: UmBlock, outcome: DiscardOutcome) {
        let known = &mut self.known;
        let count = match outcome {
            DiscardOutcome::Done => &mut known.counters.discarded,
            DiscardOutcome::HandedOut => &mut known.counters.discards_cancelled,
            DiscardOutcome::Failed => &mut known.counters.discards_failed,
        };
        *count += 1;
        let Some(at) = known.residency.find(block) else { return };
        if outcome == DiscardOutcome::Done {
            if known.residency.get(at).on_device {
                known.counters.bytes_spared += UmBlock::SIZE.get();
            }
            known.residency.discarded(at);
        } else {
            // Somebody has it, or nobody may ever throw it away: until it dies again it is what others are, and leaves with a copy.
            known.residency.get_mut(at).listed = false;
            known.residency.note(at);
        }
        if known.residency.get(at).ask() == Ask::Discard {
            known.residency.set_ask(at, Ask::None);
        }
    }

    /// What was asked for the block found no room in its lane, or something else in its way.
    pub(super) fn dropped(&mut self, block: UmBlock) {
        let Some(at) = self.known.residency.find(block) else { return };
        match self.known.residency.get(at).ask() {
            Ask::Predicted => {
                self.known.counters.prefetch_dropped += 1;
                self.known.residency.set_ask(at, Ask::None);
            }
            Ask::Populate | Ask::Save | Ask::Own => self.known.residency.set_ask(at, Ask::None),
            // The GPU waits for it.
            ask if ask.leaves() => self.known.residency.set_ask(at, Ask::None),
            _ => {}
        }
    }

    /// Whether the block that a command is about is believed to be on the GPU. Notes that its mode may be on from now on.
    pub(super) fn is_there(&mut self, command: Command) -> bool {
        let Some(at) = self.known.residency.find(command.block()) else { return false };
        let block = self.known.residency.get_mut(at);
        block.duplicated |= matches!(command, Command::Save { .. } | Command::Drop { .. });
        match command {
            Command::Evict { .. } | Command::Drop { .. } => block.saved,
            _ => block.on_device,
        }
    }
}
