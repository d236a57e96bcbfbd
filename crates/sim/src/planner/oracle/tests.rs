use super::*;
use crate::planner::schedule::Kind;
use crate::planner::tests::{BYTE_PER_NS, duplex, global, intermediate, kernel, moves, program, tiers};

const OUT: Kind = Kind::Evict(Tier::Host);
const BACK: Kind = Kind::Prefetch;

#[test]
fn who_is_wanted_furthest_ahead_leaves_and_early() {
    // Six kernels of 10 ns, a GPU of 14 B:
    //   kernel        0   1   2   3   4   5
    //   a, 8 B        w   .   .   .   .   r
    //   b, 6 B            w   .   .   r
    //   c, 6 B                w   r
    //   resident      8  14  20  20  14   8
    // In kernel 2 a is wanted three kernels ahead, b two: a leaves, and does so in kernel 1, when it is idle. It has to come back in 4; in 3
    // there is no room. So nothing ever waits: 60 ns.
    let touched: [(&[u32], &[u32]); 6] = [(&[], &[0]), (&[], &[1]), (&[], &[2]), (&[2], &[]), (&[1], &[]), (&[0], &[])];
    let kernels = touched.map(|(reads, writes)| kernel(10, reads, writes)).into();
    let program = program(kernels, vec![intermediate(8), intermediate(6), intermediate(6)]);
    let (plan, played) = best(&program, &tiers(14)).unwrap();
    assert_eq!((moves(&plan.schedule), plan.over), (vec![(1, 0, OUT), (4, 0, BACK)], Bytes::ZERO));
    assert_eq!(
        (played.time, played.out[0], played.back[0], played.demanded),
        (Nanos(60), Bytes(8), Bytes(8), Bytes::ZERO)
    );
}

/// Six kernels of 10 ns, a GPU of 10 B. Weight w of 5 B is used in 0 and 4, d of 5 B in 0 and 5, and p of 5 B is there in 2: 5 B too much.
fn weight_or_activation(weight_is_written: bool) -> Program {
    let mut kernels = vec![kernel(10, &[], &[]); 6];
    kernels[0] = kernel(10, &[0], &[1]);
    kernels[2] = kernel(10, &[], &[2]);
    kernels[4] = if weight_is_written { kernel(10, &[], &[0]) } else { kernel(10, &[0], &[]) };
    kernels[5] = kernel(10, &[1], &[]);
    program(kernels, vec![global(5), intermediate(5), intermediate(5)])
}

#[test]
fn what_has_a_copy_is_dropped_and_counts_double() {
    // In kernel 2, w is wanted two kernels ahead, d three. Never written, w has a copy: twice two is more. It is dropped, and comes back in 3.
    let (plan, played) = best(&weight_or_activation(false), &tiers(10)).unwrap();
    assert_eq!(moves(&plan.schedule), [(1, 0, Kind::Drop), (3, 0, BACK)]);
    assert_eq!((played.time, played.out[0], played.back[0]), (Nanos(60), Bytes::ZERO, Bytes(5)));
}

#[test]
fn what_was_written_goes_out() {
    // Written in kernel 4, w has no copy: d leaves, and comes back where there is room: from kernel 3 on.
    let (plan, played) = best(&weight_or_activation(true), &tiers(10)).unwrap();
    assert_eq!(moves(&plan.schedule), [(1, 1, OUT), (3, 1, BACK)]);
    assert_eq!((played.time, played.out[0], played.back[0]), (Nanos(60), Bytes(5), Bytes(5)));
}

#[test]
fn what_was_away_before_and_not_written_since_is_dropped() {
    // a, 6 B, is used in 0, 3 and 6; p and q of 6 B are there in 2 and 5; a GPU of 6 B. Out once, back twice.
    let mut kernels = vec![kernel(10, &[], &[]); 7];
    kernels[0] = kernel(10, &[], &[0]);
    kernels[2] = kernel(10, &[], &[1]);
    kernels[3] = kernel(10, &[0], &[]);
    kernels[5] = kernel(10, &[], &[2]);
    kernels[6] = kernel(10, &[0], &[]);
    let program = program(kernels, vec![intermediate(6), intermediate(6), intermediate(6)]);
    let (plan, played) = best(&program, &tiers(6)).unwrap();
    assert_eq!(moves(&plan.schedule), [(1, 0, OUT), (3, 0, BACK), (4, 0, Kind::Drop), (6, 0, BACK)]);
    // Each time its kernel waits the 6 ns of the fetch.
    assert_eq!((played.time, played.out[0], played.back[0]), (Nanos(82), Bytes(6), Bytes(12)));
}

const PLAIN: Rule = Rule { fitting: false, save: false, ssd_first: false };

fn by(rule: Rule, program: &Program, tiers: &Tiers) -> Vec<(u32, u32, Kind)> {
    let plan = Round::new(program, tiers, &ideal_times(program), rule).plan().unwrap();
    moves(&plan.schedule)
}

#[test]
fn a_part_counts_by_that_part() {
    // Eight kernels of 10 ns, a GPU of 30 B, in kernels 3 and 4 5 B too much: x of 20 B is idle in 1 to 6, y of 5 B in 2 to 5, z of 10 B is there
    // in 3 and 4.
    let mut kernels = vec![kernel(10, &[], &[]); 8];
    for (at, reads, writes) in
        [(0, &[][..], &[0][..]), (1, &[], &[1]), (3, &[], &[2]), (4, &[2], &[]), (6, &[1], &[]), (7, &[0], &[])]
    {
        kernels[at] = kernel(10, reads, writes);
    }
    let program = program(kernels, vec![intermediate(20), intermediate(5), intermediate(10)]);
    // In kernel 3 x is wanted four kernels ahead, y three. By the part that has to leave: x 4 x 5 / 20 = 1, y 3 x 5 / 5 = 3.
    assert_eq!(by(PLAIN, &program, &tiers(30)), [(1, 0, OUT), (5, 0, BACK)]);
    assert_eq!(by(Rule { fitting: true, ..PLAIN }, &program, &tiers(30)), [(2, 1, OUT), (5, 1, BACK)]);
}

#[test]
fn the_ssd_comes_first_where_it_is_in_time() {
    // Ten kernels of 10 ns, a GPU of 20 B; x and y of 10 B are idle in 1 to 8, z of 20 B is there in 4 and 5, when both must be away.
    let mut kernels = vec![kernel(10, &[], &[]); 10];
    kernels[0] = kernel(10, &[], &[0, 1]);
    kernels[4] = kernel(10, &[], &[2]);
    kernels[5] = kernel(10, &[2], &[]);
    kernels[9] = kernel(10, &[0, 1], &[]);
    let program = program(kernels, vec![intermediate(10), intermediate(10), intermediate(20)]);
    let half = BYTE_PER_NS / 2;
    let tiers = Tiers { ssd: Some(duplex(half, half)), ..tiers(20) };
    // Host first: x out in 1 and back in 8, y out in 2 and back in 7. y is due first. In kernel 6 there is room for both.
    assert_eq!(by(PLAIN, &program, &tiers), [(1, 1, OUT), (1, 0, OUT), (6, 1, BACK), (6, 0, BACK)]);
    // SSD first: x out in 1 and 2, back in 7 and 8. y would be out after 4, which is late: to the host, with what is left of the link.
    let ssd = Kind::Evict(Tier::Ssd);
    let first = Rule { ssd_first: true, ..PLAIN };
    assert_eq!(by(first, &program, &tiers), [(1, 0, ssd), (1, 1, OUT), (6, 0, BACK), (6, 1, BACK)]);
    // Which is tried only where the host cannot hold the 40 B that live.
    assert_eq!(Rule::all(&program, &Tiers { host: Bytes(40), ..tiers }).len(), 4);
    assert_eq!(Rule::all(&program, &Tiers { host: Bytes(39), ..tiers }).len(), 8);
}

#[test]
fn a_weight_is_written_while_it_is_still_read() {
    // A GPU of 20 B. w, 10 B, is written in kernel 5 and read in 0 and 4; a, 10 B, is there from 1 on and read in 4, too; p, 10 B, is there in 2:
    //   kernel        0    1    2    3    4    5
    //   time         10    5   10   10   10   10
    //   w             r    .    .    .    r    w
    //   a                  w    .    .    r
    //   p                       w
    //   resident     10   20   30   20   20   10
    // In kernel 2 w and a are wanted two kernels ahead; w is first. Idle from 1 on, it would not be out in the 5 ns of kernel 1, and kernel 2 would
    // wait 5 ns. Saved while kernel 0 reads it, it is dropped at once. It comes back in kernel 3 either way.
    let kernels = vec![
        kernel(10, &[0], &[]),
        kernel(5, &[], &[1]),
        kernel(10, &[], &[2]),
        kernel(10, &[], &[]),
        kernel(10, &[0, 1], &[]),
        kernel(10, &[], &[0]),
    ];
    let program = program(kernels, vec![global(10), intermediate(10), intermediate(10)]);
    assert_eq!(by(PLAIN, &program, &tiers(20)), [(1, 0, OUT), (3, 0, BACK)]);
    let save = Rule { save: true, ..PLAIN };
    let saved = [(0, 0, Kind::Save(Tier::Host)), (1, 0, Kind::Drop), (3, 0, BACK)];
    assert_eq!(by(save, &program, &tiers(20)), saved);
    let (plan, played) = best(&program, &tiers(20)).unwrap();
    assert_eq!((moves(&plan.schedule), played.time), (saved.into(), Nanos(55)));
    assert_eq!((played.out[0], played.back[0], played.demanded), (Bytes(10), Bytes(10), Bytes::ZERO));
}
