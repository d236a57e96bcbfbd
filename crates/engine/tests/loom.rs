//! Every interleaving of the count of work: gate, inbox and desk between a device, the correlate and the migrate thread.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p deepum-engine --test loom --release`
#![cfg(loom)]
#![allow(missing_docs, reason = "tests")]

use deepum_core::command::{Command, Why};
use deepum_core::event::Event;
use deepum_core::queues::Hand;
use deepum_core::units::{DeviceId, Place, UmBlock};
use deepum_engine::desk::{Desk, Moved};
use deepum_engine::gate::{Gate, Wake};
use deepum_engine::inbox::Inbox;
use deepum_engine::pending::{Pending, Token};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use std::sync::Arc;

const GPU: DeviceId = DeviceId(0);

fn model(f: impl Fn() + Sync + Send + 'static) {
    bounded(3, f);
}

fn bounded(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // More preemptions than this are not explored; two threads need two to show a lost wake-up.
    builder.preemption_bound = Some(preemptions);
    // Those who wait go round and round.
    builder.max_branches = 20_000;
    builder.check(f);
}

fn arrived(block: UmBlock) -> Moved {
    Moved { device: GPU, event: Event::MoveDone { block, to: Place::Device(GPU), ok: true } }
}

fn fetch(n: u64) -> Command {
    Command::Fetch { block: UmBlock(n), why: Why::Fault }
}

/// Work nudged for is done when the count says so: the device never goes on too early.
#[test]
fn settled_means_that_what_was_nudged_for_is_done() {
    model(|| {
        let pending = Arc::new(Pending::default());
        let gate = Arc::new(Gate::new(Arc::clone(&pending)));
        let inbox: Arc<Inbox<Token>> = Arc::new(Inbox::new(1));
        let put = Arc::new(AtomicU32::new(0));
        let done = Arc::new(AtomicU32::new(0));

        let fault = thread::spawn({
            let (gate, inbox) = (Arc::clone(&gate), Arc::clone(&inbox));
            move || {
                while let Wake::Nudged(token) = gate.wait(None) {
                    if !inbox.push(token) {
                        return;
                    }
                }
            }
        });
        let correlate = thread::spawn({
            let (inbox, put, done) = (Arc::clone(&inbox), Arc::clone(&put), Arc::clone(&done));
            move || {
                while let Some(token) = inbox.pop() {
                    done.store(put.load(Ordering::Relaxed), Ordering::Relaxed);
                    drop(token);
                }
            }
        });
        for round in 1..=2 {
            put.store(round, Ordering::Relaxed);
            gate.nudge();
            while pending.count() != 0 {
                thread::yield_now();
            }
            assert_eq!(done.load(Ordering::Relaxed), round);
        }
        gate.close();
        inbox.close();
        fault.join().unwrap();
        correlate.join().unwrap();
        assert_eq!(pending.count(), 0);
    });
}

/// Commands handed over while the migrate thread is anywhere: none lost, and the count never 0 before all are moved, seen,
/// and what the core made of them is moved too.
fn hand_over(in_step: bool) {
    model(move || {
        let pending = Arc::new(Pending::default());
        let desk = Arc::new(Desk::of(&[Hand::In], Arc::clone(&pending), &[GPU], in_step));
        let moved = Arc::new(AtomicU32::new(0));
        let looks = Arc::new(Gate::new(Arc::clone(&pending)));

        let migrate = thread::spawn({
            let (desk, moved, looks) = (Arc::clone(&desk), Arc::clone(&moved), Arc::clone(&looks));
            move || {
                while let Some(job) = desk.next(Hand::In) {
                    assert!(job.batch.count == 1);
                    moved.fetch_add(1, Ordering::Relaxed);
                    let result = arrived(job.batch.first);
                    desk.done(job, &[result]);
                    looks.nudge();
                }
            }
        });
        // The correlate thread, here: two commands in two turns; each result of the first asks for one more.
        let mut asked = 0;
        let mut turn = |commands: &[u64]| {
            let mut results = Vec::new();
            desk.take_results(&mut results);
            let blocks = results.iter().filter_map(|moved| match moved.event {
                Event::MoveDone { block, .. } => Some(block.0),
                _ => None,
            });
            let more: Vec<u64> = blocks.filter(|n| *n < 10).map(|n| n + 10).collect();
            desk.hand_over(|queues| {
                for n in commands.iter().chain(&more) {
                    asked += 1;
                    queues[0].1.push(fetch(*n));
                }
            });
            results.len()
        };
        let token = pending.token();
        let mut seen = turn(&[1]) + turn(&[3]);
        drop(token);
        while seen < 4 {
            assert_ne!(pending.count(), 0, "settled although {seen} of 4 results were seen");
            if let Wake::Nudged(token) = looks.wait(None) {
                seen += turn(&[]);
                drop(token);
            }
        }
        // The last result may have been seen before its nudge came; nobody waits for that one here.
        looks.close();
        while pending.count() != 0 {
            thread::yield_now();
        }
        assert_eq!((moved.load(Ordering::Relaxed), asked), (4, 4));
        desk.close();
        migrate.join().unwrap();
        assert_eq!(pending.count(), 0);
    });
}

#[test]
fn no_command_is_lost_in_step() {
    hand_over(true);
}

#[test]
fn no_command_is_lost_out_of_step() {
    hand_over(false);
}

/// Two movers, and commands for the same block for both: whatever the interleaving, no block is in two hands,
/// nothing is lost, and settled means done.
fn two_hands(in_step: bool, hands: &'static [Hand; 2], command: Command) {
    // Three threads: one preemption less than elsewhere.
    bounded(2, move || {
        let pending = Arc::new(Pending::default());
        let desk = Arc::new(Desk::of(hands, Arc::clone(&pending), &[GPU], in_step));
        let in_hands = Arc::new(AtomicU32::new(0));
        let done = Arc::new(AtomicU32::new(0));
        let movers = hands.map(|hand| {
            let (desk, in_hands, done) = (Arc::clone(&desk), Arc::clone(&in_hands), Arc::clone(&done));
            thread::spawn(move || {
                while let Some(job) = desk.next(hand) {
                    assert_eq!(in_hands.fetch_add(1, Ordering::Relaxed), 0, "in two hands");
                    in_hands.fetch_sub(1, Ordering::Relaxed);
                    done.fetch_add(1, Ordering::Relaxed);
                    let result = arrived(job.batch.first);
                    desk.done(job, &[result]);
                }
            })
        });
        // The correlate thread, here. The fetch replaces the other command if that has not begun, and waits for it if it has, or is known.
        let token = pending.token();
        for command in [command, fetch(1)] {
            desk.hand_over(|queues| {
                queues[0].1.push(command);
            });
        }
        drop(token);
        let mut results = Vec::new();
        while pending.count() != 0 {
            desk.take_results(&mut results);
            if results.drain(..).next().is_some() {
                desk.hand_over(|_| {});
            }
            thread::yield_now();
        }
        assert!((1..=2).contains(&done.load(Ordering::Relaxed)));
        let waiting: usize = desk.waiting().iter().map(|(_, blocks)| blocks).sum();
        assert_eq!(waiting, 0, "settled although something waits");
        desk.close();
        movers.into_iter().for_each(|mover| mover.join().unwrap());
        assert_eq!(pending.count(), 0);
    });
}

#[test]
fn no_block_is_in_two_hands_in_step() {
    two_hands(true, &[Hand::Out, Hand::In], Command::Evict { block: UmBlock(1) });
}

#[test]
fn no_block_is_in_two_hands_out_of_step() {
    two_hands(false, &[Hand::Out, Hand::In], Command::Evict { block: UmBlock(1) });
}

#[test]
fn no_block_is_given_up_and_in_another_hand() {
    two_hands(false, &[Hand::GiveUp, Hand::In], Command::Discard { block: UmBlock(1) });
}

#[test]
fn no_block_comes_by_two_hands() {
    two_hands(false, &[Hand::In2, Hand::In], fetch(1));
}

#[test]
fn no_block_comes_by_two_hands_in_step() {
    two_hands(true, &[Hand::In2, Hand::In], fetch(1));
}

/// The engine dies at any moment: nobody waits for ever, and nothing stays counted.
#[test]
fn closing_at_any_moment_leaves_no_work_behind() {
    model(|| {
        let pending = Arc::new(Pending::default());
        let desk = Arc::new(Desk::of(&[Hand::In], Arc::clone(&pending), &[GPU], true));
        let gate = Arc::new(Gate::new(Arc::clone(&pending)));
        let migrate = thread::spawn({
            let (desk, gate) = (Arc::clone(&desk), Arc::clone(&gate));
            move || {
                while let Some(job) = desk.next(Hand::In) {
                    let result = arrived(job.batch.first);
                    desk.done(job, &[result]);
                    gate.nudge();
                }
            }
        });
        let killer = thread::spawn({
            let (desk, gate) = (Arc::clone(&desk), Arc::clone(&gate));
            move || {
                gate.close();
                desk.close();
            }
        });
        desk.hand_over(|queues| {
            for (_, queue) in queues {
                queue.push(fetch(1));
            }
        });
        gate.nudge();
        migrate.join().unwrap();
        killer.join().unwrap();
        drop(gate.wait(None));
        assert_eq!(pending.count(), 0);
    });
}

/// A full inbox makes the sender wait, and closing it lets the sender go.
#[test]
fn a_full_inbox_lets_its_sender_go_when_closed() {
    model(|| {
        let pending = Arc::new(Pending::default());
        let inbox: Arc<Inbox<Token>> = Arc::new(Inbox::new(1));
        let sender = thread::spawn({
            let (inbox, pending) = (Arc::clone(&inbox), Arc::clone(&pending));
            move || while inbox.push(pending.token()) {}
        });
        drop(inbox.pop());
        inbox.close();
        sender.join().unwrap();
        assert_eq!((pending.count(), inbox.pop().is_some()), (0, false));
    });
}
