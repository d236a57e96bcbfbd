//! The launch gate over a scripted world: it stands before launches whose blocks are on their way, and every end of a fetch opens it.

mod common;

use common::{World, block, until};
use deepum_core::event::MigrationCause;
use deepum_core::units::{AddrRange, Bytes, Place, UmBlock};
use deepum_engine::status;
use deepum_protocol::gate;
use deepum_protocol::ring::Record;
use deepum_protocol::status::{Pace, State};
use std::sync::atomic::Ordering;

/// Forty blocks, twenty of them may be on the GPU.
const BLOCKS: u64 = 40;
const ON_GPU: u64 = 20;

fn world() -> World {
    World::new("deepum", Bytes(UmBlock::SIZE.0 * ON_GPU), Pace::Driven)
}

/// The lowest launch that may not start, by the gate word; nothing if all may.
fn held(world: &World) -> Option<u64> {
    let word = world.gates.word(0).unwrap().load(Ordering::Acquire);
    (word != gate::OPEN).then_some(word + 1)
}

/// Launches of keys 1 and 2 in turn, of which that of key 2 needs block 3. Launch 4 is planned while 3 runs, and what is fetched
/// for it is left standing in the mover.
fn close(world: &World) {
    world.device.holds.store(true, Ordering::Relaxed);
    world.alloc(0, BLOCKS);
    world.settle();
    world.launch(1, 1, &[]);
    world.launch(2, 2, &[]);
    world.settle();
    world.progress[0].store(1, Ordering::Release);
    world.settle();
    world.device.fault(3, 1);
    world.settle();
    assert_eq!(held(world), None, "the launch that waits for it runs already, and no other wants it");
    world.device.release();
    world.settle();
    world.device.moved(block(3), Place::Host, MigrationCause::Coherence);
    world.settle();
    world.progress[0].store(2, Ordering::Release);
    world.settle();
    world.launch(3, 1, &[]);
    world.settle();
    assert_eq!(world.device.held(), 1, "block 3 is on its way for launch 4, which is not issued yet");
    assert_eq!(held(world), Some(4));
}

#[test]
fn the_gate_stands_before_a_launch_until_its_blocks_have_come() {
    let world = world();
    close(&world);
    world.device.release();
    world.settle();
    assert_eq!(held(&world), None);
    assert_eq!(status::of(&world.running).counters["gates_closed"], 1);
}

#[test]
fn a_fetch_that_fails_opens_the_gate_too() {
    let world = world();
    close(&world);
    world.device.lose();
    world.settle();
    assert_eq!(held(&world), None);
    assert_eq!(status::of(&world.running).counters["prefetch_failed"], 1);
}

#[test]
fn memory_freed_meanwhile_opens_the_gate() {
    let world = world();
    close(&world);
    world.ring.push(common::GPU, &Record::Free { range: AddrRange::new(block(0).start(), Bytes(80 << 20)) });
    world.settle();
    assert_eq!(held(&world), None);
}

#[test]
fn an_engine_that_dies_leaves_the_gate_open_for_good() {
    let world = world();
    close(&world);
    world.device.panics.store(true, Ordering::Relaxed);
    world.device.fault(9, 2);
    world.settle();
    world.device.release();
    until("off", || world.running.is_off().is_some());
    until("open", || held(&world).is_none());
}

#[test]
fn an_engine_that_the_device_gave_up_holds_no_launch() {
    let world = world();
    close(&world);
    world.running.given_up();
    assert_eq!(held(&world), None);
    world.device.release();
    until("off", || world.running.is_off().is_some());
    assert_eq!(held(&world), None);
    let status = status::of(&world.running);
    assert!(status.state == State::Off && status.reason.unwrap().contains("waited for it in vain"));
}

#[test]
fn at_the_end_of_the_program_the_gate_is_open() {
    let world = world();
    close(&world);
    world.running.program_ends();
    assert_eq!(held(&world), None);
    world.settle();
    assert_eq!(held(&world), None);
}
