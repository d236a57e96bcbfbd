//! The first launches told of: the GPU is behind with those of which nobody told, and the program still takes memory.

mod world;

use deepum_core::command::{Command, Commands, Why};
use deepum_core::engine::{Config, Engine, PATIENCE};
use deepum_core::event::{Event, Fault, Launch};
use deepum_core::policy::PolicyName;
use deepum_core::units::{AddrRange, Bytes, DevAddr, KernelId, LaunchKey, LaunchSeq, Nanos, StreamSlot, UmBlock};
use std::collections::BTreeSet;
use world::DEVICE;

/// Blocks that fit.
const FITS: u64 = 1000;

/// An engine fed by hand, whose fetches succeed at once where room is left; nothing ever leaves by itself.
struct Bench {
    engine: Engine,
    asked: Vec<Command>,
}

impl Bench {
    fn new() -> Self {
        Self::under(PolicyName::Deepum)
    }
    fn under(policy: PolicyName) -> Self {
        let config = Config::new(policy, Bytes(FITS * UmBlock::SIZE.get()));
        Self { engine: Engine::new(config), asked: Vec::new() }
    }
    /// Tells an event; what is fetched for new memory arrives, the rest is kept in `asked`.
    fn tell(&mut self, event: &Event<'_>) {
        let mut out = Commands::new();
        self.engine.on(event, &mut out);
        for command in out.drain() {
            if let Command::Fetch { block, why: Why::Populate { .. } } = command {
                self.engine.on(&Event::MoveDone { block, to: DEVICE, ok: true }, &mut Commands::new());
            }
            self.asked.push(command);
        }
    }
    fn alloc(&mut self, first: u64, blocks: u64) {
        let range = range(first, blocks);
        self.tell(&Event::Alloc { range });
        self.tell(&Event::PtBlock { range, active: true });
    }
    fn launch(&mut self, seq: u64, key: u64, pointers: &[u64]) {
        let pointers: Vec<DevAddr> = pointers.iter().map(|&block| UmBlock(block).start()).collect();
        let (seq, stream, key) = (LaunchSeq(seq), StreamSlot(0), LaunchKey(key));
        self.tell(&Event::Launch(Launch { seq, stream, key, kernel: KernelId(0), pointers: &pointers }));
    }
    fn done(&mut self, seq: u64) {
        self.tell(&Event::Progress { stream: StreamSlot(0), done: LaunchSeq(seq) });
    }
    /// What was predicted and asked for since the last call.
    fn predicted(&mut self) -> BTreeSet<u64> {
        let fetched = |command: &Command| match command {
            Command::Fetch { block, why: Why::Predicted { .. } } => Some(block.0),
            _ => None,
        };
        self.asked.drain(..).filter_map(|command| fetched(&command)).collect()
    }
    fn evicts(&self) -> bool {
        self.asked.iter().any(|command| matches!(command, Command::Evict { .. } | Command::Discard { .. }))
    }
}

fn range(first: u64, blocks: u64) -> AddrRange {
    AddrRange::new(UmBlock(first).start(), Bytes(blocks * UmBlock::SIZE.get()))
}

#[test]
fn the_memory_that_wakes_the_engine_is_brought_in_like_all_before_it_if_launches_were_issued() {
    for issued in [0, 400] {
        let mut bench = Bench::new();
        bench.tell(&Event::Issued { seq: LaunchSeq(issued) });
        bench.alloc(0, 890);
        assert!(!bench.engine.awake());
        bench.alloc(890, 40);
        bench.alloc(930, 40);
        assert!(bench.engine.awake());
        let expected = if issued > 0 { 970 } else { 890 };
        assert_eq!(bench.engine.counters().populate_asked, expected, "launches of which nobody tells use it");
        bench.launch(500, 1, &[0]);
        bench.alloc(2000, 10);
        assert_eq!(bench.engine.counters().populate_asked, expected, "what it is for will be told");
    }
}

/// 990 blocks are there, of launches that nobody told of; the launches told of need 100 others.
fn woken(policy: PolicyName, first_seq: u64) -> Bench {
    let mut bench = Bench::under(policy);
    bench.alloc(0, 890);
    bench.alloc(890, 100);
    for block in 890..990 {
        bench.tell(&Event::MoveDone { block: UmBlock(block), to: DEVICE, ok: true });
    }
    bench.alloc(5000, 100);
    assert!(bench.engine.awake());
    bench.asked.clear();
    for n in 0..10 {
        bench.launch(first_seq + n, 10 + n, &[5000 + n * 10]);
    }
    bench
}

#[test]
fn while_the_gpu_is_behind_with_launches_nobody_told_of_nothing_leaves_for_what_comes_later() {
    for policy in [PolicyName::Deepum, PolicyName::Horizon] {
        let mut bench = woken(policy, 700);
        assert!(!bench.evicts(), "{:?}", bench.asked);
        let early = bench.predicted();
        assert!(early.len() <= 10, "only so many find room: {early:?}");
        bench.done(700);
        assert!(bench.evicts(), "the launches before the first one told of are over");
        if policy == PolicyName::Deepum {
            let later = bench.predicted();
            assert!(early.union(&later).count() >= 90, "{early:?} {later:?}");
        }
    }
}

#[test]
fn no_more_is_said_to_be_on_the_gpu_than_it_has_memory() {
    let mut bench = woken(PolicyName::Horizon, 700);
    let before = bench.engine.snapshot().on_device;
    for block in 5000..5100 {
        bench.tell(&Event::Fault(Fault { block: UmBlock(block), batch: 1, entries: 1, write: true, at: Nanos::ZERO }));
    }
    let memory = bench.engine.snapshot().budget;
    assert_eq!((before < memory, bench.engine.snapshot().on_device), (true, memory), "of who left nobody told yet");
}

#[test]
fn while_a_launch_nobody_told_of_may_be_executing_only_what_the_arguments_reach_teaches_the_next() {
    for policy in [PolicyName::Deepum, PolicyName::Horizon] {
        let mut bench = woken(policy, 700);
        let fault = |bench: &mut Bench, block| {
            let fault = Fault { block: UmBlock(block), batch: 1, entries: 1, write: true, at: Nanos::ZERO };
            bench.tell(&Event::Fault(fault));
            let counters = bench.engine.counters();
            (counters.faults_learned, counters.faults_unattributed)
        };
        assert_eq!(fault(&mut bench, 300), (0, 1), "{policy}: the GPU is behind");
        assert_eq!(
            fault(&mut bench, 5003),
            (1, 1),
            "{policy}: of the first one told of, or one before it with the same memory"
        );
        bench.done(700);
        assert_eq!(fault(&mut bench, 301), (2, 1), "{policy}: it found the address in memory");
        // The record of 710 is lost.
        bench.launch(711, 21, &[5010]);
        bench.done(709);
        assert_eq!(fault(&mut bench, 302), (2, 2), "{policy}: of 710, probably");
        assert_eq!(fault(&mut bench, 5010), (3, 2), "{policy}: 711 uses it in any case");
        bench.done(710);
        assert_eq!(fault(&mut bench, 302), (4, 2), "{policy}: 710 is over");
    }
}

#[test]
fn a_gpu_that_is_not_behind_is_planned_for_at_once() {
    let mut bench = woken(PolicyName::Deepum, 1);
    assert!(bench.evicts());
    assert!(bench.predicted().len() >= 90);
}

#[test]
fn memory_that_a_predicted_launch_needs_and_is_not_there_yet_is_asked_for_when_it_is_issued() {
    let train = |bench: &mut Bench, late: bool| {
        bench.alloc(0, 890);
        bench.alloc(1000, 100);
        if !late {
            bench.alloc(3000, 30);
        }
        bench.asked.clear();
        bench.launch(1, 71, &[1000]);
        if late {
            assert!(bench.engine.snapshot().exec_ids >= 2, "what comes next is known");
            bench.alloc(3000, 30);
            assert!(bench.predicted().is_disjoint(&(3000..3030).collect()), "it was nowhere when it was predicted");
        }
        bench.launch(2, 72, &[]);
    };
    let mut first = Bench::new();
    train(&mut first, false);
    first.done(1);
    for block in 3000..3030 {
        let fault = Fault { block: UmBlock(block), batch: 1, entries: 1, write: true, at: Nanos::ZERO };
        first.tell(&Event::Fault(fault));
    }
    first.done(2);
    let mut bytes = Vec::new();
    assert!(first.engine.save(7, &mut bytes));

    let mut second = Bench::new();
    second.engine.take_over(&bytes, 7).unwrap();
    train(&mut second, true);
    assert_eq!(second.predicted(), (3000..3030).collect());
    assert_eq!(second.engine.counters().launches_mispredicted, 0, "or the plan was made anew");
}

#[test]
fn a_workload_that_did_not_fit_before_is_watched_from_its_first_launch_and_not_for_ever() {
    let mut first = woken(PolicyName::Deepum, 1);
    first.done(1);
    let mut bytes = Vec::new();
    assert!(first.engine.save(7, &mut bytes));

    let mut second = Bench::new();
    second.engine.take_over(&bytes, 7).unwrap();
    second.alloc(0, 100);
    assert!(second.engine.awake());
    assert_eq!(second.engine.counters().populate_asked, 100, "new memory is brought in while it fits");
    for n in 1..PATIENCE {
        second.launch(n, 10, &[n % 100]);
        second.done(n);
    }
    assert!(second.engine.awake());
    second.launch(PATIENCE, 10, &[0]);
    assert!(!second.engine.awake(), "it fits, so it is something else");
    second.alloc(200, 850);
    assert!(second.engine.awake(), "until it does not");
}

#[test]
fn what_no_one_evicts_is_not_touched() {
    let mut first = woken(PolicyName::Deepum, 1);
    first.done(1);
    let mut bytes = Vec::new();
    assert!(first.engine.save(7, &mut bytes));

    let mut second = Bench::new();
    second.engine.take_over(&bytes, 7).unwrap();
    second.alloc(0, 100);
    second.alloc(100, 780);
    for seq in 1..=3 {
        second.launch(seq, 77, &[0]);
        second.done(seq);
    }
    assert!(second.engine.awake());
    assert_eq!(second.engine.counters().touch_asked, 0, "all of it fits");
    second.alloc(2000, 80);
    second.launch(4, 77, &[0]);
    assert_eq!(second.engine.counters().touch_asked, 100, "and now it is the oldest of what is more than fits");
}
