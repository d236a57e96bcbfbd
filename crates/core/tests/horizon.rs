//! When `horizon` asks for what: how far ahead, how much at a time, and how far the program may be ahead.

mod world;

use deepum_core::command::Command;
use deepum_core::engine::Config;
use deepum_core::event::{DiscardOutcome, Event};
use deepum_core::policy::PolicyName;
use deepum_core::units::{LaunchSeq, Place, StreamSlot, UmBlock};
use std::collections::BTreeSet;
use world::DEVICE;
use world::scene::{FITS, Scene, blocks, range};

/// Thirty tensors of thirty blocks each.
fn thirty_tensors() -> Scene {
    let mut scene = Scene::new(Config::new(PolicyName::Horizon, blocks(FITS)));
    scene.alloc(100_000, 2 * FITS);
    scene.alloc(0, 900);
    (0..30).for_each(|n| scene.tell(&Event::PtBlock { range: range(n * 30, 30), active: true }));
    scene
}

#[test]
fn what_is_learned_of_a_launch_is_known_of_those_that_were_predicted_before() {
    let mut scene = thirty_tensors();
    // The program is three iterations ahead, and more of them are predicted, when the first launch ends.
    (0..90).for_each(|n| scene.launch(n % 30, &[n % 30 * 30]));
    scene.moved(0, 900, DEVICE);
    scene.fetched();
    scene.done(90);
    scene.moved(0, 900, Place::Host);
    (0..10).for_each(|n| scene.launch(n, &[n * 30]));
    let mut come = BTreeSet::new();
    for _ in 0..40 {
        let fetched = scene.fetched();
        fetched.iter().for_each(|&block| scene.moved(block, 1, DEVICE));
        come.extend(fetched);
    }
    assert!(
        come.range(330..).count() > 100,
        "the launches after these were predicted when nothing was known: {come:?}"
    );
}

#[test]
fn contents_that_may_not_be_given_up_are_asked_for_once_and_leave_like_others() {
    let mut scene = Scene::new(Config::new(PolicyName::Horizon, blocks(FITS)));
    scene.alloc(100_000, 2 * FITS);
    scene.alloc(0, 1200);
    for first in [0, 600] {
        scene.tell(&Event::PtBlock { range: range(first, 600), active: true });
    }
    scene.launch(1, &[0]);
    scene.moved(0, FITS, DEVICE);
    scene.tell(&Event::PtBlock { range: range(0, 600), active: false });
    scene.done(1);
    scene.launch(2, &[600]);
    let (mut refused, mut came) = (Vec::new(), BTreeSet::new());
    while !scene.asked.is_empty() {
        for command in std::mem::take(&mut scene.asked) {
            let block = command.block();
            match command {
                Command::Discard { .. } => {
                    refused.push(block);
                    scene.tell(&Event::Discarded { block, outcome: DiscardOutcome::HandedOut });
                }
                Command::Evict { .. } => scene.moved(block.0, 1, Place::Host),
                Command::Fetch { .. } => {
                    came.insert(block.0);
                    scene.moved(block.0, 1, DEVICE);
                }
                other => unreachable!("{other:?}"),
            }
        }
    }
    let apart: BTreeSet<_> = refused.iter().collect();
    assert!(!refused.is_empty() && apart.len() == refused.len() && refused.iter().all(|block| block.0 < 600));
    assert!(came.is_superset(&(1000..1200).collect()), "the launch has nothing to wait for: {came:?}");
}

fn hands(scene: &mut Scene, block: u64, active: bool) {
    scene.tell(&Event::PtBlock { range: range(block, 1), active });
}

/// Thirty launches, each over before the next. Of the twenty-first a small tensor lies beside the large one, and may be held for it alone. Returns what came, but with that one.
fn iteration(scene: &mut Scene, small: u64, for_it_alone: bool) -> BTreeSet<u64> {
    let mut come = BTreeSet::new();
    for n in 0..30 {
        let pointers = [n * 30, small];
        let brief = for_it_alone && n == 20;
        if brief {
            hands(scene, small, true);
        }
        scene.launch(n, if n == 20 { &pointers } else { &pointers[..1] });
        if brief {
            hands(scene, small, false);
        }
        let fetched = scene.fetched();
        fetched.iter().for_each(|&block| scene.moved(block, 1, DEVICE));
        come.extend(fetched.into_iter().filter(|_| n != 20));
        scene.done(scene.seq);
    }
    come
}

/// In how many of six iterations block 950 comes ahead of its use. Now and then it is left out, to see whether it is used.
fn times_expected(scene: &mut Scene, small: u64, for_it_alone: bool) -> usize {
    let comes = |_: &_| {
        scene.moved(950, 1, Place::Host);
        iteration(scene, small, for_it_alone).contains(&950)
    };
    (0..6).filter(comes).count()
}

#[test]
fn what_a_launch_used_where_memory_is_handed_back_now_is_expected_until_it_has_run_without_it() {
    let mut scene = thirty_tensors();
    scene.alloc(950, 20);
    hands(&mut scene, 950, true);
    scene.moved(0, 900, DEVICE);
    (0..4).for_each(|_| drop(iteration(&mut scene, 950, false)));
    assert!(times_expected(&mut scene, 950, false) > 2);
    hands(&mut scene, 950, false);
    hands(&mut scene, 960, true);
    // The next one is foreseen when it runs.
    (0..2).for_each(|_| drop(iteration(&mut scene, 960, false)));
    assert_eq!(times_expected(&mut scene, 960, false), 0);
}

#[test]
fn contents_are_as_dead_behind_a_launch_that_was_to_use_them_and_did_not() {
    let mut scene = thirty_tensors();
    scene.alloc(950, 20);
    hands(&mut scene, 950, true);
    scene.moved(0, 900, DEVICE);
    (0..4).for_each(|_| drop(iteration(&mut scene, 950, false)));
    hands(&mut scene, 950, false);
    hands(&mut scene, 960, true);
    drop(iteration(&mut scene, 960, false));
    scene.alloc(2000, 200);
    scene.tell(&Event::PtBlock { range: range(2000, 200), active: true });
    scene.launch(100, &[2000]);
    assert!(scene.asked.contains(&Command::Discard { block: UmBlock(950) }), "room is needed: {:?}", scene.asked);
}

#[test]
fn what_is_handed_out_for_a_launch_and_back_before_it_is_over_is_expected_the_next_time() {
    let mut scene = thirty_tensors();
    scene.alloc(950, 20);
    scene.moved(0, 900, DEVICE);
    (0..8).for_each(|_| drop(iteration(&mut scene, 950, true)));
    assert!(times_expected(&mut scene, 950, true) > 2, "a place is got ready before it is handed out");
}

#[test]
fn the_program_is_held_closer_ahead_while_few_launches_use_many_blocks() {
    let mut scene = thirty_tensors();
    scene.moved(0, 900, DEVICE);
    for n in 0..120 {
        scene.launch(n % 30, &[n % 30 * 30]);
        scene.done(n + 1);
    }
    (0..17).for_each(|n| scene.launch(n, &[n * 30]));
    assert_eq!(scene.engine.lead(), Some(16), "510 blocks");
    scene.launch(17, &[510]);
    assert_eq!(scene.engine.lead(), Some(2), "540 blocks");
    scene.done(121);
    assert_eq!(scene.engine.lead(), Some(16));
}

#[test]
fn launches_that_lack_nothing_are_clear_of_the_gate_up_to_what_is_lacking_and_none_is_behind_a_stray() {
    let mut scene = thirty_tensors();
    scene.moved(0, 900, DEVICE);
    let launch = |scene: &mut Scene, n: u64| scene.launch(n % 30, &[n % 30 * 30]);
    for n in 0..60 {
        assert_eq!(scene.engine.clear_until(), LaunchSeq(0), "before launch {n} little is known of what comes");
        launch(&mut scene, n);
        scene.done(n + 1);
    }
    for n in 60..120 {
        launch(&mut scene, n);
        scene.done(n + 1);
    }
    let all = LaunchSeq(121 + 30 - 16);
    assert_eq!(scene.engine.clear_until(), all, "the thirty that are foreseen lack nothing");
    // The 25th tensor is used next by launch 145.
    scene.moved(24 * 30, 30, Place::Host);
    assert_eq!(scene.engine.clear_until(), LaunchSeq(145 - 16));
    assert!(!scene.fetched().is_empty());
    assert_eq!(scene.engine.clear_until(), LaunchSeq(145 - 16), "what is on its way is not there yet");
    scene.moved(24 * 30, 30, DEVICE);
    assert_eq!(scene.engine.clear_until(), all);
    scene.launch(77, &[0]);
    assert_eq!(scene.engine.clear_until(), LaunchSeq(0));
}

/// So many blocks of new memory, one for each launch behind a first one that uses others: for how many launches places are asked for.
fn launches_with_places(used_by_the_first: u64, launches: u64) -> usize {
    let mut scene = Scene::new(Config::new(PolicyName::Horizon, blocks(FITS)));
    scene.alloc(100_000, 2 * FITS);
    scene.alloc(0, FITS);
    scene.moved(0, used_by_the_first, DEVICE);
    scene.tell(&Event::PtBlock { range: range(0, used_by_the_first), active: true });
    scene.launch(0, &[0]);
    let mut places = BTreeSet::new();
    for block in used_by_the_first..used_by_the_first + launches {
        scene.tell(&Event::PtBlock { range: range(block, 1), active: true });
        scene.launch(1, &[block]);
        for block in scene.fetched() {
            scene.moved(block, 1, DEVICE);
            places.insert(block);
        }
    }
    assert!(places.iter().copied().eq((used_by_the_first..).take(places.len())), "{places:?}");
    places.len()
}

#[test]
fn new_contents_get_their_places_launches_ahead_and_later_where_launches_are_heavy() {
    assert_eq!(launches_with_places(400, 60), 32);
    assert_eq!(launches_with_places(500, 60), 16);
}

#[test]
fn who_leaves_takes_those_beside_it_along() {
    let mut scene = Scene::new(Config::new(PolicyName::Horizon, blocks(FITS)));
    scene.alloc(100_000, 2 * FITS);
    scene.alloc(0, 1280);
    (0..960).for_each(|block| scene.tell(&Event::PtBlock { range: range(block, 1), active: true }));
    // Of 32 blocks every other one is used, and then those between: beside who is needed last lies one that is needed 16 launches sooner.
    let order = || (0..30).flat_map(|group| (0..32).map(move |n| 32 * group + 2 * (n % 16) + n / 16));
    for _ in 0..3 {
        for (launch, block) in (0..).zip(order()) {
            scene.launch(launch, &[block]);
            scene.fetched().into_iter().for_each(|block| scene.moved(block, 1, DEVICE));
            scene.done(scene.seq);
        }
    }
    scene.asked.clear();
    scene.tell(&Event::PtBlock { range: range(960, 320), active: true });
    let new: Vec<u64> = (0..20).map(|n| 960 + 16 * n).collect();
    scene.launch(1000, &new);
    let left = scene.evicted();
    let beside = left.windows(2).filter(|two| two[1] == two[0] + 1).count();
    assert!(left.len() >= 32 && beside * 4 > left.len() * 3, "{left:?}");
}

/// A tensor of so many blocks, in memory of its own, and a launch that uses it.
fn tensor(scene: &mut Scene, first: u64, count: u64) {
    scene.alloc(first, count);
    scene.tell(&Event::PtBlock { range: range(first, count), active: true });
    scene.launch(first, &(first..first + count).collect::<Vec<_>>());
}

#[test]
fn who_leaves_next_is_chosen_when_one_is_left_of_those_before() {
    let mut scene = Scene::new(Config::new(PolicyName::Horizon, blocks(FITS)));
    scene.alloc(100_000, 2 * FITS);
    tensor(&mut scene, 0, FITS - 40);
    scene.moved(0, FITS - 40, DEVICE);
    scene.done(scene.seq);
    tensor(&mut scene, 3000, 200);
    let leave = scene.evicted();
    assert!((16..=32).contains(&leave.len()), "{leave:?}");
    let (others, last) = leave.split_last_chunk::<2>().unwrap();
    others.iter().for_each(|&block| scene.moved(block, 1, Place::Host));
    assert_eq!(scene.evicted(), [0; 0]);
    scene.moved(last[0], 1, Place::Host);
    assert!((16..=32).contains(&scene.evicted().len()));
}

#[test]
fn what_is_named_and_was_found_not_to_be_used_leaves_first() {
    const TABLE: u64 = 400;
    const REST: u64 = FITS - TABLE - 40;
    let mut scene = Scene::new(Config::new(PolicyName::Horizon, blocks(FITS)));
    scene.alloc(100_000, 2 * FITS);
    for (first, count) in [(0, TABLE), (1000, REST)] {
        scene.alloc(first, count);
        scene.tell(&Event::PtBlock { range: range(first, count), active: true });
        scene.moved(first, count, DEVICE);
    }
    let table: Vec<u64> = (0..TABLE).collect();
    // The launch in the middle names the table, those around it a share of the rest, which is needed later than the table at the end of an iteration.
    let iteration = |scene: &mut Scene| {
        for n in 0..40 {
            let share: Vec<u64> = (0..REST).filter(|block| block % 40 == n).map(|block| 1000 + block).collect();
            scene.launch(n, if n == 5 { &table } else { &share });
            scene.fetched().into_iter().for_each(|block| scene.moved(block, 1, DEVICE));
            scene.done(scene.seq);
        }
    };
    (0..3).for_each(|_| iteration(&mut scene));
    // Half of it leaves time and again, until enough of it was left out and no launch faulted on any.
    for _ in 0..100 {
        if scene.engine.counters().doubted_unused < 8 {
            scene.moved(0, TABLE / 2, Place::Host);
            iteration(&mut scene);
        }
    }
    assert!(scene.engine.counters().doubted_unused >= 8, "{:?}", scene.engine.counters());
    iteration(&mut scene);
    scene.moved(0, TABLE, DEVICE);
    (0..2).for_each(|_| iteration(&mut scene));
    scene.asked.clear();
    tensor(&mut scene, 3000, 100);
    let leave = scene.evicted();
    assert!(leave.len() >= 16 && leave.iter().all(|&block| block < TABLE), "{leave:?}");
}

#[test]
fn who_executes_gets_places_of_the_dead_and_does_not_wait_for_those_who_leave() {
    let mut scene = Scene::new(Config::new(PolicyName::Horizon, blocks(FITS)));
    scene.alloc(100_000, 2 * FITS);
    let there = [(0, 20), (40, 360), (1000, 580)];
    for (first, count) in there {
        tensor(&mut scene, first, count);
        scene.moved(first, count, DEVICE);
        scene.done(scene.seq);
    }
    tensor(&mut scene, 3000, 200);
    let leaving = scene.asked.iter().filter(|command| matches!(command, Command::Evict { .. })).count();
    let coming = scene.fetched();
    assert!(leaving >= 16 && coming.len() > 30, "{leaving} {coming:?}");
    coming.into_iter().for_each(|block| scene.moved(block, 1, DEVICE));
    scene.done(scene.seq);
    // No place is free, though so many are about to be left.
    scene.tell(&Event::PtBlock { range: range(1000, 580), active: false });
    scene.asked.clear();
    tensor(&mut scene, 4000, 200);
    let given_up = scene.asked.iter().filter(|command| matches!(command, Command::Discard { .. })).count();
    assert!(given_up >= 64, "{given_up} of 580 that are dead, while {leaving} leave");
}

#[test]
fn while_contents_are_given_up_others_leave_too() {
    let mut scene = Scene::new(Config::new(PolicyName::Horizon, blocks(FITS)));
    scene.alloc(100_000, 2 * FITS);
    for (first, count) in [(0, 600), (1000, FITS - 620)] {
        tensor(&mut scene, first, count);
        scene.moved(first, count, DEVICE);
        scene.done(scene.seq);
    }
    scene.tell(&Event::PtBlock { range: range(1000, FITS - 620), active: false });
    scene.asked.clear();
    // The dead are not enough for it, and are given up by another hand than the one that takes others off the GPU.
    tensor(&mut scene, 3000, 600);
    let asked = |is: fn(&Command) -> bool| scene.asked.iter().filter(|command| is(command)).count();
    let given_up = asked(|command| matches!(command, Command::Discard { .. }));
    let leave = asked(|command| matches!(command, Command::Evict { .. }));
    assert!(given_up >= 64 && leave >= 16, "{given_up} are given up and {leave} leave");
}

/// Two tensors that are there, the first of which nobody needs any more; then `first` happens, so many launches of the second, and one of 200 new blocks.
fn new_contents_after(launches: u64, first: impl FnOnce(&mut Scene)) -> Scene {
    let mut scene = Scene::new(Config::new(PolicyName::Horizon, blocks(FITS)));
    scene.alloc(100_000, 2 * FITS);
    for (first, count) in [(0, 900), (1000, 60)] {
        tensor(&mut scene, first, count);
        scene.moved(first, count, DEVICE);
        scene.done(scene.seq);
    }
    scene.asked.clear();
    first(&mut scene);
    (0..launches).for_each(|_| scene.launch(1000, &[1000]));
    tensor(&mut scene, 3000, 200);
    scene
}

#[test]
fn beside_a_copy_to_the_host_nobody_leaves_for_room_that_is_needed_late() {
    let copy = |write| {
        move |scene: &mut Scene| {
            scene.seq += 1;
            let (seq, stream) = (LaunchSeq(scene.seq), StreamSlot(0));
            scene.tell(&Event::Copy { seq, stream, range: range(1000, 1), write });
        }
    };
    let leave = |mut scene: Scene| !scene.evicted().is_empty();
    assert!(leave(new_contents_after(80, |_| ())));
    assert!(leave(new_contents_after(80, copy(true))), "what it writes is on the GPU");
    assert!(leave(new_contents_after(40, copy(false))), "there is no time to wait for it");
    let mut scene = new_contents_after(80, copy(false));
    assert!(scene.evicted().is_empty());
    scene.done(3);
    assert!(!scene.evicted().is_empty(), "it is over");
}

#[test]
fn the_dead_are_given_up_for_launches_that_come_soon() {
    let given_up = |launches| {
        let die = |scene: &mut Scene| scene.tell(&Event::PtBlock { range: range(0, 900), active: false });
        let scene = new_contents_after(launches, die);
        scene.asked.iter().filter(|command| matches!(command, Command::Discard { .. })).count()
    };
    let [soon, late] = [10, 40].map(given_up);
    assert!(soon >= 150 && late <= 72, "{soon} and {late} for 200");
}
