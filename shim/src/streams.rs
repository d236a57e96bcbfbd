//! A stream's handle becomes a small number, the index of its progress word.
//!
//! A table of 512 places, probed from the handle's hash, filled once and never emptied: a handle that is given out again
//! after `cudaStreamDestroy` gets the same word, whose value only grows. Stream 0 is one stream per device; the
//! per-thread default stream is one per thread. Streams that find no place have no progress word and are counted.

use crate::abi::Ptr;
use crate::fence::here;
use deepum_core::units::{DeviceId, StreamSlot};
use deepum_protocol::page::SLOTS;
use std::sync::atomic::{AtomicU64, Ordering};

/// `cudaStreamLegacy` and `cudaStreamPerThread` as handles.
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

static PLACES: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
static THREADS: AtomicU64 = AtomicU64::new(0);

/// The number of a stream; nothing if there are too many of them.
pub fn slot(device: DeviceId, stream: Ptr, per_thread_default: bool) -> Option<StreamSlot> {
    place(&PLACES, key(device, stream as u64, per_thread_default))
}

/// One number per stream of the process; never 0. Handles are pointers, so bits 47 and up are free.
fn key(device: DeviceId, handle: u64, per_thread_default: bool) -> u64 {
    let own = match (handle, per_thread_default) {
        (0, false) | (LEGACY, _) => LEGACY,
        (0, true) | (PER_THREAD, _) => 1 << 62 | this_thread() << 8 & ((1 << 47) - 1) | PER_THREAD,
        (handle, _) => handle & ((1 << 47) - 1),
    };
    1 << 63 | u64::from(device.0) << 47 | own
}

/// This thread's number, from 1.
fn this_thread() -> u64 {
    here(|h| {
        if h.number.get() == 0 {
            h.number.set(THREADS.fetch_add(1, Ordering::Relaxed) + 1);
        }
        h.number.get()
    })
}

#[expect(clippy::cast_possible_truncation, reason = "the place is below 512")]
fn place(places: &[AtomicU64; SLOTS], key: u64) -> Option<StreamSlot> {
    let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55) as usize;
    for i in 0..SLOTS {
        let at = (first + i) % SLOTS;
        let mut have = places[at].load(Ordering::Relaxed);
        if have == 0 {
            have =
                places[at].compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed).map_or_else(|e| e, |_| key);
        }
        if have == key {
            return Some(StreamSlot(at as u16));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_keeps_its_number_and_shares_it_with_nobody() {
        let places = Box::new([const { AtomicU64::new(0) }; SLOTS]);
        let mut seen = std::collections::HashSet::new();
        let keys: Vec<u64> =
            (0..SLOTS as u64).map(|n| key(DeviceId((n % 3) as u8), 0x7f00_0000_0000 + n * 512, false)).collect();
        for &k in &keys {
            assert!(seen.insert(place(&places, k).unwrap()), "given twice");
        }
        assert_eq!(place(&places, keys[77]), place(&places, keys[77]));
        assert!(seen.contains(&place(&places, keys[3]).unwrap()));
        assert_eq!(place(&places, key(DeviceId(0), 0x1234_5678, false)), None);
    }

    #[test]
    fn default_streams_are_who_they_say_they_are() {
        let gpu = DeviceId(0);
        assert_eq!(key(gpu, 0, false), key(gpu, LEGACY, true));
        assert_eq!(key(gpu, 0, true), key(gpu, PER_THREAD, false));
        assert_ne!(key(gpu, 0, true), key(gpu, 0, false));
        assert_ne!(key(gpu, 0, false), key(DeviceId(1), 0, false));
        let mine = key(gpu, 0, true);
        assert_ne!(std::thread::spawn(move || key(gpu, 0, true)).join().unwrap(), mine);
    }
}
