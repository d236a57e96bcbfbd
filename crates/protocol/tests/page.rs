//! The page is what `docs/page.md` says, and hand-outs do what a model of them in plain sets does.
#![cfg(not(loom))]

use deepum_core::units::{LaunchSeq, StreamSlot, UmBlock};
use deepum_protocol::AtomicU64;
use deepum_protocol::gate::OPEN;
use deepum_protocol::grace::GraceWords;
use deepum_protocol::handout::HandOuts;
use deepum_protocol::inflight::InFlight;
use deepum_protocol::page::{MAGIC, Page, PageError, VERSION, WORDS};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

fn words(count: usize) -> &'static [AtomicU64] {
    Box::leak((0..count).map(|_| AtomicU64::new(0)).collect())
}

#[test]
fn a_page_is_known_by_its_header_and_anything_else_is_refused_by_name() {
    let all = words(WORDS);
    Page::format(all).unwrap();
    assert!(Page::open(all).is_ok());
    let broken = |at: usize, value: u64, want: PageError, text: &str| {
        let before = all[at].swap(value, Ordering::Relaxed);
        let have = Page::open(all).unwrap_err();
        all[at].store(before, Ordering::Relaxed);
        assert_eq!(have, want);
        assert!(have.to_string().contains(text), "{have}");
    };
    broken(1024, 7, PageError::Magic { have: 7 }, "marked with 0x7");
    broken(1025, 2, PageError::Version { have: 2 }, "version 2; this program knows version 5");
    broken(1026, 9, PageError::Words { have: 9 }, "header says 9 words");
    let short = &all[..WORDS - 1];
    assert_eq!(Page::open(short).unwrap_err(), PageError::Size { words: WORDS - 1 });
    assert_eq!(Page::format(short).unwrap_err(), PageError::Size { words: WORDS - 1 });
}

/// Word by word as in `docs/page.md`.
#[test]
fn the_layout_is_the_documented_one() {
    let all = words(1_314_816);
    let page = Page::format(all).unwrap();
    assert_eq!(all[1024].load(Ordering::Relaxed), MAGIC);
    assert_eq!(MAGIC.to_le_bytes(), *b"DEEPUMPG");
    assert_eq!((all[1025].load(Ordering::Relaxed), VERSION), (5, 5));
    assert_eq!(all[1026].load(Ordering::Relaxed), 1_314_816);
    assert!(all[512..528].iter().all(|gate| gate.load(Ordering::Relaxed) == OPEN));
    assert!(
        all.iter()
            .enumerate()
            .all(|(i, w)| (512..528).contains(&i) || (1024..1027).contains(&i) || w.load(Ordering::Relaxed) == 0)
    );

    assert_eq!((page.progress().len(), page.gates().word(0).is_none()), (0, true), "not reached yet");
    page.set_reached();
    assert_eq!(all[1032].load(Ordering::Relaxed), 1);
    let at = |word: &AtomicU64| (std::ptr::from_ref(word) as usize - all.as_ptr() as usize) / 8;
    assert_eq!((at(&page.progress()[0]), page.progress().len()), (0, 512));
    assert_eq!((at(page.gates().word(0).unwrap()), at(page.gates().word(15).unwrap())), (512, 527));
    assert!(page.gates().word(16).is_none());
    assert_eq!(page.gpu_words().len() * 8, 2 * 4096);
    assert_eq!((Page::progress_at(5), Page::gate_at(3)), (5, 515));
    assert_eq!((at(page.pending()), at(page.nudge())), (1040, 1048));
    assert_eq!((at(page.grace().epoch), at(page.grace().ended)), (1064, 1072));
    let streams = page.in_flight();
    assert_eq!((at(streams.blind), at(&streams.used[0]), streams.used.len()), (1080, 1088, 8));
    assert_eq!((at(&streams.issued[0]), at(&streams.streams[0]), at(&streams.epochs[0])), (1536, 2048, 2560));
    assert_eq!((at(&streams.ends[0]), streams.ends.len()), (266_240, 512 * 2048));
    let outs = page.hand_outs();
    assert!(outs.open(UmBlock(262_144 * 3 + 2)));
    outs.hold(UmBlock(262_144 * 3 + 2));
    // Open, one holder, tag 3, stamp 0.
    assert_eq!(all[4096 + 2].load(Ordering::Relaxed), 1 << 13 | 1 | 3 << 16);
}

/// Four words of hand-outs, two streams of which the ends of eight epochs are kept.
struct Bench {
    outs: HandOuts<'static>,
    grace: GraceWords<'static>,
    streams: InFlight<'static>,
}

impl Bench {
    fn new() -> Self {
        let all = words(12);
        let grace = GraceWords { epoch: &all[0], ended: &all[1] };
        let streams = InFlight {
            progress: &all[2..4],
            issued: &all[4..6],
            streams: &all[6..8],
            epochs: &all[8..10],
            ends: words(2 * 8),
            used: &all[10..11],
            blind: &all[11],
            grace,
        };
        Self { outs: HandOuts::new(words(4), grace), grace, streams }
    }
    fn look(&self) {
        self.grace.look(&self.streams);
    }
    fn issue(&self, slot: u16, seq: u64) {
        let slot = StreamSlot(slot);
        self.streams.claim(slot, slot);
        self.streams.issue(slot, LaunchSeq(seq));
        self.streams.given(slot, LaunchSeq(seq), true);
    }
    fn finish(&self, slot: u16, seq: u64) {
        self.streams.progress[usize::from(slot)].store(seq, Ordering::Release);
    }
    fn release(&self, block: u64) {
        self.outs.release(UmBlock(block), self.grace.stamp());
    }
    /// Whether a discard may begin; it is ended at once.
    fn discardable(&self, block: u64) -> bool {
        let yes = self.outs.begin_discard(UmBlock(block));
        if yes {
            self.outs.end_discard(UmBlock(block));
        }
        yes
    }
}

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

#[test]
fn a_refused_operation_is_not_waited_for() {
    let b = Bench::new();
    b.issue(0, 1);
    b.finish(0, 1);
    b.look();
    let before = b.streams.issue(StreamSlot(0), LaunchSeq(2));
    b.outs.open(UmBlock(1));
    // This period's look finds it.
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
fn a_lead_is_one_gpus_and_none_is_said_for_those_past_the_last() {
    let page = Page::format(words(WORDS)).unwrap();
    assert_eq!(page.lead(0), None);
    page.set_lead(1, Some(64));
    page.set_lead(99, Some(7));
    assert_eq!([0, 1, 2, 99].map(|ordinal| page.lead(ordinal)), [None, Some(64), None, None]);
    page.set_lead(1, None);
    assert_eq!(page.lead(1), None);
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

#[test]
fn the_next_engine_goes_on_from_where_the_last_one_stopped() {
    let b = Bench::new();
    b.outs.open(UmBlock(1));
    b.outs.hold(UmBlock(1));
    b.issue(0, 1);
    b.look();
    b.release(1);
    b.outs.open(UmBlock(2));
    b.finish(0, 1);
    b.look();
    assert!(b.outs.begin_discard(UmBlock(1)) && !b.outs.begin_discard(UmBlock(1)), "one at a time");
    // It is killed here.
    assert!(!b.outs.begin_discard(UmBlock(1)));
    b.outs.clear_discards();
    b.outs.hold(UmBlock(1));
    b.issue(0, 2);
    b.release(1);
    b.look();
    assert!(!b.discardable(1));
    b.finish(0, 2);
    b.look();
    assert!(b.discardable(1));
}

#[test]
fn once_nobody_says_who_holds_what_nothing_is_discarded() {
    let b = Bench::new();
    b.outs.open(UmBlock(1));
    b.outs.open(UmBlock(2));
    b.outs.hold(UmBlock(2));
    b.look();
    assert!(b.discardable(1));
    b.outs.pin_all();
    b.release(2);
    // Nor what is opened later, in the place of another or of none.
    b.outs.close(UmBlock(1));
    assert!(!b.outs.open(UmBlock(1)) && !b.outs.open(UmBlock(3)));
    (0..2).for_each(|_| b.look());
    assert!((1..4).all(|block| !b.discardable(block)));
}

/// What may be done to a block, of which those equal modulo 4 share a word.
#[derive(Clone, Copy, Debug)]
enum Step {
    Open(u64),
    Close(u64),
    Hold(u64),
    Release(u64),
    Pin(u64),
    Discard(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let block = 0..9u64;
    prop_oneof![
        block.clone().prop_map(Step::Open),
        block.clone().prop_map(Step::Close),
        block.clone().prop_map(Step::Hold),
        block.clone().prop_map(Step::Release),
        block.clone().prop_map(Step::Pin),
        block.prop_map(Step::Discard),
    ]
}

proptest! {
    #[test]
    fn hand_outs_are_as_a_model_in_plain_sets(steps in prop::collection::vec(step(), 1..200)) {
        let b = Bench::new();
        // The owner of each word, its holders, and whether it is pinned.
        let mut owner: BTreeMap<u64, u64> = BTreeMap::new();
        let mut holders: BTreeMap<u64, u64> = BTreeMap::new();
        let mut pinned = BTreeSet::new();
        for step in steps {
            let owns = |owner: &BTreeMap<u64, u64>, block: u64| owner.get(&(block % 4)) == Some(&block);
            match step {
                Step::Open(block) => {
                    let got = *owner.entry(block % 4).or_insert(block) == block;
                    prop_assert_eq!(b.outs.open(UmBlock(block)), got);
                }
                Step::Close(block) => {
                    b.outs.close(UmBlock(block));
                    if owns(&owner, block) {
                        owner.remove(&(block % 4));
                        holders.remove(&block);
                        pinned.remove(&block);
                    }
                }
                Step::Hold(block) => {
                    b.outs.hold(UmBlock(block));
                    if owns(&owner, block) {
                        *holders.entry(block).or_default() += 1;
                    }
                }
                Step::Release(block) => {
                    b.release(block);
                    if let Some(count) = holders.get_mut(&block) {
                        *count = count.saturating_sub(1);
                    }
                }
                Step::Pin(block) => {
                    b.outs.pin(UmBlock(block));
                    if owns(&owner, block) {
                        pinned.insert(block);
                    }
                }
                Step::Discard(block) => {
                    b.look();
                    let free = owns(&owner, block) && holders.get(&block).is_none_or(|n| *n == 0) && !pinned.contains(&block);
                    prop_assert_eq!(b.discardable(block), free);
                }
            }
        }
    }
}
