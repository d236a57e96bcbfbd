//! Bounds worked out by hand, and bounds beside the best schedule there is.

use super::search::{TICK, UNIT, best, best_in_blocks, limits};
use super::steps::Steps;
use super::*;
use deepum_core::units::{AddrRange, DevAddr};
use deepum_trace::program::{Kernel, Life, Tensor, TensorId};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Kernels of so many ticks that read and write these tensors; tensors of one unit, the first `globals` of which are global.
fn program(globals: usize, tensors: usize, kernels: &[(u64, &[u32], &[u32])]) -> Program {
    let ids = |numbers: &[u32]| numbers.iter().copied().map(TensorId).collect();
    let kernel = |&(ticks, reads, writes): &(u64, &[u32], &[u32])| Kernel {
        name: "k".into(),
        time: Nanos(ticks * TICK),
        reads: ids(reads),
        writes: ids(writes),
    };
    let life = |number| if number < globals { Life::Global } else { Life::Intermediate };
    let tensors = (0..tensors).map(|number| Tensor { size: Bytes(UNIT), life: life(number) }).collect();
    Program::new(kernels.iter().map(kernel).collect(), tensors).unwrap()
}

/// Not above so many ticks, and below them by rounding alone.
fn is(time: Nanos, ticks: u64) -> bool {
    (ticks * TICK - ticks * TICK / 10_000..=ticks * TICK).contains(&time.0)
}

fn slower(rate: Rate, times: u64) -> Rate {
    Rate(rate.0 / times)
}

/// Two weights, each updated by a kernel of one tick, and room for one.
const UPDATES: &[(u64, &[u32], &[u32])] = &[(1, &[0], &[0]), (1, &[1], &[1])];
/// The same without the updates.
const READS: &[(u64, &[u32], &[u32])] = &[(1, &[0], &[]), (1, &[1], &[])];

#[test]
fn all_that_fits_takes_its_own_time() {
    let bound = bound(&program(2, 2, UPDATES), &limits(2, false)).unwrap();
    assert_eq!((bound.time, bound.by), (Nanos(2 * TICK), By::Compute));
}

#[test]
fn two_weights_take_turns() {
    // While a kernel runs, its weight fills the memory and nothing moves. Between two kernels one weight leaves as the other comes: one tick, twice.
    // Whole tensors are worse: the place is free only after the tick, and so that makes two each time.
    let program = program(2, 2, UPDATES);
    for copies_kept in [false, true] {
        let bound = bound(&program, &limits(1, copies_kept)).unwrap();
        assert!(is(bound.time, 4), "{bound:?}");
        assert_eq!((bound.by, is(bound.bytes, 2)), (By::Relaxation, true));
        assert_eq!(best(&program, 1, copies_kept), Some(6.0));
    }
}

#[test]
fn a_clean_copy_need_not_leave_again() {
    // Nobody writes: with copies kept both weights are on the host for good, and only fetched. Then all that counts is the way in, and tensors
    // as a whole are as good as fluid.
    let program = program(2, 2, READS);
    let mut limits = limits(1, true);
    limits.d2h = Rate(1);
    assert!(is(bound(&program, &limits).unwrap().time, 4));
    assert_eq!(best(&program, 1, true), Some(4.0));
    // At half the speed in, the two gaps last two ticks each; the bytes alone would be four ticks' work.
    limits.h2d = slower(limits.h2d, 2);
    let bound = bound(&program, &limits).unwrap();
    assert!(is(bound.time, 6) && is(bound.bytes, 4), "{bound:?}");
}

#[test]
fn moves_alone_wait_for_the_slower_way() {
    let program = program(2, 2, READS);
    for (out, into, ticks) in [(1, 1, 4), (2, 1, 6), (1, 2, 6), (3, 2, 8)] {
        let limits = limits(1, false);
        let limits = Limits { d2h: slower(limits.d2h, out), h2d: slower(limits.h2d, into), ..limits };
        assert!(is(bound(&program, &limits).unwrap().time, ticks), "{out} {into}");
    }
}

#[test]
fn a_long_kernel_hides_what_moves_beside_it() {
    // Kernel 1 needs nothing: in its two ticks weight 0 leaves, and weight 1 comes; beside kernel 3 the other way round.
    let kernels: &[(u64, &[u32], &[u32])] = &[(1, &[0], &[0]), (2, &[], &[]), (1, &[1], &[1]), (2, &[], &[])];
    let program = program(2, 2, kernels);
    assert!(is(bound(&program, &limits(1, false)).unwrap().time, 6));
    assert_eq!(best(&program, 1, false), Some(6.0));
    // At a third of the speed it takes three ticks each time, one of them after the kernel.
    let limits = limits(1, false);
    let limits = Limits { d2h: slower(limits.d2h, 3), ..limits };
    assert!(is(bound(&program, &limits).unwrap().time, 8));
}

#[test]
fn activations_leave_and_come_back() {
    // Forwards 0, 1, 2 are made, backwards they are used in turn; room for two. While kernels 2 and 3 run one is away. That is 0, which leaves
    // beside kernel 1 and comes back beside kernel 4.
    let kernels: &[(u64, &[u32], &[u32])] =
        &[(1, &[], &[0]), (1, &[], &[1]), (1, &[], &[2]), (1, &[2], &[]), (1, &[1], &[]), (1, &[0], &[])];
    let alone = program(0, 3, kernels);
    assert!(is(bound(&alone, &limits(2, false)).unwrap().time, 6));
    assert_eq!(best(&alone, 2, false), Some(6.0));
    // If kernel 1 reads 0 and kernel 4 both: whichever leaves does so between kernels 1 and 2, and comes back between 3 and 4. Nothing runs then.
    let kernels: &[(u64, &[u32], &[u32])] =
        &[(1, &[], &[0]), (1, &[0], &[1]), (1, &[], &[2]), (1, &[2], &[]), (1, &[0, 1], &[]), (1, &[0], &[])];
    let chained = program(0, 3, kernels);
    assert!(is(bound(&chained, &limits(2, false)).unwrap().time, 8));
    assert_eq!(best(&chained, 2, false), Some(8.0));
}

#[test]
fn bytes_are_named_when_nothing_else_takes_time() {
    let kernels: &[(u64, &[u32], &[u32])] = &[(0, &[0], &[0]), (0, &[1], &[1])];
    let bound = bound(&program(2, 2, kernels), &limits(1, false)).unwrap();
    assert!(is(bound.time, 2));
    assert_eq!((bound.by, bound.compute), (By::Bytes, Nanos::ZERO));
}

#[test]
fn long_programs_are_cut_where_most_lives() {
    // Six equal kernels, so three for each half. Tensor 1 spans kernels 1 and 2; 2 lives from kernel 3 to 5, beside 3 in kernel 4.
    let touches: &[&[u32]] = &[&[0], &[1], &[1], &[2], &[3], &[2]];
    let kernels: Vec<(u64, &[u32], &[u32])> = touches.iter().map(|&ids| (1, ids, &[][..])).collect();
    let program = program(0, 4, &kernels);
    assert_eq!(cuts(&program, 12), (0..12).collect::<Vec<_>>());
    // Kernel 0, the first of those at which one tensor lives, and kernel 4.
    assert_eq!(cuts(&program, 5), [0, 1, 8, 9]);
}

#[test]
fn what_cannot_be_is_said() {
    let program = program(2, 2, &[(1, &[0], &[]), (1, &[0, 1], &[])]);
    let (touches, capacity) = (Bytes(2 * UNIT), Bytes(UNIT));
    let name = "k".into();
    assert_eq!(bound(&program, &limits(1, true)), Err(BoundError::Impossible { kernel: 1, name, touches, capacity }));
    assert_eq!(best(&program, 1, true), None);
    let none = Limits { d2h: Rate(0), ..limits(2, true) };
    assert_eq!(bound(&program, &none), Err(BoundError::NoLink("off the GPU")));
    let huge = Tensor { size: Bytes(1 << 62), life: Life::Global };
    let kernel = Kernel { name: "k".into(), time: Nanos(1), reads: vec![TensorId(0), TensorId(1)], writes: Vec::new() };
    let huge = Program::new(vec![kernel], vec![huge; 2]).unwrap();
    assert!(matches!(bound(&huge, &limits(2, true)), Err(BoundError::TooLarge { unit: "bytes", .. })));
}

#[test]
fn what_is_held_takes_room_or_leaves_and_need_not_come_back() {
    // Kernel 0 makes tensor 0 and kernel 2 tensor 1, and nobody uses them again. Room for one: if 0 is held over kernel 2 it leaves before that, which takes three
    // ticks, one of them beside kernel 1.
    let kernels: &[(u64, &[u32], &[u32])] = &[(1, &[], &[0]), (1, &[], &[]), (1, &[], &[1])];
    let alone = program(0, 2, kernels);
    let mut limits = limits(1, true);
    limits.d2h = slower(limits.d2h, 3);
    for (hold, ticks) in [(None, 3), (Some(1), 3), (Some(2), 5)] {
        for copies_kept in [false, true] {
            let bound = bound(&alone.clone().with_holds([hold]), &Limits { copies_kept, ..limits }).unwrap();
            assert!(is(bound.time, ticks), "{hold:?} {bound:?}");
        }
    }
    assert_eq!(best(&alone.clone().with_holds([Some(2)]), 1, true), Some(3.0));
    // If 1 is held over the mark, too, and over kernels 0 and 1 of the next iteration, it leaves between two iterations.
    let over = alone.with_holds([Some(2), Some(4)]);
    assert!(is(bound(&over, &limits).unwrap().time, 8));
}

/// From the end of one block to the beginning of another.
fn place((first, last): (u64, u64)) -> AddrRange {
    AddrRange::new(DevAddr(first * UNIT + UNIT / 2), Bytes((last - first) * UNIT + UNIT / 4))
}

#[test]
fn blocks_are_what_is_in_them() {
    // Weight 0 is in blocks 0 and 1; activation 1 in block 2, from kernel 0 to kernel 1, and activation 2 there, too, from kernel 1 to 2; activation 3, in block 3, is held over kernel 3.
    let kernels: &[(u64, &[u32], &[u32])] =
        &[(1, &[0], &[1, 3]), (1, &[1], &[2]), (1, &[2], &[]), (1, &[0], &[0]), (1, &[], &[])];
    let program = program(1, 4, kernels).with_holds([None, None, None, Some(3)]);
    let places = [(0, 1), (2, 2), (2, 2), (3, 3)].map(place);
    let blocks = in_blocks(&program, &places).unwrap();
    let tensor = |count, life| Tensor { size: Bytes(count * UNIT), life };
    let [weight, one] = [tensor(2, Life::Global), tensor(1, Life::Intermediate)];
    assert_eq!(blocks.tensors(), [weight, one, one]);
    let touches = |ids: &[u32]| ids.iter().copied().map(TensorId).collect::<Vec<_>>();
    let of = |kernel: usize| (blocks.kernels()[kernel].reads.clone(), blocks.kernels()[kernel].writes.clone());
    assert_eq!(of(0), (touches(&[0]), touches(&[1, 2])));
    assert_eq!(of(1), (touches(&[1]), touches(&[1])), "something is in the block, whoever else is made there");
    assert_eq!(of(2), (touches(&[1]), touches(&[])));
    assert_eq!(of(3), (touches(&[0]), touches(&[0])));
    assert_eq!([0, 1, 2].map(|id| blocks.hold(TensorId(id))), [None, None, Some(3)]);
}

#[test]
fn a_block_that_is_never_empty_is_needed_for_ever_and_one_that_passes_the_mark_is_made_anew() {
    // Tensor 0 from kernel 0 to 1, tensor 1 from 1 to 2, tensor 2 from 2 on and over the mark, in one block; tensor 3 from kernel 1 on and over the mark.
    let kernels: &[(u64, &[u32], &[u32])] = &[(1, &[2, 3], &[0]), (1, &[0], &[1, 3]), (1, &[1], &[2])];
    let mut program = program(4, 4, kernels);
    for number in [0, 1] {
        let tensors = program.tensors().to_vec();
        let life = |id: usize| if id <= number { Life::Intermediate } else { tensors[id].life };
        let tensors = (0..4).map(|id| Tensor { life: life(id), ..tensors[id] }).collect();
        program = Program::new(program.kernels().to_vec(), tensors).unwrap();
    }
    let blocks = in_blocks(&program, &[(0, 0), (0, 0), (0, 0), (1, 1)].map(place)).unwrap();
    let both = |id: u32| {
        let has = |ids: &[TensorId]| ids.contains(&TensorId(id));
        blocks.kernels().iter().map(|kernel| (has(&kernel.reads), has(&kernel.writes))).collect::<Vec<_>>()
    };
    assert_eq!(blocks.tensors(), [Tensor { size: Bytes(UNIT), life: Life::Global }; 2]);
    assert_eq!(both(0), [(true, true); 3]);
    assert_eq!(both(1), [(true, false), (false, true), (false, false)]);
}

/// Two to five kernels of one or two ticks that touch up to two of four tensors, some of them global, the others held for a while; and as many units of memory
/// as the largest kernel needs.
fn any_case() -> impl Strategy<Value = (Program, u64)> {
    let touches = proptest::collection::btree_map(0u32..4, 1u8..4, 1..=2);
    let kernels = proptest::collection::vec((1u64..=2, touches), 2..=5);
    let holds = proptest::collection::vec(proptest::option::of(0u32..10), 4);
    (0usize..=4, kernels, holds).prop_map(|(globals, kernels, holds)| {
        let units = kernels.iter().map(|(_, touches)| touches.len() as u64).max().unwrap();
        let ids = |touches: &BTreeMap<u32, u8>, way: u8| -> Vec<u32> {
            touches.iter().filter(|(_, ways)| *ways & way != 0).map(|(&id, _)| id).collect()
        };
        let kernels: Vec<_> =
            kernels.iter().map(|(ticks, touches)| (*ticks, ids(touches, 1), ids(touches, 2))).collect();
        let kernels: Vec<_> = kernels.iter().map(|(ticks, reads, writes)| (*ticks, &reads[..], &writes[..])).collect();
        (program(globals, 4, &kernels).with_holds(holds), units)
    })
}

/// What becomes of prices at ten moments: they are scaled, or something else takes their place.
fn any_change() -> impl Strategy<Value = [Vec<(f64, Option<f64>)>; 3]> {
    let wrong = prop_oneof![Just(f64::NAN), -1.0..2.0f64, Just(f64::INFINITY)];
    let number = (prop_oneof![Just(1.0), 0.5..2.0f64], proptest::option::weighted(0.05, wrong));
    [(); 3].map(|()| proptest::collection::vec(number.clone(), 10))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_schedule_is_faster((program, units) in any_case(), copies_kept: bool, cut in any::<u16>()) {
        let limits = limits(units, copies_kept);
        let all = bound(&program, &limits).unwrap().time;
        let ticks = best(&program, units, copies_kept).unwrap();
        prop_assert!(all.0 as f64 <= ticks * TICK as f64 + 0.5, "{all:?} {ticks}");
        // Cut at some of the moments only, order is lost within steps, and nothing gained.
        let moments: Vec<_> = (0..2 * program.kernels().len()).filter(|&at| at == 0 || cut >> at & 1 == 1).collect();
        let steps = Steps::new(&program, copies_kept, &moments);
        let (some, _) = Prices::new(&relaxation::best(&steps, &limits, Link::Steps), &limits).bound(&steps, &limits);
        prop_assert!(some.0 <= all.0 + all.0 / 5_000 + 1, "{some:?} {all:?}");
    }

    /// Whatever shares blocks with what, and reaches from one into the next.
    #[test]
    fn no_schedule_of_whole_blocks_is_faster(
        (program, _) in any_case(),
        blocks in proptest::collection::vec((0u64..3, 0u64..2), 4),
        copies_kept: bool,
    ) {
        let blocks: Vec<_> = blocks.into_iter().map(|(first, more)| (first, (first + more).min(2))).collect();
        let places: Vec<_> = blocks.iter().copied().map(place).collect();
        let is_in = |block: u64| (0..).zip(&blocks).filter(move |(_, (first, last))| (*first..=*last).contains(&block));
        let inside: Vec<u32> = (0..3).map(|block| is_in(block).map(|(id, _): (u32, _)| 1 << id).sum()).collect();
        let touched = |kernel: &Kernel| {
            let ids: u32 = kernel.touches().into_iter().map(|id| 1 << id.0).sum();
            inside.iter().filter(|inside| *inside & ids != 0).count() as u64
        };
        let units = program.kernels().iter().map(touched).max().unwrap();
        let bound = bound(&in_blocks(&program, &places).unwrap(), &limits(units, copies_kept)).unwrap().time;
        let ticks = best_in_blocks(&program, &inside, units, copies_kept).unwrap();
        prop_assert!(bound.0 as f64 <= ticks * TICK as f64 + 0.5, "{bound:?} {ticks}");
    }

    #[test]
    fn no_price_proves_too_much((program, units) in any_case(), copies_kept: bool, change in any_change()) {
        let limits = limits(units, copies_kept);
        let steps = Steps::new(&program, copies_kept, &(0..2 * program.kernels().len()).collect::<Vec<_>>());
        let mut wish = relaxation::best(&steps, &limits, Link::Steps);
        for (prices, change) in [&mut wish.out, &mut wish.into, &mut wish.room].into_iter().zip(&change) {
            for (price, &(factor, other)) in prices.iter_mut().zip(change) {
                *price = other.unwrap_or(*price * factor);
            }
        }
        let (proven, _) = Prices::new(&wish, &limits).bound(&steps, &limits);
        let ticks = best(&program, units, copies_kept).unwrap();
        prop_assert!(proven.0 as f64 <= ticks * TICK as f64 + 0.5, "{proven:?} {ticks}");
    }

    #[test]
    fn more_of_anything_never_takes_longer((program, units) in any_case(), copies_kept: bool) {
        let few = limits(units, copies_kept);
        let most = bound(&program, &few).unwrap();
        let faster = |rate: Rate| Rate(rate.0 * 3 / 2);
        for more in [
            Limits { capacity: few.capacity + Bytes(UNIT / 2), ..few },
            Limits { h2d: faster(few.h2d), ..few },
            Limits { d2h: faster(few.d2h), ..few },
            Limits { copies_kept: true, ..few },
        ] {
            // What is found is a little below what could be proven, here more and there less.
            let less = bound(&program, &more).unwrap();
            prop_assert!(less.time.0 <= most.time.0 + most.time.0 / 5_000 + 1, "{most:?} {more:?} {less:?}");
        }
    }
}
