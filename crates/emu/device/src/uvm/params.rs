//! Parameter structs as bytes, and what the driver checks of words in them before anything else.

use super::sys::{self, NvStatus};
use deepum_core::units::{AddrRange, Bytes, DevAddr};
use deepum_model::Group;
use std::os::fd::RawFd;

/// A parameter struct, copied in.
pub(super) struct Params {
    pub(super) bytes: Vec<u8>,
}

impl Params {
    pub(super) fn u32(&self, at: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.bytes[at..at + 4]);
        u32::from_le_bytes(word)
    }
    pub(super) fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) | u64::from(self.u32(at + 4)) << 32
    }
    pub(super) fn fd(&self, at: usize) -> RawFd {
        self.u32(at).cast_signed()
    }
    pub(super) fn uuid(&self, at: usize) -> [u8; 16] {
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&self.bytes[at..at + 16]);
        uuid
    }
    pub(super) fn put_u64(&mut self, at: usize, value: u64) {
        self.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    pub(super) fn put_u32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

/// A node of the host: -1 is any; the emulated machine has node 0 alone.
pub(super) fn node(node: u32) -> Result<(), NvStatus> {
    matches!(node, 0 | u32::MAX).then_some(()).ok_or(NvStatus::INVALID_ARGUMENT)
}

/// The groups that a request names: at least one, and no more than there is room for.
pub(super) fn groups(params: &Params) -> Result<Vec<Group>, NvStatus> {
    let count = usize::try_from(params.u64(8 * sys::GROUPS)).ok().filter(|count| (1..=sys::GROUPS).contains(count));
    let count = count.ok_or(NvStatus::INVALID_ARGUMENT)?;
    Ok((0..count).map(|at| Group(params.u64(8 * at))).collect())
}

/// The driver's `uvm_api_range_invalid`.
pub(super) fn whole_pages(base: u64, len: u64) -> Result<AddrRange, NvStatus> {
    let whole = base.is_multiple_of(4096) && len.is_multiple_of(4096);
    if !whole || base == 0 || len == 0 || base.checked_add(len).is_none() {
        return Err(NvStatus::INVALID_ADDRESS);
    }
    Ok(AddrRange::new(DevAddr(base), Bytes(len)))
}
