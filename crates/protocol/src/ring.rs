//! The record ring: what the shim saw, in order, for the engine. Layout in `docs/ring.md`.
//!
//! Problem: any thread of the program may launch, none may ever wait, and the reader may be slow or dead.
//!
//! Idea: a power-of-two area of 64-bit words and two word counts that only grow, `head` (reserved by producers)
//! and `tail` (given back by the one consumer). A producer reserves its words by compare-and-swap on `head`,
//! fills them, and publishes by storing the record's first word, which is never 0, with release order. The
//! consumer takes the record at `tail` once its first word is not 0, zeroes all its words, and moves `tail` on with
//! release order; so a producer that sees the new `tail` finds zeroed words. Records wrap around word by word.
//!
//! Invariants: a word between `head` and `tail + capacity` is 0; records leave in the order of their
//! reservation; a record that finds no room is dropped whole and counted; nobody ever waits for anybody.
//!
//! Either side may die at any moment. A producer that dies between reserving and publishing stops the consumer there: the
//! ring fills, records drop and are counted, and the program goes on. A consumer says in `taken` how far it is about to zero, so
//! that the next one knows a record that was half taken ([`Ring::recover`]).
//!
//! Not here: who owns the memory. Both sides are handed `&[AtomicU64]`, so there is no `unsafe` in this file.

use crate::plant::{self, Plant};
use crate::shared::{COPIES, COUNTERS, MAX_DEVICES, Mode, Shared, ShimCounter};
use crate::sync::{AtomicU64, Ordering, fence};
use deepum_core::event::{Event, Launch};
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, KernelId, LaunchKey, LaunchSeq, StreamSlot};
use std::fmt;

pub use crate::ring_error::RingError;

/// `"DEEPUMRG"`, first byte lowest.
pub const MAGIC: u64 = u64::from_le_bytes(*b"DEEPUMRG");
/// Version of the layout, header and records together.
pub const VERSION: u64 = 5;
/// Words before the record area.
pub const HEADER_WORDS: usize = 128;
/// Most pointers one launch record carries: a whole 4 KiB parameter block of them, and as many again.
pub const MAX_POINTERS: usize = 1024;

const W_MAGIC: usize = 0;
const W_VERSION: usize = 1;
const W_CAPACITY: usize = 2;
const W_HEAD: usize = 8;
const W_TAIL: usize = 16;
const W_TAKEN: usize = 17;
const W_DROPPED: usize = 24;
const W_CONSUMER: usize = 25;

const KIND_ALLOC: u64 = 1;
const KIND_FREE: u64 = 2;
const KIND_PT_ACTIVE: u64 = 3;
const KIND_PT_INACTIVE: u64 = 4;
const KIND_LAUNCH: u64 = 5;
const KIND_COPY_READS: u64 = 6;
const KIND_COPY_WRITES: u64 = 7;

const _: () = assert!(COUNTERS + ShimCounter::ALL.len() <= COPIES && COPIES + MAX_DEVICES <= HEADER_WORDS);

/// One thing the shim saw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// The program was given managed memory.
    Alloc {
        /// Where.
        range: AddrRange,
    },
    /// The program gave it back.
    Free {
        /// As announced by `Alloc`.
        range: AddrRange,
    },
    /// PyTorch's caching allocator handed a block out or took it back.
    PtBlock {
        /// The PT block.
        range: AddrRange,
        /// Whether it now holds a tensor.
        active: bool,
        /// The newest place taken in the device's sequence by then. Whoever reads the record may find more.
        issued: LaunchSeq,
    },
    /// A kernel or graph launch, about to be given to the driver.
    Launch(Launch<'a>),
    /// A copy or memset of managed memory by a call of CUDA, about to be given to the driver: one record for each range.
    Copy {
        /// Its place in the device's sequence, the same for all its ranges.
        seq: LaunchSeq,
        /// Where it runs.
        stream: StreamSlot,
        /// The managed bytes.
        range: AddrRange,
        /// Whether it writes them; else it reads them.
        write: bool,
    },
}

impl<'a> From<Record<'a>> for Event<'a> {
    fn from(record: Record<'a>) -> Self {
        match record {
            Record::Alloc { range } => Self::Alloc { range },
            Record::Free { range } => Self::Free { range },
            Record::PtBlock { range, active, issued: _ } => Self::PtBlock { range, active },
            Record::Launch(launch) => Self::Launch(launch),
            Record::Copy { seq, stream, range, write } => Self::Copy { seq, stream, range, write },
        }
    }
}

/// A ring over somebody's memory. Copies are the same ring.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    words: &'a [AtomicU64],
    mask: u64,
}

impl fmt::Debug for Ring<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("capacity", &self.capacity()).field("used", &self.used()).finish_non_exhaustive()
    }
}

impl<'a> Ring<'a> {
    /// Makes a ring in `words`, all of which must be 0: a header, and a power of two of words for records.
    ///
    /// # Errors
    /// [`RingError::Size`].
    pub fn format(words: &'a [AtomicU64]) -> Result<Self, RingError> {
        let ring = Self::sized(words)?;
        words[W_CAPACITY].store(ring.capacity() as u64, Ordering::Relaxed);
        words[W_VERSION].store(VERSION, Ordering::Relaxed);
        words[W_MAGIC].store(MAGIC, Ordering::Release);
        Ok(ring)
    }

    /// The ring somebody made in `words`.
    ///
    /// # Errors
    /// [`RingError`], naming what is not as it should be.
    pub fn open(words: &'a [AtomicU64]) -> Result<Self, RingError> {
        let ring = Self::sized(words)?;
        let have = |at: usize| words[at].load(Ordering::Acquire);
        if have(W_MAGIC) != MAGIC {
            return Err(RingError::Magic { have: have(W_MAGIC) });
        }
        if have(W_VERSION) != VERSION {
            return Err(RingError::Version { have: have(W_VERSION) });
        }
        if have(W_CAPACITY) != ring.capacity() as u64 {
            return Err(RingError::Capacity { have: have(W_CAPACITY), want: ring.capacity() });
        }
        Ok(ring)
    }

    fn sized(words: &'a [AtomicU64]) -> Result<Self, RingError> {
        let capacity = words.len().saturating_sub(HEADER_WORDS);
        if capacity < 8 || !capacity.is_power_of_two() {
            return Err(RingError::Size { words: words.len() });
        }
        Ok(Self { words, mask: capacity as u64 - 1 })
    }

    /// Words for records.
    pub const fn capacity(&self) -> usize {
        self.words.len() - HEADER_WORDS
    }

    /// Words reserved and not yet given back.
    pub fn used(&self) -> u64 {
        let tail = self.words[W_TAIL].load(Ordering::Acquire);
        self.words[W_HEAD].load(Ordering::Relaxed).wrapping_sub(tail)
    }

    /// Records that found no room, since the ring was made.
    pub fn dropped(&self) -> u64 {
        self.words[W_DROPPED].load(Ordering::Relaxed)
    }

    /// The words beside the records: mode, launch sequence, shim counters.
    pub const fn shared(&self) -> Shared<'a> {
        Shared { words: self.words }
    }

    /// Puts a record in, from any thread, without waiting; `false` says that it was dropped, and counted. Of a
    /// launch's pointers the first [`MAX_POINTERS`] are taken, the rest is counted.
    pub fn push(&self, device: DeviceId, record: &Record<'_>) -> bool {
        match *record {
            Record::Alloc { range } => self.push_range(KIND_ALLOC, device, range),
            Record::Free { range } => self.push_range(KIND_FREE, device, range),
            Record::PtBlock { range, active, issued } => {
                let kind = if active { KIND_PT_ACTIVE } else { KIND_PT_INACTIVE };
                self.push_placed(kind, device, StreamSlot(0), issued, range)
            }
            Record::Launch(launch) => self.push_launch(device, &launch),
            Record::Copy { seq, stream, range, write } => {
                let kind = if write { KIND_COPY_WRITES } else { KIND_COPY_READS };
                self.push_placed(kind, device, stream, seq, range)
            }
        }
    }

    fn push_range(&self, kind: u64, device: DeviceId, range: AddrRange) -> bool {
        let Some(at) = self.reserve(3) else {
            return false;
        };
        self.word(at + 1).store(range.start.0, Ordering::Relaxed);
        self.word(at + 2).store(range.len.0, Ordering::Relaxed);
        self.word(at).store(tag(kind, 3, device, StreamSlot(0)), Ordering::Release);
        true
    }

    fn push_launch(&self, device: DeviceId, launch: &Launch<'_>) -> bool {
        let pointers = &launch.pointers[..launch.pointers.len().min(MAX_POINTERS)];
        let left_out = launch.pointers.len() - pointers.len();
        if left_out > 0 {
            self.shared().add(ShimCounter::PointersLeftOut, left_out as u64);
        }
        let len = 4 + pointers.len() as u64;
        let Some(at) = self.reserve(len) else {
            return false;
        };
        self.word(at + 1).store(launch.seq.0, Ordering::Relaxed);
        self.word(at + 2).store(launch.key.0, Ordering::Relaxed);
        self.word(at + 3).store(launch.kernel.0, Ordering::Relaxed);
        for (i, pointer) in (at + 4..).zip(pointers) {
            self.word(i).store(pointer.0, Ordering::Relaxed);
        }
        self.word(at).store(tag(KIND_LAUNCH, len, device, launch.stream), Ordering::Release);
        true
    }

    fn push_placed(&self, kind: u64, device: DeviceId, stream: StreamSlot, seq: LaunchSeq, range: AddrRange) -> bool {
        let Some(at) = self.reserve(4) else {
            return false;
        };
        self.word(at + 1).store(seq.0, Ordering::Relaxed);
        self.word(at + 2).store(range.start.0, Ordering::Relaxed);
        self.word(at + 3).store(range.len.0, Ordering::Relaxed);
        self.word(at).store(tag(kind, 4, device, stream), Ordering::Release);
        true
    }

    /// Takes `len` words at the head; nothing if they are not free.
    fn reserve(&self, len: u64) -> Option<u64> {
        let head = &self.words[W_HEAD];
        loop {
            // Tail first: seen the other way round, it could be past a stale head.
            let tail = self.words[W_TAIL].load(Ordering::Acquire);
            let at = head.load(Ordering::Relaxed);
            if at.wrapping_sub(tail) + len > self.mask + 1 {
                self.words[W_DROPPED].fetch_add(1, Ordering::Relaxed);
                return None;
            }
            if head.compare_exchange_weak(at, at + len, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Some(at);
            }
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "masked to the capacity, which is a usize")]
    fn word(&self, at: u64) -> &'a AtomicU64 {
        &self.words[HEADER_WORDS + (at & self.mask) as usize]
    }

    /// Becomes the one reader.
    ///
    /// # Errors
    /// [`RingError::Taken`].
    pub fn consumer(self) -> Result<Consumer<'a>, RingError> {
        match self.words[W_CONSUMER].compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => self.reader(),
            Err(_) => Err(RingError::Taken),
        }
    }

    /// Becomes the one reader in the place of one that is gone, wherever it stopped: its process must have ended. A record that it had
    /// begun to take is gone with it; all others are there. Where the last reader left in order, this is [`Self::consumer`].
    ///
    /// # Errors
    /// [`RingError::Places`]: no reader left the ring like this.
    pub fn recover(self) -> Result<Consumer<'a>, RingError> {
        self.words[W_CONSUMER].swap(1, Ordering::Acquire);
        self.reader()
    }

    fn reader(self) -> Result<Consumer<'a>, RingError> {
        let at = |word: usize| self.words[word].load(Ordering::Acquire);
        let (tail, taken, head) = (at(W_TAIL), at(W_TAKEN), at(W_HEAD));
        // Counts this large are nobody's honest ones, and adding to them could overflow.
        let in_order = tail <= taken && taken <= head && head <= 1 << 62;
        if !in_order || head - tail > self.mask + 1 {
            self.words[W_CONSUMER].store(0, Ordering::Release);
            return Err(RingError::Places { head, tail, taken });
        }
        // Whoever read it before moves nothing any more.
        self.shared().nothing_leaves();
        for at in tail..taken {
            self.word(at).store(0, Ordering::Relaxed);
        }
        self.words[W_TAIL].store(taken, Ordering::Release);
        Ok(Consumer { ring: self, pointers: vec![DevAddr(0); MAX_POINTERS].into() })
    }
}

/// First word of a record: kind, words, device, stream; never 0.
const fn tag(kind: u64, len: u64, device: DeviceId, stream: StreamSlot) -> u64 {
    kind | len << 8 | (device.0 as u64) << 24 | (stream.0 as u64) << 32
}

/// The reading end. Dropping it turns the shim's mode to [`Mode::Off`] and lets another reader in, which must then
/// set the mode it wants.
#[derive(Debug)]
pub struct Consumer<'a> {
    ring: Ring<'a>,
    pointers: Box<[DevAddr]>,
}

impl<'a> Consumer<'a> {
    /// The ring it reads.
    pub const fn ring(&self) -> Ring<'a> {
        self.ring
    }

    /// The oldest record, if one is published; allocates nothing.
    ///
    /// # Errors
    /// [`RingError::Corrupt`] if the word at the tail starts no record. It stays there: a ring once corrupt is never
    /// read again.
    pub fn pop(&mut self) -> Result<Option<(DeviceId, Record<'_>)>, RingError> {
        let ring = self.ring;
        let at = ring.words[W_TAIL].load(Ordering::Relaxed);
        let word = ring.word(at).load(Ordering::Acquire);
        if word == 0 {
            return Ok(None);
        }
        let (kind, len) = (word & 0xff, word >> 8 & 0xffff);
        let device = DeviceId((word >> 24 & 0xff) as u8);
        let stream = StreamSlot((word >> 32 & 0xffff) as u16);
        let fits = match kind {
            KIND_LAUNCH => (4..=4 + MAX_POINTERS as u64).contains(&len),
            KIND_ALLOC | KIND_FREE => len == 3,
            KIND_PT_ACTIVE | KIND_PT_INACTIVE | KIND_COPY_READS | KIND_COPY_WRITES => len == 4,
            _ => false,
        };
        if !fits || len > ring.mask + 1 || word >> 48 != 0 {
            return Err(RingError::Corrupt { word });
        }
        if !plant::is(Plant::NoTaken) {
            ring.words[W_TAKEN].store(at + len, Ordering::Relaxed);
        }
        // Before any word of the record is zeroed.
        fence(Ordering::Release);
        if plant::dies() {
            return Ok(None);
        }
        let take = |i: u64| {
            let word = ring.word(at + i);
            let value = word.load(Ordering::Relaxed);
            word.store(0, Ordering::Relaxed);
            value
        };
        let (one, two) = (take(1), take(2));
        if plant::dies() {
            return Ok(None);
        }
        let three = if len > 3 { take(3) } else { 0 };
        let mut count = 0;
        for (pointer, i) in self.pointers.iter_mut().zip(4..len) {
            *pointer = DevAddr(take(i));
            count += 1;
        }
        ring.word(at).store(0, Ordering::Relaxed);
        if plant::dies() {
            return Ok(None);
        }
        ring.words[W_TAIL].store(at + len, Ordering::Release);

        let range = AddrRange::new(DevAddr(one), Bytes(two));
        let placed = AddrRange::new(DevAddr(two), Bytes(three));
        let record = match kind {
            KIND_ALLOC => Record::Alloc { range },
            KIND_FREE => Record::Free { range },
            KIND_PT_ACTIVE | KIND_PT_INACTIVE => {
                Record::PtBlock { range: placed, active: kind == KIND_PT_ACTIVE, issued: LaunchSeq(one) }
            }
            KIND_COPY_READS | KIND_COPY_WRITES => {
                Record::Copy { seq: LaunchSeq(one), stream, range: placed, write: kind == KIND_COPY_WRITES }
            }
            _ => Record::Launch(Launch {
                seq: LaunchSeq(one),
                stream,
                key: LaunchKey(two),
                kernel: KernelId(three),
                pointers: &self.pointers[..count],
            }),
        };
        Ok(Some((device, record)))
    }
}

impl Drop for Consumer<'_> {
    fn drop(&mut self) {
        self.ring.shared().set_mode(Mode::Off);
        self.ring.words[W_CONSUMER].store(0, Ordering::Release);
    }
}
