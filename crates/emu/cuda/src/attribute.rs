//! Device attributes, by `CUdevice_attribute` number.
//!
//! What depends on the card comes from its profile. The rest is what the CUDA programming guide ("Technical
//! Specifications per Compute Capability") says of compute capability 8.0, which every profile reports at least. What
//! the emulated device refuses to do is reported as not supported, so that programs do not try.

use deepum_core::units::DeviceId;
use deepum_emu_device::kernel::{SHARED_PER_BLOCK, SHARED_PER_SM};
use deepum_emu_device::machine::Machine;

use crate::edge::int;

/// PCI bus number of a device: assumption, as nothing depends on it.
pub fn pci_bus(device: DeviceId) -> u8 {
    0x17 + device.0
}

/// The attribute `number` of `device`; `None` for numbers CUDA 13.2 does not define.
pub fn value(machine: &Machine, device: DeviceId, number: i32) -> Option<i32> {
    let p = &machine.profile;
    Some(match number {
        1 => 1024,                                  // MAX_THREADS_PER_BLOCK
        2 | 3 => 1024,                              // MAX_BLOCK_DIM_X, Y
        4 => 64,                                    // MAX_BLOCK_DIM_Z
        5 => i32::MAX,                              // MAX_GRID_DIM_X
        6 | 7 => 65_535,                            // MAX_GRID_DIM_Y, Z
        8 => 48 << 10,                              // MAX_SHARED_MEMORY_PER_BLOCK
        9 => 64 << 10,                              // TOTAL_CONSTANT_MEMORY
        10 => 32,                                   // WARP_SIZE
        11 => i32::MAX,                             // MAX_PITCH
        12 => 65_536,                               // MAX_REGISTERS_PER_BLOCK
        13 => int(p.clock_khz),                     // CLOCK_RATE
        14 => 512,                                  // TEXTURE_ALIGNMENT
        15 => 1,                                    // GPU_OVERLAP
        16 => int(p.sms),                           // MULTIPROCESSOR_COUNT
        17 | 18 => 0,                               // KERNEL_EXEC_TIMEOUT, INTEGRATED
        19 => 1,                                    // CAN_MAP_HOST_MEMORY
        20 => 0,                                    // COMPUTE_MODE
        21 => 131_072,                              // MAXIMUM_TEXTURE1D_WIDTH
        22 => 131_072,                              // MAXIMUM_TEXTURE2D_WIDTH
        23 => 65_536,                               // MAXIMUM_TEXTURE2D_HEIGHT
        24..=26 => 16_384,                          // MAXIMUM_TEXTURE3D_*
        27 | 28 => 32_768,                          // MAXIMUM_TEXTURE2D_LAYERED_*
        29 => 2048,                                 // MAXIMUM_TEXTURE2D_LAYERED_LAYERS
        30 => 512,                                  // SURFACE_ALIGNMENT
        31 => 1,                                    // CONCURRENT_KERNELS: accepted; carried out one after another
        32 => 1,                                    // ECC_ENABLED
        33 => i32::from(pci_bus(device)),           // PCI_BUS_ID
        34 | 35 | 50 => 0,                          // PCI_DEVICE_ID, TCC_DRIVER, PCI_DOMAIN_ID
        36 => int(p.memory_clock_khz),              // MEMORY_CLOCK_RATE
        37 => int(p.memory_bus_bits),               // GLOBAL_MEMORY_BUS_WIDTH
        38 => int(p.l2.0),                          // L2_CACHE_SIZE
        39 => int(p.threads_per_sm),                // MAX_THREADS_PER_MULTIPROCESSOR
        40 => 2,                                    // ASYNC_ENGINE_COUNT: one per direction
        41 => 1,                                    // UNIFIED_ADDRESSING
        42 => 32_768,                               // MAXIMUM_TEXTURE1D_LAYERED_WIDTH
        43 => 2048,                                 // MAXIMUM_TEXTURE1D_LAYERED_LAYERS
        44 => 1,                                    // CAN_TEX2D_GATHER
        45 | 46 => 32_768,                          // MAXIMUM_TEXTURE2D_GATHER_*
        47..=49 => 8192,                            // MAXIMUM_TEXTURE3D_*_ALTERNATE
        51 => 32,                                   // TEXTURE_PITCH_ALIGNMENT
        52 | 53 | 55..=64 | 66 | 67 => 32_768,      // MAXIMUM_TEXTURECUBEMAP_*, MAXIMUM_SURFACE*
        54 | 68 => 2046,                            // *CUBEMAP_LAYERED_LAYERS
        65 => 2048,                                 // MAXIMUM_SURFACE2D_LAYERED_LAYERS
        69 => 268_435_456,                          // MAXIMUM_TEXTURE1D_LINEAR_WIDTH
        70 => 131_072,                              // MAXIMUM_TEXTURE2D_LINEAR_WIDTH
        71 => 65_000,                               // MAXIMUM_TEXTURE2D_LINEAR_HEIGHT
        72 => 2_097_120,                            // MAXIMUM_TEXTURE2D_LINEAR_PITCH
        73 | 74 | 77 => 32_768,                     // MAXIMUM_TEXTURE*_MIPMAPPED_*
        75 => int(p.reported_compute_capability.0), // COMPUTE_CAPABILITY_MAJOR
        76 => int(p.reported_compute_capability.1), // COMPUTE_CAPABILITY_MINOR
        78..=80 => 1,                               // STREAM_PRIORITIES, GLOBAL_L1_CACHE, LOCAL_L1_CACHE
        81 => int(SHARED_PER_SM.0),                 // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
        82 => 65_536,                               // MAX_REGISTERS_PER_MULTIPROCESSOR
        83 => 1,                                    // MANAGED_MEMORY
        84 => 0,                                    // MULTI_GPU_BOARD
        85 => i32::from(device.0),                  // MULTI_GPU_BOARD_GROUP_ID
        86 => 0,                                    // HOST_NATIVE_ATOMIC_SUPPORTED
        87 => ratio(p.flops.fp32, p.flops.fp64),    // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
        88 => 0,                                    // PAGEABLE_MEMORY_ACCESS: HMM is not modelled
        89 => 1,                                    // CONCURRENT_MANAGED_ACCESS
        90 => 1,                                    // COMPUTE_PREEMPTION_SUPPORTED
        91 => 1,                                    // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        92..=94 => 1,                               // CAN_USE_STREAM_MEM_OPS_V1, 64_BIT, WAIT_VALUE_NOR
        95 => 1,                                    // COOPERATIVE_LAUNCH
        96 => 0,                                    // COOPERATIVE_MULTI_DEVICE_LAUNCH
        97 => int(SHARED_PER_BLOCK.0),              // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        98 => 0,                                    // CAN_FLUSH_REMOTE_WRITES
        99 => 1,                                    // HOST_REGISTER_SUPPORTED
        100 | 101 => 0,     // PAGEABLE_..._HOST_PAGE_TABLES, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST
        102 => 1,           // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        103 => 1,           // and its HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
        104 | 105 => 0,     // handle types of Windows
        106 => 32,          // MAX_BLOCKS_PER_MULTIPROCESSOR
        107 | 108 => 0,     // GENERIC_COMPRESSION, MAX_PERSISTING_L2_CACHE_SIZE
        109 => 134_213_632, // MAX_ACCESS_POLICY_WINDOW_SIZE
        110 => 0,           // GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
        111 => 1024,        // RESERVED_SHARED_MEMORY_PER_BLOCK
        112 => 0,           // SPARSE_CUDA_ARRAY_SUPPORTED
        113 => 1,           // READ_ONLY_HOST_REGISTER_SUPPORTED
        114 => 0,           // TIMELINE_SEMAPHORE_INTEROP_SUPPORTED: refused
        115 => 1,           // MEMORY_POOLS_SUPPORTED
        116..=121 => 0,     // RDMA, handle types of pools, clusters, deferred mapping: refused
        122 | 123 => 1,     // CAN_USE_64_BIT_STREAM_MEM_OPS, CAN_USE_STREAM_WAIT_VALUE_NOR
        124 => 0,           // DMA_BUF_SUPPORTED: refused
        125 => 1,           // IPC_EVENT_SUPPORTED
        126 => 1,           // MEM_SYNC_DOMAIN_COUNT
        127 | 128 => 0,     // TENSOR_MAP_ACCESS_SUPPORTED, HANDLE_TYPE_FABRIC_SUPPORTED
        129 => 1,           // UNIFIED_FUNCTION_POINTERS
        130 => 0,           // NUMA_CONFIG: none
        131 => -1,          // NUMA_ID
        132 | 133 => 0,     // MULTICAST_SUPPORTED, MPS_ENABLED
        134 => 0,           // HOST_NUMA_ID
        135..=148 => 0,     // interop, decompression, pools on the host, and so on: refused
        _ => return None,
    })
}

#[expect(clippy::cast_possible_truncation, reason = "a float to integer cast saturates; profiles are of sane range")]
fn ratio(a: f64, b: f64) -> i32 {
    (a / b).round() as i32
}
