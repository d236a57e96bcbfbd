//! Contents that nobody needs any more.
//!
//! Problem: a training step writes activations and gradients once and reads them once; afterwards their memory waits in
//! PyTorch's pool. Unified memory knows nothing of that, and carries their bytes to the host and back. The paper changes PyTorch and the driver
//! for it (DeepUM, ASPLOS'23, section 5.2); a stock driver can give up contents itself, from 580 on (facts 4.3).
//! Idea: a block is *dead* when all of it holds no tensor (`pt_blocks`), and *quiet* when every launch and copy issued before it
//! died is finished. Both together it is *free*: as a victim it costs no copy, now or later. Free blocks on the GPU are
//! listed, longest dead first, for whoever needs room (`evict`), and stay where they are until then, for most are handed out again soon, and a
//! block that is there needs nothing. Free blocks that are *not* there have their contents on the host; those are given up at
//! once, so that the next tensor in that memory is brought in without a copy.
//!
//! Whether a block is free is asked again at the moment it is chosen. Between that and the call it may be handed out again; the
//! hand-out words see to it that the call does not happen then, and not while launches issued before that may run. What is not known
//! counts as not finished here, too (`sequence`), so that they refuse next to nothing.
//!
//! Invariants: a block is listed at most once. A death that finds no room here is forgotten: its block may be evicted with a
//! copy, as if nothing had been known.
//! Not here: who leaves when (`evict`), the race with handing out (`crates/engine`).

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use crate::command::{Command, Commands};
use crate::known::Known;
use crate::pt_blocks::Dead;
use crate::residency::{Ask, Handle};
use crate::units::{AddrRange, LaunchSeq, UmBlock};

/// What is done about contents that nobody needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Invalidate {
    /// Nothing: they move like any others.
    No,
    /// Their blocks leave first, with a copy: all there is before driver 580.
    EvictFirst,
    /// They are given up, without a copy.
    Discard,
}

/// Neither of its words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is none of {known}", known = Invalidate::ALL.map(Invalidate::as_str).join(", "))]
pub struct UnknownInvalidate(String);

impl Invalidate {
    /// All of them, least first.
    pub const ALL: [Self; 3] = [Self::No, Self::EvictFirst, Self::Discard];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::EvictFirst => "evict",
            Self::Discard => "discard",
        }
    }
}

impl fmt::Display for Invalidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Invalidate {
    type Err = UnknownInvalidate;
    fn from_str(text: &str) -> Result<Self, UnknownInvalidate> {
        Self::ALL.into_iter().find(|word| word.as_str() == text).ok_or_else(|| UnknownInvalidate(text.to_owned()))
    }
}

/// Most deaths that wait for their last users.
const LIMIT: usize = 1 << 16;

/// Most listed blocks looked at for one victim: those that came back to life, or died again, in between.
const LOOKS: usize = 16;

/// See the module.
#[derive(Default, Debug)]
pub struct Dying {
    /// PT blocks taken back, oldest first, each with the newest launch issued by then.
    waiting: VecDeque<(LaunchSeq, AddrRange)>,
    /// Those of them whose users are finished, as far as they were told; but not all were.
    doubted: VecDeque<(LaunchSeq, AddrRange)>,
    /// Blocks on the GPU that were free when they came here, with the launch after which they died.
    listed: VecDeque<(LaunchSeq, UmBlock)>,
}

impl Dying {
    /// A PT block was taken back.
    pub fn died(&mut self, range: AddrRange, issued: LaunchSeq) {
        if self.waiting.len() < LIMIT {
            self.waiting.push_back((issued, range));
        }
    }

    /// Less is in doubt than before.
    pub(crate) fn ask_again(&mut self) {
        self.doubted.append(&mut self.waiting);
        std::mem::swap(&mut self.doubted, &mut self.waiting);
    }

    /// Forgets which blocks are listed: whoever keeps lists of their own has them.
    pub(crate) fn unlist(&mut self) {
        self.listed.clear();
    }

    /// This memory is given back, and what comes there is something else.
    pub fn forget(&mut self, range: AddrRange) {
        self.listed.retain(|&(_, block)| block.start() < range.start || range.end() <= block.start());
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.doubted.clear();
        self.listed.clear();
    }
}

/// The launch after which `block` died, if it is dead and quiet.
pub(crate) fn free_since(block: UmBlock, known: &Known) -> Option<LaunchSeq> {
    quiet_since(known.pt_blocks.dead(block.range())?, known)
}

fn quiet_since(dead: Dead, known: &Known) -> Option<LaunchSeq> {
    let told = &known.sequence;
    let quiet = dead.died <= told.told() && dead.born >= told.doubt() && known.window.is_over(dead.died);
    quiet.then_some(dead.died)
}

/// Launches have finished: lists what is free by that, and gives up the contents of what is not on the GPU.
pub fn quieten(known: &mut Known, out: &mut Commands) {
    while let Some(&(died, range)) = known.dying.waiting.front()
        && died <= known.sequence.told()
        && known.window.is_over(died)
    {
        known.dying.waiting.pop_front();
        let mut doubted = false;
        for block in range.blocks() {
            let Some(at) = known.residency.find(block) else { continue };
            let state = known.residency.get(at);
            let gone = state.empty || !matches!(state.ask(), Ask::None | Ask::Unproven);
            if state.listed || gone || (!state.on_device && known.invalidate != Invalidate::Discard) {
                continue;
            }
            let Some(dead) = known.pt_blocks.dead(block.range()) else { continue };
            let Some(died) = quiet_since(dead, known) else {
                doubted |= dead.born < known.sequence.doubt();
                continue;
            };
            if known.residency.get(at).on_device {
                known.residency.get_mut(at).listed = true;
                known.residency.note(at);
                known.dying.listed.push_back((died, block));
            } else {
                discard(at, known, out);
            }
        }
        if doubted && known.dying.doubted.len() < LIMIT {
            known.dying.doubted.push_back((died, range));
        }
    }
}

/// A block on the GPU that is free and that no planned launch is expected to need, longest dead first.
pub fn victim(known: &mut Known) -> Option<Handle> {
    for _ in 0..LOOKS {
        let (listed, block) = known.dying.listed.pop_front()?;
        let Some(at) = known.residency.find(block) else { continue };
        let since = free_since(block, known);
        let state = known.residency.get_mut(at);
        state.listed = false;
        let idle = state.on_device && matches!(state.ask(), Ask::None | Ask::Unproven);
        let Some(since) = since.filter(|_| idle) else { continue };
        let state = known.residency.get(at);
        if since == listed && !known.is_expected(state) {
            return Some(at);
        }
        // It died again since, or is about to be used again: not yet.
        known.residency.get_mut(at).listed = true;
        known.dying.listed.push_back((since, block));
    }
    None
}

/// Asks for the contents of a free block to be given up.
pub fn discard(at: Handle, known: &mut Known, out: &mut Commands) {
    let block = known.residency.get(at);
    known.counters.discard_asked += 1;
    known.counters.prefetch_useless += u64::from(block.ask() == Ask::Unproven);
    out.push(Command::Discard { block: block.block });
    known.residency.set_ask(at, Ask::Discard);
}

/// Memory is handed out: takes back the discards that wait for it. One that is being carried out finds out by itself.
pub fn handed_out(range: AddrRange, known: &mut Known, out: &mut Commands) {
    if known.residency.blocks_discarding() == 0 {
        return;
    }
    for block in range.blocks() {
        if let Some(at) = known.residency.find(block)
            && known.residency.get(at).ask() == Ask::Discard
        {
            known.residency.set_ask(at, Ask::None);
            out.push(Command::Cancel { block });
        }
    }
}
