//! Arguments that name more than is used, and use that ends: is it found out, and what does finding out cost?

mod world;

use deepum_core::engine::{Config, Engine};
use deepum_core::event::{Event, Fault, Launch, Migration, MigrationCause};
use deepum_core::policy::PolicyName;
use deepum_core::queues::Queues;
use deepum_core::units::{
    AddrRange, Bytes, DevAddr, KernelId, LaunchKey, LaunchSeq, Nanos, Place, StreamSlot, UmBlock,
};
use proptest::prelude::*;
use world::{DEVICE, Iteration, Layout, Work, World, launch, training_step};

/// A launch that names a table of this many blocks.
const TABLE: u64 = 4000;

/// An engine fed by hand. Everything fits, but for what somebody else evicts.
struct Scene {
    engine: Engine,
    queues: Queues,
    seq: u64,
}

impl Scene {
    fn new() -> Self {
        let memory = Bytes((TABLE + 100) * UmBlock::SIZE.get());
        Self::of(Engine::new(Config::new(PolicyName::Deepum, memory)))
    }
    fn of(engine: Engine) -> Self {
        let mut scene = Self { engine, queues: Queues::new(8192), seq: 0 };
        scene.tell(&Event::Alloc { range: AddrRange::new(DevAddr(0), Bytes(TABLE * UmBlock::SIZE.get())) });
        (0..TABLE).for_each(|block| scene.arrived(UmBlock(block)));
        scene
    }
    fn tell(&mut self, event: &Event<'_>) {
        self.engine.step(event, &mut self.queues);
    }
    fn arrived(&mut self, block: UmBlock) {
        self.tell(&Event::MoveDone { block, to: DEVICE, ok: true });
    }
    fn launch(&mut self) {
        self.issue(LaunchKey(1), &[DevAddr(0)]);
    }
    fn issue(&mut self, key: LaunchKey, pointers: &[DevAddr]) {
        self.seq += 1;
        let (seq, stream) = (LaunchSeq(self.seq), StreamSlot(0));
        self.tell(&Event::Launch(Launch { seq, stream, key, kernel: KernelId(0), pointers }));
    }
    fn finish(&mut self) {
        self.tell(&Event::Progress { stream: StreamSlot(0), done: LaunchSeq(self.seq) });
    }
    fn fault(&mut self, block: u64) {
        let fault = Fault { block: UmBlock(block), batch: 1, entries: 1, write: false, at: Nanos::ZERO };
        self.tell(&Event::Fault(fault));
    }
    /// The whole table leaves the GPU, while nobody knows what comes next: the last launch is a new one.
    fn evict(&mut self) {
        self.issue(LaunchKey(1000 + self.seq), &[]);
        self.finish();
        for block in (0..TABLE).map(UmBlock) {
            let (from, to, cause) = (DEVICE, Place::Host, MigrationCause::User);
            let at = Nanos::ZERO;
            self.tell(&Event::Migrated(Migration { block, bytes: UmBlock::SIZE, from, to, cause, at }));
        }
    }
    /// Carries out what is asked for. Returns which blocks came.
    fn carry_out(&mut self) -> Vec<UmBlock> {
        let mut came = Vec::new();
        while let Some(batch) = world::pop(&mut self.queues, 16) {
            for block in batch.blocks() {
                self.arrived(block);
                came.push(block);
            }
        }
        came
    }
    fn counters(&self) -> [u64; 3] {
        let c = self.engine.counters();
        [c.doubted, c.doubted_used, c.doubted_unused]
    }
}

#[test]
fn what_is_named_and_never_used_is_found_out_by_leaving_some_of_it_out() {
    let mut scene = Scene::new();
    scene.launch();
    scene.finish();
    assert_eq!(scene.counters(), [0, 0, 0], "it was all there");

    scene.evict();
    scene.launch();
    let left_out = TABLE - scene.carry_out().len() as u64;
    assert!((24..80).contains(&left_out), "a sample of 32, then 1 of 256: {left_out}");
    assert_eq!(scene.engine.gate(), None, "the launch waits for no block that is left out");
    assert_eq!(scene.counters()[1..], [0, 0]);
    scene.finish();
    assert_eq!(scene.counters()[1..], [0, left_out]);

    // By then arguments are known to prove nothing here.
    scene.evict();
    scene.launch();
    assert_eq!((scene.carry_out(), scene.engine.gate()), (vec![], None));
    scene.fault(77);
    scene.carry_out();
    scene.finish();
    assert_eq!(scene.counters()[1..], [1, TABLE - 1], "all but one are known not to be used");

    scene.evict();
    scene.launch();
    assert_eq!(scene.carry_out(), [UmBlock(77)], "what a fault told of is fetched");
}

#[test]
fn what_was_taken_over_is_not_doubted_before_it_ran() {
    let mut before = Scene::new();
    before.launch();
    (0..TABLE).for_each(|block| before.fault(block));
    before.finish();
    let mut saved = Vec::new();
    assert!(before.engine.save(77, &mut saved));

    let memory = Bytes((TABLE + 100) * UmBlock::SIZE.get());
    let mut engine = Engine::new(Config::new(PolicyName::Deepum, memory));
    engine.take_over(&saved, 77).unwrap();
    let mut scene = Scene::of(engine);
    scene.evict();
    scene.launch();
    assert_eq!((scene.carry_out().len() as u64, scene.counters()), (TABLE, [0, 0, 0]));
    scene.finish();
    scene.evict();
    scene.launch();
    let left_out = TABLE - scene.carry_out().len() as u64;
    assert!((1..16).contains(&left_out), "then as if it had been learned here, 1 of 1,024: {left_out}");
}

#[test]
fn what_is_named_and_used_goes_on_being_fetched() {
    let mut scene = Scene::new();
    scene.launch();
    scene.finish();
    for round in 0..4 {
        scene.evict();
        let [_, before, _] = scene.counters();
        scene.launch();
        let came = scene.carry_out();
        for block in (0..TABLE).filter(|&block| !came.contains(&UmBlock(block))) {
            scene.fault(block);
        }
        scene.carry_out();
        scene.finish();
        let [_, after, unused] = scene.counters();
        assert_eq!(
            (after - before, unused),
            (TABLE - came.len() as u64, 0),
            "round {round}: each one left out was used"
        );
        assert!((after - before) * 50 < TABLE, "round {round}: {after} after {before}");
    }
}

#[test]
fn where_faults_cannot_be_seen_nothing_is_left_out() {
    let mut scene = Scene::new();
    scene.tell(&Event::FaultSource { up: false });
    for _ in 0..4 {
        scene.launch();
        scene.carry_out();
        scene.finish();
        assert_eq!(scene.engine.snapshot().on_device, Bytes(TABLE * UmBlock::SIZE.get()));
        scene.evict();
    }
    assert_eq!(scene.counters(), [0, 0, 0]);
    assert!(scene.engine.counters().prefetch_asked >= 3 * TABLE);
}

/// A step with look-ups: `tables` of `blocks` each, of which every iteration uses a few at the front and a few anywhere; what is looked up is
/// written, worked on, and the tables are updated in the same places.
fn look_ups(layout: &mut Layout, tables: usize, blocks: u64) -> impl Fn(u64) -> Vec<Work> + use<> {
    let named: Vec<AddrRange> = (0..tables).map(|_| layout.tensor(blocks)).collect();
    let results: Vec<AddrRange> = (0..tables).map(|_| layout.tensor(8)).collect();
    let dense = training_step(layout, 4, 8, 6000);
    move |iteration| {
        let touched = |table: usize| {
            let draw = (iteration * 7919 + table as u64 * 104_729) % (blocks - 1);
            let anywhere = named[table].blocks().nth(usize::try_from(draw).unwrap());
            named[table].blocks().take(6).chain(anywhere).chain(results[table].blocks()).collect()
        };
        let of = |table: usize, micros: u64| {
            let work = launch(&[named[table], results[table]], micros);
            Work { touches: touched(table), ..work }
        };
        let forward = (0..tables).map(|table| of(table, 2000));
        let update = (0..tables).map(|table| of(table, 3000));
        forward.chain(dense.iter().cloned()).chain(update).collect()
    }
}

#[test]
fn of_large_tables_only_what_is_looked_up_goes_on_being_fetched() {
    for (ahead, of_all) in [(500, 80), (0, 80), (500, 60), (0, 60)] {
        let mut layout = Layout::default();
        let step = look_ups(&mut layout, 8, 100);
        let capacity = layout.blocks() * of_all / 100;
        let run = |policy| {
            let mut world = World::new(Config::new(policy, Bytes(capacity as u64 * UmBlock::SIZE.get())), capacity);
            layout.tensors.iter().for_each(|&tensor| world.alloc(tensor));
            // Tables are filled before the first step.
            world.iterate(&layout.tensors[..8].iter().map(|&table| launch(&[table], 100)).collect::<Vec<_>>(), ahead);
            let iterations: Vec<Iteration> = (0..12).map(|n| world.iterate(&step(n), ahead)).collect();
            println!("{policy}, {ahead} ahead, {of_all} % fit: {iterations:?}\n{:?}", world.engine.counters());
            iterations
        };
        let (demand, deepum) = (run(PolicyName::Demand), run(PolicyName::Deepum));
        let fetched = |of: &[Iteration]| of.iter().map(|i| i.fetched).sum::<u64>();
        // Naive unified memory brings in what is used and nothing else.
        let (needed, first, last) = (fetched(&demand[8..]), fetched(&deepum[..4]), fetched(&deepum[4..]));
        assert!(first > 20 * needed, "{ahead} ahead, {of_all} % fit: {first} blocks, or nothing had to be found out");
        assert!(
            last * 5 <= first * 2,
            "{ahead} ahead, {of_all} % fit: {last} blocks in eight iterations, {first} in four"
        );
    }
}

#[test]
fn a_dense_step_pays_next_to_nothing() {
    let mut layout = Layout::default();
    let works = training_step(&mut layout, 24, 12, 12000);
    let capacity = layout.blocks() / 2;
    let mut world = World::new(Config::new(PolicyName::Deepum, Bytes(capacity as u64 * UmBlock::SIZE.get())), capacity);
    layout.tensors.iter().for_each(|&tensor| world.alloc(tensor));
    (0..50).for_each(|_| _ = world.iterate(&works, 500));
    let c = world.engine.counters();
    println!("{c:?}");
    assert!(c.doubted > 0, "or it is not tried");
    assert_eq!(c.doubted_unused, 0, "every launch uses all of its arguments");
    assert!(c.doubted * 200 <= c.prefetch_asked, "{} of {}", c.doubted, c.prefetch_asked);
}

#[test]
fn what_a_program_stops_using_is_no_longer_fetched_some_time_later() {
    let mut layout = Layout::default();
    let works: Vec<Work> = (0..30).map(|_| launch(&[layout.tensor(20)], 6000)).collect();
    let half: Vec<Work> =
        (works.iter()).map(|work| Work { touches: work.touches[..10].to_vec(), ..work.clone() }).collect();
    let capacity = layout.blocks() / 3;
    let mut world = World::new(Config::new(PolicyName::Deepum, Bytes(capacity as u64 * UmBlock::SIZE.get())), capacity);
    layout.tensors.iter().for_each(|&tensor| world.alloc(tensor));
    let full = (0..10).map(|_| world.iterate(&works, 500).fetched).last().unwrap();
    assert!(full > 500, "all of it is fetched in each iteration: {full}");
    let later: Vec<u64> = (0..300).map(|_| world.iterate(&half, 500).fetched).collect();
    assert!(later[299] * 5 < full * 4, "{full} at first, then {later:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Whatever part of its arguments each launch uses: after some iterations the GPU faults on less than one in eight of the blocks used, and each block
    /// left out had one end at most.
    #[test]
    fn any_use_of_arguments_is_followed(parts in prop::collection::vec((1usize..=12, 0usize..12), 20..40), fit in 30usize..90) {
        let mut layout = Layout::default();
        let works: Vec<Work> = parts.iter().map(|&(count, from)| {
            let work = launch(&[layout.tensor(12)], 6000);
            Work { touches: work.touches.iter().copied().skip(from).take(count).collect(), ..work }
        }).filter(|work| !work.touches.is_empty()).collect();
        let capacity = layout.blocks() * fit / 100;
        let run = |policy| {
            let mut world = World::new(Config::new(policy, Bytes(capacity as u64 * UmBlock::SIZE.get())), capacity);
            layout.tensors.iter().for_each(|&tensor| world.alloc(tensor));
            let all: Vec<Iteration> = (0..12).map(|_| world.iterate(&works, 500)).collect();
            let c = *world.engine.counters();
            assert!(c.doubted_used + c.doubted_unused <= c.doubted, "{c:?}");
            (all[6..].iter().map(|i| i.micros).sum::<u64>(), all[6..].iter().map(|i| i.faults).sum::<u64>())
        };
        let ((naive, naive_faults), (ours, faults)) = (run(PolicyName::Demand), run(PolicyName::Deepum));
        prop_assert!(ours * 100 <= naive * 105, "{ours} against {naive}");
        let used = 6 * works.iter().map(|work| work.touches.len() as u64).sum::<u64>();
        prop_assert!(faults <= (naive_faults + used) / 8, "{faults} against {naive_faults}, {used} used");
    }
}
