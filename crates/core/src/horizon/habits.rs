//! What kernels do with what they are given: which of their operands they write, and which they only read.
//!
//! Problem: a block of which the host has a copy must be owned before it is written, and one that is written soon is not worth a copy; but no launch says what it
//! writes, and a write is seen only where it fills memory that was handed out, or faults.
//! Idea: a kernel does the same with the same operand wherever it is launched. What one launch was seen to do goes for all launches of its kernel with as many operands: in place
//! it has one operand less. An operand is written if a block of it was; it is read if a block of it is saved when a launch is over. Where the save itself ended while that launch
//! was under way, that may be wrong, until the next one faults.
//!
//! Optimizers are given lists of tensors, a hundred operands and more, and treat those of a list alike. So in a kernel with as many ([`LIST`]) an operand between two of which the same is known is taken to be
//! like them, until it is seen to be otherwise; and what is tried are some between two that differ, well apart from each other and from those.
//!
//! Where nothing says which operand it was (several meet in a block, or memory names it), what was seen goes for that block and that execution ID. What was not
//! seen is not known ([`Does::Uses`]); to find out a block may be saved now and then ([`Habits::may_try`]).

use crate::correlate::StableBlock;
use crate::horizon::need::Ordinal;
use crate::horizon::timeline::Does;
use crate::mix::Map;
use crate::units::{AddrRange, DevAddr, ExecId, KernelId, UmBlock};
use crate::window::Issued;
use std::ops::Range;

/// Kernels remembered at most: many times what a program has, and a few MiB.
const MOST: usize = 1 << 16;

/// A kernel of which so many operands were found to be written by faults writes the others, too, unless they are lists; and so often an iteration it is
/// tried what one does.
const FEW: u8 = 3;

/// And so often at most one that is given lists.
const MANY: usize = 16;

/// A kernel with more operands than these is given lists of them. Others name what they are given one by one, in any order.
const LIST: usize = 16;

/// A kernel with so many operands.
type Kernel = (KernelId, usize);

/// What a kernel does with its operands.
#[derive(Debug)]
struct Habit {
    operands: Box<[Does]>,
    /// The same, and what is taken to be so of those of which nothing was seen.
    taken: Box<[Does]>,
    /// How many of them were found to be written only when it faulted.
    faulted: u8,
    /// Of which operands one each may be tried in this iteration, and when that began.
    tries: Vec<Range<usize>>,
    since: Ordinal,
    /// The version that it last changed with.
    changed: u32,
}

impl Habit {
    fn is_list(&self) -> bool {
        self.operands.len() > LIST
    }
    fn is_worth_trying(&self, operand: usize) -> bool {
        self.taken[operand] == Does::Uses && (self.is_list() || self.faulted < FEW)
    }
    /// Of which operands it would be good to know one.
    fn worth_trying(&self) -> Vec<Range<usize>> {
        let all = self.operands.len();
        if !self.is_list() {
            return vec![0..all; FEW.into()];
        }
        let known = (0..all).filter(|&operand| self.operands[operand] != Does::Uses);
        let mut tries = Vec::new();
        let mut from = 0;
        for to in known.chain([all]) {
            let between = to - from;
            match between {
                0..8 => tries.extend((from..to).map(|operand| operand..operand + 1)),
                _ => tries.extend([1, 3, 5].map(|part| from + between * part / 8..from + between * (part + 2) / 8)),
            }
            from = to + 1;
        }
        tries.retain(|of| self.taken[of.start] == Does::Uses);
        tries.truncate(MANY);
        tries
    }
}

/// Launches of one execution ID: they are given the same.
#[derive(Default, Debug)]
struct User {
    kernel: Option<Kernel>,
    operands: Box<[AddrRange]>,
    /// What was seen of blocks.
    blocks: Map<StableBlock, Does>,
}

/// See the module.
#[derive(Default, Debug)]
pub struct Habits {
    kernels: Map<Kernel, Habit>,
    /// By execution ID.
    users: Vec<User>,
    /// Counts what was learned of kernels.
    version: u32,
}

impl Habits {
    /// A launch was issued.
    pub fn issued(&mut self, launch: &Issued) {
        let Some(exec) = launch.exec else { return };
        let user = self.user_mut(exec);
        if *user.operands != *launch.reach {
            user.operands = launch.reach.as_slice().into();
            user.kernel = kernel(launch);
        }
    }

    fn user(&self, exec: ExecId) -> Option<&User> {
        self.users.get(exec.0 as usize)
    }
    fn user_mut(&mut self, exec: ExecId) -> &mut User {
        let index = exec.0 as usize;
        if self.users.len() <= index {
            self.users.resize_with(index + 1, User::default);
        }
        &mut self.users[index]
    }

    /// The kernel that launches of this execution ID are of.
    pub fn kernel(&self, exec: ExecId) -> Option<KernelId> {
        self.user(exec)?.kernel.map(|(kernel, _)| kernel)
    }

    /// What launches of this execution ID do, to be asked block by block.
    pub fn of(&self, exec: ExecId) -> Doing<'_> {
        let user = self.user(exec);
        let habit = user.and_then(|user| self.kernels.get(&user.kernel?));
        let operands = user.zip(habit).map_or((&[][..], &[][..]), |(user, habit)| (&*user.operands, &*habit.taken));
        Doing { seen: user.map(|user| &user.blocks).filter(|seen| !seen.is_empty()), operands, alike: None }
    }

    /// A launch was seen to do this with a block. Returns whether that is news of its execution ID and the block.
    pub fn saw(&mut self, launch: &Issued, block: UmBlock, number: Option<StableBlock>, does: Does) -> bool {
        if let Some((operand, kernel)) = only(&launch.reach, block).zip(kernel(launch)) {
            self.learn(kernel, operand, does);
        }
        let Some((exec, number)) = launch.exec.zip(number) else { return false };
        if does == Does::Reads {
            return false;
        }
        let known = self.user_mut(exec).blocks.entry(number).or_default();
        std::mem::replace(known, does.max(*known)) < does
    }

    fn learn(&mut self, kernel: Kernel, operand: usize, does: Does) {
        let next = self.version + 1;
        let Some(habit) = self.habit(kernel) else { return };
        // What it filled it writes; it is not always memory that was just handed out.
        let known = does.min(Does::Writes);
        if habit.operands[operand] < known {
            (habit.operands[operand], habit.changed) = (known, next);
            habit.taken = taken(&habit.operands);
            habit.faulted += u8::from(does == Does::Writes && habit.faulted < FEW);
            self.version = next;
        }
    }

    fn habit(&mut self, kernel: Kernel) -> Option<&mut Habit> {
        if self.kernels.len() >= MOST && !self.kernels.contains_key(&kernel) {
            return None;
        }
        let unknown = || Habit {
            operands: vec![Does::Uses; kernel.1].into(),
            taken: vec![Does::Uses; kernel.1].into(),
            faulted: 0,
            tries: Vec::new(),
            since: Ordinal::MAX,
            changed: 0,
        };
        Some(self.kernels.entry(kernel).or_insert_with(unknown))
    }

    /// The operands of a launch of which nothing is known.
    pub fn unknown(&self, launch: &Issued) -> impl Iterator<Item = AddrRange> {
        let habit = kernel(launch).and_then(|kernel| self.kernels.get(&kernel));
        let does = habit.map_or(&[][..], |habit| &habit.operands).iter().chain(std::iter::repeat(&Does::Uses));
        launch.reach.iter().zip(does).filter(|(_, does)| **does == Does::Uses).map(|(&range, _)| range)
    }

    /// Whether this block may be saved to see what launches of this execution ID do with it, in an iteration that began at `since`; counts that.
    /// Where nothing would be known by it, or it is likely to be written, it may not.
    pub fn may_try(&mut self, exec: ExecId, block: UmBlock, since: Ordinal) -> bool {
        let Some(user) = self.user(exec) else { return false };
        let Some(operand) = only(&user.operands, block) else { return false };
        let Some(habit) = user.kernel.and_then(|kernel| self.habit(kernel)) else { return false };
        if habit.since != since {
            (habit.since, habit.tries) = (since, habit.worth_trying());
        }
        let of = habit.tries.iter().position(|of| of.contains(&operand)).filter(|_| habit.is_worth_trying(operand));
        of.map(|of| habit.tries.swap_remove(of)).is_some()
    }

    /// Memory it takes.
    pub fn bytes(&self) -> usize {
        let kernels = self.kernels.values().map(|habit| 2 * habit.operands.len() * size_of::<Does>()).sum::<usize>();
        let user =
            |user: &User| size_of_val(&*user.operands) + user.blocks.capacity() * size_of::<(StableBlock, Does)>();
        let users = self.users.iter().map(user).sum::<usize>();
        kernels
            + self.kernels.capacity() * size_of::<(Kernel, Habit)>()
            + users
            + self.users.capacity() * size_of::<User>()
    }

    /// Rises with what is learned of kernels.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Whether anything was learned of the kernel of this execution ID since then.
    pub fn has_changed(&self, exec: ExecId, since: u32) -> bool {
        let kernel = self.user(exec).and_then(|user| user.kernel);
        kernel.and_then(|kernel| self.kernels.get(&kernel)).is_some_and(|habit| habit.changed > since)
    }
}

/// See [`Habits::of`].
#[derive(Debug)]
pub struct Doing<'a> {
    seen: Option<&'a Map<StableBlock, Does>>,
    /// The operands, and what is done with each.
    operands: (&'a [AddrRange], &'a [Does]),
    /// Blocks from one to another that lie in the same operands, and what is done with those.
    alike: Option<(UmBlock, UmBlock, Does)>,
}

impl Doing<'_> {
    /// What they do with a block, whose number is asked for where it matters.
    pub fn with(&mut self, block: UmBlock, number: impl FnOnce() -> Option<StableBlock>) -> Does {
        let seen = self.seen.and_then(|seen| seen.get(&number()?)).copied().unwrap_or_default();
        let known = self.alike.filter(|&(first, last, _)| first <= block && block <= last);
        let (.., does) = *self.alike.insert(known.unwrap_or_else(|| self.look_up(block)));
        does.max(seen)
    }

    fn look_up(&self, block: UmBlock) -> (UmBlock, UmBlock, Does) {
        let (mut from, mut to, mut all) = (UmBlock(0), UmBlock(u64::MAX), None);
        for (range, &does) in self.operands.0.iter().zip(self.operands.1) {
            let (first, last) =
                (UmBlock::containing(range.start), UmBlock::containing(DevAddr(range.end().0.saturating_sub(1))));
            if last < block {
                from = from.max(UmBlock(last.0 + 1));
            } else if block < first {
                to = to.min(UmBlock(first.0 - 1));
            } else {
                (from, to) = (from.max(first), to.min(last));
                all = Some(all.map_or(does, |all: Does| match (all, does) {
                    (Does::Reads, Does::Uses) | (Does::Uses, Does::Reads) => Does::Uses,
                    _ => all.max(does),
                }));
            }
        }
        (from, to, all.unwrap_or_default())
    }
}

/// What is taken to be so of operands of which this was seen.
fn taken(seen: &[Does]) -> Box<[Does]> {
    let mut taken: Box<[Does]> = seen.into();
    let known = (0..seen.len()).filter(|&operand| seen.len() > LIST && seen[operand] != Does::Uses);
    known.reduce(|before, operand| {
        if seen[before] == seen[operand] {
            taken[before..operand].fill(seen[operand]);
        }
        operand
    });
    taken
}

fn kernel(launch: &Issued) -> Option<Kernel> {
    launch.kernel.map(|kernel| (kernel, launch.reach.len()))
}

/// Which operand lies in a block; nothing where several do, for then nothing says which it was.
fn only(operands: &[AddrRange], block: UmBlock) -> Option<usize> {
    let mut named = (0..).zip(operands).filter(|(_, range)| within(range, block));
    named.next().filter(|_| named.next().is_none()).map(|(operand, _)| operand)
}

fn within(range: &AddrRange, block: UmBlock) -> bool {
    range.start < block.range().end() && range.end() > block.start()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Launch;
    use crate::pt_blocks::PtBlocks;
    use crate::units::{Bytes, LaunchKey, LaunchSeq, StreamSlot};
    use crate::window::Window;

    /// Launches of a kernel on tensors of two blocks, each named by its number; the execution ID is the launch's number.
    fn launches(of: &[(u64, &[u64])]) -> (Window, Habits) {
        let (mut window, mut map, mut habits) = (Window::default(), PtBlocks::default(), Habits::default());
        let tensor = |number: u64| AddrRange::new(UmBlock(100 + 2 * number).start(), Bytes(2 * UmBlock::SIZE.get()));
        map.alloc(AddrRange::new(UmBlock(100).start(), Bytes(40 * UmBlock::SIZE.get())));
        (0..20).for_each(|number| map.report(tensor(number), true, LaunchSeq(0), LaunchSeq(0)));
        for (exec, (kernel, tensors)) in (0..).zip(of) {
            let pointers: Vec<_> = tensors.iter().map(|&number| tensor(number).start).collect();
            let (seq, key, kernel) = (LaunchSeq(u64::from(exec) + 1), LaunchKey(exec.into()), KernelId(*kernel));
            let launch = Launch { seq, stream: StreamSlot(0), key, kernel, pointers: &pointers };
            let reach = window.reach(&pointers, &map);
            window.issue(&launch, Some(ExecId(exec)), reach);
            habits.issued(window.get(seq).unwrap());
        }
        (window, habits)
    }

    #[test]
    fn what_one_launch_does_goes_for_all_of_its_kernel_with_as_many_operands() {
        let (window, mut habits) = launches(&[(7, &[1, 2, 3]), (7, &[4, 5, 6]), (7, &[8, 9]), (9, &[4, 5, 6])]);
        let of: Vec<&Issued> = window.launches().collect();
        assert!(!habits.saw(of[0], UmBlock(105), None, Does::Writes), "nothing is kept of a block without a number");
        habits.saw(of[0], UmBlock(102), None, Does::Reads);
        let does = |habits: &Habits, exec, block| habits.of(ExecId(exec)).with(UmBlock(block), || None);
        assert_eq!([108, 110, 112].map(|block| does(&habits, 1, block)), [Does::Reads, Does::Writes, Does::Uses]);
        assert_eq!([116, 118].map(|block| does(&habits, 2, block)), [Does::Uses; 2], "it has one operand less");
        assert_eq!(does(&habits, 3, 110), Does::Uses, "another kernel");
        assert_eq!(habits.unknown(of[1]).map(|range| UmBlock::containing(range.start).0).collect::<Vec<_>>(), [112]);
        assert_eq!([0, 1, 2, 3].map(|exec| habits.has_changed(ExecId(exec), 0)), [true, true, false, false]);
        assert!(!habits.has_changed(ExecId(0), habits.version()));
        habits.saw(of[1], UmBlock(108), None, Does::Writes);
        habits.saw(of[0], UmBlock(102), None, Does::Reads);
        assert_eq!(does(&habits, 0, 102), Does::Writes, "whoever wrote once writes");
    }

    #[test]
    fn operands_of_a_list_are_taken_to_be_alike_and_tried_where_lists_may_meet() {
        let (two, few): (Vec<_>, Vec<_>) = ((0..20).collect(), (0..16).collect());
        let (window, mut habits) = launches(&[(7, &two), (8, &few)]);
        let of: Vec<&Issued> = window.launches().collect();
        let block = |operand| UmBlock(100 + 2 * operand);
        for (operand, does) in
            [(1, Does::Writes), (8, Does::Writes), (10, Does::Reads), (18, Does::Reads), (3, Does::Writes)]
        {
            of.iter().for_each(|launch| _ = habits.saw(launch, block(operand), None, does));
        }
        let does = |habits: &Habits, exec, operand| habits.of(ExecId(exec)).with(block(operand), || None);
        assert_eq!(
            [0, 5, 9, 15, 19].map(|operand| does(&habits, 0, operand)),
            [Does::Uses, Does::Writes, Does::Uses, Does::Reads, Does::Uses]
        );
        assert_eq!(does(&habits, 1, 5), Does::Uses, "these are no list");
        let tries = [0, 5, 9, 15].map(|operand| habits.may_try(ExecId(0), block(operand), operand));
        assert_eq!((tries, habits.may_try(ExecId(1), block(5), 0)), ([true, false, true, false], false));
        habits.saw(of[0], block(15), None, Does::Writes);
        let now = [10, 12, 15, 17, 18].map(|operand| does(&habits, 0, operand));
        assert_eq!(now, [Does::Reads, Does::Uses, Does::Writes, Does::Uses, Does::Reads], "it was not alike");
    }

    #[test]
    fn of_a_list_some_well_apart_are_tried_in_an_iteration_and_then_some_between_those_that_differ() {
        let all: Vec<u64> = (0..20).collect();
        let (window, mut habits) = launches(&[(7, &all)]);
        let launch = window.launches().next().unwrap();
        let block = |operand| UmBlock(100 + 2 * operand);
        let tried = |habits: &mut Habits, since| {
            (0..20).filter(|&operand| habits.may_try(ExecId(0), block(operand), since)).collect::<Vec<u64>>()
        };
        assert_eq!(tried(&mut habits, 1), [2, 7, 12]);
        for (operand, does) in [(2, Does::Writes), (7, Does::Writes), (12, Does::Reads)] {
            habits.saw(launch, block(operand), None, does);
        }
        assert_eq!(tried(&mut habits, 2), [0, 1, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18, 19]);
        assert_eq!(tried(&mut habits, 2), [0; 0], "once an iteration");
    }

    #[test]
    fn what_no_operand_names_is_known_by_block() {
        let (window, mut habits) = launches(&[(7, &[1, 2]), (7, &[3, 4])]);
        let launch = window.launches().next().unwrap();
        let (block, number) = (UmBlock(130), Some(StableBlock(30)));
        assert!(habits.saw(launch, block, number, Does::Writes));
        assert!(!habits.saw(launch, block, number, Does::Writes));
        assert_eq!([0, 1].map(|exec| habits.of(ExecId(exec)).with(block, || number)), [Does::Writes, Does::Uses]);
        assert_eq!(habits.version(), 0);
    }

    #[test]
    fn it_is_tried_a_few_times_an_iteration_whoever_launches_a_kernel_and_not_when_it_writes_much() {
        let (window, mut habits) = launches(&[(7, &[1, 2, 3]), (7, &[3, 4, 5]), (7, &[5])]);
        let tries = |habits: &mut Habits, exec, block, since| {
            (0..100).filter(|_| habits.may_try(ExecId(exec), UmBlock(block), since)).count()
        };
        assert_eq!([(0, 102), (1, 106), (2, 110)].map(|(exec, block)| tries(&mut habits, exec, block, 7)), [3, 0, 3]);
        assert_eq!([(0, 130), (3, 102)].map(|(exec, block)| tries(&mut habits, exec, block, 8)), [0, 0], "in none");
        assert_eq!(tries(&mut habits, 1, 106, 8), 3);
        let launch = window.launches().next().unwrap();
        for block in [102, 104, 106] {
            habits.saw(launch, UmBlock(block), None, Does::Writes);
        }
        assert_eq!([(0, 102), (2, 110)].map(|(exec, block)| tries(&mut habits, exec, block, 9)), [0, 3]);
    }
}
