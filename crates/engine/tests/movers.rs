//! The moving threads over a scripted driver: at the same time, never the same block, and discards only of what nobody has.

mod common;

use common::{Device, GPU, Hands, Shop, block, until};
use deepum_core::command::{Command, Why};
use deepum_core::event::DiscardOutcome::{self, Done, Failed, HandedOut};
use deepum_core::event::Event;
use deepum_core::queues::{Hand, Lane};
use deepum_core::units::{AddrRange, Bytes, Nanos, Place, UmBlock};
use deepum_engine::desk::{Desk, Moved};
use deepum_engine::migrate::{HandOuts, Mover, Said, Tools};
use deepum_engine::work::Work;
use deepum_kmod_bridge::{Advice, AdviseError, DiscardError, MigrateError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn range(first: u64, blocks: u64) -> AddrRange {
    AddrRange::new(block(first).start(), Bytes(UmBlock::SIZE.get() * blocks))
}

fn fetch(n: u64) -> Command {
    Command::Fetch { block: block(n), why: Why::Fault }
}

fn evict(n: u64) -> Command {
    Command::Evict { block: block(n) }
}

fn discard(n: u64) -> Command {
    Command::Discard { block: block(n) }
}

/// All threads over a driver and a shop, until `f` is through.
fn movers(device: &Arc<Device>, shop: &Shop, f: impl FnOnce(&Desk)) {
    let desk = Desk::new(Arc::default(), &[GPU], false);
    let hands = Hands(Arc::clone(device));
    let tools = Tools { desk: &desk, mover: &hands, hand_outs: shop, said: &Said::default(), work: &Work::default() };
    std::thread::scope(|scope| {
        for hand in Hand::ALL {
            let tools = &tools;
            scope.spawn(move || tools.run(hand, || {}, |_| {}));
        }
        f(&desk);
        desk.close();
        while device.release().is_some() {}
    });
}

fn ask(desk: &Desk, commands: &[Command]) {
    desk.hand_over(|queues| {
        for command in commands {
            queues[0].1.push(*command);
        }
    });
}

/// The outcomes of so many blocks.
fn outcomes(desk: &Desk, count: usize) -> Vec<Moved> {
    let mut results = Vec::new();
    until("all outcomes", || {
        desk.take_results(&mut results);
        results.len() >= count
    });
    results
}

/// The block, and what became of its contents.
fn discarded(moved: &Moved) -> (u64, DiscardOutcome) {
    match moved.event {
        Event::Discarded { block, outcome } => (block.0 - common::BASE, outcome),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_fetch_does_not_wait_for_an_eviction_and_the_same_block_does() {
    let (device, shop) = (Arc::new(Device::default()), Shop::default());
    device.holds.store(true, Ordering::Relaxed);
    movers(&device, &shop, |desk| {
        ask(desk, &[evict(1), evict(2)]);
        until("the eviction", || device.held() == 1);
        ask(desk, &[fetch(2), fetch(7)]);
        until("the fetch beside it", || device.held() == 2);
        assert_eq!(device.standing(), [Some((range(7, 1), Place::Device(GPU))), Some((range(1, 2), Place::Host))]);
        device.release();
        assert_eq!(outcomes(desk, 1)[0].event, Event::MoveDone { block: block(7), to: Place::Device(GPU), ok: true });
        assert_eq!(device.standing()[0], None, "2 is still being moved out");
        device.release();
        until("2 comes back", || device.standing()[0] == Some((range(2, 1), Place::Device(GPU))));
    });
}

#[test]
fn what_nobody_has_is_given_up_with_one_call_for_what_lies_together() {
    let (device, shop) = (Arc::new(Device::default()), Shop::default());
    shop.held.lock().unwrap().extend([block(3), block(9)]);
    movers(&device, &shop, |desk| {
        ask(desk, &[1, 2, 3, 4, 9].map(discard));
        let expected = [(1, Done), (2, Done), (3, HandedOut), (4, Done), (9, HandedOut)];
        let mut became: Vec<_> = outcomes(desk, 5).iter().map(discarded).collect();
        became.sort_by_key(|(n, _)| *n);
        assert_eq!(became, expected);
    });
    assert_eq!(device.discards(), [range(1, 2), range(4, 1)]);
    assert_eq!(device.calls(), []);
    assert!(shop.discarding.lock().unwrap().is_empty(), "all were ended");
}

#[test]
fn a_refused_discard_is_tried_block_by_block_and_reported() {
    let (device, shop) = (Arc::new(Device::default()), Shop::default());
    device.fails.store(true, Ordering::Relaxed);
    movers(&device, &shop, |desk| {
        ask(desk, &[1, 2].map(discard));
        assert!(outcomes(desk, 2).iter().all(|moved| discarded(moved).1 == Failed));
    });
    assert_eq!(device.discards(), [range(1, 2), range(1, 1), range(2, 1)]);
    assert!(shop.discarding.lock().unwrap().is_empty());
}

#[test]
fn two_copies_are_made_and_given_up_by_the_calls_listed_and_each_block_has_its_own_end() {
    let (device, shop) = (Arc::new(Device::default()), Shop::default());
    // Block 2 is freed while the calls are made.
    device.deaf.lock().unwrap().extend([range(1, 3), range(2, 1)]);
    movers(&device, &shop, |desk| {
        ask(desk, &[1, 2, 3].map(|n| Command::Save { block: block(n) }));
        let saved: Vec<_> = outcomes(desk, 3).iter().map(|moved| moved.event).collect();
        let expected = [(1, true), (2, false), (3, true)].map(|(n, ok)| Event::Saved { block: block(n), ok });
        assert_eq!(saved, expected);
        ask(desk, &[Command::Drop { block: block(5) }]);
        assert_eq!(outcomes(desk, 1)[0].event, Event::MoveDone { block: block(5), to: Place::Host, ok: true });
        // The mode is on for 5, and so a fetch sends it home first, and to own it turns the mode off, after which it has one copy.
        ask(desk, &[fetch(5)]);
        outcomes(desk, 1);
        ask(desk, &[Command::Own { block: block(5), by: Default::default() }]);
        outcomes(desk, 1);
        ask(desk, &[evict(5)]);
        outcomes(desk, 1);
    });
    let (home, there) = (|first, count| (range(first, count), Place::Host), (range(5, 1), Place::Device(GPU)));
    let advice = |first, count, on| (range(first, count), Advice::Duplicate(on));
    assert_eq!(
        device.advice(),
        [
            advice(1, 3, true),
            advice(1, 1, true),
            advice(2, 1, true),
            advice(3, 1, true),
            advice(5, 1, true),
            advice(5, 1, false)
        ]
    );
    let outwards = vec![home(1, 1), home(3, 1), home(5, 1), home(5, 1), home(5, 1)];
    assert_eq!(device.calls(), [vec![there, there], outwards].concat());
}

/// Looks at the marks from inside the call.
struct Witness<'a>(&'a Shop);

impl Mover for Witness<'_> {
    fn migrate(&self, _: AddrRange, _: Place) -> Result<(), MigrateError> {
        panic!("nothing is to move")
    }
    fn leave(&self, _: AddrRange) -> Result<(), MigrateError> {
        panic!("nothing is to leave")
    }
    fn advise(&self, _: AddrRange, _: Advice) -> Result<(), AdviseError> {
        panic!("nothing is to be told")
    }
    fn discard(&self, range: AddrRange) -> Result<(), DiscardError> {
        let marked = self.0.discarding.lock().unwrap();
        assert!(range.blocks().all(|block| marked.contains(&block)), "given up without a mark");
        drop(marked);
        panic!("planted panic")
    }
}

/// Else a program that is handed such a block would wait for ever.
#[test]
fn blocks_are_marked_during_the_call_and_a_panic_leaves_no_mark() {
    let shop = Shop::default();
    let desk = Desk::new(Arc::default(), &[GPU], false);
    ask(&desk, &[1, 2].map(discard));
    let tools =
        Tools { desk: &desk, mover: &Witness(&shop), hand_outs: &shop, said: &Said::default(), work: &Work::default() };
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let panic = catch_unwind(AssertUnwindSafe(|| tools.run(Hand::GiveUp, || {}, |_| {}))).unwrap_err();
    std::panic::set_hook(quiet);
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"planted panic"));
    assert!(shop.discarding.lock().unwrap().is_empty());
    assert!(shop.begin_discard(block(1)));
}

/// Every call takes a microsecond more than the one before; and how often it was to take back what it told the driver.
#[derive(Default)]
struct Slower(AtomicU64, AtomicU64, AtomicU64);

impl Slower {
    fn call(&self) {
        self.0.fetch_add(self.1.fetch_add(1000, Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Mover for Slower {
    fn migrate(&self, _: AddrRange, _: Place) -> Result<(), MigrateError> {
        unreachable!("nothing has two copies")
    }
    fn leave(&self, _: AddrRange) -> Result<(), MigrateError> {
        self.call();
        Ok(())
    }
    fn advise(&self, _: AddrRange, _: Advice) -> Result<(), AdviseError> {
        unreachable!("nothing has two copies")
    }
    fn discard(&self, _: AddrRange) -> Result<(), DiscardError> {
        self.call();
        Ok(())
    }
    fn settle(&self) {
        self.2.fetch_add(1, Ordering::Relaxed);
    }
    fn now(&self) -> Option<Nanos> {
        Some(Nanos(self.0.load(Ordering::Relaxed)))
    }
}

#[test]
fn what_is_done_is_counted_and_timed_by_lane() {
    let (desk, shop, work) = (Desk::new(Arc::default(), &[GPU], false), Shop::default(), Work::default());
    // Three calls, of 0, 1 and 2 us: two blocks in a row, one alone, and three that leave.
    ask(&desk, &[1, 2, 4].map(discard));
    let slower = Slower::default();
    let tools = Tools { desk: &desk, mover: &slower, hand_outs: &shop, said: &Said::default(), work: &work };
    std::thread::scope(|scope| {
        scope.spawn(|| tools.run(Hand::GiveUp, || {}, |_| {}));
        outcomes(&desk, 3);
        ask(&desk, &[11, 12, 13].map(evict));
        scope.spawn(|| tools.run(Hand::Out, || {}, |_| {}));
        outcomes(&desk, 3);
        assert_eq!(slower.2.load(Ordering::Relaxed), 0);
        desk.close();
    });
    assert_eq!(slower.2.load(Ordering::Relaxed), 1, "who leaves is over");
    assert_eq!(work.of(Lane::Discard), [2, 3, 1000]);
    assert_eq!(work.of(Lane::Evict), [1, 3, 2000]);
    assert_eq!(work.of(Lane::Predicted), [0; 3]);
}
