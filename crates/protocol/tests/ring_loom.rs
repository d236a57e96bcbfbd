//! Every interleaving of two launching threads and one reader, over a ring so small that it wraps and fills.
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p deepum-protocol --test ring_loom --release`.
#![cfg(loom)]

use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId};
use deepum_protocol::AtomicU64;
use deepum_protocol::plant::{self, Plant};
use deepum_protocol::ring::{Consumer, HEADER_WORDS, Record, Ring};
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// Plants are the process's.
static SERIAL: Mutex<()> = Mutex::new(());

fn record(n: u64) -> Record<'static> {
    Record::Alloc { range: AddrRange::new(DevAddr(n), Bytes(n + 100)) }
}

#[test]
fn two_producers_and_a_reader() {
    let _serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let words: &'static [AtomicU64] = Box::leak((0..HEADER_WORDS + 8).map(|_| AtomicU64::new(0)).collect());
        let ring = Ring::format(words).unwrap();
        // Leave the tail at 6 of 8, so that the next records wrap.
        let mut consumer = ring.consumer().unwrap();
        for n in 1..=2 {
            assert!(ring.push(DeviceId(9), &record(n)));
            assert!(consumer.pop().unwrap().is_some());
        }
        let producers: Vec<_> = [10u64, 20]
            .into_iter()
            .map(|first| {
                thread::spawn(move || (first..first + 2).filter(|&n| ring.push(DeviceId(0), &record(n))).count())
            })
            .collect();
        let mut got = Vec::new();
        let mut take = |consumer: &mut deepum_protocol::ring::Consumer<'_>| {
            while let Some((_, record)) = consumer.pop().unwrap() {
                let Record::Alloc { range } = record else { panic!("another kind") };
                assert_eq!(range.len.0, range.start.0 + 100, "torn");
                got.push(range.start.0);
            }
        };
        take(&mut consumer);
        let accepted: usize = producers.into_iter().map(|p| p.join().unwrap()).sum();
        take(&mut consumer);
        assert_eq!(got.len(), accepted);
        assert_eq!(accepted as u64 + ring.dropped(), 4);
        for thread in [10u64, 20] {
            let order: Vec<_> = got.iter().filter(|&&n| n / 10 * 10 == thread).collect();
            assert!(order.is_sorted(), "{got:?}");
        }
    });
}

/// A page that leaves must not be looked at, and a program that looks says so before.
#[test]
fn nobody_looks_at_what_leaves() {
    let _serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    loom::model(|| {
        let words: &'static [AtomicU64] = Box::leak((0..HEADER_WORDS + 8).map(|_| AtomicU64::new(0)).collect());
        let ring = Ring::format(words).unwrap();
        let [looking, leaving] = [(); 2].map(|()| loom::sync::Arc::new(loom::sync::atomic::AtomicBool::new(false)));
        let mover = {
            let (looking, leaving) = (looking.clone(), leaving.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let left = ring.shared().unlooked(|| {
                        leaving.store(true, Ordering::SeqCst);
                        assert!(!looking.load(Ordering::SeqCst), "somebody looks already");
                        leaving.store(false, Ordering::SeqCst);
                    });
                    if left.is_none() {
                        assert!(ring.shared().unlooked(|| ()).is_none(), "once it is over it is over");
                    }
                }
            })
        };
        if !ring.shared().host_looks() {
            looking.store(true, Ordering::SeqCst);
            assert!(!leaving.load(Ordering::SeqCst), "it leaves still");
        }
        mover.join().unwrap();
    });
}

/// Takes what there is, into `got`; a torn record is none of ours.
fn take(consumer: &mut Consumer<'_>, got: &mut Vec<u64>) {
    while let Some((_, record)) = consumer.pop().expect("no record of ours") {
        let Record::Alloc { range } = record else { panic!("another kind") };
        assert_eq!(range.len.0, range.start.0 + 100, "torn");
        got.push(range.start.0);
    }
}

/// A reader is killed at one of its places while a producer writes on; the next reader gets every record but the one that was
/// being taken.
fn killed_reader(place: u32) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        plant::set_life(0);
        let words: &'static [AtomicU64] = Box::leak((0..HEADER_WORDS + 8).map(|_| AtomicU64::new(0)).collect());
        let ring = Ring::format(words).unwrap();
        let mut got = Vec::new();
        let mut first = ring.consumer().unwrap();
        assert!(ring.push(DeviceId(0), &record(1)) && ring.push(DeviceId(0), &record(2)));
        let producer =
            thread::spawn(move || (3..5).filter(|&n| ring.push(DeviceId(0), &record(n))).collect::<Vec<u64>>());
        plant::set_life(place);
        take(&mut first, &mut got);
        plant::set_life(0);
        std::mem::forget(first);
        assert_eq!(ring.consumer().unwrap_err(), deepum_protocol::ring::RingError::Taken);
        let mut second = ring.recover().unwrap();
        take(&mut second, &mut got);
        let mut sent = vec![1, 2];
        sent.extend(producer.join().unwrap());
        take(&mut second, &mut got);
        sent.retain(|n| got.contains(n) || *n != 1 + u64::from((place - 1) / 3));
        assert_eq!(got, sent, "lost more than what was being taken");
        assert_eq!(ring.used(), 0);
        assert!(words[HEADER_WORDS..].iter().all(|word| word.load(loom::sync::atomic::Ordering::Acquire) == 0));
    });
}

#[test]
fn a_reader_may_be_killed_anywhere() {
    let _serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    // Three places in each record.
    for place in 1..=6 {
        killed_reader(place);
    }
    plant::set(Some(Plant::NoTaken));
    let found: Vec<u32> =
        (1..=6).filter(|&place| catch_unwind(AssertUnwindSafe(|| killed_reader(place))).is_err()).collect();
    plant::set(None);
    plant::set_life(0);
    assert_eq!(found, [2, 3, 4, 5, 6], "but for one killed before its first store of all");
}
