//! Policies in the toy world: do the decisions add up to fewer faults?

mod world;

use deepum_core::command::{Command, Commands};
use deepum_core::engine::{Config, Engine};
use deepum_core::event::{DiscardOutcome, Event, Fault, Launch};
use deepum_core::mix::Mix;
use deepum_core::policy::PolicyName;
use deepum_core::queues::{BATCH, Lane, Queues};
use deepum_core::units::{
    AddrRange, Bytes, DevAddr, KernelId, LaunchKey, LaunchSeq, Nanos, Place, StreamSlot, UmBlock,
};
use world::{DEVICE, Iteration, Layout, Work, World, launch, training_step};

fn config(policy: PolicyName, capacity: usize) -> Config {
    Config::new(policy, Bytes(capacity as u64 * UmBlock::SIZE.get()))
}

/// Six iterations under a policy.
fn run(policy: PolicyName, layout: &Layout, works: &[Work], capacity: usize, ahead: usize) -> (World, Vec<Iteration>) {
    let mut world = World::new(config(policy, capacity), capacity);
    for &tensor in &layout.tensors {
        world.alloc(tensor);
    }
    let iterations = (0..6).map(|_| world.iterate(works, ahead)).collect();
    (world, iterations)
}

/// Checks the promise of the policies: from the third iteration on at most 5 % of `demand`'s faults.
#[track_caller]
fn at_most_a_twentieth(layout: &Layout, works: &[Work], capacity: usize, ahead: usize) {
    let (_, demand) = run(PolicyName::Demand, layout, works, capacity, ahead);
    for policy in [PolicyName::Deepum, PolicyName::Horizon] {
        let (world, ours) = run(policy, layout, works, capacity, ahead);
        println!("demand {demand:#?}\n{policy} {ours:#?}\n{:#?}", world.engine.counters());
        for (n, (demand, ours)) in demand.iter().zip(&ours).enumerate().skip(2) {
            assert!(demand.faults > 50, "iteration {n}: no pressure");
            let (few, many) = (ours.faults, demand.faults);
            assert!(few * 20 <= many, "{policy}, iteration {n}: {few} against {many}");
        }
    }
}

#[test]
fn a_cycle_larger_than_memory() {
    let mut layout = Layout::default();
    let works: Vec<Work> = (0..100).map(|_| launch(&[layout.tensor(10)], 4000)).collect();
    at_most_a_twentieth(&layout, &works, 600, 200);
}

#[test]
fn a_training_step_with_the_host_far_ahead() {
    let mut layout = Layout::default();
    let works = training_step(&mut layout, 24, 12, 12000);
    at_most_a_twentieth(&layout, &works, layout.blocks() / 2, 500);
}

#[test]
fn a_training_step_with_the_host_just_ahead_so_that_launches_are_predicted() {
    let mut layout = Layout::default();
    let works = training_step(&mut layout, 24, 12, 12000);
    at_most_a_twentieth(&layout, &works, layout.blocks() / 2, 0);
}

#[test]
fn a_training_step_in_a_memory_that_holds_few_launches() {
    let mut layout = Layout::default();
    let works = training_step(&mut layout, 24, 12, 16000);
    at_most_a_twentieth(&layout, &works, layout.blocks() / 8, 500);
}

#[test]
fn copies_between_launches_contradict_no_prediction() {
    let mut layout = Layout::default();
    let works = training_step(&mut layout, 24, 12, 12000);
    let capacity = layout.blocks() / 2;
    for ahead in [0, 3, 500] {
        let run = |copies| {
            let mut world = World::new(config(PolicyName::Deepum, capacity), capacity);
            world.copies = copies;
            layout.tensors.iter().for_each(|&tensor| world.alloc(tensor));
            let iterations: Vec<Iteration> = (0..6).map(|_| world.iterate(&works, ahead)).collect();
            let counters = *world.engine.counters();
            (iterations, counters.launches_mispredicted, counters.launches, counters.copies)
        };
        let ((plain, mispredicted, launches, none), (copied, with_copies, same, copies)) = (run(0), run(2));
        assert_eq!((launches, none), (same, 0));
        assert_eq!((with_copies, copies), (mispredicted, 2 * launches), "{ahead} ahead");
        // Which launch counts as the executing one while a copy runs may shift a call, and with it which blocks are left out to see whether they are used.
        for (plain, copied) in plain.iter().zip(&copied) {
            assert!(
                copied.faults <= plain.faults + 2 * u64::from(BATCH),
                "{ahead} ahead: {copied:?} against {plain:?}"
            );
        }
    }
}

#[test]
fn short_of_bandwidth_the_gpu_faults_only_on_what_was_foreseen() {
    let mut layout = Layout::default();
    let works = training_step(&mut layout, 24, 12, 2000);
    let capacity = layout.blocks() / 2;
    let (_, demand) = run(PolicyName::Demand, &layout, &works, capacity, 500);
    let (mut world, deepum) = run(PolicyName::Deepum, &layout, &works, capacity, 500);
    assert!(deepum[5].micros * 2 < demand[5].micros, "{deepum:?} against {demand:?}");
    let before = *world.engine.counters();
    let last = world.iterate(&works, 500);
    let after = *world.engine.counters();
    assert!(last.faults > 0, "or there is bandwidth enough");
    assert_eq!(after.faults_learned, before.faults_learned, "every block was foreseen; it came too late");
    assert!((after.prefetch_late - before.prefetch_late) * 3 > last.faults * 2, "most were on their way");
}

#[test]
fn without_fault_notices_the_arguments_are_enough() {
    let mut layout = Layout::default();
    let works = training_step(&mut layout, 24, 12, 12000);
    let capacity = layout.blocks() / 2;
    let mut world = World::new(config(PolicyName::Deepum, capacity), capacity);
    world.blind = true;
    world.tell(&Event::FaultSource { up: false });
    for &tensor in &layout.tensors {
        world.alloc(tensor);
    }
    let iterations: Vec<Iteration> = (0..4).map(|_| world.iterate(&works, 500)).collect();
    let (_, demand) = run(PolicyName::Demand, &layout, &works, capacity, 500);
    assert!(iterations[1].faults * 20 <= demand[1].faults, "{iterations:?} against {demand:?}");

    // Nobody tells of evictions; those the driver must have made are seen all the same. Of our own one call may be the last thing that happened.
    let there = world.engine.snapshot().on_device.get() / UmBlock::SIZE.get();
    assert!((capacity as u64 - 32..=capacity as u64).contains(&there), "{there} of {capacity}");
    let useful = |world: &World| world.engine.counters().prefetch_useful;
    let before = useful(&world);
    let last = world.iterate(&works, 500);
    assert!(last.fetched > 0 && (useful(&world) - before) * 2 > last.fetched, "{last:?}, useful before: {before}");
}

/// The GPU is faster than what is asked to leave: the driver makes room meanwhile, and only to the memory's end.
#[test]
fn without_fault_notices_a_budget_that_cannot_be_kept_is_no_more_memory() {
    const MEMORY: u64 = 8;
    let memory = Bytes(MEMORY * UmBlock::SIZE.get());
    let mut engine =
        Engine::new(Config { budget: Bytes(memory.get() / 2), ..Config::new(PolicyName::Horizon, memory) });
    let (mut queues, mut most) = (Queues::default(), 0);
    let mut tell = |event: &Event<'_>| {
        engine.step(event, &mut queues);
        let there = engine.snapshot().on_device;
        assert!(there <= memory, "{there:?} after {event:?}");
        most = most.max(there.get());
    };
    tell(&Event::FaultSource { up: false });
    let range = AddrRange::new(DevAddr(0), Bytes(3 * MEMORY * UmBlock::SIZE.get()));
    tell(&Event::Alloc { range });
    for (seq, block) in (1..).map(LaunchSeq).zip(range.blocks()) {
        let (stream, pointers) = (StreamSlot(0), [block.start()]);
        tell(&Event::PtBlock { range: block.range(), active: true });
        tell(&Event::Launch(Launch { seq, stream, key: LaunchKey(seq.0), kernel: KernelId(0), pointers: &pointers }));
        tell(&Event::Progress { stream, done: seq });
    }
    assert_eq!(most, memory.get());
}

#[test]
fn a_memory_that_others_use_too_is_found_out_from_the_drivers_evictions() {
    let mut layout = Layout::default();
    let works = training_step(&mut layout, 24, 12, 14000);
    let (told, real) = (layout.blocks() * 3 / 4, layout.blocks() * 3 / 8);
    let faults = |policy| {
        let mut world = World::new(config(policy, told), real);
        layout.tensors.iter().for_each(|&tensor| world.alloc(tensor));
        (0..4).map(|_| world.iterate(&works, 500).faults).collect::<Vec<u64>>()
    };
    let (demand, deepum) = (faults(PolicyName::Demand), faults(PolicyName::Deepum));
    assert!(deepum[3] * 20 <= demand[3], "{deepum:?} against {demand:?}");
}

#[test]
fn when_everything_fits_the_engine_sleeps_and_nothing_moves() {
    let mut layout = Layout::default();
    let works = training_step(&mut layout, 6, 12, 12000);
    let capacity = layout.blocks() * 2;
    let (world, iterations) = run(PolicyName::Deepum, &layout, &works, capacity, 500);
    assert!(!world.engine.awake());
    assert_eq!(iterations.iter().map(|i| i.faults).sum::<u64>(), 0, "populated before the first touch");
    let counters = world.engine.counters();
    assert_eq!((counters.launches, counters.prefetch_asked, counters.touch_asked), (0, 0, 0));
    assert_eq!(world.engine.snapshot().exec_ids, 0);
}

/// A budget of half the memory: residency must stay within it, whatever the policy.
#[track_caller]
fn keeps_the_budget(policy: PolicyName) -> Vec<Iteration> {
    let mut layout = Layout::default();
    let works = training_step(&mut layout, 24, 12, 24000);
    let capacity = layout.blocks() * 2;
    let budget = layout.blocks() / 2;
    let config = Config { budget: Bytes(budget as u64 * UmBlock::SIZE.get()), ..config(policy, capacity) };
    let mut world = World::new(config, capacity);
    for &tensor in &layout.tensors {
        world.alloc(tensor);
    }
    let iterations = (0..5).map(|_| world.iterate(&works, 500)).collect();
    // A fault brings its block in before anything can be asked to leave; the mover may lag by a batch.
    assert!(world.peak <= budget + 32, "{policy}: peak {} with a budget of {budget}", world.peak);
    assert!(world.engine.counters().evict_asked > 0);
    iterations
}

#[test]
fn every_policy_keeps_a_budget_below_the_memory_and_deepum_still_removes_the_faults() {
    let demand = keeps_the_budget(PolicyName::Demand);
    keeps_the_budget(PolicyName::NextBlock);
    let deepum = keeps_the_budget(PolicyName::Deepum);
    assert!(deepum[3].faults * 20 <= demand[3].faults, "{deepum:?} against {demand:?}");
}

/// A driver that cannot evict (no host memory) must not be asked in an endless loop; and each block gets its turn.
#[test]
fn evictions_that_fail_are_asked_for_again_only_when_something_happens() {
    let size = UmBlock::SIZE.get();
    let mut engine = Engine::new(Config { budget: Bytes(4 * size), ..config(PolicyName::Demand, 16) });
    let mut queues = Queues::default();
    engine.step(&Event::Alloc { range: AddrRange::new(DevAddr(0), Bytes(16 * size)) }, &mut queues);
    let mut failed = Vec::new();
    for block in 0..6 {
        let fault = Fault { block: UmBlock(block), batch: 1, entries: 1, write: false, at: Nanos::ZERO };
        engine.step(&Event::Fault(fault), &mut queues);
        while let Some(batch) = world::pop(&mut queues, 1) {
            for block in batch.blocks() {
                failed.push(block.0);
                engine.step(&Event::MoveDone { block, to: Place::Host, ok: false }, &mut queues);
            }
            assert!(failed.len() < 20, "asked for again and again: {failed:?}");
        }
    }
    // One too many after the fifth fault, two after the sixth.
    assert_eq!(failed, [0, 1, 2]);
    assert_eq!(engine.counters().moves_failed, 3);
}

/// Four blocks may be there, four are fetched for the first launch, and then the GPU faults on three others: no block on the
/// GPU can leave, for all are being moved.
#[test]
fn predicted_fetches_make_way_for_faults_where_the_budget_leaves_no_room_for_both() {
    let size = UmBlock::SIZE.get();
    let blocks = |first: u64, count: u64| AddrRange::new(UmBlock(first).start(), Bytes(count * size));
    let mut engine = Engine::new(Config { budget: Bytes(4 * size), ..config(PolicyName::Deepum, 16) });
    let mut queues = Queues::default();
    engine.step(&Event::Alloc { range: blocks(0, 6) }, &mut queues);
    engine.step(&Event::Alloc { range: blocks(10, 4) }, &mut queues);
    let pointers = [UmBlock(10).start()];
    let (seq, stream, key) = (LaunchSeq(1), StreamSlot(0), LaunchKey(1));
    engine.step(&Event::Launch(Launch { seq, stream, key, kernel: KernelId(0), pointers: &pointers }), &mut queues);
    assert_eq!(queues.waiting(Lane::Predicted), 4);
    for block in 0..3 {
        let fault = Fault { block: UmBlock(block), batch: 1, entries: 1, write: false, at: Nanos::ZERO };
        engine.step(&Event::Fault(fault), &mut queues);
    }
    assert_eq!((queues.waiting(Lane::Fault), queues.waiting(Lane::Predicted), queues.waiting(Lane::Evict)), (3, 1, 0));
    assert_eq!(engine.counters().prefetch_dropped, 3);
}

#[test]
fn memory_freed_and_given_back_in_the_middle_leaves_nothing_behind() {
    let mut layout = Layout::default();
    let works = training_step(&mut layout, 24, 12, 12000);
    let (mut world, _) = run(PolicyName::Deepum, &layout, &works, layout.blocks() / 2, 500);
    for &tensor in &layout.tensors {
        world.tell(&Event::Free { range: tensor });
    }
    let snapshot = world.engine.snapshot();
    assert!(!snapshot.awake);
    assert_eq!((snapshot.managed, snapshot.on_device, snapshot.tables.planned_blocks), (Bytes(0), Bytes(0), 0));
    assert_eq!(world.queues.waiting(Lane::Predicted), 0);
    let counters = world.engine.counters();
    let ended = counters.prefetch_useful
        + counters.prefetch_late
        + counters.prefetch_useless
        + counters.prefetch_dropped
        + counters.prefetch_failed;
    assert_eq!(counters.prefetch_asked, ended, "every predicted fetch has one end: {counters:?}");
}

#[test]
fn the_same_events_give_the_same_commands() {
    for policy in PolicyName::ALL {
        let (one, other) = (commands(policy), commands(policy));
        assert!(policy == PolicyName::Demand || one.len() > 1000, "{policy}: {}", one.len());
        assert_eq!(one, other, "{policy}");
    }
}

/// What a policy asks for, given some thousand events drawn by number: launches, their faults, moves, PT blocks, budgets.
fn commands(policy: PolicyName) -> Vec<Command> {
    let blocks = |n: u64| Bytes(n * UmBlock::SIZE.get());
    let mut engine = Engine::new(Config { budget: blocks(60), ..Config::new(policy, blocks(100)) });
    let (mut out, mut all) = (Commands::new(), Vec::new());
    let range = |first: u64, count: u64| AddrRange::new(UmBlock(first).start(), blocks(count));
    engine.on(&Event::Alloc { range: range(0, 120) }, &mut out);
    for n in 1..4000u64 {
        let draw = |of: u64, below: u64| Mix::new().word(n).word(of).end() % below;
        let (seq, stream, block) = (LaunchSeq(n), StreamSlot(0), UmBlock(draw(1, 120)));
        let pointers = [block.start(), UmBlock(draw(2, 120)).start()];
        engine.on(
            &Event::Launch(Launch { seq, stream, key: LaunchKey(n % 50), kernel: KernelId(0), pointers: &pointers }),
            &mut out,
        );
        if draw(3, 2) == 0 {
            engine.on(&Event::Fault(Fault { block, batch: 1, entries: 1, write: false, at: Nanos::ZERO }), &mut out);
        }
        if draw(4, 5) == 0 {
            engine
                .on(&Event::PtBlock { range: range(draw(5, 110), 1 + draw(6, 9)), active: draw(7, 2) == 0 }, &mut out);
        }
        if n % 500 == 0 {
            engine.on(&Event::Budget { bytes: blocks(30 + draw(8, 80)) }, &mut out);
        }
        engine.on(&Event::Progress { stream, done: LaunchSeq(n.saturating_sub(draw(9, 20))) }, &mut out);
        for command in out.drain() {
            all.push(command);
            let done = |to| Event::MoveDone { block: command.block(), to, ok: draw(10, 9) > 0 };
            match command {
                Command::Fetch { .. } => engine.on(&done(DEVICE), &mut Commands::new()),
                Command::Evict { .. } => engine.on(&done(Place::Host), &mut Commands::new()),
                Command::Discard { block } => {
                    engine.on(&Event::Discarded { block, outcome: DiscardOutcome::Done }, &mut Commands::new());
                }
                Command::Save { .. } | Command::Drop { .. } | Command::Own { .. } => unreachable!("{command:?}"),
                Command::Cancel { .. } => {}
            }
        }
    }
    all
}
