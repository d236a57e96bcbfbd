use super::*;
use crate::planner::schedule::Kind;
use crate::planner::tests::{BYTE_PER_NS, duplex, intermediate, kernel, moves, program, tiers};

const OUT: Kind = Kind::Evict(Tier::Host);
const BACK: Kind = Kind::Prefetch;

fn most(fault: u64) -> Most {
    Most { tiers: &[Tier::Host], fault_back: Rate(fault), fault_out: Rate(fault) }
}

#[test]
fn the_largest_size_times_time_leaves_first_if_it_helps() {
    // Nine kernels of 10 ns, a GPU of 30 B:
    //   kernel        0   1   2   3   4   5   6   7   8
    //   x, 20 B       w   .   .   .   .   .   .   r        B = 20 x 60 = 1200
    //   y,  5 B           w   .   .   .   .   r            B =  5 x 40 =  200
    //   z, 10 B                   w   r
    //   v, 30 B                                       w
    //   resident     20  25  25  35  35  25  25  20  30
    // x leaves first: out in 1 and 2, back in 5 and 6, so P_safe is kernel 5. Then nothing is over capacity, and y stays.
    let touched: [(&[u32], &[u32]); 9] = [
        (&[], &[0]),
        (&[], &[1]),
        (&[], &[]),
        (&[], &[2]),
        (&[2], &[]),
        (&[], &[]),
        (&[1], &[]),
        (&[0], &[]),
        (&[], &[3]),
    ];
    let kernels = touched.map(|(reads, writes)| kernel(10, reads, writes)).into();
    let program = program(kernels, vec![intermediate(20), intermediate(5), intermediate(10), intermediate(30)]);
    let plan = most(BYTE_PER_NS).plan(&program, &tiers(30)).unwrap();
    assert_eq!((moves(&plan.schedule), plan.over), (vec![(1, 0, OUT), (5, 0, BACK)], Bytes::ZERO));
}

/// Five kernels of 10 ns, a GPU of 15 B. x, 15 B, is idle in 1, 2 and 3; z is there in 3: so much too much.
fn too_short(z: u64) -> Program {
    let mut kernels = vec![kernel(10, &[], &[]); 5];
    kernels[0] = kernel(10, &[], &[0]);
    kernels[3] = kernel(10, &[], &[1]);
    kernels[4] = kernel(10, &[0], &[]);
    program(kernels, vec![intermediate(15), intermediate(z)])
}

#[test]
fn a_delay_is_worth_a_longer_stall() {
    // Out in kernels 1 and 2, back in 2 and 3: no P_safe. P_delay is after kernel 3: all 15 B come late, and x's kernel waits 15 ns.
    // Faults at half a byte per ns: 12 B out and 12 B in take 24 + 24 = 48 ns. That is more: x leaves.
    let plan = most(BYTE_PER_NS / 2).plan(&too_short(12), &tiers(15)).unwrap();
    assert_eq!((moves(&plan.schedule), plan.over), (vec![(1, 0, OUT), (4, 0, BACK)], Bytes::ZERO));
    // 6 B as fast as the link takes 6 + 6 = 12 ns: less. x stays, and 6 B are left to faults.
    let plan = most(BYTE_PER_NS).plan(&too_short(6), &tiers(15)).unwrap();
    assert_eq!((moves(&plan.schedule), plan.over), (Vec::new(), Bytes(6)));
}

#[test]
fn a_period_without_oversubscription_is_passed_over() {
    // x would have the largest B, but is idle where all fits; y is idle over kernel 3, too.
    //   kernel        0   1   2   3   4   5
    //   x, 9 B        w   .   r                   B = 9 x 100
    //   y, 6 B        w   .   .   .   .   r       B = 6 x 130
    //   z, 12 B                   w
    //   resident     15  15  15  18   6   6
    let times = [10, 100, 10, 10, 10, 10];
    let touched: [(&[u32], &[u32]); 6] =
        [(&[], &[0, 1]), (&[], &[]), (&[0], &[]), (&[], &[2]), (&[], &[]), (&[1], &[])];
    let kernels = times.into_iter().zip(touched).map(|(time, (reads, writes))| kernel(time, reads, writes)).collect();
    let program = program(kernels, vec![intermediate(9), intermediate(6), intermediate(12)]);
    let plan = most(BYTE_PER_NS).plan(&program, &tiers(17)).unwrap();
    // Back in kernel 4, where there is room: 0 + 6.
    assert_eq!((moves(&plan.schedule), plan.over), (vec![(1, 1, OUT), (4, 1, BACK)], Bytes::ZERO));
    assert_eq!(Most { tiers: &[Tier::Ssd], ..most(1) }.plan(&program, &tiers(17)), Err(Failure::NoSsd));
}

#[test]
fn without_room_on_the_host_tensors_go_to_the_ssd() {
    // An SSD at four fifths of the link's rate: x is out after kernels 1 and 2, and comes back 19 ns late. What faults comes from there, too, however fast faults are: 12 B out and in
    // take 15 + 15 ns, which is more.
    let rate = BYTE_PER_NS / 5 * 4;
    let with_host = |host| Tiers { host: Bytes(host), ssd: Some(duplex(rate, rate)), ..tiers(15) };
    let most = Most { tiers: &[Tier::Host, Tier::Ssd], fault_back: Rate(u64::MAX), fault_out: Rate(u64::MAX) };
    let plan = most.plan(&too_short(12), &with_host(14)).unwrap();
    assert_eq!(moves(&plan.schedule), [(1, 0, Kind::Evict(Tier::Ssd)), (4, 0, BACK)]);
    let plan = most.plan(&too_short(12), &with_host(15)).unwrap();
    assert_eq!(moves(&plan.schedule), [(1, 0, OUT), (4, 0, BACK)]);
}

#[test]
fn a_kernel_larger_than_the_gpu_is_left_to_faults() {
    // Kernels 0 and 4 touch 15 B of 14; x is away in kernel 3 all the same.
    let plan = most(BYTE_PER_NS / 2).plan(&too_short(12), &tiers(14)).unwrap();
    assert_eq!((moves(&plan.schedule), plan.over), (vec![(1, 0, OUT), (4, 0, BACK)], Bytes(1)));
}
