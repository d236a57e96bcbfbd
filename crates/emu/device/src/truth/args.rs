//! Reading a launch's parameter bytes: little-endian words at stated places, never past the end.

use super::KernelCall;
use super::name::{Signature, element_size, pointee};
use super::touches::{Access, Touches};

/// The bytes of one parameter, or of a struct inside one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a>(pub(super) &'a [u8]);

impl<'a> Words<'a> {
    pub(super) fn len(self) -> usize {
        self.0.len()
    }
    /// What lies from `at` on.
    pub(super) fn from(self, at: usize) -> Option<Self> {
        self.0.get(at..).map(Words)
    }
    pub(super) fn u8(self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }
    pub(super) fn u16(self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }
    pub(super) fn u32(self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }
    pub(super) fn u64(self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }
    pub(super) fn i64(self, at: usize) -> Option<i64> {
        self.u64(at).map(u64::cast_signed)
    }
    /// A number of `size` bytes that says how many; negative ones are no counts.
    pub(super) fn count(self, at: usize, size: u32) -> Option<u64> {
        match size {
            1 => self.u8(at).map(u64::from),
            2 => self.u16(at).map(u64::from),
            4 => u64::try_from(self.u32(at)?.cast_signed()).ok(),
            8 => u64::try_from(self.i64(at)?).ok(),
            _ => None,
        }
    }
}

/// The product of `of`, if it is a number of bytes or elements that can be.
pub(super) fn product(of: &[u64]) -> Option<u64> {
    of.iter().try_fold(1u64, |product, &n| product.checked_mul(n))
}

/// A launch whose layout agrees with its signature.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch<'a> {
    pub(super) call: &'a KernelCall<'a>,
    pub(super) signature: &'a Signature,
}

impl<'a> Launch<'a> {
    /// The bytes of parameter `n`.
    pub(super) fn param(&self, n: usize) -> Option<Words<'a>> {
        let p = self.call.layout.get(n)?;
        let start = p.offset as usize;
        self.call.params.get(start..start.checked_add(p.size as usize)?).map(Words)
    }
    /// Parameter `n`, a pointer.
    pub(super) fn pointer(&self, n: usize) -> Option<u64> {
        self.param(n)?.u64(0)
    }
    /// Parameter `n`, a number that says how many.
    pub(super) fn count(&self, n: usize) -> Option<u64> {
        self.param(n)?.count(0, self.call.layout.get(n)?.size)
    }
    /// The product of several counts.
    pub(super) fn product(&self, of: &[usize]) -> Option<u64> {
        of.iter().try_fold(1u64, |product, &n| product.checked_mul(self.count(n)?))
    }
    /// Element size of pointer parameter `n`.
    pub(super) fn element(&self, n: usize) -> Option<u64> {
        pointee(self.signature.params.get(n)?).and_then(|(t, _)| element_size(t)).map(u64::from)
    }
    /// How a kernel uses pointer parameter `n`: `const` is read, anything else is written.
    pub(super) fn access(&self, n: usize) -> Option<Access> {
        pointee(self.signature.params.get(n)?).map(|(_, constant)| if constant { Access::Read } else { Access::Write })
    }
    /// Touches `count` elements behind pointer parameter `n`, as its `const` says.
    pub(super) fn dense(&self, out: &mut Touches<'_>, n: usize, count: u64) -> Option<()> {
        self.dense_as(out, n, count, self.access(n)?)
    }
    /// Touches `count` elements behind pointer parameter `n`.
    pub(super) fn dense_as(&self, out: &mut Touches<'_>, n: usize, count: u64, access: Access) -> Option<()> {
        out.dense(self.pointer(n)?, count.checked_mul(self.element(n)?)?, access);
        Some(())
    }
    /// Number of thread blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.call.grid.iter().map(|&n| u64::from(n)).product()
    }
    /// Threads per block.
    pub(super) fn threads(&self) -> u64 {
        self.call.block.iter().map(|&n| u64::from(n)).product()
    }
}
