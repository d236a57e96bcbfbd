//! The ring against a queue that is obviously right: same records out, in order, and dropped exactly when full.
#![cfg(not(loom))]

use deepum_core::event::Launch;
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, KernelId, LaunchKey, LaunchSeq, StreamSlot};
use deepum_protocol::AtomicU64;
use deepum_protocol::ring::{HEADER_WORDS, Record, Ring, RingError};
use deepum_protocol::shared::{Mode, ShimCounter};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

fn memory(capacity: usize) -> Vec<AtomicU64> {
    (0..HEADER_WORDS + capacity).map(|_| AtomicU64::new(0)).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Range { kind: u8, device: u8, start: u64, len: u64 },
    Launch { device: u8, stream: u16, seq: u64, key: u64, pointers: Vec<u64> },
    Copy { device: u8, stream: u16, seq: u64, start: u64, len: u64, write: bool },
    Pop,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0u8..4, any::<u8>(), any::<u64>(), any::<u64>())
            .prop_map(|(kind, device, start, len)| Step::Range { kind, device, start, len }),
        3 => (any::<u8>(), any::<u16>(), any::<u64>(), any::<u64>(), prop::collection::vec(any::<u64>(), 0..12))
            .prop_map(|(device, stream, seq, key, pointers)| Step::Launch { device, stream, seq, key, pointers }),
        2 => (any::<u8>(), any::<u16>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<bool>())
            .prop_map(|(device, stream, seq, start, len, write)| Step::Copy { device, stream, seq, start, len, write }),
        5 => Just(Step::Pop),
    ]
}

/// What a record says, as text: the oracle's own form.
fn text(device: DeviceId, record: &Record<'_>) -> String {
    format!("{} {record:?}", device.0)
}

proptest! {
    #[test]
    fn behaves_as_a_bounded_queue(steps in prop::collection::vec(step(), 0..400), shift in 3u32..7) {
        let words = memory(1 << shift);
        let ring = Ring::format(&words).unwrap();
        let mut consumer = ring.consumer().unwrap();
        let mut oracle: VecDeque<(u64, String)> = VecDeque::new();
        let (mut used, mut dropped) = (0u64, 0u64);
        for step in &steps {
            let pointers: Vec<DevAddr>;
            let (device, record, need) = match step {
                Step::Pop => {
                    let got = consumer.pop().unwrap().map(|(d, r)| text(d, &r));
                    let want = oracle.pop_front().map(|(need, text)| { used -= need; text });
                    prop_assert_eq!(got, want);
                    continue;
                }
                Step::Range { kind, device, start, len } => {
                    let range = AddrRange::new(DevAddr(*start), Bytes(*len));
                    let issued = LaunchSeq(start ^ len);
                    let (record, need) = match kind {
                        0 => (Record::Alloc { range }, 3),
                        1 => (Record::Free { range }, 3),
                        2 => (Record::PtBlock { range, active: true, issued }, 4),
                        _ => (Record::PtBlock { range, active: false, issued }, 4),
                    };
                    (*device, record, need)
                }
                Step::Launch { device, stream, seq, key, pointers: p } => {
                    pointers = p.iter().copied().map(DevAddr).collect();
                    let launch = Launch {
                        seq: LaunchSeq(*seq), stream: StreamSlot(*stream), key: LaunchKey(*key),
                        kernel: KernelId(!*key), pointers: &pointers,
                    };
                    (*device, Record::Launch(launch), 4 + p.len() as u64)
                }
                Step::Copy { device, stream, seq, start, len, write } => {
                    let range = AddrRange::new(DevAddr(*start), Bytes(*len));
                    let (seq, stream) = (LaunchSeq(*seq), StreamSlot(*stream));
                    (*device, Record::Copy { seq, stream, range, write: *write }, 4)
                }
            };
            let fits = used + need <= 1 << shift;
            prop_assert_eq!(ring.push(DeviceId(device), &record), fits);
            if fits {
                used += need;
                oracle.push_back((need, text(DeviceId(device), &record)));
            } else {
                dropped += 1;
            }
            prop_assert_eq!(ring.used(), used);
            prop_assert_eq!(ring.dropped(), dropped);
        }
    }

    /// Whatever stands in the record area, the reader answers; it never panics and never invents a place.
    #[test]
    fn garbage_is_refused_by_its_word(garbage in prop::collection::vec(any::<u64>(), 16)) {
        let words = memory(16);
        let ring = Ring::format(&words).unwrap();
        for (i, word) in garbage.iter().enumerate() {
            words[HEADER_WORDS + i].store(*word, Ordering::Relaxed);
        }
        let mut consumer = ring.consumer().unwrap();
        for _ in 0..32 {
            if consumer.pop().is_err() {
                break;
            }
        }
    }
}

#[test]
fn what_is_no_ring_is_refused_by_name() {
    let words = memory(16);
    assert_eq!(Ring::open(&words).unwrap_err(), RingError::Magic { have: 0 });
    Ring::format(&words).unwrap();
    words[1].store(7, Ordering::Relaxed);
    let error = Ring::open(&words).unwrap_err();
    assert_eq!(error, RingError::Version { have: 7 });
    assert!(error.to_string().contains("version 7"), "{error}");
    assert_eq!(Ring::format(&words[..HEADER_WORDS + 12]).unwrap_err(), RingError::Size { words: HEADER_WORDS + 12 });
    words[1].store(deepum_protocol::ring::VERSION, Ordering::Relaxed);
    words[2].store(8, Ordering::Relaxed);
    assert_eq!(Ring::open(&words).unwrap_err(), RingError::Capacity { have: 8, want: 16 });
}

#[test]
fn there_is_one_reader_and_losing_it_turns_the_mode_off() {
    let words = memory(16);
    let ring = Ring::format(&words).unwrap();
    let first = ring.consumer().unwrap();
    assert_eq!(ring.consumer().unwrap_err(), RingError::Taken);
    ring.shared().set_mode(Mode::Awake);
    drop(first);
    assert_eq!(ring.shared().mode(), Mode::Off);
    assert!(ring.consumer().is_ok());
}

#[test]
fn a_launch_sequence_is_per_device_and_gives_back_only_its_newest_place() {
    let words = memory(16);
    let shared = Ring::format(&words).unwrap().shared();
    assert_eq!(shared.take_seq(DeviceId(0)), Some(LaunchSeq(1)));
    assert_eq!(shared.take_seq(DeviceId(1)), Some(LaunchSeq(1)));
    assert_eq!(shared.take_seq(DeviceId(0)), Some(LaunchSeq(2)));
    assert!(!shared.give_back_seq(DeviceId(0), LaunchSeq(1)));
    assert!(shared.give_back_seq(DeviceId(0), LaunchSeq(2)));
    assert_eq!(shared.issued(DeviceId(0)), LaunchSeq(1));
    assert_eq!(shared.take_seq(DeviceId(200)), None);
    // Copies share the places and are told from launches.
    assert_eq!(shared.take_copy_seq(DeviceId(0)), Some(LaunchSeq(2)));
    assert_eq!(shared.take_copy_seq(DeviceId(0)), Some(LaunchSeq(3)));
    assert!(shared.give_back_copy_seq(DeviceId(0), LaunchSeq(3)));
    assert!(!shared.give_back_copy_seq(DeviceId(0), LaunchSeq(1)), "a launch's by now");
    assert_eq!((shared.issued(DeviceId(0)), shared.launched(DeviceId(0))), (LaunchSeq(2), 1));
    assert_eq!((shared.take_copy_seq(DeviceId(200)), shared.launched(DeviceId(200))), (None, 0));
}

#[test]
fn more_pointers_than_a_record_holds_are_counted_not_kept() {
    let words = memory(2048);
    let ring = Ring::format(&words).unwrap();
    let pointers = vec![DevAddr(5); 1030];
    let launch = Launch {
        seq: LaunchSeq(1),
        stream: StreamSlot(0),
        key: LaunchKey(9),
        kernel: KernelId(0),
        pointers: &pointers,
    };
    assert!(ring.push(DeviceId(0), &Record::Launch(launch)));
    assert_eq!(ring.shared().get(ShimCounter::PointersLeftOut), 6);
    let mut consumer = ring.consumer().unwrap();
    let Ok(Some((_, Record::Launch(got)))) = consumer.pop() else { panic!("no launch") };
    assert_eq!(got.pointers, &pointers[..1024]);
}

/// Threads that never wait, a reader that is slow: what was accepted arrives, whole and in each thread's order.
#[test]
fn every_accepted_record_arrives_once() {
    let words = memory(256);
    let ring = Ring::format(&words).unwrap();
    let mut consumer = ring.consumer().unwrap();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u8)
            .map(|device| {
                scope.spawn(move || {
                    (1..=5_000u64)
                        .filter(|&n| {
                            let pointers = [DevAddr(n); 5];
                            let launch = Launch {
                                seq: LaunchSeq(n),
                                stream: StreamSlot(u16::from(device)),
                                key: LaunchKey(n * 3),
                                kernel: KernelId(0),
                                pointers: &pointers[..(n % 6) as usize],
                            };
                            ring.push(DeviceId(device), &Record::Launch(launch))
                        })
                        .count() as u64
                })
            })
            .collect();
        let (mut seen, mut newest) = (0u64, [0u64; 4]);
        let mut take = |consumer: &mut deepum_protocol::ring::Consumer<'_>| {
            while let Some((device, Record::Launch(launch))) = consumer.pop().unwrap() {
                let n = launch.seq.0;
                assert_eq!(launch.key.0, n * 3);
                assert!(launch.pointers.len() as u64 == n % 6 && launch.pointers.iter().all(|p| p.0 == n));
                assert!(n > std::mem::replace(&mut newest[usize::from(device.0)], n), "out of order");
                seen += 1;
            }
        };
        while threads.iter().any(|t| !t.is_finished()) {
            take(&mut consumer);
        }
        let accepted: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
        take(&mut consumer);
        assert_eq!(seen, accepted);
        assert_eq!(accepted + ring.dropped(), 20_000);
    });
}

/// `docs/ring.md` names every counter at the word it has.
#[test]
fn the_documentation_lists_the_counters() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ring.md")).unwrap();
    for (word, counter) in (64..).zip(ShimCounter::ALL) {
        assert!(text.contains(&format!("| {word} | `{}` |", counter.name())), "{}", counter.name());
    }
}

#[test]
fn places_that_no_reader_leaves_are_refused_by_name() {
    let words: Vec<AtomicU64> = (0..HEADER_WORDS + 64).map(|_| AtomicU64::new(0)).collect();
    let ring = Ring::format(&words).unwrap();
    let set = |head: u64, tail: u64, taken: u64| {
        for (at, value) in [(8, head), (16, tail), (17, taken)] {
            words[at].store(value, std::sync::atomic::Ordering::Relaxed);
        }
        ring.recover().err()
    };
    for (head, tail, taken) in [(3, 0, 4), (3, 5, 5), (65, 0, 0), (8, 4, 3), (0, 1, u64::MAX)] {
        assert_eq!(set(head, tail, taken), Some(RingError::Places { head, tail, taken }));
    }
    let text = set(3, 5, 5).unwrap().to_string();
    assert!(text.contains("head 3, tail 5 and taken 5"), "{text}");
    assert_eq!(set(64, 0, 64), None);
    assert!(ring.recover().is_ok(), "a refused reader is none");
}
