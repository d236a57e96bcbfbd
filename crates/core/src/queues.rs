//! Stage 6 of 7: queues. What waits for the migration thread, in which order.
//!
//! Problem: the GPU may be standing still for one block while hundreds are wanted only soon, and the link carries both
//! ways at once.
//! Idea: two directions, and lanes in each, served by four *hands*, a thread each. *Out*: first *drop*, which hardly needs a copy, then *evict*; last *save*, which makes no room now. Beside it
//! *discard*, which needs none, and has a hand of its own: the driver takes as long for it as the link for a block, but does not use the link (facts 4.3). *In* has two hands, so that the link has
//! something to carry while one of them hears that its batch is there, and takes another: first *fault*: the GPU waits. Then *keep*: touches, cheap,
//! and too late behind a transfer. Last *predicted* fetches, by the launch they are for: a block of the next launch that has left again, or that a new plan
//! wants sooner, does not come behind gigabytes for launches far ahead. What the
//! launch needs that the GPU has come to (it may stand at the gate for it) goes before touches. The other lanes are first in, first out. The paper has *fault*
//! before *predicted* and no others (DeepUM, ASPLOS'23, section 3.2). What is to be owned (`copies`) waits among the predicted.
//!
//! Invariants:
//! - a block waits at most once: a fault overtakes whatever waits for the block, a prefetch or touch replaces what would take it
//!   away, and that replaces those, but never a fault; a prefetch replaces a touch; of discard, drop and eviction the newer stays; a prefetch
//!   asked for again goes where the launch named last has its place, and of fetching and owning the newer counts;
//! - a save waits only where nothing else does, and everything else replaces it; what is to be owned is refused where a fetch is in its way that cannot
//!   become that any more;
//! - the blocks of a batch are alike in what is known of their copies (`steps`); that is known here, where it cannot be late: from the batch that may
//!   turn the driver's mode on until one that turned it off is over;
//! - a block that is in one hand is not given to another, so nothing about one block is carried out twice at a time;
//! - what is in hand is not queued again in the same direction: it is being carried out;
//! - predicted fetches wait for the room that the engine says there is; nothing else does;
//! - the other lanes are bounded by the number of managed blocks, since none waits twice, and drop nothing; the predicted lane
//!   holds at most its limit and drops what comes beyond it.
//!
//! Not here: threads and locks (`crates/engine`), and what a move is (the mover).

use std::collections::BTreeMap;

use crate::command::{Command, Why};
use crate::mix::Map;
use crate::steps::Way;
use crate::units::{LaunchSeq, UmBlock};

mod lanes;

pub use lanes::{Batch, Direction, Hand, Lane};

/// Most blocks that come by one call, 8 MiB, or are given up: who leaves waits for either (facts 4.9). Two such calls at a time keep the link busy.
pub const BATCH: u32 = 4;

/// Most blocks evicted by one call, as a multiple of those: it costs as much as a third of a block, three times.
const EVICTED: u32 = 8;

/// Most blocks saved by one call, likewise.
const SAVED: u32 = 4;

/// Most blocks dropped by one call, likewise: they take no time on the link.
const DROPPED: u32 = 16;

/// What became of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// It waits now.
    Queued,
    /// It took the place of another command for the same block, which waited in this lane.
    Replaced(Lane),
    /// The block waits already, or is being fetched: nothing to add.
    Known,
    /// The predicted lane is full, or something else is in the way of a save or an own. The engine is to hear of it
    /// ([`crate::Engine::hand_over`]).
    Full,
    /// A `Cancel` took out what waited, in this lane, or found nothing.
    Cancelled(Option<Lane>),
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    lane: Lane,
    /// Whether it is to be owned, and then whether it is believed to be there.
    own: Option<bool>,
    /// Whether it leaves, and what is fetched is to leave its copy on the host.
    keeps: bool,
    turn: Turn,
}

/// Who is served first in a lane: the launch a predicted fetch is for, across which batches do not reach; then who came first.
type Turn = (Option<LaunchSeq>, u64);

/// See the module.
#[derive(Debug)]
pub struct Queues {
    lanes: [BTreeMap<Turn, UmBlock>; Lane::ALL.len()],
    waiting: Map<UmBlock, Waiting>,
    in_hand: [Option<Batch>; Hand::ALL.len()],
    pushed: u64,
    limit: usize,
    /// Predicted fetches that may still be given out.
    room: usize,
    /// The launch or copy that the GPU executes, or stands before.
    due: Option<LaunchSeq>,
    /// Blocks of which the driver may keep two copies. Only what was moved well is taken out; what is freed stays, and costs a call in
    /// vain if it comes again.
    duplicated: Map<UmBlock, ()>,
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
            in_hand: [None; Hand::ALL.len()],
            pushed: 0,
            limit,
            room: usize::MAX,
            due: None,
            duplicated: Map::default(),
        }
    }

    /// So many blocks may come to the GPU beside those that are there, until this is called again. Only predicted fetches wait for room:
    /// of those in hand the blocks come, too.
    pub fn set_room(&mut self, blocks: usize) {
        let coming = self.in_hand.iter().flatten().filter(|batch| batch.lane == Lane::Predicted);
        self.room = blocks.saturating_sub(coming.map(|batch| batch.count as usize).sum());
    }

    /// The GPU has come to this launch or copy, until this is called again.
    pub fn set_due(&mut self, launch: Option<LaunchSeq>) {
        self.due = launch;
    }

    /// Puts a command where it belongs, about a block that is not known to be where it is to go.
    pub fn push(&mut self, command: Command) -> Pushed {
        self.push_about(command, false)
    }

    /// Puts a command where it belongs. `there`: whether its block is believed to be where it is to go already, the whole of it: on the GPU, or on the host.
    pub fn push_about(&mut self, command: Command, there: bool) -> Pushed {
        let own = matches!(command, Command::Own { .. }).then_some(there);
        let keeps = matches!(command, Command::Drop { .. });
        let (block, lane, by) = match command {
            Command::Fetch { block, why: Why::Fault } => (block, Lane::Fault, None),
            Command::Fetch { block, why: Why::Predicted { by } | Why::Populate { by } } => {
                (block, Lane::Predicted, Some(by))
            }
            Command::Fetch { block, why: Why::Keep } => (block, Lane::Keep, None),
            Command::Own { block, by } => (block, Lane::Predicted, Some(by)),
            Command::Evict { block } | Command::Drop { block } if there => (block, Lane::Drop, None),
            Command::Evict { block } | Command::Drop { block } => (block, Lane::Evict, None),
            Command::Save { block } => (block, Lane::Save, None),
            Command::Discard { block } => (block, Lane::Discard, None),
            Command::Cancel { block } => return self.cancel(block),
        };
        let before = self.waiting.get(&block).map(|waiting| waiting.lane);
        let in_hand = self.in_hand(lane.direction(), block);
        let refused = match command {
            Command::Save { .. } => in_hand || before.is_some_and(|before| before != Lane::Save),
            Command::Own { .. } => in_hand || before == Some(Lane::Fault),
            // The save that is under way will not end what is asked for now.
            Command::Evict { .. } | Command::Drop { .. } | Command::Discard { .. } => self.saves(block),
            _ => false,
        };
        if refused {
            return Pushed::Full;
        }
        if in_hand {
            // What waits to go the other way would undo what is being done.
            self.take_out_of(lane.direction().opposite(), block);
            return Pushed::Known;
        }
        match (before, lane) {
            (Some(Lane::Fault), _) if lane.direction() == Direction::Out => return Pushed::Full,
            (Some(Lane::Fault), _) => return Pushed::Known,
            (Some(Lane::Predicted), Lane::Predicted) => {
                self.move_to(block, own, by);
                return Pushed::Known;
            }
            (Some(before), lane) if before == lane => {
                if let Some(waiting) = self.waiting.get_mut(&block) {
                    waiting.keeps = keeps;
                }
                return Pushed::Known;
            }
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
        self.put_in(block, Waiting { lane, own, keeps, turn: (by, 0) });
        before.map_or(Pushed::Queued, Pushed::Replaced)
    }

    fn cancel(&mut self, block: UmBlock) -> Pushed {
        let lane = self.waiting.get(&block).map(|waiting| waiting.lane).filter(|lane| *lane != Lane::Fault);
        Pushed::Cancelled(lane.filter(|_| self.take_out(block).is_some()))
    }

    /// Whether a hand has it.
    fn has(&self, block: UmBlock) -> bool {
        self.in_hand.iter().flatten().any(|batch| batch.contains(block))
    }

    /// Whether it is being moved this way.
    fn in_hand(&self, direction: Direction, block: UmBlock) -> bool {
        self.in_hand.iter().flatten().any(|batch| batch.lane.direction() == direction && batch.contains(block))
    }

    /// Whether it is being saved.
    fn saves(&self, block: UmBlock) -> bool {
        self.in_hand[Hand::Out as usize].is_some_and(|batch| batch.lane == Lane::Save && batch.contains(block))
    }

    /// Takes `block` out if it waits in a lane of this direction.
    fn take_out_of(&mut self, direction: Direction, block: UmBlock) {
        if let Some(lane) = self.waiting.get(&block).map(|waiting| waiting.lane)
            && lane.direction() == direction
        {
            self.take_out(block);
        }
    }

    /// Behind all whose launch is no later.
    fn put_in(&mut self, block: UmBlock, mut waiting: Waiting) {
        self.pushed += 1;
        waiting.turn.1 = self.pushed;
        self.lanes[waiting.lane as usize].insert(waiting.turn, block);
        self.waiting.insert(block, waiting);
    }

    /// A predicted fetch that waits is for another launch, or another one.
    fn move_to(&mut self, block: UmBlock, own: Option<bool>, by: Option<LaunchSeq>) {
        let Some(waiting) = self.waiting.get_mut(&block) else { return };
        waiting.own = own;
        let moved = Waiting { turn: (by, 0), ..*waiting };
        if waiting.turn.0 != by {
            self.take_out(block);
            self.put_in(block, moved);
        }
    }

    /// Takes out what waits for `block`.
    fn take_out(&mut self, block: UmBlock) -> Option<Waiting> {
        let taken = self.waiting.remove(&block)?;
        self.lanes[taken.lane as usize].remove(&taken.turn);
        Some(taken)
    }

    /// This block of the batch that the hand was given last was moved well.
    pub fn moved(&mut self, hand: Hand, block: UmBlock) {
        let batch = self.in_hand[hand as usize].filter(|batch| batch.contains(block));
        if batch.and_then(Batch::duplicates) == Some(false) {
            self.duplicated.remove(&block);
        }
    }

    /// The batch that the hand was given last is over: its blocks may be asked for again.
    pub fn done(&mut self, hand: Hand) {
        self.in_hand[hand as usize] = None;
    }

    /// The next thing for this hand: up to `most` consecutive blocks, or as many more as the lane takes by one call. Calling this says that the batch before is
    /// finished, or given up. Blocks that another hand has are passed over; they come when that is done.
    ///
    /// A batch grows from the block whose turn it is, upwards and then downwards. In the fault lane it takes any block above that waits
    /// to be fetched, for what the GPU stands before it needs next; in the predicted lane only those that wait
    /// for the same launch, so that a later launch's do not come before an earlier one's.
    pub fn pop_batch(&mut self, hand: Hand, most: u32) -> Option<Batch> {
        self.done(hand);
        if self.waiting.is_empty() {
            return None;
        }
        for &lane in self.lanes(hand) {
            let most = match lane {
                Lane::Predicted => most.min(u32::try_from(self.room).unwrap_or(u32::MAX)),
                Lane::Drop => DROPPED * most,
                Lane::Evict => EVICTED * most,
                Lane::Save => SAVED * most,
                Lane::Fault | Lane::Keep | Lane::Discard => most,
            };
            if most == 0 || self.waiting(lane) == 0 {
                continue;
            }
            let Some((first, popped)) = self.pop(lane) else { continue };
            let (way, by) = (self.way(first, popped), popped.turn.0);
            let mut batch = Batch { lane, way, first, count: 1 };
            let joins = |queues: &Self, next: UmBlock| {
                queues.waiting.get(&next).is_some_and(|&waiting| {
                    let alike = match lane {
                        Lane::Fault => waiting.lane.direction() == Direction::In,
                        Lane::Discard | Lane::Drop | Lane::Evict | Lane::Save | Lane::Keep => waiting.lane == lane,
                        Lane::Predicted => waiting.lane == lane && waiting.turn.0 == by,
                    };
                    alike && queues.way(next, waiting) == way && !queues.has(next)
                })
            };
            while batch.count < most && joins(self, batch.after()) {
                self.take_out(batch.after());
                batch.count += 1;
            }
            while lane != Lane::Fault
                && batch.count < most
                && let Some(before) = batch.first.0.checked_sub(1).map(UmBlock)
                && joins(self, before)
            {
                self.take_out(before);
                (batch.first, batch.count) = (before, batch.count + 1);
            }
            if lane == Lane::Predicted {
                self.room -= batch.count as usize;
            }
            if batch.duplicates() == Some(true) {
                self.duplicated.extend(batch.blocks().map(|block| (block, ())));
            }
            self.in_hand[hand as usize] = Some(batch);
            return Some(batch);
        }
        None
    }

    /// What is known of a block that is moved next.
    fn way(&self, block: UmBlock, waiting: Waiting) -> Way {
        let duplicated = self.duplicated.contains_key(&block);
        match waiting.own {
            // These are carried out alike.
            _ if matches!(waiting.lane, Lane::Discard | Lane::Save) => Way::Move,
            _ if waiting.keeps => [Way::Keep, Way::KeepOn][usize::from(duplicated)],
            _ if !duplicated => Way::Move,
            None => Way::Duplicated,
            Some(false) => Way::OwnAway,
            Some(true) => Way::OwnThere,
        }
    }

    /// The lanes of a hand in the order they are served now.
    fn lanes(&self, hand: Hand) -> &'static [Lane] {
        let first = self.lanes[Lane::Predicted as usize].first_key_value();
        match hand {
            Hand::In | Hand::In2 if first.is_some_and(|(&(by, _), _)| by <= self.due) => {
                &[Lane::Fault, Lane::Predicted, Lane::Keep]
            }
            _ => hand.lanes(),
        }
    }

    /// Takes out what is served next in a lane and may be given out. Looks past at most what the other hands have.
    fn pop(&mut self, lane: Lane) -> Option<(UmBlock, Waiting)> {
        let &block = self.lanes[lane as usize].values().find(|&&block| !self.has(block))?;
        self.take_out(block).map(|waiting| (block, waiting))
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
