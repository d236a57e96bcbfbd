//! Worked by hand on a link of a byte per nanosecond: a batch of [`U`] bytes takes as many nanoseconds, and batches end at multiples of that.

use super::link::{Lane, Link};
use super::memory::{Away, Memory};
use super::*;
use crate::planner::play::Played;
use crate::planner::schedule::{Kind, Move, Schedule};
use crate::planner::tests::{BYTE_PER_NS, global, intermediate, kernel, program, random_program};
use crate::tiers::Tier;
use deepum_core::units::{Nanos, UmBlock};
use deepum_trace::program::{Kernel, Tensor, TensorId};
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

#[test]
fn an_order_without_a_tier_goes_where_it_is_out_first() {
    // To the SSD and to what that leaves of the link for the host go 0.5 bytes per nanosecond each: by turns, as long as the host is not full.
    let program = program(vec![kernel(0, &[0], &[])], vec![global(2 * U)]);
    let out = |host: u64| {
        let world = world(9, host);
        let (memory, mut link) = (Memory::new(&program, &world), Link::new(&world));
        let tiers = (0..4).map(|_| {
            let tier = link.soonest_out(Bytes(U), &memory);
            link.push(Lane::Out(tier), TensorId(0), Bytes(U));
            tier
        });
        tiers.collect::<Vec<_>>()
    };
    assert_eq!(out(9), [Tier::Host, Tier::Ssd, Tier::Host, Tier::Ssd]);
    assert_eq!(out(0), [Tier::Ssd; 4]);
}

#[test]
fn what_is_taken_back_is_where_it_was() {
    let program = program(vec![kernel(0, &[0], &[])], vec![global(3 * U)]);
    let mut memory = Memory::new(&program, &world(9, 9));
    let mut link = Link::new(&world(9, 9));
    let id = TensorId(0);
    let [_, _, ssd] = memory.asked_for(id);
    link.push(Lane::Ahead(Away::Ssd), id, ssd);
    memory.arrives(id, Bytes(U));
    assert_eq!(link.take_back(Lane::Ahead(Away::Ssd), id), Bytes(3 * U));
    memory.unasked(id, Away::Ssd, Bytes(2 * U));
    assert_eq!(memory.asked_for(id), [0, 0, 2 * U].map(Bytes));
    memory.arrives(id, Bytes(2 * U));
    // Two thirds of it are still there when it is to stay.
    memory.needed(vec![id]);
    assert_eq!((memory.told_to_leave(id), memory.all_here()), (Bytes(3 * U), false));
    memory.left(id, Bytes(U), Away::Host);
    assert!(memory.is_leaving(id) && memory.told_to_stay(id) && !memory.is_leaving(id) && !memory.told_to_stay(id));
    assert_eq!((memory.asked_for(id), memory.all_here()), ([0, U, 0].map(Bytes), false));
    memory.leaves_host(Bytes(U));
    memory.arrives(id, Bytes(U));
    assert!(memory.all_here() && memory.oldest(Default::default(), |_| true).is_some());
}

/// In UM blocks: weights as large as asked for, each large enough for a segment of its own.
fn by_blocks(small: &Program) -> Program {
    let tensors = small.tensors().iter().map(|tensor| global((tensor.size.0 + 4) * UmBlock::SIZE.0));
    let kernels = small.kernels().iter().map(|kernel| {
        let mut kernel = Kernel { time: Nanos(kernel.time.0 * UmBlock::SIZE.0), ..kernel.clone() };
        kernel.reads.sort_unstable();
        kernel.writes.sort_unstable();
        kernel
    });
    Program::new(kernels.collect(), tensors.collect()).unwrap()
}

/// A pass there and one back over so many tensors of 16 blocks: each is made from the one before, and read again as its gradient is made. Kernels take as long as so many blocks
/// on the link.
fn there_and_back(layers: u32, time: u64) -> Program {
    let size = 16 * UmBlock::SIZE.0;
    let forth = (0..layers).map(|layer| if layer == 0 { (vec![], vec![0]) } else { (vec![layer - 1], vec![layer]) });
    let back = (0..layers).rev().map(|layer| {
        let before = if layer + 1 < layers { vec![layers + layer + 1, layer] } else { vec![layer] };
        (before, vec![layers + layer])
    });
    let kernels = forth.chain(back).map(|(reads, writes)| kernel(time * UmBlock::SIZE.0, &reads, &writes));
    program(kernels.collect(), vec![intermediate(size); 2 * layers as usize])
}

#[test]
fn horizon_learns_what_comes_and_waits_for_nothing_where_there_is_time() {
    // 40 layers on a GPU that has room for 20: 20 must leave and come back, and each kernel has time to carry two and a half.
    let program = there_and_back(40, 40);
    let world = World { gpu: Bytes(20 * 16 * UmBlock::SIZE.0), host: Bytes::gib(9), ..world(0, 0) };
    let ideal = program.ideal().0 as f64;
    let share = |played: &Played| ideal / played.time.0 as f64;
    let horizon = play_core(&program, &[], &world, PolicyName::Horizon, 5).unwrap();
    let demand =
        played(&program, &World { right: Right { dead: true, ..Right::default() }, ..world }, Guide::Demand, 2);
    assert!(share(&horizon[4]) > 0.99 && share(&demand[1]) < 0.8, "{} {}", share(&horizon[4]), share(&demand[1]));
    // Those 20 tensors go and come once; some more is on its way as it is needed.
    let [out, back] = [horizon[4].out, horizon[4].back].map(|[host, ssd]| (host + ssd).0 / UmBlock::SIZE.0 / 16);
    assert!((20..24).contains(&out) && (20..24).contains(&back), "{out} {back}");
    assert!(horizon[4].demanded.0 < 16 * UmBlock::SIZE.0, "{:?}", horizon[4].demanded);
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

    /// Without a policy it makes no difference whether blocks or tensors are counted. From two places they would come by turns, and not in the same order.
    #[test]
    fn demand_by_blocks_is_demand_by_tensors(small in random_program(), gpu in 60u64..200) {
        let program = by_blocks(&small);
        let world = World { gpu: Bytes(gpu * UmBlock::SIZE.0), ..world(0, 0) };
        let by_tensors = play(&program, &[], &world, Guide::Demand, 2);
        prop_assert_eq!(play_core(&program, &[], &world, PolicyName::Demand, 2), by_tensors);
    }

    /// Whatever the core asks for, everything comes to its end within its bounds.
    #[test]
    fn all_comes_to_its_end_under_the_core(
        small in random_program(),
        gpu in 60u64..300,
        host in 0u64..300,
        (faults, dead, new) in any::<(bool, bool, bool)>(),
    ) {
        let tensors = small.tensors().iter().map(|tensor| Tensor { size: Bytes(tensor.size.0 * UmBlock::SIZE.0 * 2 / 3), ..*tensor });
        let kernels = small.kernels().iter().map(|kernel| Kernel { time: Nanos(kernel.time.0 * UmBlock::SIZE.0), ..kernel.clone() });
        let program = Program::new(kernels.collect(), tensors.collect()).unwrap();
        let [gpu, host] = [gpu, host].map(|blocks| Bytes(blocks * UmBlock::SIZE.0));
        let world = World { gpu, host, right: Right { faults, dead, new }, ..world(0, 0) };
        for policy in [PolicyName::Horizon, PolicyName::Demand] {
            match play_core(&program, &[], &world, policy, 4) {
                Err(PublishedError::TooLarge(_)) => {}
                Err(stuck) => return Err(TestCaseError::fail(format!("{policy}: {stuck}"))),
                Ok(played) => for played in played {
                    prop_assert!(played.time >= program.ideal() && played.peak <= world.gpu, "{policy}: {played:?}");
                },
            }
        }
    }
}
