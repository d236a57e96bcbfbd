//! What the plan holds on to when what it was made of is gone: numbers of blocks that are no more, room that was taken away, launches that
//! were predicted before they were known.

mod world;

use deepum_core::command::{Command, Commands, Why};
use deepum_core::engine::{Config, Engine};
use deepum_core::event::{Event, Launch};
use deepum_core::invalidate::Invalidate;
use deepum_core::policy::PolicyName;
use deepum_core::units::{AddrRange, Bytes, DevAddr, LaunchKey, LaunchSeq, Place, StreamSlot, UmBlock};
use std::collections::BTreeSet;
use world::DEVICE;

/// Blocks of the GPU.
const FITS: u64 = 1000;

fn blocks(count: u64) -> Bytes {
    Bytes(count * UmBlock::SIZE.get())
}
fn range(first: u64, count: u64) -> AddrRange {
    AddrRange::new(UmBlock(first).start(), blocks(count))
}

/// An engine fed by hand. What it asks for is kept until it is carried out.
struct Scene {
    engine: Engine,
    asked: Vec<Command>,
    seq: u64,
}

impl Scene {
    fn new(config: Config) -> Self {
        Self { engine: Engine::new(config), asked: Vec::new(), seq: 0 }
    }
    fn awake() -> Self {
        let mut scene = Self::new(Config::new(PolicyName::Deepum, blocks(FITS)));
        scene.alloc(100_000, 2 * FITS);
        scene.asked.clear();
        scene
    }
    fn tell(&mut self, event: &Event<'_>) {
        let mut out = Commands::new();
        self.engine.on(event, &mut out);
        self.asked.extend(out.drain());
    }
    fn alloc(&mut self, first: u64, count: u64) {
        self.tell(&Event::Alloc { range: range(first, count) });
    }
    fn free(&mut self, first: u64, count: u64) {
        self.tell(&Event::Free { range: range(first, count) });
    }
    /// A launch of this key that is given these blocks.
    fn launch(&mut self, key: u64, pointers: &[u64]) {
        self.seq += 1;
        let pointers: Vec<DevAddr> = pointers.iter().map(|&block| UmBlock(block).start()).collect();
        let (seq, stream, key) = (LaunchSeq(self.seq), StreamSlot(0), LaunchKey(key));
        self.tell(&Event::Launch(Launch { seq, stream, key, pointers: &pointers }));
    }
    fn done(&mut self, seq: u64) {
        self.tell(&Event::Progress { stream: StreamSlot(0), done: LaunchSeq(seq) });
    }
    fn moved(&mut self, first: u64, count: u64, to: Place) {
        (first..first + count).map(UmBlock).for_each(|block| self.tell(&Event::MoveDone { block, to, ok: true }));
    }
    fn fetched(&mut self) -> BTreeSet<u64> {
        let fetched = |command: Command| match command {
            Command::Fetch { block, why: Why::Predicted { .. } } => Some(block.0),
            _ => None,
        };
        self.asked.drain(..).filter_map(fetched).collect()
    }
    fn evicted(&mut self) -> Vec<u64> {
        let evicted = |command: Command| match command {
            Command::Evict { block } => Some(block.0),
            _ => None,
        };
        self.asked.drain(..).filter_map(evicted).collect()
    }
}

#[test]
fn blocks_that_are_no_more_take_no_room_in_the_plan_and_leave_the_table() {
    let mut scene = Scene::awake();
    scene.alloc(0, 600);
    scene.moved(0, 600, DEVICE);
    scene.launch(1, &[0]);
    scene.done(1);
    let learned = scene.engine.snapshot().tables.block_bytes;
    assert!(learned > Bytes(600 * 4), "{learned}");
    // The pool was emptied, and comes back larger.
    scene.free(0, 600);
    scene.alloc(0, 601);
    scene.alloc(5000, 300);
    scene.asked.clear();
    scene.launch(1, &[0]);
    scene.launch(2, &[5000]);
    assert_eq!(scene.fetched().len(), 300, "600 blocks that will never come do not keep the next launch waiting");
    scene.done(2);
    assert!(scene.engine.snapshot().tables.block_bytes + Bytes(600 * 4) < learned + Bytes(300 * 4));
}

#[test]
fn a_launch_predicted_before_it_ever_ended_is_planned_by_its_arguments_once_it_is_issued() {
    let mut scene = Scene::awake();
    scene.alloc(0, 100);
    scene.asked.clear();
    scene.launch(1, &[]);
    scene.launch(2, &[0]);
    scene.launch(1, &[]);
    assert_eq!(scene.fetched().len(), 100);
    scene.moved(0, 100, DEVICE);
    scene.moved(0, 100, Place::Host);
    // 2 has not ended: nothing but its arguments tells what it needs, and those are known when it is issued.
    scene.fetched();
    scene.alloc(200, 30);
    scene.launch(2, &[200]);
    assert!(scene.fetched().is_superset(&(200..230).collect()), "2 was predicted after 1");
}

#[test]
fn a_budget_that_shrinks_makes_a_new_plan_and_the_rest_leaves_at_once_oldest_first() {
    let config = Config { invalidate: Invalidate::No, ..Config::new(PolicyName::Deepum, blocks(FITS)) };
    let mut scene = Scene::new(config);
    scene.alloc(0, 2000);
    scene.moved(0, 900, DEVICE);
    // The GPU is about to need 0 to 599, in this order, and has them.
    for n in 0..6 {
        scene.tell(&Event::PtBlock { range: range(n * 100, 100), active: true });
    }
    for n in 0..6 {
        scene.launch(n, &[n * 100]);
    }
    assert_eq!(scene.engine.snapshot().tables.planned_blocks, 600);
    scene.asked.clear();
    scene.tell(&Event::Budget { bytes: blocks(400) });
    let leaving = scene.evicted();
    let unique: BTreeSet<u64> = leaving.iter().copied().collect();
    assert_eq!((leaving.len(), unique.len()), (500, 500), "each once, as many as must");
    assert!(leaving.iter().all(|&block| block >= 200), "what is needed first stays: {:?}", leaving.iter().min());
    let planned = scene.engine.snapshot().tables.planned_blocks;
    assert!((200..=300).contains(&planned), "{planned} of 400");
}

#[test]
fn launches_under_way_when_the_engine_goes_to_sleep_are_not_taken_for_finished() {
    let mut scene = Scene::awake();
    scene.alloc(0, 10);
    scene.tell(&Event::PtBlock { range: range(0, 10), active: true });
    scene.launch(1, &[0]);
    scene.moved(0, 10, DEVICE);
    scene.moved(0, 10, Place::Host);
    scene.free(100_000, 2 * FITS);
    assert!(!scene.engine.awake());
    scene.alloc(100_000, 2 * FITS);
    assert!(scene.engine.awake());
    scene.asked.clear();
    scene.tell(&Event::PtBlock { range: range(0, 10), active: false });
    assert_eq!(scene.engine.counters().discard_asked, 0);
}
