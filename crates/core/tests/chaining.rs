//! Chaining as the paper describes it, step by step, and what it does to faults in the toy world.

mod world;

use deepum_core::command::{Command, Commands, Why};
use deepum_core::correlate::{Geometry, Layout as TableLayout};
use deepum_core::engine::{Config, Engine};
use deepum_core::event::{Event, Fault, Launch, Migration, MigrationCause};
use deepum_core::policy::PolicyName;
use deepum_core::units::{
    AddrRange, Bytes, DevAddr, KernelId, LaunchKey, LaunchSeq, Nanos, Place, StreamSlot, UmBlock,
};
use world::{DEVICE, Iteration, Layout, Work, World, training_step};

/// Four launches in a loop; launch `n` needs blocks `10n`, `10n + 1` and `10n + 2`, in this order. Two are chained ahead.
struct Loop {
    engine: Engine,
    seq: u64,
}

impl Loop {
    fn new() -> Self {
        let config = Config::new(PolicyName::DeepumPaper, Bytes(20 * UmBlock::SIZE.get()));
        let mut engine = Engine::new(Config { degree: 2, preevict: false, ..config });
        let all = AddrRange::new(DevAddr(0), Bytes(100 * UmBlock::SIZE.get()));
        engine.on(&Event::Alloc { range: all }, &mut Commands::new());
        Self { engine, seq: 0 }
    }
    /// Two rounds teach what follows what: with three predecessors as context, the second is the first that repeats.
    fn taught() -> Self {
        let mut this = Self::new();
        for key in [1, 2, 3, 4, 1, 2, 3, 4] {
            this.launch(key);
            for block in [10 * key, 10 * key + 1, 10 * key + 2] {
                this.fault(block);
                this.leaves(block);
            }
            this.finish();
        }
        this
    }
    /// Launch 1 faulted on 10, which chained the next two; launch 2 executes.
    fn chained() -> Self {
        let mut this = Self::taught();
        this.launch(1);
        this.fault(10);
        this.finish();
        this.launch(2);
        this
    }
    /// The predicted fetches that the event causes, and the launches they are for.
    fn tell(&mut self, event: &Event<'_>) -> Vec<(u64, u64)> {
        let mut out = Commands::new();
        self.engine.on(event, &mut out);
        let predicted = |command: &Command| match command {
            Command::Fetch { block, why: Why::Predicted { by } } => Some((block.0, by.0)),
            _ => None,
        };
        let fetches: Vec<(u64, u64)> = out.as_slice().iter().filter_map(predicted).collect();
        // Everything is done at once.
        for command in out.drain() {
            if let Command::Fetch { block, .. } = command {
                self.engine.on(&Event::MoveDone { block, to: DEVICE, ok: true }, &mut Commands::new());
            }
        }
        fetches
    }
    fn launch(&mut self, key: u64) -> Vec<(u64, u64)> {
        self.seq += 1;
        let (seq, stream, key) = (LaunchSeq(self.seq), StreamSlot(0), LaunchKey(key));
        self.tell(&Event::Launch(Launch { seq, stream, key, kernel: KernelId(0), pointers: &[] }))
    }
    fn fault(&mut self, block: u64) -> Vec<(u64, u64)> {
        let fault = Fault { block: UmBlock(block), batch: 1, entries: 1, write: false, at: Nanos::ZERO };
        self.tell(&Event::Fault(fault))
    }
    fn finish(&mut self) -> Vec<(u64, u64)> {
        self.tell(&Event::Progress { stream: StreamSlot(0), done: LaunchSeq(self.seq) })
    }
    /// The driver evicts all there is.
    fn all_leave(&mut self) {
        (0..50).for_each(|block| self.leaves(block));
    }
    /// The driver evicts the block.
    fn leaves(&mut self, block: u64) {
        let (block, bytes, cause, at) = (UmBlock(block), UmBlock::SIZE, MigrationCause::Eviction, Nanos::ZERO);
        self.tell(&Event::Migrated(Migration { block, bytes, from: DEVICE, to: Place::Host, cause, at }));
    }
}

#[test]
fn a_fault_starts_a_chain_through_start_and_end_blocks_that_pauses_n_launches_ahead_and_goes_on_as_launches_finish() {
    let mut run = Loop::taught();
    assert_eq!(run.launch(1), [(30, 11), (31, 11), (32, 11)], "the last fault, in launch 8, chained 9 and 10");
    run.all_leave();
    let before = run.engine.counters().prefetch_useful;
    let two_ahead = [(11, 9), (12, 9), (20, 10), (21, 10), (22, 10), (30, 11), (31, 11), (32, 11)];
    assert_eq!(run.fault(10), two_ahead);
    assert_eq!(run.finish(), [], "no launch is known to execute");
    assert_eq!(run.launch(2), [(40, 12), (41, 12), (42, 12)]);
    assert_eq!(run.finish(), []);
    run.leaves(11);
    assert_eq!(run.launch(3), [(11, 13)], "of launch 1 all but 11 is there");
    assert_eq!(
        run.engine.counters().prefetch_useful - before,
        5,
        "11, 12 in the first launch, and those of the second"
    );
}

#[test]
fn a_fault_in_the_middle_ends_the_chain_and_another_one_starts_there() {
    let mut run = Loop::chained();
    run.leaves(21);
    run.leaves(30);
    run.leaves(42);
    assert_eq!(run.fault(21), [(30, 11), (42, 12)], "22 is there; then what was lost of the next two");
}

#[test]
fn a_walk_that_runs_dry_before_the_end_block_ends_the_chain() {
    let mut run = Loop::chained();
    assert_eq!(run.fault(29), [], "a block that nothing ever followed");
    run.finish();
    for key in [3, 4, 1] {
        assert_eq!(run.launch(key), [], "launch {key}: no chain until the next fault");
        run.finish();
    }
}

#[test]
fn a_launch_that_was_not_chained_ends_the_chain_and_its_blocks_may_leave() {
    let mut run = Loop::taught();
    run.launch(1);
    run.fault(10);
    run.finish();
    assert_eq!(run.engine.snapshot().tables.planned_blocks, 6);
    let before = run.engine.counters().launches_mispredicted;
    assert_eq!(run.launch(7), []);
    assert_eq!(run.engine.counters().launches_mispredicted, before + 1);
    assert_eq!(run.engine.snapshot().tables.planned_blocks, 0);
    run.finish();
    assert_eq!(run.launch(2), [], "a context never seen");
}

#[test]
fn a_copy_between_two_launches_ends_no_chain() {
    let mut run = Loop::taught();
    run.launch(1);
    run.all_leave();
    run.fault(10);
    run.finish();
    run.seq += 1;
    let (seq, stream, range) = (LaunchSeq(run.seq), StreamSlot(0), UmBlock(90).range());
    assert_eq!(run.tell(&Event::Copy { seq, stream, range, write: true }), []);
    assert_eq!(run.launch(2), [(40, 13), (41, 13), (42, 13)]);
    run.finish();
    assert_eq!(run.launch(3), [], "10 to 12 are there");
}

#[test]
fn a_launch_that_never_faulted_is_passed_and_counts() {
    let mut run = Loop::new();
    for _ in 0..2 {
        for key in [1, 2, 3, 4] {
            run.launch(key);
            if key != 2 {
                run.fault(10 * key);
                run.leaves(10 * key);
            }
            run.finish();
        }
    }
    run.launch(1);
    run.all_leave();
    assert_eq!(run.fault(10), [(30, 11)], "launches 2 and 3 are the two ahead");
}

#[test]
fn what_is_left_to_fault_in_a_chained_launch_is_neither_its_start_nor_its_end() {
    let mut run = Loop::chained();
    run.leaves(21);
    run.fault(21);
    run.finish();
    for key in [3, 4] {
        run.launch(key);
        run.finish();
    }
    for block in [20, 21, 22] {
        run.leaves(block);
    }
    run.launch(1);
    run.leaves(10);
    assert_eq!(run.fault(10)[..3], [(20, 14), (21, 14), (22, 14)]);
}

fn iterations(policy: PolicyName, geometry: Geometry, degree: u32, layout: &Layout, works: &[Work]) -> Vec<Iteration> {
    let capacity = layout.blocks() / 2;
    let config = Config::new(policy, Bytes(capacity as u64 * UmBlock::SIZE.get()));
    let mut world = World::new(Config { geometry, degree, preevict: false, ..config }, capacity);
    layout.tensors.iter().for_each(|&tensor| world.alloc(tensor));
    (0..6).map(|_| world.iterate(works, 500)).collect()
}

#[test]
fn chaining_removes_most_faults_and_both_layouts_of_the_tables_remove_the_same() {
    let mut layout = Layout::default();
    let works = training_step(&mut layout, 24, 12, 12000);
    let paper = Geometry::default().laid_out(TableLayout::Paper);
    let demand = iterations(PolicyName::Demand, paper, 32, &layout, &works);
    let chained = iterations(PolicyName::DeepumPaper, paper, 32, &layout, &works);
    println!("demand {demand:#?}\nchained {chained:#?}");
    assert_eq!(iterations(PolicyName::DeepumPaper, Geometry::default(), 32, &layout, &works), chained);
    assert_eq!(chained[0].faults, demand[0].faults, "nothing is known in the first iteration");
    for (n, (demand, chained)) in demand.iter().zip(&chained).enumerate().skip(2) {
        assert!(chained.faults * 5 <= demand.faults, "iteration {n}: {} against {}", chained.faults, demand.faults);
    }
}
