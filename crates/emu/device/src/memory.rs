//! Memory calls: making and ending allocations, and queueing copies, fills, prefetches.

use std::cell::Cell;

use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, Place};

use crate::bytes;
use crate::context::ContextId;
use crate::error::{CuError, CuResult};
use crate::machine::Call;
use crate::run::Until;
use crate::space::{Allocation, Kind};
use crate::stream::{Mark, StreamId};
use crate::watch;
use crate::work::{Copy, Direction, Fill, Word, Work};

/// Whether a call returns before its work is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Return {
    /// When it is queued, as far as CUDA allows that for these operands.
    Early,
    /// When it is done, as far as CUDA asks that for these operands.
    Late,
}

thread_local! {
    static KNOWN_NEXT: Cell<Option<Bytes>> = const { Cell::new(None) };
}

/// Of the managed memory that the calling thread asks for next the program knows the first `known` bytes alone. So kernels touch nothing behind
/// them, and that is not counted.
pub fn known_next(known: Bytes) {
    KNOWN_NEXT.set(Some(known));
}

impl Call<'_> {
    /// Makes an allocation of `len` bytes.
    ///
    /// # Errors
    /// `InvalidValue` for no bytes, `OutOfMemory`.
    pub fn allocate(&mut self, kind: Kind, device: DeviceId, len: Bytes, flags: u32) -> CuResult<Allocation> {
        let now = self.state.host;
        let known = if kind == Kind::Managed { KNOWN_NEXT.take() } else { None };
        let (made, extent) = self.state.space.allocate(kind, device, len, flags)?;
        let Some(extent) = extent else { return Ok(made) };
        let memory = &mut self.state.memory;
        let taken = match kind {
            Kind::Device | Kind::Pool | Kind::Mapped => memory.alloc_device(device, extent.len, now),
            Kind::Managed => memory.map_managed(extent).map(|()| now),
            Kind::Pinned | Kind::Registered => memory.alloc_host(extent.len).map(|()| now),
        };
        self.state.settle_bytes(self.machine.config.data);
        match taken {
            Ok(from) => {
                if kind.is_of_device() {
                    self.state.gpus[usize::from(device.0)].device_bytes += extent.len;
                }
                if kind == Kind::Managed {
                    let counted = known.map_or(extent.len, |known| known.round_up_to_blocks().min(extent.len));
                    self.state.space.know(made.range.start, counted);
                    let totals = &mut self.state.totals;
                    totals.managed_bytes += counted.0;
                    totals.peak_managed = totals.peak_managed.max(totals.managed_bytes);
                }
                // Eviction made room: the call returns when there is.
                self.run(Until::Time(from))?;
                Ok(made)
            }
            Err(error) => {
                let _ = self.state.space.release(made.range.start, &[kind]);
                Err(error.into())
            }
        }
    }

    /// Ends an allocation of one of `kinds`. Waits for all work first, as `cudaFree` does.
    ///
    /// # Errors
    /// `InvalidValue` if there is none at `start`.
    pub fn release(&mut self, start: DevAddr, kinds: &[Kind]) -> CuResult {
        let found = self.state.space.find(start).filter(|a| a.range.start == start && kinds.contains(&a.kind));
        found.ok_or(CuError::InvalidValue)?;
        for gpu in 0..self.machine.config.devices {
            self.synchronize(DeviceId(gpu))?;
        }
        self.give_back(start, kinds)
    }

    /// Ends an allocation that no work uses any more.
    ///
    /// # Errors
    /// `InvalidValue` if there is none at `start`.
    pub(crate) fn give_back(&mut self, start: DevAddr, kinds: &[Kind]) -> CuResult {
        let (gone, extent) = self.state.space.release(start, kinds)?;
        let device = gone.device;
        let Some(extent) = extent else { return Ok(()) };
        match gone.kind {
            Kind::Device | Kind::Pool | Kind::Mapped => {
                self.state.memory.free_device(device, extent.len);
                self.state.gpus[usize::from(device.0)].device_bytes -= extent.len;
            }
            Kind::Managed => {
                self.state.totals.managed_bytes -= gone.known.round_up_to_blocks().0;
                self.state.memory.unmap_managed(extent)?;
            }
            Kind::Pinned => self.state.memory.free_host(extent.len),
            Kind::Registered => {}
        }
        Ok(())
    }

    /// Waits for all work of `device`.
    ///
    /// # Errors
    /// If a kernel died, or the process ends.
    pub fn synchronize(&mut self, device: DeviceId) -> CuResult {
        for mark in self.state.streams.tails(device) {
            self.run(Until::Reached(mark))?;
        }
        self.trim_pools()
    }

    /// Waits for all work of `stream`; for the NULL stream, also for what it synchronises with.
    ///
    /// # Errors
    /// If a kernel died, or the process ends.
    pub fn synchronize_stream(&mut self, stream: StreamId) -> CuResult {
        self.state.streams.behind(stream).into_iter().try_for_each(|mark| self.run(Until::Reached(mark)))?;
        self.trim_pools()
    }

    /// Ends all memory but that of pools and mapped by the program, and every stream, of `device`, once its work is done.
    ///
    /// # Errors
    /// If a kernel died, or the process ends.
    pub fn reset(&mut self, device: DeviceId) -> CuResult {
        self.synchronize(device)?;
        // Memory of pools is not the context's (CUDA runtime API reference, `cudaDeviceReset`), nor, as far as is known, is what the
        // program mapped itself.
        let lives_on = |a: &Allocation| matches!(a.kind, Kind::Pool | Kind::Mapped);
        for allocation in self.state.space.of(device).into_iter().filter(|a| !lives_on(a)) {
            self.release(allocation.range.start, &[allocation.kind])?;
        }
        let state = &mut *self.state;
        state.contexts.end_streams(device, &mut state.streams)
    }

    /// Queues work, whether or not the stream is captured.
    ///
    /// # Errors
    /// `InvalidHandle` for a stream that is gone.
    pub fn queue(&mut self, stream: StreamId, after: &[Mark], work: Work) -> CuResult<Mark> {
        let now = self.state.host;
        let mark = self.state.streams.push(stream, now, after, work).ok_or(CuError::InvalidHandle)?;
        watch::issued_now(self.state.streams.newest());
        Ok(mark)
    }

    /// A copy with its direction.
    ///
    /// # Errors
    /// `InvalidValue` if an end that lies in our allocations runs over their end.
    pub fn checked_copy(&self, mut copy: Copy) -> CuResult<Copy> {
        copy.direction = bytes::direction(&self.state.space, copy.dst, copy.src);
        for range in [copy.source(), copy.target()] {
            self.whole(range)?;
        }
        Ok(copy)
    }

    /// Queues a copy. Waits for it as CUDA's rules say (driver API, "API synchronization behavior"): never inside the
    /// device, always between host memories and into pageable memory, otherwise if `when` says so. Where the stream is captured, it
    /// becomes a node, which reads its source whenever it runs.
    ///
    /// # Errors
    /// As for [`Self::checked_copy`] and [`Self::give`].
    pub fn copy(&mut self, stream: StreamId, copy: Copy, when: Return) -> CuResult {
        let data = self.machine.config.data;
        let mut copy = self.checked_copy(copy)?;
        if copy.bytes() == Bytes::ZERO {
            return Ok(());
        }
        if self.captures(stream)? {
            return self.give(stream, Work::Copy(Box::new(copy)));
        }
        let pageable = |addr| self.state.space.find(addr).is_none();
        let (from_pageable, to_pageable) = (pageable(copy.src), pageable(copy.dst));
        let moves = data || copy.bytes() <= self.machine.config.copy_limit;
        if from_pageable && copy.direction == Direction::ToDevice && when == Return::Early && moves {
            // SAFETY: the program vouches for its own buffer, of which CUDA takes a copy before it returns.
            copy.staged = Some(unsafe { self.state.bytes(data).gather(&copy) });
        }
        let direction = copy.direction;
        let mark = self.queue(stream, &[], Work::Copy(Box::new(copy)))?;
        let waits = match direction {
            Direction::OnDevice => false,
            Direction::OnHost => true,
            Direction::ToDevice | Direction::ToHost => when == Return::Late || to_pageable,
        };
        if waits {
            self.run(Until::Reached(mark))?;
        }
        Ok(())
    }

    /// A memset.
    ///
    /// # Errors
    /// `InvalidValue` if its rows overlap, it is not aligned, or its target is not memory of ours.
    pub fn checked_fill(&self, fill: Fill) -> CuResult<Fill> {
        let crosses = fill.height > 1 && fill.pitch < fill.width;
        if crosses || !fill.dst.0.is_multiple_of(u64::from(fill.unit)) {
            return Err(CuError::InvalidValue);
        }
        if !fill.target().is_empty() {
            self.state.space.holding(fill.target()).ok_or(CuError::InvalidValue)?;
        }
        Ok(fill)
    }

    /// Gives a stream a memset.
    ///
    /// # Errors
    /// As for [`Self::checked_fill`] and [`Self::give`].
    pub fn fill(&mut self, stream: StreamId, fill: Fill) -> CuResult {
        let fill = self.checked_fill(fill)?;
        if fill.target().is_empty() { Ok(()) } else { self.give(stream, Work::Fill(fill)) }
    }

    /// `range` is in one allocation or in none.
    fn whole(&self, range: AddrRange) -> CuResult {
        match self.state.space.find(range.start) {
            Some(found) if range.end() > found.range.end() => Err(CuError::InvalidValue),
            _ => Ok(()),
        }
    }

    /// Queues a prefetch of managed memory, rounded out to pages.
    ///
    /// # Errors
    /// `InvalidValue` if it is not managed, `InvalidDevice`, `InvalidHandle`.
    pub fn prefetch(&mut self, stream: StreamId, range: AddrRange, to: Place) -> CuResult {
        let pages = self.managed_pages(range)?;
        if let Place::Device(device) = to
            && device.0 >= self.machine.config.devices
        {
            return Err(CuError::InvalidDevice);
        }
        self.not_captured(stream)?;
        self.queue(stream, &[], Work::Prefetch(pages, to)).map(drop)
    }

    /// Queues a discard of managed memory. Only whole pages inside the range are given up.
    ///
    /// # Errors
    /// `InvalidValue` if it is not managed, `InvalidHandle`; `NotSupported` before driver 580.
    pub fn discard(&mut self, stream: StreamId, range: AddrRange) -> CuResult {
        if self.machine.config.driver < 580 {
            return Err(CuError::NotSupported);
        }
        self.managed_pages(range)?;
        let start = range.start.0.next_multiple_of(4096);
        let end = range.end().0 & !4095;
        if end <= start {
            return Ok(());
        }
        self.not_captured(stream)?;
        self.queue(stream, &[], Work::Discard(AddrRange::new(DevAddr(start), Bytes(end - start)))).map(drop)
    }

    fn managed_pages(&self, range: AddrRange) -> CuResult<AddrRange> {
        let found = self.state.space.holding(range).filter(|a| a.kind == Kind::Managed && !range.is_empty());
        found.ok_or(CuError::InvalidValue)?;
        let start = range.start.0 & !4095;
        let end = range.end().0.next_multiple_of(4096);
        Ok(AddrRange::new(DevAddr(start), Bytes(end - start)))
    }

    /// A word for a stream write or wait: aligned, in memory of ours, not managed (facts 4.5).
    ///
    /// # Errors
    /// `InvalidValue`.
    pub fn word(&self, addr: DevAddr, value: u64, wide: bool) -> CuResult<Word> {
        let len = if wide { 8 } else { 4 };
        let found = self.state.space.holding(AddrRange::new(addr, Bytes(len)));
        let fits = found.is_some_and(|a| a.kind != Kind::Managed) && addr.0.is_multiple_of(len);
        if fits { Ok(Word { addr, value, wide }) } else { Err(CuError::InvalidValue) }
    }

    /// Free and total memory of a device, as `cuMemGetInfo` says it.
    #[must_use]
    pub fn memory_info(&self, device: DeviceId) -> (Bytes, Bytes) {
        let memory = &self.state.memory;
        (memory.free_on_device(device), memory.usable(device))
    }

    /// The stream that the NULL handle means in `context`.
    ///
    /// # Errors
    /// `InvalidContext`.
    pub fn legacy(&mut self, context: ContextId) -> CuResult<StreamId> {
        self.state.contexts.get(context).map(|c| c.legacy)
    }

    /// The stream that the per-thread handle means in `context`.
    ///
    /// # Errors
    /// `InvalidContext`.
    pub fn per_thread(&mut self, context: ContextId) -> CuResult<StreamId> {
        let state = &mut *self.state;
        state.contexts.per_thread(context, &mut state.streams)
    }
}
