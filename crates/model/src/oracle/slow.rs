//! The driver's memory as its rules say it, in sets and vectors, a page at a time: where pages are, in which order blocks leave, what was copied. No time passes.

use super::{DEVICES, Op, ROOM};
use crate::pages::PageMask;
use crate::{Advice, prefetch};
use deepum_core::units::{DeviceId, Place};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub struct Slow {
    /// Where every populated page is.
    pub pages: BTreeMap<(u64, u32), BTreeSet<Place>>,
    /// Pages on devices that may not be written there.
    pub read_only: BTreeSet<(u8, u64, u32)>,
    /// Pages that the host maps.
    pub mapped: BTreeSet<(u64, u32)>,
    pub duplicated: BTreeSet<u64>,
    /// Pages of the host that devices have mapped.
    pub afar: BTreeSet<(u8, u64, u32)>,
    preferred: BTreeMap<u64, Place>,
    /// Blocks in the group that does not migrate.
    stays: BTreeSet<u64>,
    /// Pages, populated or not, whose contents were given up.
    discarded: BTreeSet<(u64, u32)>,
    /// Per device: blocks holding a chunk, by list: unused, discarded, used.
    pub lists: [[Vec<u64>; 3]; DEVICES as usize],
    proper: [usize; DEVICES as usize],
    pub copied: u64,
}

impl Slow {
    pub fn on(&self, block: u64, at: Place) -> Vec<u32> {
        let pages = self.pages.range((block, 0)..(block + 1, 0));
        pages.filter(|(_, places)| places.contains(&at)).map(|(&(_, page), _)| page).collect()
    }

    fn put(&mut self, d: u8, block: u64, list: Option<usize>) {
        let lists = &mut self.lists[usize::from(d)];
        lists.iter_mut().for_each(|l| l.retain(|&b| b != block));
        if let Some(list) = list {
            lists[list].push(block);
        }
    }

    fn held(&self, d: u8) -> usize {
        self.lists[usize::from(d)].iter().map(Vec::len).sum()
    }

    fn room(&self, d: u8) -> usize {
        ROOM - self.proper[usize::from(d)]
    }

    fn evict(&mut self, d: u8) -> bool {
        let Some(&victim) = self.lists[usize::from(d)].iter().flatten().next() else { return false };
        let here = Place::Device(DeviceId(d));
        for page in self.on(victim, here) {
            if self.discarded.contains(&(victim, page)) {
                self.remove(victim, page, here);
                continue;
            }
            if self.places(victim, page).insert(Place::Host) {
                self.copied += 4096;
            }
            self.keep_only(victim, page, Place::Host);
        }
        self.put(d, victim, None);
        true
    }

    fn places(&mut self, block: u64, page: u32) -> &mut BTreeSet<Place> {
        self.pages.entry((block, page)).or_default()
    }

    fn is_at(&self, block: u64, page: u32, place: Place) -> bool {
        self.pages.get(&(block, page)).is_some_and(|places| places.contains(&place))
    }

    /// A page is in one place less. A chunk that it was the last to leave is unused.
    fn remove(&mut self, block: u64, page: u32, from: Place) {
        let places = self.places(block, page);
        places.remove(&from);
        if places.is_empty() {
            self.pages.remove(&(block, page));
        }
        match from {
            Place::Host => self.leaves_host(block, page),
            Place::Device(DeviceId(d)) => {
                self.read_only.remove(&(d, block, page));
                if !self.pages.range((block, 0)..(block + 1, 0)).any(|(_, places)| places.contains(&from)) {
                    self.put(d, block, Some(0));
                }
            }
        }
    }

    fn leaves_host(&mut self, block: u64, page: u32) {
        self.mapped.remove(&(block, page));
        self.afar.retain(|&(_, of, other)| (of, other) != (block, page));
    }

    /// Whether there was any other.
    fn keep_only(&mut self, block: u64, page: u32, kept: Place) -> bool {
        let others: Vec<Place> = self.places(block, page).iter().copied().filter(|place| *place != kept).collect();
        others.iter().for_each(|&other| self.remove(block, page, other));
        !others.is_empty()
    }

    /// Puts a page where it alone belongs from now on.
    fn place(&mut self, block: u64, page: u32, to: Place) {
        let stale = self.discarded.remove(&(block, page));
        let places = self.places(block, page);
        let moves = !places.is_empty() && !places.contains(&to);
        places.insert(to);
        self.copied += if stale || !moves { 0 } else { 4096 };
        self.keep_only(block, page, to);
    }

    /// Puts a page there, too. Whether it was elsewhere, and is still.
    fn copy(&mut self, block: u64, page: u32, to: Place) -> bool {
        if self.is_at(block, page, to) || self.discarded.contains(&(block, page)) {
            if !self.is_at(block, page, to) {
                self.place(block, page, to);
            }
            self.discarded.remove(&(block, page));
            return false;
        }
        let places = self.places(block, page);
        let from = places.first().copied();
        places.insert(to);
        let Some(from) = from else { return false };
        self.copied += 4096;
        // It may be written nowhere from now on.
        if let Place::Device(DeviceId(d)) = from {
            self.read_only.insert((d, block, page));
        }
        true
    }

    /// `written` of them, if any.
    fn bring(&mut self, d: u8, block: u64, wanted: &[u32], written: Option<u32>, by_call: bool) -> bool {
        let holds = self.lists[usize::from(d)].iter().flatten().any(|&b| b == block);
        if !holds && self.held(d) >= self.room(d) && !self.evict(d) {
            return false;
        }
        self.put(d, block, Some(2));
        let to = Place::Device(DeviceId(d));
        for &page in wanted {
            if !self.duplicated.contains(&block) || written == Some(page) {
                let nowhere = !self.pages.contains_key(&(block, page));
                let given_up = self.discarded.contains(&(block, page));
                if nowhere && given_up && !by_call && written != Some(page) {
                    self.read_only.insert((d, block, page));
                }
                self.place(block, page, to);
                continue;
            }
            let there = self.is_at(block, page, to);
            let others = (0..DEVICES).any(|o| o != d && self.is_at(block, page, Place::Device(DeviceId(o))));
            let mapped = others || self.mapped.contains(&(block, page));
            let kept = self.copy(block, page, to);
            if !there && (!by_call || kept && mapped) {
                self.read_only.insert((d, block, page));
            }
        }
        true
    }

    fn one_copy(&mut self, block: u64, pages: std::ops::Range<u32>) {
        let preferred = self.preferred.get(&block).copied();
        let devices = (0..DEVICES).map(|d| Place::Device(DeviceId(d)));
        for kept in preferred.into_iter().chain([Place::Host]).chain(devices) {
            let mut several = false;
            for page in self.on(block, kept).into_iter().filter(|page| pages.contains(page)) {
                several |= self.keep_only(block, page, kept);
            }
            if let (Place::Device(DeviceId(d)), true) = (kept, several) {
                self.put(d, block, Some(2));
            }
        }
    }

    fn go_home(&mut self, block: u64) -> bool {
        self.mapped.retain(|&(of, _)| of != block);
        match self.preferred[&block] {
            Place::Device(DeviceId(d)) => {
                let done = self.bring(d, block, &(0..512).collect::<Vec<_>>(), None, false);
                if done {
                    self.discarded.retain(|&(of, _)| of != block);
                }
                done
            }
            Place::Host => {
                (0..512).for_each(|page| self.send_home(block, page));
                true
            }
        }
    }

    fn send_home(&mut self, block: u64, page: u32) {
        if self.duplicated.contains(&block) {
            self.copy(block, page, Place::Host);
        } else {
            self.place(block, page, Place::Host);
        }
    }

    fn advise(&mut self, block: u64, advice: Advice) -> bool {
        match advice {
            Advice::Duplicate(true) if self.duplicated.insert(block) => {
                self.afar.retain(|&(_, of, _)| of != block);
                for d in 0..DEVICES {
                    let here = self.on(block, Place::Device(DeviceId(d)));
                    if !here.is_empty() {
                        self.put(d, block, Some(2));
                    }
                    self.read_only.extend(here.into_iter().map(|page| (d, block, page)));
                }
            }
            Advice::Duplicate(false) if self.duplicated.remove(&block) => self.one_copy(block, 0..512),
            Advice::Prefer(Some(Place::Device(_))) if self.stays.contains(&block) => return false,
            Advice::Prefer(Some(place)) => {
                self.preferred.insert(block, place);
                return !self.stays.contains(&block) || self.go_home(block);
            }
            Advice::Prefer(None) => {
                if self.preferred.remove(&block).is_some() {
                    self.stays.remove(&block);
                }
            }
            Advice::AccessedBy(DeviceId(d), true) if !self.duplicated.contains(&block) => {
                self.read_only.retain(|&(on, of, _)| (on, of) != (d, block));
            }
            Advice::Duplicate(_) | Advice::AccessedBy(..) => {}
        }
        true
    }

    /// All 512 pages discarded: chunks go to the unused list if none is left anywhere, else to the discarded list.
    fn discard(&mut self, block: u64, pages: std::ops::Range<u32>, unmap: bool) {
        if !unmap {
            self.one_copy(block, pages.clone());
        }
        let mut changes = false;
        for page in pages {
            changes |= self.discarded.insert((block, page));
            if unmap {
                changes |= self.pages.remove(&(block, page)).is_some();
                self.leaves_host(block, page);
                self.read_only.retain(|&(_, of, other)| (of, other) != (block, page));
            }
        }
        if changes && (0..512).all(|page| self.discarded.contains(&(block, page))) {
            let left = self.pages.range((block, 0)..(block + 1, 0)).next().is_some();
            for d in 0..DEVICES {
                if self.lists[usize::from(d)].iter().flatten().any(|&b| b == block) {
                    self.put(d, block, Some(usize::from(left)));
                }
            }
        }
    }

    pub fn apply(&mut self, op: &Op) -> bool {
        match *op {
            Op::Migrate { block, .. } if self.stays.contains(&block) => {}
            Op::Join { block, stays: false } => _ = self.stays.remove(&block),
            Op::Join { block, stays: true } => {
                return self.preferred.contains_key(&block) && {
                    self.stays.insert(block);
                    self.go_home(block)
                };
            }
            Op::Migrate { block, first, len, to: None } => {
                for page in first..first + len {
                    self.send_home(block, page);
                    self.mapped.insert((block, page));
                }
            }
            Op::Migrate { block, first, len, to: Some(d) } => {
                let wanted: Vec<u32> = (first..first + len).collect();
                let done = self.bring(d, block, &wanted, None, true);
                if done {
                    wanted.iter().for_each(|&page| _ = self.discarded.remove(&(block, page)));
                }
                return done;
            }
            Op::Advise { block, advice } => return self.advise(block, advice),
            Op::Discard { block, first, len, unmap } => self.discard(block, first..first + len, unmap),
            Op::Kernel { device, block, page, write } => {
                let to = Place::Device(DeviceId(device));
                if self.is_at(block, page, to) {
                    if write && self.read_only.remove(&(device, block, page)) {
                        self.keep_only(block, page, to);
                        self.put(device, block, Some(2));
                    }
                    return true;
                }
                if self.preferred.get(&block) == Some(&Place::Host) && !self.duplicated.contains(&block) {
                    if !self.afar.contains(&(device, block, page)) {
                        self.send_home(block, page);
                        self.afar.insert((device, block, page));
                    }
                    return true;
                }
                if self.afar.contains(&(device, block, page)) {
                    return true;
                }
                let mut resident = PageMask::EMPTY;
                self.on(block, to).into_iter().for_each(|p| resident.insert(p));
                let faulted = PageMask::span(page, page + 1);
                let wanted = faulted | prefetch::along_with(faulted, resident, 51);
                return self.bring(device, block, &wanted.iter().collect::<Vec<_>>(), write.then_some(page), false);
            }
            Op::Proper { device, take } => {
                let proper = &mut self.proper[usize::from(device)];
                if take && *proper == ROOM {
                    return false;
                }
                *proper = if take { *proper + 1 } else { proper.saturating_sub(1) };
                while self.held(device) > self.room(device) {
                    self.evict(device);
                }
            }
        }
        true
    }
}
