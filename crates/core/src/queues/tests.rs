//! Small scenes; against plain lists they are tried in `tests/oracle.rs`.

use super::*;
use crate::steps::Step;

fn fault(n: u64) -> Command {
    Command::Fetch { block: UmBlock(n), why: Why::Fault }
}
fn predicted(n: u64, by: u64) -> Command {
    Command::Fetch { block: UmBlock(n), why: Why::Predicted { by: LaunchSeq(by) } }
}
fn evict(n: u64) -> Command {
    Command::Evict { block: UmBlock(n) }
}
fn discard(n: u64) -> Command {
    Command::Discard { block: UmBlock(n) }
}
fn push_all(queues: &mut Queues, commands: &[Command]) {
    for &command in commands {
        queues.push(command);
    }
}
/// One thread for all hands.
fn pop(queues: &mut Queues, most: u32) -> Option<(Lane, u64, u32)> {
    Hand::ALL.into_iter().for_each(|hand| queues.done(hand));
    let batch = Hand::ALL.into_iter().find_map(|hand| queues.pop_batch(hand, most));
    batch.map(|b| (b.lane, b.first.0, b.count))
}
/// The next batch of this hand.
fn first(queues: &mut Queues, hand: Hand) -> Option<(Lane, u64, u32)> {
    queues.pop_batch(hand, 16).map(|b| (b.lane, b.first.0, b.count))
}
fn all(queues: &mut Queues, most: u32) -> Vec<(Lane, u64, u32)> {
    std::iter::from_fn(|| pop(queues, most)).collect()
}

#[test]
fn evictions_make_room_then_faults_come_before_predictions() {
    let mut queues = Queues::default();
    for command in [predicted(1, 1), evict(20), fault(30), predicted(3, 1), fault(10)] {
        assert_eq!(queues.push(command), Pushed::Queued);
    }
    use Lane::{Evict, Fault, Predicted};
    let expected = [(Evict, 20, 1), (Fault, 30, 1), (Fault, 10, 1), (Predicted, 1, 1), (Predicted, 3, 1)];
    assert_eq!(all(&mut queues, 16), expected);
    assert!(queues.is_empty());
}

#[test]
fn a_save_that_is_under_way_does_not_end_what_is_asked_for_meanwhile() {
    let mut queues = Queues::default();
    queues.push(Command::Save { block: UmBlock(1) });
    assert_eq!(queues.pop_batch(Hand::Out, 16).map(|batch| batch.lane), Some(Lane::Save));
    let drop = Command::Drop { block: UmBlock(1) };
    for command in [evict(1), drop, discard(1)] {
        assert_eq!(queues.push(command), Pushed::Full, "{command:?}");
    }
    queues.done(Hand::Out);
    assert_eq!(queues.push(evict(1)), Pushed::Queued);
}

#[test]
fn no_block_waits_twice_and_a_fault_overtakes() {
    let mut queues = Queues::default();
    queues.push(predicted(1, 1));
    assert_eq!(queues.push(predicted(1, 2)), Pushed::Known);
    assert_eq!(queues.push(fault(1)), Pushed::Replaced(Lane::Predicted));
    assert_eq!(queues.push(predicted(1, 1)), Pushed::Known);
    assert_eq!(queues.push(evict(1)), Pushed::Full, "the GPU waits for it");
    assert_eq!(all(&mut queues, 16), [(Lane::Fault, 1, 1)]);
}

#[test]
fn an_eviction_and_a_fetch_of_the_same_block_replace_each_other() {
    let mut queues = Queues::default();
    queues.push(evict(1));
    assert_eq!(queues.push(predicted(1, 1)), Pushed::Replaced(Lane::Evict));
    assert_eq!(queues.push(evict(1)), Pushed::Replaced(Lane::Predicted));
    assert_eq!(all(&mut queues, 16), [(Lane::Evict, 1, 1)]);
}

#[test]
fn a_block_being_fetched_is_not_queued_again_and_no_longer_evicted() {
    let mut queues = Queues::default();
    queues.push(predicted(1, 1));
    queues.push(predicted(2, 1));
    assert_eq!(pop(&mut queues, 16), Some((Lane::Predicted, 1, 2)));
    assert_eq!(queues.push(fault(2)), Pushed::Known);
    queues.push(evict(2));
    assert_eq!(queues.push(fault(2)), Pushed::Known);
    assert_eq!(pop(&mut queues, 16), None, "the eviction was taken out again");
    assert_eq!(queues.push(fault(2)), Pushed::Queued, "no longer in hand");
}

#[test]
fn what_one_direction_has_in_hand_the_other_passes_over() {
    let mut queues = Queues::default();
    push_all(&mut queues, &[evict(1), evict(2)]);
    assert_eq!(first(&mut queues, Hand::Out), Some((Lane::Evict, 1, 2)));
    push_all(&mut queues, &[fault(2), fault(7), predicted(3, 1)]);
    assert_eq!(queues.push(discard(1)), Pushed::Known, "it is being evicted");
    assert_eq!(first(&mut queues, Hand::In), Some((Lane::Fault, 7, 1)));
    assert_eq!(first(&mut queues, Hand::In), Some((Lane::Predicted, 3, 1)));
    assert_eq!(first(&mut queues, Hand::In), None);
    assert!(!queues.is_empty());
    queues.done(Hand::Out);
    assert_eq!(first(&mut queues, Hand::In), Some((Lane::Fault, 2, 1)));
    queues.push(evict(2));
    assert_eq!(first(&mut queues, Hand::Out), None, "it is being fetched");
}

#[test]
fn discards_come_before_evictions_and_are_taken_back_by_whoever_wants_the_block() {
    let mut queues = Queues::default();
    push_all(&mut queues, &[evict(9), discard(1), discard(2), discard(5), evict(6)]);
    assert_eq!(queues.push(predicted(2, 1)), Pushed::Replaced(Lane::Discard));
    assert_eq!(queues.push(Command::Cancel { block: UmBlock(1) }), Pushed::Cancelled(Some(Lane::Discard)));
    assert_eq!(queues.push(discard(6)), Pushed::Replaced(Lane::Evict));
    let expected = [(Lane::Discard, 5, 2), (Lane::Evict, 9, 1), (Lane::Predicted, 2, 1)];
    assert_eq!(all(&mut queues, 16), expected);
}

#[test]
fn batches_are_consecutive_and_bounded_and_predicted_ones_for_one_launch() {
    let mut queues = Queues::default();
    for command in [10, 50, 11, 12, 13].map(|n| predicted(n, 7)) {
        queues.push(command);
    }
    queues.push(predicted(14, 8));
    use Lane::Predicted;
    let expected = [(Predicted, 10, 3), (Predicted, 50, 1), (Predicted, 13, 1), (Predicted, 14, 1)];
    assert_eq!(all(&mut queues, 3), expected);
    for command in [fault(10), fault(50), fault(11), predicted(12, 3), evict(13)] {
        queues.push(command);
    }
    let expected = [(Lane::Evict, 13, 1), (Lane::Fault, 10, 3), (Lane::Fault, 50, 1)];
    assert_eq!(all(&mut queues, 16), expected, "a fault takes along what waits to be fetched behind it");
}

#[test]
fn a_full_predicted_lane_drops_the_newcomer_and_the_fault_lane_never() {
    let mut queues = Queues::new(2);
    queues.push(predicted(1, 1));
    queues.push(predicted(3, 1));
    queues.push(evict(5));
    assert_eq!(queues.push(predicted(5, 1)), Pushed::Full);
    assert_eq!(queues.waiting(Lane::Evict), 0, "still wanted, so not evicted");
    assert_eq!(queues.push(fault(7)), Pushed::Queued);
    assert_eq!(queues.push(fault(3)), Pushed::Replaced(Lane::Predicted));
    assert_eq!(queues.push(predicted(9, 1)), Pushed::Queued, "3 made room");
}

#[test]
fn a_cancelled_prediction_is_gone_and_nothing_else_is() {
    let mut queues = Queues::default();
    queues.push(predicted(1, 1));
    queues.push(fault(2));
    assert_eq!(queues.push(Command::Cancel { block: UmBlock(1) }), Pushed::Cancelled(Some(Lane::Predicted)));
    assert_eq!(queues.push(Command::Cancel { block: UmBlock(2) }), Pushed::Cancelled(None));
    assert_eq!(all(&mut queues, 16), [(Lane::Fault, 2, 1)]);
}

#[test]
fn predicted_fetches_come_in_the_order_of_their_launches() {
    let mut queues = Queues::default();
    push_all(&mut queues, &[predicted(1, 5), predicted(9, 5), predicted(20, 6), predicted(30, 2)]);
    assert_eq!(queues.push(predicted(20, 2)), Pushed::Known, "a new plan wants it sooner");
    assert_eq!(queues.push(predicted(1, 8)), Pushed::Known, "and this one later");
    use Lane::Predicted;
    assert_eq!(all(&mut queues, 16), [(Predicted, 30, 1), (Predicted, 20, 1), (Predicted, 9, 1), (Predicted, 1, 1)]);
}

#[test]
fn predicted_fetches_wait_for_room_and_nothing_else_does() {
    let mut queues = Queues::default();
    queues.set_room(3);
    push_all(&mut queues, &[1, 2, 3, 4, 5].map(|n| predicted(n, 1)));
    assert_eq!(pop(&mut queues, 2), Some((Lane::Predicted, 1, 2)));
    queues.set_room(3);
    push_all(&mut queues, &[fault(9)]);
    assert_eq!(pop(&mut queues, 2), Some((Lane::Fault, 9, 1)));
    assert_eq!(pop(&mut queues, 2), Some((Lane::Predicted, 3, 1)), "two of the three were in hand");
    assert_eq!(pop(&mut queues, 2), None);
    queues.set_room(usize::MAX);
    assert_eq!(pop(&mut queues, 2), Some((Lane::Predicted, 4, 2)));
}

#[test]
fn two_hands_bring_what_waits_in_one_lane() {
    let mut queues = Queues::default();
    push_all(&mut queues, &[1, 2, 3, 4, 5, 6].map(|n| predicted(n, 1)));
    let next = |queues: &mut Queues, hand| queues.pop_batch(hand, BATCH).map(|b| (b.lane, b.first.0, b.count));
    assert_eq!(next(&mut queues, Hand::In), Some((Lane::Predicted, 1, 4)));
    assert_eq!(next(&mut queues, Hand::In2), Some((Lane::Predicted, 5, 2)));
    assert_eq!([queues.push(predicted(2, 1)), queues.push(predicted(6, 1))], [Pushed::Known; 2], "they come");
    queues.set_room(7);
    push_all(&mut queues, &[predicted(10, 1), predicted(12, 1), fault(5)]);
    assert_eq!(next(&mut queues, Hand::In), Some((Lane::Predicted, 10, 1)), "six of the seven come");
    assert_eq!(next(&mut queues, Hand::In2), None);
}

#[test]
fn what_the_gpu_stands_before_goes_before_touches() {
    let keep = |n| Command::Fetch { block: UmBlock(n), why: Why::Keep };
    let new = |n, by| Command::Fetch { block: UmBlock(n), why: Why::Populate { by: LaunchSeq(by) } };
    let mut queues = Queues::default();
    push_all(&mut queues, &[new(1, 6), keep(10), predicted(20, 5), predicted(30, 6), fault(40)]);
    queues.set_due(Some(LaunchSeq(5)));
    use Lane::{Fault, Keep, Predicted};
    let expected = [(Fault, 40, 1), (Predicted, 20, 1), (Keep, 10, 1), (Predicted, 1, 1), (Predicted, 30, 1)];
    assert_eq!(all(&mut queues, 16), expected);
}

#[test]
fn what_leaves_is_dropped_if_the_host_has_it_and_keeps_a_copy_if_that_is_asked() {
    use Step::{Duplicate, Leave, ToHost};
    let (drop, mut queues) = (|n| Command::Drop { block: UmBlock(n) }, Queues::default());
    let mut next = |command, there| {
        queues.push_about(command, there);
        let batch = queues.pop_batch(Hand::Out, 16).unwrap();
        batch.blocks().for_each(|block| queues.moved(Hand::Out, block));
        queues.done(Hand::Out);
        (batch.lane, batch.steps())
    };
    assert_eq!(next(evict(1), false), (Lane::Evict, &[Leave][..]));
    assert_eq!(next(drop(1), false), (Lane::Evict, &[ToHost, Duplicate(true)][..]));
    assert_eq!(next(drop(1), true), (Lane::Drop, &[Duplicate(false), ToHost, Duplicate(true)][..]));
    assert_eq!(next(evict(1), true), (Lane::Drop, &[Duplicate(false), ToHost][..]));
    assert_eq!(next(evict(1), false), (Lane::Evict, &[Leave][..]));
}
