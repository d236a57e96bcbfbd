//! Numbers of the driver's interface: requests, statuses, event types (facts 1, 2.3, 2.4).

/// `NV_STATUS`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NvStatus(pub u32);

impl NvStatus {
    /// Done.
    pub const OK: Self = Self(0);
    /// The file is not in a state in which this is possible.
    pub const ILLEGAL_ACTION: Self = Self(0x16);
    /// Taken already.
    pub const IN_USE: Self = Self(0x17);
    /// Not a file of the VA space's device.
    pub const INSUFFICIENT_PERMISSIONS: Self = Self(0x1b);
    /// Not an address this is possible for.
    pub const INVALID_ADDRESS: Self = Self(0x1e);
    /// Not a value this is possible for.
    pub const INVALID_ARGUMENT: Self = Self(0x1f);
    /// No such processor.
    pub const INVALID_DEVICE: Self = Self(0x26);
    /// Not in this state.
    pub const INVALID_STATE: Self = Self(0x40);
    /// No room.
    pub const NO_MEMORY: Self = Self(0x51);
    /// Something is there.
    pub const UVM_ADDRESS_IN_USE: Self = Self(0x68);
    /// Not played by this device.
    pub const NOT_SUPPORTED: Self = Self(0x56);
    /// No such thing.
    pub const OBJECT_NOT_FOUND: Self = Self(0x57);
    /// A warning: not all of it was done.
    pub const MORE_PROCESSING_REQUIRED: Self = Self(0x1_0005);
}

pub(super) mod request {
    pub const INITIALIZE: u64 = 0x3000_0001;
    pub const DEINITIALIZE: u64 = 0x3000_0002;
    pub const CREATE_RANGE_GROUP: u64 = 23;
    pub const DESTROY_RANGE_GROUP: u64 = 24;
    pub const SET_RANGE_GROUP: u64 = 31;
    pub const REGISTER_GPU: u64 = 37;
    pub const PREVENT_MIGRATION_RANGE_GROUPS: u64 = 40;
    pub const ALLOW_MIGRATION_RANGE_GROUPS: u64 = 41;
    pub const SET_PREFERRED_LOCATION: u64 = 42;
    pub const UNSET_PREFERRED_LOCATION: u64 = 43;
    pub const ENABLE_READ_DUPLICATION: u64 = 44;
    pub const DISABLE_READ_DUPLICATION: u64 = 45;
    pub const SET_ACCESSED_BY: u64 = 46;
    pub const UNSET_ACCESSED_BY: u64 = 47;
    pub const MIGRATE: u64 = 51;
    pub const INIT_EVENT_TRACKER: u64 = 56;
    pub const SET_NOTIFICATION_THRESHOLD: u64 = 57;
    pub const ENABLE_EVENTS: u64 = 58;
    pub const DISABLE_EVENTS: u64 = 59;
    pub const UUID_TABLE: u64 = 64;
    pub const FLUSH_EVENTS: u64 = 67;
    pub const ALLOC_SEMAPHORE_POOL: u64 = 68;
    pub const MM_INITIALIZE: u64 = 75;
    pub const INIT_EVENT_TRACKER_V2: u64 = 76;
    pub const UUID_TABLE_V2: u64 = 77;
    pub const DISCARD: u64 = 80;
}

pub(super) mod event {
    pub const MIGRATION: u8 = 2;
    pub const GPU_FAULT: u8 = 3;
    pub const GPU_FAULT_REPLAY: u8 = 4;
    /// Every type a tool may ask for: 1 to 14.
    pub const ALL: u64 = 0x7ffe;
}

/// The CPU's UUID.
pub(super) const CPU_UUID: [u8; 16] =
    [0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73];

/// Length of an entry, V1 and V2.
pub(super) const ENTRY: usize = 64;
pub(super) const ENTRY_V2: usize = 72;
/// Groups that one request can name.
pub(super) const GROUPS: usize = 32;
/// Length of the control data.
pub(super) const CONTROL: usize = 528;
/// Processors in a UUID table, V1 and V2.
pub(super) const PROCESSORS: usize = 33;
pub(super) const PROCESSORS_V2: usize = 257;
