//! Launches of a few streams, by hand.

use super::*;
use crate::units::{Bytes, DevAddr, KernelId, LaunchKey};

fn issue(window: &mut Window, map: &PtBlocks, seq: u64, stream: u16, pointers: &[DevAddr]) {
    let launch =
        Launch { seq: LaunchSeq(seq), stream: StreamSlot(stream), key: LaunchKey(seq), kernel: KernelId(0), pointers };
    let reach = window.reach(pointers, map);
    window.issue(&launch, Some(ExecId(0)), reach);
}
fn finish(window: &mut Window, stream: u16, done: u64) -> Vec<u64> {
    window.progress(StreamSlot(stream), LaunchSeq(done));
    std::iter::from_fn(|| window.pop_finished().map(|launch| launch.seq.0)).collect()
}
fn map() -> PtBlocks {
    let mut map = PtBlocks::default();
    map.alloc(AddrRange::new(DevAddr(0), Bytes::mib(100)));
    map.report(AddrRange::new(DevAddr(0), Bytes::mib(3)), true, LaunchSeq(0), LaunchSeq(0));
    map.report(AddrRange::new(UmBlock(10).start(), Bytes::mib(2)), true, LaunchSeq(0), LaunchSeq(0));
    map
}

#[test]
fn a_launch_may_touch_what_its_pointers_reach() {
    let mut window = Window::default();
    issue(&mut window, &map(), 1, 0, &[DevAddr(5), DevAddr(6), UmBlock(10).start()]);
    let blocks: Vec<u64> = window.get(LaunchSeq(1)).unwrap().blocks().map(|block| block.0).collect();
    assert_eq!(blocks, [0, 1, 10], "the second pointer names the same PT block again");
    assert!(!window.get(LaunchSeq(1)).unwrap().may_touch(UmBlock(2)));
}

#[test]
fn operands_advance_together() {
    let mut map = PtBlocks::default();
    map.report(AddrRange::new(UmBlock(100).start(), Bytes::mib(2 * 40)), true, LaunchSeq(0), LaunchSeq(0));
    map.report(AddrRange::new(UmBlock(200).start(), Bytes::mib(2 * 3)), true, LaunchSeq(0), LaunchSeq(0));
    let mut window = Window::default();
    issue(&mut window, &map, 1, 0, &[UmBlock(100).start(), UmBlock(200).start()]);
    let blocks: Vec<u64> = window.get(LaunchSeq(1)).unwrap().blocks().map(|block| block.0).collect();
    let expected: Vec<u64> =
        (100..113).chain([200]).chain(113..126).chain([201]).chain(126..140).chain([202]).collect();
    assert_eq!(blocks, expected);
}

#[test]
fn launches_leave_in_order_when_their_stream_has_passed_them() {
    let (mut window, map) = (Window::default(), map());
    for (seq, stream) in [(1, 0), (2, 1), (3, 0), (4, 1)] {
        issue(&mut window, &map, seq, stream, &[]);
    }
    assert_eq!(finish(&mut window, 0, 3), [1], "2 still runs, so 3 waits behind it");
    assert_eq!(window.oldest().unwrap().seq, LaunchSeq(2));
    assert_eq!(finish(&mut window, 1, 2), [2, 3]);
    assert_eq!(finish(&mut window, 1, 4), [4]);
}

#[test]
fn records_out_of_order_are_sorted_and_a_late_record_is_over_at_once() {
    let (mut window, map) = (Window::default(), map());
    issue(&mut window, &map, 2, 0, &[]);
    issue(&mut window, &map, 1, 0, &[]);
    assert_eq!(window.oldest().unwrap().seq, LaunchSeq(1));
    assert_eq!(finish(&mut window, 0, 3), [1, 2]);
    issue(&mut window, &map, 3, 0, &[]);
    assert_eq!(window.pop_finished().map(|launch| launch.seq.0), Some(3));
}

#[test]
fn a_launch_of_which_no_progress_is_known_holds_nobody_up() {
    let (mut window, map) = (Window::default(), map());
    issue(&mut window, &map, 1, StreamSlot::NONE.0, &[DevAddr(0)]);
    issue(&mut window, &map, 2, 0, &[DevAddr(0)]);
    assert_eq!(window.attribute(UmBlock(0)).map(|launch| launch.seq.0), Some(2));
    assert_eq!(finish(&mut window, 0, 2), [1, 2]);
}

#[test]
fn a_fault_belongs_to_the_executing_launch_that_reaches_it_else_to_the_stream_that_moved_last() {
    let (mut window, map) = (Window::default(), map());
    issue(&mut window, &map, 1, 0, &[DevAddr(0)]);
    issue(&mut window, &map, 2, 1, &[UmBlock(10).start()]);
    issue(&mut window, &map, 3, 1, &[UmBlock(50).start()]);
    let owner = |window: &Window, block| window.attribute(UmBlock(block)).map(|launch| launch.seq.0);
    assert_eq!(owner(&window, 10), Some(2));
    assert_eq!(owner(&window, 1), Some(1));
    assert_eq!(owner(&window, 50), Some(1), "3 is not executing: 2 is before it; no stream has moved");
    finish(&mut window, 1, 2);
    assert_eq!(owner(&window, 50), Some(3));
    assert_eq!(owner(&window, 200), Some(3), "reached by none: stream 1 moved last");
    assert_eq!(owner(&Window::default(), 1), None);
}

#[test]
fn streams_have_any_slots_and_only_the_first_launch_of_each_is_executing() {
    for slots in [[300, 511], [60, 300]] {
        let (mut window, map) = (Window::default(), map());
        issue(&mut window, &map, 1, slots[0], &[DevAddr(0)]);
        issue(&mut window, &map, 2, slots[1], &[]);
        issue(&mut window, &map, 3, slots[0], &[UmBlock(10).start()]);
        assert_eq!(window.busy, 2);
        assert!(window.attribute(UmBlock(10)).is_some_and(|owner| owner.seq != LaunchSeq(3)), "1 is before it");
        finish(&mut window, slots[0], 1);
        assert_eq!(window.attribute(UmBlock(10)).map(|owner| owner.seq), Some(LaunchSeq(3)));
        finish(&mut window, slots[0], 3);
        assert_eq!((window.busy, window.attribute(UmBlock(10)).map(|owner| owner.seq)), (1, Some(LaunchSeq(2))));
        window.clear();
        assert_eq!(window.busy, 0);
    }
}

#[test]
fn a_copy_keeps_its_blocks_in_use_and_is_no_launch() {
    let (mut window, map) = (Window::default(), map());
    issue(&mut window, &map, 1, 0, &[DevAddr(0)]);
    let copied = AddrRange::new(UmBlock(10).start(), Bytes::mib(1));
    assert!(window.issue_copy(LaunchSeq(2), StreamSlot(0), copied, false).is_none());
    issue(&mut window, &map, 3, 0, &[DevAddr(0)]);
    assert_eq!(window.after(LaunchSeq(1)).map(|copy| (copy.seq.0, copy.is_copy())), Some((2, true)));
    assert_eq!(window.executing().map(|launch| launch.seq.0), Some(1));
    assert!(window.uses(UmBlock(10)) && window.has_reading_copy(), "though another one is executing");
    assert_eq!(finish(&mut window, 0, 1), [1]);
    assert!(window.oldest().is_some_and(|copy| copy.is_copy() && copy.reaches(UmBlock(10))));
    assert!(window.is_over(LaunchSeq(1)) && !window.is_over(LaunchSeq(2)));
    assert_eq!(window.attribute(UmBlock(10)).map(|owner| owner.exec), Some(None), "its faults teach nothing");
    while let Some(over) = {
        window.progress(StreamSlot(0), LaunchSeq(3));
        window.pop_finished()
    } {
        window.recycle(over);
    }
    assert!(!window.uses(UmBlock(10)) && !window.has_reading_copy());
}

#[test]
fn what_one_copy_reads_and_writes_is_one_copy() {
    let mut window = Window::default();
    for (block, write) in [(10, false), (20, true)] {
        assert!(window.issue_copy(LaunchSeq(1), StreamSlot(0), UmBlock(block).range(), write).is_none());
        assert_eq!(window.has_reading_copy(), !write, "it goes to the host unless it writes something managed, too");
    }
    assert!(window.oldest().is_some_and(|copy| copy.reaches(UmBlock(10)) && copy.reaches(UmBlock(20))));
    assert_eq!((window.len(), window.busy, window.uses(UmBlock(20))), (1, 1, true));
    window.progress(StreamSlot(0), LaunchSeq(1));
    let over = window.pop_finished().expect("the copy");
    window.recycle(over);
    assert_eq!((window.len(), window.busy, window.uses(UmBlock(20))), (0, 0, false));
}

#[test]
fn a_full_window_lets_the_oldest_go() {
    let (mut window, map) = (Window::default(), map());
    for seq in 1..=LIMIT as u64 {
        issue(&mut window, &map, seq, 0, &[]);
    }
    let launch = Launch {
        seq: LaunchSeq(LIMIT as u64 + 1),
        stream: StreamSlot(0),
        key: LaunchKey(0),
        kernel: KernelId(0),
        pointers: &[],
    };
    assert_eq!(window.issue(&launch, None, Vec::new()).map(|gone| gone.seq), Some(LaunchSeq(1)));
    assert_eq!((window.len(), window.busy), (LIMIT, 1));
    finish(&mut window, 0, LIMIT as u64 + 1);
    assert_eq!((window.len(), window.busy), (0, 0));
}
