//! Faults on request, and more than one device.

mod common;

use std::sync::{Arc, Mutex};

use common::*;
use deepum_core::units::{DevAddr, DeviceId, Nanos, Place, UmBlock};
use deepum_emu_device::error::CuError;
use deepum_emu_device::machine::{Cost, Machine, NoticeSink};
use deepum_emu_device::space::Kind;
use deepum_emu_device::stream::Flavour;
use deepum_emu_device::uvm::Semaphore;
use deepum_model::Notice;

#[derive(Default)]
struct Seen {
    put: Vec<Notice>,
    dropped: u64,
}

struct Sink(Arc<Mutex<Seen>>);
impl NoticeSink for Sink {
    fn wanted(&self) -> bool {
        true
    }
    fn put(&mut self, notice: &Notice) {
        self.0.lock().unwrap().put.push(*notice);
    }
    fn drop_one(&mut self, _: &Notice) {
        self.0.lock().unwrap().dropped += 1;
    }
    fn release(&mut self, _: Semaphore) {}
    fn unread(&self) -> bool {
        false
    }
}

fn watched(line: &str) -> (Machine, Arc<Mutex<Seen>>) {
    let m = machine(line);
    let seen = Arc::default();
    m.look(|state| {
        state.sink = Some(Box::new(Sink(Arc::clone(&seen))));
        Ok(())
    })
    .unwrap();
    (m, seen)
}

/// Touches 64 MiB of new managed memory, then waits.
fn touch(m: &Machine) -> u64 {
    let x = allocate(m, Kind::Managed, 64 * MIB).unwrap();
    launch(m, null_stream(m), &kernel(m, "deepum_test_scale"), &[x, 16 * MIB, 0]);
    call(m, |c| c.synchronize(GPU));
    x
}

#[test]
fn every_nth_notice_is_dropped_and_counted() {
    let (m, seen) = watched("v100-32g");
    touch(&m);
    let all = seen.lock().unwrap().put.len() as u64;
    assert!(all >= 30 && seen.lock().unwrap().dropped == 0);

    let (m, seen) = watched("v100-32g:drop_notices=3");
    touch(&m);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.dropped, all / 3);
    assert_eq!(seen.put.len() as u64, all - all / 3);
    assert_eq!(m.look(|s| Ok((s.totals.notices, s.totals.notices_dropped))), Ok((all - all / 3, all / 3)));
}

#[test]
fn late_notices_come_later_and_all_of_them_come() {
    let (prompt, in_time) = watched("v100-32g");
    touch(&prompt);
    let (m, seen) = watched("v100-32g:late_us=2000");
    touch(&m);
    let early = seen.lock().unwrap().put.len();
    assert!(early < in_time.lock().unwrap().put.len(), "the last ones are still on their way");
    // Two milliseconds of calls later they are there, the same ones in the same order.
    let start = host(&m);
    while host(&m) < start + Nanos::micros(4000) {
        call(&m, |_| Ok(()));
    }
    let times = |seen: &Mutex<Seen>| seen.lock().unwrap().put.iter().map(Notice::at).collect::<Vec<_>>();
    assert_eq!(times(&seen), times(&in_time));
}

#[test]
fn every_nth_migrate_fails_for_want_of_memory() {
    let m = machine("v100-32g:fail_migrate=2");
    let x = allocate(&m, Kind::Managed, 4 * MIB).unwrap();
    let block = UmBlock::containing(DevAddr(x)).range();
    let device = Place::Device(GPU);
    let outcomes: Vec<_> = (0..4).map(|_| m.migrate(block, device, true)).collect();
    assert_eq!(outcomes, [Ok(()), Err(CuError::OutOfMemory), Ok(()), Err(CuError::OutOfMemory)]);
    let nowhere = UmBlock(7).range();
    assert_eq!(m.migrate(nowhere, device, true), Err(CuError::InvalidValue));
}

#[test]
fn a_migrate_of_the_program_takes_its_time_and_leaves_nothing_to_fault() {
    let (m, seen) = watched("v100-32g");
    let x = allocate(&m, Kind::Managed, 64 * MIB).unwrap();
    let range = deepum_core::units::AddrRange::new(DevAddr(x), deepum_core::units::Bytes(64 * MIB));
    m.migrate(range, Place::Host, true).unwrap();
    let before = host(&m);
    m.migrate(range, Place::Device(GPU), true).unwrap();
    let link = 64.0 * MIB as f64 / m.profile.h2d_bandwidth * 1e9;
    assert!((host(&m).0 - before.0) as f64 > link);
    launch(&m, null_stream(&m), &kernel(&m, "deepum_test_scale"), &[x, 16 * MIB, 0]);
    call(&m, |c| c.synchronize(GPU));
    let faults = seen.lock().unwrap().put.iter().filter(|n| matches!(n, Notice::GpuFault { .. })).count();
    assert_eq!(faults, 0);
    assert!(!seen.lock().unwrap().put.is_empty(), "the migration itself was told");
}

#[test]
fn devices_compute_beside_each_other_and_managed_pages_follow() {
    let m = machine("v100-32g:devices=2");
    let other = DeviceId(1);
    let first = null_stream(&m);
    let second = m.look(|s| Ok(s.streams.create(other, Flavour::NonBlocking, 0))).unwrap();
    let scale = kernel(&m, "deepum_test_scale");
    let a = allocate(&m, Kind::Device, 64 * MIB).unwrap();
    let b = m.call(Cost::Call, |c| c.allocate(Kind::Device, other, deepum_core::units::Bytes(64 * MIB), 0));
    let b = b.unwrap().range.start.0;
    let start = host(&m);
    launch(&m, first, &scale, &[a, 16 * MIB, 0]);
    launch(&m, second, &scale, &[b, 16 * MIB, 0]);
    call(&m, |c| {
        c.synchronize(GPU)?;
        c.synchronize(other)
    });
    let one = m.profile.kernel_time(deepum_core::units::Bytes(64 * MIB), 0.0, deepum_model::Precision::Fp32);
    assert!(host(&m).0 - start.0 < 2 * one.0, "not one after the other");

    let x = allocate(&m, Kind::Managed, 2 * MIB).unwrap();
    let block = UmBlock::containing(DevAddr(x));
    let at = |device| m.look(|s| Ok(s.memory.pages_at(Place::Device(device), block).count())).unwrap();
    launch(&m, first, &scale, &[x, MIB / 2, 0]);
    call(&m, |c| c.synchronize(GPU));
    assert_eq!((at(GPU), at(other)), (512, 0));
    launch(&m, second, &scale, &[x, MIB / 2, 0]);
    call(&m, |c| c.synchronize(other));
    assert_eq!((at(GPU), at(other)), (0, 512), "a page lives in one place");
}

#[test]
fn moves_by_faults_are_told_when_something_makes_the_driver_look_and_faults_at_once() {
    let (m, seen) = watched("v100-32g");
    let x = allocate(&m, Kind::Managed, 64 * MIB).unwrap();
    let range = deepum_core::units::AddrRange::new(DevAddr(x), deepum_core::units::Bytes(64 * MIB));
    let moved = |seen: &Mutex<Seen>| {
        let told = std::mem::take(&mut seen.lock().unwrap().put);
        let faults = told.iter().filter(|n| matches!(n, Notice::GpuFault { .. })).count();
        let bytes = |n: &Notice| if let Notice::Migration { range, .. } = n { range.len.0 } else { 0 };
        (faults > 0, told.iter().map(bytes).sum::<u64>())
    };
    m.migrate(range, Place::Host, true).unwrap();
    assert_eq!(moved(&seen), (false, 0), "it made zeros there");
    launch(&m, null_stream(&m), &kernel(&m, "deepum_test_scale"), &[x, 16 * MIB, 0]);
    call(&m, |c| c.synchronize(GPU));
    assert_eq!(moved(&seen), (true, 0));
    m.migrate(range, Place::Device(GPU), false).unwrap();
    assert_eq!(moved(&seen), (false, 0), "nor does a call that does not wait");
    m.migrate(UmBlock::containing(DevAddr(x)).range(), Place::Device(GPU), true).unwrap();
    assert_eq!(moved(&seen), (false, 64 * MIB));
    m.migrate(range, Place::Host, true).unwrap();
    assert_eq!(moved(&seen), (false, 64 * MIB));
    m.migrate(range, Place::Device(GPU), false).unwrap();
    m.drain();
    let some = moved(&seen).1;
    assert!(some < 64 * MIB, "no copy is told before it is over");
    m.call(Cost::Nap(Nanos::micros(100_000)), |_| Ok(())).unwrap();
    assert_eq!(moved(&seen), (false, 0), "time alone makes nobody look");
    m.migrate(UmBlock(7).range(), Place::Host, true).unwrap_err();
    assert_eq!(some + moved(&seen).1, 64 * MIB, "a call that fails makes it look, too");
}

#[test]
fn a_channel_that_is_full_makes_the_driver_look() {
    let (m, seen) = watched("v100-32g");
    let bytes = 1024 * MIB;
    let x = allocate(&m, Kind::Managed, bytes).unwrap();
    let range = deepum_core::units::AddrRange::new(DevAddr(x), deepum_core::units::Bytes(bytes));
    m.migrate(range, Place::Host, true).unwrap();
    for part in 0..bytes / (64 * MIB) {
        launch(&m, null_stream(&m), &kernel(&m, "deepum_test_scale"), &[x + part * 64 * MIB, 16 * MIB, 0]);
    }
    call(&m, |c| c.synchronize(GPU));
    let told = |seen: &Mutex<Seen>| {
        let is_move = |n: &&Notice| !matches!(n, Notice::GpuFault { .. });
        seen.lock().unwrap().put.iter().filter(is_move).count()
    };
    let before = told(&seen);
    m.drain();
    let all = told(&seen);
    assert!(all > 1024 && before > 0, "{before} of {all}");
    assert!(all - before < 1024, "{before} of {all}");
}
