//! The two moving threads over a scripted driver: at the same time, never the same block, and discards only of what nobody has.

mod common;

use common::{Device, GPU, Hands, Shop, block, until};
use deepum_core::command::{Command, Why};
use deepum_core::event::DiscardOutcome::{self, Done, Failed, HandedOut};
use deepum_core::event::Event;
use deepum_core::queues::Direction;
use deepum_core::units::{AddrRange, Bytes, Place, UmBlock};
use deepum_engine::desk::{Desk, Moved};
use deepum_engine::migrate::{HandOuts, Mover, Said, Tools};
use deepum_kmod_bridge::{DiscardError, MigrateError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

/// Both threads over a driver and a shop, until `f` is through.
fn movers(device: &Arc<Device>, shop: &Shop, f: impl FnOnce(&Desk)) {
    let desk = Desk::new(Arc::default(), &[GPU], false);
    let hands = Hands(Arc::clone(device));
    let tools = Tools { desk: &desk, mover: &hands, hand_outs: shop, said: &Said::default() };
    std::thread::scope(|scope| {
        for direction in Direction::ALL {
            let tools = &tools;
            scope.spawn(move || tools.run(direction, || {}, |_| {}));
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
        ask(desk, &[1, 2, 3, 4, 5, 9].map(discard));
        let expected = [(1, Done), (2, Done), (3, HandedOut), (4, Done), (5, Done), (9, HandedOut)];
        let mut became: Vec<_> = outcomes(desk, 6).iter().map(discarded).collect();
        became.sort_by_key(|(n, _)| *n);
        assert_eq!(became, expected);
    });
    assert_eq!(device.discards(), [range(1, 2), range(4, 2)]);
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

/// Looks at the marks from inside the call.
struct Witness<'a>(&'a Shop);

impl Mover for Witness<'_> {
    fn migrate(&self, _: AddrRange, _: Place) -> Result<(), MigrateError> {
        panic!("nothing is to move")
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
    let tools = Tools { desk: &desk, mover: &Witness(&shop), hand_outs: &shop, said: &Said::default() };
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let panic = catch_unwind(AssertUnwindSafe(|| tools.run(Direction::Out, || {}, |_| {}))).unwrap_err();
    std::panic::set_hook(quiet);
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"planted panic"));
    assert!(shop.discarding.lock().unwrap().is_empty());
    assert!(shop.begin_discard(block(1)));
}
