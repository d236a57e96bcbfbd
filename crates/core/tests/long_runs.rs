//! Does what was learned stay known, and does it follow the program?
//!
//! Correct prefetching removes the faults that trained the tables (the blind spot). So a run of 200 iterations must not
//! come to fault more as it goes on, and a program that changes its shape must be followed within two iterations: from the third
//! one of each shape on it faults a twentieth of what naive unified memory does. Both with everything that the default has: room made
//! ahead, and blocks left out to see whether they are used.

mod world;

use deepum_core::engine::Config;
use deepum_core::policy::PolicyName;
use deepum_core::units::{Bytes, UmBlock};
use world::{Iteration, Layout, Work, World, launch, training_step};

fn world(layout: &Layout, policy: PolicyName) -> World {
    let capacity = layout.blocks() / 2;
    let mut world = World::new(Config::new(policy, Bytes(capacity as u64 * UmBlock::SIZE.get())), capacity);
    layout.tensors.iter().for_each(|&tensor| world.alloc(tensor));
    world
}

/// Or the run says nothing about them.
#[track_caller]
fn has_doubted_and_made_room(world: &World) {
    let c = world.engine.counters();
    assert!(c.doubted_used > 10 && c.preevicted > 100, "{c:?}");
}

#[test]
fn over_200_iterations_the_faults_do_not_creep_up() {
    for ahead in [500, 0] {
        let mut layout = Layout::default();
        let works = training_step(&mut layout, 10, 6, 6000);
        let demand = world(&layout, PolicyName::Demand).iterate(&works, ahead).faults;
        let mut world = world(&layout, PolicyName::Deepum);
        let faults: Vec<u64> = (0..200).map(|_| world.iterate(&works, ahead).faults).collect();
        let sum = |range: std::ops::Range<usize>| faults[range].iter().sum::<u64>();
        let (early, late) = (sum(10..60), sum(150..200));
        println!("{ahead} ahead: {faults:?}, by demand {demand}");
        assert!(demand > 100, "no pressure");
        has_doubted_and_made_room(&world);
        assert!(late <= early, "{ahead} ahead: {early} faults in 50 iterations, and later {late}");
        assert!(
            late * 20 <= demand * 50,
            "{ahead} ahead: {late} faults in 50 iterations, in each of which demand has {demand}"
        );
    }
}

/// Launches of one length of sequence: fewer tokens are fewer bytes of every activation, in the same memory, and other shapes.
fn of_length(works: &[Work], of: u64) -> Vec<Work> {
    let shorter = |work: &Work| Work {
        key: work.key ^ of,
        touches: work.touches.iter().copied().filter(|block| block.0 % 4 < of).collect(),
        ..work.clone()
    };
    works.iter().map(shorter).collect()
}

#[test]
fn a_program_that_changes_its_shape_is_followed_within_two_iterations() {
    let mut layout = Layout::default();
    let layers = 20;
    let step = training_step(&mut layout, layers, 10, 9000);
    let extra: Vec<Work> = {
        let [weights, activations, grads] = [(); 3].map(|()| layout.tensor(10));
        vec![launch(&[weights, activations], 9000), launch(&[weights, activations, grads], 9000)]
    };
    // Forward is 2 launches for each layer, then backward.
    let deeper: Vec<Work> = [&step[..2 * layers], &extra, &step[2 * layers..]].concat();
    let evaluation = step[..2 * layers].to_vec();
    let shapes = [
        ("training", step.clone()),
        ("another length of sequence", of_length(&step, 3)),
        ("a layer more", deeper),
        ("evaluation", evaluation),
        ("training again", step),
    ];
    for ahead in [500, 0] {
        let mut world = world(&layout, PolicyName::Deepum);
        let mut naive = self::world(&layout, PolicyName::Demand);
        for (shape, works) in &shapes {
            let run = |world: &mut World| -> Vec<Iteration> { (0..6).map(|_| world.iterate(works, ahead)).collect() };
            let (ours, demand) = (run(&mut world), run(&mut naive));
            println!("{shape}, {ahead} ahead: {ours:?}\n    demand {demand:?}");
            for n in 2..6 {
                assert!(
                    ours[n].faults * 20 <= demand[n].faults.max(20),
                    "{shape}, {ahead} ahead, iteration {n}: {} faults, by demand {}",
                    ours[n].faults,
                    demand[n].faults
                );
            }
        }
        has_doubted_and_made_room(&world);
    }
}

/// Launches whose arguments name nothing, so that faults alone teach; and of those every second notice is lost. What the driver moved for them
/// says the same.
#[test]
fn a_fault_whose_notice_was_lost_is_known_by_the_migration() {
    let mut layout = Layout::default();
    let works: Vec<Work> =
        (0..30).map(|_| Work { tensors: Vec::new(), ..launch(&[layout.tensor(12)], 6000) }).collect();
    let run = |lost| {
        let mut world = world(&layout, PolicyName::Deepum);
        world.lost = lost;
        let faults: Vec<u64> = (0..6).map(|_| world.iterate(&works, 500).faults).collect();
        println!("{lost:?}: {faults:?} {:?}", world.engine.counters());
        (faults, world.engine.counters().faults_inferred)
    };
    let (all_told, none) = run(None);
    let (half_lost, inferred) = run(Some(2));
    assert!(none == 0 && inferred > 90, "{all_told:?}, {none} and {inferred} inferred");
    let later = |faults: &[u64]| faults[3..].iter().sum::<u64>();
    assert!(later(&half_lost) * 20 <= half_lost[1], "{half_lost:?} against {all_told:?}");
}
