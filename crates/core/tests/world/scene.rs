//! An engine fed by hand, event by event.

use std::collections::BTreeSet;

use deepum_core::command::{Command, Commands, Why};
use deepum_core::engine::{Config, Engine};
use deepum_core::event::{Event, Launch};
use deepum_core::policy::PolicyName;
use deepum_core::units::{AddrRange, Bytes, DevAddr, KernelId, LaunchKey, LaunchSeq, Place, StreamSlot, UmBlock};

/// Blocks of the GPU.
pub const FITS: u64 = 1000;

pub fn blocks(count: u64) -> Bytes {
    Bytes(count * UmBlock::SIZE.get())
}
pub fn range(first: u64, count: u64) -> AddrRange {
    AddrRange::new(UmBlock(first).start(), blocks(count))
}

/// An engine fed by hand. What it asks for is kept until it is carried out.
pub struct Scene {
    pub engine: Engine,
    pub asked: Vec<Command>,
    pub seq: u64,
}

impl Scene {
    pub fn new(config: Config) -> Self {
        Self { engine: Engine::new(config), asked: Vec::new(), seq: 0 }
    }
    pub fn awake() -> Self {
        let mut scene = Self::new(Config::new(PolicyName::Deepum, blocks(FITS)));
        scene.alloc(100_000, 2 * FITS);
        scene.asked.clear();
        scene
    }
    pub fn tell(&mut self, event: &Event<'_>) {
        let mut out = Commands::new();
        self.engine.on(event, &mut out);
        self.asked.extend(out.drain());
    }
    pub fn alloc(&mut self, first: u64, count: u64) {
        self.tell(&Event::Alloc { range: range(first, count) });
    }
    pub fn free(&mut self, first: u64, count: u64) {
        self.tell(&Event::Free { range: range(first, count) });
    }
    /// A launch of this key that is given these blocks.
    pub fn launch(&mut self, key: u64, pointers: &[u64]) {
        self.seq += 1;
        let pointers: Vec<DevAddr> = pointers.iter().map(|&block| UmBlock(block).start()).collect();
        let (seq, stream, key) = (LaunchSeq(self.seq), StreamSlot(0), LaunchKey(key));
        self.tell(&Event::Launch(Launch { seq, stream, key, kernel: KernelId(0), pointers: &pointers }));
    }
    pub fn done(&mut self, seq: u64) {
        self.tell(&Event::Progress { stream: StreamSlot(0), done: LaunchSeq(seq) });
    }
    pub fn moved(&mut self, first: u64, count: u64, to: Place) {
        (first..first + count).map(UmBlock).for_each(|block| self.tell(&Event::MoveDone { block, to, ok: true }));
    }
    pub fn fetched(&mut self) -> BTreeSet<u64> {
        let fetched = |command: Command| match command {
            Command::Fetch { block, why: Why::Predicted { .. } | Why::Populate { .. } } => Some(block.0),
            _ => None,
        };
        self.asked.drain(..).filter_map(fetched).collect()
    }
    pub fn evicted(&mut self) -> Vec<u64> {
        let evicted = |command: Command| match command {
            Command::Evict { block } => Some(block.0),
            _ => None,
        };
        self.asked.drain(..).filter_map(evicted).collect()
    }
}
