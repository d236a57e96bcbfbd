//! What the plan holds on to when what it was made of is gone: numbers of blocks that are no more, room that was taken away, launches that
//! were predicted before they were known.

mod world;

use deepum_core::command::{Command, Why};
use deepum_core::engine::Config;
use deepum_core::event::{Event, Launch, Migration, MigrationCause};
use deepum_core::invalidate::Invalidate;
use deepum_core::policy::PolicyName;
use deepum_core::queues::Queues;
use deepum_core::units::{Bytes, KernelId, LaunchKey, LaunchSeq, Nanos, Place, StreamSlot, UmBlock};
use std::collections::BTreeSet;
use world::DEVICE;
use world::scene::{FITS, Scene, blocks, range};

#[test]
fn blocks_that_are_no_more_take_no_room_in_the_plan_and_leave_the_table() {
    let mut scene = Scene::awake();
    scene.alloc(0, 600);
    scene.moved(0, 600, DEVICE);
    scene.launch(1, &[0]);
    scene.done(1);
    let learned = scene.engine.snapshot().tables.block_bytes;
    assert!(learned > Bytes(600 * 4), "{learned}");
    // The pool was emptied, and comes back larger, with a tensor as large as before.
    scene.free(0, 600);
    scene.alloc(0, 601);
    scene.tell(&Event::PtBlock { range: range(0, 600), active: true });
    scene.alloc(5000, 300);
    scene.asked.clear();
    scene.launch(1, &[0]);
    scene.launch(2, &[5000]);
    assert_eq!(scene.fetched().len(), 300, "600 blocks that will never come do not keep the next launch waiting");
    scene.done(2);
    assert!(scene.engine.snapshot().tables.block_bytes + Bytes(600 * 4) < learned + Bytes(300 * 4));
}

/// A smaller batch lies where the larger one did, and the kernel's grid does not tell.
#[test]
fn a_launch_whose_pointers_reach_less_far_than_before_is_another_one() {
    let mut scene = Scene::awake();
    scene.alloc(0, 600);
    scene.asked.clear();
    let tensor = |scene: &mut Scene, count| {
        scene.tell(&Event::PtBlock { range: range(0, count), active: true });
        scene.launch(1, &[0]);
        let fetched = scene.fetched().len() as u64;
        scene.moved(0, fetched, DEVICE);
        scene.done(scene.seq);
        scene.tell(&Event::PtBlock { range: range(0, count), active: false });
        scene.moved(0, count, Place::Host);
        fetched
    };
    for count in [600, 400, 600] {
        assert_eq!(tensor(&mut scene, count), count);
    }
}

#[test]
fn reach_tells_no_launches_apart_as_in_the_paper() {
    let exec_ids = |policy| {
        let mut scene = Scene::new(Config::new(policy, blocks(FITS)));
        scene.alloc(100_000, 2 * FITS);
        scene.alloc(0, 600);
        for count in [600, 400, 600] {
            scene.tell(&Event::PtBlock { range: range(0, count), active: true });
            scene.launch(1, &[0]);
        }
        scene.engine.snapshot().exec_ids
    };
    assert_eq!([PolicyName::Deepum, PolicyName::DeepumPaper].map(exec_ids), [2, 1]);
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
fn what_a_copy_uses_comes_in_its_place_and_does_not_count_towards_the_degree() {
    let mut scene = Scene::new(Config { degree: 1, ..Config::new(PolicyName::Deepum, blocks(FITS)) });
    scene.alloc(100_000, 2 * FITS);
    scene.alloc(0, 100);
    for n in 0..10 {
        scene.tell(&Event::PtBlock { range: range(n * 10, 10), active: true });
    }
    scene.asked.clear();
    scene.launch(1, &[]);
    for n in 0..3 {
        scene.seq += 1;
        let (seq, stream) = (LaunchSeq(scene.seq), StreamSlot(0));
        scene.tell(&Event::Copy { seq, stream, range: range(n * 10, 10), write: true });
    }
    scene.launch(2, &[50]);
    scene.launch(3, &[60]);
    scene.launch(4, &[70]);
    let by = |&command: &Command| match command {
        Command::Fetch { block, why: Why::Predicted { by } } if block.0.is_multiple_of(10) => Some((block.0, by.0)),
        _ => None,
    };
    let asked: Vec<(u64, u64)> = scene.asked.iter().filter_map(by).collect();
    assert_eq!(asked, [(0, 2), (10, 3), (20, 4), (50, 5), (60, 6)], "nothing for the third launch");
    assert_eq!(scene.engine.gate(), Some(LaunchSeq(2)));
    scene.moved(0, 30, DEVICE);
    scene.done(4);
    assert_eq!(scene.engine.gate(), Some(LaunchSeq(5)));
}

fn evicted_by_the_driver(block: u64) -> Migration {
    Migration {
        block: UmBlock(block),
        bytes: blocks(1),
        from: DEVICE,
        to: Place::Host,
        cause: MigrationCause::Eviction,
        at: Nanos::ZERO,
    }
}

/// That the driver evicts says that the GPU is full; that only 990 blocks are known to be there may be for want of notices.
#[test]
fn that_less_fits_is_believed_once_many_evictions_found_less_and_then_only_the_most_they_found() {
    /// Whether somebody must leave for three blocks more, with 990 there, once the driver evicted so often.
    fn leaves_after(evictions: u64, most: u64) -> bool {
        let mut scene = Scene::awake();
        scene.alloc(0, 990);
        scene.alloc(5000, 3);
        scene.moved(0, 990, DEVICE);
        for n in 0..evictions {
            let more = if n == 3 { most - 990 } else { 0 };
            scene.alloc(6000, more.max(1));
            scene.moved(6000, more, DEVICE);
            scene.tell(&Event::Migrated(evicted_by_the_driver(100 + n)));
            scene.moved(100 + n, 1, DEVICE);
            scene.free(6000, more.max(1));
        }
        scene.asked.clear();
        scene.launch(1, &[5000]);
        let fetched = scene.asked.iter().filter(|command| matches!(command, Command::Fetch { .. })).count();
        assert_eq!(fetched, 3);
        !scene.evicted().is_empty()
    }
    for evictions in [1, 15] {
        assert!(!leaves_after(evictions, 990), "{evictions} may have been late with the notices");
    }
    assert!(leaves_after(16, 990), "one for each 64 blocks that fit");
    assert!(!leaves_after(16, 996), "one of them found room for the three");
}

/// One block goes as often as it comes, and the other never comes.
#[test]
fn a_launch_for_which_as_much_was_brought_as_fits_waits_no_longer() {
    let mut scene = Scene::awake();
    scene.alloc(0, 2);
    scene.launch(1, &[0]);
    let away = evicted_by_the_driver(0);
    let mut brought = 0;
    while scene.engine.gate() == Some(LaunchSeq(1)) && brought < 2 * FITS {
        scene.moved(0, 1, DEVICE);
        scene.tell(&Event::Migrated(away));
        brought += 1;
    }
    assert_eq!(brought, FITS + 1);
    scene.moved(1, 1, DEVICE);
    scene.done(1);
    scene.alloc(10, 1);
    scene.launch(2, &[10]);
    assert_eq!(scene.engine.gate(), Some(LaunchSeq(2)), "the next one does");
}

#[test]
fn a_launch_waits_for_new_memory_that_is_on_its_way_for_it() {
    let mut scene = Scene::new(Config::new(PolicyName::Deepum, blocks(FITS)));
    scene.alloc(0, 10);
    assert_eq!(scene.asked.len(), 10, "populated");
    scene.alloc(100_000, 2 * FITS);
    scene.asked.clear();
    scene.launch(1, &[0]);
    assert_eq!(scene.fetched(), (0..10).collect(), "now for the launch");
    assert_eq!(scene.engine.gate(), Some(LaunchSeq(1)));
    scene.moved(0, 10, DEVICE);
    assert_eq!(scene.engine.gate(), None);
}

/// A launch whose progress came before its record contradicts the plan, and is over by the same event. What the new plan did not reach at
/// first was taken back, and is asked for again: that fetch is on its way, and its launch waits for it.
#[test]
fn what_is_taken_back_and_asked_for_again_by_one_event_is_on_its_way() {
    let mut scene = Scene::new(Config { degree: 1, ..Config::new(PolicyName::Deepum, blocks(FITS)) });
    let mut queues = Queues::default();
    scene.alloc(100_000, 2 * FITS);
    scene.alloc(0, 100);
    for n in 0..10 {
        scene.tell(&Event::PtBlock { range: range(n * 10, 1), active: true });
    }
    // Key n uses block 10 n. After 1 come 9, 5 and 3, or 2 and 3; the latter last.
    for keys in [[1, 9, 5, 3], [1, 2, 3, 4]] {
        for key in keys {
            scene.launch(key, &[key * 10]);
            scene.moved(key * 10, 1, DEVICE);
            scene.done(scene.seq);
            scene.moved(key * 10, 1, Place::Host);
        }
    }
    scene.launch(1, &[10]);
    // What it asked for: 20 for launch 10, and 30.
    queues.push(Command::Fetch { block: UmBlock(30), why: Why::Predicted { by: LaunchSeq(11) } });
    scene.done(10);
    let launch = Launch {
        seq: LaunchSeq(10),
        stream: StreamSlot(0),
        key: LaunchKey(9),
        kernel: KernelId(0),
        pointers: &[UmBlock(90).start()],
    };
    scene.engine.step(&Event::Launch(launch), &mut queues);
    scene.moved(50, 1, DEVICE);
    assert_eq!(scene.engine.gate(), Some(LaunchSeq(12)), "it is 30 that the launch after the next waits for");
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
