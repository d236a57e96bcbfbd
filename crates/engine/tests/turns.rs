//! The threads over a scripted world: same script, same commands; failures end in plain behaviour.

mod common;

use common::{SAID, World, block, until};
use deepum_core::event::{Event, Fault, Launch, MigrationCause};
use deepum_core::units::{
    AddrRange, Bytes, DeviceId, KernelId, LaunchKey, LaunchSeq, Nanos, Place, StreamSlot, UmBlock,
};
use deepum_engine::status;
use deepum_kmod_bridge::Notice;
use deepum_protocol::ring::Record;
use deepum_protocol::shared::Mode;
use deepum_protocol::status::{Pace, State};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Forty blocks, twenty of them may be on the GPU; a cycle of ten launches, each of four blocks.
const BLOCKS: u64 = 40;
const ON_GPU: usize = 20;
const CYCLE: u64 = 10;

/// Runs `cycles` of it and gives every call of the mover, in order, and the number of faults of the last cycle.
fn train(world: &World, cycles: u64) -> (Vec<(AddrRange, Place)>, u32) {
    let device = &world.device;
    device.holds.store(true, Ordering::Relaxed);
    world.alloc(0, BLOCKS);
    world.settle();
    let mut resident: VecDeque<UmBlock> = VecDeque::new();
    // The driver's own order: last come, last to leave.
    let arrive = |resident: &mut VecDeque<UmBlock>, block: UmBlock| {
        resident.retain(|b| *b != block);
        resident.push_back(block);
        if resident.len() > ON_GPU {
            device.moved(resident.pop_front().unwrap(), Place::Host, MigrationCause::Eviction);
        }
    };
    let (mut batch, mut faults) = (0, 0);
    // The program runs three launches ahead of the GPU.
    for seq in 1..=cycles * CYCLE + 3 {
        let touched = |seq: u64| (0..4).map(move |i| (seq % CYCLE * 4 + i) % BLOCKS);
        world.launch(seq, seq % CYCLE, &touched(seq).collect::<Vec<_>>());
        world.settle();
        let Some(now) = seq.checked_sub(3).filter(|now| *now > 0) else { continue };
        if now > (cycles - 1) * CYCLE && now % CYCLE == 1 {
            faults = 0;
        }
        for n in touched(now) {
            if !resident.contains(&block(n)) {
                (batch, faults) = (batch + 1, faults + 1);
                device.fault(n, batch);
                world.settle();
                arrive(&mut resident, block(n));
                device.moved(block(n), Place::Device(common::GPU), MigrationCause::Coherence);
                world.settle();
            }
        }
        world.progress[0].store(now, Ordering::Release);
        world.settle();
        // The link gets eight calls done while a launch runs.
        for _ in 0..8 {
            // What the driver does for a call it tells before the call returns.
            let Some((range, to)) = device.next() else { continue };
            match to {
                Place::Device(_) => range.blocks().for_each(|block| arrive(&mut resident, block)),
                Place::Host => resident.retain(|gone| !range.blocks().any(|block| block == *gone)),
            }
            device.tell_next();
            world.settle();
            device.let_go((range, to));
            world.settle();
        }
    }
    (device.calls(), faults)
}

fn world(policy: &str) -> World {
    World::new(policy, Bytes(UmBlock::SIZE.0 * ON_GPU as u64), Pace::Driven)
}

fn apart(policy: &str) -> World {
    World::apart(policy, Bytes(UmBlock::SIZE.0 * ON_GPU as u64))
}

#[test]
fn the_same_script_gives_the_same_commands_200_times_whoever_takes_the_turns() {
    let first = world("deepum");
    let (expected, _) = train(&first, 3);
    assert_eq!(first.ring.shared().mode(), Mode::Awake, "40 blocks do not fit into 20");
    assert!(expected.len() > 30, "only {} commands: the script asks for nothing", expected.len());
    for run in 1..200 {
        let world = if run % 2 == 0 { world("deepum") } else { apart("deepum") };
        assert_eq!(train(&world, 3).0, expected, "run {run}");
    }
}

#[test]
fn prediction_runs_through_all_the_threads_and_helps() {
    let (_, demand) = train(&world("demand"), 4);
    let (_, deepum) = train(&world("deepum"), 4);
    assert_eq!(demand, 40, "a cycle larger than memory faults everywhere under LRU");
    assert!(deepum < 20, "{deepum} faults in the last cycle");
}

#[test]
fn a_device_that_stands_still_sees_the_engine_settled_whatever_waits() {
    let world = world("deepum");
    world.device.holds.store(true, Ordering::Relaxed);
    world.alloc(0, BLOCKS);
    world.settle();
    for n in 0..30 {
        world.device.fault(n * 2 % 40, 1);
    }
    world.settle();
    assert_eq!((world.running.pending(), world.device.held()), (2, 2), "two hands have one block each");
    let waiting = status::of(&world.running).counters["waiting_fault"];
    assert!(waiting > 10, "{waiting} wait behind the one in hand");
    while world.device.release().is_some() {
        world.settle();
    }
    assert_eq!((world.running.pending(), world.device.held()), (0, 0));
}

#[test]
fn polling_looks_by_itself_and_wakes_the_shim() {
    let world = World::new("deepum", Bytes(UmBlock::SIZE.0 * 4), Pace::Polling);
    assert_eq!(world.ring.shared().mode(), Mode::Dormant);
    world.alloc(0, 8);
    until("awake", || world.ring.shared().mode() == Mode::Awake);
    world.device.fault(3, 1);
    until("the fetch", || !world.device.calls().is_empty());
    assert_eq!(world.device.calls()[0], (block(3).range(), Place::Device(common::GPU)));
    until("quiet", || world.running.pending() == 0);
    let status = status::of(&world.running);
    assert_eq!((status.state, status.pace), (State::Awake, Pace::Polling));
    assert_eq!(status.counters["fault_blocks"], 1);
    world.ring.push(common::GPU, &Record::Free { range: AddrRange::new(block(0).start(), Bytes::mib(16)) });
    until("dormant", || world.ring.shared().mode() == Mode::Dormant);
}

/// Whatever breaks, the shim is told, one line is said, nothing is left to wait for, and the status says why.
fn is_off(world: &World, why: &str) {
    until("off", || world.running.is_off().is_some());
    until("told", || world.ring.shared().mode() == Mode::Off);
    until("no work", || world.running.pending() == world.device.held());
    let status = status::of(&world.running);
    assert_eq!(status.state, State::Off);
    let reason = status.reason.unwrap();
    assert!(reason.contains(why), "{reason}");
    let lines = SAID.lock().unwrap().iter().filter(|line| line.contains(why)).count();
    assert_eq!(lines, 1, "one line about {why}");
    // Late comers are not answered and not waited for.
    world.alloc(100, 1);
    world.running.nudge();
    until("still no work", || world.running.pending() == world.device.held());
    assert_eq!(world.ring.shared().mode(), Mode::Off);
}

#[test]
fn a_planted_panic_in_the_mover_ends_the_engine_and_nothing_else() {
    for pace in [Pace::Driven, Pace::Polling] {
        SAID.lock().unwrap().retain(|line| !line.contains("planted panic"));
        let world = World::new("deepum", Bytes(UmBlock::SIZE.0 * 4), pace);
        world.device.panics.store(true, Ordering::Relaxed);
        world.alloc(0, 8);
        world.device.fault(3, 1);
        world.running.nudge();
        is_off(&world, "planted panic");
    }
}

#[test]
fn a_corrupt_ring_ends_the_engine() {
    for world in [world("deepum"), apart("deepum")] {
        SAID.lock().unwrap().retain(|line| !line.contains("starts no record"));
        world.launch(1, 1, &[]);
        world.corrupt(0, 9);
        world.running.nudge();
        is_off(&world, "0x9 starts no record");
    }
}

#[test]
fn a_record_that_claims_half_the_address_space_ends_the_engine_at_once() {
    let world = world("deepum");
    world.alloc(0, BLOCKS);
    let range = AddrRange::new(block(BLOCKS).start(), Bytes(1 << 46));
    assert!(world.ring.push(common::GPU, &Record::Alloc { range }));
    let start = Instant::now();
    world.running.nudge();
    is_off(&world, "70368744177664 bytes at 0x20005000000 claimed");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn ranges_past_the_end_of_an_allocation_cost_what_the_allocation_does() {
    let world = world("deepum");
    world.alloc(0, BLOCKS);
    let long = |n: u64| AddrRange::new(block(n).start(), Bytes(u64::MAX));
    let start = Instant::now();
    for n in [0, 5, BLOCKS, BLOCKS + 1000] {
        let (range, stream) = (long(n), StreamSlot(0));
        for active in [true, false] {
            world.ring.push(common::GPU, &Record::PtBlock { range, active, issued: LaunchSeq(n) });
        }
        world.ring.push(common::GPU, &Record::Copy { seq: LaunchSeq(n + 1), stream, range, write: true });
    }
    world.settle();
    world.ring.push(common::GPU, &Record::Free { range: long(0) });
    world.settle();
    assert!(world.running.is_off().is_none() && start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(status::of(&world.running).counters["engine_strangers"], 4, "PT blocks of memory that nobody announced");
    assert_eq!(world.running.usage()[0].managed, Bytes::ZERO, "all that began there is free");
}

#[test]
fn a_device_that_holds_our_thread_while_the_engine_dies_is_not_kept_waiting() {
    let world = world("deepum");
    world.device.holds.store(true, Ordering::Relaxed);
    world.alloc(0, BLOCKS);
    world.device.fault(3, 1);
    world.settle();
    assert_eq!(world.device.held(), 1);
    // Behind the record of the allocation.
    world.launch(1, 1, &[]);
    world.corrupt(3, 10);
    world.running.nudge();
    until("off", || world.running.is_off().is_some());
    until("settled", || world.running.pending() == 1 && world.device.held() == 1);
    world.device.release();
    until("gone", || world.running.pending() == 0);
}

#[test]
fn a_broken_source_is_said_and_the_engine_goes_on_without_faults() {
    let world = world("deepum");
    world.alloc(0, BLOCKS);
    world.device.fault(3, 1);
    world.device.break_source();
    world.running.nudge();
    until("broken", || status::of(&world.running).reason.is_some());
    until("settled", || world.running.pending() == 0);
    let status = status::of(&world.running);
    assert_eq!(status.state, State::Awake);
    assert!(!status.sources.tools_queue.attached && status.reason.unwrap().contains("stay unseen"));
    assert_eq!(status.counters["fault_blocks"], 1, "what came before it broke was used");
    world.launch(1, 1, &[1, 2]);
    world.running.nudge();
    until("launch seen", || status::of(&world.running).counters["launches"] == 1);
}

#[test]
fn what_cannot_be_moved_is_counted_and_said_once() {
    let world = world("deepum");
    world.device.fails.store(true, Ordering::Relaxed);
    world.alloc(0, BLOCKS);
    for n in 0..6 {
        world.device.fault(n, 1);
        world.settle();
    }
    assert_eq!(status::of(&world.running).counters["moves_failed"], 6);
    let said = SAID.lock().unwrap().iter().filter(|line| line.contains("no memory left there")).count();
    assert_eq!(said, 1);
}

#[test]
fn a_slow_correlate_thread_makes_looks_wait_and_loses_none() {
    let world = Arc::new(World::new("demand", Bytes(UmBlock::SIZE.0 * 4), Pace::Polling));
    world.alloc(0, 8);
    until("seen", || status::of(&world.running).counters["engine_records"] == 1);
    // The correlate thread cannot begin a turn meanwhile, and the inbox is 64 deep.
    world.running.between_turns(|| {
        for batch in 0..200 {
            world.device.fault(batch % 8, u32::try_from(batch).unwrap());
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    });
    until("all faults", || status::of(&world.running).counters["fault_blocks"] == 200);
    assert_eq!(status::of(&world.running).counters["fault_batches"], 200);
}

#[test]
fn a_full_record_ring_drops_and_counts() {
    let world = world("deepum");
    let mut pushed = 0;
    while world.launch(pushed + 1, 1, &[1, 2, 3]) {
        pushed += 1;
    }
    world.settle();
    let status = status::of(&world.running);
    assert_eq!(status.counters["engine_records"], pushed);
    assert_eq!(status.ring.dropped, 1);
    assert_eq!(status.ring.used_words, 0);
}

#[test]
fn the_device_may_ask_what_a_launch_was_thought_to_touch() {
    let world = world("deepum");
    world.alloc(0, BLOCKS);
    world.settle();
    world.launch(1, 7, &[5, 2]);
    world.settle();
    let named = world.running.may_touch(1);
    assert!(named.contains(&block(2)) && named.contains(&block(5)) && named.is_sorted(), "{named:?}");
    assert_eq!(world.running.may_touch(2), []);
}

/// Else all that comes after it would be taken for not yet begun.
#[test]
fn a_launch_without_a_progress_word_counts_as_over() {
    let world = world("deepum");
    world.alloc(0, BLOCKS);
    for (seq, stream) in [(1, 0), (2, 512)] {
        let pointers = [block(2).start()];
        let (seq, stream, key) = (LaunchSeq(seq), StreamSlot(stream), LaunchKey(7));
        world
            .ring
            .push(common::GPU, &Record::Launch(Launch { seq, stream, key, kernel: KernelId(0), pointers: &pointers }));
    }
    world.settle();
    world.progress[0].store(1, Ordering::Release);
    world.settle();
    world.launch(3, 7, &[2]);
    world.settle();
    let named = |seq| world.running.may_touch(seq).len();
    assert!(named(1) == 0 && named(2) == 0 && named(3) > 0);
}

#[test]
fn the_shim_turning_itself_off_ends_the_engine_quietly() {
    let world = World::new("deepum", Bytes(UmBlock::SIZE.0 * 4), Pace::Polling);
    world.ring.shared().set_mode(Mode::Off);
    until("off", || world.running.is_off().is_some());
    assert_eq!(status::of(&world.running).state, State::Off);
    assert!(!SAID.lock().unwrap().iter().any(|line| line.contains("turned off from outside")));
}

#[test]
fn every_gpu_has_an_engine_of_its_own() {
    let second = DeviceId(1);
    let world = World::with_gpus("deepum", Bytes(UmBlock::SIZE.0 * 4), Pace::Driven, &[common::GPU, second]);
    let range = |first: u64, blocks: u64| AddrRange::new(block(first).start(), Bytes(UmBlock::SIZE.0 * blocks));
    world.ring.push(common::GPU, &Record::Alloc { range: range(0, 2) });
    world.ring.push(second, &Record::Alloc { range: range(100, 8) });
    world.settle();
    assert_eq!(world.ring.shared().mode(), Mode::Awake, "the second does not fit");
    let launch = |seq, stream, first: u64| {
        let pointers = [block(first).start()];
        let key = LaunchKey(first);
        let launch =
            Launch { seq: LaunchSeq(seq), stream: StreamSlot(stream), key, kernel: KernelId(0), pointers: &pointers };
        world.ring.push(second, &Record::Launch(launch));
    };
    launch(1, 2, 100);
    world.progress[2].store(1, Ordering::Release);
    world.settle();
    let fault = Fault { block: block(103), batch: 1, entries: 1, write: false, at: Nanos(1) };
    world.device.put(Notice { device: Some(second), event: Event::Fault(fault) });
    world.settle();
    assert!(world.device.calls().contains(&(block(103).range(), Place::Device(second))));
    // Freed by a thread whose current device is the other one; and something about a GPU nobody has.
    world.ring.push(common::GPU, &Record::Free { range: range(100, 8) });
    world.ring.push(DeviceId(9), &Record::Alloc { range: range(200, 1) });
    world.settle();
    let status = status::of(&world.running);
    let of = |at: usize| &status.devices[at];
    assert_eq!((of(0).allocated_bytes, of(1).allocated_bytes), (4 << 20, 0));
    assert_eq!((of(0).faults, of(1).faults), (0, 1));
    assert_eq!(status.counters["launches"], 1);
    assert_eq!(status.counters["engine_strangers"], 1);
    assert_eq!(world.ring.shared().mode(), Mode::Dormant);
}

#[test]
fn a_budget_that_falls_while_the_program_runs_is_made_good_and_one_that_rises_is_used() {
    let size = |blocks: u64| Bytes(UmBlock::SIZE.0 * blocks);
    let world = World::new("deepum", size(16), Pace::Polling);
    world.alloc(0, 8);
    until("populated", || status::of(&world.running).devices[0].resident_bytes == size(8).get());
    assert!(world.running.set_budget(common::GPU, size(4)));
    until("made good", || status::of(&world.running).devices[0].resident_bytes <= size(4).get());
    let status = status::of(&world.running);
    assert_eq!((status.devices[0].budget_bytes, status.state), (size(4).get(), State::Awake));
    assert!(world.device.calls().iter().any(|(_, to)| *to == Place::Host));
    assert!(world.running.set_budget(common::GPU, size(16)));
    until("dormant again", || world.ring.shared().mode() == Mode::Dormant);
    assert!(!world.running.set_budget(DeviceId(9), size(4)), "nobody has that one");
}

#[test]
fn the_status_says_what_is_done_about_contents_nobody_needs() {
    let status = status::of(&world("deepum").running);
    assert_eq!((status.invalidation.mode.as_str(), status.invalidation.less), ("discard", None));
}
