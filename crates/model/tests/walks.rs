//! What must hold of any kernel's walk, whatever it touches and wherever its pages are.

use deepum_core::units::{AddrRange, Bytes, DeviceId, Nanos, Place, UmBlock};
use deepum_model::{Accessor, KernelRun, Notice, Options, Profile, Step, Touch, UnifiedMemory};
use proptest::prelude::*;
use std::collections::BTreeSet;

const GPU: DeviceId = DeviceId(0);
const BLOCKS: u64 = 8;
const PAGES: u64 = BLOCKS * 512;
const FIRST: u64 = 4000;

fn pages(first: u64, count: u64) -> AddrRange {
    AddrRange::new(UmBlock(FIRST).start().offset(Bytes(first * 4096)), Bytes(count * 4096))
}

fn span() -> impl Strategy<Value = (u64, u64)> {
    (0..PAGES, prop_oneof![1u64..40, 1u64..2000]).prop_map(|(first, count)| (first, count.min(PAGES - first)))
}

fn touches() -> impl Strategy<Value = Vec<Touch>> {
    let touch = (span(), any::<bool>(), 0u32..3).prop_map(|((first, count), write, phase)| Touch {
        range: pages(first, count),
        write,
        phase,
    });
    prop::collection::vec(touch, 0..7)
}

/// Page numbers, from the first managed one, that a notice speaks of.
fn faulted(notice: &Notice) -> Option<Vec<u64>> {
    match notice {
        Notice::GpuFault { block, pages, .. } => {
            Some(pages.iter().map(|p| (block.0 - FIRST) * 512 + u64::from(p)).collect())
        }
        _ => None,
    }
}

fn node(room: u64) -> UnifiedMemory {
    let options = Options { memory: Some(Bytes(room * UmBlock::SIZE.0)), ..Options::default() };
    let mut mem = UnifiedMemory::new(&Profile::named("rtx3060-12g").unwrap(), &options);
    mem.map_managed(pages(0, PAGES)).unwrap();
    mem
}

proptest! {
    #[test]
    fn with_room_for_all_each_missing_page_faults_once_or_comes_along(
        touches in touches(), here in prop::collection::vec(span(), 0..5), compute in 0u64..1_000_000, slice in 1u64..100_000,
    ) {
        let mut mem = node(BLOCKS);
        let mut start = Nanos::ZERO;
        let mut resident = BTreeSet::new();
        for (first, count) in here {
            start = mem.migrate(pages(first, count), Place::Device(GPU), start).unwrap().done;
            resident.extend(first..first + count);
        }
        mem.take_notices(Nanos(u64::MAX), &mut Vec::new());
        let wanted: BTreeSet<u64> = touches
            .iter()
            .flat_map(|t| {
                let first = (t.range.start.0 - UmBlock(FIRST).start().0) / 4096;
                first..first + t.range.len.0 / 4096
            })
            .collect();

        let mut kernel = KernelRun::new(GPU, Accessor::Kernel, &touches, Nanos(compute));
        let (mut now, mut stalled, mut seen) = (start, Nanos::ZERO, BTreeSet::new());
        let end = loop {
            // Horizons must not matter when nothing happens at them.
            match kernel.step(&mut mem, now, now + Nanos(slice)) {
                Step::Paused { at } => {
                    prop_assert_eq!(at, now + Nanos(slice));
                    now = at;
                }
                Step::Done { at } => break at,
                Step::Faulted { at, noticed, resume_at, .. } => {
                    prop_assert!(now <= at && at < noticed && noticed < resume_at);
                    let mut notices = Vec::new();
                    mem.take_notices(noticed, &mut notices);
                    let batch: Vec<u64> = notices.iter().filter_map(faulted).flatten().collect();
                    prop_assert!(!batch.is_empty() && batch.len() <= 128);
                    for page in batch {
                        prop_assert!(wanted.contains(&page) && !resident.contains(&page), "page {page}");
                        prop_assert!(seen.insert(page), "page {page} faults twice");
                    }
                    stalled += resume_at - at;
                    now = resume_at;
                }
                Step::Fatal { .. } => prop_assert!(false, "there is host memory"),
            }
        };
        // Time is computing and waiting, and nothing else. A page takes a nanosecond at least.
        let walked = end - start - stalled;
        prop_assert!(walked >= Nanos(compute) && walked <= Nanos(compute + 3 * PAGES));
        prop_assert_eq!(mem.totals(GPU).compute, walked);
        prop_assert_eq!(mem.totals(GPU).stall_fault_work + mem.totals(GPU).stall_copies, stalled);
        for page in &wanted {
            let block = UmBlock(FIRST + page / 512);
            prop_assert!(mem.pages_at(Place::Device(GPU), block).contains(u32::try_from(page % 512).unwrap()));
        }
    }

    #[test]
    fn with_too_little_room_it_still_ends(touches in touches(), room in 1u64..4) {
        let mut mem = node(room);
        let mut kernel = KernelRun::new(GPU, Accessor::Kernel, &touches, Nanos::micros(5));
        // Each batch passes a page of an operand at least.
        let most: u64 = touches.iter().map(|t| t.range.len.0 / 4096).sum();
        let (mut now, mut batches) = (Nanos::ZERO, 0);
        loop {
            match kernel.step(&mut mem, now, Nanos(u64::MAX)) {
                Step::Faulted { resume_at, .. } => now = resume_at,
                Step::Done { .. } => break,
                other => prop_assert!(false, "{other:?}"),
            }
            batches += 1;
            prop_assert!(batches <= most);
            prop_assert!(mem.totals(GPU).peak_managed <= Bytes(room * UmBlock::SIZE.0));
        }
    }

    #[test]
    fn odd_kernels_do_no_harm(
        start in any::<u64>(), len in 0u64..1 << 30, compute in any::<u64>(), device in 0u8..3, horizon in any::<u64>(),
    ) {
        let mut mem = node(2);
        let touch = Touch { range: AddrRange::new(deepum_core::units::DevAddr(start), Bytes(len)), write: true, phase: u32::MAX };
        let mut kernel = KernelRun::new(DeviceId(device), Accessor::CopyEngine, &[touch], Nanos(compute));
        let _ = kernel.step(&mut mem, Nanos(7), Nanos(horizon));
    }
}
