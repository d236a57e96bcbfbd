use super::*;
use crate::planner::tests::{intermediate, kernel, program};
use crate::published::Right;
use crate::tiers::Rate;

const SECOND: u64 = 1_000_000_000;
const GIB: u64 = 1 << 30;

/// A link of 6 "GB/s", an SSD of 2: as many GiB in a second, of which 4 are the host's.
fn world(gpu_gib: u64) -> World {
    World {
        gpu: Bytes::gib(gpu_gib),
        host: Bytes::gib(99),
        link: Rate(6_000_000_000),
        ssd: Rate(2_000_000_000),
        right: Right::default(),
    }
}

/// Six kernels of a second; x (4 GiB) is made in the first and read in the last, y (7 GiB) made and read in kernels 3 and 4.
fn x_and_y() -> Program {
    let mut kernels = vec![kernel(SECOND, &[], &[]); 6];
    kernels[0] = kernel(SECOND, &[], &[0]);
    kernels[3] = kernel(SECOND, &[], &[1]);
    kernels[4] = kernel(SECOND, &[1], &[]);
    kernels[5] = kernel(SECOND, &[0], &[]);
    program(kernels, vec![intermediate(4 * GIB), intermediate(7 * GIB)])
}

/// Seconds of each kernel, where x leaves at gap 1 and is asked for at `back`.
fn seconds(gpu_gib: u64, tier: Tier, back: Option<u32>) -> Vec<u64> {
    let at = |gap, kind| Move { gap, tensor: TensorId(0), kind };
    let moves: Vec<_> = [at(1, Kind::Evict(tier))].into_iter().chain(back.map(|gap| at(gap, Kind::Prefetch))).collect();
    let played = play(&x_and_y(), &world(gpu_gib), &moves).unwrap();
    played.times.iter().map(|time| (time.0 + SECOND / 2) / SECOND).collect()
}

#[test]
fn a_kernel_waits_for_what_comes_too_late_and_fetches_what_nobody_asked_for() {
    // The SSD takes 2 s each way.
    assert_eq!(seconds(9, Tier::Ssd, Some(3)), [1, 1, 1, 1, 1, 1]);
    assert_eq!(seconds(9, Tier::Ssd, Some(4)), [1, 1, 1, 1, 1, 2]);
    assert_eq!(seconds(9, Tier::Ssd, None), [1, 1, 1, 1, 1, 3]);
    // The host takes 1; but what nobody asked for comes from the SSD.
    assert_eq!(seconds(9, Tier::Host, Some(4)), [1, 1, 1, 1, 1, 1]);
    assert_eq!(seconds(9, Tier::Host, None), [1, 1, 1, 1, 1, 3]);
}

#[test]
fn who_waits_for_memory_is_fetched_when_there_is_some() {
    // Four times 2 GiB: beside y there is no room for x, which waits from gap 4 until y is dead, and then takes 2 s.
    assert_eq!(seconds(2, Tier::Ssd, Some(4)), [1, 1, 1, 1, 1, 3]);
}
