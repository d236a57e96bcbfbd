//! Why an operation is refused.

use crate::groups::Group;
use deepum_core::units::{AddrRange, Bytes, DeviceId, Place};

/// Why an operation was refused. Nothing has changed then, unless the operation says otherwise.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModelError {
    /// The device or the host has no room left for this many bytes.
    #[error("out of memory on {place:?}: {wanted} asked for, {free} free")]
    OutOfMemory {
        /// Where.
        place: Place,
        /// How much was wanted.
        wanted: Bytes,
        /// How much there is.
        free: Bytes,
    },
    /// A range for which advice was given that is not made of whole UM blocks.
    #[error("{range:?} is not made of whole 2 MiB blocks")]
    PartOfBlock {
        /// What was named.
        range: AddrRange,
    },
    /// Not wholly inside managed ranges.
    #[error("{range:?} is not wholly managed memory")]
    NotManaged {
        /// What was named.
        range: AddrRange,
    },
    /// A range to be mapped that is empty, not made of whole UM blocks, or overlaps a managed range.
    #[error("{range:?} cannot become managed memory: whole 2 MiB blocks that are not managed yet are needed")]
    NotMappable {
        /// What was named.
        range: AddrRange,
    },
    /// No such device.
    #[error("no device {device:?}")]
    NoDevice {
        /// Which.
        device: DeviceId,
    },
    /// No such range group.
    #[error("no range group {group:?}")]
    NoGroup {
        /// Which.
        group: Group,
    },
    /// Some of it is preferred nowhere, and is to stay where it is preferred.
    #[error("some of {range:?} is preferred nowhere")]
    Unpreferred {
        /// What was named, or the first such block.
        range: AddrRange,
    },
    /// Some of it is in a group that does not migrate, and is, or is to be, preferred on a GPU that can fault.
    #[error("some of {range:?} stays where it is preferred, which cannot be a GPU")]
    Stays {
        /// What was named, or the first such block.
        range: AddrRange,
    },
}
