//! Virtual memory management: addresses that a program reserves, and memory that it makes and maps there.
//!
//! Memory counts as device memory from when it is made until it is neither held by its handle nor mapped. It is mapped whole, at one place
//! at a time: more is refused. Until the program grants its device access, the addresses are nobody's, so that copies to them fail.
//!
//! Memory that was exported lies in a file ([`crate::space::shared`]), and keeps its contents while it is mapped nowhere; of other memory nothing
//! would be left, so it is mapped once. What another process made counts as memory there, not here.
//!
//! A place that the program wishes for is given if it is free and more than 20 MiB, also where other memory was before (facts 4.6).
//!
//! Not known of drivers, and assumed: that what is unmapped waits for all work, as a free does.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, UmBlock};

use crate::error::{CuError, CuResult};
use crate::machine::Call;
use crate::run::Until;
use crate::space::shared;

/// Memory of a device, made by the program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PhysicalId(pub u32);

#[derive(Clone, Debug)]
struct Physical {
    device: DeviceId,
    len: Bytes,
    /// Whether the program still has its handle.
    held: bool,
    mapped: Option<DevAddr>,
    /// Whether it ever was mapped.
    used: bool,
    /// Whether the program asked for memory that it can export.
    exportable: bool,
    /// Whether another process made it.
    foreign: bool,
    /// Where its bytes are, once it was exported.
    file: Option<Arc<OwnedFd>>,
}

/// Reserved addresses, and memory made for them.
#[derive(Debug, Default)]
pub struct Vmm {
    reserved: BTreeMap<DevAddr, Bytes>,
    memory: BTreeMap<PhysicalId, Physical>,
    next: u32,
}

impl Vmm {
    fn held(&mut self, id: PhysicalId) -> CuResult<&mut Physical> {
        self.memory.get_mut(&id).filter(|memory| memory.held).ok_or(CuError::InvalidValue)
    }

    fn add(&mut self, memory: Physical) -> PhysicalId {
        self.next += 1;
        self.memory.insert(PhysicalId(self.next), memory);
        PhysicalId(self.next)
    }

    /// What is mapped in `range`, which are whole mappings without a gap.
    fn mapped(&self, range: AddrRange) -> CuResult<Vec<(PhysicalId, AddrRange, DeviceId)>> {
        let at = |(&id, memory): (&PhysicalId, &Physical)| {
            Some((id, AddrRange::new(memory.mapped?, memory.len), memory.device))
        };
        let inside =
            |(_, part, _): &(PhysicalId, AddrRange, DeviceId)| part.start >= range.start && part.end() <= range.end();
        let parts: Vec<_> = self.memory.iter().filter_map(at).filter(inside).collect();
        let sum = parts.iter().fold(Bytes::ZERO, |sum, (_, part, _)| sum + part.len);
        if sum == range.len && sum > Bytes::ZERO { Ok(parts) } else { Err(CuError::InvalidValue) }
    }
}

/// Lengths and places are of whole UM blocks.
fn whole(n: u64) -> CuResult {
    if n > 0 && n.is_multiple_of(UmBlock::SIZE.0) { Ok(()) } else { Err(CuError::InvalidValue) }
}

impl Call<'_> {
    /// Reserves addresses, at `wish` if that is free.
    ///
    /// # Errors
    /// `InvalidValue` unless `len` is of whole UM blocks and `align` a power of two or 0; `OutOfMemory`.
    pub fn reserve(&mut self, len: Bytes, align: u64, wish: Option<DevAddr>) -> CuResult<DevAddr> {
        whole(len.0)?;
        if align != 0 && !align.is_power_of_two() {
            return Err(CuError::InvalidValue);
        }
        let range = self.state.space.reserve(len, align, wish)?;
        self.state.vmm.reserved.insert(range.start, len);
        Ok(range.start)
    }

    /// Reserved addresses go back.
    ///
    /// # Errors
    /// `InvalidValue` unless it is what was reserved, with nothing mapped there.
    pub fn unreserve(&mut self, range: AddrRange) -> CuResult {
        let state = &mut *self.state;
        let taken = |memory: &Physical| memory.mapped.is_some_and(|at| range.contains(at));
        if state.vmm.reserved.get(&range.start) != Some(&range.len) || state.vmm.memory.values().any(taken) {
            return Err(CuError::InvalidValue);
        }
        state.vmm.reserved.remove(&range.start);
        state.space.unreserve(range);
        Ok(())
    }

    /// Makes memory, which can be exported if it is to be `exportable`.
    ///
    /// # Errors
    /// `InvalidValue` unless `len` is of whole UM blocks; `OutOfMemory`.
    pub fn make_physical(&mut self, device: DeviceId, len: Bytes, exportable: bool) -> CuResult<PhysicalId> {
        whole(len.0)?;
        let now = self.state.host;
        let taken = self.state.memory.alloc_device(device, len, now);
        self.state.settle_bytes(self.machine.config.data);
        let from = taken?;
        self.state.gpus[usize::from(device.0)].device_bytes += len;
        // Eviction made room: the call returns when there is.
        self.run(Until::Time(from))?;
        let made =
            Physical { device, len, held: true, mapped: None, used: false, exportable, foreign: false, file: None };
        Ok(self.state.vmm.add(made))
    }

    /// A descriptor of memory, by which another process can have it.
    ///
    /// # Errors
    /// `InvalidValue` unless it was made to be exported; `OutOfMemory`.
    pub fn export_physical(&mut self, id: PhysicalId) -> CuResult<OwnedFd> {
        let state = &mut *self.state;
        let memory = state.vmm.held(id)?;
        if !memory.exportable {
            return Err(CuError::InvalidValue);
        }
        let file = match (&memory.file, memory.mapped) {
            (Some(file), _) => Arc::clone(file),
            (None, Some(at)) => state.space.share(at)?.0,
            (None, None) => Arc::new(shared::new(memory.device, memory.len)?),
        };
        memory.file = Some(Arc::clone(&file));
        file.try_clone().map_err(|_| CuError::OutOfMemory)
    }

    /// Memory that another process exported.
    ///
    /// # Errors
    /// `InvalidValue` if the descriptor is not such memory's, `InvalidDevice`; `OutOfMemory`.
    pub fn import_physical(&mut self, file: impl AsFd) -> CuResult<PhysicalId> {
        let (device, len, _) = shared::look(file.as_fd()).ok_or(CuError::InvalidValue)?;
        if device.0 >= self.machine.config.devices {
            return Err(CuError::InvalidDevice);
        }
        let file = file.as_fd().try_clone_to_owned().map_err(|_| CuError::OutOfMemory)?;
        let file = Some(Arc::new(file));
        let made =
            Physical { device, len, held: true, mapped: None, used: false, exportable: true, foreign: true, file };
        Ok(self.state.vmm.add(made))
    }

    /// The program has no use for the handle any more.
    ///
    /// # Errors
    /// `InvalidValue` if it is none.
    pub fn release_physical(&mut self, id: PhysicalId) -> CuResult {
        self.state.vmm.held(id)?.held = false;
        self.end_unused(id);
        Ok(())
    }

    fn end_unused(&mut self, id: PhysicalId) {
        let state = &mut *self.state;
        let unused = |memory: &&Physical| !memory.held && memory.mapped.is_none();
        if let Some(&Physical { device, len, foreign, .. }) = state.vmm.memory.get(&id).filter(unused) {
            state.vmm.memory.remove(&id);
            if foreign {
                return;
            }
            state.memory.free_device(device, len);
            state.gpus[usize::from(device.0)].device_bytes -= len;
        }
    }

    /// Maps memory at reserved addresses.
    ///
    /// # Errors
    /// `InvalidValue` if they are not all reserved by one call, or in use; `NotSupported` for parts of memory, for memory that is mapped, and for
    /// memory that was and is in no file.
    pub fn map_physical(&mut self, range: AddrRange, offset: Bytes, id: PhysicalId) -> CuResult {
        let state = &mut *self.state;
        let vmm = &mut state.vmm;
        whole(range.start.0)?;
        let reserved = vmm.reserved.range(..=range.start).next_back();
        let fits = reserved.is_some_and(|(&start, &len)| range.end() <= start.offset(len));
        let taken =
            |memory: &Physical| memory.mapped.is_some_and(|at| at < range.end() && range.start < at.offset(memory.len));
        if !fits || vmm.memory.values().any(taken) {
            return Err(CuError::InvalidValue);
        }
        let memory = vmm.held(id)?;
        if offset + range.len > memory.len {
            return Err(CuError::InvalidValue);
        }
        let lost = memory.used && memory.file.is_none();
        if range.len != memory.len || memory.mapped.is_some() || lost {
            return Err(CuError::NotSupported);
        }
        state.space.back_reserved(range, memory.file.clone())?;
        (memory.mapped, memory.used) = (Some(range.start), true);
        Ok(())
    }

    /// Unmaps whole mappings, once all work is done.
    ///
    /// # Errors
    /// `InvalidValue` unless `range` is whole mappings without a gap.
    pub fn unmap_physical(&mut self, range: AddrRange) -> CuResult {
        let parts = self.state.vmm.mapped(range)?;
        for gpu in 0..self.machine.config.devices {
            self.synchronize(DeviceId(gpu))?;
        }
        for (id, part, _) in parts {
            self.state.space.clear_reserved(part);
            if let Some(memory) = self.state.vmm.memory.get_mut(&id) {
                memory.mapped = None;
            }
            self.end_unused(id);
        }
        Ok(())
    }

    /// Grants the devices whose memory it is access to what is mapped, if `check` finds nothing wrong with what each of them is to be granted.
    ///
    /// # Errors
    /// `InvalidValue` unless `range` is whole mappings without a gap; what `check` answers.
    pub fn open_mapped(&mut self, range: AddrRange, check: impl Fn(DeviceId) -> CuResult) -> CuResult {
        let parts = self.state.vmm.mapped(range)?;
        parts.iter().try_for_each(|&(_, _, device)| check(device))?;
        for (_, part, device) in parts {
            self.state.space.open_reserved(device, part);
        }
        Ok(())
    }
}
