//! The arguments of a launch: what makes it the same launch as another one, and where it may reach.
//!
//! Problem: arguments are bytes. Which of them are pointers is known to nobody but the kernel's source, and structures by
//! value hide pointers at any depth.
//!
//! Idea: read them by the kernel's own layout ([`crate::names`]); each 8-byte word at a place where a pointer can lie, and
//! whose value falls into managed memory, counts as one. A number that looks like one names a block too many, at worst.
//!
//! Invariants: nothing outside a parameter is read; a launch allocates nothing; pointers come in argument order, each once.

use crate::abi::{PARAM_BUFFER, PARAM_BUFFER_SIZE, PARAM_END, Ptr};
use crate::map::BlockMap;
use crate::names::Param;
use deepum_config::ExecIdMode;
use deepum_core::exec_id::{Shape, StablePointer, pointer_key, raw_key};
use deepum_core::units::{DevAddr, LaunchKey};
use deepum_protocol::ring::MAX_POINTERS;
use std::mem::MaybeUninit;

/// How a launch hands in its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arguments {
    /// One address per parameter.
    Each(*const Ptr),
    /// All of them packed, so many bytes.
    Packed(*const u8, usize),
    /// In a way we do not know.
    Hidden,
}

impl Arguments {
    /// A driver launch's: one by one, or packed in the way of `CU_LAUNCH_PARAM_BUFFER_POINTER`.
    ///
    /// # Safety
    /// Both are as the program handed them to the driver.
    pub unsafe fn of_driver(params: *mut Ptr, extra: *mut Ptr) -> Self {
        if !params.is_null() || extra.is_null() {
            return Self::Each(params);
        }
        let (mut start, mut len) = (std::ptr::null::<u8>(), 0usize);
        // Two pairs and an end is all there can be.
        for pair in 0..2 {
            // SAFETY: `extra` is a list of (tag, value) pairs that a tag of END closes; we stop there.
            let tag = unsafe { *extra.add(2 * pair) } as usize;
            if tag == PARAM_END {
                break;
            }
            // SAFETY: a tag other than END has a value behind it.
            let value = unsafe { *extra.add(2 * pair + 1) };
            match tag {
                PARAM_BUFFER => start = value.cast_const().cast(),
                // SAFETY: the value of this tag is the address of a size.
                PARAM_BUFFER_SIZE if !value.is_null() => len = unsafe { *value.cast::<usize>() },
                _ => return Self::Hidden,
            }
        }
        Self::Packed(start, if start.is_null() { 0 } else { len })
    }

    /// The key of a launch with these arguments; its managed pointers are gathered on the way.
    ///
    /// # Safety
    /// These are the arguments of a launch in progress, of a kernel whose parameters lie as `layout` says.
    #[inline]
    pub unsafe fn key(
        self,
        layout: &[Param],
        identity: u64,
        shape: Shape,
        mode: ExecIdMode,
        map: &BlockMap,
        pointers: &mut Pointers,
    ) -> LaunchKey {
        // SAFETY: handed on from the caller.
        let bytes = || unsafe { self.slices(layout) };
        let places = bytes().flat_map(|(offset, bytes)| words(offset, bytes)).filter_map(|word| {
            let placed = map.find(DevAddr(word))?;
            pointers.add(DevAddr(word));
            (!placed.alone).then_some(StablePointer { allocation: placed.ordinal, block: placed.block })
        });
        match mode {
            ExecIdMode::Pointers => pointer_key(identity, shape, places),
            ExecIdMode::Raw => {
                places.for_each(drop);
                raw_key(identity, bytes().map(|(_, bytes)| bytes))
            }
        }
    }

    /// The bytes of each parameter, with its place in the parameter block.
    ///
    /// # Safety
    /// As [`Self::key`].
    unsafe fn slices(self, layout: &[Param]) -> impl Iterator<Item = (usize, &[u8])> {
        layout.iter().enumerate().filter_map(move |(i, param)| {
            let start = match self {
                Self::Each(list) if !list.is_null() => {
                    // SAFETY: a launch hands in one address per parameter of the kernel.
                    let start = unsafe { *list.add(i) };
                    start.cast_const().cast::<u8>()
                }
                Self::Packed(start, len) if param.offset + param.size <= len => {
                    // SAFETY: inside the packed block, by the line above.
                    unsafe { start.add(param.offset) }
                }
                _ => std::ptr::null(),
            };
            // SAFETY: the address is that of a parameter of this size, readable while the launch is in progress.
            (!start.is_null()).then(|| (param.offset, unsafe { std::slice::from_raw_parts(start, param.size) }))
        })
    }
}

/// The 8-byte words of a parameter at the places where the parameter block can hold a pointer.
fn words(offset: usize, bytes: &[u8]) -> impl Iterator<Item = u64> {
    let skip = offset.wrapping_neg() % 8;
    bytes.get(skip..).unwrap_or_default().as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word))
}

/// The managed pointers of one launch, in order, without repeats. On the stack, and not even zeroed.
pub struct Pointers {
    list: [MaybeUninit<DevAddr>; MAX_POINTERS],
    len: usize,
    left_out: u64,
    /// One bit per hash: a pointer whose bit is clear was certainly not seen.
    seen: [u64; 16],
}

impl Pointers {
    /// None yet.
    pub const fn new() -> Self {
        Self { list: [const { MaybeUninit::uninit() }; MAX_POINTERS], len: 0, left_out: 0, seen: [0; 16] }
    }

    /// Adds one, unless it is there.
    #[inline]
    fn add(&mut self, pointer: DevAddr) {
        let hash = pointer.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        let (word, bit) = (&mut self.seen[(hash >> 6) as usize], 1 << (hash & 63));
        let maybe = *word & bit != 0;
        *word |= bit;
        if maybe && self.list().contains(&pointer) {
            return;
        }
        if self.len == MAX_POINTERS {
            self.left_out += 1;
            return;
        }
        self.list[self.len].write(pointer);
        self.len += 1;
    }

    /// All of them.
    pub fn list(&self) -> &[DevAddr] {
        // SAFETY: the first `len` were written by `add`, and MaybeUninit<T> lies as T does.
        unsafe { std::slice::from_raw_parts(self.list.as_ptr().cast(), self.len) }
    }

    /// How many found no room.
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepum_core::units::{AddrRange, Bytes, UmBlock};

    const BASE: u64 = 0x6000_0000_0000;
    const SHAPE: Shape = Shape { grid: [8, 1, 1], block: [256, 1, 1] };

    fn map() -> Box<BlockMap> {
        let map = Box::new(BlockMap::new());
        map.insert(AddrRange::new(DevAddr(BASE), Bytes(4 * UmBlock::SIZE.0)), 3);
        map
    }

    fn gather(layout: &[Param], arguments: Arguments, mode: ExecIdMode) -> (LaunchKey, Vec<u64>) {
        let mut pointers = Pointers::new();
        // SAFETY: the callers below hand in arguments that lie as their layout says.
        let key = unsafe { arguments.key(layout, 42, SHAPE, mode, &map(), &mut pointers) };
        assert_eq!(pointers.left_out(), 0);
        (key, pointers.list().iter().map(|p| p.0).collect())
    }

    fn packed(layout: &[Param], bytes: &[u8], mode: ExecIdMode) -> (LaunchKey, Vec<u64>) {
        gather(layout, Arguments::Packed(bytes.as_ptr(), bytes.len()), mode)
    }

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    #[test]
    fn pointers_are_found_in_structures_and_named_once_in_order() {
        let layout = [Param { offset: 0, size: 24 }, Param { offset: 24, size: 4 }, Param { offset: 32, size: 16 }];
        let block = bytes(&[BASE + 4096, 7, BASE, u64::MAX, BASE + 4096, BASE + 8 * UmBlock::SIZE.0]);
        let (_, found) = packed(&layout, &block, ExecIdMode::Pointers);
        assert_eq!(found, [BASE + 4096, BASE]);
    }

    #[test]
    fn one_by_one_and_packed_are_the_same_launch() {
        let layout = [Param { offset: 0, size: 8 }, Param { offset: 8, size: 4 }, Param { offset: 16, size: 8 }];
        let (a, n, b) = (BASE + 8, 5u32, BASE + 16);
        let list: [Ptr; 3] = [(&raw const a) as Ptr, (&raw const n) as Ptr, (&raw const b) as Ptr];
        let block = bytes(&[a, 5, b]);
        for mode in [ExecIdMode::Pointers, ExecIdMode::Raw] {
            let each = gather(&layout, Arguments::Each(list.as_ptr()), mode);
            assert_eq!(each, packed(&layout, &block, mode), "{mode}");
            assert_eq!(each.1, [a, b]);
        }
    }

    #[test]
    fn a_pointer_is_looked_for_only_where_one_can_lie() {
        // A structure of 4-byte alignment at offset 4: a pointer inside could only begin at offset 8 of the block.
        let layout = [Param { offset: 4, size: 16 }];
        let mut block = vec![0u8; 20];
        block[8..16].copy_from_slice(&BASE.to_ne_bytes());
        assert_eq!(packed(&layout, &block, ExecIdMode::Pointers).1, [BASE]);
        block[8..16].fill(0);
        block[4..12].copy_from_slice(&BASE.to_ne_bytes());
        assert_eq!(packed(&layout, &block, ExecIdMode::Pointers).1, [0; 0]);
    }

    #[test]
    fn scalars_change_the_raw_key_only() {
        let layout = [Param { offset: 0, size: 8 }, Param { offset: 8, size: 8 }];
        let key = |pointer: u64, scalar: u64, mode| packed(&layout, &bytes(&[pointer, scalar]), mode).0;
        assert_eq!(key(BASE, 1, ExecIdMode::Pointers), key(BASE, 2, ExecIdMode::Pointers));
        assert_ne!(key(BASE, 1, ExecIdMode::Raw), key(BASE, 2, ExecIdMode::Raw));
        let next_block = BASE + UmBlock::SIZE.0;
        assert_eq!(key(BASE, 1, ExecIdMode::Pointers), key(BASE + 8, 1, ExecIdMode::Pointers), "the same UM block");
        assert_ne!(key(BASE, 1, ExecIdMode::Pointers), key(next_block, 1, ExecIdMode::Pointers));
    }

    #[test]
    fn nothing_is_read_past_what_was_handed_in() {
        let layout = [Param { offset: 0, size: 8 }, Param { offset: 8, size: 8 }];
        assert_eq!(packed(&layout, &bytes(&[BASE]), ExecIdMode::Pointers).1, [BASE]);
        assert_eq!(gather(&layout, Arguments::Each(std::ptr::null()), ExecIdMode::Pointers).1, [0; 0]);
        assert_eq!(gather(&layout, Arguments::Hidden, ExecIdMode::Raw).1, [0; 0]);
    }

    #[test]
    fn hundreds_of_pointers_are_all_there_and_more_are_counted() {
        let many: Vec<u64> = (0..1500).map(|n| BASE + n % 1100 * 512).collect();
        let layout = [Param { offset: 0, size: 12_000 }];
        let mut pointers = Pointers::new();
        let block = bytes(&many);
        let arguments = Arguments::Packed(block.as_ptr(), block.len());
        // SAFETY: the one parameter is the whole block.
        unsafe { arguments.key(&layout, 1, SHAPE, ExecIdMode::Pointers, &map(), &mut pointers) };
        let want: Vec<DevAddr> = many[..MAX_POINTERS].iter().map(|&p| DevAddr(p)).collect();
        assert_eq!(pointers.list(), want);
        // 76 new ones after the first 1,024; a repeat of one that found no room is counted again.
        assert_eq!(pointers.left_out(), 76);
    }

    #[test]
    fn the_extra_list_is_read_as_the_driver_reads_it() {
        let block = bytes(&[BASE]);
        let size = block.len();
        let start = block.as_ptr() as Ptr;
        let len = (&raw const size) as Ptr;
        let tag = |n: usize| n as Ptr;
        let of = |mut list: Vec<Ptr>| {
            // SAFETY: each list is closed by END or has two pairs.
            unsafe { Arguments::of_driver(std::ptr::null_mut(), list.as_mut_ptr()) }
        };
        let whole = Arguments::Packed(block.as_ptr(), size);
        assert_eq!(of(vec![tag(1), start, tag(2), len, tag(0)]), whole);
        assert_eq!(of(vec![tag(2), len, tag(1), start, tag(0)]), whole);
        assert_eq!(of(vec![tag(0)]), Arguments::Packed(std::ptr::null(), 0));
        assert_eq!(of(vec![tag(9), start, tag(0)]), Arguments::Hidden);
    }
}
