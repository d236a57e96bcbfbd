//! The fast model against a slow, obvious one: pages in a map, the eviction order in vectors, no time.

use crate::memory::{ModelError, Options, UnifiedMemory};
use crate::pages::PageMask;
use crate::{Accessor, KernelRun, PageOp, Profile, Step, Touch, prefetch};
use deepum_core::units::{AddrRange, Bytes, DeviceId, Nanos, Place, UmBlock};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const BLOCKS: u64 = 6;
const DEVICES: u8 = 2;
/// Room for this many blocks on each device, less what is taken as device memory proper.
const ROOM: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    Migrate { block: u64, first: u32, len: u32, to: Option<u8> },
    Discard { block: u64, first: u32, len: u32, unmap: bool },
    Kernel { device: u8, block: u64, page: u32 },
    Proper { device: u8, take: bool },
}

fn op() -> impl Strategy<Value = Op> {
    let span = || prop_oneof![Just((0u32, 512u32)), (0u32..512, 1u32..512).prop_map(|(f, l)| (f, l.min(512 - f)))];
    let device = 0..DEVICES;
    prop_oneof![
        6 => (0..BLOCKS, span(), prop::option::weighted(0.8, device.clone()))
            .prop_map(|(block, (first, len), to)| Op::Migrate { block, first, len, to }),
        3 => (0..BLOCKS, span(), any::<bool>())
            .prop_map(|(block, (first, len), unmap)| Op::Discard { block, first, len, unmap }),
        4 => (device.clone(), 0..BLOCKS, 0u32..512)
            .prop_map(|(device, block, page)| Op::Kernel { device, block, page }),
        1 => (device, any::<bool>()).prop_map(|(device, take)| Op::Proper { device, take }),
    ]
}

#[derive(Default)]
struct Slow {
    /// Where every populated page is.
    pages: BTreeMap<(u64, u32), Place>,
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
        pages.filter(|(_, p)| **p == at).map(|(&(_, page), _)| page).collect()
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
        for page in self.on(victim, Place::Device(DeviceId(d))) {
            if self.discarded.contains(&(victim, page)) {
                self.pages.remove(&(victim, page));
            } else {
                self.pages.insert((victim, page), Place::Host);
                self.copied += 4096;
            }
        }
        self.put(d, victim, None);
        true
    }

    /// Puts a page where it belongs from now on. A chunk that it was the last to leave is unused.
    fn place(&mut self, block: u64, page: u32, to: Place) {
        let stale = self.discarded.remove(&(block, page));
        let Some(from) = self.pages.insert((block, page), to).filter(|p| *p != to) else { return };
        self.copied += if stale { 0 } else { 4096 };
        if let Place::Device(DeviceId(d)) = from
            && !self.pages.range((block, 0)..(block + 1, 0)).any(|(_, at)| *at == from)
        {
            self.put(d, block, Some(0));
        }
    }

    fn bring(&mut self, d: u8, block: u64, wanted: &[u32]) -> bool {
        let holds = self.lists[usize::from(d)].iter().flatten().any(|&b| b == block);
        if !holds && self.held(d) >= self.room(d) && !self.evict(d) {
            return false;
        }
        self.put(d, block, Some(2));
        let to = Place::Device(DeviceId(d));
        wanted.iter().for_each(|&page| self.place(block, page, to));
        true
    }

    /// All 512 pages discarded: chunks go to the unused list if none is left anywhere, else to the discarded list.
    fn discard(&mut self, block: u64, pages: std::ops::Range<u32>, unmap: bool) {
        let mut changes = false;
        for page in pages {
            changes |= self.discarded.insert((block, page));
            changes |= unmap && self.pages.remove(&(block, page)).is_some();
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
            Op::Migrate { block, first, len, to: None } => {
                (first..first + len).for_each(|page| self.place(block, page, Place::Host));
            }
            Op::Migrate { block, first, len, to: Some(d) } => {
                let wanted: Vec<u32> = (first..first + len).collect();
                return self.bring(d, block, &wanted);
            }
            Op::Discard { block, first, len, unmap } => self.discard(block, first..first + len, unmap),
            Op::Kernel { device, block, page } => {
                let to = Place::Device(DeviceId(device));
                if self.pages.get(&(block, page)).is_some_and(|p| *p == to) {
                    return true;
                }
                let mut resident = PageMask::EMPTY;
                self.on(block, to).into_iter().for_each(|p| resident.insert(p));
                let faulted = PageMask::span(page, page + 1);
                let wanted = faulted | prefetch::along_with(faulted, resident, 51);
                return self.bring(device, block, &wanted.iter().collect::<Vec<_>>());
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
        Op::Kernel { device, block, page } => {
            let touch = Touch { range: pages(block, page, 1), write: true, phase: 0 };
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
        Err(ModelError::OutOfMemory { .. }) => false,
        Err(e) => panic!("{e}"),
    }
}

/// The places of pages as told by page operations alone.
fn follow(places: &mut BTreeMap<(u64, u32), Place>, op: &PageOp) {
    let mut set = |block: UmBlock, pages: &PageMask, from: Option<Place>, to: Option<Place>| {
        for page in pages.iter() {
            let before = match to {
                Some(to) => places.insert((block.0, page), to),
                None => places.remove(&(block.0, page)),
            };
            assert_eq!(before, from, "{op:?} page {page}");
        }
    };
    match op {
        PageOp::Populated { block, pages, place } => set(*block, pages, None, Some(*place)),
        PageOp::Moved { block, pages, from, to } | PageOp::MovedDiscarded { block, pages, from, to } => {
            set(*block, pages, Some(*from), Some(*to));
        }
        PageOp::Discarded { block, pages, place } => set(*block, pages, Some(*place), Some(*place)),
        PageOp::Dropped { block, pages, place } => set(*block, pages, Some(*place), None),
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
