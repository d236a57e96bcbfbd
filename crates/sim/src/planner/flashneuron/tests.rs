use super::*;
use crate::planner::schedule::Kind;
use crate::planner::tests::{BYTE_PER_NS, duplex, global, intermediate, kernel, moves, program, tiers};
use deepum_trace::program::{Kernel, Tensor};

/// Eight kernels of 10 ns, the backward pass from kernel 4 on:
///
/// ```text
/// kernel        0   1   2   3   4   5   6   7
/// w,  4 B       r   .   .   .   .   .   .   w
/// a,  6 B       w   r   .   .   .   .   r
/// b,  6 B           w   r   .   .   r
/// c,  6 B               w   r   r
/// resident     10  16  22  22  22  16  10   4
/// ```
fn network() -> (Vec<Kernel>, Vec<Tensor>) {
    let kernels = vec![
        kernel(10, &[0], &[1]),
        kernel(10, &[1], &[2]),
        kernel(10, &[2], &[3]),
        kernel(10, &[3], &[]),
        kernel(10, &[3], &[]),
        kernel(10, &[2], &[]),
        kernel(10, &[1], &[]),
        kernel(10, &[], &[0]),
    ];
    (kernels, vec![global(4), intermediate(6), intermediate(6), intermediate(6)])
}
const TURN: u32 = 4;
const OUT: Kind = Kind::Evict(Tier::Ssd);
const BACK: Kind = Kind::Prefetch;

/// Link and SSD let 10 B pass in a kernel.
fn of(gpu: u64) -> Tiers {
    Tiers { ssd: Some(duplex(BYTE_PER_NS, BYTE_PER_NS)), ..tiers(gpu) }
}

#[test]
fn the_first_activations_leave_until_the_rest_fits() {
    let (kernels, tensors) = network();
    let program = program(kernels, tensors);
    // Weights 4 B, the largest kernel 12 (a and b). On 22 B there is room for 6 of the 12 B that cross the turn (c is never idle): a leaves, b
    // stays. a (idle in 2 to 5) is out after kernel 2. In 5 there is room for it, and in 4, the turn: 16 + 6.
    let plan = plan(&program, &of(22), TURN).unwrap();
    assert_eq!((moves(&plan.schedule), plan.over), (vec![(2, 1, OUT), (4, 1, BACK)], Bytes::ZERO));
    // On 20 B there is room for 4: b (idle in 3 and 4) leaves, too, and is out after kernel 3. It is due first: in 4 there is room, 10 + 6. So a
    // comes back in 5: 16 + 6 in 4 are too many. In 2, while a leaves, 22 B are resident.
    let plan = super::plan(&program, &of(20), TURN).unwrap();
    let expected = vec![(2, 1, OUT), (3, 2, OUT), (4, 2, BACK), (5, 1, BACK)];
    assert_eq!((moves(&plan.schedule), plan.over), (expected, Bytes(2)));
}

#[test]
fn it_fails_by_name() {
    let (mut kernels, mut tensors) = network();
    let small = program(kernels.clone(), tensors.clone());
    let none = Failure::NoRoom { weights: Bytes(4), kernel: Bytes(12), gpu: Bytes(16) };
    assert_eq!(plan(&small, &of(16), TURN), Err(none));
    assert_eq!(plan(&small, &tiers(22), TURN), Err(Failure::NoSsd));

    // Gradients g of 10 B (kernels 4, 5), h of 8 (4 to 7) and i of 10 (5 to 7) do not cross the turn. The largest kernel has b, g and i: 26 B. On
    // 31 B a and b leave; in kernel 5 there are still w, b, g, h and i.
    kernels[4] = kernel(10, &[3], &[4, 5]);
    kernels[5] = kernel(10, &[2, 4], &[6]);
    kernels[7] = kernel(10, &[5, 6], &[0]);
    tensors.extend([intermediate(10), intermediate(8), intermediate(10)]);
    let large = program(kernels, tensors);
    let late = Failure::TooLittleOffloaded { kernel: 5, resident: Bytes(38), gpu: Bytes(31) };
    assert_eq!(plan(&large, &of(31), TURN), Err(late));
}
