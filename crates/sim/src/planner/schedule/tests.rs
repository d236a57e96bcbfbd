use super::*;
use crate::planner::tests::{global, intermediate, kernel, program};

/// Kernels:       0      1      2      3      4      5
/// 0, global      use                                use
/// 1, interm.     write  read                 read
/// 2, interm.            write  write         r+w
fn example() -> Program {
    let kernels = vec![
        kernel(1, &[0], &[1]),
        kernel(1, &[1], &[2]),
        kernel(1, &[], &[2]),
        kernel(1, &[], &[]),
        kernel(1, &[1, 2], &[2]),
        kernel(1, &[0], &[]),
    ];
    program(kernels, vec![global(1), intermediate(1), intermediate(1)])
}

fn of(moves: &[(u32, u32, Kind)]) -> Result<Schedule, Illegal> {
    let moves = moves.iter().map(|&(gap, tensor, kind)| Move { gap, tensor: TensorId(tensor), kind });
    Schedule::new(&example(), moves.collect())
}

const OUT: Kind = Kind::Evict(Tier::Ssd);
const BACK: Kind = Kind::Prefetch;

#[test]
fn what_is_away_between_two_uses_is_legal_also_over_the_end() {
    let schedule = of(&[(4, 1, BACK), (2, 1, OUT), (1, 0, OUT), (5, 0, BACK), (3, 2, OUT), (4, 2, BACK)]).unwrap();
    let gaps: Vec<_> = schedule.moves().iter().map(|at| (at.gap, at.tensor.0)).collect();
    assert_eq!(gaps, [(1, 0), (2, 1), (3, 2), (4, 1), (4, 2), (5, 0)]);
    assert_eq!(schedule.at(4).len(), 2);
    // 0 is idle in kernels 1 to 4, and never written: once fetched it may be dropped.
    assert!(of(&[(1, 0, Kind::Drop), (5, 0, BACK)]).is_ok());
}

#[test]
fn what_breaks_a_rule_is_refused_by_name() {
    assert_eq!(of(&[(6, 0, OUT)]), Err(Illegal::NoSuchGap { gap: 6, kernels: 6 }));
    assert_eq!(of(&[(1, 3, OUT)]), Err(Illegal::NoSuchTensor { tensor: 3, tensors: 3 }));
    assert_eq!(of(&[(2, 1, OUT)]), Err(Illegal::Order { tensor: 1, gap: 2 }));
    assert_eq!(of(&[(2, 1, OUT), (2, 1, BACK)]), Err(Illegal::Order { tensor: 1, gap: 2 }));
    assert_eq!(of(&[(1, 1, OUT), (3, 1, BACK)]), Err(Illegal::Touched { tensor: 1, gap: 1, kernel: 1 }));
    assert_eq!(of(&[(5, 0, OUT), (1, 0, BACK)]), Err(Illegal::Touched { tensor: 0, gap: 5, kernel: 5 }));
    assert_eq!(of(&[(5, 1, OUT), (2, 1, BACK)]), Err(Illegal::Dead { tensor: 1, gap: 5 }));
    assert_eq!(of(&[(0, 1, OUT), (1, 1, BACK)]), Err(Illegal::Dead { tensor: 1, gap: 0 }));
    // Nothing wrote 1 since kernel 0, but it was never fetched before either.
    assert_eq!(of(&[(2, 1, Kind::Drop), (3, 1, BACK)]), Err(Illegal::NoCopy { tensor: 1, gap: 2 }));
    // 2 is written by kernel 2, after it came back.
    assert!(matches!(of(&[(3, 2, Kind::Drop), (4, 2, BACK)]), Err(Illegal::NoCopy { tensor: 2, gap: 3 })));
}

#[test]
fn a_second_absence_needs_no_copy_out_if_nothing_was_written_between() {
    // 1 is touched by kernels 0, 1 and 4: away in 2, back for 3 (touched by nobody), away again in 3.
    let twice = [(2, 1, OUT), (3, 1, BACK)];
    assert!(of(&twice).is_ok());
    let uses = vec![
        kernel(1, &[], &[0]),
        kernel(1, &[], &[]),
        kernel(1, &[0], &[]),
        kernel(1, &[], &[]),
        kernel(1, &[0], &[0]),
        kernel(1, &[], &[]),
        kernel(1, &[0], &[]),
    ];
    let program = program(uses, vec![intermediate(1)]);
    let at = |gap, kind| Move { gap, tensor: TensorId(0), kind };
    let mut moves = vec![at(1, OUT), at(2, BACK), at(3, Kind::Drop), at(4, BACK)];
    assert!(Schedule::new(&program, moves.clone()).is_ok());
    moves.extend([at(5, Kind::Drop), at(6, BACK)]);
    assert_eq!(Schedule::new(&program, moves), Err(Illegal::NoCopy { tensor: 0, gap: 5 }), "kernel 4 wrote it");
}

#[test]
fn a_save_makes_a_copy_until_the_next_write() {
    // 0 is touched by kernels 0, 1, 2 and 5: written by 0 and 2.
    let kernels = vec![
        kernel(1, &[], &[0]),
        kernel(1, &[0], &[]),
        kernel(1, &[0], &[0]),
        kernel(1, &[], &[]),
        kernel(1, &[], &[]),
        kernel(1, &[0], &[]),
    ];
    let program = program(kernels, vec![intermediate(1)]);
    let of = |moves: &[(u32, Kind)]| {
        let moves = moves.iter().map(|&(gap, kind)| Move { gap, tensor: TensorId(0), kind });
        Schedule::new(&program, moves.collect()).map(|_| ())
    };
    let save = Kind::Save(Tier::Host);
    assert_eq!(of(&[(1, save), (4, Kind::Drop), (5, BACK)]), Err(Illegal::NoCopy { tensor: 0, gap: 4 }));
    assert_eq!(of(&[(3, save), (4, Kind::Drop), (5, BACK)]), Ok(()));
    // There must be something to save, and somebody who wants it.
    assert_eq!(of(&[(0, save)]), Err(Illegal::Dead { tensor: 0, gap: 0 }));
    assert_eq!(of(&[(3, OUT), (4, save), (5, BACK)]), Err(Illegal::Order { tensor: 0, gap: 4 }));
    assert_eq!(of(&[(3, OUT), (3, save), (5, BACK)]), Err(Illegal::Order { tensor: 0, gap: 3 }));
}
