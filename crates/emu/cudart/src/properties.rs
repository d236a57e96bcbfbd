//! `cudaDeviceProp`, field by field, in both layouts.
//!
//! CUDA 13 dropped fields of CUDA 12 and closed the gaps; CUDA 11's, which CUDA 12 still serves under the old name, is a prefix of
//! CUDA 12's. Each field is an attribute of the device (`cudaDeviceAttr`, the driver's `CUdevice_attribute`), so one line says what
//! it is called, its type, the attributes it shows, and its offset. Offsets: a C program compiled against the headers of
//! nvidia-cuda-runtime-cu12 12.8.90 and nvidia-cuda-runtime 13.2.86.

use crate::driver::ask;
use crate::error::{Error, Result};
use std::ffi::{c_char, c_void};
use std::mem::{offset_of, size_of};

/// Reads attribute `n` of one device.
type Read<'a> = &'a dyn Fn(i32) -> Result<i32>;

/// A field that shows attributes.
trait Show: Sized {
    fn show(attributes: &[i32], read: Read<'_>) -> Result<Self>;
}
impl Show for i32 {
    fn show(attributes: &[i32], read: Read<'_>) -> Result<Self> {
        read(attributes[0])
    }
}
impl Show for u32 {
    fn show(attributes: &[i32], read: Read<'_>) -> Result<Self> {
        read(attributes[0]).map(i32::cast_unsigned)
    }
}
impl Show for usize {
    fn show(attributes: &[i32], read: Read<'_>) -> Result<Self> {
        Ok(Self::try_from(read(attributes[0])?).unwrap_or(0))
    }
}
impl<const N: usize> Show for [i32; N] {
    fn show(attributes: &[i32], read: Read<'_>) -> Result<Self> {
        let mut out = [0; N];
        for (out, attribute) in out.iter_mut().zip(attributes) {
            *out = read(*attribute)?;
        }
        Ok(out)
    }
}

/// What the properties of every version begin with.
#[repr(C)]
#[derive(Debug)]
pub struct Identity {
    name: [c_char; 256],
    uuid: [u8; 16],
    luid: [u8; 8],
    luidDeviceNodeMask: u32,
    totalGlobalMem: usize,
}
const _: () = assert!(offset_of!(Identity, totalGlobalMem) == 288 && size_of::<Identity>() == 296);

macro_rules! properties {
    ($(#[$doc:meta])* $layout:ident is $size:literal with $reserved:literal reserved {
        $($field:ident: $type:ty = $attributes:expr, @ $offset:literal,)*
    }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug)]
        pub struct $layout {
            identity: Identity,
            $(pub $field: $type,)*
            reserved: [i32; $reserved],
        }
        const _: () = {
            assert!(size_of::<$layout>() == $size);
            $(assert!(offset_of!($layout, $field) == $offset);)*
        };
        impl $layout {
            /// Asks the driver for all of it.
            ///
            /// # Errors
            /// The driver's, for a device that does not exist.
            pub fn of(device: i32) -> Result<Self> {
                let read = |attribute| attribute_or_zero(device, attribute);
                Ok(Self {
                    identity: Identity::of(device)?,
                    $($field: Show::show(&$attributes, &read)?,)*
                    reserved: [0; $reserved],
                })
            }
        }
    };
}

/// An attribute; 0 if the driver is too old to know it, as its absence means.
fn attribute_or_zero(device: i32, attribute: i32) -> Result<i32> {
    let mut value = 0;
    match ask!(cuDeviceGetAttribute(&raw mut value, attribute, device)) {
        Ok(()) => Ok(value),
        Err(Error::INVALID_VALUE) => Ok(0),
        Err(error) => Err(error),
    }
}

impl Identity {
    fn of(device: i32) -> Result<Self> {
        let mut id = Self { name: [0; 256], uuid: [0; 16], luid: [0; 8], luidDeviceNodeMask: 0, totalGlobalMem: 0 };
        ask!(cuDeviceGetName(id.name.as_mut_ptr(), 256, device))?;
        ask!(cuDeviceGetUuid(id.uuid.as_mut_ptr().cast::<c_void>(), device))?;
        ask!(cuDeviceTotalMem(&raw mut id.totalGlobalMem, device))?;
        Ok(id)
    }
}

properties! {
/// CUDA 12.
DeviceProp12 is 1032 with 63 reserved {
    sharedMemPerBlock: usize = [8], @ 296,
    regsPerBlock: i32 = [12], @ 304,
    warpSize: i32 = [10], @ 308,
    memPitch: usize = [11], @ 312,
    maxThreadsPerBlock: i32 = [1], @ 320,
    maxThreadsDim: [i32; 3] = [2, 3, 4], @ 324,
    maxGridSize: [i32; 3] = [5, 6, 7], @ 336,
    clockRate: i32 = [13], @ 348,
    totalConstMem: usize = [9], @ 352,
    major: i32 = [75], @ 360,
    minor: i32 = [76], @ 364,
    textureAlignment: usize = [14], @ 368,
    texturePitchAlignment: usize = [51], @ 376,
    deviceOverlap: i32 = [15], @ 384,
    multiProcessorCount: i32 = [16], @ 388,
    kernelExecTimeoutEnabled: i32 = [17], @ 392,
    integrated: i32 = [18], @ 396,
    canMapHostMemory: i32 = [19], @ 400,
    computeMode: i32 = [20], @ 404,
    maxTexture1D: i32 = [21], @ 408,
    maxTexture1DMipmap: i32 = [77], @ 412,
    maxTexture1DLinear: i32 = [69], @ 416,
    maxTexture2D: [i32; 2] = [22, 23], @ 420,
    maxTexture2DMipmap: [i32; 2] = [73, 74], @ 428,
    maxTexture2DLinear: [i32; 3] = [70, 71, 72], @ 436,
    maxTexture2DGather: [i32; 2] = [45, 46], @ 448,
    maxTexture3D: [i32; 3] = [24, 25, 26], @ 456,
    maxTexture3DAlt: [i32; 3] = [47, 48, 49], @ 468,
    maxTextureCubemap: i32 = [52], @ 480,
    maxTexture1DLayered: [i32; 2] = [42, 43], @ 484,
    maxTexture2DLayered: [i32; 3] = [27, 28, 29], @ 492,
    maxTextureCubemapLayered: [i32; 2] = [53, 54], @ 504,
    maxSurface1D: i32 = [55], @ 512,
    maxSurface2D: [i32; 2] = [56, 57], @ 516,
    maxSurface3D: [i32; 3] = [58, 59, 60], @ 524,
    maxSurface1DLayered: [i32; 2] = [61, 62], @ 536,
    maxSurface2DLayered: [i32; 3] = [63, 64, 65], @ 544,
    maxSurfaceCubemap: i32 = [66], @ 556,
    maxSurfaceCubemapLayered: [i32; 2] = [67, 68], @ 560,
    surfaceAlignment: usize = [30], @ 568,
    concurrentKernels: i32 = [31], @ 576,
    ECCEnabled: i32 = [32], @ 580,
    pciBusID: i32 = [33], @ 584,
    pciDeviceID: i32 = [34], @ 588,
    pciDomainID: i32 = [50], @ 592,
    tccDriver: i32 = [35], @ 596,
    asyncEngineCount: i32 = [40], @ 600,
    unifiedAddressing: i32 = [41], @ 604,
    memoryClockRate: i32 = [36], @ 608,
    memoryBusWidth: i32 = [37], @ 612,
    l2CacheSize: i32 = [38], @ 616,
    persistingL2CacheMaxSize: i32 = [108], @ 620,
    maxThreadsPerMultiProcessor: i32 = [39], @ 624,
    streamPrioritiesSupported: i32 = [78], @ 628,
    globalL1CacheSupported: i32 = [79], @ 632,
    localL1CacheSupported: i32 = [80], @ 636,
    sharedMemPerMultiprocessor: usize = [81], @ 640,
    regsPerMultiprocessor: i32 = [82], @ 648,
    managedMemory: i32 = [83], @ 652,
    isMultiGpuBoard: i32 = [84], @ 656,
    multiGpuBoardGroupID: i32 = [85], @ 660,
    hostNativeAtomicSupported: i32 = [86], @ 664,
    singleToDoublePrecisionPerfRatio: i32 = [87], @ 668,
    pageableMemoryAccess: i32 = [88], @ 672,
    concurrentManagedAccess: i32 = [89], @ 676,
    computePreemptionSupported: i32 = [90], @ 680,
    canUseHostPointerForRegisteredMem: i32 = [91], @ 684,
    cooperativeLaunch: i32 = [95], @ 688,
    cooperativeMultiDeviceLaunch: i32 = [96], @ 692,
    sharedMemPerBlockOptin: usize = [97], @ 696,
    pageableMemoryAccessUsesHostPageTables: i32 = [100], @ 704,
    directManagedMemAccessFromHost: i32 = [101], @ 708,
    maxBlocksPerMultiProcessor: i32 = [106], @ 712,
    accessPolicyMaxWindowSize: i32 = [109], @ 716,
    reservedSharedMemPerBlock: usize = [111], @ 720,
    hostRegisterSupported: i32 = [99], @ 728,
    sparseCudaArraySupported: i32 = [112], @ 732,
    hostRegisterReadOnlySupported: i32 = [113], @ 736,
    timelineSemaphoreInteropSupported: i32 = [114], @ 740,
    memoryPoolsSupported: i32 = [115], @ 744,
    gpuDirectRDMASupported: i32 = [116], @ 748,
    gpuDirectRDMAFlushWritesOptions: u32 = [117], @ 752,
    gpuDirectRDMAWritesOrdering: i32 = [118], @ 756,
    memoryPoolSupportedHandleTypes: u32 = [119], @ 760,
    deferredMappingCudaArraySupported: i32 = [121], @ 764,
    ipcEventSupported: i32 = [125], @ 768,
    clusterLaunch: i32 = [120], @ 772,
    unifiedFunctionPointers: i32 = [129], @ 776,
}
}

/// How much of [`DeviceProp12`] CUDA 11 had: up to and with `reservedSharedMemPerBlock`.
pub const CUDA_11_SIZE: usize = offset_of!(DeviceProp12, hostRegisterSupported);

properties! {
/// CUDA 13.
DeviceProp13 is 1008 with 56 reserved {
    sharedMemPerBlock: usize = [8], @ 296,
    regsPerBlock: i32 = [12], @ 304,
    warpSize: i32 = [10], @ 308,
    memPitch: usize = [11], @ 312,
    maxThreadsPerBlock: i32 = [1], @ 320,
    maxThreadsDim: [i32; 3] = [2, 3, 4], @ 324,
    maxGridSize: [i32; 3] = [5, 6, 7], @ 336,
    totalConstMem: usize = [9], @ 352,
    major: i32 = [75], @ 360,
    minor: i32 = [76], @ 364,
    textureAlignment: usize = [14], @ 368,
    texturePitchAlignment: usize = [51], @ 376,
    multiProcessorCount: i32 = [16], @ 384,
    integrated: i32 = [18], @ 388,
    canMapHostMemory: i32 = [19], @ 392,
    maxTexture1D: i32 = [21], @ 396,
    maxTexture1DMipmap: i32 = [77], @ 400,
    maxTexture2D: [i32; 2] = [22, 23], @ 404,
    maxTexture2DMipmap: [i32; 2] = [73, 74], @ 412,
    maxTexture2DLinear: [i32; 3] = [70, 71, 72], @ 420,
    maxTexture2DGather: [i32; 2] = [45, 46], @ 432,
    maxTexture3D: [i32; 3] = [24, 25, 26], @ 440,
    maxTexture3DAlt: [i32; 3] = [47, 48, 49], @ 452,
    maxTextureCubemap: i32 = [52], @ 464,
    maxTexture1DLayered: [i32; 2] = [42, 43], @ 468,
    maxTexture2DLayered: [i32; 3] = [27, 28, 29], @ 476,
    maxTextureCubemapLayered: [i32; 2] = [53, 54], @ 488,
    maxSurface1D: i32 = [55], @ 496,
    maxSurface2D: [i32; 2] = [56, 57], @ 500,
    maxSurface3D: [i32; 3] = [58, 59, 60], @ 508,
    maxSurface1DLayered: [i32; 2] = [61, 62], @ 520,
    maxSurface2DLayered: [i32; 3] = [63, 64, 65], @ 528,
    maxSurfaceCubemap: i32 = [66], @ 540,
    maxSurfaceCubemapLayered: [i32; 2] = [67, 68], @ 544,
    surfaceAlignment: usize = [30], @ 552,
    concurrentKernels: i32 = [31], @ 560,
    ECCEnabled: i32 = [32], @ 564,
    pciBusID: i32 = [33], @ 568,
    pciDeviceID: i32 = [34], @ 572,
    pciDomainID: i32 = [50], @ 576,
    tccDriver: i32 = [35], @ 580,
    asyncEngineCount: i32 = [40], @ 584,
    unifiedAddressing: i32 = [41], @ 588,
    memoryBusWidth: i32 = [37], @ 592,
    l2CacheSize: i32 = [38], @ 596,
    persistingL2CacheMaxSize: i32 = [108], @ 600,
    maxThreadsPerMultiProcessor: i32 = [39], @ 604,
    streamPrioritiesSupported: i32 = [78], @ 608,
    globalL1CacheSupported: i32 = [79], @ 612,
    localL1CacheSupported: i32 = [80], @ 616,
    sharedMemPerMultiprocessor: usize = [81], @ 624,
    regsPerMultiprocessor: i32 = [82], @ 632,
    managedMemory: i32 = [83], @ 636,
    isMultiGpuBoard: i32 = [84], @ 640,
    multiGpuBoardGroupID: i32 = [85], @ 644,
    hostNativeAtomicSupported: i32 = [86], @ 648,
    pageableMemoryAccess: i32 = [88], @ 652,
    concurrentManagedAccess: i32 = [89], @ 656,
    computePreemptionSupported: i32 = [90], @ 660,
    canUseHostPointerForRegisteredMem: i32 = [91], @ 664,
    cooperativeLaunch: i32 = [95], @ 668,
    sharedMemPerBlockOptin: usize = [97], @ 672,
    pageableMemoryAccessUsesHostPageTables: i32 = [100], @ 680,
    directManagedMemAccessFromHost: i32 = [101], @ 684,
    maxBlocksPerMultiProcessor: i32 = [106], @ 688,
    accessPolicyMaxWindowSize: i32 = [109], @ 692,
    reservedSharedMemPerBlock: usize = [111], @ 696,
    hostRegisterSupported: i32 = [99], @ 704,
    sparseCudaArraySupported: i32 = [112], @ 708,
    hostRegisterReadOnlySupported: i32 = [113], @ 712,
    timelineSemaphoreInteropSupported: i32 = [114], @ 716,
    memoryPoolsSupported: i32 = [115], @ 720,
    gpuDirectRDMASupported: i32 = [116], @ 724,
    gpuDirectRDMAFlushWritesOptions: u32 = [117], @ 728,
    gpuDirectRDMAWritesOrdering: i32 = [118], @ 732,
    memoryPoolSupportedHandleTypes: u32 = [119], @ 736,
    deferredMappingCudaArraySupported: i32 = [121], @ 740,
    ipcEventSupported: i32 = [125], @ 744,
    clusterLaunch: i32 = [120], @ 748,
    unifiedFunctionPointers: i32 = [129], @ 752,
    deviceNumaConfig: i32 = [130], @ 756,
    deviceNumaId: i32 = [131], @ 760,
    mpsEnabled: i32 = [133], @ 764,
    hostNumaId: i32 = [134], @ 768,
    gpuPciDeviceID: u32 = [139], @ 772,
    gpuPciSubsystemID: u32 = [140], @ 776,
    hostNumaMultinodeIpcSupported: i32 = [143], @ 780,
}
}
