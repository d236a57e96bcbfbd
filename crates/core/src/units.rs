//! The quantities everything is measured in.
//!
//! A bare `u64` lives only at the edge (a driver structure, a ring word, a C argument). Inside,
//! a byte address cannot meet a block number and a time cannot meet a length.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// A length in bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// `n` times 1024 bytes.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }
    /// `n` times 1024² bytes.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
    /// `n` times 1024³ bytes.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }
    /// The bare number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// `self - other`, or nothing if that would be negative.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
    /// The next multiple of a UM block that holds this many bytes; saturates at the largest one.
    #[must_use]
    pub const fn round_up_to_blocks(self) -> Self {
        let mask = UmBlock::SIZE.0 - 1;
        Self(self.0.saturating_add(mask) & !mask)
    }
}

/// Prints with the largest binary unit that leaves at least one whole one: `1.50 GiB`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shift, unit) = match self.0 {
            n if n >= 1 << 40 => (40, "TiB"),
            n if n >= 1 << 30 => (30, "GiB"),
            n if n >= 1 << 20 => (20, "MiB"),
            n if n >= 1 << 10 => (10, "KiB"),
            n => return write!(f, "{n} B"),
        };
        write!(f, "{:.2} {unit}", self.0 as f64 / (1u64 << shift) as f64)
    }
}

/// A point in time or a duration, in nanoseconds of whichever clock the world has: the
/// monotonic raw clock on a real GPU, virtual time on the emulated device.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Time zero, or no time at all.
    pub const ZERO: Self = Self(0);

    /// `n` microseconds.
    pub const fn micros(n: u64) -> Self {
        Self(n * 1_000)
    }
    /// The bare number of nanoseconds.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// `self - earlier`, or zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_sub(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

macro_rules! additive {
    ($($unit:ident),*) => {$(
        impl Add for $unit {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl AddAssign for $unit {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl Sub for $unit {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl SubAssign for $unit {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }
    )*};
}
additive!(Bytes, Nanos);

/// An address in the GPU's (and, for managed memory, also the host's) virtual address space.
/// Only a number: nothing in this crate can read through it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DevAddr(pub u64);

impl DevAddr {
    /// The bare address.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// The address `by` bytes further on; saturates at the end of the address space.
    #[must_use]
    pub const fn offset(self, by: Bytes) -> Self {
        Self(self.0.saturating_add(by.0))
    }
}

impl fmt::Debug for DevAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A half-open piece of address space: `start`, and `len` bytes from there.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AddrRange {
    /// First address inside.
    pub start: DevAddr,
    /// Number of bytes inside.
    pub len: Bytes,
}

impl AddrRange {
    /// The range of `len` bytes at `start`.
    pub const fn new(start: DevAddr, len: Bytes) -> Self {
        Self { start, len }
    }
    /// First address past the end.
    pub const fn end(self) -> DevAddr {
        self.start.offset(self.len)
    }
    /// Whether no byte is inside.
    pub const fn is_empty(self) -> bool {
        self.len.0 == 0
    }
    /// Whether `addr` is inside.
    pub const fn contains(self, addr: DevAddr) -> bool {
        addr.0 >= self.start.0 && addr.0 < self.end().0
    }
    /// Whether all of the block is inside.
    pub const fn covers(self, block: UmBlock) -> bool {
        self.start.0 <= block.start().0 && block.range().end().0 <= self.end().0
    }
    /// Every UM block of which at least one byte is inside, lowest first.
    pub fn blocks(self) -> impl DoubleEndedIterator<Item = UmBlock> + ExactSizeIterator + Clone {
        let first = UmBlock::containing(self.start).0;
        let end = if self.is_empty() { first } else { UmBlock::containing(DevAddr(self.end().0 - 1)).0 + 1 };
        let index = |n: u64| usize::try_from(n).expect("block numbers are below 2^43");
        (index(first)..index(end)).map(|n| UmBlock(n as u64))
    }
}

/// A UM block: a 2 MiB-aligned, 2 MiB long piece of managed address space, the driver's
/// `va_block`. The number is the address divided by 2 MiB.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct UmBlock(pub u64);

impl UmBlock {
    /// 2 MiB.
    pub const SIZE: Bytes = Bytes::mib(2);
    /// Pages of 4 KiB in a block.
    pub const PAGES: u32 = 512;

    /// The block that `addr` lies in.
    pub const fn containing(addr: DevAddr) -> Self {
        Self(addr.0 / Self::SIZE.0)
    }
    /// Its first address.
    pub const fn start(self) -> DevAddr {
        DevAddr(self.0 * Self::SIZE.0)
    }
    /// All of it.
    pub const fn range(self) -> AddrRange {
        AddrRange::new(self.start(), Self::SIZE)
    }
}

/// What a launch *is*: a hash of kernel, shape and arguments. Equal keys get the same [`ExecId`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LaunchKey(pub u64);

/// A kernel, whatever it works on: a hash of its name and of the operation it is launched for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct KernelId(pub u64);

/// A small dense integer for "the same kernel on the same data" (DeepUM's execution ID).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ExecId(pub u32);

/// Position of a launch in its device's sequence of launches, counted from 1; 0 is "none yet".
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LaunchSeq(pub u64);

impl LaunchSeq {
    /// The launch `n` later.
    #[must_use]
    pub const fn plus(self, n: u64) -> Self {
        Self(self.0 + n)
    }
}

/// A stream, as a small index given out by the shim (index of its progress word).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StreamSlot(pub u16);

impl StreamSlot {
    /// A stream without a progress word.
    pub const NONE: Self = Self(u16::MAX);
}

/// A GPU of the node, by CUDA ordinal.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DeviceId(pub u8);

/// Where bytes can be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Place {
    /// Host memory.
    Host,
    /// The memory of a GPU.
    Device(DeviceId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_covers_every_block_it_touches_and_no_other() {
        let mib = Bytes::mib(1).0;
        let r = AddrRange::new(DevAddr(mib), Bytes(2 * mib));
        assert_eq!(r.blocks().collect::<Vec<_>>(), [UmBlock(0), UmBlock(1)]);
        let exact = AddrRange::new(DevAddr(2 * mib), Bytes(2 * mib));
        assert_eq!(exact.blocks().collect::<Vec<_>>(), [UmBlock(1)]);
        assert_eq!(AddrRange::new(DevAddr(5), Bytes::ZERO).blocks().len(), 0);
    }

    #[test]
    fn rounding_to_blocks_saturates_instead_of_wrapping() {
        assert_eq!(Bytes(1).round_up_to_blocks(), UmBlock::SIZE);
        assert_eq!(UmBlock::SIZE.round_up_to_blocks(), UmBlock::SIZE);
        assert_eq!(Bytes(u64::MAX).round_up_to_blocks().0, !(UmBlock::SIZE.0 - 1));
    }

    #[test]
    fn bytes_print_for_people() {
        assert_eq!(Bytes(512).to_string(), "512 B");
        assert_eq!(Bytes::mib(1536).to_string(), "1.50 GiB");
    }
}
