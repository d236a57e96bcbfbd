//! `restless`: asks without reason for whatever may be asked. For tests of all that carries it out, and must lose no contents by it.
//!
//! At each launch a few blocks are picked, of those on the GPU and those that the launch names, in use or not, and are saved, dropped, owned,
//! evicted or fetched. The picks are those of a xorshift generator with a seed of its own: same events, same commands.

use super::{Policy, PolicyName};
use crate::command::{Command, Commands, Why};
use crate::copies;
use crate::known::Known;
use crate::residency::{Ask, Handle};
use crate::units::{LaunchSeq, UmBlock};

/// Blocks picked at each launch.
const PICKS: usize = 4;

/// See the module.
#[derive(Debug)]
pub struct Restless {
    state: u64,
}

impl Default for Restless {
    fn default() -> Self {
        Self { state: 0x9e37_79b9_7f4a_7c15 }
    }
}

impl Restless {
    /// Below `n`, which is not 0.
    fn below(&mut self, n: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        usize::try_from(self.state >> 33).unwrap_or_default() % n
    }

    fn ask(&mut self, at: Handle, seq: LaunchSeq, known: &mut Known, out: &mut Commands) {
        let state = known.residency.get(at);
        let (block, there) = (state.block, state.on_device);
        if !matches!(state.ask(), Ask::None | Ask::Unproven) {
            return;
        }
        let by = seq.plus(self.below(3) as u64);
        match (there, self.below(8)) {
            (true, 0..=2) => _ = copies::save(at, known, out),
            (true, 3 | 4) => _ = copies::drop_copy(at, known, out),
            (_, 5) => _ = copies::own(at, by, known, out),
            (true, 6) => {
                known.counters.prefetch_useless += u64::from(known.residency.get(at).ask() == Ask::Unproven);
                known.counters.evict_asked += 1;
                known.residency.set_ask(at, Ask::Evict);
                out.push(Command::Evict { block });
            }
            (false, 0..=4) => {
                known.counters.prefetch_asked += 1;
                known.residency.set_ask(at, Ask::Predicted);
                known.residency.asked(at);
                out.push(Command::Fetch { block, why: Why::Predicted { by } });
            }
            _ => {}
        }
    }
}

impl Policy for Restless {
    fn name(&self) -> PolicyName {
        PolicyName::Restless
    }
    fn watches_launches(&self) -> bool {
        true
    }
    fn launch(&mut self, seq: LaunchSeq, known: &mut Known, out: &mut Commands) {
        let named: Vec<UmBlock> = known.window.get(seq).into_iter().flat_map(|launch| launch.blocks()).collect();
        let mut known_blocks: Vec<Handle> = known.residency.oldest_first().collect();
        known_blocks.extend(named.into_iter().filter_map(|block| known.residency.find(block)));
        for _ in 0..PICKS {
            if !known_blocks.is_empty() {
                let at = known_blocks[self.below(known_blocks.len())];
                self.ask(at, seq, known, out);
            }
        }
    }
    fn fault(&mut self, at: Handle, known: &mut Known, out: &mut Commands) {
        if self.below(2) == 0 {
            super::faults::fetch_now(at, known, out);
        }
    }
}
