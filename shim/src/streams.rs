//! A stream's handle becomes a small number, the index of its progress word: one for each thread that uses the stream.
//!
//! Each thread has its own, because what one thread gives a stream is in the order of its places in the sequence
//! ([`deepum_protocol::inflight`]). Records call a stream by one number, whoever launches: the one that the thread with seat 0 has.
//!
//! A table of 512 places, probed from the hash of handle and seat, filled once and never emptied: a handle that is given out again
//! after `cudaStreamDestroy` gets the same word, whose value only grows. Seats are given to threads as they come and given again when a thread
//! has ended, so programs may have any number of threads one after the other. Stream 0 is one stream per device (where there is one context,
//! [`crate::contexts`]); the per-thread default stream is one per thread, and threads that end do not hand it on. Streams that find no place have no progress word and are
//! counted.

use crate::abi::Ptr;
use crate::fence::here;
use crate::page;
use deepum_core::units::{DeviceId, StreamSlot};
use deepum_protocol::page::SLOTS;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// `cudaStreamLegacy` as a handle.
const LEGACY: u64 = 1;
/// `cudaStreamPerThread` as a handle.
pub const PER_THREAD: u64 = 2;
/// Bits of a handle: handles are pointers, or one of the two above.
const HANDLE: u64 = (1 << 47) - 1;
const DEVICE: u32 = 47;
const SEAT: u32 = 51;
const PER_THREADS: u64 = 1 << 62;
const TAKEN: u64 = 1 << 63;

static PLACES: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
static THREADS: AtomicU64 = AtomicU64::new(0);
/// A bit for each seat that a thread has.
static SEATS: [AtomicU64; 32] = [const { AtomicU64::new(0) }; 32];

/// Where a thread's operations for a stream are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The thread's own slot.
    pub slot: StreamSlot,
    /// What records call the stream.
    pub stream: StreamSlot,
}

/// The place of a stream for this thread; nothing if there are too many of them. Only once the page is made.
#[inline]
pub fn place(device: DeviceId, stream: Ptr, per_thread_default: bool) -> Option<Place> {
    let key = key(device, stream as u64, per_thread_default);
    let (known, place) = here(|h| h.stream.get());
    if known == key { place } else { look_up(key) }
}

#[cold]
fn look_up(key: u64) -> Option<Place> {
    let place = find(&PLACES, key, seat(key));
    if let (Some(place), Some(streams)) = (place, page::in_flight()) {
        streams.claim(place.slot, place.stream);
        here(|h| h.stream.set((key, Some(place))));
    }
    place
}

/// One number per stream of the process; never 0.
pub fn key(device: DeviceId, handle: u64, per_thread_default: bool) -> u64 {
    let own = match (handle, per_thread_default) {
        (0, false) | (LEGACY, _) => LEGACY,
        (0, true) | (PER_THREAD, _) => PER_THREADS | this_thread() << 8 & HANDLE | PER_THREAD,
        (handle, _) => handle & HANDLE,
    };
    TAKEN | u64::from(device.0) << DEVICE | own
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

/// A thread's seat, given back when the thread ends.
struct Seat(Cell<Option<u64>>);

impl Drop for Seat {
    fn drop(&mut self) {
        here(|h| h.stream.set((0, None)));
        if let Some(seat) = self.0.get() {
            // Whoever has it next sees what this thread wrote into its slots.
            word_of(seat).0.fetch_and(!word_of(seat).1, Ordering::Release);
        }
    }
}

fn word_of(seat: u64) -> (&'static AtomicU64, u64) {
    (&SEATS[usize::try_from(seat / 64).unwrap_or(0) % SEATS.len()], 1 << (seat % 64))
}

thread_local! {
    static SEAT_HERE: Seat = const { Seat(Cell::new(None)) };
}

/// The seat to look a stream up by; nothing if there are more threads than seats. A default stream of one thread needs none.
fn seat(key: u64) -> Option<u64> {
    if key & PER_THREADS != 0 {
        return Some(0);
    }
    // A thread that is ending, and has given its seat back, takes one for good.
    SEAT_HERE
        .try_with(|here| here.0.get().or_else(|| take_seat().inspect(|&seat| here.0.set(Some(seat)))))
        .unwrap_or_else(|_| take_seat())
}

/// The lowest seat that is free.
fn take_seat() -> Option<u64> {
    (0..64 * SEATS.len() as u64).find(|&seat| {
        let (word, bit) = word_of(seat);
        word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::Acquire) & bit == 0
    })
}

fn find(places: &[AtomicU64; SLOTS], key: u64, seat: Option<u64>) -> Option<Place> {
    // The number of the stream first: it is the same whoever asks.
    let stream = probe(places, key);
    let slot = probe(places, key | seat? << SEAT)?;
    Some(Place { slot, stream: stream.unwrap_or(slot) })
}

#[expect(clippy::cast_possible_truncation, reason = "the place is below 512")]
fn probe(places: &[AtomicU64; SLOTS], key: u64) -> Option<StreamSlot> {
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

/// The stream of a slot as this thread names it for CUDA, and its device; nothing where only another thread can.
pub fn handle(slot: StreamSlot) -> Option<(Ptr, DeviceId)> {
    handle_of(PLACES.get(usize::from(slot.0))?.load(Ordering::Relaxed))
}

fn handle_of(place: u64) -> Option<(Ptr, DeviceId)> {
    let device = DeviceId(u8::try_from(place >> DEVICE & 0xf).ok()?);
    let handle = match place {
        0 => return None,
        _ if place & PER_THREADS == 0 => place & HANDLE,
        _ if place == key(device, PER_THREAD, true) => PER_THREAD,
        _ => return None,
    };
    Some((handle as Ptr, device))
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
            assert!(seen.insert(probe(&places, k).unwrap()), "given twice");
        }
        assert_eq!(probe(&places, keys[77]), probe(&places, keys[77]));
        assert!(seen.contains(&probe(&places, keys[3]).unwrap()));
        assert_eq!(find(&places, key(DeviceId(0), 0x1234_5678, false), Some(0)), None);
    }

    #[test]
    fn threads_have_slots_of_their_own_for_one_stream() {
        let places = Box::new([const { AtomicU64::new(0) }; SLOTS]);
        let key = key(DeviceId(1), 0x7f00_0000_0000, false);
        let [second, first, none] = [Some(1), Some(0), None].map(|seat| find(&places, key, seat));
        let (second, first) = (second.unwrap(), first.unwrap());
        assert_eq!((second.stream, first.stream, none), (first.slot, first.slot, None));
        assert_ne!(second.slot, first.slot);
    }

    #[test]
    fn a_seat_is_given_again_when_its_thread_has_ended() {
        let key = key(DeviceId(0), 0, false);
        let mine = seat(key).unwrap();
        assert_eq!(seat(key), Some(mine));
        // Other tests may have seats, too.
        let others: std::collections::HashSet<u64> =
            (0..100).map(|_| std::thread::spawn(move || seat(key).unwrap()).join().unwrap()).collect();
        assert!(others.len() < 20 && !others.contains(&mine), "{others:?}");
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
        let named = |place| handle_of(place).map(|(handle, device)| (handle as u64, device));
        assert_eq!([mine, key(gpu, 0x5000, false), 0].map(named), [Some((2, gpu)), Some((0x5000, gpu)), None]);
        assert_eq!(
            std::thread::spawn(move || handle_of(mine).is_none()).join().ok(),
            Some(true),
            "by its thread alone"
        );
    }
}
