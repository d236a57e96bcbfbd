//! Golden traces: did any decision change?
//!
//! Each file under `golden/` is a scenario played to one policy: every event, and what the policy asked for.
//! `BLESS=1 cargo test -p deepum-core --test golden` rewrites them; read the difference before you commit it.

mod world;

use std::fmt::Write as _;
use std::path::Path;

use deepum_core::command::{Command, Commands, Why};
use deepum_core::engine::{Config, Engine};
use deepum_core::event::{DiscardOutcome, Event, Fault, Launch, Migration, MigrationCause};
use deepum_core::policy::PolicyName;
use deepum_core::queues::{Lane, Queues};
use deepum_core::units::{
    AddrRange, Bytes, DevAddr, DeviceId, KernelId, LaunchKey, LaunchSeq, Nanos, Place, StreamSlot, UmBlock,
};

const GPU: Place = Place::Device(DeviceId(0));

struct Play {
    engine: Engine,
    queues: Queues,
    text: String,
}

impl Play {
    fn new(policy: PolicyName, memory: u64, budget: u64) -> Self {
        let size = UmBlock::SIZE.get();
        let config = Config { budget: Bytes(budget * size), degree: 4, ..Config::new(policy, Bytes(memory * size)) };
        Self {
            engine: Engine::new(config),
            queues: Queues::default(),
            text: format!("{policy}, {budget} blocks of {memory}\n"),
        }
    }

    fn event(&mut self, label: &str, event: &Event<'_>) {
        let mut out = Commands::new();
        self.engine.on(event, &mut out);
        write!(self.text, "{label}").unwrap();
        for command in out.as_slice() {
            let what = match command {
                Command::Fetch { block, why: Why::Fault } => format!("fetch {} now", block.0),
                Command::Fetch { block, why: Why::Predicted { by } } => {
                    format!("fetch {} for launch {}", block.0, by.0)
                }
                Command::Fetch { block, why: Why::Keep } => format!("keep {}", block.0),
                Command::Fetch { block, why: Why::Populate { .. } } => format!("populate {}", block.0),
                Command::Evict { block } => format!("evict {}", block.0),
                Command::Discard { block } => format!("discard {}", block.0),
                Command::Save { block } => format!("save {}", block.0),
                Command::Drop { block } => format!("drop {}", block.0),
                Command::Own { block, by } => format!("own {} by {}", block.0, by.0),
                Command::Cancel { block } => format!("cancel {}", block.0),
            };
            write!(self.text, "\n    {what}").unwrap();
        }
        self.text.push('\n');
        self.engine.hand_over(&mut out, &mut self.queues);
    }

    fn alloc(&mut self, first: u64, blocks: u64) {
        let range = AddrRange::new(UmBlock(first).start(), Bytes(blocks * UmBlock::SIZE.get()));
        self.event(&format!("alloc {first}..{}", first + blocks), &Event::Alloc { range });
    }
    fn free(&mut self, first: u64, blocks: u64) {
        let range = AddrRange::new(UmBlock(first).start(), Bytes(blocks * UmBlock::SIZE.get()));
        self.event(&format!("free {first}..{}", first + blocks), &Event::Free { range });
    }
    fn launch(&mut self, seq: u64, key: u64, tensors: &[u64]) {
        let pointers: Vec<DevAddr> = tensors.iter().map(|&block| UmBlock(block).start()).collect();
        let (stream, key) = (StreamSlot(0), LaunchKey(key));
        let launch = Launch { seq: LaunchSeq(seq), stream, key, kernel: KernelId(0), pointers: &pointers };
        self.event(&format!("launch {seq}: key {} with {tensors:?}", key.0), &Event::Launch(launch));
    }
    fn fault(&mut self, block: u64) {
        let fault = Fault { block: UmBlock(block), batch: 1, entries: 1, write: false, at: Nanos::ZERO };
        self.event(&format!("fault {block}"), &Event::Fault(fault));
    }
    fn done(&mut self, seq: u64) {
        self.event(&format!("finished {seq}"), &Event::Progress { stream: StreamSlot(0), done: LaunchSeq(seq) });
    }
    /// The mover does everything that waits.
    fn mover(&mut self) {
        while let Some(batch) = world::pop(&mut self.queues, 16) {
            if batch.lane == Lane::Discard {
                for block in batch.blocks() {
                    let outcome = DiscardOutcome::Done;
                    self.event(&format!("discarded {}", block.0), &Event::Discarded { block, outcome });
                }
                continue;
            }
            let (to, what) = if batch.lane == Lane::Evict { (Place::Host, "evicted") } else { (GPU, "fetched") };
            for block in batch.blocks() {
                self.event(&format!("{what} {}", block.0), &Event::MoveDone { block, to, ok: true });
            }
        }
    }
    fn evicted(&mut self, block: u64) {
        let (from, to, cause) = (GPU, Place::Host, MigrationCause::Eviction);
        let piece = Migration { block: UmBlock(block), bytes: UmBlock::SIZE, from, to, cause, at: Nanos::ZERO };
        self.event(&format!("driver evicted {block}"), &Event::Migrated(piece));
    }

    /// Compares with the file, or writes it.
    #[track_caller]
    fn check(self, file: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &self.text).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(self.text, golden, "{file} changed; BLESS=1 accepts, then read the diff");
    }
}

/// Three launches over four tensors of two blocks, twice. What the driver evicts is the first block of each tensor.
fn two_iterations(mut play: Play, driver_evicts: bool) -> Play {
    for first in [0, 10, 20, 30] {
        play.alloc(first, 2);
    }
    let steps: [(u64, &[u64]); 3] = [(100, &[0, 10]), (200, &[10, 20]), (300, &[20, 30])];
    for iteration in 0..2 {
        for (n, (key, tensors)) in steps.iter().enumerate() {
            let seq = iteration * 3 + n as u64 + 1;
            play.launch(seq, *key, tensors);
        }
        for (n, (_, tensors)) in steps.iter().enumerate() {
            if iteration == 0 {
                for &block in *tensors {
                    for part in [block, block + 1] {
                        play.fault(part);
                        play.mover();
                    }
                }
                for &block in tensors.iter().filter(|_| driver_evicts) {
                    play.evicted(block);
                }
            }
            play.done(iteration * 3 + n as u64 + 1);
            play.mover();
        }
    }
    play
}

#[test]
fn demand() {
    two_iterations(Play::new(PolicyName::Demand, 6, 6), true).check("demand.txt");
}

#[test]
fn demand_within_a_budget() {
    two_iterations(Play::new(PolicyName::Demand, 6, 3), false).check("demand_budget.txt");
}

#[test]
fn next_block() {
    two_iterations(Play::new(PolicyName::NextBlock, 6, 6), true).check("next_block.txt");
}

#[test]
fn deepum() {
    two_iterations(Play::new(PolicyName::Deepum, 6, 6), true).check("deepum.txt");
}

#[test]
fn deepum_within_a_budget() {
    two_iterations(Play::new(PolicyName::Deepum, 12, 6), false).check("deepum_budget.txt");
}

#[test]
fn deepum_paper() {
    two_iterations(Play::new(PolicyName::DeepumPaper, 6, 6), true).check("deepum_paper.txt");
}

/// Another launch comes than predicted: what only the predicted ones wanted is taken back.
#[test]
fn deepum_contradicted() {
    let mut play = two_iterations(Play::new(PolicyName::Deepum, 6, 6), true);
    for block in [1, 11, 21, 31] {
        play.evicted(block);
    }
    play.launch(7, 100, &[0, 10]);
    play.launch(8, 900, &[30]);
    play.done(7);
    play.mover();
    play.done(8);
    play.check("deepum_contradicted.txt");
}

/// Everything fits: new memory is populated, launches are not looked at; then it no longer does, and again it does.
#[test]
fn deepum_dormant_and_awake() {
    let mut play = Play::new(PolicyName::Deepum, 10, 10);
    play.alloc(0, 4);
    play.launch(1, 100, &[0]);
    play.alloc(10, 5);
    play.alloc(20, 2);
    play.launch(2, 100, &[0]);
    play.fault(20);
    play.done(2);
    play.free(10, 5);
    play.launch(3, 100, &[0]);
    play.check("deepum_dormant_and_awake.txt");
}
