//! A ring whose every word another process wrote: it is refused by name, or read to its end, which comes.
//!
//! The input is one byte that picks the capacity and how the reader begins, then words: the first of the record area, then those of the
//! header that a producer writes. What the input leaves out is a fresh ring.
#![no_main]

use deepum_core::units::DeviceId;
use deepum_protocol::AtomicU64;
use deepum_protocol::ring::{HEADER_WORDS, Record, Ring};
use libfuzzer_sys::fuzz_target;
use std::sync::atomic::Ordering;

/// Header words that matter: head, tail, taken, dropped, consumer, mode, the newest place; and magic, version, capacity.
const HEADER: [usize; 10] = [8, 16, 17, 25, 24, 32, 48, 0, 1, 2];

fuzz_target!(|input: &[u8]| {
    let Some((&how, bytes)) = input.split_first() else { return };
    let capacity = 8usize << (how & 7);
    let words: Vec<AtomicU64> = (0..HEADER_WORDS + capacity).map(|_| AtomicU64::new(0)).collect();
    let fresh = Ring::format(&words).expect("a power of two, and zeros");
    fresh.push(DeviceId(0), &Record::Alloc { range: deepum_core::units::UmBlock(7).range() });
    let given = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    for (place, word) in (HEADER_WORDS..HEADER_WORDS + capacity).chain(HEADER).zip(given) {
        words[place].store(word, Ordering::Relaxed);
    }
    let Ok(ring) = Ring::open(&words) else { return };
    let reader = if how & 8 == 0 { ring.consumer() } else { ring.recover() };
    let Ok(mut reader) = reader else { return };
    // A record takes three words at least, and leaves zeros.
    let mut most = capacity.div_ceil(3);
    while let Ok(Some((_, record))) = reader.pop() {
        if let Record::Launch(launch) = record {
            assert!(launch.pointers.len() <= capacity);
        }
        assert!(most > 0, "more records than fit");
        most -= 1;
    }
    let shared = ring.shared();
    (shared.mode(), shared.issued(DeviceId(0)), shared.launched(DeviceId(255)), ring.used(), ring.dropped());
    drop(reader);
});
