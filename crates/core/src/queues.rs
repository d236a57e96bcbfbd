//! Stage 6 of 7: queues. What waits for the migration thread, in which order.
//!
//! Problem: the GPU may be standing still for one block while hundreds are wanted only soon, and the link carries both
//! ways at once.
//! Idea: two directions, each carried out by its own thread, and lanes in each. *Out*: first *discard*, which frees a chunk
//! without a copy, then *evict*. *In*: first *fault*: the GPU waits. Then *keep*: touches, cheap, and too late behind a
//! transfer. Last *predicted* fetches, by the launch they are for: a block of the next launch that has left again, or that a new plan
//! wants sooner, does not come behind gigabytes for launches far ahead. What the
//! launch needs that the GPU has come to (it may stand at the gate for it) goes before touches. The other lanes are first in, first out. The paper has *fault*
//! before *predicted* and no others (DeepUM, ASPLOS'23, section 3.2).
//!
//! Invariants:
//! - a block waits at most once: a fault overtakes whatever waits for the block, a prefetch or touch replaces what would take it
//!   away, and that replaces those, but never a fault; a prefetch replaces a touch; of discard and eviction the newer stays; a prefetch
//!   asked for again goes where the launch named last has its place;
//! - a block that one direction has in hand is not given out by the other, so nothing about one block is carried out twice at a time;
//! - what is in hand is not queued again in the same direction: it is being carried out;
//! - predicted fetches wait for the room that the engine says there is; nothing else does;
//! - the other lanes are bounded by the number of managed blocks, since none waits twice, and drop nothing; the predicted lane
//!   holds at most its limit and drops what comes beyond it.
//!
//! Not here: threads and locks (`crates/engine`), and what a move is (the mover).

use std::collections::BTreeMap;

use crate::command::{Command, Why};
use crate::mix::Map;
use crate::units::{AddrRange, Bytes, LaunchSeq, UmBlock};

/// Most blocks moved by one call: 32 MiB, the most that is still called back soon enough (facts 4.1).
pub const BATCH: u32 = 16;

/// Which lane a batch came from, and with it what to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lane {
    /// Give up the contents, without a copy.
    Discard,
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
    /// All of them; those of one direction in the order they are served.
    pub const ALL: [Self; 5] = [Self::Discard, Self::Evict, Self::Fault, Self::Keep, Self::Predicted];

    /// Which way it goes.
    pub const fn direction(self) -> Direction {
        match self {
            Self::Discard | Self::Evict => Direction::Out,
            Self::Fault | Self::Keep | Self::Predicted => Direction::In,
        }
    }
}

/// Which way blocks move: the two have a thread, a copy engine and a half of the link each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// Off the GPU.
    Out,
    /// Onto the GPU.
    In,
}

impl Direction {
    /// Both; where one thread serves them, in this order.
    pub const ALL: [Self; 2] = [Self::Out, Self::In];

    /// Its lanes, in the order they are served unless predicted fetches are late ([`Queues`]).
    pub const fn lanes(self) -> &'static [Lane] {
        match self {
            Self::Out => &[Lane::Discard, Lane::Evict],
            Self::In => &[Lane::Fault, Lane::Keep, Lane::Predicted],
        }
    }
    /// The other one.
    pub const fn opposite(self) -> Self {
        match self {
            Self::Out => Self::In,
            Self::In => Self::Out,
        }
    }
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
    /// It took the place of another command for the same block, which waited in this lane.
    Replaced(Lane),
    /// The block waits already, or is being fetched: nothing to add.
    Known,
    /// The predicted lane is full. The engine is to hear of it ([`crate::Engine::hand_over`]).
    Full,
    /// A `Cancel` took out what waited, in this lane, or found nothing.
    Cancelled(Option<Lane>),
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    lane: Lane,
    turn: Turn,
}

/// Who is served first in a lane: the launch a predicted fetch is for, across which batches do not reach; then who came first.
type Turn = (Option<LaunchSeq>, u64);

/// See the module.
#[derive(Debug)]
pub struct Queues {
    lanes: [BTreeMap<Turn, UmBlock>; Lane::ALL.len()],
    waiting: Map<UmBlock, Waiting>,
    in_hand: [Option<Batch>; Direction::ALL.len()],
    pushed: u64,
    limit: usize,
    /// Predicted fetches that may still be given out.
    room: usize,
    /// The launch or copy that the GPU executes, or stands before.
    due: Option<LaunchSeq>,
}

impl Queues {
    /// Most predicted fetches waiting unless told otherwise: 128 GiB of them. The plan stops before that on any device
    /// of up to 170 GiB, since it fills at most three quarters of what fits; what finds no room is asked for again.
    pub const LIMIT: usize = 1 << 16;

    /// `limit` is the most predicted fetches that may wait.
    pub fn new(limit: usize) -> Self {
        Self {
            lanes: Default::default(),
            waiting: Map::default(),
            in_hand: [None; Direction::ALL.len()],
            pushed: 0,
            limit,
            room: usize::MAX,
            due: None,
        }
    }

    /// So many blocks may come to the GPU beside those that are there, until this is called again. Only predicted fetches wait for room:
    /// of those in hand the blocks come, too.
    pub fn set_room(&mut self, blocks: usize) {
        let coming = self.in_hand[Direction::In as usize].filter(|batch| batch.lane == Lane::Predicted);
        self.room = blocks.saturating_sub(coming.map_or(0, |batch| batch.count as usize));
    }

    /// The GPU has come to this launch or copy, until this is called again.
    pub fn set_due(&mut self, launch: Option<LaunchSeq>) {
        self.due = launch;
    }

    /// Puts a command where it belongs.
    pub fn push(&mut self, command: Command) -> Pushed {
        let (block, lane, by) = match command {
            Command::Fetch { block, why: Why::Fault } => (block, Lane::Fault, None),
            Command::Fetch { block, why: Why::Predicted { by } | Why::Populate { by } } => {
                (block, Lane::Predicted, Some(by))
            }
            Command::Fetch { block, why: Why::Keep } => (block, Lane::Keep, None),
            Command::Evict { block } => (block, Lane::Evict, None),
            Command::Discard { block } => (block, Lane::Discard, None),
            Command::Cancel { block } => return self.cancel(block),
        };
        if self.in_hand(lane.direction(), block) {
            // What waits to go the other way would undo what is being done.
            self.take_out_of(lane.direction().opposite(), block);
            return Pushed::Known;
        }
        let before = self.waiting.get(&block).map(|waiting| waiting.lane);
        match (before, lane) {
            (Some(Lane::Fault), _) => return Pushed::Known,
            (Some(Lane::Predicted), Lane::Predicted) => {
                self.move_to(block, by);
                return Pushed::Known;
            }
            (Some(before), lane) if before == lane => return Pushed::Known,
            // It waits to be fetched already, and is in its place. (The other way round it is known to have left: no
            // longer a touch.)
            (Some(Lane::Predicted), Lane::Keep) => return Pushed::Known,
            (_, Lane::Predicted) if self.waiting(Lane::Predicted) >= self.limit => {
                // The block is wanted: better not taken away, even if the fetch has no room.
                self.take_out_of(Direction::Out, block);
                return Pushed::Full;
            }
            _ => {}
        }
        if before.is_some() {
            self.take_out(block);
        }
        self.put_in(block, lane, by);
        before.map_or(Pushed::Queued, Pushed::Replaced)
    }

    fn cancel(&mut self, block: UmBlock) -> Pushed {
        let lane = self.waiting.get(&block).map(|waiting| waiting.lane).filter(|lane| *lane != Lane::Fault);
        Pushed::Cancelled(lane.filter(|_| self.take_out(block).is_some()))
    }

    /// Whether the batch given out last in this direction has the block.
    fn in_hand(&self, direction: Direction, block: UmBlock) -> bool {
        self.in_hand[direction as usize].is_some_and(|batch| batch.contains(block))
    }

    /// Takes `block` out if it waits in a lane of this direction.
    fn take_out_of(&mut self, direction: Direction, block: UmBlock) {
        if let Some(lane) = self.waiting.get(&block).map(|waiting| waiting.lane)
            && lane.direction() == direction
        {
            self.take_out(block);
        }
    }

    fn put_in(&mut self, block: UmBlock, lane: Lane, by: Option<LaunchSeq>) {
        self.pushed += 1;
        let turn = (by, self.pushed);
        self.waiting.insert(block, Waiting { lane, turn });
        self.lanes[lane as usize].insert(turn, block);
    }

    /// A predicted fetch that waits is for another launch.
    fn move_to(&mut self, block: UmBlock, by: Option<LaunchSeq>) {
        if self.waiting.get(&block).is_some_and(|waiting| waiting.turn.0 != by) {
            self.take_out(block);
            self.put_in(block, Lane::Predicted, by);
        }
    }

    /// Takes out what waits for `block`.
    fn take_out(&mut self, block: UmBlock) -> Option<Waiting> {
        let taken = self.waiting.remove(&block)?;
        self.lanes[taken.lane as usize].remove(&taken.turn);
        Some(taken)
    }

    /// The batch given out last in this direction is over: its blocks may be asked for again.
    pub fn done(&mut self, direction: Direction) {
        self.in_hand[direction as usize] = None;
    }

    /// The next thing to move this way: up to `most` consecutive blocks. Calling this says that the batch before is
    /// finished, or given up. Blocks that the other direction has in hand are passed over; they come when that is done.
    ///
    /// A batch grows upwards from the block whose turn it is. In the fault lane it takes any block that waits
    /// to be fetched, for what the GPU stands before it needs next; in the predicted lane only those that wait
    /// for the same launch, so that a later launch's do not come before an earlier one's.
    pub fn pop_batch(&mut self, direction: Direction, most: u32) -> Option<Batch> {
        self.done(direction);
        if self.waiting.is_empty() {
            return None;
        }
        for &lane in self.lanes(direction) {
            let most = match lane {
                Lane::Predicted => most.min(u32::try_from(self.room).unwrap_or(u32::MAX)),
                _ => most,
            };
            if most == 0 || self.waiting(lane) == 0 {
                continue;
            }
            let Some((first, by)) = self.pop(lane) else { continue };
            let mut batch = Batch { lane, first, count: 1 };
            while batch.count < most {
                let next = UmBlock(first.0 + u64::from(batch.count));
                let Some(&waiting) = self.waiting.get(&next) else { break };
                let joins = match lane {
                    Lane::Fault => waiting.lane.direction() == Direction::In,
                    Lane::Discard | Lane::Evict | Lane::Keep => waiting.lane == lane,
                    Lane::Predicted => waiting.lane == lane && waiting.turn.0 == by,
                };
                if !joins || self.in_hand(direction.opposite(), next) {
                    break;
                }
                self.take_out(next);
                batch.count += 1;
            }
            if lane == Lane::Predicted {
                self.room -= batch.count as usize;
            }
            self.in_hand[direction as usize] = Some(batch);
            return Some(batch);
        }
        None
    }

    /// The lanes of a direction in the order they are served now.
    fn lanes(&self, direction: Direction) -> &'static [Lane] {
        let first = self.lanes[Lane::Predicted as usize].first_key_value();
        match direction {
            Direction::In if first.is_some_and(|(&(by, _), _)| by <= self.due) => {
                &[Lane::Fault, Lane::Predicted, Lane::Keep]
            }
            _ => direction.lanes(),
        }
    }

    /// Takes out what is served next in a lane and may be given out. Looks past at most what the other direction has in hand.
    fn pop(&mut self, lane: Lane) -> Option<(UmBlock, Option<LaunchSeq>)> {
        let other = self.in_hand[lane.direction().opposite() as usize];
        let free = |block| other.is_none_or(|batch| !batch.contains(block));
        let (&(by, _), &block) = self.lanes[lane as usize].iter().find(|&(_, &block)| free(block))?;
        self.take_out(block);
        Some((block, by))
    }

    /// How many blocks wait in a lane.
    pub fn waiting(&self, lane: Lane) -> usize {
        self.lanes[lane as usize].len()
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
mod tests;
