//! What is measured: one GPU, managed memory on it, the way to move that, and a clock.
//!
//! Managed memory is a quarter of what is free on the GPU at most: more than fits can hang a shared one and not only the program (facts 10).

use crate::cuda::{Cuda, Failed, call};
use anyhow::{Context, Result, bail};
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, Nanos, Place, UmBlock};
use deepum_kmod_bridge::{Bridge, Gpu, Linux, NOTICES, Support, ToolsQueue, Uuid, VaSpace, Word};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

/// The GPU that is measured.
pub const GPU: DeviceId = DeviceId(0);
pub const ON_GPU: Place = Place::Device(GPU);

/// See the module.
pub struct World {
    pub cuda: Cuda,
    pub device: String,
    pub support: Support,
    pub space: Arc<VaSpace>,
    pub queue: Result<ToolsQueue, String>,
    /// The emulated device's clock, where that is it.
    virtual_time: Option<unsafe extern "C" fn() -> u64>,
    /// How a word is awaited there.
    virtual_wait: Option<unsafe extern "C" fn(u64)>,
}

impl World {
    pub fn open() -> Result<Self> {
        let cuda = Cuda::find()?;
        call!(cuda, cuInit(0 => c_uint))?;
        let (mut name, mut uuid) = ([0 as c_char; 128], [0u8; 16]);
        call!(cuda, cuDeviceGetName(name.as_mut_ptr() => *mut c_char, 127 => c_int, 0 => c_int))?;
        call!(cuda, cuDeviceGetUuid_v2(&raw mut uuid => *mut [u8; 16], 0 => c_int))?;
        let mut concurrent = 0;
        call!(cuda, cuDeviceGetAttribute(&raw mut concurrent => *mut c_int, 89 => c_int, 0 => c_int))?;
        if concurrent == 0 {
            bail!("this GPU cannot fault on managed memory; `deepum doctor` says more");
        }
        let mut context: *mut c_void = std::ptr::null_mut();
        call!(cuda, cuDevicePrimaryCtxRetain(&raw mut context => *mut *mut c_void, 0 => c_int))?;
        call!(cuda, cuCtxSetCurrent(context => *mut c_void))?;
        // SAFETY: of this type where it exists (ARCHITECTURE.md, section 7).
        let virtual_time = unsafe { cuda.get("deepumEmuTime") }.ok().map(|function| *function);
        // SAFETY: as above.
        let virtual_wait = unsafe { cuda.get("deepumEmuAwait") }.ok().map(|function| *function);
        let Bridge { support, queue, va_space } =
            Bridge::open(Arc::new(Linux), &[Gpu { id: GPU, uuid: Uuid(uuid) }], NOTICES);
        Ok(Self {
            // The last byte was never written.
            device: name.iter().take_while(|&&c| c != 0).map(|c| char::from(c.cast_unsigned())).collect(),
            support,
            space: va_space.context("nothing can be measured")?,
            queue: queue.map_err(|why| why.to_string()),
            virtual_time,
            virtual_wait,
            cuda,
        })
    }

    pub fn is_emulated(&self) -> bool {
        self.virtual_time.is_some()
    }

    /// Now, by the clock that notices are stamped with (facts 2.4).
    pub fn now(&self) -> Nanos {
        match self.virtual_time {
            // SAFETY: takes nothing, changes nothing.
            Some(now) => Nanos(unsafe { now() }),
            None => {
                let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC_RAW)
                    .unwrap_or(nix::sys::time::TimeSpec::new(0, 0));
                Nanos(now.tv_sec().unsigned_abs() * 1_000_000_000 + now.tv_nsec().unsigned_abs())
            }
        }
    }

    /// Keeps its processor until the driver has written a word; whether it has.
    pub fn until(&self, word: Word<'_>) -> bool {
        match self.virtual_wait {
            // SAFETY: takes an address that it does not touch.
            Some(wait) => unsafe { wait(word.address()) },
            None => return word.wait(),
        }
        word.is_written()
    }

    /// How long it takes.
    pub fn time<T, E>(&self, what: impl FnOnce() -> Result<T, E>) -> Result<Nanos, E> {
        let begun = self.now();
        what()?;
        Ok(Nanos(self.now().0.saturating_sub(begun.0)))
    }

    /// So many blocks of managed memory.
    pub fn managed(&self, blocks: u64) -> Result<Managed<'_>> {
        let (mut free, mut total) = (0usize, 0usize);
        call!(self.cuda, cuMemGetInfo_v2(&raw mut free => *mut usize, &raw mut total => *mut usize))?;
        let len = Bytes(blocks * UmBlock::SIZE.0);
        if len.0 > free as u64 / 4 {
            bail!(
                "{len} of managed memory is more than a quarter of the {} that are free on the GPU",
                Bytes(free as u64)
            );
        }
        let mut at = 0u64;
        /// `CU_MEM_ATTACH_GLOBAL`.
        const GLOBAL: c_uint = 1;
        call!(self.cuda, cuMemAllocManaged(&raw mut at => *mut u64, usize::try_from(len.0)? => usize, GLOBAL => c_uint))?;
        Ok(Managed { cuda: &self.cuda, range: AddrRange::new(DevAddr(at), len) })
    }

    /// Has the GPU write the same byte everywhere, and waits.
    pub fn fill(&self, range: AddrRange, byte: u8) -> Result<(), Failed> {
        let len = usize::try_from(range.len.0).unwrap_or(usize::MAX);
        call!(self.cuda, cuMemsetD8_v2(range.start.0 => u64, byte => u8, len => usize))?;
        call!(self.cuda, cuCtxSynchronize())
    }

    /// The first and the last bytes of a range, as a copy brings them.
    pub fn ends(&self, range: AddrRange) -> Result<[u8; 128], Failed> {
        let mut ends = [0; 128];
        let last = range.end().0 - 64;
        for (at, out) in [range.start.0, last].into_iter().zip(ends.chunks_mut(64)) {
            call!(self.cuda, cuMemcpyDtoH_v2(out.as_mut_ptr() => *mut u8, at => u64, 64 => usize))?;
        }
        Ok(ends)
    }
}

/// Managed memory, freed when it is dropped.
pub struct Managed<'a> {
    cuda: &'a Cuda,
    pub range: AddrRange,
}

impl Managed<'_> {
    /// See [`pieces`].
    pub fn pieces(&self, blocks: u64) -> impl Iterator<Item = AddrRange> + use<> {
        pieces(self.range, blocks)
    }
}

/// Pieces of so many blocks; what does not fill one is left out.
pub fn pieces(range: AddrRange, blocks: u64) -> impl Iterator<Item = AddrRange> {
    let len = Bytes(blocks * UmBlock::SIZE.0);
    (0..range.len.0 / len.0).map(move |piece| AddrRange::new(DevAddr(range.start.0 + piece * len.0), len))
}

impl Drop for Managed<'_> {
    fn drop(&mut self) {
        let free = || call!(self.cuda, cuMemFree_v2(self.range.start.0 => u64));
        // The process ends soon; what cannot be freed goes with it.
        let _ = free();
    }
}
