use super::*;
use crate::planner::schedule::Kind;
use crate::planner::tests::{BYTE_PER_NS, duplex, intermediate, kernel, moves, program, tiers};

/// Eight kernels of 10 ns; on a GPU of 30 B, 5 B too much in kernels 3 and 4:
///
/// ```text
/// kernel        0   1   2   3   4   5   6   7
/// x, 20 B       w   .   .   .   .   .   .   r
/// y,  5 B           w   .   .   .   .   r
/// z, 10 B                   w   r
/// resident     20  25  25  35  35  25  25  20
/// ```
fn two_that_would_do() -> Program {
    let touched: [(&[u32], &[u32]); 8] =
        [(&[], &[0]), (&[], &[1]), (&[], &[]), (&[], &[2]), (&[2], &[]), (&[], &[]), (&[1], &[]), (&[0], &[])];
    let kernels = touched.map(|(reads, writes)| kernel(10, reads, writes)).into();
    program(kernels, vec![intermediate(20), intermediate(5), intermediate(10)])
}

const HOST: Kind = Kind::Evict(Tier::Host);
const SSD: Kind = Kind::Evict(Tier::Ssd);
const BACK: Kind = Kind::Prefetch;

#[test]
fn the_paper_weighs_relief_against_cost() {
    // A kernel lets 10 B pass each way. x (idle in 1 to 6) is out after kernels 1 and 2, and comes back in 5 and 6: free in 3 and 4. y (idle in 2
    // to 5) is out after 2 and comes back in 5: free in 3 and 4, too. Either relieves by 5 B for 20 ns: 100 B ns.
    //   x costs 20 + 20 ns:  100 / 40 = 2.5
    //   y costs  5 +  5 ns:  100 / 10 = 10: y leaves. 30 B are resident in 3 and 4: no pressure left.
    // Earlier than kernel 5 there is no room for y: 30 + 5 in kernel 4.
    let paper = G10 { targets: Targets::Host };
    let plan = paper.plan(&two_that_would_do(), &tiers(30)).unwrap();
    assert_eq!((moves(&plan.schedule), plan.over), (vec![(2, 1, HOST), (5, 1, BACK)], Bytes::ZERO));
}

/// Ten kernels of 10 ns; on a GPU of 20 B, 20 B too much in kernels 4 and 5. x and y of 10 B are idle in 1 to 8, z of 20 B is there in 4 and 5.
fn two_that_must() -> Program {
    let mut kernels = vec![kernel(10, &[], &[]); 10];
    kernels[0] = kernel(10, &[], &[0, 1]);
    kernels[4] = kernel(10, &[], &[2]);
    kernels[5] = kernel(10, &[2], &[]);
    kernels[9] = kernel(10, &[0, 1], &[]);
    program(kernels, vec![intermediate(10), intermediate(10), intermediate(20)])
}

/// An SSD at half the link's rate: a kernel lets 5 of its 10 B be the SSD's.
fn with_ssd(host: u64) -> Tiers {
    let half = BYTE_PER_NS / 2;
    Tiers { host: Bytes(host), ssd: Some(duplex(half, half)), ..tiers(20) }
}

#[test]
fn the_ssd_comes_first_and_the_host_when_it_is_saturated() {
    // Both rank alike; x is first. To the SSD: out in kernels 1 and 2, back in 7 and 8, and idle for 80 ns, more than twice the 20 ns of a
    // transfer. y would go to the SSD in kernels 1 and 2, too, if that were free, but x fills it: to the host, with what x leaves of the link, 5
    // B a kernel: out in 1 and 2, back in 7 and 8. In kernels 4 and 5 only z is left. Then earlier: x from kernel 6 (0 + 10 B); not from 5 (20 +
    // 10). y the same (10 + 10).
    let plan = G10::PAPER.plan(&two_that_must(), &with_ssd(1000)).unwrap();
    let expected = vec![(1, 0, SSD), (1, 1, HOST), (6, 0, BACK), (6, 1, BACK)];
    assert_eq!((moves(&plan.schedule), plan.over), (expected, Bytes::ZERO));
}

#[test]
fn without_room_on_the_host_the_ssd_may_come_too_late() {
    // y would be out after kernels 3 and 4, and would have to come back from 5 on: free in no kernel. 10 B too much stay.
    let plan = G10::PAPER.plan(&two_that_must(), &with_ssd(9)).unwrap();
    assert_eq!((moves(&plan.schedule), plan.over), (vec![(1, 0, SSD), (6, 0, BACK)], Bytes(10)));
    // G10-GDS never asks for the host.
    let gds = G10 { targets: Targets::Ssd };
    assert_eq!(gds.plan(&two_that_must(), &with_ssd(1000)), Ok(plan));
    assert_eq!(gds.plan(&two_that_must(), &tiers(20)), Err(Failure::NoSsd));
}

#[test]
fn a_weight_leaves_over_the_end_of_the_iteration() {
    // w, 10 B, is used in kernel 2 only: idle in 3, 4, 0, 1. p, 20 B, is there in 4 and 0 (two tensors), and the GPU has 25 B.
    // Out in kernel 3, back in 1: free in 4 and 0.
    let kernels = vec![
        kernel(10, &[], &[1]),
        kernel(10, &[], &[]),
        kernel(10, &[0], &[0]),
        kernel(10, &[], &[]),
        kernel(10, &[], &[2]),
    ];
    let weight = crate::planner::tests::global(10);
    let program = program(kernels, vec![weight, intermediate(20), intermediate(20)]);
    let plan = G10 { targets: Targets::Host }.plan(&program, &tiers(25)).unwrap();
    assert_eq!((moves(&plan.schedule), plan.over), (vec![(1, 0, BACK), (3, 0, HOST)], Bytes::ZERO));
}

#[test]
fn what_a_kernel_touches_beyond_the_gpu_is_left_to_faults() {
    // Kernels 0 and 9 touch 20 B of 19. x and y, 10 B each, are away in 4 and 5 all the same. x is chosen first and can come back in kernel 8, y in 7: y is due first,
    // and comes from kernel 6 on; beside it there is no room for x before 8.
    let plan = G10 { targets: Targets::Host }.plan(&two_that_must(), &tiers(19)).unwrap();
    let expected = vec![(1, 1, HOST), (1, 0, HOST), (6, 1, BACK), (8, 0, BACK)];
    assert_eq!((moves(&plan.schedule), plan.over), (expected, Bytes(1)));
}
