//! The fast model against a slow, obvious one: pages in a map, the eviction order in vectors, no time.

use crate::memory::{ModelError, Options, UnifiedMemory};
use crate::pages::PageMask;
use crate::{Accessor, Advice, Group, KernelRun, PageOp, Profile, Step, Touch, prefetch};
use deepum_core::units::{AddrRange, Bytes, DeviceId, Nanos, Place, UmBlock};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const BLOCKS: u64 = 6;
const DEVICES: u8 = 2;
/// Room for this many blocks on each device, less what is taken as device memory proper.
const ROOM: usize = 3;
const STAYS: Group = Group(1);

#[derive(Clone, Debug)]
enum Op {
    Migrate {
        block: u64,
        first: u32,
        len: u32,
        to: Option<u8>,
    },
    Discard {
        block: u64,
        first: u32,
        len: u32,
        unmap: bool,
    },
    Kernel {
        device: u8,
        block: u64,
        page: u32,
        write: bool,
    },
    Advise {
        block: u64,
        advice: Advice,
    },
    /// To the one group there is, which does not migrate, or to none.
    Join {
        block: u64,
        stays: bool,
    },
    Proper {
        device: u8,
        take: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let span = || prop_oneof![Just((0u32, 512u32)), (0u32..512, 1u32..512).prop_map(|(f, l)| (f, l.min(512 - f)))];
    let device = 0..DEVICES;
    prop_oneof![
        6 => (0..BLOCKS, span(), prop::option::weighted(0.8, device.clone()))
            .prop_map(|(block, (first, len), to)| Op::Migrate { block, first, len, to }),
        3 => (0..BLOCKS, span(), any::<bool>())
            .prop_map(|(block, (first, len), unmap)| Op::Discard { block, first, len, unmap }),
        4 => (device.clone(), 0..BLOCKS, 0u32..512, any::<bool>())
            .prop_map(|(device, block, page, write)| Op::Kernel { device, block, page, write }),
        3 => (0..BLOCKS, advice()).prop_map(|(block, advice)| Op::Advise { block, advice }),
        2 => (0..BLOCKS, prop::bool::weighted(0.8)).prop_map(|(block, stays)| Op::Join { block, stays }),
        1 => (device, any::<bool>()).prop_map(|(device, take)| Op::Proper { device, take }),
    ]
}

fn advice() -> impl Strategy<Value = Advice> {
    let device = || (0..DEVICES).prop_map(DeviceId);
    prop_oneof![
        4 => any::<bool>().prop_map(Advice::Duplicate),
        4 => prop_oneof![
            2 => Just(Some(Place::Host)),
            1 => device().prop_map(|device| Some(Place::Device(device))),
            1 => Just(None),
        ].prop_map(Advice::Prefer),
        1 => (device(), any::<bool>()).prop_map(|(device, on)| Advice::AccessedBy(device, on)),
    ]
}

#[derive(Default)]
struct Slow {
    /// Where every populated page is.
    pages: BTreeMap<(u64, u32), BTreeSet<Place>>,
    /// Pages on devices that may not be written there.
    read_only: BTreeSet<(u8, u64, u32)>,
    /// Pages that the host maps.
    mapped: BTreeSet<(u64, u32)>,
    duplicated: BTreeSet<u64>,
    preferred: BTreeMap<u64, Place>,
    /// Blocks in the group that does not migrate.
    stays: BTreeSet<u64>,
    /// Pages, populated or not, whose contents were given up.
    discarded: BTreeSet<(u64, u32)>,
    /// Per device: blocks holding a chunk, by list: unused, discarded, used.
    lists: [[Vec<u64>; 3]; DEVICES as usize],
    proper: [usize; DEVICES as usize],
    copied: u64,
}

impl Slow {
    fn on(&self, block: u64, at: Place) -> Vec<u32> {
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
            Place::Host => _ = self.mapped.remove(&(block, page)),
            Place::Device(DeviceId(d)) => {
                self.read_only.remove(&(d, block, page));
                if !self.pages.range((block, 0)..(block + 1, 0)).any(|(_, places)| places.contains(&from)) {
                    self.put(d, block, Some(0));
                }
            }
        }
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
                self.mapped.remove(&(block, page));
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

    fn apply(&mut self, op: &Op) -> bool {
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

fn apply(mem: &mut UnifiedMemory, op: &Op, now: &mut Nanos) -> bool {
    let pages = |block: u64, first: u32, len: u32| {
        let start = UmBlock(block).start().offset(Bytes(u64::from(first) * 4096));
        AddrRange::new(start, Bytes(u64::from(len) * 4096))
    };
    let done = match *op {
        Op::Migrate { block, first, len, to } => {
            let to = to.map_or(Place::Host, |d| Place::Device(DeviceId(d)));
            // Not waited for, so that later operations meet pages in flight.
            mem.migrate(pages(block, first, len), to, *now).map(|m| m.ordered)
        }
        Op::Discard { block, first, len, unmap } => mem.discard(pages(block, first, len), unmap, *now),
        Op::Advise { block, advice } => mem.advise(UmBlock(block).range(), advice, *now),
        Op::Join { block, stays } => {
            let group = if stays { STAYS } else { Group::NONE };
            mem.join(UmBlock(block).range(), group, *now).map(|moved| moved.done)
        }
        Op::Kernel { device, block, page, write } => {
            let touch = Touch { range: pages(block, page, 1), write, phase: 0 };
            let mut run = KernelRun::new(DeviceId(device), Accessor::Kernel, &[touch], Nanos(9));
            loop {
                match run.step(mem, *now, Nanos(u64::MAX)) {
                    Step::Faulted { resume_at, .. } => *now = resume_at,
                    Step::Done { at } => break Ok(at),
                    Step::Fatal { .. } => return false,
                    Step::Paused { .. } => unreachable!("no horizon was set"),
                }
            }
        }
        Op::Proper { device, take: true } => mem.alloc_device(DeviceId(device), UmBlock::SIZE, *now),
        Op::Proper { device, take: false } => {
            mem.free_device(DeviceId(device), UmBlock::SIZE);
            Ok(*now)
        }
    };
    match done {
        Ok(at) => {
            assert!(at >= *now, "time goes forward");
            *now = at;
            true
        }
        Err(ModelError::OutOfMemory { .. } | ModelError::Stays { .. } | ModelError::Unpreferred { .. }) => false,
        Err(e) => panic!("{e}"),
    }
}

/// The places of pages as told by page operations alone.
fn follow(all: &mut BTreeMap<(u64, u32), BTreeSet<Place>>, op: &PageOp) {
    // From where, if it was anywhere; whether it is there no more; where to.
    let mut set = |block: UmBlock, pages: &PageMask, from: Option<Place>, leaves: bool, to: Option<Place>| {
        for page in pages.iter() {
            let places = all.entry((block.0, page)).or_default();
            assert!(from.map_or(places.is_empty(), |from| places.contains(&from)), "{op:?} page {page}: {places:?}");
            if let Some(from) = from.filter(|_| leaves) {
                places.remove(&from);
            }
            if let Some(to) = to {
                assert!(places.insert(to), "{op:?} page {page}: {places:?}");
            }
            if places.is_empty() {
                all.remove(&(block.0, page));
            }
        }
    };
    match op {
        PageOp::Populated { block, pages, place } => set(*block, pages, None, false, Some(*place)),
        PageOp::Moved { block, pages, from, to } | PageOp::MovedDiscarded { block, pages, from, to } => {
            set(*block, pages, Some(*from), true, Some(*to));
        }
        PageOp::Copied { block, pages, from, to } => set(*block, pages, Some(*from), false, Some(*to)),
        PageOp::Forgotten { block, pages, place, kept } => {
            set(*block, pages, Some(*kept), false, None);
            set(*block, pages, Some(*place), true, None);
        }
        PageOp::Discarded { block, pages, place } => set(*block, pages, Some(*place), false, None),
        PageOp::Dropped { block, pages, place } => set(*block, pages, Some(*place), true, None),
    }
}

fn node() -> UnifiedMemory {
    let options = Options {
        devices: DEVICES,
        memory: Some(Bytes(ROOM as u64 * UmBlock::SIZE.0)),
        host_memory: Some(Bytes::gib(1)),
        page_ops: true,
        ..Options::default()
    };
    let mut mem = UnifiedMemory::new(&Profile::named("a100-40g").unwrap(), &options);
    mem.map_managed(AddrRange::new(UmBlock(0).start(), Bytes(BLOCKS * UmBlock::SIZE.0))).unwrap();
    assert_eq!(mem.make_group(), STAYS);
    mem.set_migratable(STAYS, false).unwrap();
    mem
}

proptest! {
    #[test]
    fn equals_the_slow_model(ops in prop::collection::vec(op(), 1..60)) {
        let (mut mem, mut slow, mut now) = (node(), Slow::default(), Nanos::ZERO);
        let mut followed = BTreeMap::new();
        for (step, op) in ops.iter().enumerate() {
            let fast_ok = apply(&mut mem, op, &mut now);
            prop_assert_eq!(fast_ok, slow.apply(op), "step {}: {:?}", step, op);
            let mut page_ops = Vec::new();
            mem.take_page_ops(&mut page_ops);
            page_ops.iter().for_each(|op| follow(&mut followed, op));

            prop_assert_eq!(&followed, &slow.pages, "step {}: {:?}", step, op);
            for block in 0..BLOCKS {
                for at in [Place::Host, Place::Device(DeviceId(0)), Place::Device(DeviceId(1))] {
                    let fast: Vec<u32> = mem.pages_at(at, UmBlock(block)).iter().collect();
                    prop_assert_eq!(fast, slow.on(block, at), "step {}: {:?}: block {} at {:?}", step, op, block, at);
                }
                let slot = mem.space.slot(UmBlock(block)).unwrap();
                let mapped: Vec<_> = mem.blocks[slot].mapped.iter().map(|page| (block, page)).collect();
                let slow_mapped: Vec<_> = slow.mapped.range((block, 0)..(block + 1, 0)).copied().collect();
                prop_assert_eq!(mapped, slow_mapped, "step {}: {:?}: mapped of {}", step, op, block);
                prop_assert_eq!(mem.blocks[slot].duplicated, slow.duplicated.contains(&block));
                for d in 0..DEVICES {
                    let fast = mem.devices[usize::from(d)].on[slot].read_only.iter().map(|page| (d, block, page));
                    let slow = slow.read_only.range((d, block, 0)..(d, block + 1, 0)).copied();
                    prop_assert!(fast.eq(slow), "step {}: {:?}: read-only pages of {} on {}", step, op, block, d);
                }
            }
            for d in 0..DEVICES {
                let device = &mem.devices[usize::from(d)];
                prop_assert!(device.chunks.held() <= device.chunk_capacity());
                let order: Vec<u64> = [crate::chunks::List::Unused, crate::chunks::List::Discarded, crate::chunks::List::Used]
                    .into_iter()
                    .flat_map(|l| device.chunks.in_order(l))
                    .map(|slot| mem.blocks[slot].id.0)
                    .collect();
                let slow_order: Vec<u64> = slow.lists[usize::from(d)].iter().flatten().copied().collect();
                prop_assert_eq!(order, slow_order, "step {}: {:?}: eviction order of {}", step, op, d);
                let managed: u64 = (0..BLOCKS).map(|b| slow.on(b, Place::Device(DeviceId(d))).len() as u64 * 4096).sum();
                prop_assert_eq!(device.managed.0, managed);
            }
            let moved: u64 = mem.devices.iter().map(|d| d.totals.bytes_in.total().0 + d.totals.bytes_out.total().0).sum();
            prop_assert_eq!(moved, slow.copied, "step {}: {:?}: bytes copied", step, op);
        }
        // Everything that was copied was also reported, once.
        let mut notices = Vec::new();
        mem.take_notices(Nanos(u64::MAX), &mut notices);
        let reported: u64 = notices.iter().map(|n| match n {
            crate::Notice::Migration { range, .. } => range.len.0,
            _ => 0,
        }).sum();
        prop_assert_eq!(reported, slow.copied);
    }

    #[test]
    fn same_input_same_output(ops in prop::collection::vec(op(), 1..40)) {
        let once = || {
            let (mut mem, mut now) = (node(), Nanos::ZERO);
            let answers: Vec<_> = ops.iter().map(|op| (apply(&mut mem, op, &mut now), now)).collect();
            let (mut notices, mut page_ops) = (Vec::new(), Vec::new());
            mem.take_notices(Nanos(u64::MAX), &mut notices);
            mem.take_page_ops(&mut page_ops);
            (answers, notices, page_ops, mem.totals(DeviceId(0)))
        };
        prop_assert_eq!(once(), once());
    }
}
