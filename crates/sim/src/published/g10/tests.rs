use super::*;
use crate::planner::tests::{global, intermediate, kernel, moves, program};
use crate::published::Right;
use crate::tiers::Rate;
use deepum_trace::program::{Program, Tensor};

const SSD_MOVE: Kind = Kind::Evict(Tier::Ssd);
const HOST: Kind = Kind::Evict(Tier::Host);
const BACK: Kind = Kind::Prefetch;
const SECOND: u64 = 1_000_000_000;
const GIB: u64 = 1 << 30;

/// A link of 4 "GB/s", an SSD of 2: so many GiB in a second.
fn world(gpu_gib: u64, host_gib: u64) -> World {
    let [gpu, host] = [gpu_gib, host_gib].map(Bytes::gib);
    World { gpu, host, link: Rate(4_000_000_000), ssd: Rate(2_000_000_000), right: Right::default() }
}

/// So many kernels of a second each, of which some touch something: number, what it reads, what it writes.
fn seconds(kernels: usize, touching: &[(usize, &[u32], &[u32])], tensors: Vec<Tensor>) -> Program {
    let mut all = vec![kernel(SECOND, &[], &[]); kernels];
    for (number, reads, writes) in touching {
        all[*number] = kernel(SECOND, reads, writes);
    }
    program(all, tensors)
}

/// x (1) and y (2) are made in kernel 0 and read in kernel 12; z (3) is there in kernels 5 and 6.
fn two_idle(x: u64, y: u64, z: u64) -> Program {
    let touching: &[(usize, &[u32], &[u32])] =
        &[(0, &[0], &[1, 2]), (5, &[], &[3]), (6, &[3], &[]), (12, &[1, 2], &[])];
    let tensors = [x, y, z].map(|gib| intermediate(gib * GIB));
    seconds(13, touching, [intermediate(4096)].into_iter().chain(tensors).collect())
}

#[test]
fn the_largest_area_leaves_for_the_ssd_and_comes_back_when_there_is_room() {
    // 4 + 2 + 5 GiB on 10: too much in kernels 5 and 6, and in 4, as z gets its memory then. x and y are idle for 11 s. A transfer of x takes 2 s, so
    // 5 s are long enough. Half of x is out in kernel 1, and half of it is still to come in kernel 11: it is away while memory is exceeded. So is y,
    // which is smaller. x leaves: out in kernel 2, back from 10 on; 7 GiB are left. As there is less than the line, 9.9, before every kernel, it comes
    // back one kernel after it is out: nobody asks whether there is with it.
    let plan = plan(&two_idle(4, 2, 5), &world(10, 99)).unwrap();
    assert_eq!(moves(&plan.schedule), [(1, 1, SSD_MOVE), (3, 1, BACK)]);
}

#[test]
fn who_finds_the_ssd_saturated_goes_to_the_host_if_there_is_room() {
    // 4 + 4 + 8 GiB on 9: x and y must both leave. x is first, and takes the SSD in kernels 1 and 2, which y would take alone. So y goes to the host, over what is left
    // of the link, 2 GiB a kernel: out in 2, back from 10 on. x comes back earlier, as above; then there are 12 GiB in kernels 4 to 6, and y comes after them.
    let plan = plan(&two_idle(4, 4, 8), &world(9, 99)).unwrap();
    assert_eq!(moves(&plan.schedule), [(1, 1, SSD_MOVE), (1, 2, HOST), (3, 1, BACK), (7, 2, BACK)]);
    // Without room there y goes to the SSD behind x: out in 4, back from 8 on, before x. It is the first to come back earlier then, in kernel 5, and x comes after that.
    let plan = super::plan(&two_idle(4, 4, 8), &world(9, 3)).unwrap();
    assert_eq!(moves(&plan.schedule), [(1, 2, SSD_MOVE), (1, 1, SSD_MOVE), (5, 2, BACK), (7, 1, BACK)]);
}

#[test]
fn who_is_idle_over_the_end_is_back_for_one_and_a_half_transfers() {
    // A weight of 4 GiB, in use in kernel 2 of 12: idle in the other eleven; z (2) is there in 7 and 8. 9 GiB on 8. To the SSD: out after 2 s, asked for 3 s before its use,
    // and 45 + 20 us for each transfer: just before kernel 11 of which one begins.
    let touching: &[(usize, &[u32], &[u32])] = &[(0, &[0], &[]), (2, &[1], &[]), (7, &[], &[2]), (8, &[2], &[])];
    let program = seconds(12, touching, vec![intermediate(4096), global(4 * GIB), intermediate(5 * GIB)]);
    let plan = plan(&program, &world(8, 99)).unwrap();
    assert_eq!(moves(&plan.schedule), [(3, 1, SSD_MOVE), (10, 1, BACK)]);
}

#[test]
fn the_first_tensor_counts_twice() {
    // 2 GiB always and 5 now and then: 7 on 8, which is below the line of 7.92. But 2 + 2 + 5 is not, and the 5 leave. The 2 are idle over the end, and memory is exceeded in
    // kernel 0, too: they stay.
    let touching: &[(usize, &[u32], &[u32])] = &[(0, &[], &[1]), (2, &[0], &[]), (30, &[1], &[])];
    let with = |first| seconds(31, touching, vec![global(first * GIB), intermediate((7 - first) * GIB)]);
    let left = |first| moves(&plan(&with(first), &world(8, 99)).unwrap().schedule).len();
    assert_eq!((left(0), left(2)), (0, 2));
}

#[test]
fn without_unified_memory_more_leave_and_not_all_come_back() {
    // As above 4 + 2 + 5 GiB on 10, but with a line of 10.5. x leaves and comes back in kernel 3, so that there are 11 again in kernel 4, in which most lived first. That is more
    // than 9.45: y leaves, too, for as long as it likes.
    let direct = Direct { host: false, line: Direct::LINE };
    let moves = plan_direct(&two_idle(4, 2, 5), &world(10, 99), direct).unwrap();
    let moves: Vec<_> = moves.iter().map(|at| (at.gap, at.tensor.0, at.kind)).collect();
    assert_eq!(moves, [(1, 1, SSD_MOVE), (1, 2, SSD_MOVE), (3, 1, BACK)]);
    // 4 + 4 + 8 on 9: y finds the SSD saturated, and goes to the host with G10-Host only.
    let left = |host| {
        let moves = plan_direct(&two_idle(4, 4, 8), &world(9, 99), Direct { host, ..direct }).unwrap();
        moves.iter().filter(|at| at.gap == 1).map(|at| (at.tensor.0, at.kind)).collect::<Vec<_>>()
    };
    assert_eq!((left(true), left(false)), (vec![(1, SSD_MOVE), (2, HOST)], vec![(2, SSD_MOVE), (1, SSD_MOVE)]));
}
