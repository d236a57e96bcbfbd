//! Which blocks of PyTorch's caching allocator hold a tensor.
//!
//! The allocator reports every block it hands out (+size) and takes back (-size) to its profiler, running or not, through
//! an ordinary exported function. So we learn it without a change to PyTorch, without Python, and without its lock (facts 20.4).
//!
//! From the first report about an allocation on, its UM blocks are *open*: those in which no PT block holds a tensor may lose
//! their contents ([`deepum_protocol::handout`]). So a report that hands a block out returns only when no discard of its memory is in
//! flight, which takes at most one call of the driver; and none begins until it is taken back. The record that goes with
//! it tells the engine what to think of; a record that is dropped makes nothing unsafe.
//!
//! Blocks of stream-ordered pools are PT blocks, too, and known from the calls that make and end them ([`crate::pools`]).
//! What is taken back and captured graphs use is told to nobody as taken back: each launch of such a graph uses it, whatever it holds for PyTorch.
//!
//! Invariants: a PT block holds its UM blocks exactly once while it is active, whatever the reports say: the table of
//! active ones decides. Words and records change under one lock, so both tell the same order; launches never take it.

use crate::abi::{Ptr, TorchDevice};
use crate::{launch, link, page, record, registry};
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, UmBlock};
use deepum_protocol::handout::HandOuts;
use deepum_protocol::ring::{Record, Ring};
use deepum_protocol::shared::{Mode, ShimCounter};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `c10::DeviceType::CUDA`.
const CUDA: i8 = 1;

/// PT blocks that hold a tensor.
pub type Active = BTreeMap<DevAddr, (Bytes, DeviceId)>;

static ACTIVE: Mutex<Active> = Mutex::new(BTreeMap::new());

/// While this is held, no PT block is handed out or taken back.
pub fn active() -> MutexGuard<'static, Active> {
    ACTIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A block was handed out or taken back.
pub struct Report;

impl Report {
    /// Held, released and recorded before PyTorch goes on: no launch on a new block comes earlier.
    pub unsafe fn before(ptr: Ptr, size: i64, _: usize, _: usize, device: TorchDevice) -> Option<()> {
        let addr = DevAddr(ptr as u64);
        let device = DeviceId(u8::try_from(device.index).ok().filter(|_| device_is_cuda(device))?);
        if size != 0 && registry::map().find(addr).is_some() {
            link::ring()?.shared().add(ShimCounter::PtBlockNotices, 1);
            report(AddrRange::new(addr, Bytes(size.unsigned_abs())), device, size > 0);
        }
        None
    }
    /// Nothing more.
    pub fn after((): (), (): ()) {}
}

/// A block of a pool of ours holds what a tensor holds, before the program has it.
pub fn came(block: AddrRange, device: DeviceId) {
    report(block, device, true);
}

/// The program gave a block of a pool of ours back; all its users were issued.
pub fn gone(block: AddrRange, device: DeviceId) {
    report(block, device, false);
}

fn report(range: AddrRange, device: DeviceId, holds: bool) {
    let mut active = active();
    if let Some(outs) = page::hand_outs() {
        if holds {
            hand_out(&mut active, &outs, range, device);
        } else {
            take_back(&mut active, &outs, range.start);
            if is_pinned(&outs, range) {
                return;
            }
        }
    }
    let Some(ring) = link::ring() else { return };
    if ring.shared().mode() != Mode::Off {
        let issued = ring.shared().issued(device);
        ring.push(device, &Record::PtBlock { range, active: holds, issued });
    }
    record::pt_block(device, range, holds);
}

fn device_is_cuda(device: TorchDevice) -> bool {
    device.kind == CUDA
}

/// The block holds a tensor from now on.
fn hand_out(active: &mut Active, outs: &HandOuts<'_>, range: AddrRange, device: DeviceId) {
    if !outs.is_open(UmBlock::containing(range.start))
        && let Some(allocation) = registry::first_handed_out(range.start)
    {
        for block in allocation.blocks() {
            outs.open(block);
        }
    }
    // Held before another of the same address is released: reports that do not fit together must not open a gap.
    for block in range.blocks() {
        outs.hold(block);
        if launch::capturing() {
            outs.pin(block);
        }
    }
    if let Some((len, _)) = active.insert(range.start, (range.len, device)) {
        release(outs, AddrRange::new(range.start, len));
    }
}

/// The block holds nothing any more; all its users were issued.
fn take_back(active: &mut Active, outs: &HandOuts<'_>, start: DevAddr) {
    if let Some((len, _)) = active.remove(&start) {
        release(outs, AddrRange::new(start, len));
    }
}

fn release(outs: &HandOuts<'_>, range: AddrRange) {
    let stamp = outs.stamp();
    for block in range.blocks() {
        outs.release(block, stamp);
    }
}

/// A graph uses what is at this address, whenever it will be launched. Which PT block that is, if one holds a tensor there.
pub fn pin(at: DevAddr) -> Option<AddrRange> {
    let active = active();
    let around = active.range(..=at).next_back().map(|(&start, &(len, _))| AddrRange::new(start, len));
    let around = around.filter(|range| range.contains(at));
    if let Some(outs) = page::hand_outs() {
        match around {
            Some(range) => range.blocks().for_each(|block| outs.pin(block)),
            None => outs.pin(UmBlock::containing(at)),
        }
    }
    around
}

/// As [`pin`], for each UM block of a range.
pub fn pin_all(range: AddrRange) {
    for block in range.blocks() {
        pin(block.start().max(range.start));
    }
}

/// Whether graphs use all of the block: whatever PyTorch says of it, its contents are needed.
fn is_pinned(outs: &HandOuts<'_>, range: AddrRange) -> bool {
    range.blocks().all(|block| outs.is_pinned(block))
}

/// Records all of them: what an engine that has just come is to bound pointers by, and which contents it is not to give up. All that is
/// not among them in memory that PyTorch hands out holds nothing.
pub fn tell_again(active: &Active, ring: Ring<'_>) {
    for (&start, &(len, device)) in active {
        let (range, issued) = (AddrRange::new(start, len), ring.shared().issued(device));
        ring.push(device, &Record::PtBlock { range, active: true, issued });
    }
}

/// The allocation goes back to the driver, and its PT blocks with it. Waits for a discard in flight.
pub fn forget(range: AddrRange) {
    let mut active = active();
    let inside: Vec<DevAddr> = active.range(range.start..range.end()).map(|(&start, _)| start).collect();
    for start in inside {
        active.remove(&start);
    }
    page::close(range);
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepum_protocol::AtomicU64;
    use deepum_protocol::ring::HEADER_WORDS;

    #[test]
    fn an_engine_that_has_just_come_is_told_every_pt_block_that_holds_a_tensor() {
        let words: Vec<AtomicU64> = (0..HEADER_WORDS + 64).map(|_| AtomicU64::new(0)).collect();
        let ring = Ring::format(&words).unwrap();
        let blocks = [(0x7000_0000_0000, 512, 0), (0x7000_0000_0200, 4 << 20, 0), (0x7100_0000_0000, 1 << 30, 1)];
        let active = blocks.map(|(start, len, gpu)| (DevAddr(start), (Bytes(len), DeviceId(gpu))));
        tell_again(&active.into_iter().collect(), ring);
        let mut reader = ring.consumer().unwrap();
        for (start, len, gpu) in blocks {
            let range = AddrRange::new(DevAddr(start), Bytes(len));
            let issued = ring.shared().issued(DeviceId(gpu));
            assert_eq!(reader.pop().unwrap(), Some((DeviceId(gpu), Record::PtBlock { range, active: true, issued })));
        }
        assert_eq!(reader.pop().unwrap(), None);
    }
}
