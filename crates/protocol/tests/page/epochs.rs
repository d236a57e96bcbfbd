//! A release is over once all that was issued before it is finished, and nothing after it is waited for.

use crate::bench::Bench;
use deepum_core::units::{LaunchSeq, StreamSlot, UmBlock};
use proptest::prelude::*;
use std::sync::atomic::Ordering;

#[test]
fn a_block_waits_for_what_was_issued_before_its_release_and_for_nothing_after() {
    let b = Bench::new();
    b.outs.open(UmBlock(1));
    b.look();
    assert!(b.discardable(1), "nothing was ever issued");
    b.outs.hold(UmBlock(1));
    b.issue(0, 1);
    b.issue(1, 2);
    b.look();
    assert!(!b.discardable(1), "held");
    b.release(1);
    for seq in 3..200 {
        b.issue(0, seq);
        b.look();
    }
    assert!(!b.discardable(1), "the second stream has not finished its only launch");
    b.finish(1, 2);
    b.look();
    assert!(!b.discardable(1), "nor has the first");
    b.finish(0, 1);
    b.look();
    assert!(b.discardable(1), "197 launches are queued, but they came later");
}

#[test]
fn a_launch_right_behind_a_release_is_not_waited_for_whenever_the_engine_looks() {
    let b = Bench::new();
    for block in 1..4 {
        b.outs.open(UmBlock(block));
        b.outs.hold(UmBlock(block));
    }
    b.issue(0, 1);
    b.release(1);
    b.issue(0, 2);
    b.release(2);
    b.release(3);
    b.issue(0, 3);
    let free = |b: &Bench| [1, 2, 3].map(|block| b.discardable(block));
    b.look();
    assert_eq!(free(&b), [false; 3]);
    for (finished, want) in [(1, [true, false, false]), (2, [true; 3])] {
        b.finish(0, finished);
        b.look();
        assert_eq!(free(&b), want, "{finished} finished");
    }
}

/// Eight ends are kept: who is further ahead than that is waited for longer, and not for good.
#[test]
fn of_epochs_that_ended_too_long_ago_more_is_waited_for() {
    let b = Bench::new();
    b.outs.open(UmBlock(1));
    b.outs.hold(UmBlock(1));
    b.issue(0, 1);
    b.release(1);
    for seq in 2..30 {
        b.issue(0, seq);
        b.grace.stamp();
    }
    for (finished, over) in [(1, false), (20, false), (21, true)] {
        b.finish(0, finished);
        b.look();
        assert_eq!(b.discardable(1), over, "{finished} finished");
    }
}

/// What slots, releases and the engine's look do in any order, against a list of what was issued and finished.
#[derive(Clone, Debug)]
enum Act {
    Issue { slot: u16, refused: bool },
    Release,
    Finish { slot: u16, share: usize },
    Look,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0u16..2, prop::bool::weighted(0.1)).prop_map(|(slot, refused)| Act::Issue { slot, refused }),
        3 => Just(Act::Release),
        2 => (0u16..2, 1usize..4).prop_map(|(slot, share)| Act::Finish { slot, share }),
        2 => Just(Act::Look),
    ]
}

proptest! {
    /// A stamp is over only if all issued before it is finished; and it is, once the engine has looked, where few epochs are open.
    #[test]
    fn a_stamp_is_over_when_what_was_issued_before_is_finished(acts in prop::collection::vec(act(), 1..120)) {
        let b = Bench::new();
        let (mut issued, mut done): ([Vec<u64>; 2], [u64; 2]) = Default::default();
        let mut stamps: Vec<(u64, [u64; 2])> = Vec::new();
        let mut seq = 0;
        for act in acts {
            match act {
                Act::Issue { slot, refused } => {
                    seq += 1;
                    let at = StreamSlot(slot);
                    b.streams.claim(at, at);
                    let before = b.streams.issue(at, LaunchSeq(seq));
                    if refused {
                        b.streams.refused(at, before);
                    } else {
                        b.streams.given(at, LaunchSeq(seq), true);
                        issued[usize::from(slot)].push(seq);
                    }
                }
                Act::Release => {
                    let newest = [0, 1].map(|slot: usize| issued[slot].last().copied().unwrap_or(0));
                    stamps.push((b.grace.stamp(), newest));
                }
                Act::Finish { slot, share } => {
                    let at = usize::from(slot);
                    let waiting: Vec<u64> = issued[at].iter().copied().filter(|&seq| seq > done[at]).collect();
                    let Some(&last) = waiting.get(waiting.len() * share / 4) else { continue };
                    done[at] = last;
                    b.finish(slot, last);
                }
                Act::Look => {
                    b.look();
                    let newest = stamps.last().map_or(0, |&(stamp, _)| stamp);
                    let open = newest.saturating_sub(b.grace.ended.load(Ordering::Relaxed));
                    for &(stamp, newest) in &stamps {
                        let finished = [0, 1].iter().all(|&slot: &usize| done[slot] >= newest[slot]);
                        prop_assert!(finished || !b.grace.is_over(stamp), "{stamp} is not over");
                        prop_assert!(!finished || open >= 8 || b.grace.is_over(stamp), "{stamp} is over");
                    }
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_followed_is_never_finished() {
    let b = Bench::new();
    b.outs.open(UmBlock(1));
    b.outs.hold(UmBlock(1));
    b.release(1);
    b.streams.lose_sight();
    b.issue(0, 1);
    b.finish(0, 1);
    for _ in 0..5 {
        b.look();
    }
    assert!(!b.discardable(1) && b.streams.is_blind());
}

#[test]
fn nor_is_what_has_no_slot() {
    let b = Bench::new();
    b.outs.open(UmBlock(1));
    b.outs.hold(UmBlock(1));
    b.streams.lose_sight();
    b.release(1);
    (0..5).for_each(|_| b.look());
    assert!(!b.discardable(1));
}
