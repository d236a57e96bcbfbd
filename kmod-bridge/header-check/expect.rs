//! What the driver's headers must say for `sys.rs` to be right: sizes and offsets, as our own structs have them.

use deepum_kmod_bridge::sys::{
    AllocSemaphorePool, Control, CreateRangeGroup, Discard, ENTRY_BYTES, EnableEvents, FlushEvents, GpuFault,
    InitTracker515, InitTracker550, InitTracker560, InitTrackerHead, Migrate, Migration, Policy, PolicyOf, Prefer515,
    Prefer550, PreventMigration, SetRangeGroup, SetThreshold, UuidTable515, UuidTable550, UuidTable560, UuidTable565,
};
use std::mem::{offset_of, size_of};

/// One line: a C type, a member path in it (nothing: its size), the number we count with.
#[derive(Clone, Copy, Debug)]
pub struct Expect {
    pub c_type: &'static str,
    pub member: Option<&'static str>,
    pub bytes: usize,
}

macro_rules! expect {
    ($c:literal, size, $n:expr) => {
        Expect { c_type: $c, member: None, bytes: $n }
    };
    ($c:literal, $member:literal, $n:expr) => {
        Expect { c_type: $c, member: Some($member), bytes: $n }
    };
}

/// What holds in every driver from 515 on.
pub const EXPECT_ALWAYS: &[Expect] = &[
    expect!("UVM_MIGRATE_PARAMS", size, size_of::<Migrate>()),
    expect!("UVM_MIGRATE_PARAMS", "base", offset_of!(Migrate, base)),
    expect!("UVM_MIGRATE_PARAMS", "length", offset_of!(Migrate, length)),
    expect!("UVM_MIGRATE_PARAMS", "destinationUuid", offset_of!(Migrate, destination_uuid)),
    expect!("UVM_MIGRATE_PARAMS", "flags", offset_of!(Migrate, flags)),
    expect!("UVM_MIGRATE_PARAMS", "cpuNumaNode", offset_of!(Migrate, cpu_numa_node)),
    expect!("UVM_MIGRATE_PARAMS", "rmStatus", offset_of!(Migrate, rm_status)),
    expect!("UVM_ENABLE_READ_DUPLICATION_PARAMS", size, size_of::<Policy>()),
    expect!("UVM_ENABLE_READ_DUPLICATION_PARAMS", "requestedBase", offset_of!(Policy, base)),
    expect!("UVM_ENABLE_READ_DUPLICATION_PARAMS", "length", offset_of!(Policy, length)),
    expect!("UVM_ENABLE_READ_DUPLICATION_PARAMS", "rmStatus", offset_of!(Policy, rm_status)),
    expect!("UVM_DISABLE_READ_DUPLICATION_PARAMS", size, size_of::<Policy>()),
    expect!("UVM_DISABLE_READ_DUPLICATION_PARAMS", "rmStatus", offset_of!(Policy, rm_status)),
    expect!("UVM_UNSET_PREFERRED_LOCATION_PARAMS", size, size_of::<Policy>()),
    expect!("UVM_UNSET_PREFERRED_LOCATION_PARAMS", "rmStatus", offset_of!(Policy, rm_status)),
    expect!("UVM_SET_ACCESSED_BY_PARAMS", size, size_of::<PolicyOf>()),
    expect!("UVM_SET_ACCESSED_BY_PARAMS", "accessedByUuid", offset_of!(PolicyOf, uuid)),
    expect!("UVM_SET_ACCESSED_BY_PARAMS", "rmStatus", offset_of!(PolicyOf, rm_status)),
    expect!("UVM_UNSET_ACCESSED_BY_PARAMS", size, size_of::<PolicyOf>()),
    expect!("UVM_UNSET_ACCESSED_BY_PARAMS", "rmStatus", offset_of!(PolicyOf, rm_status)),
    expect!("UVM_SET_PREFERRED_LOCATION_PARAMS", size, size_of::<Prefer550>()),
    expect!("UVM_SET_PREFERRED_LOCATION_PARAMS", "preferredLocation", offset_of!(Prefer550, uuid)),
    expect!("UVM_MIGRATE_PARAMS", "semaphoreAddress", offset_of!(Migrate, semaphore_address)),
    expect!("UVM_MIGRATE_PARAMS", "semaphorePayload", offset_of!(Migrate, semaphore_payload)),
    expect!("UVM_CREATE_RANGE_GROUP_PARAMS", size, size_of::<CreateRangeGroup>()),
    expect!("UVM_CREATE_RANGE_GROUP_PARAMS", "rangeGroupId", offset_of!(CreateRangeGroup, id)),
    expect!("UVM_CREATE_RANGE_GROUP_PARAMS", "rmStatus", offset_of!(CreateRangeGroup, rm_status)),
    expect!("UVM_SET_RANGE_GROUP_PARAMS", size, size_of::<SetRangeGroup>()),
    expect!("UVM_SET_RANGE_GROUP_PARAMS", "rangeGroupId", offset_of!(SetRangeGroup, id)),
    expect!("UVM_SET_RANGE_GROUP_PARAMS", "requestedBase", offset_of!(SetRangeGroup, base)),
    expect!("UVM_SET_RANGE_GROUP_PARAMS", "length", offset_of!(SetRangeGroup, length)),
    expect!("UVM_SET_RANGE_GROUP_PARAMS", "rmStatus", offset_of!(SetRangeGroup, rm_status)),
    expect!("UVM_PREVENT_MIGRATION_RANGE_GROUPS_PARAMS", size, size_of::<PreventMigration>()),
    expect!("UVM_PREVENT_MIGRATION_RANGE_GROUPS_PARAMS", "rangeGroupIds", offset_of!(PreventMigration, ids)),
    expect!("UVM_PREVENT_MIGRATION_RANGE_GROUPS_PARAMS", "numGroupIds", offset_of!(PreventMigration, count)),
    expect!("UVM_PREVENT_MIGRATION_RANGE_GROUPS_PARAMS", "rmStatus", offset_of!(PreventMigration, rm_status)),
    expect!("UVM_TOOLS_FLUSH_EVENTS_PARAMS", size, size_of::<FlushEvents>()),
    expect!("UVM_ALLOC_SEMAPHORE_POOL_PARAMS", "length", offset_of!(AllocSemaphorePool<32>, length)),
    expect!("UvmEventMigrationInfo", "rangeGroupId", offset_of!(Migration, range_group_id)),
    expect!("UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS", "queueBuffer", offset_of!(InitTrackerHead, queue_buffer)),
    expect!("UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS", "queueBufferSize", offset_of!(InitTrackerHead, queue_buffer_size)),
    expect!("UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS", "controlBuffer", offset_of!(InitTrackerHead, control_buffer)),
    expect!("UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS", "processor", offset_of!(InitTrackerHead, processor)),
    expect!("UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS", "allProcessors", offset_of!(InitTrackerHead, all_processors)),
    expect!("UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS", "uvmFd", offset_of!(InitTrackerHead, uvm_fd)),
    expect!("UVM_TOOLS_SET_NOTIFICATION_THRESHOLD_PARAMS", size, size_of::<SetThreshold>()),
    expect!("UVM_TOOLS_SET_NOTIFICATION_THRESHOLD_PARAMS", "rmStatus", offset_of!(SetThreshold, rm_status)),
    expect!("UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS_PARAMS", size, size_of::<EnableEvents>()),
    expect!("UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS_PARAMS", "rmStatus", offset_of!(EnableEvents, rm_status)),
    expect!("UVM_TOOLS_EVENT_QUEUE_DISABLE_EVENTS_PARAMS", "rmStatus", offset_of!(EnableEvents, rm_status)),
];

/// The tools queue, in every driver from 515 on.
pub const EXPECT_QUEUE: &[Expect] = &[
    expect!("UvmEventEntry", size, ENTRY_BYTES),
    expect!("UvmToolsEventControlData", size, size_of::<Control>()),
    expect!("UvmToolsEventControlData", "get_ahead", offset_of!(Control, get_ahead)),
    expect!("UvmToolsEventControlData", "get_behind", offset_of!(Control, get_behind)),
    expect!("UvmToolsEventControlData", "put_ahead", offset_of!(Control, put_ahead)),
    expect!("UvmToolsEventControlData", "put_behind", offset_of!(Control, put_behind)),
    expect!("UvmToolsEventControlData", "dropped", offset_of!(Control, dropped)),
    expect!("UvmEventGpuFaultInfo", size, size_of::<GpuFault>()),
    expect!("UvmEventGpuFaultInfo", "accessType", offset_of!(GpuFault, access_type)),
    expect!("UvmEventGpuFaultInfo", "gpuIndex", offset_of!(GpuFault, gpu_index)),
    expect!("UvmEventGpuFaultInfo", "address", offset_of!(GpuFault, address)),
    expect!("UvmEventGpuFaultInfo", "timeStamp", offset_of!(GpuFault, time_stamp)),
    expect!("UvmEventGpuFaultInfo", "batchId", offset_of!(GpuFault, batch_id)),
    expect!("UvmEventGpuFaultInfo", "clientType", offset_of!(GpuFault, client_type)),
    expect!("UvmEventMigrationInfo", size, size_of::<Migration>()),
    expect!("UvmEventMigrationInfo", "migrationCause", offset_of!(Migration, cause)),
    expect!("UvmEventMigrationInfo", "srcIndex", offset_of!(Migration, src_index)),
    expect!("UvmEventMigrationInfo", "dstIndex", offset_of!(Migration, dst_index)),
    expect!("UvmEventMigrationInfo", "address", offset_of!(Migration, address)),
    expect!("UvmEventMigrationInfo", "migratedBytes", offset_of!(Migration, bytes)),
    expect!("UvmEventMigrationInfo", "endTimeStamp", offset_of!(Migration, end_time_stamp)),
];

/// What changed once, by the first driver in which it is otherwise.
pub const EXPECT_UNTIL: &[(&str, &[Expect])] = &[
    ("550.40", &[expect!("UVM_SET_PREFERRED_LOCATION_PARAMS", "rmStatus", offset_of!(Prefer515, rm_status))]),
    (
        "550.54",
        &[expect!("UVM_ALLOC_SEMAPHORE_POOL_PARAMS", "rmStatus", offset_of!(AllocSemaphorePool<32>, rm_status))],
    ),
];

/// What came later, by the first driver that has it.
pub const EXPECT_SINCE: &[(&str, &[Expect])] = &[
    (
        "550.54",
        &[expect!("UVM_ALLOC_SEMAPHORE_POOL_PARAMS", "rmStatus", offset_of!(AllocSemaphorePool<256>, rm_status))],
    ),
    (
        "550.40",
        &[
            expect!("UVM_SET_PREFERRED_LOCATION_PARAMS", "preferredCpuNumaNode", offset_of!(Prefer550, cpu_numa_node)),
            expect!("UVM_SET_PREFERRED_LOCATION_PARAMS", "rmStatus", offset_of!(Prefer550, rm_status)),
        ],
    ),
    (
        "580.65",
        &[
            expect!("UVM_DISCARD_PARAMS", size, size_of::<Discard>()),
            expect!("UVM_DISCARD_PARAMS", "base", offset_of!(Discard, base)),
            expect!("UVM_DISCARD_PARAMS", "length", offset_of!(Discard, length)),
            expect!("UVM_DISCARD_PARAMS", "flags", offset_of!(Discard, flags)),
            expect!("UVM_DISCARD_PARAMS", "rmStatus", offset_of!(Discard, rm_status)),
        ],
    ),
];

/// The two structs that changed, by the first driver with each shape.
pub const EXPECT_SHAPES: &[(&str, &[Expect])] = &[
    (
        "515",
        &[
            expect!("UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS", size, size_of::<InitTracker515>()),
            expect!("UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS", "rmStatus", offset_of!(InitTracker515, rm_status)),
            expect!("UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS", "count", offset_of!(UuidTable515, count)),
            expect!("UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS", "rmStatus", offset_of!(UuidTable515, rm_status)),
        ],
    ),
    (
        "550.54",
        &[
            expect!("UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS", size, size_of::<InitTracker550>()),
            expect!("UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS", "rmStatus", offset_of!(InitTracker550, rm_status)),
            expect!(
                "UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS",
                "requestedVersion",
                offset_of!(InitTracker550, requested_version)
            ),
            expect!("UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS", size, size_of::<UuidTable550>()),
            expect!("UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS", "rmStatus", offset_of!(UuidTable550, rm_status)),
        ],
    ),
    (
        "560",
        &[
            expect!("UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS", size, size_of::<InitTracker560>()),
            expect!("UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS", "version", offset_of!(InitTracker560, version)),
            expect!("UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS", "rmStatus", offset_of!(InitTracker560, rm_status)),
            expect!("UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS", "version", offset_of!(UuidTable560, version)),
            expect!("UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS", "rmStatus", offset_of!(UuidTable560, rm_status)),
        ],
    ),
    (
        "565",
        &[
            expect!("UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS", size, size_of::<InitTracker515>()),
            expect!("UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS", "rmStatus", offset_of!(InitTracker515, rm_status)),
            expect!("UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS", "rmStatus", offset_of!(UuidTable565, rm_status)),
        ],
    ),
];
