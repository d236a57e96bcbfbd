//! Addresses that a program reserves, and what it puts behind them ([`crate::vmm`]).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId};

use super::map::Mapping;
use super::ranges::FreeRanges;
use super::{Allocation, Backing, GRANULE, Kind, SHADOW, Space};
use crate::error::{CuError, CuResult};

/// So much and less a driver reserves elsewhere, whatever is wished for (facts 4.6).
const ELSEWHERE: u64 = 20 << 20;

impl Space {
    /// Address space with nothing behind it, at a multiple of `align`, of whole UM blocks: where it is wished for, in whatever region, if
    /// that is free and such a multiple, and it is more than [`ELSEWHERE`]; else where there is room.
    ///
    /// # Errors
    /// `OutOfMemory` when there is no more.
    pub fn reserve(&mut self, len: Bytes, align: u64, wish: Option<DevAddr>) -> CuResult<AddrRange> {
        let align = align.max(GRANULE);
        let wish = wish.filter(|at| len.0 > ELSEWHERE && at.0.is_multiple_of(align));
        let there = wish.filter(|at| self.free_around(*at).is_some_and(|free| free.take_at(at.0, len.0).is_some()));
        let start = match there {
            Some(at) => at.0,
            None => self.reserved.free.take(len.0, align).ok_or(CuError::OutOfMemory)?,
        };
        Ok(AddrRange::new(DevAddr(start), len))
    }

    fn free_around(&mut self, at: DevAddr) -> Option<&mut FreeRanges> {
        let regions = [&mut self.managed, &mut self.device, &mut self.reserved];
        regions.into_iter().map(|region| &mut region.free).find(|free| free.holds(at.0))
    }

    /// What [`Self::reserve`] gave goes back.
    pub fn unreserve(&mut self, range: AddrRange) {
        if let Some(free) = self.free_around(range.start) {
            free.give(range.start.0, range.len.0);
        }
    }

    /// Puts bytes behind reserved addresses: those of `memory`, or new ones. Nobody may touch them yet.
    ///
    /// # Errors
    /// `OutOfMemory` when the host gives no more.
    pub fn back_reserved(&mut self, range: AddrRange, memory: Option<Arc<OwnedFd>>) -> CuResult {
        let backing = match memory {
            None => Self::back(Kind::Mapped, self.data, range.start.0, range.len.0)?,
            Some(memory) => {
                let full = |_| CuError::OutOfMemory;
                let at = Mapping::fixed(range.start.0, range.len.0, false).map_err(full)?;
                let shadow = Mapping::shared(range.start.0 + SHADOW, range.len.0, memory.as_fd()).map_err(full)?;
                Backing { _at: at, shadow: Some(shadow), shared: Some(memory) }
            }
        };
        self.reserved.whole.insert(range.start.0, backing);
        Ok(())
    }

    /// What is behind reserved addresses may be touched from now on. With what lies beside it, it is one allocation.
    pub fn open_reserved(&mut self, device: DeviceId, range: AddrRange) {
        if self.holding(range).is_some() {
            return;
        }
        let joins = |a: &&Allocation| a.kind == Kind::Mapped && a.device == device;
        let before = self.live.range(..range.start.0).next_back().map(|(_, a)| a);
        let before = before.filter(joins).filter(|a| a.range.end() == range.start).map(|a| a.range);
        let behind = self.live.get(&range.end().0).filter(joins).map(|a| a.range);
        let start = before.map_or(range.start, |before| before.start);
        let end = behind.map_or(range.end(), AddrRange::end);
        for joined in [before, behind].into_iter().flatten() {
            self.live.remove(&joined.start.0);
        }
        self.put_mapped(device, start, end);
    }

    /// Nothing is behind these reserved addresses any more.
    pub fn clear_reserved(&mut self, range: AddrRange) {
        self.reserved.whole.remove(&range.start.0);
        let Some(around) = self.holding(range).copied().filter(|a| a.kind == Kind::Mapped) else { return };
        self.live.remove(&around.range.start.0);
        self.put_mapped(around.device, around.range.start, range.start);
        self.put_mapped(around.device, range.end(), around.range.end());
    }

    fn put_mapped(&mut self, device: DeviceId, start: DevAddr, end: DevAddr) {
        if start < end {
            let range = AddrRange::new(start, Bytes(end.0 - start.0));
            let (id, known) = (self.name(), range.len);
            let made = Allocation { range, known, kind: Kind::Mapped, device, id, flags: 0, slab: None };
            self.live.insert(start.0, made);
        }
    }
}
