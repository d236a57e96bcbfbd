//! Where bytes are in this process, and moving them.
//!
//! Device memory lies at its address + [`SHADOW`]; host memory at its address. Managed memory lies at its address, but
//! in data mode the pages that the model has on a device lie at + `SHADOW` (those with two copies on both sides; the device's are read), and a page that left a place is overwritten
//! with [`POISON`] there. A move that the model forgot, doubled, or made at the wrong moment then changes a result.
//!
//! The program's own addresses are claims: a copy from or to a bad pointer kills the program here as it would there.

use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use deepum_core::units::{AddrRange, Bytes, DevAddr, Place, UmBlock};
use deepum_model::{PageMask, PageOp, UnifiedMemory};

use crate::space::{Allocation, Kind, SHADOW, Space};
use crate::truth::DeviceView;
use crate::word;
use crate::work::{Copy, Direction, Fill, Word};

/// What lost bytes read as.
pub const POISON: u8 = 0xDB;
const PAGE: u64 = 4096;

/// The bytes of the process as the device sees them now.
#[derive(Clone, Copy, Debug)]
pub struct ByteView<'a> {
    /// Who owns which address.
    pub space: &'a Space,
    /// Which managed page is where.
    pub memory: &'a UnifiedMemory,
    /// Data mode.
    pub data: bool,
}

impl ByteView<'_> {
    /// Where the bytes at `addr` are, and for how many of `len` bytes this holds.
    fn place(&self, addr: u64, len: u64) -> (u64, u64) {
        let Some(found) = self.space.find(DevAddr(addr)) else { return (addr, len) };
        let len = len.min(found.range.end().0 - addr);
        match found.kind {
            Kind::Device | Kind::Pool | Kind::Mapped => (addr + SHADOW, len),
            Kind::Managed if self.data => {
                let block = UmBlock::containing(DevAddr(addr));
                #[expect(clippy::cast_possible_truncation, reason = "an offset inside a block, in pages")]
                let page = ((addr - block.start().0) / PAGE) as u32;
                let on_host = self.memory.only_on_host(block).contains(page);
                let len = len.min(PAGE - addr % PAGE);
                (if on_host { addr } else { addr + SHADOW }, len)
            }
            _ => (addr, len),
        }
    }

    /// Where the host's copy of a managed byte is, if there is one beside the device's.
    fn other_copy(&self, addr: u64) -> Option<u64> {
        let managed = || self.space.find(DevAddr(addr)).is_some_and(|found| matches!(found.kind, Kind::Managed));
        let block = UmBlock::containing(DevAddr(addr));
        let two = self.memory.with_two_copies(block);
        #[expect(clippy::cast_possible_truncation, reason = "an offset inside a block, in pages")]
        let page = ((addr - block.start().0) / PAGE) as u32;
        (self.data && two.contains(page) && managed()).then_some(addr)
    }

    /// Calls `f(pointer, offset, length)` for each piece of `[addr, addr + len)` that is contiguous in this process.
    fn pieces(&self, addr: u64, len: u64, mut f: impl FnMut(*mut u8, usize, usize)) {
        let mut done = 0;
        while done < len {
            let (at, n) = self.place(addr + done, len - done);
            f(ptr::with_exposed_provenance_mut(word(at)), word(done), word(n));
            done += n;
        }
    }

    /// Reads `out.len()` bytes at `addr`.
    ///
    /// # Safety
    /// `addr` lies in a live allocation, or is memory of the program that may be read, for that length.
    pub unsafe fn read(&self, addr: DevAddr, out: &mut [u8]) {
        self.pieces(addr.0, out.len() as u64, |from, at, n| {
            // SAFETY: readable by the caller's promise or mapped by our address space; `out` has room for `at + n`.
            // `copy` and not `copy_nonoverlapping`: the program may name its own buffer twice.
            unsafe { ptr::copy(from, out.as_mut_ptr().add(at), n) }
        });
    }

    /// Writes `bytes` at `addr`.
    ///
    /// # Safety
    /// As for [`Self::read`], for writing.
    pub unsafe fn write(&self, addr: DevAddr, bytes: &[u8]) {
        self.pieces(addr.0, bytes.len() as u64, |to, at, n| {
            // SAFETY: writable by the caller's promise or mapped by our address space; `bytes` has `at + n` bytes.
            unsafe { ptr::copy(bytes.as_ptr().add(at), to, n) }
            // Whoever writes is done with the page since it had one copy; the other was made afterwards, of what was written.
            if let Some(other) = self.other_copy(addr.0 + at as u64) {
                // SAFETY: as above; in data mode both sides of a managed page are mapped, and a piece does not reach across pages.
                unsafe { ptr::copy(bytes.as_ptr().add(at), ptr::with_exposed_provenance_mut(word(other)), n) }
            }
        });
    }

    /// Whether `addr` for `len` bytes lies in one allocation of ours.
    #[must_use]
    pub fn owned(&self, addr: DevAddr, len: u64) -> bool {
        self.space.holding(AddrRange::new(addr, Bytes(len))).is_some()
    }

    /// The word at `word.addr`, or 0 if that is no memory of ours any more.
    #[must_use]
    pub fn word(&self, word: Word) -> u64 {
        self.word_at(word, |at, wide| {
            // SAFETY: the word lies in a live allocation and is aligned (checked by `word_at`); the program may store
            // to it at the same time, so all accesses are atomic.
            unsafe {
                if wide {
                    AtomicU64::from_ptr(at.cast()).load(Ordering::Acquire)
                } else {
                    u64::from(AtomicU32::from_ptr(at.cast()).load(Ordering::Acquire))
                }
            }
        })
        .unwrap_or(0)
    }

    /// Stores `word.value` at `word.addr`, unless that is no memory of ours any more.
    pub fn set_word(&self, word: Word) {
        self.word_at(word, |at, wide| {
            // SAFETY: as in `word`.
            unsafe {
                if wide {
                    AtomicU64::from_ptr(at.cast()).store(word.value, Ordering::Release);
                } else {
                    #[expect(clippy::cast_possible_truncation, reason = "a narrow word has only its low half")]
                    AtomicU32::from_ptr(at.cast()).store(word.value as u32, Ordering::Release);
                }
            }
        });
    }

    fn word_at<R>(&self, word: Word, f: impl FnOnce(*mut u8, bool) -> R) -> Option<R> {
        let len = if word.wide { 8 } else { 4 };
        (self.owned(word.addr, len) && word.addr.0.is_multiple_of(len)).then(|| {
            let (at, _) = self.place(word.addr.0, len);
            f(ptr::with_exposed_provenance_mut(crate::word(at)), word.wide)
        })
    }

    /// The source bytes of `copy`, rows without gaps.
    ///
    /// # Safety
    /// The source may be read.
    pub unsafe fn gather(&self, copy: &Copy) -> Vec<u8> {
        let width = word(copy.width);
        let mut bytes = vec![0; width * word(copy.height)];
        for (row, out) in (0..copy.height).zip(bytes.chunks_exact_mut(width.max(1))) {
            // SAFETY: within the source, which the caller vouches for.
            unsafe { self.read(DevAddr(copy.src.0 + row * copy.src_pitch), out) };
        }
        bytes
    }

    /// Carries out `copy`.
    ///
    /// # Safety
    /// Its source may be read (unless staged) and its target written.
    pub unsafe fn copy(&self, copy: &Copy) {
        if copy.bytes().0 == 0 {
            return;
        }
        let taken;
        let bytes = match &copy.staged {
            Some(staged) => staged,
            None => {
                // SAFETY: the caller vouches for the source.
                taken = unsafe { self.gather(copy) };
                &taken
            }
        };
        for (row, piece) in (0..).zip(bytes.chunks_exact(word(copy.width))) {
            // SAFETY: within the target, which the caller vouches for.
            unsafe { self.write(DevAddr(copy.dst.0 + row * copy.dst_pitch), piece) };
        }
    }

    /// Carries out `fill`.
    ///
    /// # Safety
    /// Its target may be written.
    pub unsafe fn fill(&self, fill: &Fill) {
        let unit = usize::from(fill.unit).clamp(1, 4);
        let pattern = fill.value.to_le_bytes();
        let mut row = pattern[..unit].repeat(word(fill.width).div_ceil(unit));
        row.truncate(word(fill.width));
        for n in 0..fill.height {
            // SAFETY: within the target, which the caller vouches for.
            unsafe { self.write(DevAddr(fill.dst.0 + n * fill.pitch), &row) };
        }
    }
}

impl DeviceView for ByteView<'_> {
    fn allocation(&self, addr: DevAddr) -> Option<AddrRange> {
        self.space.find(addr).map(Allocation::known).filter(|known| known.contains(addr))
    }

    fn read(&self, addr: DevAddr, out: &mut [u8]) -> bool {
        let owned = self.owned(addr, out.len() as u64);
        if owned {
            // SAFETY: all of it lies in one live allocation.
            unsafe { ByteView::read(self, addr, out) };
        }
        owned
    }
}

/// Which way a copy goes, from where its ends are.
#[must_use]
pub fn direction(space: &Space, dst: DevAddr, src: DevAddr) -> Direction {
    let on_device = |addr| space.find(addr).is_some_and(|a| a.kind.is_of_device() || a.kind == Kind::Managed);
    match (on_device(src), on_device(dst)) {
        (false, true) => Direction::ToDevice,
        (true, false) => Direction::ToHost,
        (true, true) => Direction::OnDevice,
        (false, false) => Direction::OnHost,
    }
}

/// Carries out what the model did to pages. Data mode only.
pub fn apply(op: &PageOp) {
    let each = |block: UmBlock, pages: PageMask, f: &dyn Fn(*mut u8, *mut u8, usize)| {
        for (first, count) in pages.runs() {
            let at = word(block.start().0 + u64::from(first) * PAGE);
            let host = ptr::with_exposed_provenance_mut(at);
            let device = ptr::with_exposed_provenance_mut(at + word(SHADOW));
            f(host, device, word(u64::from(count) * PAGE));
        }
    };
    let set = |place: Place, value: u8| {
        move |host: *mut u8, device: *mut u8, len: usize| {
            let at = if place == Place::Host { host } else { device };
            // SAFETY: the model only speaks of managed pages that are mapped; in data mode the address space maps
            // both sides of them, and nobody holds a reference into either.
            unsafe { ptr::write_bytes(at, value, len) }
        }
    };
    match *op {
        PageOp::Populated { block, pages, place } => each(block, pages, &set(place, 0)),
        PageOp::Discarded { block, pages, place } | PageOp::Dropped { block, pages, place } => {
            each(block, pages, &set(place, POISON));
        }
        PageOp::MovedDiscarded { block, pages, from, to } => {
            each(block, pages, &set(from, POISON));
            each(block, pages, &set(to, POISON));
        }
        // Devices share one shadow: between them nothing has to move, and what one forgets another has.
        PageOp::Moved { from: Place::Device(_), to: Place::Device(_), .. }
        | PageOp::Copied { from: Place::Device(_), to: Place::Device(_), .. }
        | PageOp::Forgotten { place: Place::Device(_), kept: Place::Device(_), .. } => {}
        PageOp::Forgotten { block, pages, place, .. } => each(block, pages, &set(place, POISON)),
        PageOp::Copied { block, pages, to, .. } => each(block, pages, &|host, device, len| {
            let (from, into) = if to == Place::Host { (device, host) } else { (host, device) };
            // SAFETY: as in `set`; the two sides are SHADOW apart and so never overlap.
            unsafe { ptr::copy_nonoverlapping(from, into, len) }
        }),
        PageOp::Moved { block, pages, to, .. } => each(block, pages, &|host, device, len| {
            let (from, into) = if to == Place::Host { (device, host) } else { (host, device) };
            // SAFETY: as in `set`; the two sides are SHADOW apart and so never overlap.
            unsafe {
                ptr::copy_nonoverlapping(from, into, len);
                ptr::write_bytes(from, POISON, len);
            }
        }),
    }
}
