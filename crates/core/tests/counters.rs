//! A counter that exists is counted somewhere: every one is bumped here, each by the thing it describes.

mod world;

use deepum_core::counters::Counters;
use deepum_core::engine::{Config, Engine};
use deepum_core::event::{DiscardOutcome, Event, Fault, Launch, Migration, MigrationCause};
use deepum_core::policy::PolicyName;
use deepum_core::queues::Queues;
use deepum_core::units::{
    AddrRange, Bytes, DevAddr, KernelId, LaunchKey, LaunchSeq, Nanos, Place, StreamSlot, UmBlock,
};
use std::collections::BTreeMap;
use world::told::{Say, Told};
use world::{DEVICE, Layout, Work, World, launch, training_step};

/// An engine and its queues, fed by hand. Blocks are numbered from 0.
struct Bench {
    engine: Engine,
    queues: Queues,
    seq: u64,
}

impl Bench {
    /// 20 blocks fit and 20 others are there; 100 are allocated, so it is awake.
    fn new(config: impl FnOnce(&mut Config), queue: usize) -> Self {
        let mut set_up = Config::new(PolicyName::Deepum, Bytes(20 * UmBlock::SIZE.get()));
        config(&mut set_up);
        let mut bench = Self { engine: Engine::new(set_up), queues: Queues::new(queue), seq: 0 };
        bench.tell(Event::Alloc { range: AddrRange::new(DevAddr(0), Bytes(100 * UmBlock::SIZE.get())) });
        (60..80).for_each(|block| bench.done(block, DEVICE, true));
        bench
    }
    fn tell(&mut self, event: Event<'_>) {
        self.engine.step(&event, &mut self.queues);
        self.engine.gate();
    }
    fn launch(&mut self, key: u64) {
        self.seq += 1;
        let (seq, stream, key) = (LaunchSeq(self.seq), StreamSlot(0), LaunchKey(key));
        self.tell(Event::Launch(Launch { seq, stream, key, kernel: KernelId(0), pointers: &[] }));
    }
    fn finish(&mut self) {
        self.tell(Event::Progress { stream: StreamSlot(0), done: LaunchSeq(self.seq) });
    }
    fn fault(&mut self, block: u64) {
        let fault = Fault { block: UmBlock(block), batch: 1, entries: 2, write: true, at: Nanos::ZERO };
        self.tell(Event::Fault(fault));
    }
    fn moved(&mut self, block: u64, to: Place, cause: MigrationCause) {
        let from = if to == DEVICE { Place::Host } else { DEVICE };
        let (block, bytes, at) = (UmBlock(block), UmBlock::SIZE, Nanos::ZERO);
        self.tell(Event::Migrated(Migration { block, bytes, from, to, cause, at }));
    }
    /// The mover took out what waited for the block, and did it or failed.
    fn done(&mut self, block: u64, to: Place, ok: bool) {
        while world::pop(&mut self.queues, 1).is_some_and(|batch| batch.first != UmBlock(block)) {}
        world::pop(&mut self.queues, 1);
        self.tell(Event::MoveDone { block: UmBlock(block), to, ok });
    }
    /// Teaches that launches 1, 2, 3 follow each other, and that launch 2 needs block 50.
    fn teach(&mut self) {
        for _ in 0..2 {
            for key in [1, 2, 3] {
                self.launch(key);
                if key == 2 {
                    self.fault(50);
                    self.done(50, DEVICE, true);
                    self.moved(50, Place::Host, MigrationCause::Eviction);
                }
                self.finish();
            }
        }
    }
    fn counters(&self) -> &Counters {
        self.engine.counters()
    }
}

#[test]
fn every_counter_is_bumped_by_something() {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    let mut add = |counters: &Counters| {
        for (name, description, value) in counters.rows() {
            assert!(!description.is_empty() && description.ends_with('.'), "{name}: {description:?}");
            *sums.entry(name).or_default() += value;
        }
    };

    // What happens in a training step short of memory, and with a budget below it.
    let mut layout = Layout::default();
    let works = training_step(&mut layout, 8, 6, 3000);
    let capacity = layout.blocks() / 2;
    let memory = Bytes(capacity as u64 * UmBlock::SIZE.get());
    let full = Config::new(PolicyName::Deepum, memory);
    for config in [full, Config { budget: Bytes(memory.get() / 2), ..full }] {
        let mut world = World::new(config, capacity);
        layout.tensors.iter().for_each(|&tensor| world.alloc(tensor));
        for _ in 0..3 {
            world.iterate(&works, 20);
        }
        world.iterate(&[works[0].clone(), works[9].clone(), launch(&[layout.tensors[3]], 10)], 0);
        add(world.engine.counters());
    }

    // A launch that is given a table and uses a little of it, after one that needs the room.
    let mut layout = Layout::default();
    let (table, other) = (layout.tensor(2000), layout.tensor(2000));
    let wide = launch(&[table], 1000);
    let works = [Work { touches: wide.touches[..20].to_vec(), ..wide }, launch(&[other], 1000)];
    let mut world = World::new(Config::new(PolicyName::Deepum, Bytes(3000 * UmBlock::SIZE.get())), 3000);
    layout.tensors.iter().for_each(|&tensor| world.alloc(tensor));
    (0..3).for_each(|_| _ = world.iterate(&works, 0));
    add(world.engine.counters());

    // What goes wrong.
    let mut bench = Bench::new(|config| config.exec_ids = 2, 0);
    bench.teach();
    bench.fault(7);
    bench.tell(Event::NoticesLost { count: 3 });
    bench.done(3, DEVICE, false);
    for (to, causes) in [
        (DEVICE, [MigrationCause::Coherence, MigrationCause::Prefetch, MigrationCause::User]),
        (Place::Host, [MigrationCause::Coherence, MigrationCause::Eviction, MigrationCause::User]),
    ] {
        causes.into_iter().for_each(|cause| bench.moved(8, to, cause));
    }
    // By a fault that nobody told of.
    bench.moved(8, DEVICE, MigrationCause::Coherence);
    add(bench.counters());

    // Each end of a predicted fetch that the step above did not come to.
    let mut bench = Bench::new(|_| (), 100);
    bench.teach();
    bench.done(50, DEVICE, false);
    add(bench.counters());
    let mut bench = Bench::new(|_| (), 100);
    bench.teach();
    bench.done(50, DEVICE, true);
    bench.moved(50, Place::Host, MigrationCause::Eviction);
    add(bench.counters());

    // Contents that nobody needs, within a budget of 20 blocks that are all taken.
    let mut bench = Bench::new(|config| config.device_memory = Bytes(40 * UmBlock::SIZE.get()), 100);
    bench.tell(Event::Copy { seq: LaunchSeq(1), stream: StreamSlot(0), range: UmBlock(1).range(), write: true });
    bench.seq = 1;
    for (n, outcome) in
        [DiscardOutcome::Done, DiscardOutcome::HandedOut, DiscardOutcome::Failed].into_iter().enumerate()
    {
        let n = n as u64;
        bench.tell(Event::PtBlock { range: UmBlock(60 + n).range(), active: true });
        bench.launch(n);
        bench.finish();
        bench.tell(Event::PtBlock { range: UmBlock(60 + n).range(), active: false });
        bench.fault(n);
        bench.done(n, DEVICE, true);
        bench.tell(Event::Discarded { block: UmBlock(60 + n), outcome });
    }
    add(bench.counters());

    // Two copies of a block, which the GPU writes; and again, to drop it, and own it.
    let told = Told::default();
    let config = Config { saving: true, ..Config::new(PolicyName::Demand, Bytes(20 * UmBlock::SIZE.get())) };
    let engine = Engine::deciding(config, Box::new(told.clone()));
    let mut bench = Bench { engine, queues: Queues::default(), seq: 0 };
    bench.tell(Event::Alloc { range: AddrRange::new(DevAddr(0), Bytes(100 * UmBlock::SIZE.get())) });
    bench.done(60, DEVICE, true);
    for say in [Say::Save(60), Say::Save(60), Say::Drop(60), Say::Own(60)] {
        told.say.lock().unwrap().push(say);
        bench.launch(1);
        match say {
            Say::Save(_) => {
                bench.fault(60);
                bench.tell(Event::Saved { block: UmBlock(60), ok: true });
            }
            Say::Drop(_) => bench.done(60, Place::Host, true),
            Say::Own(_) => bench.done(60, DEVICE, true),
        }
    }
    add(bench.counters());

    let never: Vec<&str> = sums.iter().filter(|(_, value)| **value == 0).map(|(name, _)| *name).collect();
    assert!(never.is_empty(), "declared and never bumped: {never:?}");
}

/// Asked once, ended once, each way.
#[test]
fn a_predicted_fetch_has_exactly_one_end() {
    type Ends = fn(&Counters) -> [u64; 5];
    let ends: Ends =
        |c| [c.prefetch_useful, c.prefetch_late, c.prefetch_useless, c.prefetch_dropped, c.prefetch_failed];
    type Case = (&'static str, fn(&mut Bench), [u64; 5]);
    let cases: [Case; 6] = [
        (
            "useful",
            |bench| {
                bench.done(50, DEVICE, true);
                bench.launch(1);
                bench.launch(2);
                bench.finish();
            },
            [1, 0, 0, 0, 0],
        ),
        (
            "late",
            |bench| {
                bench.launch(1);
                bench.launch(2);
                bench.fault(50);
                bench.done(50, DEVICE, true);
                bench.finish();
            },
            [0, 1, 0, 0, 0],
        ),
        (
            "useless",
            |bench| {
                bench.done(50, DEVICE, true);
                bench.moved(50, Place::Host, MigrationCause::Eviction);
            },
            [0, 0, 1, 0, 0],
        ),
        ("freed", |bench| bench.done(50, DEVICE, true), [0, 0, 0, 0, 0]),
        (
            "dropped: another launch came",
            |bench| {
                bench.launch(77);
                bench.launch(78);
                bench.launch(79);
                bench.launch(80);
                bench.finish();
            },
            [0, 0, 0, 1, 0],
        ),
        ("failed", |bench| bench.done(50, DEVICE, false), [0, 0, 0, 0, 1]),
    ];
    for (case, then, expected) in cases {
        let mut bench = Bench::new(|config| config.degree = 3, 100);
        bench.teach();
        let before = ends(bench.counters());
        assert_eq!(bench.counters().prefetch_asked - before.iter().sum::<u64>(), 1, "{case}: one outstanding");
        then(&mut bench);
        let after = ends(bench.counters());
        let ended: [u64; 5] = std::array::from_fn(|n| after[n] - before[n]);
        assert_eq!(ended, expected, "{case}: {:?}", bench.counters());
        bench.tell(Event::Free { range: AddrRange::new(DevAddr(0), Bytes(100 * UmBlock::SIZE.get())) });
        let asked = bench.counters().prefetch_asked;
        assert_eq!(ends(bench.counters()).iter().sum::<u64>(), asked, "{case}: after everything is freed");
    }
}
