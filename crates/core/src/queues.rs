//! Stage 6 of 7: queues. What waits for the migration thread, in which order.
//!
//! Problem: one thread moves pages, and the GPU may be standing still for one of them while hundreds are
//! wanted only soon.
//! Idea: four lanes. *Evict* first: room that the budget asks for, never more than the next few fetches need
//! (`evict`). Then *fault*: the GPU waits. Then *keep*: touches, cheap, and too late behind a transfer. Last
//! *predicted* fetches. The paper has *fault* before *predicted* and no others (DeepUM, ASPLOS'23, section 3.2).
//!
//! Invariants:
//! - a block waits at most once: a fault overtakes the same block's prefetch or eviction, a prefetch
//!   or touch replaces its eviction, and an eviction those, but never a fault; a prefetch replaces a touch;
//! - a fetch of a block in the range given out last is not queued again: it is being carried out;
//! - the other lanes are bounded by the number of managed blocks, since none waits twice, and drop nothing; the predicted lane holds at most its limit and drops what comes beyond it.
//!
//! Entries taken out of the middle stay behind as *stale* ones until they reach the front or outnumber the
//! live ones.
//! Not here: threads and locks (`crates/engine`), and what a move is (the mover).

use std::collections::VecDeque;

use crate::command::{Command, Why};
use crate::mix::Map;
use crate::units::{AddrRange, Bytes, LaunchSeq, UmBlock};

/// Which lane a batch came from, and with it what to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lane {
    /// Move to host memory.
    Evict,
    /// Fetch: the GPU waits.
    Fault,
    /// Fetch what is believed to be there: touch.
    Keep,
    /// Fetch: wanted soon, or new memory.
    Predicted,
}

impl Lane {
    /// All of them, in the order they are served.
    pub const ALL: [Self; 4] = [Self::Evict, Self::Fault, Self::Keep, Self::Predicted];
}

/// Consecutive blocks to move the same way: one call of the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// What to do.
    pub lane: Lane,
    /// The lowest block.
    pub first: UmBlock,
    /// How many from there; at least 1.
    pub count: u32,
}

impl Batch {
    /// The bytes to move.
    pub const fn range(self) -> AddrRange {
        AddrRange::new(self.first.start(), Bytes(UmBlock::SIZE.get() * self.count as u64))
    }
    /// Each block, lowest first.
    pub fn blocks(self) -> impl ExactSizeIterator<Item = UmBlock> {
        (0..self.count).map(move |n| UmBlock(self.first.0 + u64::from(n)))
    }
    fn contains(self, block: UmBlock) -> bool {
        (self.first.0..self.first.0 + u64::from(self.count)).contains(&block.0)
    }
}

/// What became of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// It waits now.
    Queued,
    /// It took the place of another command for the same block.
    Replaced,
    /// The block waits already, or is being fetched: nothing to add.
    Known,
    /// The predicted lane is full. The engine is to hear of it ([`crate::Engine::hand_over`]).
    Full,
    /// A `Cancel` took out what waited, or found nothing.
    Cancelled(bool),
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    lane: Lane,
    number: u64,
    /// The launch a predicted fetch is for; batches do not reach across launches.
    by: Option<LaunchSeq>,
}

/// See the module.
#[derive(Debug)]
pub struct Queues {
    lanes: [VecDeque<(UmBlock, u64)>; Lane::ALL.len()],
    live: [usize; Lane::ALL.len()],
    waiting: Map<UmBlock, Waiting>,
    in_hand: Option<Batch>,
    pushed: u64,
    limit: usize,
}

impl Queues {
    /// Most predicted fetches waiting unless told otherwise: 128 GiB of them. The plan stops before that on any device
    /// of less than twice as much, since it fills at most half of what fits.
    pub const LIMIT: usize = 1 << 16;

    /// `limit` is the most predicted fetches that may wait.
    pub fn new(limit: usize) -> Self {
        Self {
            lanes: Default::default(),
            live: [0; Lane::ALL.len()],
            waiting: Map::default(),
            in_hand: None,
            pushed: 0,
            limit,
        }
    }

    /// Puts a command where it belongs.
    pub fn push(&mut self, command: Command) -> Pushed {
        let (block, lane, by) = match command {
            Command::Fetch { block, why: Why::Fault } => (block, Lane::Fault, None),
            Command::Fetch { block, why: Why::Predicted { by } } => (block, Lane::Predicted, Some(by)),
            Command::Fetch { block, why: Why::Keep } => (block, Lane::Keep, None),
            Command::Fetch { block, why: Why::Populate } => (block, Lane::Predicted, None),
            Command::Evict { block } => (block, Lane::Evict, None),
            Command::Cancel { block } => return self.cancel(block),
        };
        let fetched_now = self.in_hand.is_some_and(|batch| batch.lane != Lane::Evict && batch.contains(block));
        if fetched_now && lane != Lane::Evict {
            // An eviction that waits would undo what is being fetched.
            self.take_out(block, Lane::Evict);
            return Pushed::Known;
        }
        let before = self.waiting.get(&block).map(|waiting| waiting.lane);
        match (before, lane) {
            (Some(Lane::Fault), _) => return Pushed::Known,
            (Some(before), lane) if before == lane => return Pushed::Known,
            // It waits to be fetched already, and is in its place. (The other way round it is known to have left: no
            // longer a touch.)
            (Some(Lane::Predicted), Lane::Keep) => return Pushed::Known,
            (before, Lane::Predicted) if self.live[Lane::Predicted as usize] >= self.limit => {
                // The block is wanted: better not evicted, even if the fetch has no room.
                if before == Some(Lane::Evict) {
                    self.take_out(block, Lane::Evict);
                }
                return Pushed::Full;
            }
            _ => {}
        }
        if let Some(before) = before {
            self.take_out(block, before);
        }
        self.pushed += 1;
        self.waiting.insert(block, Waiting { lane, number: self.pushed, by });
        self.lanes[lane as usize].push_back((block, self.pushed));
        self.live[lane as usize] += 1;
        if before.is_some() { Pushed::Replaced } else { Pushed::Queued }
    }

    fn cancel(&mut self, block: UmBlock) -> Pushed {
        let lanes = [Lane::Predicted, Lane::Evict, Lane::Keep];
        Pushed::Cancelled(lanes.into_iter().any(|lane| self.take_out(block, lane)))
    }

    /// Takes `block` out if it waits in `lane`.
    fn take_out(&mut self, block: UmBlock, lane: Lane) -> bool {
        if self.waiting.get(&block).is_none_or(|waiting| waiting.lane != lane) {
            return false;
        }
        self.waiting.remove(&block);
        let (entries, live) = (&mut self.lanes[lane as usize], &mut self.live[lane as usize]);
        *live -= 1;
        if entries.len() > 2 * *live + 64 {
            let waiting = &self.waiting;
            entries.retain(|(block, number)| waiting.get(block).is_some_and(|now| now.number == *number));
        }
        true
    }

    /// The batch given out last is over: its blocks may be asked for again.
    pub fn done(&mut self) {
        self.in_hand = None;
    }

    /// The next thing to move: up to `most` consecutive blocks. Calling this says that the batch before is
    /// finished, or given up.
    ///
    /// A batch grows upwards from the block that waited longest. In the fault lane it takes any block that waits
    /// to be fetched, for what the GPU stands before it needs next; in the predicted lane only those that wait
    /// for the same launch, so that a later launch's do not come before an earlier one's.
    pub fn pop_batch(&mut self, most: u32) -> Option<Batch> {
        self.in_hand = None;
        for lane in Lane::ALL {
            let Some((first, by)) = self.pop(lane) else { continue };
            let mut batch = Batch { lane, first, count: 1 };
            while batch.count < most {
                let next = UmBlock(first.0 + u64::from(batch.count));
                let Some(&waiting) = self.waiting.get(&next) else { break };
                let joins = match lane {
                    Lane::Fault => waiting.lane != Lane::Evict,
                    Lane::Evict | Lane::Keep => waiting.lane == lane,
                    Lane::Predicted => waiting.lane == lane && waiting.by == by,
                };
                if !joins {
                    break;
                }
                self.take_out(next, waiting.lane);
                batch.count += 1;
            }
            self.in_hand = Some(batch);
            return Some(batch);
        }
        None
    }

    /// The block at the front of a lane, stale entries removed.
    fn front(&mut self, lane: Lane) -> Option<UmBlock> {
        let entries = &mut self.lanes[lane as usize];
        while let Some(&(block, number)) = entries.front() {
            if self.waiting.get(&block).is_some_and(|now| now.number == number) {
                return Some(block);
            }
            entries.pop_front();
        }
        None
    }

    fn pop(&mut self, lane: Lane) -> Option<(UmBlock, Option<LaunchSeq>)> {
        let block = self.front(lane)?;
        self.lanes[lane as usize].pop_front();
        self.live[lane as usize] -= 1;
        self.waiting.remove(&block).map(|waiting| (block, waiting.by))
    }

    /// How many blocks wait in a lane.
    pub fn waiting(&self, lane: Lane) -> usize {
        self.live[lane as usize]
    }
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl Default for Queues {
    fn default() -> Self {
        Self::new(Self::LIMIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(n: u64) -> Command {
        Command::Fetch { block: UmBlock(n), why: Why::Fault }
    }
    fn predicted(n: u64, by: u64) -> Command {
        Command::Fetch { block: UmBlock(n), why: Why::Predicted { by: LaunchSeq(by) } }
    }
    fn evict(n: u64) -> Command {
        Command::Evict { block: UmBlock(n) }
    }
    fn all(queues: &mut Queues, most: u32) -> Vec<(Lane, u64, u32)> {
        std::iter::from_fn(|| queues.pop_batch(most).map(|b| (b.lane, b.first.0, b.count))).collect()
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
    fn no_block_waits_twice_and_a_fault_overtakes() {
        let mut queues = Queues::default();
        queues.push(predicted(1, 1));
        assert_eq!(queues.push(predicted(1, 2)), Pushed::Known);
        assert_eq!(queues.push(fault(1)), Pushed::Replaced);
        assert_eq!(queues.push(predicted(1, 1)), Pushed::Known);
        assert_eq!(queues.push(evict(1)), Pushed::Known, "the GPU waits for it");
        assert_eq!(all(&mut queues, 16), [(Lane::Fault, 1, 1)]);
    }

    #[test]
    fn an_eviction_and_a_fetch_of_the_same_block_replace_each_other() {
        let mut queues = Queues::default();
        queues.push(evict(1));
        assert_eq!(queues.push(predicted(1, 1)), Pushed::Replaced);
        assert_eq!(queues.push(evict(1)), Pushed::Replaced);
        assert_eq!(all(&mut queues, 16), [(Lane::Evict, 1, 1)]);
    }

    #[test]
    fn a_block_being_fetched_is_not_queued_again_and_no_longer_evicted() {
        let mut queues = Queues::default();
        queues.push(predicted(1, 1));
        queues.push(predicted(2, 1));
        assert_eq!(queues.pop_batch(16).map(|batch| batch.count), Some(2));
        assert_eq!(queues.push(fault(2)), Pushed::Known);
        queues.push(evict(2));
        assert_eq!(queues.push(fault(2)), Pushed::Known);
        assert_eq!(queues.pop_batch(16), None, "the eviction was taken out again");
        assert_eq!(queues.push(fault(2)), Pushed::Queued, "no longer in hand");
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
        assert_eq!(queues.push(fault(3)), Pushed::Replaced);
        assert_eq!(queues.push(predicted(9, 1)), Pushed::Queued, "3 made room");
    }

    #[test]
    fn a_cancelled_prediction_is_gone_and_nothing_else_is() {
        let mut queues = Queues::default();
        queues.push(predicted(1, 1));
        queues.push(fault(2));
        assert_eq!(queues.push(Command::Cancel { block: UmBlock(1) }), Pushed::Cancelled(true));
        assert_eq!(queues.push(Command::Cancel { block: UmBlock(2) }), Pushed::Cancelled(false));
        assert_eq!(all(&mut queues, 16), [(Lane::Fault, 2, 1)]);
    }

    #[test]
    fn stale_entries_do_not_pile_up() {
        let mut queues = Queues::default();
        for _ in 0..10_000 {
            queues.push(predicted(1, 1));
            queues.push(Command::Cancel { block: UmBlock(1) });
        }
        assert!(queues.lanes[Lane::Predicted as usize].len() <= 65);
    }
}
