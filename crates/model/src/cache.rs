//! Host memory in front of an SSD: the host has what is wanted first, the SSD what is wanted last.
//!
//! Problem: what leaves a GPU when host memory is full goes to the SSD at its rate, while the SSD had nothing to do until then; and in a backward pass what left
//! last is wanted first.
//! Idea: what comes to host memory is also written to the SSD when that has nothing else to do, and stays. When room is needed, who is wanted last leaves
//! host memory, which costs nothing if it is written. Who is wanted first comes back from the SSD, into free room and in the place of others that are written and
//! wanted later. So bytes pass the GPU's link at its rate as long as the SSD keeps up on average.
//!
//! No policy has a say in this. It is what a cache can see that is told of what comes and goes: a block is taken to stay away for as long as it did the last time, and of
//! those that are away for the first time who left last is wanted first, as a stack is. Bytes between host memory and the SSD do not pass the GPU's link.
//!
//! Invariants: a block has an entry only while some of it is on no device; what leaves host memory is on the SSD, or its writing is waited for. Time is caught up with whenever the
//! memory is asked something, which is the same as if it had passed: between two questions nothing changes that this depends on.

use crate::memory::UnifiedMemory;
use crate::pages::PageMask;
use deepum_core::units::Nanos;
use std::collections::BTreeSet;

/// Where a block is that is away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    /// On the SSD alone.
    Ssd,
    /// In host memory, and written.
    Both,
    /// In host memory alone.
    Host,
}

#[derive(Clone, Copy, Default, Debug)]
struct Known {
    entry: Option<(At, Nanos)>,
    left: Nanos,
    /// How long it was away the last time.
    absence: Option<Nanos>,
    /// When the SSD has, or had, all of what is in host memory.
    written: Option<Nanos>,
}

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct Cache {
    caught_up: Nanos,
    /// By [`At`]: when each is taken to be wanted.
    entries: [BTreeSet<(Nanos, usize)>; 3],
    /// By slot.
    known: Vec<Known>,
}

impl Cache {
    fn known(&mut self, slot: usize) -> &mut Known {
        if slot >= self.known.len() {
            self.known.resize(slot + 1, Known::default());
        }
        &mut self.known[slot]
    }
    fn put(&mut self, slot: usize, entry: Option<(At, Nanos)>) {
        if let Some((at, due)) = std::mem::replace(&mut self.known(slot).entry, entry) {
            self.entries[at as usize].remove(&(due, slot));
        }
        if let Some((at, due)) = entry {
            self.entries[at as usize].insert((due, slot));
        }
    }
    fn first(&self, at: At) -> Option<(Nanos, usize)> {
        self.entries[at as usize].first().copied()
    }
    fn last(&self, at: At) -> Option<(Nanos, usize)> {
        self.entries[at as usize].last().copied()
    }
    /// The host has nothing of it any more, or not what it had.
    pub(crate) fn forget(&mut self, slot: usize) {
        self.put(slot, None);
        self.known(slot).written = None;
    }
    /// A block is somewhere else than on the host from now on.
    pub(crate) fn returns(&mut self, slot: usize, now: Nanos) {
        if self.known(slot).entry.is_some() {
            let left = self.known(slot).left;
            self.known(slot).absence = Some(now.saturating_sub(left));
            self.put(slot, None);
        }
    }
    fn leaves(&mut self, slot: usize, on_ssd: bool) {
        let left = self.caught_up;
        let known = self.known(slot);
        known.left = left;
        let due = known.absence.map_or(Nanos(u64::MAX - left.0), |absence| left + absence);
        let at = match known.written {
            _ if on_ssd => At::Ssd,
            Some(_) => At::Both,
            None => At::Host,
        };
        self.put(slot, Some((at, due)));
    }
}

impl UnifiedMemory {
    /// A block leaves a device: `anew`, with contents that the host did not have.
    pub(crate) fn leaves_for_host(&mut self, slot: usize, anew: bool) {
        let on_ssd = !anew && !self.blocks[slot].ssd.is_empty();
        let Some(cache) = &mut self.cache else { return };
        if anew {
            cache.known(slot).written = None;
        }
        cache.leaves(slot, on_ssd);
    }

    /// Lets the SSD write and read what it could until `now`.
    pub(crate) fn catch_up(&mut self, now: Nanos) {
        let Some(mut cache) = self.cache.take() else { return };
        while self.write_last(&mut cache, Some(now)).is_some() {}
        while self.read_first(&mut cache, now).is_some() {}
        cache.caught_up = cache.caught_up.max(now);
        self.cache = Some(cache);
    }

    /// Pages of a block that host memory has, as long as some of them are on no device: a copy of what is on one has its entry when that leaves.
    fn in_host_memory(&self, slot: usize) -> Option<PageMask> {
        let block = &self.blocks[slot];
        Some(block.host & block.host_pages).filter(|pages| self.is_away(slot, *pages))
    }
    fn is_away(&self, slot: usize, pages: PageMask) -> bool {
        let rest = self.devices.iter().fold(pages, |rest, device| rest.without(device.on[slot].resident));
        !rest.is_empty()
    }

    /// Writes whom host memory alone has and who is wanted last, if that begins by `until`. The answer is when it is written.
    fn write_last(&mut self, cache: &mut Cache, until: Option<Nanos>) -> Option<Nanos> {
        loop {
            let (due, slot) = cache.last(At::Host)?;
            let Some(pages) = self.in_host_memory(slot) else {
                cache.put(slot, None);
                continue;
            };
            let (drive, ready) = (self.drive.as_mut()?, self.blocks[slot].host_arrives);
            if until.is_some_and(|until| drive.writes_at(ready) > until) {
                return None;
            }
            let end = drive.writes(ready, pages.bytes());
            self.devices[0].totals.bytes_ssd_out += pages.bytes();
            cache.known(slot).written = Some(end);
            cache.put(slot, Some((At::Both, due)));
            return Some(end);
        }
    }

    /// Reads who is wanted first of those on the SSD, if that begins by `now` and there is room, or room is made by somebody who is wanted later.
    fn read_first(&mut self, cache: &mut Cache, now: Nanos) -> Option<()> {
        let (due, slot) = cache.first(At::Ssd)?;
        let pages = self.blocks[slot].ssd;
        if !self.is_away(slot, pages) {
            cache.put(slot, None);
            return Some(());
        }
        let ready = self.blocks[slot].host_arrives.max(cache.caught_up);
        if self.drive.as_ref()?.reads_at(ready) > now {
            return None;
        }
        while self.host_room(pages.bytes()).is_err() {
            let (later, other) = cache.last(At::Both).filter(|(later, _)| *later > due)?;
            if self.in_host_memory(other).is_some() && cache.known(other).written.is_some_and(|written| written > now) {
                return None;
            }
            self.drops(cache, later, other);
        }
        let end = self.drive.as_mut()?.reads(ready, pages.bytes());
        self.devices[0].totals.bytes_ssd_in += pages.bytes();
        self.host_copies += pages.bytes();
        let block = &mut self.blocks[slot];
        (block.ssd, block.host_pages, block.host_arrives) = (block.ssd.without(pages), block.host_pages | pages, end);
        cache.known(slot).written = Some(end);
        cache.put(slot, Some((At::Both, due)));
        Some(())
    }

    /// Who is written leaves host memory.
    fn drops(&mut self, cache: &mut Cache, due: Nanos, slot: usize) {
        let Some(pages) = self.in_host_memory(slot) else {
            cache.put(slot, None);
            return;
        };
        self.host_copies -= self.blocks[slot].host_pages.bytes();
        let block = &mut self.blocks[slot];
        (block.ssd, block.host_pages) = (block.ssd | pages, PageMask::EMPTY);
        cache.put(slot, Some((At::Ssd, due)));
    }

    /// Who is wanted last leaves host memory, but for this one. The answer is from when its room is free: nothing if there is nobody.
    pub(crate) fn drop_last(&mut self, but: usize) -> Option<Nanos> {
        let mut cache = self.cache.take()?;
        cache.put(but, None);
        let free = loop {
            let Some((due, slot)) = cache.last(At::Both) else {
                match self.write_last(&mut cache, None) {
                    Some(_) => continue,
                    None => break None,
                }
            };
            let before = self.host_copies;
            let written = cache.known(slot).written;
            self.drops(&mut cache, due, slot);
            if self.host_copies < before {
                break written;
            }
        };
        self.cache = Some(cache);
        free
    }
}
