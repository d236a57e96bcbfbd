//! Managed memory: prefetch, discard, advice, and what is known of a range.
//!
//! Advice is recorded and can be asked for again, but the modelled driver does not act on it; the first call says so.

use std::ffi::{c_int, c_uint};
use std::sync::Once;

use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, Place};
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::machine::{Cost, machine};
use deepum_emu_device::say;
use deepum_emu_device::space::Kind;
use deepum_emu_device::state::State;
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

    /// Whether it is the device `owner`.
    pub fn is_device(self, owner: DeviceId) -> CuResult<bool> {
        self.place().map(|place| place == Place::Device(owner))
    }

    /// The device that it is.
    ///
    /// # Errors
    /// `NotSupported` for any other place.
    pub fn device_alone(self) -> CuResult<DeviceId> {
        match self.place()? {
            Place::Device(device) => Ok(device),
            _ => Err(CuError::NotSupported),
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

/// What was last said of a range. Ranges about the same thing (and, of 3, the same place) do not overlap.
#[derive(Clone, Copy, Debug)]
struct Said {
    allocation: u64,
    range: AddrRange,
    /// 1 read mostly, 2 preferred location, 3 accessed by, 4 last prefetch: as the range attributes are numbered.
    about: c_int,
    location: Location,
}

static SAID: Mutex<Vec<Said>> = Mutex::new(Vec::new());

/// What of `range` lies before and behind `part`.
fn outside(range: AddrRange, part: AddrRange) -> [AddrRange; 2] {
    let between = |from: DevAddr, to: DevAddr| AddrRange::new(from, Bytes(to.0.saturating_sub(from.0)));
    [between(range.start, part.start.min(range.end())), between(part.end().max(range.start), range.end())]
}

/// Records what was said about `range`, `on` or no longer.
fn record(state: &State, range: AddrRange, about: c_int, on: bool, location: Location) -> CuResult {
    let owner = state.space.holding(range).filter(|a| a.kind == Kind::Managed).ok_or(CuError::InvalidValue)?;
    let mut said = SAID.lock();
    let mut kept = Vec::with_capacity(said.len() + 1);
    for old in said.drain(..).filter(|s| state.space.find(s.range.start).is_some_and(|a| a.id == s.allocation)) {
        if old.about == about && (about != 3 || old.location == location) {
            let parts = outside(old.range, range).into_iter().filter(|part| !part.is_empty());
            kept.extend(parts.map(|range| Said { range, ..old }));
        } else {
            kept.push(old);
        }
    }
    if on {
        kept.push(Said { allocation: owner.id, range, about, location });
    }
    *said = kept;
    Ok(())
}

/// What was last said about all of `range`; nothing if parts of it were told different things.
fn recorded(range: AddrRange, about: c_int, at: Option<Location>) -> CuResult<Option<Location>> {
    machine()?.look(|state| {
        let owner = state.space.holding(range).filter(|a| a.kind == Kind::Managed).ok_or(CuError::InvalidValue)?;
        let said = SAID.lock();
        let meets = said
            .iter()
            .filter(|s| s.allocation == owner.id && s.about == about && at.is_none_or(|at| s.location == at));
        let mut left = range.len.0;
        let mut location = None;
        for s in meets {
            let [before, behind] = outside(range, s.range);
            let common = range.len.0 - before.len.0 - behind.len.0;
            if common > 0 && *location.get_or_insert(s.location) != s.location {
                return Ok(None);
            }
            left -= common;
        }
        Ok(location.filter(|_| left == 0))
    })
}

/// Queues discards, prefetches, or each range's discard and then its prefetch, in one call.
fn queue(ranges: &[AddrRange], discard: bool, to: Option<&[Location]>, stream: Stream) -> CuResult {
    let places = to.map(|to| to.iter().map(|l| l.place()).collect::<CuResult<Vec<_>>>()).transpose()?;
    machine()?.call(Cost::Call, |call| {
        let stream = current::stream(call, stream)?;
        for (n, range) in ranges.iter().enumerate() {
            if discard {
                call.discard(stream, *range)?;
            }
            if let (Some(to), Some(places)) = (to, &places) {
                call.prefetch(stream, *range, places[n])?;
                record(&call.state, *range, 4, true, to[n])?;
            }
        }
        Ok(())
    })
}

fn prefetch(start: u64, bytes: usize, to: Location, stream: Stream) -> CuResult {
    queue(&[range(start, bytes)], false, Some(&[to]), stream)
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
    let location = if located { location } else { Location::INVALID };
    machine()?.look(|state| record(state, range(start, bytes), about, on, location))?;
    static ONCE: Once = Once::new();
    ONCE.call_once(|| say("cuMemAdvise: advice is recorded; the modelled driver does not act on it"));
    Ok(())
}

/// The ranges of a batch call: no flags, and not the legacy NULL stream (CUDA driver API reference).
fn batch(starts: In<u64>, sizes: In<usize>, count: usize, flags: u64, stream: Stream) -> CuResult<Vec<AddrRange>> {
    if count == 0 || flags != 0 || matches!(stream, Stream::NULL | Stream::LEGACY) {
        return Err(CuError::InvalidValue);
    }
    (0..count).map(|n| Ok(range(starts.nth(n)?, sizes.nth(n)?))).collect()
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
            let devices = (0..machine()?.config.devices).map(c_int::from).chain([CPU]);
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
        let ranges = batch(starts, sizes, count, flags, stream)?;
        queue(&ranges, false, Some(&locations(count, places, groups, group_count)?), stream)
    }

    fn cuMemDiscardBatchAsync(starts: In<u64>, sizes: In<usize>, count: usize, flags: u64, stream: Stream) {
        queue(&batch(starts, sizes, count, flags, stream)?, true, None, stream)
    }

    fn cuMemDiscardAndPrefetchBatchAsync(
        starts: In<u64>, sizes: In<usize>, count: usize, places: In<Location>, groups: In<usize>, group_count: usize,
        flags: u64, stream: Stream,
    ) {
        let ranges = batch(starts, sizes, count, flags, stream)?;
        queue(&ranges, true, Some(&locations(count, places, groups, group_count)?), stream)
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
            let stream = current::stream(call, stream)?;
            call.not_captured(stream)?;
            let found = call.state.space.find(range(start, 0).start);
            found.filter(|a| a.kind == Kind::Managed).map(drop).ok_or(CuError::InvalidValue)
        })
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
