//! Programs of traces that a person can follow.

use deepum_core::units::{AddrRange, Bytes, DevAddr, Nanos};
use deepum_trace::program::{FromEventsError, Kernel, Life, Pieces, Recorded, Tensor, TensorId, from_events};
use deepum_trace::text;

fn program(lines: &str) -> Result<Recorded, FromEventsError<String>> {
    let text = format!("deepum trace 1\nprogram \"p\"\ndevice \"d\"\nbudget 1\n{lines}");
    let reader = text::Reader::new(text.as_bytes()).unwrap();
    from_events(reader.map(|record| record.map_err(|why| why.to_string())))
}

fn kernel(name: &str, time: u64, reads: &[u32], writes: &[u32]) -> Kernel {
    let ids = |numbers: &[u32]| numbers.iter().copied().map(TensorId).collect();
    Kernel { name: name.into(), time: Nanos(time), reads: ids(reads), writes: ids(writes) }
}

const fn tensor(size: u64, life: Life) -> Tensor {
    Tensor { size: Bytes(size), life }
}

/// A weight at 0x1000 and a buffer of the program's own at 0x900000; one launch in preparation.
const PREPARATION: &str = "\
0 alloc 0x0+4194304
0 alloc 0x900000+2097152
0 active 0x1000+4096
0 name \"init\"
0 name \"work\"
0 launch stream 0 kernel #0 key 0000000000000001 0x1000
0 touched @1 w:0x1000+4096
";

#[test]
fn the_last_whole_iteration_is_taken_with_what_is_told_of_it_later() {
    let lines = "\
1 iteration
1 launch stream 0 kernel #0 key 0000000000000002
1 touched @2 rw:0x1000+4096
1 time @2 77
2 iteration
2 active 0x4000+1024
2 launch stream 0 kernel #1 key 0000000000000003 0x1000 0x4000
2 copy stream 1 from 0x4000+1000 to 0x900000+64
2 inactive 0x4000+1024
2 active 0x4000+2048
2 launch stream 0 kernel #1 key 0000000000000004 0x4000
3 iteration
3 inactive 0x4000+2048
3 inactive 0x1000+4096
3 touched @3 r:0x1000+4096 w:0x4000+1000
3 time @3 10
3 time @4 20
3 touched @5 w:0x4000+1000 r:0x8000+4096
3 time @5 30
3 launch stream 0 kernel #1 key 0000000000000004 0x4000
";
    let recorded = program(&format!("{PREPARATION}{lines}")).unwrap();
    // 0 the weight; 1 what was at 0x4000 first; 2 the buffer; 3 what was at 0x4000 then. 1000 bytes are all of 1024, which is 1000 rounded
    // up, but not of 2048 or of the buffer; nothing is at 0x8000. What happens behind the last mark is not of the iteration.
    let kernels = [kernel("work", 10, &[0], &[1]), kernel("copy", 20, &[1, 2], &[2]), kernel("work", 30, &[3], &[3])];
    assert_eq!(recorded.program.kernels(), kernels);
    let tensors = [
        tensor(4096, Life::Global),
        tensor(1024, Life::Intermediate),
        tensor(2 << 20, Life::Global),
        tensor(2048, Life::Intermediate),
    ];
    assert_eq!(recorded.program.tensors(), tensors);
    assert_eq!(
        recorded.places.iter().map(|place| place.start.0).collect::<Vec<_>>(),
        [0x1000, 0x4000, 0x900000, 0x4000]
    );
    assert_eq!(recorded.births, [Some(TensorId(1)), Some(TensorId(3))]);
}

#[test]
fn what_is_handed_out_from_an_allocation_ends_the_allocation_as_a_tensor_and_freeing_ends_all_in_it() {
    let lines = "\
1 alloc 0x1000000+2097152
1 iteration
1 launch stream 0 kernel #1 key 0000000000000002
1 touched @2 rw:0x1000000+8192
1 time @2 1
1 active 0x1001000+4096
1 launch stream 0 kernel #1 key 0000000000000003
1 touched @3 w:0x1000000+8192
1 time @3 1
1 iteration
";
    let passes = program(&format!("{PREPARATION}{lines}")).unwrap();
    // Tensor 0 is the allocation, 1 the PT block that is cut from it.
    assert_eq!(passes.program.kernels(), [kernel("work", 1, &[0], &[0]), kernel("work", 1, &[], &[1])]);
    assert_eq!(passes.program.tensors(), [tensor(2 << 20, Life::Intermediate), tensor(4096, Life::Intermediate)]);
    let later = format!(
        "{PREPARATION}{}",
        lines.replace("1 iteration\n1 launch", "1 active 0x1000000+4096\n1 iteration\n1 launch")
    );
    let recorded = program(&later).unwrap();
    // The first launch finds the one PT block, which it covers and reads; the second both, and covers both.
    assert_eq!(recorded.program.kernels(), [kernel("work", 1, &[0], &[0]), kernel("work", 1, &[], &[1, 0])]);
    let freed = later.replacen(
        "1 launch stream 0 kernel #1 key 0000000000000003",
        "1 free 0x1000000+2097152\n1 launch stream 0 kernel #1 key 0000000000000003",
        1,
    );
    // The second finds nothing. And what is freed is not held: it may be gone before the GPU comes to it.
    let freed = program(&freed).unwrap().program;
    assert_eq!(freed.kernels(), [kernel("work", 1, &[0], &[0]), kernel("work", 1, &[], &[])]);
    assert_eq!((freed.tensors(), freed.hold(TensorId(0))), (&[tensor(4096, Life::Intermediate)][..], None));
}

#[test]
fn by_pieces_nobody_touches_more_than_is_touched() {
    // The weight's first quarter is read, its middle overwritten, which does not spare anybody to bring it back, and its last byte never touched; of the buffer 40
    // pages are looked up, and all but its end is overwritten at last.
    let looked_up: String = (0..40).map(|n| format!(" r:0x{:x}+4096", 0x900000 + n * 8192)).collect();
    let lines = format!(
        "\
1 iteration
1 launch stream 0 kernel #0 key 0000000000000002
1 touched @2 r:0x1000+1024
1 time @2 7
1 launch stream 0 kernel #1 key 0000000000000003
1 touched @3 w:0x1200+1024{looked_up}
1 time @3 8
1 launch stream 0 kernel #1 key 0000000000000004
1 touched @4 rw:0x900000+2093056
1 time @4 9
2 iteration
"
    );
    let recorded = program(&format!("{PREPARATION}{lines}")).unwrap();
    assert_eq!(recorded.program.kernels()[1], kernel("work", 8, &[0, 1], &[0]));
    let Pieces { program: by_pieces, places } = recorded.by_pieces().unwrap();
    let tensors = [512, 512, 512, 2093056].map(|size| tensor(size, Life::Global));
    assert_eq!(by_pieces.tensors(), tensors);
    let lie = [(0x1000, 512), (0x1200, 512), (0x1400, 512), (0x900000, 2093056)];
    assert_eq!(places, lie.map(|(start, len)| AddrRange::new(DevAddr(start), Bytes(len))));
    let kernels = [kernel("init", 7, &[0, 1], &[]), kernel("work", 8, &[1, 2], &[1, 2]), kernel("work", 9, &[3], &[3])];
    assert_eq!(by_pieces.kernels(), kernels);
}

#[test]
fn what_is_from_before_may_go_if_it_is_not_touched() {
    let iteration = "\
1 iteration
1 inactive 0x8000+4096
1 active 0x8000+4096
1 launch stream 0 kernel #1 key 0000000000000002 0x8000
1 touched @2 w:0x8000+4096
1 time @2 5
1 iteration
";
    let recorded = program(&format!("{PREPARATION}0 active 0x8000+4096\n{iteration}")).unwrap();
    assert_eq!(recorded.program.tensors(), [tensor(4096, Life::Intermediate)]);
}

/// By tensor how long it is held in this iteration, and the same by pieces. In it `+` and `-` hand out and take back, and the rest are launches by what they touch.
fn holds(before: &str, iteration: &[&str]) -> [Vec<Option<u32>>; 2] {
    let mut place = 1;
    let mut line = |what: &&str| match what.split_at(1) {
        ("+", range) => format!("1 active {range}\n"),
        ("-", range) => format!("1 inactive {range}\n"),
        _ => {
            place += 1;
            let launch = "1 launch stream 0 kernel #1 key 0000000000000002";
            format!("{launch}\n1 touched @{place} {what}\n1 time @{place} 5\n")
        }
    };
    let iteration: String = iteration.iter().map(&mut line).collect();
    let recorded = program(&format!("{PREPARATION}{before}1 iteration\n{iteration}1 iteration\n")).unwrap();
    [recorded.program.clone(), recorded.by_pieces().unwrap().program]
        .map(|program| program.ids().map(|id| program.hold(id)).collect())
}

const WEIGHT: &str = "rw:0x1000+4096";

#[test]
fn a_tensor_is_held_over_all_that_is_launched_before_it_is_taken_back() {
    let makes = "w:0x8000+4096";
    let [whole, pieces] = holds("", &["+0x8000+4096", makes, "r:0x8000+2048", WEIGHT, "-0x8000+4096", "r:0x1000+4096"]);
    assert_eq!((whole, pieces), (vec![Some(2), None], vec![Some(2), Some(2), None]));
    // As what it was not handed out as it may be anything.
    let [whole, _] = holds("", &["+0x8000+4096", makes, WEIGHT, "-0x8000+2048", WEIGHT]);
    assert_eq!(whole, [None, None]);
}

#[test]
fn what_passes_the_mark_is_held_until_its_place_is_taken_back_or_touched() {
    let (born, gone, makes) = ("+0x8000+4096", "-0x8000+4096", "w:0x8000+4096");
    assert_eq!(holds("", &[WEIGHT, born, makes, WEIGHT])[0], [None, Some(2)]);
    let before = "0 active 0x8000+4096\n";
    assert_eq!(holds(before, &[WEIGHT, WEIGHT, gone, born, makes])[0], [None, Some(4)]);
    // What is there of it before is a tensor that ends, but nobody knows what copy there is of what was not written since.
    let [whole, pieces] = holds(before, &[WEIGHT, "r:0x8000+4096", WEIGHT, gone, born, makes]);
    assert_eq!((whole, pieces), (vec![None, Some(2), Some(4)], vec![None, Some(4)]));
    let [_, pieces] = holds(before, &[WEIGHT, "rw:0x8000+2048", WEIGHT, gone, born, makes]);
    assert_eq!(pieces, [None, Some(2), Some(4)]);
}

#[test]
fn what_is_missing_is_named() {
    let said = |lines: &str| program(&format!("{PREPARATION}{lines}")).unwrap_err().to_string();
    assert_eq!(said("1 iteration\n"), "1 iteration marks in the trace: two at least are needed");
    assert_eq!(said("1 iteration\n1 iteration\n"), "the last iteration: there are no kernels");
    let launch = "1 launch stream 0 kernel #1 key 0000000000000002\n";
    let unknown = said(&format!("1 iteration\n{launch}1 time @2 5\n1 iteration\n"));
    assert_eq!(unknown, "of the launch or copy at place 2 the trace does not say what it touches");
    let unknown = said(&format!("1 iteration\n{launch}1 touched @2\n1 iteration\n"));
    assert_eq!(unknown, "of the launch or copy at place 2 the trace does not say how long it takes");
    assert_eq!(said("1 iteration\nx\n"), "line 13: \"x\" where a time in ns should be");
}
