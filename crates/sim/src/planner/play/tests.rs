use super::*;
use crate::planner::schedule::Move;
use crate::planner::tests::{BYTE_PER_NS, duplex, global, intermediate, kernel, program, tiers};
use deepum_core::units::Bytes;

fn of(program: &Program, moves: &[(u32, u32, Kind)]) -> Schedule {
    let moves = moves.iter().map(|&(gap, tensor, kind)| Move { gap, tensor: TensorId(tensor), kind });
    Schedule::new(program, moves.collect()).unwrap()
}

const OUT: Kind = Kind::Evict(Tier::Host);
const BACK: Kind = Kind::Prefetch;

#[test]
fn a_kernel_waits_for_room_and_for_its_tensors() {
    // a, 8 B, is away from kernel 1 on and back for 5; b, 10 B, is there in 2 and 3; a GPU of 10 B, a byte per ns.
    //   0..10   kernel 0 writes a
    //  10..15   kernel 1; a leaves from 10 to 18
    //  18..28   kernel 2 waited 3 ns for room
    //  28..38   kernel 3
    //  38..43   kernel 4; a comes from 38 to 46
    //  46..56   kernel 5 waited 3 ns for a
    let kernels = vec![
        kernel(10, &[], &[0]),
        kernel(5, &[], &[]),
        kernel(10, &[], &[1]),
        kernel(10, &[1], &[]),
        kernel(5, &[], &[]),
        kernel(10, &[0], &[]),
    ];
    let program = program(kernels, vec![intermediate(8), intermediate(10)]);
    let played = play(&program, &tiers(10), &of(&program, &[(1, 0, OUT), (4, 0, BACK)])).unwrap();
    let expected = Played {
        time: Nanos(56),
        times: [10, 5, 13, 10, 5, 13].map(Nanos).into(),
        out: [Bytes(8), Bytes::ZERO],
        back: [Bytes(8), Bytes::ZERO],
        demanded: Bytes::ZERO,
        peak: Bytes(10),
    };
    assert_eq!(played, expected);
    // The fetch is asked for at gap 2 already, but b's room is b's until kernel 3 ends: nothing changes.
    let early = play(&program, &tiers(10), &of(&program, &[(1, 0, OUT), (2, 0, BACK)])).unwrap();
    assert_eq!(early, expected);
}

#[test]
fn the_ssd_shares_the_link_and_has_a_latency() {
    // a to the SSD at half a byte per ns, b to the host with the other half of the link, 10 B each, at gap 1. The SSD's transfer begins with a
    // latency of 4 ns, during which b has all of the link: 4 B. Then 6 B at half the rate: out at 4 + 12 = 16. a is out at 4 + 20 = 24, and then
    // there is room for c, 20 B, in kernel 1: 24 + 10. Both come back at gap 2: b, 4 B, then 6 at half the rate, at 16; a at 24. Kernel 0 takes 1
    // ns, kernel 2 takes 1.
    let half = duplex(BYTE_PER_NS / 2, BYTE_PER_NS / 2);
    let slow = |pipe| crate::tiers::Pipe { latency: Nanos(4), ..pipe };
    let ssd = crate::tiers::Duplex { out: slow(half.out), back: slow(half.back) };
    let tiers = Tiers { ssd: Some(ssd), ..tiers(20) };
    let kernels = vec![kernel(1, &[], &[0, 1]), kernel(10, &[], &[2]), kernel(1, &[1], &[]), kernel(1, &[0], &[])];
    let program = program(kernels, vec![intermediate(10), intermediate(10), intermediate(20)]);
    let schedule = of(&program, &[(1, 0, Kind::Evict(Tier::Ssd)), (1, 1, OUT), (2, 0, BACK), (2, 1, BACK)]);
    let played = play(&program, &tiers, &schedule).unwrap();
    // Kernel 2 waits for b, 16 ns, and kernel 3 for a, 7 more.
    assert_eq!(played.times, [1, 34, 17, 8].map(Nanos));
    assert_eq!((played.out, played.back), ([Bytes(10); 2], [Bytes(10); 2]));
}

#[test]
fn what_is_not_planned_is_demanded() {
    // Weights a, b and c of 5 B, one kernel of 10 ns each, a GPU of 10 B: what was used longest ago leaves for what is needed next, each time.
    // Out and back one after the other, 5 ns each: every kernel waits 10 ns.
    let kernels = vec![kernel(10, &[0], &[]), kernel(10, &[1], &[]), kernel(10, &[2], &[])];
    let program = program(kernels, vec![global(5), global(5), global(5)]);
    let played = play(&program, &tiers(10), &Schedule::default()).unwrap();
    assert_eq!((played.times, played.time), ([20; 3].map(Nanos).into(), Nanos(60)));
    assert_eq!((played.out[0], played.back[0], played.demanded), (Bytes(15), Bytes(15), Bytes(30)));
}

#[test]
fn a_drop_frees_at_once_and_a_kernel_too_large_is_named() {
    // Weight w of 8 B, used in 0 and 2, is dropped for p of 8 B in kernel 1, and fetched for kernel 2 in 8 ns. Between 2 and 0 it stays.
    let kernels = vec![kernel(10, &[0], &[]), kernel(10, &[], &[1]), kernel(10, &[0], &[])];
    let program = program(kernels, vec![global(8), intermediate(8)]);
    let schedule = of(&program, &[(1, 0, Kind::Drop), (2, 0, BACK)]);
    let played = play(&program, &tiers(8), &schedule).unwrap();
    assert_eq!((played.times, played.out[0], played.back[0]), ([10, 10, 18].map(Nanos).into(), Bytes::ZERO, Bytes(8)));
    let refused = play(&program, &tiers(7), &schedule);
    assert_eq!(refused, Err(TooLarge { kernel: 0, bytes: Bytes(8), gpu: Bytes(7) }));
}

#[test]
fn a_save_that_is_not_over_delays_a_drop_and_a_write_makes_it_useless() {
    // a of 10 B is written in kernel 0, read in 1, saved from the end of kernel 0 at 10 to 20, and dropped at 15, when kernel 1 ends: b, 10 B, has
    // room at 20. Back for kernel 3 in 10 ns.
    let kernels = vec![kernel(10, &[], &[0]), kernel(5, &[0], &[]), kernel(10, &[], &[1]), kernel(10, &[0], &[])];
    let one = program(kernels, vec![intermediate(10), intermediate(10)]);
    let save = Kind::Save(Tier::Host);
    let played = play(&one, &tiers(10), &of(&one, &[(1, 0, save), (2, 0, Kind::Drop), (3, 0, BACK)])).unwrap();
    assert_eq!(played.times, [10, 5, 15, 20].map(Nanos));
    assert_eq!((played.out[0], played.back[0], played.demanded), (Bytes(10), Bytes(10), Bytes::ZERO));

    // Saved at gap 1, written again by kernel 1, which ends before the save does: what leaves at gap 2 is written once more, after that.
    // The save ends at 20, the eviction at 30, and then there is room.
    let kernels = vec![kernel(10, &[], &[0]), kernel(5, &[], &[0]), kernel(10, &[], &[1]), kernel(10, &[0], &[])];
    let two = program(kernels, vec![intermediate(10), intermediate(10)]);
    let played = play(&two, &tiers(10), &of(&two, &[(1, 0, save), (2, 0, OUT), (3, 0, BACK)])).unwrap();
    assert_eq!((played.times, played.out[0]), ([10, 5, 25, 20].map(Nanos).into(), Bytes(20)));
}
