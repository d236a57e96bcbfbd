//! Which bytes a copy or memset is told to use.
//!
//! Problem: CUDA describes a copy in a dozen ways: addresses and sizes, pitched rows, boxes within boxes, structures of two APIs,
//! lists of all of them.
//!
//! Idea: each is reduced to an address and a length that covers every byte used, gaps between rows included: where tensors are dead
//! or alive is decided by UM blocks, which are larger than gaps.
//!
//! Invariants: sizes are the program's and may be anything, so sums and products saturate; a size of 0 anywhere is no bytes. CUDA
//! arrays are no managed memory; at an array's other end, where sizes count the array's elements and not bytes, whole rows are taken.
//!
//! Not here: whether the bytes are managed memory, and what follows ([`crate::copy`]).

use crate::abi::{
    BOX_POINTER, BoxCopy, BoxEnd, DevPtr, DriverCopy2d, DriverCopy3d, DriverEnd2d, DriverEnd3d, Extent, MEMORY_DEVICE,
    MEMORY_HOST, MEMORY_UNIFIED, MemsetNode, PitchedPtr, RuntimeCopy, RuntimeEnd, RuntimePeerCopy,
};
use crate::copy::Copying;
use std::ffi::c_uint;

/// Bytes from an address on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Area {
    /// The first of them.
    pub start: u64,
    /// How many; none is no area.
    pub len: u64,
}

impl Area {
    const NONE: Self = Self { start: 0, len: 0 };
}

/// The most bytes that an element of a CUDA array has: four 32-bit channels.
const ELEMENT: u64 = 16;

/// Rows of bytes within memory.
#[derive(Clone, Copy)]
struct Rows {
    start: DevPtr,
    /// Bytes from the start of a row to the start of the next.
    pitch: usize,
    /// Rows from the start of a layer to the start of the next.
    rows: usize,
    /// Bytes, rows and layers before the first.
    skip: [usize; 3],
}

impl Rows {
    /// Memory that begins with the first row; a pitch of 0 is "no gaps".
    const fn at(start: DevPtr, pitch: usize) -> Self {
        Self { start, pitch, rows: 0, skip: [0; 3] }
    }

    /// The bytes from the first to the last of a box.
    fn area(self, extent: Extent) -> Area {
        let [width, height, depth] = [extent.width, extent.height, extent.depth].map(|n| n as u64);
        if width == 0 || height == 0 || depth == 0 {
            return Area::NONE;
        }
        let or = |given: usize, otherwise: u64| if given == 0 { otherwise } else { given as u64 };
        let pitch = or(self.pitch, width);
        let layer = pitch.saturating_mul(or(self.rows, height));
        let far =
            |x: u64, y: u64, z: u64| x.saturating_add(y.saturating_mul(pitch)).saturating_add(z.saturating_mul(layer));
        let [x, y, z] = self.skip.map(|n| n as u64);
        Area { start: self.start.saturating_add(far(x, y, z)), len: far(width, height - 1, depth - 1) }
    }

    /// The same for a box counted in elements of an unknown size: whole rows.
    fn area_of_elements(self, extent: Extent) -> Area {
        let pitch = if self.pitch == 0 { times(extent.width, ELEMENT) } else { self.pitch };
        let rows = Self { pitch, skip: [0, self.skip[1], self.skip[2]], ..self };
        rows.area(Extent { width: if extent.width == 0 { 0 } else { pitch }, ..extent })
    }
}

fn times(n: usize, by: u64) -> usize {
    usize::try_from((n as u64).saturating_mul(by)).unwrap_or(usize::MAX)
}

const fn line(width: usize) -> Extent {
    sheet(width, 1)
}

const fn sheet(width: usize, height: usize) -> Extent {
    Extent { width, height, depth: 1 }
}

impl RuntimeEnd {
    fn area(&self, extent: Extent, other_is_array: bool) -> Area {
        if !self.array.is_null() {
            return Area::NONE;
        }
        let skip = [self.pos.x, self.pos.y, self.pos.z];
        let rows = Rows { start: self.memory.ptr as u64, pitch: self.memory.pitch, rows: self.memory.ysize, skip };
        if other_is_array { rows.area_of_elements(extent) } else { rows.area(extent) }
    }
}

/// Where the memory is that an end of a driver copy names; nothing for an array.
const fn named(kind: c_uint, host: DevPtr, device: DevPtr) -> Option<DevPtr> {
    match kind {
        MEMORY_HOST => Some(host),
        MEMORY_DEVICE | MEMORY_UNIFIED => Some(device),
        _ => None,
    }
}

impl DriverEnd2d {
    fn area(&self, extent: Extent) -> Area {
        let start = named(self.kind, self.host, self.device);
        start.map_or(Area::NONE, |start| {
            Rows { start, pitch: self.pitch, rows: 0, skip: [self.x, self.y, 0] }.area(extent)
        })
    }
}

impl DriverEnd3d {
    fn area(&self, extent: Extent) -> Area {
        let start = named(self.kind, self.host, self.device);
        start.map_or(Area::NONE, |start| {
            Rows { start, pitch: self.pitch, rows: self.height, skip: [self.x, self.y, self.z] }.area(extent)
        })
    }
}

impl DriverCopy3d {
    /// What it reads, and what it writes.
    pub fn areas(&self) -> [Area; 2] {
        let extent = Extent { width: self.width, height: self.height, depth: self.depth };
        [self.src.area(extent), self.dst.area(extent)]
    }
}

impl RuntimeCopy {
    /// What it reads, and what it writes.
    pub fn areas(&self) -> [Area; 2] {
        ends(&self.src, &self.dst, self.extent)
    }
}

fn ends(src: &RuntimeEnd, dst: &RuntimeEnd, extent: Extent) -> [Area; 2] {
    [src.area(extent, !dst.array.is_null()), dst.area(extent, !src.array.is_null())]
}

impl MemsetNode {
    /// What it writes.
    pub fn area(&self) -> Area {
        Rows::at(self.dst, self.pitch).area(sheet(times(self.width, u64::from(self.element)), self.height))
    }
}

impl BoxEnd {
    fn area(&self, extent: Extent, other: &Self) -> Area {
        if self.kind != BOX_POINTER {
            return Area::NONE;
        }
        let bytes_of_one = if other.kind == BOX_POINTER { 1 } else { ELEMENT };
        let rows = Rows { start: self.address, pitch: times(self.row, bytes_of_one), rows: self.layer, skip: [0; 3] };
        rows.area(Extent { width: times(extent.width, bytes_of_one), ..extent })
    }
}

/// The ways in which a copy or memset is described. Each is called with the arguments of the program's own call; that is also what the
/// unsafe ones ask for.
impl Copying {
    /// So many bytes from one address to another.
    pub fn linear(&mut self, dst: DevPtr, src: DevPtr, bytes: usize) {
        self.reads(Rows::at(src, 0).area(line(bytes)));
        self.writes(Rows::at(dst, 0).area(line(bytes)));
    }

    /// So many bytes of one value.
    pub fn fill(&mut self, dst: DevPtr, bytes: usize) {
        self.fills();
        self.to(dst, bytes);
    }

    /// So many bytes to an address, from a symbol or array.
    pub fn to(&mut self, dst: DevPtr, bytes: usize) {
        self.writes(Rows::at(dst, 0).area(line(bytes)));
    }

    /// So many bytes from an address, to a symbol or array.
    pub fn from(&mut self, src: DevPtr, bytes: usize) {
        self.reads(Rows::at(src, 0).area(line(bytes)));
    }

    /// Rows.
    pub fn rows(&mut self, dst: DevPtr, to: usize, src: DevPtr, from: usize, width: usize, height: usize) {
        self.rows_from(src, from, width, height);
        self.rows_to(dst, to, width, height);
    }

    /// Rows of one value.
    pub fn fill_rows(&mut self, dst: DevPtr, pitch: usize, width: usize, height: usize) {
        self.fills();
        self.rows_to(dst, pitch, width, height);
    }

    /// Rows to memory, from an array.
    pub fn rows_to(&mut self, dst: DevPtr, pitch: usize, width: usize, height: usize) {
        self.writes(Rows::at(dst, pitch).area(sheet(width, height)));
    }

    /// Rows from memory, to an array.
    pub fn rows_from(&mut self, src: DevPtr, pitch: usize, width: usize, height: usize) {
        self.reads(Rows::at(src, pitch).area(sheet(width, height)));
    }

    /// `count` values of `size` bytes.
    pub fn values(&mut self, dst: DevPtr, count: usize, size: u64) {
        self.fill(dst, times(count, size));
    }

    /// Rows of `count` values of `size` bytes.
    pub fn rows_of_values(&mut self, dst: DevPtr, pitch: usize, count: usize, size: u64, height: usize) {
        self.fill_rows(dst, pitch, times(count, size), height);
    }

    /// A box of one value.
    pub fn fill_box(&mut self, dst: PitchedPtr, extent: Extent) {
        self.fills();
        self.writes(Rows { start: dst.ptr as u64, pitch: dst.pitch, rows: dst.ysize, skip: [0; 3] }.area(extent));
    }

    /// As the runtime has it. A description that is null is the driver's to refuse, here and below.
    pub unsafe fn runtime(&mut self, copy: *const RuntimeCopy) {
        // SAFETY: not null, so the program's own description.
        if let Some(copy) = unsafe { copy.as_ref() } {
            self.between(&copy.src, &copy.dst, copy.extent);
        }
    }

    /// As the runtime has it between devices.
    pub unsafe fn runtime_peer(&mut self, copy: *const RuntimePeerCopy) {
        // SAFETY: not null, so the program's own description.
        if let Some(RuntimePeerCopy { src, dst, extent, .. }) = unsafe { copy.as_ref() } {
            self.between(src, dst, *extent);
        }
    }

    fn between(&mut self, src: &RuntimeEnd, dst: &RuntimeEnd, extent: Extent) {
        if !src.array.is_null() || !dst.array.is_null() {
            self.roughly();
        }
        self.both(ends(src, dst, extent));
    }

    fn both(&mut self, [read, written]: [Area; 2]) {
        self.reads(read);
        self.writes(written);
    }

    /// As the driver has it.
    pub unsafe fn driver_2d(&mut self, copy: *const DriverCopy2d) {
        // SAFETY: not null, so the program's own description.
        if let Some(copy) = unsafe { copy.as_ref() } {
            let extent = sheet(copy.width, copy.height);
            self.reads(copy.src.area(extent));
            self.writes(copy.dst.area(extent));
        }
    }

    /// As the driver has it, also between contexts.
    pub unsafe fn driver_3d(&mut self, copy: *const DriverCopy3d) {
        // SAFETY: not null, so the program's own description.
        if let Some(copy) = unsafe { copy.as_ref() } {
            self.both(copy.areas());
        }
    }

    /// A list of linear copies.
    pub unsafe fn batch(&mut self, dsts: *const DevPtr, srcs: *const DevPtr, sizes: *const usize, count: usize) {
        self.several();
        if dsts.is_null() || srcs.is_null() || sizes.is_null() {
            return;
        }
        for i in 0..count {
            // SAFETY: not null, so lists of `count` each.
            let (dst, src, bytes) = unsafe { (*dsts.add(i), *srcs.add(i), *sizes.add(i)) };
            self.linear(dst, src, bytes);
        }
    }

    /// A list of boxes.
    pub unsafe fn boxes(&mut self, list: *const BoxCopy, count: usize) {
        self.several();
        for i in 0..if list.is_null() { 0 } else { count } {
            // SAFETY: not null, so a list of `count`.
            let copy = unsafe { &*list.add(i) };
            self.reads(copy.src.area(copy.extent, &copy.dst));
            self.writes(copy.dst.area(copy.extent, &copy.src));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Pos;

    fn extent(width: usize, height: usize, depth: usize) -> Extent {
        Extent { width, height, depth }
    }

    /// The first byte and the byte behind the last that a copy of a box uses, counted one by one.
    fn counted(rows: Rows, e: Extent) -> (u64, u64) {
        let layer = rows.pitch * rows.rows;
        let places = (0..e.depth).flat_map(|z| (0..e.height).flat_map(move |y| (0..e.width).map(move |x| [x, y, z])));
        let at = |[x, y, z]: [usize; 3]| {
            rows.start + (x + rows.skip[0] + (y + rows.skip[1]) * rows.pitch + (z + rows.skip[2]) * layer) as u64
        };
        let all: Vec<u64> = places.map(at).collect();
        (*all.iter().min().unwrap(), *all.iter().max().unwrap() + 1)
    }

    #[test]
    fn a_box_is_covered_from_its_first_byte_to_its_last() {
        for e in [extent(5, 1, 1), extent(5, 3, 1), extent(8, 2, 4), extent(1, 1, 9)] {
            for skip in [[0, 0, 0], [3, 0, 0], [1, 2, 3]] {
                let rows = Rows { start: 1 << 40, pitch: 16, rows: 7, skip };
                let Area { start, len } = rows.area(e);
                assert_eq!((start, start + len), counted(rows, e), "{e:?} {skip:?}");
            }
        }
    }

    #[test]
    fn nothing_is_nothing_and_nonsense_does_not_overflow() {
        let rows = Rows { start: 1 << 40, pitch: usize::MAX, rows: usize::MAX, skip: [usize::MAX; 3] };
        for e in [extent(0, 1, 1), extent(1, 0, 1), extent(1, 1, 0)] {
            assert_eq!(rows.area(e).len, 0);
            assert_eq!(rows.area_of_elements(e).len, 0);
        }
        assert_eq!(rows.area(extent(usize::MAX, usize::MAX, usize::MAX)).len, u64::MAX);
        // A pitch left out is rows without gaps; layers without a height are as high as the box.
        assert_eq!(Rows::at(64, 0).area(extent(10, 3, 2)), Area { start: 64, len: 60 });
    }

    #[test]
    fn the_memory_at_an_arrays_other_end_is_taken_by_rows() {
        let none = std::ptr::null_mut();
        let memory = PitchedPtr { ptr: 4096 as *mut _, pitch: 512, xsize: 0, ysize: 8 };
        let end = |array| RuntimeEnd { array, pos: Pos { x: 2, y: 1, z: 0 }, memory };
        let e = extent(16, 4, 1);
        assert_eq!(end(none).area(e, true), Area { start: 4096 + 512, len: 4 * 512 });
        assert_eq!(end(none).area(e, false), Area { start: 4096 + 512 + 2, len: 3 * 512 + 16 });
        assert_eq!(end(64 as *mut _).area(e, false), Area::NONE);
        let pointer = BoxEnd { kind: BOX_POINTER, address: 4096, row: 32, layer: 4, hint: 0 };
        let array = BoxEnd { kind: 2, ..pointer };
        assert_eq!(pointer.area(extent(8, 4, 2), &pointer), Area { start: 4096, len: 7 * 32 + 8 });
        assert_eq!(pointer.area(extent(8, 4, 2), &array), Area { start: 4096, len: 16 * (7 * 32 + 8) });
        assert_eq!(array.area(e, &pointer), Area::NONE);
    }

    #[test]
    fn an_end_of_a_driver_copy_is_where_its_kind_says() {
        assert_eq!(named(1, 10, 20), Some(10));
        assert_eq!(named(2, 10, 20), Some(20));
        assert_eq!(named(4, 10, 20), Some(20));
        assert_eq!(named(3, 10, 20), None, "an array");
        assert_eq!(named(0, 10, 20), None);
    }
}
