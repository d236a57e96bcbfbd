use super::*;
use crate::planner::schedule::Move;
use crate::planner::tests::{global, intermediate, kernel, program};
use crate::published::Right;
use crate::tiers::Rate;

const SECOND: u64 = 1_000_000_000;
const GIB: u64 = 1 << 30;

/// An SSD of 2 "GB/s": as many GiB in a second.
fn world(gpu_gib: u64) -> World {
    World {
        gpu: Bytes::gib(gpu_gib),
        host: Bytes::ZERO,
        link: Rate(4_000_000_000),
        ssd: Rate(2_000_000_000),
        right: Right::default(),
    }
}

/// Seconds of each kernel.
fn seconds(played: &Played) -> Vec<u64> {
    played.times.iter().map(|time| (time.0 + SECOND / 2) / SECOND).collect()
}

/// Kernels of a second: a (4 GiB) is made, then b (4 GiB), then c (2 GiB) of both; back they are read: b, then a. A weight of 1 GiB, and a workspace of 1 GiB.
fn forth_and_back() -> Program {
    let touched: [(&[u32], &[u32]); 6] =
        [(&[0], &[1]), (&[1], &[2, 4]), (&[2], &[3]), (&[3], &[]), (&[2], &[]), (&[1], &[])];
    let kernels = touched.iter().map(|(reads, writes)| kernel(SECOND, reads, writes)).collect();
    program(kernels, [global(GIB)].into_iter().chain([4, 4, 2, 1].map(|gib| intermediate(gib * GIB))).collect())
}

fn leaves(program: &Program, gap: u32) -> Schedule {
    let at = |gap, kind| Move { gap, tensor: TensorId(1), kind };
    Schedule::new(program, vec![at(gap, Kind::Evict(Tier::Ssd)), at(5, Kind::Prefetch)]).unwrap()
}

#[test]
fn the_backward_pass_begins_when_all_is_out_and_fetches_as_room_allows() {
    let program = forth_and_back();
    // Of 16 GiB, weight and workspace leave 14. a, which was chosen, is at their end. It leaves from gap 2 on, which takes 2 s; kernel 2 covers one, and kernel 3, with which the
    // backward pass begins, waits for the other. After it b is there, and 10 are free in one piece: less the 9 of kernel 1 they are too few for a. After kernel 4 there are 14. a
    // is fetched, 2 s, and kernel 5 waits for it.
    let played = play(&program, &world(16), &leaves(&program, 2), 3).unwrap();
    assert_eq!(seconds(&played), [1, 1, 1, 2, 1, 3]);
    assert_eq!((played.out, played.back), ([Bytes::ZERO, Bytes::gib(4)], [Bytes::ZERO, Bytes::gib(4)]));
    // With 20 it is asked for after kernel 3, and comes while kernel 4 runs.
    let played = play(&program, &world(20), &leaves(&program, 2), 3).unwrap();
    assert_eq!(seconds(&played), [1, 1, 1, 2, 1, 2]);
}

#[test]
fn who_finds_no_piece_fails_by_name() {
    let program = forth_and_back();
    // 1 + 1 + 4 + 4 leave no 2 GiB of 11, as long as a is there, and without a plan nothing moves.
    let refused = play(&program, &world(11), &Schedule::default(), 3);
    assert_eq!(refused, Err(PublishedError::NoPiece { kernel: 2, bytes: Bytes::gib(2) }));
    // With a on its way out kernel 2 waits for it: 2 s.
    let played = play(&program, &world(12), &leaves(&program, 2), 3).unwrap();
    assert_eq!(seconds(&played)[2], 1);
    let played = play(&program, &world(11), &leaves(&program, 2), 3).unwrap();
    assert_eq!(seconds(&played)[2], 3);
}
