//! The device's address space: who owns which address, and where its bytes are in this process.
//!
//! One flat space holds device memory, managed memory and pinned host memory (unified addressing). Addresses are
//! the same in every run: fixed regions, first fit. The upper halves of our addresses (0x7131…, 0x7331…, 0x7531…) are
//! no likely pair of sizes, so that two neighbouring 32-bit arguments do not look like a pointer.
//!
//! | region | address | bytes are at |
//! | --- | --- | --- |
//! | managed | 0x7131_0000_0000 | the address; in data mode those on a device at + [`SHADOW`] |
//! | device  | 0x7331_0000_0000 | + [`SHADOW`]; the address itself faults when the program reads it, as in life |
//! | pinned  | 0x7531_0000_0000 | the address |
//! | reserved by the program | 0x6131_0000_0000 | as of device memory, where something is mapped |
//!
//! Managed and device allocations of 2 MiB and more start at a 2 MiB boundary; smaller ones share 2 MiB
//! slabs. Whether the real driver shares blocks between small managed allocations is not documented
//! (facts 4.6): assumption. Managed memory has its addresses out of [`chunks`].
//!
//! Memory that other processes are to have lies in a file of memory ([`shared`]), which each of them maps at a place of its own.
//!
//! Not here: how much memory there is, and what is where (`deepum-model`).

mod chunks;
mod map;
mod ranges;
mod reserved;
pub mod shared;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, UmBlock};

use crate::error::{CuError, CuResult};
use chunks::Chunks;
use map::Mapping;
use ranges::FreeRanges;

/// Distance from a device address to its bytes in this process.
pub const SHADOW: u64 = 0x0500_0000_0000;
const MANAGED: u64 = 0x7131_0000_0000;
const DEVICE: u64 = 0x7331_0000_0000;
const PINNED: u64 = 0x7531_0000_0000;
const REGION: u64 = 1 << 40;
const RESERVED: u64 = 0x6131_0000_0000;
/// Programs reserve more than there is memory, each time.
const RESERVED_REGION: u64 = 1 << 42;
const GRANULE: u64 = UmBlock::SIZE.0;
const PAGE: u64 = 4096;
/// `cudaMalloc` promises 256 bytes (CUDA programming guide, "Device Memory Accesses"); drivers give 512.
const SMALL_ALIGN: u64 = 512;

/// What an allocation is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Memory of one device.
    Device,
    /// Memory of one device that a stream-ordered pool hands out ([`crate::pool`]).
    Pool,
    /// Memory of one device that the program mapped there itself ([`crate::vmm`]).
    Mapped,
    /// Managed memory.
    Managed,
    /// Host memory made by us.
    Pinned,
    /// Host memory of the program, registered.
    Registered,
}

impl Kind {
    /// Whether it is memory of one device, whoever hands it out.
    #[must_use]
    pub fn is_of_device(self) -> bool {
        matches!(self, Self::Device | Self::Pool | Self::Mapped)
    }
}

/// One allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// As asked for.
    pub range: AddrRange,
    /// How much of it, from its start, the program knows of ([`crate::memory::known_next`]).
    pub known: Bytes,
    /// What it is.
    pub kind: Kind,
    /// The device that was current when it was made.
    pub device: DeviceId,
    /// Unique over the life of the process (`CU_POINTER_ATTRIBUTE_BUFFER_ID`).
    pub id: u64,
    /// Flags of the call that made it.
    pub flags: u32,
    /// Start of the 2 MiB slab it shares, if it does.
    slab: Option<u64>,
}

/// Address space newly taken or given back: what the memory model must hear of. Slabs are heard of once.
pub type Extent = Option<AddrRange>;

#[derive(Debug)]
struct Backing {
    _at: Mapping,
    shadow: Option<Mapping>,
    /// What the shadow is a mapping of, where other processes may have it, too.
    shared: Option<Arc<OwnedFd>>,
}

#[derive(Debug)]
struct Slab {
    free: FreeRanges,
    backing: Backing,
}

#[derive(Debug)]
struct Region {
    free: FreeRanges,
    /// Where addresses come out of chunks.
    chunks: Option<Chunks>,
    slabs: BTreeMap<(u8, u64), Slab>,
    whole: BTreeMap<u64, Backing>,
}

impl Region {
    fn new(base: u64, skip: u64, len: u64) -> Self {
        let free = FreeRanges::new(base + skip, len - skip);
        Self { free, chunks: None, slabs: BTreeMap::new(), whole: BTreeMap::new() }
    }

    /// Addresses for `len` bytes at a multiple of `align`.
    fn take(&mut self, len: u64, align: u64) -> CuResult<u64> {
        let taken = match &mut self.chunks {
            Some(chunks) => chunks.take(&mut self.free, len),
            None => self.free.take(len, align),
        };
        taken.ok_or(CuError::OutOfMemory)
    }

    /// What [`Self::take`] gave goes back.
    fn give(&mut self, start: u64, len: u64) {
        match &mut self.chunks {
            Some(chunks) => chunks.give(&mut self.free, start, len),
            None => self.free.give(start, len),
        }
    }
}

impl Allocation {
    /// As far as the program knows of it.
    #[must_use]
    pub fn known(&self) -> AddrRange {
        AddrRange::new(self.range.start, self.known)
    }
}

/// Every allocation of the process.
#[derive(Debug)]
pub struct Space {
    data: bool,
    next_id: u64,
    managed: Region,
    device: Region,
    pinned: Region,
    reserved: Region,
    live: BTreeMap<u64, Allocation>,
}

impl Space {
    /// An empty space; `data` keeps the device's copies of managed pages apart from the host's. `skip` bytes at the
    /// start of each region stay unused, so that several devices can live in one test process.
    #[must_use]
    pub fn new(data: bool, skip: Bytes) -> Self {
        let skip = skip.round_up_to_blocks().0.min(REGION);
        Self {
            data,
            next_id: 1,
            managed: Region { chunks: Some(Chunks::default()), ..Region::new(MANAGED, skip, REGION) },
            device: Region::new(DEVICE, skip, REGION),
            pinned: Region::new(PINNED, skip, REGION),
            reserved: Region::new(RESERVED, skip, RESERVED_REGION),
            live: BTreeMap::new(),
        }
    }

    fn region(&mut self, kind: Kind) -> &mut Region {
        match kind {
            Kind::Managed => &mut self.managed,
            Kind::Device | Kind::Pool => &mut self.device,
            Kind::Mapped => &mut self.reserved,
            Kind::Pinned | Kind::Registered => &mut self.pinned,
        }
    }

    fn back(kind: Kind, data: bool, start: u64, len: u64) -> CuResult<Backing> {
        let map = |at, access| Mapping::fixed(at, len, access).map_err(|_| CuError::OutOfMemory);
        Ok(match kind {
            Kind::Device | Kind::Pool | Kind::Mapped => {
                Backing { _at: map(start, false)?, shadow: Some(map(start + SHADOW, true)?), shared: None }
            }
            Kind::Managed if data => {
                Backing { _at: map(start, true)?, shadow: Some(map(start + SHADOW, true)?), shared: None }
            }
            _ => Backing { _at: map(start, true)?, shadow: None, shared: None },
        })
    }

    /// Makes an allocation of `len` bytes; also says which new address space that took.
    ///
    /// # Errors
    /// `InvalidValue` for no bytes, `OutOfMemory` when the space or the host gives no more.
    pub fn allocate(&mut self, kind: Kind, device: DeviceId, len: Bytes, flags: u32) -> CuResult<(Allocation, Extent)> {
        if len.0 == 0 || matches!(kind, Kind::Registered | Kind::Mapped) {
            return Err(CuError::InvalidValue);
        }
        let data = self.data;
        let shares = kind != Kind::Pinned && len.0 < GRANULE;
        let region = self.region(kind);
        let (start, slab, extent) = if shares {
            let found = region.slabs.iter_mut().filter(|((owner, _), _)| *owner == device.0);
            let in_slab = found
                .map(|((_, slab), s)| (*slab, s.free.take(len.0, SMALL_ALIGN)))
                .find_map(|(slab, at)| at.map(|at| (slab, at)));
            match in_slab {
                Some((slab, at)) => (at, Some(slab), None),
                None => {
                    let slab = region.take(GRANULE, GRANULE)?;
                    let backing = Self::back(kind, data, slab, GRANULE).inspect_err(|_| region.give(slab, GRANULE))?;
                    let mut free = FreeRanges::new(slab, GRANULE);
                    let at = free.take(len.0, SMALL_ALIGN).ok_or(CuError::Unknown)?;
                    region.slabs.insert((device.0, slab), Slab { free, backing });
                    (at, Some(slab), Some(AddrRange::new(DevAddr(slab), Bytes(GRANULE))))
                }
            }
        } else {
            let (len, align) = Self::whole(kind, len)?;
            let start = region.take(len, align)?;
            let backing = Self::back(kind, data, start, len).inspect_err(|_| region.give(start, len))?;
            region.whole.insert(start, backing);
            (start, None, Some(AddrRange::new(DevAddr(start), Bytes(len))))
        };
        let range = AddrRange::new(DevAddr(start), len);
        let made = Allocation { range, known: len, kind, device, id: self.name(), flags, slab };
        self.live.insert(start, made);
        Ok((made, extent))
    }

    /// A number that no allocation had.
    pub fn name(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Length and alignment of address space for an allocation that shares nothing.
    fn whole(kind: Kind, len: Bytes) -> CuResult<(u64, u64)> {
        let unit = if kind == Kind::Pinned { PAGE } else { GRANULE };
        Ok((len.0.checked_next_multiple_of(unit).ok_or(CuError::OutOfMemory)?, unit))
    }

    /// Records host memory of the program as registered.
    ///
    /// # Errors
    /// `HostMemoryAlreadyRegistered` if any byte belongs to another allocation.
    pub fn register(&mut self, device: DeviceId, range: AddrRange, flags: u32) -> CuResult<Allocation> {
        if range.is_empty() || range.start.0 == 0 {
            return Err(CuError::InvalidValue);
        }
        let overlaps = |a: &Allocation| a.range.end() > range.start && a.range.start < range.end();
        if self.live.range(..range.end().0).next_back().is_some_and(|(_, a)| overlaps(a)) {
            return Err(CuError::HostMemoryAlreadyRegistered);
        }
        let made =
            Allocation { range, known: range.len, kind: Kind::Registered, device, id: self.name(), flags, slab: None };
        self.live.insert(range.start.0, made);
        Ok(made)
    }

    /// Ends the allocation that starts at `start`; also says which address space that gave back.
    ///
    /// # Errors
    /// `InvalidValue` if none of `kinds` starts there.
    pub fn release(&mut self, start: DevAddr, kinds: &[Kind]) -> CuResult<(Allocation, Extent)> {
        let found = *self.live.get(&start.0).filter(|a| kinds.contains(&a.kind)).ok_or(CuError::InvalidValue)?;
        self.live.remove(&start.0);
        if found.kind == Kind::Registered {
            return Ok((found, None));
        }
        let region = self.region(found.kind);
        let Some(slab) = found.slab else {
            let (len, _) = Self::whole(found.kind, found.range.len)?;
            region.whole.remove(&start.0);
            region.give(start.0, len);
            return Ok((found, Some(AddrRange::new(start, Bytes(len)))));
        };
        let key = (found.device.0, slab);
        if let Some(shared) = region.slabs.get_mut(&key) {
            shared.free.give(start.0, found.range.len.0);
            if shared.free.is_empty() {
                region.slabs.remove(&key);
                region.give(slab, GRANULE);
                return Ok((found, Some(AddrRange::new(DevAddr(slab), Bytes(GRANULE)))));
            }
        }
        Ok((found, None))
    }

    /// The program knows of `known` bytes of the allocation that starts at `start`.
    pub fn know(&mut self, start: DevAddr, known: Bytes) {
        if let Some(found) = self.live.get_mut(&start.0) {
            found.known = known.min(found.range.len);
        }
    }

    /// Every allocation made on `device`.
    #[must_use]
    pub fn of(&self, device: DeviceId) -> Vec<Allocation> {
        self.live.values().filter(|a| a.device == device).copied().collect()
    }

    /// The allocation that `addr` lies in.
    #[must_use]
    pub fn find(&self, addr: DevAddr) -> Option<&Allocation> {
        let (_, found) = self.live.range(..=addr.0).next_back()?;
        found.range.contains(addr).then_some(found)
    }

    /// The allocation that holds all of `range`.
    #[must_use]
    pub fn holding(&self, range: AddrRange) -> Option<&Allocation> {
        self.find(range.start).filter(|a| range.end() <= a.range.end())
    }

    /// Every live allocation, lowest address first.
    pub fn iter(&self) -> impl Iterator<Item = &Allocation> {
        self.live.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: DeviceId = DeviceId(0);

    /// The regions are process-wide, so the tests that map memory run as one.
    #[test]
    fn an_address_space_from_first_allocation_to_last_free() {
        let mut space = Space::new(false, Bytes::ZERO);
        let (big, extent) = space.allocate(Kind::Managed, GPU, Bytes(3 << 20), 0).unwrap();
        assert_eq!(big.range.start, DevAddr(MANAGED));
        assert_eq!(extent.unwrap().len, Bytes::mib(4), "address space comes in whole blocks");

        let (a, extent) = space.allocate(Kind::Managed, GPU, Bytes(100), 0).unwrap();
        assert_eq!(extent.unwrap().len, Bytes::mib(2), "the first small one opens a slab");
        let (b, extent) = space.allocate(Kind::Managed, GPU, Bytes(100), 0).unwrap();
        assert_eq!(extent, None, "the second shares it");
        assert_eq!(b.range.start.0 - a.range.start.0, SMALL_ALIGN);

        assert_eq!(space.find(big.range.start.offset(Bytes(5))).unwrap().id, big.id);
        assert_eq!(space.find(big.range.end()), None, "the tail of the last block is nobody's");
        assert!(space.holding(AddrRange::new(a.range.start, Bytes(101))).is_none());

        assert_eq!(space.release(a.range.start, &[Kind::Managed]).unwrap().1, None);
        assert_eq!(space.release(a.range.start, &[Kind::Managed]), Err(CuError::InvalidValue), "freed twice");
        assert_eq!(
            space.release(b.range.start, &[Kind::Managed]).unwrap().1,
            Some(UmBlock::containing(b.range.start).range())
        );
        let again = space.allocate(Kind::Managed, GPU, Bytes(100), 0).unwrap().0;
        assert_eq!(again.range, a.range, "first fit gives the same address again");

        let other = space.allocate(Kind::Device, DeviceId(1), Bytes(8), 0).unwrap().0;
        let mine = space.allocate(Kind::Device, GPU, Bytes(8), 0).unwrap().0;
        assert_ne!(
            UmBlock::containing(other.range.start),
            UmBlock::containing(mine.range.start),
            "slabs have one device"
        );

        let word = 7u64;
        let host = AddrRange::new(DevAddr(std::ptr::from_ref(&word) as u64), Bytes(8));
        space.register(GPU, host, 0).unwrap();
        assert_eq!(space.register(GPU, host, 0), Err(CuError::HostMemoryAlreadyRegistered));
        assert_eq!(space.release(host.start, &[Kind::Managed]), Err(CuError::InvalidValue));
        space.release(host.start, &[Kind::Registered]).unwrap();
        assert_eq!(space.allocate(Kind::Managed, GPU, Bytes(1 << 62), 0).map(drop), Err(CuError::OutOfMemory));
    }
}
