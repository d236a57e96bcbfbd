//! Timeline and ranks against what they stand for: lists written out in full.

use super::ranks::{Class, NEVER, Ranks};
use super::timeline::{Does, STRIDE, Timeline, ordinal};
use crate::residency::{Handle, Ticket};
use crate::units::{ExecId, LaunchSeq};
use proptest::prelude::*;
use std::collections::BTreeMap;

const BLOCKS: u32 = 6;

/// A point written out: what it is, its launch, and who is used, in no order.
#[derive(Clone, Debug)]
struct Plain {
    exec: u32,
    seq: Option<u64>,
    uses: BTreeMap<u32, Does>,
}

#[derive(Clone, Debug)]
enum Step {
    Predict {
        exec: u32,
        uses: Vec<(u32, Does)>,
    },
    Issue {
        exec: u32,
        left_out: Option<usize>,
        uses: Vec<(u32, Does)>,
    },
    /// More becomes known of a launch, wherever it is.
    Teach {
        nth: usize,
        uses: Vec<(u32, Does)>,
    },
    Finish,
    TakeBack,
    Skip {
        block: u32,
    },
    Forget {
        block: u32,
    },
}

fn uses() -> impl Strategy<Value = Vec<(u32, Does)>> {
    prop::collection::vec((0..BLOCKS, prop_oneof![Just(Does::Reads), Just(Does::Writes), Just(Does::Fills)]), 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u32..5, uses()).prop_map(|(exec, uses)| Step::Predict { exec, uses }),
        6 => (0u32..5, prop::option::of(0usize..3), uses())
            .prop_map(|(exec, left_out, uses)| Step::Issue { exec, left_out, uses }),
        6 => (0usize..64, uses()).prop_map(|(nth, uses)| Step::Teach { nth, uses }),
        4 => Just(Step::Finish),
        1 => Just(Step::TakeBack),
        1 => (0..BLOCKS).prop_map(|block| Step::Skip { block }),
        1 => (0..BLOCKS).prop_map(|block| Step::Forget { block }),
    ]
}

/// Of these rests, each from a launch to a later one, the most that can be spent in place together, in so many places beside what launches use.
fn most_in_place(rests: &[(usize, usize)], used: &[usize], places: usize) -> usize {
    let fits = |chosen: u32| {
        let chosen = || rests.iter().enumerate().filter(|&(number, _)| chosen >> number & 1 == 1);
        let resting = |launch| chosen().filter(|(_, (since, until))| (since + 1..*until).contains(&launch)).count();
        (0..used.len()).all(|launch| resting(launch) == 0 || resting(launch) + used[launch] <= places)
    };
    (0..1u32 << rests.len()).filter(|&chosen| fits(chosen)).map(u32::count_ones).max().unwrap() as usize
}

proptest! {
    /// Foreseen launch by launch, as many rests are planned in place as could be if all were known.
    #[test]
    fn no_plan_keeps_more_in_place(
        launches in prop::collection::vec(prop::collection::btree_set(0..BLOCKS, 0..3), 2..10),
        places in 1usize..5,
    ) {
        let mut timeline = Timeline::default();
        timeline.plan.places = i32::try_from(places).unwrap();
        (0..BLOCKS).for_each(|block| timeline.has_place(Handle::of(block), false));
        let (mut last, mut rests) = (BTreeMap::new(), Vec::new());
        for (launch, uses) in launches.iter().enumerate() {
            let nth = timeline.push(ExecId(0));
            for &block in uses {
                timeline.add(nth, Handle::of(block), Does::Reads);
                rests.extend(last.insert(block, launch).map(|since| (since, launch)));
            }
        }
        let mut in_place = 0;
        for (seq, uses) in (1..).map(LaunchSeq).zip(&launches) {
            timeline.issue(seq, Some(ExecId(0)), Some(0), |_| ());
            in_place += uses.iter().filter(|&&block| !timeline.leaves(Handle::of(block))).count();
            timeline.pop(seq, |_| ());
        }
        let used: Vec<usize> = launches.iter().map(|uses| uses.len()).collect();
        prop_assert_eq!(in_place, most_in_place(&rests, &used, places));
    }

    /// The nearest use of each block, after anything that can happen.
    #[test]
    fn the_next_use_is_the_first_of_those_written_out(steps in prop::collection::vec(step(), 1..60)) {
        let (mut timeline, mut plain) = (Timeline::default(), Vec::<Plain>::new());
        let (mut seq, mut over) = (0, 0);
        for step in steps {
            match step {
                Step::Predict { exec, uses } => {
                    let nth = timeline.push(ExecId(exec));
                    for &(block, does) in &uses {
                        timeline.add(nth, Handle::of(block), does);
                    }
                    plain.push(Plain { exec, seq: None, uses: written(&uses) });
                }
                Step::Issue { exec, left_out, uses } => {
                    seq += 1;
                    let issued = plain.iter().take_while(|point| point.seq.is_some()).count();
                    let is_it = |&ahead: &usize| plain.get(issued + ahead).is_some_and(|point| point.exec == exec);
                    let ahead = left_out.filter(is_it);
                    let (nth, expected) = timeline.issue(LaunchSeq(seq), Some(ExecId(exec)), left_out, |_| ());
                    prop_assert_eq!(expected, ahead.is_some());
                    let at = match ahead {
                        Some(ahead) => {
                            plain[issued..=issued + ahead].iter_mut().for_each(|point| point.seq = Some(seq));
                            issued + ahead
                        }
                        None => {
                            plain.insert(issued, Plain { exec, seq: Some(seq), uses: BTreeMap::new() });
                            issued
                        }
                    };
                    for (block, does) in uses {
                        timeline.add(nth, Handle::of(block), does);
                        let written = plain[at].uses.entry(block).or_default();
                        *written = does.max(*written);
                    }
                }
                Step::Teach { nth, uses } => {
                    let points: Vec<_> = timeline.all().collect();
                    let Some(at) = nth.checked_rem(points.len()) else { continue };
                    for (block, does) in uses {
                        timeline.add(points[at], Handle::of(block), does);
                        let written = plain[at].uses.entry(block).or_default();
                        *written = does.max(*written);
                    }
                }
                Step::Finish => {
                    over = (over + 1).min(seq);
                    while timeline.pop(LaunchSeq(over), |_| ()).is_some() {}
                    plain.retain(|point| point.seq.is_none_or(|seq| seq > over));
                }
                Step::TakeBack => {
                    timeline.take_back(|_| ());
                    plain.retain(|point| point.seq.is_some());
                }
                Step::Skip { block } => {
                    let first = plain.iter_mut().find(|point| point.uses.contains_key(&block));
                    prop_assert_eq!(timeline.skip(Handle::of(block)), first.is_some());
                    if let Some(first) = first {
                        first.uses.remove(&block);
                    }
                }
                Step::Forget { block } => {
                    timeline.forget(Handle::of(block));
                    plain.iter_mut().for_each(|point| { point.uses.remove(&block); });
                }
            }
            for block in 0..BLOCKS {
                let next = timeline.next_use(Handle::of(block));
                let first = plain.iter().position(|point| point.uses.contains_key(&block));
                prop_assert_eq!(next.is_some(), first.is_some(), "block {}", block);
                if let (Some((ticket, does)), Some(first)) = (next, first) {
                    let nth = timeline.find(ticket).expect("a point has the ticket");
                    prop_assert_eq!(timeline.issued_at(nth), plain[first].seq.map(LaunchSeq));
                    prop_assert_eq!(timeline.point(nth).exec, Some(ExecId(plain[first].exec)));
                    prop_assert_eq!(does, plain[first].uses[&block]);
                }
            }
        }
    }

    /// Who comes first and last of a class, against a map of all blocks.
    #[test]
    fn ranks_are_those_of_a_sorted_list(
        moves in prop::collection::vec((0..BLOCKS, prop::option::of(0usize..3), 0u64..5), 1..60)
    ) {
        let classes = [Class::Away, Class::Only, Class::Dead];
        let (mut ranks, mut plain) = (Ranks::default(), BTreeMap::new());
        for (n, (block, class, ticket)) in moves.into_iter().enumerate() {
            let ticket = if ticket == 4 { NEVER } else { Ticket(ticket) };
            let before = plain.get(&block).copied();
            match class {
                // Where it is already it stays.
                Some(class) if before.is_some_and(|(other, at, _)| (other, at) == (class, ticket)) => {}
                Some(class) => { plain.insert(block, (class, ticket, n)); }
                None => { plain.remove(&block); }
            }
            ranks.place(Handle::of(block), class.map(|class| classes[class]), ticket);
            for (index, &class) in classes.iter().enumerate() {
                let mut all: Vec<_> = plain.iter().filter(|(_, at)| at.0 == index).map(|(&b, at)| (at.1, at.2, b)).collect();
                all.sort_unstable();
                let nearest: Vec<_> = all.iter().map(|&(ticket, _, block)| (ticket, Handle::of(block))).collect();
                prop_assert_eq!(ranks.nearest_first(class).collect::<Vec<_>>(), nearest.clone());
                prop_assert_eq!(ranks.first(class), nearest.first().copied());
                let last = nearest.last().and_then(|last| nearest.iter().find(|other| other.0 == last.0));
                prop_assert_eq!(ranks.last(class), last.copied());
                prop_assert_eq!(ranks.count(class), nearest.len());
            }
        }
    }
}

fn written(uses: &[(u32, Does)]) -> BTreeMap<u32, Does> {
    let mut all = BTreeMap::new();
    for &(block, does) in uses {
        let before = all.entry(block).or_default();
        *before = does.max(*before);
    }
    all
}

/// A block that each launch reads, and the 100th writes: that is seen once it is near, and never too late.
#[test]
fn a_write_behind_many_reads_is_seen_when_it_is_near() {
    let (mut timeline, block) = (Timeline::default(), Handle::of(0));
    let points: Vec<_> = (0..100u64).map(|_| timeline.push(ExecId(7))).collect();
    for (at, &nth) in points.iter().enumerate() {
        timeline.add(nth, block, if at == 99 { Does::Writes } else { Does::Reads });
    }
    let write = Ticket(100 * STRIDE);
    let mut seen = Vec::new();
    for seq in 1..=99 {
        timeline.issue(LaunchSeq(seq), Some(ExecId(7)), Some(0), |_| ());
        seen.push(timeline.next_write(block, NEVER).expect("it is foreseen"));
        timeline.pop(LaunchSeq(seq), |_| ());
    }
    assert!(seen.iter().all(|&ticket| ticket <= write) && seen[0] < write);
    assert!(seen[36..].iter().all(|&ticket| ticket == write), "64 uses are looked at");
}

/// Two launches alternate; one that was expected next but one leaves the other out.
#[test]
fn a_launch_left_out_is_over_with_the_one_after_it() {
    let mut timeline = Timeline::default();
    for (exec, block) in [(7, 0), (8, 1), (9, 2)] {
        let nth = timeline.push(ExecId(exec));
        timeline.add(nth, Handle::of(block), Does::Reads);
    }
    let (nth, expected) = timeline.issue(LaunchSeq(1), Some(ExecId(8)), Some(1), |_| ());
    assert!(expected && timeline.point(nth).exec == Some(ExecId(8)));
    let mut gone = Vec::new();
    while timeline.pop(LaunchSeq(1), |at| gone.push(at.id())).is_some() {}
    assert_eq!(gone, [0, 1]);
    assert!(timeline.next_use(Handle::of(2)).is_some());
}

#[test]
fn a_copy_is_kept_for_a_rest_in_which_new_contents_come() {
    let again = |fills: u32, launches: u32, does: Does| {
        let mut timeline = Timeline::default();
        let block = Handle::of(fills);
        let mut launch = |uses: &[(Handle, Does)]| {
            let nth = timeline.push(ExecId(0));
            uses.iter().for_each(|&(at, does)| _ = timeline.add(nth, at, does));
        };
        let new: Vec<Handle> = (0..fills).map(Handle::of).collect();
        launch(&new.iter().map(|&at| (at, Does::Reads)).collect::<Vec<_>>());
        launch(&[]);
        launch(&[(block, does)]);
        launch(&new.iter().map(|&at| (at, Does::Fills)).collect::<Vec<_>>());
        (4..launches).for_each(|_| launch(&[]));
        launch(&[(block, Does::Writes)]);
        timeline.is_worth_a_copy(block)
    };
    assert_eq!(again(600, 80, Does::Reads), Some(None));
    assert_eq!(again(600, 80, Does::Uses), Some(Some(ExecId(0))), "it may write");
    assert_eq!(again(600, 80, Does::Writes), None, "it writes");
    assert_eq!(again(600, 40, Does::Reads), None, "the rest is short");
    assert_eq!(again(60, 80, Does::Reads), None, "there is little that is new");
}

#[test]
fn what_nobody_writes_is_worth_a_copy() {
    let worth = |uses: &[Does]| {
        let mut timeline = Timeline::default();
        for &does in uses {
            let nth = timeline.push(ExecId(7));
            timeline.add(nth, Handle::of(0), does);
        }
        timeline.is_worth_a_copy(Handle::of(0))
    };
    let [reads, uses, writes, fills] = [Does::Reads, Does::Uses, Does::Writes, Does::Fills];
    assert_eq!(worth(&[reads, reads]), Some(None));
    assert_eq!(worth(&[reads, uses]), Some(Some(ExecId(7))), "the second may write");
    assert_eq!(worth(&[uses, reads]), Some(Some(ExecId(7))), "it may write");
    assert_eq!(worth(&[reads, reads, writes]), None, "it is written within the iteration");
    assert_eq!(worth(&[reads, fills]), None, "what is in there is not needed again");
    assert_eq!(worth(&[reads]), None, "it is not known to be needed again");
    assert_eq!(worth(&[reads; 63]), Some(None));
    assert_eq!(worth(&[reads; 64]), None, "it seldom leaves");
}

#[test]
fn who_is_read_until_it_is_to_leave_is_worth_a_copy() {
    // Between its third use and its fourth others take all places.
    let leaves = |of: &[(u32, Does)]| {
        let mut timeline = Timeline::default();
        timeline.plan.places = 2;
        for (n, &(exec, does)) in (0..).zip(of) {
            let nth = timeline.push(ExecId(exec));
            timeline.add(nth, Handle::of(0), does);
            let others = if n == 2 { 1..4 } else { 1..1 };
            let nth = timeline.push(ExecId(100));
            others.for_each(|other| _ = timeline.add(nth, Handle::of(other), Does::Fills));
        }
        timeline.leaves_later(Handle::of(0)).map(|(ticket, doubtful)| (ordinal(ticket), doubtful))
    };
    let [reads, uses, writes, fills] = [Does::Reads, Does::Uses, Does::Writes, Does::Fills];
    let with = |n: usize, does| {
        let mut of = [(7, reads), (8, reads), (9, reads), (10, writes)];
        of[n].1 = does;
        of
    };
    assert_eq!(leaves(&with(0, reads)), Some((7, None)), "it is written only when it has come again");
    assert_eq!(leaves(&with(1, uses)), Some((7, Some(ExecId(8)))), "it may be written before");
    assert_eq!(leaves(&with(2, writes)), None, "it is written before");
    assert_eq!(leaves(&with(3, fills)), None, "nobody needs it any more");
    assert_eq!(leaves(&with(0, reads)[..3]), None, "nothing is known of when it leaves");
}

#[test]
fn a_place_is_counted_on_once_the_block_was_handed_back() {
    const FILLED: u64 = 9;
    let block = Handle::of(0);
    // An iteration in which launch 0 uses a block for the last time and launch 9 fills it anew: how many launches after the former it can be given up, as foreseen, which takes one more. Then the
    // block is handed back when so many launches after the former were issued, each time.
    let iteration = |timeline: &mut Timeline, handed_back: &[u64]| {
        let first = timeline.last_issued.plus(1);
        let from = timeline.front();
        for launch in 0..=FILLED {
            let nth = timeline.push(ExecId(u32::try_from(launch).unwrap()));
            match launch {
                0 => _ = timeline.add(nth, block, Does::Reads),
                FILLED => _ = timeline.add(nth, block, Does::Fills),
                _ => {}
            }
        }
        let at = |launch| ordinal(from) + launch;
        let free = |launch: &u64| timeline.need.highest_within(at(0), at(*launch), at(*launch)) < 0;
        let freed = (0..FILLED).find(free);
        for launch in 0..=FILLED {
            let exec = Some(ExecId(u32::try_from(launch).unwrap()));
            timeline.issue(first.plus(launch), exec, Some(0), |_| ());
            timeline.pop(first.plus(launch), |_| ());
            for _ in handed_back.iter().filter(|&&later| later == launch) {
                timeline.handed_back(first.plus(launch), [block].into_iter());
            }
        }
        freed.map(|launch| launch - 2)
    };
    let mut timeline = Timeline::default();
    assert_eq!(iteration(&mut timeline, &[3]), Some(0), "nothing is known of it yet");
    assert_eq!(iteration(&mut timeline, &[3, 5]), Some(3));
    assert_eq!(iteration(&mut timeline, &[2]), Some(5), "taken again, and handed back once more");
    assert_eq!(iteration(&mut timeline, &[0]), Some(2));
    assert_eq!(iteration(&mut timeline, &[0]), Some(0));
    // The host may be ahead of the records of what it issued.
    for launch in 0..=FILLED {
        let nth = timeline.push(ExecId(u32::try_from(launch).unwrap()));
        if launch == 0 {
            timeline.add(nth, block, Does::Reads);
        }
    }
    let next = timeline.last_issued.plus(1);
    timeline.handed_back(next.plus(4), [block].into_iter());
    for launch in 0..=FILLED {
        timeline.issue(next.plus(launch), Some(ExecId(u32::try_from(launch).unwrap())), Some(0), |_| ());
        timeline.pop(next.plus(launch), |_| ());
    }
    assert_eq!(iteration(&mut timeline, &[]), Some(4));
    let next = timeline.last_issued.plus(1);
    let nth = timeline.push(ExecId(0));
    timeline.add(nth, block, Does::Reads);
    timeline.issue(next, Some(ExecId(0)), Some(0), |_| ());
    timeline.pop(next, |_| ());
    timeline.forget(block);
    timeline.handed_back(next.plus(7), [block].into_iter());
    assert_eq!(iteration(&mut timeline, &[]), Some(4), "that was another block");
}

/// A launch of its own for each of two blocks, in turn; then one of them comes instead of the other again and again.
#[test]
fn of_a_block_whose_uses_come_unforeseen_the_next_is_known_when_it_is_issued() {
    let [block, other] = [0, 1].map(Handle::of);
    let mut timeline = Timeline::default();
    let mut seq = LaunchSeq(0);
    let mut issue = |timeline: &mut Timeline, exec, left_out| {
        seq = seq.plus(1);
        let mut void = Vec::new();
        let (nth, _) = timeline.issue(seq, Some(ExecId(exec)), left_out, |at| void.push(at));
        (nth, seq, void)
    };
    for exec in [7, 8] {
        let (nth, seq, _) = issue(&mut timeline, exec, None);
        timeline.add(nth, if exec == 7 { block } else { other }, Does::Reads);
        timeline.pop(seq, |_| ());
    }
    for _ in 0..4 {
        for (exec, at) in [(8, other), (9, other)] {
            let nth = timeline.push(ExecId(exec));
            timeline.add(nth, at, Does::Reads);
        }
        let (nth, ..) = issue(&mut timeline, 7, None);
        timeline.add(nth, block, Does::Reads);
        let (_, seq, _) = issue(&mut timeline, 9, Some(1));
        while timeline.pop(seq, |_| ()).is_some() {}
    }
    let front = timeline.front();
    let nth = timeline.push(ExecId(7));
    timeline.add(nth, block, Does::Reads);
    assert_eq!(timeline.needed(block, false), None, "foreseen, and doubtful");
    assert!(timeline.needed(block, true) > Some(front), "by how seldom it is used");
    assert!(timeline.next_use(block).is_some_and(|(ticket, _)| ticket == front));
    let (_, _, void) = issue(&mut timeline, 7, Some(0));
    assert_eq!((timeline.needed(block, false), void), (Some(front), vec![block]));
    // Whoever has its place next is another block.
    timeline.forget(block);
    let nth = timeline.push(ExecId(7));
    timeline.add(nth, block, Does::Reads);
    assert!(timeline.needed(block, false) > Some(front), "foreseen, and trusted");
}

/// It came unforeseen at first, and since then as foreseen, once in twenty launches.
#[test]
fn who_is_trusted_is_needed_as_seldom_as_ever_behind_all_that_is_foreseen() {
    let [block, other] = [0, 1].map(Handle::of);
    let mut timeline = Timeline::default();
    let mut seq = LaunchSeq(0);
    for iteration in 0..12 {
        let launches = (0..20).map(|nth| if nth == 19 { (7, block) } else { (8, other) });
        if iteration > 1 {
            for (exec, at) in launches.clone() {
                let nth = timeline.push(ExecId(exec));
                timeline.add(nth, at, Does::Reads);
            }
        }
        for (exec, at) in launches {
            seq = seq.plus(1);
            // Another one was foreseen in its place.
            if iteration == 1 && exec == 7 {
                timeline.push(ExecId(9));
            }
            let (nth, _) = timeline.issue(seq, Some(ExecId(exec)), (iteration > 1).then_some(0), |_| ());
            timeline.add(nth, at, Does::Reads);
            timeline.pop(seq, |_| ());
            if iteration == 1 {
                timeline.take_back(|_| ());
            }
        }
    }
    let by = Ticket(timeline.front().0 + 20 * crate::horizon::timeline::STRIDE);
    for foreseen in 0..40 {
        assert_eq!(timeline.needed(block, true), (foreseen <= 20).then_some(by), "{foreseen} launches are foreseen");
        assert_eq!(timeline.needed(block, false), None);
        let nth = timeline.push(ExecId(8));
        timeline.add(nth, other, Does::Reads);
    }
}

#[test]
fn who_was_expected_by_a_launch_that_is_over_is_overdue() {
    let [early, late, away] = [0, 1, 2].map(Handle::of);
    let ticket = |launch| Ticket(launch * crate::horizon::timeline::STRIDE);
    let mut ranks = Ranks::default();
    for (at, class, launch) in [(early, Class::Only, 3), (late, Class::Saved, 5), (away, Class::Away, 4)] {
        ranks.place(at, Some(class), ticket(launch));
    }
    ranks.begin(3);
    assert_eq!(ranks.overdue(), None);
    ranks.begin(5);
    assert_eq!(ranks.overdue(), Some(early));
    ranks.place(early, Some(Class::Only), ticket(9));
    assert_eq!(ranks.overdue(), None);
    ranks.begin(10);
    let mut found = Vec::new();
    while let Some(at) = ranks.overdue() {
        found.push(at);
        ranks.place(at, Some(Class::Only), NEVER);
    }
    assert_eq!(found, [early, late]);
}
