//! What a slot says of its thread's operations: which are on their way, which are followed, and where their stream is.

use crate::bench::Bench;
use deepum_core::units::{LaunchSeq, StreamSlot, UmBlock};
use std::sync::atomic::Ordering;

#[test]
fn a_refused_operation_is_not_waited_for() {
    let b = Bench::new();
    b.issue(0, 1);
    b.finish(0, 1);
    b.look();
    let before = b.streams.issue(StreamSlot(0), LaunchSeq(2));
    b.outs.open(UmBlock(1));
    b.look();
    assert!(!b.discardable(1));
    b.streams.refused(StreamSlot(0), before);
    b.look();
    assert!(b.discardable(1));
}

#[test]
fn a_stream_is_where_the_last_of_its_threads_is_and_only_what_is_followed_is_waited_for() {
    let b = Bench::new();
    // Two threads, one stream.
    b.streams.claim(StreamSlot(0), StreamSlot(0));
    b.streams.claim(StreamSlot(1), StreamSlot(0));
    let (seq, one) = (LaunchSeq, StreamSlot(1));
    b.streams.issue(one, seq(3));
    assert_eq!(b.streams.followed(one), None, "on its way to the driver");
    b.streams.given(one, seq(3), false);
    assert_eq!(b.streams.followed(one), None, "no progress write is behind it");
    b.streams.issue(one, seq(4));
    b.streams.given(one, seq(4), true);
    assert_eq!(b.streams.followed(one), Some(seq(4)));
    b.finish(0, 2);
    assert_eq!((b.streams.stream_is_at(one), b.streams.stream_is_at(StreamSlot(0))), (seq(2), seq(2)));
    b.finish(1, 4);
    assert_eq!(b.streams.stream_is_at(StreamSlot(0)), seq(4));
    b.streams.claim(one, one);
    assert_eq!(b.streams.stream_is_at(StreamSlot(0)), seq(2), "another stream's");
    b.streams.lose_sight();
    assert_eq!(b.streams.followed(one), None, "nobody knows");
}

#[test]
fn what_no_progress_write_follows_is_asked_about_when_the_driver_has_it() {
    let b = Bench::new();
    let (slot, seq) = (StreamSlot(1), LaunchSeq);
    let bare = || b.streams.bare().collect::<Vec<_>>();
    b.streams.claim(slot, StreamSlot(0));
    assert_eq!((b.streams.stream(slot), b.streams.stream(StreamSlot(0))), (StreamSlot(0), StreamSlot(0)));
    b.streams.issue(slot, seq(1));
    assert_eq!(bare(), [], "on its way to the driver");
    b.streams.given(slot, seq(1), false);
    assert_eq!(bare(), [(slot, seq(1))]);
    assert_eq!(b.streams.finished_before(), 0);
    b.streams.finished(slot, seq(1));
    assert_eq!(bare(), []);
    assert_eq!(b.streams.finished_before(), u64::MAX, "nothing is waited for");
    b.streams.issue(slot, seq(2));
    b.streams.given(slot, seq(2), true);
    assert_eq!(bare(), [], "a progress write is behind it");
    // The GPU was faster.
    b.finish(1, 5);
    b.streams.finished(slot, seq(2));
    assert_eq!((b.streams.finished_before(), b.streams.progress[1].load(Ordering::Relaxed)), (u64::MAX, 5));
}

#[test]
fn whether_any_thread_is_in_a_call_is_seen_of_every_slot() {
    let b = Bench::new();
    let (one, two) = (StreamSlot(0), StreamSlot(1));
    assert!(!b.streams.any_in_call());
    b.streams.claim(one, one);
    b.streams.claim(two, one);
    b.streams.issue(one, LaunchSeq(1));
    let before = b.streams.issue(two, LaunchSeq(2));
    b.streams.given(one, LaunchSeq(1), true);
    assert!(b.streams.any_in_call(), "the other is");
    b.streams.refused(two, before);
    assert!(!b.streams.any_in_call());
}

#[test]
fn an_operation_that_begins_inside_another_is_not_trusted() {
    let b = Bench::new();
    let slot = StreamSlot(0);
    b.streams.claim(slot, slot);
    b.streams.issue(slot, LaunchSeq(1));
    b.streams.issue(slot, LaunchSeq(2));
    b.streams.given(slot, LaunchSeq(2), true);
    b.finish(0, 2);
    assert!(b.streams.is_blind());
    assert_eq!(b.streams.finished_before(), 0);
}
