//! Two copies of a block: one on the GPU, one on the host.
//!
//! Problem: what the GPU only reads is copied out again each time it makes room, and the way out is as narrow as the way in.
//! Idea: a block on the GPU may be *saved*: the host has its contents, too. Then the GPU's copy is *dropped* when room is needed, without a byte on the
//! link; and a block that is fetched again leaves the host's copy where it is. Who is going to be written is *owned*: the GPU's copy is the only one again.
//! Otherwise the GPU faults, once for each page, and the driver gives up the host's copy of that page.
//!
//! [`Block::duplicated`](crate::residency::Block) says that the driver's mode (facts 4.7) is on for the block, and [`Block::saved`](crate::residency::Block) that the host's copy is
//! complete and current. Both are beliefs: policies go by them, and a write fault is read by them. If they are wrong a drop copies, or a fault is read
//! wrongly. Which calls are made depends on neither (`queues`, `steps`).
//!
//! Without notice the driver evicts blocks whose pages the host has; a fault on them tells. A *write* fault on a block that is believed to be wholly on the
//! GPU, and duplicated, is taken to be one of these writes, and no miss; if bytes then come for it, it was a miss.
//!
//! Where the driver cannot ([`Known::saving`]), or faults cannot be seen, nothing here does anything.

use crate::command::{Command, Commands};
use crate::known::Known;
use crate::residency::{Ask, Handle};
use crate::units::{LaunchSeq, UmBlock};

/// Asks for a block on the GPU to be saved; it must be idle. Whether that was done.
pub fn save(at: Handle, known: &mut Known, out: &mut Commands) -> bool {
    ask(at, Ask::Save, known, |block| Command::Save { block }, out).then(|| known.counters.saves_asked += 1).is_some()
}

/// Asks for the GPU's copy of a block to be given up, without a copy of what is saved. Whether that was done.
pub fn drop_copy(at: Handle, known: &mut Known, out: &mut Commands) -> bool {
    let unproven = known.residency.get(at).ask() == Ask::Unproven;
    let asked = ask(at, Ask::Drop, known, |block| Command::Drop { block }, out);
    known.counters.drops_asked += u64::from(asked);
    known.counters.prefetch_useless += u64::from(asked && unproven);
    asked
}

/// Asks for a block to be on the GPU alone when the launch `by`, which writes it, begins. Whether that was done.
pub fn own(at: Handle, by: LaunchSeq, known: &mut Known, out: &mut Commands) -> bool {
    let coming = !known.residency.get(at).on_device;
    let asked = ask(at, Ask::Own, known, |block| Command::Own { block, by }, out);
    if asked && coming {
        known.residency.asked(at);
    }
    known.counters.owns_asked += u64::from(asked);
    asked
}

fn ask(at: Handle, what: Ask, known: &mut Known, command: impl FnOnce(UmBlock) -> Command, out: &mut Commands) -> bool {
    if !known.saving || !known.faults_visible {
        return false;
    }
    out.push(command(known.residency.get(at).block));
    known.residency.set_ask(at, what);
    true
}

/// A save ended.
pub(crate) fn saved(block: UmBlock, ok: bool, known: &mut Known) {
    known.counters.saved += u64::from(ok);
    known.counters.moves_failed += u64::from(!ok);
    let Some(at) = known.residency.find(block) else { return };
    // Otherwise it was written meanwhile, or somebody else wants it now.
    if known.residency.get(at).ask() == Ask::Save {
        known.residency.set_ask(at, Ask::None);
        known.residency.get_mut(at).saved |= ok;
    }
}

/// The GPU writes the block: the host's copy is complete no more.
pub(crate) fn lost(at: Handle, known: &mut Known) {
    let saved = std::mem::replace(&mut known.residency.get_mut(at).saved, false);
    known.counters.saves_lost += u64::from(saved || known.residency.get(at).ask() == Ask::Save);
}

/// A move that was asked for as `ask` ended well: what that means for the copies.
pub(crate) fn moved(at: Handle, ask: Ask, to_device: bool, known: &mut Known) {
    let block = known.residency.get_mut(at);
    match (to_device, ask) {
        (true, Ask::Own) => {
            (block.duplicated, block.saved) = (false, false);
            known.counters.owned += 1;
        }
        // Both copies are current after a fetch (`steps`).
        (true, _) => block.saved = block.duplicated,
        (false, Ask::Drop | Ask::Evict | Ask::PreEvict) => {
            let keeps = ask == Ask::Drop;
            let spared = std::mem::replace(&mut block.saved, keeps);
            block.duplicated &= keeps;
            known.counters.dropped += u64::from(keeps);
            known.counters.bytes_spared += if spared { UmBlock::SIZE.get() } else { 0 };
        }
        (false, _) => {}
    }
}
