//! Every interleaving of two launching threads and one reader, over a ring so small that it wraps and fills.
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p deepum-protocol --test ring_loom --release`.
#![cfg(loom)]

use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId};
use deepum_protocol::AtomicU64;
use deepum_protocol::ring::{HEADER_WORDS, Record, Ring};
use loom::thread;

fn record(n: u64) -> Record<'static> {
    Record::Alloc { range: AddrRange::new(DevAddr(n), Bytes(n + 100)) }
}

#[test]
fn two_producers_and_a_reader() {
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
