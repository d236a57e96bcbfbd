//! Numbers and layouts of nvidia-uvm, and nothing else: the lowest of the three floors.
//!
//! Each struct below has the field order and the sizes of one in the driver's `uvm_ioctl.h` or
//! `uvm_types.h`. None is ever passed to the driver or read from it: they are here so that the
//! compiler computes the offsets, which the assertions at the end compare with the offsets that
//! were compiled for driver 515 to 595, and which `header-check/run` compares with the headers of
//! any driver source tree. The other floors write and read single words at those offsets.

#![allow(missing_docs, reason = "the names are the driver's; its headers explain them")]

use std::fmt;
use std::mem::{offset_of, size_of};

/// `ioctl` request numbers: raw small integers, no direction or size in them.
pub mod request {
    pub const CREATE_RANGE_GROUP: u32 = 23;
    pub const SET_RANGE_GROUP: u32 = 31;
    pub const PREVENT_MIGRATION_RANGE_GROUPS: u32 = 40;
    pub const SET_PREFERRED_LOCATION: u32 = 42;
    pub const UNSET_PREFERRED_LOCATION: u32 = 43;
    pub const ENABLE_READ_DUPLICATION: u32 = 44;
    pub const DISABLE_READ_DUPLICATION: u32 = 45;
    pub const SET_ACCESSED_BY: u32 = 46;
    pub const UNSET_ACCESSED_BY: u32 = 47;
    pub const MIGRATE: u32 = 51;
    pub const TOOLS_INIT_EVENT_TRACKER: u32 = 56;
    pub const TOOLS_SET_NOTIFICATION_THRESHOLD: u32 = 57;
    pub const TOOLS_EVENT_QUEUE_ENABLE_EVENTS: u32 = 58;
    pub const TOOLS_EVENT_QUEUE_DISABLE_EVENTS: u32 = 59;
    pub const TOOLS_GET_PROCESSOR_UUID_TABLE: u32 = 64;
    pub const TOOLS_FLUSH_EVENTS: u32 = 67;
    pub const ALLOC_SEMAPHORE_POOL: u32 = 68;
    pub const DISCARD: u32 = 80;

    /// The driver's name of a request.
    pub const fn name(request: u32) -> &'static str {
        match request {
            CREATE_RANGE_GROUP => "UVM_CREATE_RANGE_GROUP",
            SET_RANGE_GROUP => "UVM_SET_RANGE_GROUP",
            PREVENT_MIGRATION_RANGE_GROUPS => "UVM_PREVENT_MIGRATION_RANGE_GROUPS",
            SET_PREFERRED_LOCATION => "UVM_SET_PREFERRED_LOCATION",
            UNSET_PREFERRED_LOCATION => "UVM_UNSET_PREFERRED_LOCATION",
            ENABLE_READ_DUPLICATION => "UVM_ENABLE_READ_DUPLICATION",
            DISABLE_READ_DUPLICATION => "UVM_DISABLE_READ_DUPLICATION",
            SET_ACCESSED_BY => "UVM_SET_ACCESSED_BY",
            UNSET_ACCESSED_BY => "UVM_UNSET_ACCESSED_BY",
            MIGRATE => "UVM_MIGRATE",
            TOOLS_INIT_EVENT_TRACKER => "UVM_TOOLS_INIT_EVENT_TRACKER",
            TOOLS_SET_NOTIFICATION_THRESHOLD => "UVM_TOOLS_SET_NOTIFICATION_THRESHOLD",
            TOOLS_EVENT_QUEUE_ENABLE_EVENTS => "UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS",
            TOOLS_EVENT_QUEUE_DISABLE_EVENTS => "UVM_TOOLS_EVENT_QUEUE_DISABLE_EVENTS",
            TOOLS_GET_PROCESSOR_UUID_TABLE => "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE",
            TOOLS_FLUSH_EVENTS => "UVM_TOOLS_FLUSH_EVENTS",
            ALLOC_SEMAPHORE_POOL => "UVM_ALLOC_SEMAPHORE_POOL",
            DISCARD => "UVM_DISCARD",
            _ => "an unknown nvidia-uvm request",
        }
    }
}

/// Outcome of a routed request (`NV_STATUS`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NvStatus(pub u32);

impl NvStatus {
    pub const OK: Self = Self(0);
    pub const INVALID_ADDRESS: Self = Self(0x1e);
    pub const INVALID_ARGUMENT: Self = Self(0x1f);
    pub const INVALID_DEVICE: Self = Self(0x26);
    pub const NO_MEMORY: Self = Self(0x51);
    /// A warning: part was left out.
    pub const MORE_PROCESSING_REQUIRED: Self = Self(0x1_0005);
}

impl fmt::Display for NvStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            0 => "OK",
            0x3 => "BUSY_RETRY",
            0x16 => "ILLEGAL_ACTION",
            0x17 => "IN_USE",
            0x1b => "INSUFFICIENT_PERMISSIONS",
            0x1e => "INVALID_ADDRESS",
            0x1f => "INVALID_ARGUMENT",
            0x26 => "INVALID_DEVICE",
            0x40 => "INVALID_STATE",
            0x4d => "MORE_PROCESSING_REQUIRED",
            0x51 => "NO_MEMORY",
            0x56 => "NOT_SUPPORTED",
            0x5b => "OUT_OF_RANGE",
            0x5d => "PAGE_TABLE_NOT_AVAIL",
            0x10005 => "WARN_MORE_PROCESSING_REQUIRED",
            0x10006 => "WARN_NOTHING_TO_DO",
            other => return write!(f, "NV_STATUS {other:#x}"),
        };
        write!(f, "{name} ({:#x})", self.0)
    }
}

/// Every parameter struct fits this buffer with room to spare, so that a driver whose struct grew cannot write past it.
pub const PARAMS_BYTES: usize = 9280;

/// A processor's UUID, as `cuDeviceGetUuid_v2` gives it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// The host's processors (`NV_PROCESSOR_UUID_CPU_DEFAULT`).
    pub const CPU: Self =
        Self([0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73]);
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Rows of the largest UUID table any driver copies out (`UVM_MAX_PROCESSORS_V2`, from 555).
pub const UUID_TABLE_ROWS: usize = 257;

/// `UVM_MIGRATE_PARAMS`.
#[derive(Debug)]
#[repr(C)]
pub struct Migrate {
    pub base: u64,
    pub length: u64,
    pub destination_uuid: [u8; 16],
    pub flags: u32,
    pub semaphore_address: u64,
    pub semaphore_payload: u32,
    pub cpu_numa_node: i32,
    pub user_space_start: u64,
    pub user_space_length: u64,
    pub rm_status: u32,
}

/// `flags` of a migration that does not wait for its copies; without a semaphore nothing says when they are over.
pub const MIGRATE_ASYNC: u32 = 1;

/// `UvmGpuMappingAttributes`: a GPU's UUID, and how it maps.
#[derive(Debug)]
#[repr(C)]
pub struct MappingAttributes {
    pub uuid: [u8; 16],
    pub words: [u32; 5],
}

/// `UVM_ALLOC_SEMAPHORE_POOL_PARAMS` with so many rows: 32 in 515 and 535, 256 from 550.54 on.
#[derive(Debug)]
#[repr(C)]
pub struct AllocSemaphorePool<const ROWS: usize> {
    pub base: u64,
    pub length: u64,
    pub attributes: [MappingAttributes; ROWS],
    pub attributes_count: u64,
    pub rm_status: u32,
}

/// `UVM_CREATE_RANGE_GROUP_PARAMS`.
#[derive(Debug)]
#[repr(C)]
pub struct CreateRangeGroup {
    pub id: u64,
    pub rm_status: u32,
}

/// `UVM_SET_RANGE_GROUP_PARAMS`.
#[derive(Debug)]
#[repr(C)]
pub struct SetRangeGroup {
    pub id: u64,
    pub base: u64,
    pub length: u64,
    pub rm_status: u32,
}

/// `UVM_PREVENT_MIGRATION_RANGE_GROUPS_PARAMS`.
#[derive(Debug)]
#[repr(C)]
pub struct PreventMigration {
    pub ids: [u64; 32],
    pub count: u64,
    pub rm_status: u32,
}

/// `UVM_TOOLS_FLUSH_EVENTS_PARAMS`.
#[derive(Debug)]
#[repr(C)]
pub struct FlushEvents {
    pub rm_status: u32,
}

/// `UVM_ENABLE_READ_DUPLICATION_PARAMS`, and the same of `DISABLE` and of `UVM_UNSET_PREFERRED_LOCATION`.
#[derive(Debug)]
#[repr(C)]
pub struct Policy {
    pub base: u64,
    pub length: u64,
    pub rm_status: u32,
}

/// `UVM_SET_ACCESSED_BY_PARAMS`, and the same of `UNSET`.
#[derive(Debug)]
#[repr(C)]
pub struct PolicyOf {
    pub base: u64,
    pub length: u64,
    pub uuid: [u8; 16],
    pub rm_status: u32,
}

/// `UVM_SET_PREFERRED_LOCATION_PARAMS` in 515 to 545.
#[derive(Debug)]
#[repr(C)]
pub struct Prefer515 {
    pub base: u64,
    pub length: u64,
    pub uuid: [u8; 16],
    pub rm_status: u32,
}

/// From 550.
#[derive(Debug)]
#[repr(C)]
pub struct Prefer550 {
    pub base: u64,
    pub length: u64,
    pub uuid: [u8; 16],
    pub cpu_numa_node: i32,
    pub rm_status: u32,
}

/// `UVM_DISCARD_PARAMS`, from 580.65.06.
#[derive(Debug)]
#[repr(C)]
pub struct Discard {
    pub base: u64,
    pub length: u64,
    pub flags: u64,
    pub rm_status: u32,
}

/// `flags` of a discard: the pages are unmapped and are nowhere afterwards.
pub const DISCARD_UNMAP: u64 = 1;

/// `UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS`, the part that never changed.
#[derive(Debug)]
#[repr(C)]
pub struct InitTrackerHead {
    pub queue_buffer: u64,
    pub queue_buffer_size: u64,
    pub control_buffer: u64,
    pub processor: [u8; 16],
    pub all_processors: u32,
    pub uvm_fd: u32,
}

/// The same struct in 515 to 550.40 and again from 565: 56 bytes.
#[derive(Debug)]
#[repr(C)]
pub struct InitTracker515 {
    pub head: InitTrackerHead,
    pub rm_status: u32,
}

/// In 550.54 to 555: 64 bytes.
#[derive(Debug)]
#[repr(C)]
pub struct InitTracker550 {
    pub head: InitTrackerHead,
    pub rm_status: u32,
    pub requested_version: u32,
    pub granted_version: u32,
}

/// In 560: 56 bytes.
#[derive(Debug)]
#[repr(C)]
pub struct InitTracker560 {
    pub head: InitTrackerHead,
    pub version: u32,
    pub rm_status: u32,
}

/// `UVM_TOOLS_SET_NOTIFICATION_THRESHOLD_PARAMS`.
#[derive(Debug)]
#[repr(C)]
pub struct SetThreshold {
    pub notification_threshold: u32,
    pub rm_status: u32,
}

/// `UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS_PARAMS`, and the same of `DISABLE`.
#[derive(Debug)]
#[repr(C)]
pub struct EnableEvents {
    pub event_type_flags: u64,
    pub rm_status: u32,
}

/// `UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS` in 515 to 550.40; 550.54 to 555 append a version.
#[derive(Debug)]
#[repr(C)]
pub struct UuidTable515 {
    pub table_ptr: u64,
    pub count: u32,
    pub rm_status: u32,
}

/// In 550.54 to 555.
#[derive(Debug)]
#[repr(C)]
pub struct UuidTable550 {
    pub table_ptr: u64,
    pub count: u32,
    pub rm_status: u32,
    pub version: u32,
}

/// In 560.
#[derive(Debug)]
#[repr(C)]
pub struct UuidTable560 {
    pub table_ptr: u64,
    pub version: u32,
    pub rm_status: u32,
}

/// From 565.
#[derive(Debug)]
#[repr(C)]
pub struct UuidTable565 {
    pub table_ptr: u64,
    pub rm_status: u32,
}

/// `UvmToolsEventControlData`, the page both sides of the tools queue write.
#[derive(Debug)]
#[repr(C)]
pub struct Control {
    pub get_ahead: u32,
    pub get_behind: u32,
    pub put_ahead: u32,
    pub put_behind: u32,
    pub dropped: [u64; EVENT_TYPES],
}

/// Slots of `Control::dropped`.
pub const EVENT_TYPES: usize = 64;

/// Bytes of one queue entry (`UvmEventEntry`, version 1).
pub const ENTRY_BYTES: usize = 64;

/// Event types: byte 0 of an entry, bit number of the enable mask, index into `dropped`.
pub mod event {
    pub const MIGRATION: u8 = 2;
    pub const GPU_FAULT: u8 = 3;
    pub const FATAL_FAULT: u8 = 6;
    pub const THRASHING: u8 = 10;
    pub const MAP_REMOTE: u8 = 13;
}

/// `UvmEventGpuFaultInfo`, version 1.
#[derive(Debug)]
#[repr(C)]
pub struct GpuFault {
    pub event_type: u8,
    pub fault_type: u8,
    pub access_type: u8,
    pub gpu_index: u8,
    pub gpc_id: u16,
    pub client_id: u16,
    pub address: u64,
    pub time_stamp: u64,
    pub time_stamp_gpu: u64,
    pub batch_id: u32,
    pub client_type: u8,
}

/// `UvmEventMigrationInfo`, version 1.
#[derive(Debug)]
#[repr(C)]
pub struct Migration {
    pub event_type: u8,
    pub cause: u8,
    pub src_index: u8,
    pub dst_index: u8,
    pub address: u64,
    pub bytes: u64,
    pub begin_time_stamp: u64,
    pub end_time_stamp: u64,
    pub range_group_id: u64,
    pub begin_time_stamp_gpu: u64,
    pub end_time_stamp_gpu: u64,
}

/// `accessType` values of a fault.
pub mod access {
    pub const READ: u8 = 1;
    pub const WRITE: u8 = 2;
    pub const ATOMIC: u8 = 3;
    pub const PREFETCH: u8 = 4;
}

/// `cause` values of a migration.
pub mod cause {
    pub const USER: u8 = 1;
    pub const COHERENCE: u8 = 2;
    pub const PREFETCH: u8 = 3;
    pub const EVICTION: u8 = 4;
    pub const ACCESS_COUNTERS: u8 = 5;
}

macro_rules! lies {
    ($what:ty, $bytes:literal bytes $(, $field:ident at $at:literal)*) => {
        assert!(size_of::<$what>() == $bytes);
        $(assert!(offset_of!($what, $field) == $at);)*
    };
}

// Sizes and offsets as compiled from the headers of driver 515 to 595, x86-64 (facts 2.1, 2.2, 2.4, 4.1, 4.3, 4.7, 4.9, 4.11).
const _: () = {
    lies!(Migrate, 80 bytes, destination_uuid at 16, flags at 32, semaphore_address at 40, semaphore_payload at 48,
        cpu_numa_node at 52, user_space_start at 56, rm_status at 72);
    lies!(Policy, 24 bytes, length at 8, rm_status at 16);
    lies!(PolicyOf, 40 bytes, length at 8, uuid at 16, rm_status at 32);
    lies!(Prefer515, 40 bytes, uuid at 16, rm_status at 32);
    lies!(Prefer550, 40 bytes, uuid at 16, cpu_numa_node at 32, rm_status at 36);
    lies!(CreateRangeGroup, 16 bytes, rm_status at 8);
    lies!(SetRangeGroup, 32 bytes, base at 8, length at 16, rm_status at 24);
    lies!(PreventMigration, 272 bytes, count at 256, rm_status at 264);
    lies!(FlushEvents, 4 bytes);
    lies!(MappingAttributes, 36 bytes);
    lies!(AllocSemaphorePool<32>, 1184 bytes, attributes at 16, attributes_count at 1168, rm_status at 1176);
    lies!(AllocSemaphorePool<256>, 9248 bytes, attributes_count at 9232, rm_status at 9240);
    lies!(Discard, 32 bytes, length at 8, flags at 16, rm_status at 24);
    lies!(InitTrackerHead, 48 bytes, processor at 24, all_processors at 40, uvm_fd at 44);
    lies!(InitTracker515, 56 bytes, rm_status at 48);
    lies!(InitTracker550, 64 bytes, rm_status at 48, requested_version at 52);
    lies!(InitTracker560, 56 bytes, version at 48, rm_status at 52);
    lies!(SetThreshold, 8 bytes, rm_status at 4);
    lies!(EnableEvents, 16 bytes, rm_status at 8);
    lies!(UuidTable515, 16 bytes, rm_status at 12);
    lies!(UuidTable550, 24 bytes, rm_status at 12);
    lies!(UuidTable560, 16 bytes, version at 8, rm_status at 12);
    lies!(UuidTable565, 16 bytes, rm_status at 8);
    lies!(Control, 528 bytes, dropped at 16);
    lies!(GpuFault, 40 bytes, access_type at 2, gpu_index at 3, address at 8, time_stamp at 16, batch_id at 32,
        client_type at 36);
    lies!(Migration, 64 bytes, cause at 1, src_index at 2, dst_index at 3, address at 8, bytes at 16, end_time_stamp at 32,
        range_group_id at 40);

    assert!(size_of::<AllocSemaphorePool<256>>() <= PARAMS_BYTES);
};
