//! Policies in the toy world: do the decisions add up to fewer faults?

mod world;

use deepum_core::engine::Config;
use deepum_core::policy::PolicyName;
use deepum_core::units::{Bytes, UmBlock};
use world::{Iteration, Layout, Work, World, launch, training_step};

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

/// Checks the promise of the policy: from the third iteration on at most 5 % of `demand`'s faults.
#[track_caller]
fn at_most_a_twentieth(layout: &Layout, works: &[Work], capacity: usize, ahead: usize) {
    let (_, demand) = run(PolicyName::Demand, layout, works, capacity, ahead);
    let (world, deepum) = run(PolicyName::Deepum, layout, works, capacity, ahead);
    println!("demand {demand:#?}\ndeepum {deepum:#?}\n{:#?}", world.engine.counters());
    for (n, (demand, deepum)) in demand.iter().zip(&deepum).enumerate().skip(2) {
        assert!(demand.faults > 50, "iteration {n}: no pressure");
        assert!(deepum.faults * 20 <= demand.faults, "iteration {n}: {} against {}", deepum.faults, demand.faults);
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
fn a_training_step_short_of_bandwidth() {
    let mut layout = Layout::default();
    let works = training_step(&mut layout, 24, 12, 2000);
    at_most_a_twentieth(&layout, &works, layout.blocks() / 2, 500);
}
