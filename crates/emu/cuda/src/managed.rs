//! Managed memory: prefetch, discard, advice, and what is known of a range.
//!
//! Advice is recorded and can be asked for again, but the modelled driver does not act on it; the first call says so.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Once;

use deepum_core::units::{AddrRange, DeviceId, Place};
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::machine::{Cost, machine};
use deepum_emu_device::say;
use deepum_emu_device::space::Kind;
use parking_lot::Mutex;

use crate::current;
use crate::edge::{In, Out, api, range, twins};
use crate::handle::Stream;
use crate::init::device;

/// `CUmemLocation`, 8 bytes, passed in one register.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    kind: c_int,
    id: c_int,
}

/// `CU_DEVICE_CPU` and `CU_DEVICE_INVALID`.
const CPU: c_int = -1;
const NOWHERE: c_int = -2;

impl Location {
    const INVALID: Self = Self { kind: 0, id: 0 };

    /// As the older calls name it: a device ordinal, or the CPU.
    fn of_device(ordinal: c_int) -> Self {
        if ordinal == CPU { Self { kind: 2, id: 0 } } else { Self { kind: 1, id: ordinal } }
    }

    fn place(self) -> CuResult<Place> {
        match self.kind {
            1 => device(self.id).map(Place::Device),
            // HOST, HOST_NUMA, HOST_NUMA_CURRENT: one host memory is modelled.
            2..=4 => Ok(Place::Host),
            _ => Err(CuError::InvalidValue),
        }
    }

    fn ordinal(self) -> c_int {
        match self.kind {
            0 => NOWHERE,
            1 => self.id,
            _ => CPU,
        }
    }
}

/// What was said of a range; the newest that covers it counts.
#[derive(Clone, Copy, Debug)]
struct Said {
    allocation: u64,
    range: AddrRange,
    /// 1 read mostly, 2 preferred location, 3 accessed by, 4 last prefetch: as the range attributes are numbered.
    about: c_int,
    on: bool,
    location: Location,
}

static SAID: Mutex<Vec<Said>> = Mutex::new(Vec::new());

fn record(range: AddrRange, about: c_int, on: bool, location: Location) -> CuResult {
    machine()?.look(|state| {
        let owner = state.space.holding(range).filter(|a| a.kind == Kind::Managed).ok_or(CuError::InvalidValue)?;
        let mut said = SAID.lock();
        let covered = |s: &Said| {
            s.about == about
                && (about != 3 || s.location == location)
                && s.range.start >= range.start
                && s.range.end() <= range.end()
        };
        said.retain(|s| !covered(s) && state.space.find(s.range.start).is_some_and(|a| a.id == s.allocation));
        said.push(Said { allocation: owner.id, range, about, on, location });
        Ok(())
    })
}

/// What was last said about all of `range`; nothing if parts of it were told different things.
fn recorded(range: AddrRange, about: c_int, at: Option<Location>) -> CuResult<Option<Location>> {
    machine()?.look(|state| {
        let owner = state.space.holding(range).filter(|a| a.kind == Kind::Managed).ok_or(CuError::InvalidValue)?;
        let said = SAID.lock();
        let meets = |s: &&Said| {
            s.allocation == owner.id
                && s.about == about
                && at.is_none_or(|at| s.location == at)
                && s.range.start < range.end()
                && range.start < s.range.end()
        };
        let newest = said.iter().rev().find(meets);
        let covers = |s: &&Said| s.on && s.range.start <= range.start && s.range.end() >= range.end();
        Ok(newest.filter(covers).map(|s| s.location))
    })
}

fn prefetch(start: u64, bytes: usize, to: Location, stream: Stream) -> CuResult {
    let (range, place) = (range(start, bytes), to.place()?);
    machine()?.call(Cost::Call, |call| {
        let stream = current::stream(call, stream)?;
        call.prefetch(stream, range, place)
    })?;
    record(range, 4, true, to)
}

fn discard(start: u64, bytes: usize, stream: Stream) -> CuResult {
    machine()?.call(Cost::Call, |call| {
        let stream = current::stream(call, stream)?;
        call.discard(stream, range(start, bytes))
    })
}

fn advise(start: u64, bytes: usize, advice: c_int, location: Location) -> CuResult {
    let (about, on) = match advice {
        1 => (1, true),
        2 => (1, false),
        3 => (2, true),
        4 => (2, false),
        5 => (3, true),
        6 => (3, false),
        _ => return Err(CuError::InvalidValue),
    };
    let located = matches!(advice, 3 | 5 | 6);
    if located {
        location.place()?;
    }
    record(range(start, bytes), about, on, if located { location } else { Location::INVALID })?;
    static ONCE: Once = Once::new();
    ONCE.call_once(|| say("cuMemAdvise: advice is recorded; the modelled driver does not act on it"));
    Ok(())
}

/// Batch calls: no flags, and not the legacy NULL stream (CUDA driver API reference).
fn batch(count: usize, flags: u64, stream: Stream) -> CuResult {
    if count == 0 || flags != 0 || matches!(stream, Stream::NULL | Stream::LEGACY) {
        return Err(CuError::InvalidValue);
    }
    Ok(())
}

/// For each range of a batch, the location of the last group that starts at or before it.
fn locations(count: usize, locations: In<Location>, starts: In<usize>, groups: usize) -> CuResult<Vec<Location>> {
    let starts = starts.array(groups)?;
    let rising = starts.windows(2).all(|w| w[0] < w[1]);
    if starts.first() != Some(&0) || !rising || starts.last().is_some_and(|last| *last >= count) {
        return Err(CuError::InvalidValue);
    }
    let group = |n: usize| starts.partition_point(|start| *start <= n) - 1;
    (0..count).map(|n| locations.nth(group(n))).collect()
}

/// One range attribute: as many 32-bit numbers as the caller has room for.
fn attribute(out: Out<c_int>, bytes: usize, number: c_int, range: AddrRange) -> CuResult {
    let place = |about| recorded(range, about, None).map(|l| l.unwrap_or(Location::INVALID));
    let one = match number {
        1 => c_int::from(recorded(range, 1, None)?.is_some()),
        2 => place(2)?.ordinal(),
        3 => {
            let room = bytes / 4;
            if !bytes.is_multiple_of(4) || room == 0 {
                return Err(CuError::InvalidValue);
            }
            let devices = (0..machine()?.config.devices).map(|n| c_int::from(DeviceId(n).0)).chain([CPU]);
            let mut n = 0;
            for ordinal in devices {
                if n < room && recorded(range, 3, Some(Location::of_device(ordinal)))?.is_some() {
                    out.at(n).put(ordinal)?;
                    n += 1;
                }
            }
            return (n..room).try_for_each(|n| out.at(n).put(NOWHERE));
        }
        4 => place(4)?.ordinal(),
        5 => place(2)?.kind,
        6 => place(2)?.id,
        7 => place(4)?.kind,
        8 => place(4)?.id,
        _ => return Err(CuError::InvalidValue),
    };
    if bytes != 4 {
        return Err(CuError::InvalidValue);
    }
    out.put(one)
}

api! {
    fn cuMemPrefetchAsync(start: u64, bytes: usize, to: c_int, stream: Stream) {
        prefetch(start, bytes, Location::of_device(to), stream)
    }

    fn cuMemPrefetchAsync_v2(start: u64, bytes: usize, to: Location, flags: c_uint, stream: Stream) {
        if flags != 0 {
            return Err(CuError::InvalidValue);
        }
        prefetch(start, bytes, to, stream)
    }

    fn cuMemPrefetchBatchAsync(
        starts: In<u64>, sizes: In<usize>, count: usize, places: In<Location>, groups: In<usize>, group_count: usize,
        flags: u64, stream: Stream,
    ) {
        batch(count, flags, stream)?;
        let places = locations(count, places, groups, group_count)?;
        (0..count).try_for_each(|n| prefetch(starts.nth(n)?, sizes.nth(n)?, places[n], stream))
    }

    fn cuMemDiscardBatchAsync(starts: In<u64>, sizes: In<usize>, count: usize, flags: u64, stream: Stream) {
        batch(count, flags, stream)?;
        (0..count).try_for_each(|n| discard(starts.nth(n)?, sizes.nth(n)?, stream))
    }

    fn cuMemDiscardAndPrefetchBatchAsync(
        starts: In<u64>, sizes: In<usize>, count: usize, places: In<Location>, groups: In<usize>, group_count: usize,
        flags: u64, stream: Stream,
    ) {
        batch(count, flags, stream)?;
        let places = locations(count, places, groups, group_count)?;
        (0..count).try_for_each(|n| {
            discard(starts.nth(n)?, sizes.nth(n)?, stream)?;
            prefetch(starts.nth(n)?, sizes.nth(n)?, places[n], stream)
        })
    }

    fn cuMemAdvise(start: u64, bytes: usize, advice: c_int, to: c_int) {
        advise(start, bytes, advice, Location::of_device(to))
    }

    fn cuMemAdvise_v2(start: u64, bytes: usize, advice: c_int, to: Location) {
        advise(start, bytes, advice, to)
    }

    fn cuMemRangeGetAttribute(out: Out<c_int>, len: usize, number: c_int, start: u64, bytes: usize) {
        attribute(out, len, number, range(start, bytes))
    }

    fn cuMemRangeGetAttributes(
        outs: In<Out<c_int>>, lens: In<usize>, numbers: In<c_int>, count: usize, start: u64, bytes: usize,
    ) {
        (0..count).try_for_each(|n| attribute(outs.nth(n)?, lens.nth(n)?, numbers.nth(n)?, range(start, bytes)))
    }

    /// Which streams may use a managed range while the host does: with concurrent managed access, all of them.
    fn cuStreamAttachMemAsync(stream: Stream, start: u64, _bytes: usize, flags: c_uint) {
        if !matches!(flags, 1 | 2 | 4) {
            return Err(CuError::InvalidValue);
        }
        machine()?.call(Cost::Call, |call| {
            current::stream(call, stream)?;
            let found = call.state.space.find(range(start, 0).start);
            found.filter(|a| a.kind == Kind::Managed).map(drop).ok_or(CuError::InvalidValue)
        })
    }

    /// Unsupported kinds of handle are refused by the kind; there is no other.
    fn cuMemGetHandleForAddressRange(_out: *mut c_void, _start: u64, _bytes: usize, _kind: c_int, _flags: u64) {
        Err(CuError::NotSupported)
    }
}

twins! {
    fn cuMemPrefetchAsync_ptsz(start: u64, bytes: usize, to: c_int, s: Stream)
        = cuMemPrefetchAsync(start, bytes, to, s.per_thread());
    fn cuMemPrefetchAsync_v2_ptsz(start: u64, bytes: usize, to: Location, flags: c_uint, s: Stream)
        = cuMemPrefetchAsync_v2(start, bytes, to, flags, s.per_thread());
    fn cuMemPrefetchBatchAsync_ptsz(
        starts: In<u64>, sizes: In<usize>, n: usize, places: In<Location>, groups: In<usize>, m: usize, flags: u64, s: Stream,
    ) = cuMemPrefetchBatchAsync(starts, sizes, n, places, groups, m, flags, s.per_thread());
    fn cuMemDiscardBatchAsync_ptsz(starts: In<u64>, sizes: In<usize>, n: usize, flags: u64, s: Stream)
        = cuMemDiscardBatchAsync(starts, sizes, n, flags, s.per_thread());
    fn cuMemDiscardAndPrefetchBatchAsync_ptsz(
        starts: In<u64>, sizes: In<usize>, n: usize, places: In<Location>, groups: In<usize>, m: usize, flags: u64, s: Stream,
    ) = cuMemDiscardAndPrefetchBatchAsync(starts, sizes, n, places, groups, m, flags, s.per_thread());
    fn cuStreamAttachMemAsync_ptsz(s: Stream, start: u64, bytes: usize, flags: c_uint)
        = cuStreamAttachMemAsync(s.per_thread(), start, bytes, flags);
}
