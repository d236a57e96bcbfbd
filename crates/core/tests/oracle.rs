//! The clever structures against slow, obvious ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use deepum_core::command::{Command, Why};
use deepum_core::correlate::{BlockTable, ExecTable, Geometry, History, Layout, StableBlock};
use deepum_core::queues::{Hand, Lane, Pushed, Queues};
use deepum_core::steps::Way;
use deepum_core::units::{ExecId, LaunchSeq, UmBlock};
use proptest::prelude::*;

/// No block.
const NONE: u64 = u64::MAX;

/// A UM-block table: a list for each row, newest entry first.
struct SlowTable {
    geometry: Geometry,
    rows: BTreeMap<u64, Vec<(u64, Vec<u64>)>>,
    start: Option<u64>,
    end: u64,
}

impl SlowTable {
    fn entry(&mut self, block: u64) -> &mut Vec<u64> {
        let row = self.rows.entry(block % u64::from(self.geometry.rows())).or_default();
        match row.iter().position(|(tag, _)| *tag == block) {
            Some(at) => row[..=at].rotate_right(1),
            None => row.insert(0, (block, Vec::new())),
        }
        row.truncate(self.geometry.ways() as usize);
        &mut row[0].1
    }
    fn has(&self, block: u64) -> bool {
        self.rows.values().flatten().any(|(tag, _)| *tag == block)
    }
    fn successors(&self, block: u64) -> Vec<u64> {
        self.rows.values().flatten().find(|(tag, _)| *tag == block).map(|(_, list)| list.clone()).unwrap_or_default()
    }
    fn chain(&self) -> Vec<u64> {
        fn visit(table: &SlowTable, block: u64, chain: &mut Vec<u64>) {
            if !chain.contains(&block) {
                chain.push(block);
                for next in table.successors(block) {
                    visit(table, next, chain);
                }
            }
        }
        let mut chain = Vec::new();
        self.start.into_iter().for_each(|start| visit(self, start, &mut chain));
        let mut entries: Vec<u64> = self.rows.values().flatten().map(|(tag, _)| *tag).collect();
        entries.sort_unstable();
        entries.into_iter().for_each(|entry| visit(self, entry, &mut chain));
        chain
    }
    /// Whether it was news.
    fn learn(&mut self, before: Option<u64>, block: u64, settled: bool) -> bool {
        if self.start.is_none() {
            (self.start, self.end) = (Some(block), block);
            self.entry(block);
            return true;
        }
        let from = before.unwrap_or(self.end);
        if settled && self.chain().contains(&block) || from == block {
            return false;
        }
        let joins = !self.has(block);
        self.link(from, block);
        if from == self.end && joins {
            self.end = block;
        }
        true
    }
    fn link(&mut self, from: u64, to: u64) {
        self.entry(to);
        let most = self.geometry.successors() as usize;
        let list = self.entry(from);
        list.retain(|&other| other != to);
        list.insert(0, to);
        list.truncate(most);
    }
    fn settle(&mut self, present: &[u64]) {
        let mut known = self.chain();
        for &block in present {
            if !known.contains(&block) {
                known.push(block);
                self.learn(None, block, false);
            }
        }
    }
    /// What is left is one line.
    fn forget(&mut self, gone: &[u64]) {
        let left: Vec<u64> = self.chain().into_iter().filter(|block| !gone.contains(block)).collect();
        self.rows.clear();
        (self.start, self.end) = (left.first().copied(), left.last().copied().unwrap_or(NONE));
        left.iter().take(1).for_each(|&first| _ = self.entry(first));
        left.windows(2).for_each(|pair| self.link(pair[0], pair[1]));
    }
}

fn geometry() -> impl Strategy<Value = Geometry> {
    (0u32..5, 1u32..4, 1u32..5).prop_map(|(rows, ways, successors)| Geometry::new(1 << rows, ways, successors).unwrap())
}

#[derive(Clone, Debug)]
enum Step {
    /// A fault, and the one before it.
    Fault(Option<u32>, u32),
    Forget(Vec<u32>),
}

/// Half of the faults are on the block behind the one before.
fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (prop::option::of(0u32..40), 0u32..40).prop_map(|(before, block)| Step::Fault(before, block)),
        8 => (0u32..39).prop_map(|block| Step::Fault(Some(block), block + 1)),
        1 => prop::collection::vec(0u32..40, 1..6).prop_map(Step::Forget),
    ]
}
fn numbers(blocks: &[u32]) -> Vec<StableBlock> {
    blocks.iter().copied().map(StableBlock).collect()
}
fn plain(blocks: &[u32]) -> Vec<u64> {
    blocks.iter().copied().map(u64::from).collect()
}

proptest! {
    /// Both layouts hold at every step what the slow table does, and so predict the same.
    #[test]
    fn both_layouts_of_the_block_table_agree_with_the_slow_one(
        geometry in geometry(),
        steps in prop::collection::vec((step(), any::<bool>()), 1..120),
        first_execution in 0usize..40,
        present in prop::collection::vec(0u32..40, 0..10),
    ) {
        let mut tables = [Layout::Compact, Layout::Paper].map(|layout| BlockTable::new(geometry.laid_out(layout)));
        let mut slow = SlowTable { geometry, rows: BTreeMap::new(), start: None, end: NONE };
        for (n, (step, ask)) in steps.into_iter().enumerate() {
            if n == first_execution {
                slow.settle(&plain(&present));
                tables.iter_mut().for_each(|table| table.settle(numbers(&present).into_iter()));
            }
            match step {
                Step::Fault(before, block) => {
                    let news = slow.learn(before.map(u64::from), block.into(), n >= first_execution);
                    let learned = tables.each_mut().map(|table| table.learn(before.map(StableBlock), StableBlock(block)));
                    prop_assert_eq!(learned, [news; 2]);
                }
                Step::Forget(gone) => {
                    slow.forget(&plain(&gone));
                    tables.iter_mut().for_each(|table| table.forget(&numbers(&gone)));
                }
            }
            for table in &mut tables {
                for block in 0..40 {
                    let found: Vec<u64> = table.successors(StableBlock(block)).map(|next| next.0.into()).collect();
                    prop_assert_eq!(found, slow.successors(block.into()), "successors of {}", block);
                }
                prop_assert_eq!(table.start().map(|start| start.0.into()), slow.start);
                prop_assert_eq!(table.end().map_or(NONE, |end| end.0.into()), slow.end);
                if ask {
                    let chain: Vec<u64> = table.chain().iter().map(|block| block.0.into()).collect();
                    prop_assert_eq!(chain, slow.chain());
                }
            }
        }
    }

    /// As the paper learns: every pair of faults, in executions of random length.
    #[test]
    fn both_layouts_record_the_same(
        geometry in geometry(),
        executions in prop::collection::vec(prop::collection::vec(0u32..40, 0..12), 1..20),
    ) {
        let mut tables = [Layout::Compact, Layout::Paper].map(|layout| BlockTable::new(geometry.laid_out(layout)));
        for execution in executions {
            let mut before = None;
            for block in execution.into_iter().map(StableBlock) {
                tables.iter_mut().for_each(|table| table.record(before, block));
                before = Some(block);
            }
            let [compact, paper] = &tables;
            prop_assert_eq!((compact.start(), compact.end()), (paper.start(), paper.end()));
            for block in (0..40).map(StableBlock) {
                let followers = tables.each_ref().map(|table| table.successors(block).collect::<Vec<_>>());
                prop_assert_eq!(&followers[0], &followers[1]);
            }
        }
    }

    /// Against a list of everything ever learned, newest last.
    #[test]
    fn the_exec_table_agrees_with_the_list_of_everything_learned(
        ids in prop::collection::vec(0u32..6, 1..200),
    ) {
        let mut table = ExecTable::default();
        let mut learned: Vec<(History, ExecId)> = Vec::new();
        let mut history = History::default();
        let mut seen: Vec<ExecId> = Vec::new();
        for id in ids.into_iter().map(ExecId) {
            let current = seen.last().copied();
            let exact = learned.iter().rev().find(|(context, _)| *context == history);
            // Contexts are remembered with their current execution ID; the newest of the same current answers else.
            let newest = learned
                .iter()
                .rev()
                .find(|(context, _)| current.is_some() && context.current() == current);
            let expected = current.and_then(|_| exact.or(newest)).map(|(_, next)| *next);
            prop_assert_eq!(table.next(history), expected);
            if current.is_some() {
                learned.push((history, id));
            }
            table.learn(history, id);
            history.push(Some(id));
            seen.push(id);
        }
    }

    /// Against plain lists.
    #[test]
    fn the_queues_agree_with_plain_lists(
        steps in prop::collection::vec((0u8..25, 0u64..12, 0u64..3, 1u32..9), 1..200),
        limit in 1usize..12,
    ) {
        let mut queues = Queues::new(limit);
        let mut slow = SlowQueues {
            lanes: BTreeMap::new(),
            in_hand: Default::default(),
            limit,
            due: None,
            duplicated: BTreeSet::new(),
        };
        for (step, block, by, most) in steps {
            let block = UmBlock(block);
            let by = LaunchSeq(by);
            let command = match step {
                0 => Command::Fetch { block, why: Why::Fault },
                1 => Command::Fetch { block, why: Why::Predicted { by } },
                2 => Command::Fetch { block, why: Why::Keep },
                3 => Command::Evict { block },
                4 => Command::Cancel { block },
                5 => Command::Discard { block },
                6 => Command::Fetch { block, why: Why::Populate { by } },
                7 => Command::Save { block },
                8 => Command::Drop { block },
                9 => Command::Own { block, by },
                10 => {
                    let due = Some(by).filter(|_| most > 1);
                    queues.set_due(due);
                    slow.due = due;
                    continue;
                }
                // A row of them, longer than most batches. What leaves and is on the host already is dropped.
                13..=16 => {
                    for block in (block.0..block.0 + 12).map(UmBlock) {
                        let command = if step == 13 { Command::Save { block } } else { Command::Evict { block } };
                        let pushed = queues.push_about(command, step < 15);
                        prop_assert_eq!(pushed, slow.push(command, step < 15), "{:?}", command);
                    }
                    continue;
                }
                _ => {
                    // As often as something comes.
                    let hand = Hand::ALL[usize::from(step % 4)];
                    let most = 1 + most % 3;
                    let batch = queues.pop_batch(hand, most);
                    let found =
                        batch.map(|batch| (batch.lane, batch.way, batch.blocks().map(|b| b.0).collect::<Vec<_>>()));
                    prop_assert_eq!(&found, &slow.pop(hand, most));
                    // The first of them goes well.
                    if let Some((lane, way, blocks)) = found.filter(|_| by != LaunchSeq(1)) {
                        queues.moved(hand, UmBlock(blocks[0]));
                        let owned = matches!(way, Way::OwnAway | Way::OwnThere);
                        let leaves = matches!(lane, Lane::Drop | Lane::Evict);
                        if owned || leaves && way == Way::Duplicated {
                            slow.duplicated.remove(&blocks[0]);
                        }
                    }
                    if by == LaunchSeq(0) {
                        queues.done(hand);
                        slow.in_hand[hand as usize] = None;
                    }
                    continue;
                }
            };
            let there = most > 2;
            prop_assert_eq!(queues.push_about(command, there), slow.push(command, there), "{:?}", command);
            for lane in Lane::ALL {
                prop_assert_eq!(queues.waiting(lane), slow.lane(lane).len());
            }
        }
    }
}

/// What waits: its block, the launch it is for, whether it is to be owned, and then whether it is there; and whether a copy is to be kept of what has left.
type Waits = (u64, Option<LaunchSeq>, Option<bool>, bool);

struct SlowQueues {
    lanes: BTreeMap<u8, VecDeque<Waits>>,
    in_hand: [Option<(Lane, Vec<u64>)>; 4],
    limit: usize,
    due: Option<LaunchSeq>,
    duplicated: BTreeSet<u64>,
}

impl SlowQueues {
    fn lane(&mut self, lane: Lane) -> &mut VecDeque<Waits> {
        self.lanes.entry(lane as u8).or_default()
    }
    fn find(&mut self, block: u64) -> Option<(Lane, Waits)> {
        Lane::ALL.into_iter().find_map(|lane| {
            let found = self.lane(lane).iter().find(|(other, ..)| *other == block).copied();
            found.map(|waits| (lane, waits))
        })
    }
    fn take_out(&mut self, lane: Lane, block: u64) {
        self.lane(lane).retain(|(other, ..)| *other != block);
    }
    /// Behind everybody whose launch is no later.
    fn insert(&mut self, lane: Lane, waits: Waits) {
        let lane = self.lane(lane);
        let at = lane.iter().rposition(|(_, other, ..)| *other <= waits.1).map_or(0, |before| before + 1);
        lane.insert(at, waits);
    }
    /// Whether a batch in hand has it, of the lanes of which this holds.
    fn has_in_hand(&self, block: u64, which: impl Fn(&Lane) -> bool) -> bool {
        self.in_hand.iter().flatten().any(|(lane, blocks)| which(lane) && blocks.contains(&block))
    }
    fn way(&self, lane: Lane, (block, _, own, keeps): Waits) -> Way {
        let alike = matches!(lane, Lane::Discard | Lane::Save);
        match own {
            _ if alike => Way::Move,
            _ if keeps && self.duplicated.contains(&block) => Way::KeepOn,
            _ if keeps => Way::Keep,
            _ if !self.duplicated.contains(&block) => Way::Move,
            None => Way::Duplicated,
            Some(false) => Way::OwnAway,
            Some(true) => Way::OwnThere,
        }
    }
    fn push(&mut self, command: Command, there: bool) -> Pushed {
        let block = command.block().0;
        let waits = self.find(block).map(|(lane, _)| lane);
        let (lane, by) = match command {
            Command::Cancel { .. } => {
                let lane = waits.filter(|lane| *lane != Lane::Fault);
                lane.into_iter().for_each(|lane| self.take_out(lane, block));
                return Pushed::Cancelled(lane);
            }
            Command::Evict { .. } | Command::Drop { .. } => (if there { Lane::Drop } else { Lane::Evict }, None),
            Command::Save { .. } => (Lane::Save, None),
            Command::Discard { .. } => (Lane::Discard, None),
            Command::Fetch { why: Why::Fault, .. } => (Lane::Fault, None),
            Command::Fetch { why: Why::Keep, .. } => (Lane::Keep, None),
            Command::Fetch { why: Why::Predicted { by } | Why::Populate { by }, .. } | Command::Own { by, .. } => {
                (Lane::Predicted, Some(by))
            }
        };
        let own = matches!(command, Command::Own { .. }).then_some(there);
        let keeps = matches!(command, Command::Drop { .. });
        let out = |lane: &Lane| matches!(lane, Lane::Discard | Lane::Drop | Lane::Evict | Lane::Save);
        let in_hand = self.has_in_hand(block, |other| out(other) == out(&lane));
        let saves = self.has_in_hand(block, |lane| *lane == Lane::Save);
        if lane == Lane::Save && (in_hand || waits.is_some_and(|waits| waits != lane)) {
            return Pushed::Full;
        }
        if matches!(lane, Lane::Evict | Lane::Drop | Lane::Discard) && saves {
            return Pushed::Full;
        }
        if own.is_some() && (in_hand || waits == Some(Lane::Fault)) {
            return Pushed::Full;
        }
        if in_hand {
            waits.filter(|waits| out(waits) != out(&lane)).into_iter().for_each(|waits| self.take_out(waits, block));
            return Pushed::Known;
        }
        match waits {
            Some(Lane::Fault) if out(&lane) => return Pushed::Full,
            Some(Lane::Fault) => return Pushed::Known,
            Some(Lane::Predicted) if lane == Lane::Predicted => {
                let same = |(_, before, ..): &Waits| *before == by;
                match self.lane(lane).iter_mut().find(|waits| waits.0 == block && same(waits)) {
                    Some(waits) => waits.2 = own,
                    None => {
                        self.take_out(lane, block);
                        self.insert(lane, (block, by, own, keeps));
                    }
                }
                return Pushed::Known;
            }
            Some(before) if before == lane => {
                self.lane(lane).iter_mut().filter(|waits| waits.0 == block).for_each(|waits| waits.3 = keeps);
                return Pushed::Known;
            }
            Some(Lane::Predicted) if lane == Lane::Keep => return Pushed::Known,
            _ => {}
        }
        if lane == Lane::Predicted && self.lane(lane).len() >= self.limit {
            waits.filter(out).into_iter().for_each(|waits| self.take_out(waits, block));
            return Pushed::Full;
        }
        if let Some(before) = waits {
            self.take_out(before, block);
        }
        self.insert(lane, (block, by, own, keeps));
        waits.map_or(Pushed::Queued, Pushed::Replaced)
    }
    fn pop(&mut self, hand: Hand, most: u32) -> Option<(Lane, Way, Vec<u64>)> {
        self.in_hand[hand as usize] = None;
        let held: Vec<u64> = self.in_hand.iter().flatten().flat_map(|(_, blocks)| blocks.clone()).collect();
        let due = self.due;
        let late = self.lane(Lane::Predicted).iter().any(|(_, by, ..)| *by <= due);
        let lanes: &[Lane] = match hand {
            Hand::GiveUp => &[Lane::Discard],
            Hand::Out => &[Lane::Drop, Lane::Evict, Lane::Save],
            Hand::In | Hand::In2 if late => &[Lane::Fault, Lane::Predicted, Lane::Keep],
            Hand::In | Hand::In2 => &[Lane::Fault, Lane::Keep, Lane::Predicted],
        };
        let found = lanes.iter().find_map(|&lane| {
            self.lane(lane).iter().find(|(block, ..)| !held.contains(block)).map(|&waits| (lane, waits))
        });
        let (lane, waits) = found?;
        let (first, by, ..) = waits;
        let way = self.way(lane, waits);
        self.take_out(lane, first);
        // What takes no time on the link goes by larger calls, and what leaves by larger ones than what comes, or waits.
        let most = match lane {
            Lane::Drop => 16 * most,
            Lane::Evict => 8 * most,
            Lane::Save => 4 * most,
            _ => most,
        };
        let mut blocks = vec![first];
        let sides: &[bool] = if lane == Lane::Fault { &[true] } else { &[true, false] };
        for &up in sides {
            while blocks.len() < most as usize {
                let next = if up { blocks[blocks.len() - 1] + 1 } else { blocks[0].wrapping_sub(1) };
                let Some((other, waits)) = self.find(next) else { break };
                let joins = match lane {
                    Lane::Fault => matches!(other, Lane::Fault | Lane::Keep | Lane::Predicted),
                    _ => other == lane && waits.1 == by,
                };
                if !joins || held.contains(&next) || self.way(other, waits) != way {
                    break;
                }
                Lane::ALL.into_iter().for_each(|lane| self.take_out(lane, next));
                blocks.insert(if up { blocks.len() } else { 0 }, next);
            }
        }
        if lane == Lane::Save || matches!(way, Way::Keep | Way::KeepOn) {
            self.duplicated.extend(&blocks);
        }
        self.in_hand[hand as usize] = Some((lane, blocks.clone()));
        Some((lane, way, blocks))
    }
}
