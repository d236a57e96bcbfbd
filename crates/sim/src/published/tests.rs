//! Worked by hand on a link of a byte per nanosecond: a batch of [`U`] bytes takes as many nanoseconds, and batches end at multiples of that.

use super::*;
use crate::planner::play::Played;
use crate::planner::schedule::{Kind, Move, Schedule};
use crate::planner::tests::{BYTE_PER_NS, global, intermediate, kernel, program, random_program};
use crate::tiers::Tier;
use deepum_trace::program::Tensor;
use proptest::prelude::*;

/// A batch.
const U: u64 = BATCH.0;

fn world(gpu: u64, host: u64) -> World {
    let [gpu, host] = [gpu, host].map(|batches| Bytes(batches * U));
    World { gpu, host, link: Rate(BYTE_PER_NS), ssd: Rate(BYTE_PER_NS / 2), right: Right::default() }
}

fn played(program: &Program, world: &World, guide: Guide<'_>, iterations: u32) -> Vec<Played> {
    play(program, &[], world, guide, iterations).unwrap()
}

fn times(played: &Played) -> Vec<u64> {
    played.times.iter().map(|time| time.0).collect()
}

fn out_and_back(played: &Played) -> [[u64; 2]; 2] {
    [played.out, played.back].map(|ways| ways.map(|bytes| bytes.0 / U))
}

/// Three kernels of 1000 ns, each of which makes a tensor of one batch that nobody reads.
fn three_new() -> Program {
    let kernels = (0..3).map(|id| kernel(1000, &[], &[id])).collect();
    program(kernels, vec![intermediate(U); 3])
}

#[test]
fn what_is_new_costs_as_much_as_a_transfer_and_what_is_dead_leaves_like_all_else() {
    // Mapping is as good as immediate: kernels end when their faults were paid for. The GPU has room for two. In kernel 2, which begins at 2 (U + 1000) and so waits
    // for the batch that ends at 3 U, tensor 0 leaves for it, though dead. In the next iteration tensor 0 comes back from the host for tensor 1, and so on.
    let played = played(&three_new(), &world(2, 9), Guide::Demand, 2);
    assert_eq!(times(&played[0]), [U + 1000; 3]);
    assert_eq!((out_and_back(&played[0]), out_and_back(&played[1])), ([[1, 0], [0, 0]], [[3, 0], [3, 0]]));
}

#[test]
fn put_right_new_memory_costs_nothing_but_its_room_and_the_dead_make_it() {
    let right = |new, dead| World { right: Right { new, dead, faults: false }, ..world(2, 9) };
    // Kernel 0 begins with a batch, the other two wait for the next one.
    let new = &played(&three_new(), &right(true, false), Guide::Demand, 1)[0];
    assert_eq!((times(new), out_and_back(new)), (vec![1000, U - 1000, U], [[1, 0], [0, 0]]));
    let dead = &played(&three_new(), &right(false, true), Guide::Demand, 2)[1];
    assert_eq!((times(dead), out_and_back(dead)), (vec![U + 1000; 3], [[0, 0], [0, 0]]));
}

#[test]
fn a_full_host_sends_to_the_ssd_at_its_own_rate() {
    // Weights of 2 and 1 on a GPU of 2, a host of 1. They come from the SSD at half a byte per nanosecond: 4 U of time for the first. As it faults, the second makes the
    // host full with half of the first, while its own 1 takes 2 U.
    let program = program(vec![kernel(0, &[0], &[]), kernel(0, &[1], &[])], vec![global(2 * U), global(U)]);
    let played = played(&program, &world(2, 1), Guide::Demand, 2);
    assert_eq!((times(&played[0]), out_and_back(&played[0])), (vec![4 * U, 2 * U], [[1, 0], [0, 3]]));
    // Then one U of the first is on the GPU, and one in the host. That comes back as the other leaves, which is the older; so that is asked for again; and the second
    // weight leaves for it. Each page that comes leaves its place in the host, so no more than a page goes to the SSD.
    let out = played[1].out;
    assert!(out[1].0 <= 3 * 4096 && out[0].0 + out[1].0 == 3 * U, "{out:?}");
}

#[test]
fn a_window_asks_ahead_spares_what_comes_next_and_drops_the_dead() {
    // x and y of 1 are made, read once and dead; kernels of 3 U. On a GPU of 1 each has to give way to the next.
    let kernels =
        vec![kernel(3 * U, &[], &[0]), kernel(3 * U, &[0], &[]), kernel(3 * U, &[], &[1]), kernel(3 * U, &[1], &[])];
    let program = program(kernels, vec![intermediate(U), intermediate(U)]);
    let played = played(&program, &world(1, 9), Guide::Window(2), 2);
    // In kernel 0 nobody had asked for x: it costs a transfer. Kernel 0 asks for y, too, and gets it when x may leave for it: not in kernel 0 and 1, which touch x, but as
    // kernel 2 waits for it. x is dropped then, since it is dead.
    assert_eq!(times(&played[0]), [4 * U, 3 * U, 3 * U, 3 * U]);
    assert_eq!((times(&played[1]), out_and_back(&played[1])), (vec![3 * U; 4], [[0, 0], [0, 0]]));
}

#[test]
fn a_plan_moves_what_it_says_when_it_says_it() {
    // x of 3 is made in kernel 0 and read in kernel 3; the two between take 4 U each. It leaves at gap 1, with the batches that end then and 1 and 2 U later; asked for at gap
    // 2 it is back as fast.
    let kernels = vec![kernel(U, &[], &[0]), kernel(4 * U, &[], &[]), kernel(4 * U, &[], &[]), kernel(U, &[0], &[])];
    let program = program(kernels, vec![intermediate(3 * U)]);
    let at = |gap, kind| Move { gap, tensor: TensorId(0), kind };
    let plan = |back| Schedule::new(&program, vec![at(1, Kind::Evict(Tier::Host)), at(back, Kind::Prefetch)]).unwrap();
    let early = &played(&program, &world(4, 9), Guide::Plan(&plan(2)), 2)[1];
    assert_eq!((times(early), out_and_back(early)), (vec![U, 4 * U, 4 * U, U], [[3, 0], [3, 0]]));
    // Asked for with its own kernel it comes while that computes.
    let late = &played(&program, &world(4, 9), Guide::Plan(&plan(3)), 2)[1];
    assert_eq!((times(late), out_and_back(late)), (vec![U, 4 * U, 4 * U, 2 * U], [[3, 0], [3, 0]]));
}

#[test]
fn a_kernel_that_cannot_run_is_named() {
    let program = program(vec![kernel(1, &[0], &[])], vec![global(3 * U)]);
    let refused = play(&program, &[], &world(2, 9), Guide::Demand, 1);
    assert!(matches!(refused, Err(PublishedError::TooLarge(_))), "{refused:?}");
}

/// With sizes in quarters of a batch.
fn large(small: &Program) -> Program {
    let tensors = small.tensors().iter().map(|tensor| Tensor { size: Bytes(tensor.size.0 * U / 4), ..*tensor });
    let kernels = small.kernels().iter().map(|kernel| {
        let mut kernel = kernel.clone();
        kernel.time = Nanos(kernel.time.0 * U / 16);
        kernel
    });
    Program::new(kernels.collect(), tensors.collect()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whoever guides and whatever is put right, everything comes to its end within its bounds, and what is away, under way and there stays all there is.
    #[test]
    fn all_comes_to_its_end(
        small in random_program(),
        gpu in 30u64..60,
        host in 0u64..30,
        degree in 1u32..10,
        (faults, dead, new) in any::<(bool, bool, bool)>(),
    ) {
        let program = large(&small);
        let world = World { right: Right { faults, dead, new }, ..world(gpu, host) };
        let planned = g10::plan(&program, &world).ok();
        let plan = planned.iter().map(|plan| Guide::Plan(&plan.schedule));
        for guide in [Guide::Demand, Guide::Window(degree)].into_iter().chain(plan) {
            match play(&program, &[], &world, guide, 3) {
                Err(PublishedError::TooLarge(_)) => {}
                Err(stuck) => return Err(TestCaseError::fail(format!("{guide:?}: {stuck}"))),
                Ok(played) => for played in played {
                    prop_assert!(played.time >= program.ideal() && played.peak <= world.gpu, "{guide:?}: {played:?}");
                },
            }
        }
    }
}
