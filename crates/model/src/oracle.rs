//! The fast model against a slow, obvious one ([`slow`]): whatever is asked of both, pages are in the same places, leave in the same order, and cost the same copies.

mod slow;

use crate::memory::{ModelError, Options, UnifiedMemory};
use crate::pages::PageMask;
use crate::{Accessor, Advice, Group, KernelRun, PageOp, Profile, Step, Touch};
use deepum_core::units::{AddrRange, Bytes, DeviceId, Nanos, Place, UmBlock};
use proptest::prelude::*;
use slow::Slow;
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
                    let slow_afar = slow.afar.range((d, block, 0)..(d, block + 1, 0)).copied();
                    let afar = mem.devices[usize::from(d)].on[slot].afar.iter().map(|page| (d, block, page));
                    prop_assert!(afar.eq(slow_afar), "step {}: {:?}: pages of {} seen from {}", step, op, block, d);
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
