//! One tools queue: a ring of entries and a control page, both in the caller's memory (facts 2.2).
//!
//! Indexes are entry numbers below the ring's length. The consumer may write anything into either page, so what is
//! read from them is masked and never trusted. Empty is `get == put`; one slot stays free; an event that finds the
//! ring full is counted in `dropped[type]` and gone.

use super::caller::Pinned;
use super::sys;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const GET_AHEAD: usize = 0;
const GET_BEHIND: usize = 4;
const PUT_AHEAD: usize = 8;
const PUT_BEHIND: usize = 12;
const DROPPED: usize = 16;

#[derive(Debug)]
pub(super) struct Tracker {
    ring: Pinned,
    control: Pinned,
    /// Entries in the ring, a power of two.
    count: u32,
    entry: usize,
    threshold: u32,
    enabled: u64,
    /// The `get_ahead` at which pollers were last woken.
    woken_at: Option<u32>,
}

impl Tracker {
    pub(super) fn new(ring: Pinned, control: Pinned, count: u32, entry: usize) -> Self {
        Self { ring, control, count, entry, threshold: count / 2, enabled: 0, woken_at: None }
    }

    /// Whether it takes V2 entries.
    pub(super) fn wide(&self) -> bool {
        self.entry == sys::ENTRY_V2
    }

    pub(super) fn enabled(&self) -> u64 {
        self.enabled
    }

    pub(super) fn enable(&mut self, mask: u64) {
        self.enabled |= mask;
    }

    pub(super) fn disable(&mut self, mask: u64) {
        self.enabled &= !mask;
    }

    /// Sets the threshold; whether pollers are to be woken.
    pub(super) fn set_threshold(&mut self, threshold: u32) -> bool {
        self.threshold = threshold;
        self.due(self.word(GET_AHEAD).load(Ordering::Acquire))
    }

    pub(super) fn poll(&mut self) -> bool {
        self.woken_at = None;
        self.due(self.word(GET_AHEAD).load(Ordering::Acquire))
    }

    pub(super) fn unread(&self) -> bool {
        let mask = self.count - 1;
        let get = self.word(GET_BEHIND).load(Ordering::Acquire);
        let put = self.word(PUT_BEHIND).load(Ordering::Acquire);
        self.enabled != 0 && (get ^ put) & mask != 0
    }

    /// Puts an entry into the ring if its type is enabled; whether pollers are to be woken.
    pub(super) fn put(&mut self, kind: u8, bytes: &[u8]) -> bool {
        debug_assert_eq!(bytes.len(), self.entry);
        if self.enabled >> kind & 1 == 0 {
            return false;
        }
        let mask = self.count - 1;
        let get = self.word(GET_BEHIND).load(Ordering::Acquire) & mask;
        let put = self.word(PUT_BEHIND).load(Ordering::Relaxed) & mask;
        let next = (put + 1) & mask;
        if next == get {
            self.count_drop(kind);
            return false;
        }
        let slot = self.ring.at(put as usize * self.entry, self.entry);
        // SAFETY: the slot is inside the pinned ring; entries are published by the store of `put` below, so a consumer
        // that keeps the rules does not read it now, and one that does not gets torn bytes of its own making.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), slot.as_ptr(), self.entry) };
        self.word(PUT_AHEAD).store(next, Ordering::Release);
        self.word(PUT_BEHIND).store(next, Ordering::Release);
        let get = self.word(GET_AHEAD).load(Ordering::Acquire);
        // At most one wake-up per value of `get_ahead`.
        if self.due(get) && self.woken_at != Some(get) {
            self.woken_at = Some(get);
            return true;
        }
        false
    }

    /// Counts an entry as dropped if its type is enabled.
    pub(super) fn drop_one(&self, kind: u8) {
        if self.enabled >> kind & 1 == 1 {
            self.count_drop(kind);
        }
    }

    fn count_drop(&self, kind: u8) {
        let at = self.control.at(DROPPED + 8 * usize::from(kind), 8);
        // SAFETY: inside the pinned control page, 8-aligned (the page is aligned, the offset a multiple of 8), and
        // accessed by both sides with atomic operations only.
        unsafe { AtomicU64::from_ptr(at.cast().as_ptr()) }.fetch_add(1, Ordering::Release);
    }

    /// Whether as much is unread as pollers wait for.
    fn due(&self, get_ahead: u32) -> bool {
        let put = self.word(PUT_BEHIND).load(Ordering::Acquire);
        put.wrapping_sub(get_ahead) & (self.count - 1) >= self.threshold
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        let at = self.control.at(offset, 4);
        // SAFETY: inside the pinned control page and 4-aligned; lives as long as `self.control`; both sides use atomic
        // operations only.
        unsafe { AtomicU32::from_ptr(at.cast().as_ptr()) }
    }
}
