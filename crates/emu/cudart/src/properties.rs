//! `cudaDeviceProp`, field by field, in both layouts.
//!
//! CUDA 13 dropped fields of CUDA 12 and closed the gaps; CUDA 11's, which CUDA 12 still serves under the old name, is a prefix of
//! CUDA 12's. Each field but the first few shows attributes of the device (`cudaDeviceAttr`, the driver's `CUdevice_attribute`),
//! so a line says what it is called, how wide it is, which attributes it shows, and where it is. Sizes and offsets: a C program
//! compiled against the headers of nvidia-cuda-runtime-cu12 12.8.90 and nvidia-cuda-runtime 13.2.86.

use crate::driver::ask;
use crate::error::{Error, Result};
use crate::version::Major;

/// Bytes of the structure of CUDA 12, and of CUDA 13.
pub const SIZE_12: usize = 1032;
pub const SIZE_13: usize = 1008;
/// How much of CUDA 12's structure CUDA 11 had: up to and with `reservedSharedMemPerBlock`.
pub const SIZE_11: usize = 728;

/// What every layout begins with: `name[256]`, `uuid`, `luid[8]`, `luidDeviceNodeMask`, `totalGlobalMem`.
const UUID: usize = 256;
const TOTAL_MEMORY: usize = 288;

/// Name, bytes of each element, the attributes it shows, offset in CUDA 12's structure and in CUDA 13's.
type Field = (&'static str, usize, &'static [i32], usize, usize);

const INT: usize = 4;
const SIZE: usize = 8;
/// The offset of a field where it is not.
const NONE: usize = 0;

#[rustfmt::skip]
const FIELDS: &[Field] = &[
    ("sharedMemPerBlock", SIZE, &[8], 296, 296),
    ("regsPerBlock", INT, &[12], 304, 304),
    ("warpSize", INT, &[10], 308, 308),
    ("memPitch", SIZE, &[11], 312, 312),
    ("maxThreadsPerBlock", INT, &[1], 320, 320),
    ("maxThreadsDim", INT, &[2, 3, 4], 324, 324),
    ("maxGridSize", INT, &[5, 6, 7], 336, 336),
    ("clockRate", INT, &[13], 348, NONE),
    ("totalConstMem", SIZE, &[9], 352, 352),
    ("major", INT, &[75], 360, 360),
    ("minor", INT, &[76], 364, 364),
    ("textureAlignment", SIZE, &[14], 368, 368),
    ("texturePitchAlignment", SIZE, &[51], 376, 376),
    ("deviceOverlap", INT, &[15], 384, NONE),
    ("multiProcessorCount", INT, &[16], 388, 384),
    ("kernelExecTimeoutEnabled", INT, &[17], 392, NONE),
    ("integrated", INT, &[18], 396, 388),
    ("canMapHostMemory", INT, &[19], 400, 392),
    ("computeMode", INT, &[20], 404, NONE),
    ("maxTexture1D", INT, &[21], 408, 396),
    ("maxTexture1DMipmap", INT, &[77], 412, 400),
    ("maxTexture1DLinear", INT, &[69], 416, NONE),
    ("maxTexture2D", INT, &[22, 23], 420, 404),
    ("maxTexture2DMipmap", INT, &[73, 74], 428, 412),
    ("maxTexture2DLinear", INT, &[70, 71, 72], 436, 420),
    ("maxTexture2DGather", INT, &[45, 46], 448, 432),
    ("maxTexture3D", INT, &[24, 25, 26], 456, 440),
    ("maxTexture3DAlt", INT, &[47, 48, 49], 468, 452),
    ("maxTextureCubemap", INT, &[52], 480, 464),
    ("maxTexture1DLayered", INT, &[42, 43], 484, 468),
    ("maxTexture2DLayered", INT, &[27, 28, 29], 492, 476),
    ("maxTextureCubemapLayered", INT, &[53, 54], 504, 488),
    ("maxSurface1D", INT, &[55], 512, 496),
    ("maxSurface2D", INT, &[56, 57], 516, 500),
    ("maxSurface3D", INT, &[58, 59, 60], 524, 508),
    ("maxSurface1DLayered", INT, &[61, 62], 536, 520),
    ("maxSurface2DLayered", INT, &[63, 64, 65], 544, 528),
    ("maxSurfaceCubemap", INT, &[66], 556, 540),
    ("maxSurfaceCubemapLayered", INT, &[67, 68], 560, 544),
    ("surfaceAlignment", SIZE, &[30], 568, 552),
    ("concurrentKernels", INT, &[31], 576, 560),
    ("ECCEnabled", INT, &[32], 580, 564),
    ("pciBusID", INT, &[33], 584, 568),
    ("pciDeviceID", INT, &[34], 588, 572),
    ("pciDomainID", INT, &[50], 592, 576),
    ("tccDriver", INT, &[35], 596, 580),
    ("asyncEngineCount", INT, &[40], 600, 584),
    ("unifiedAddressing", INT, &[41], 604, 588),
    ("memoryClockRate", INT, &[36], 608, NONE),
    ("memoryBusWidth", INT, &[37], 612, 592),
    ("l2CacheSize", INT, &[38], 616, 596),
    ("persistingL2CacheMaxSize", INT, &[108], 620, 600),
    ("maxThreadsPerMultiProcessor", INT, &[39], 624, 604),
    ("streamPrioritiesSupported", INT, &[78], 628, 608),
    ("globalL1CacheSupported", INT, &[79], 632, 612),
    ("localL1CacheSupported", INT, &[80], 636, 616),
    ("sharedMemPerMultiprocessor", SIZE, &[81], 640, 624),
    ("regsPerMultiprocessor", INT, &[82], 648, 632),
    ("managedMemory", INT, &[83], 652, 636),
    ("isMultiGpuBoard", INT, &[84], 656, 640),
    ("multiGpuBoardGroupID", INT, &[85], 660, 644),
    ("hostNativeAtomicSupported", INT, &[86], 664, 648),
    ("singleToDoublePrecisionPerfRatio", INT, &[87], 668, NONE),
    ("pageableMemoryAccess", INT, &[88], 672, 652),
    ("concurrentManagedAccess", INT, &[89], 676, 656),
    ("computePreemptionSupported", INT, &[90], 680, 660),
    ("canUseHostPointerForRegisteredMem", INT, &[91], 684, 664),
    ("cooperativeLaunch", INT, &[95], 688, 668),
    ("cooperativeMultiDeviceLaunch", INT, &[96], 692, NONE),
    ("sharedMemPerBlockOptin", SIZE, &[97], 696, 672),
    ("pageableMemoryAccessUsesHostPageTables", INT, &[100], 704, 680),
    ("directManagedMemAccessFromHost", INT, &[101], 708, 684),
    ("maxBlocksPerMultiProcessor", INT, &[106], 712, 688),
    ("accessPolicyMaxWindowSize", INT, &[109], 716, 692),
    ("reservedSharedMemPerBlock", SIZE, &[111], 720, 696),
    ("hostRegisterSupported", INT, &[99], 728, 704),
    ("sparseCudaArraySupported", INT, &[112], 732, 708),
    ("hostRegisterReadOnlySupported", INT, &[113], 736, 712),
    ("timelineSemaphoreInteropSupported", INT, &[114], 740, 716),
    ("memoryPoolsSupported", INT, &[115], 744, 720),
    ("gpuDirectRDMASupported", INT, &[116], 748, 724),
    ("gpuDirectRDMAFlushWritesOptions", INT, &[117], 752, 728),
    ("gpuDirectRDMAWritesOrdering", INT, &[118], 756, 732),
    ("memoryPoolSupportedHandleTypes", INT, &[119], 760, 736),
    ("deferredMappingCudaArraySupported", INT, &[121], 764, 740),
    ("ipcEventSupported", INT, &[125], 768, 744),
    ("clusterLaunch", INT, &[120], 772, 748),
    ("unifiedFunctionPointers", INT, &[129], 776, 752),
    ("deviceNumaConfig", INT, &[130], NONE, 756),
    ("deviceNumaId", INT, &[131], NONE, 760),
    ("mpsEnabled", INT, &[133], NONE, 764),
    ("hostNumaId", INT, &[134], NONE, 768),
    ("gpuPciDeviceID", INT, &[139], NONE, 772),
    ("gpuPciSubsystemID", INT, &[140], NONE, 776),
    ("hostNumaMultinodeIpcSupported", INT, &[143], NONE, 780),
];

/// Where a field is in the structure of a version.
fn offset(field: &Field, major: Major) -> Option<usize> {
    let (.., twelve, thirteen) = *field;
    let at = if major == Major::Thirteen { thirteen } else { twelve };
    (at != NONE).then_some(at)
}

/// The structure of a version, as bytes; what the driver is not asked for is 0.
///
/// # Errors
/// The driver's, for a device that does not exist.
pub fn of(device: i32, major: Major) -> Result<Vec<u8>> {
    let mut all = vec![0u8; if major == Major::Thirteen { SIZE_13 } else { SIZE_12 }];
    ask!(cuDeviceGetName(all.as_mut_ptr().cast(), 256, device))?;
    ask!(cuDeviceGetUuid(all[UUID..].as_mut_ptr().cast(), device))?;
    let mut total = 0;
    ask!(cuDeviceTotalMem(&raw mut total, device))?;
    all[TOTAL_MEMORY..][..SIZE].copy_from_slice(&total.to_le_bytes());
    for field in FIELDS {
        let (_, width, attributes, ..) = *field;
        let Some(at) = offset(field, major) else { continue };
        for (place, attribute) in all[at..].chunks_exact_mut(width).zip(attributes) {
            // Attributes are 32 bits wide; the upper half of a wider field stays 0.
            place[..INT].copy_from_slice(&attribute_or_zero(device, *attribute)?.to_le_bytes());
        }
    }
    Ok(all)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_follow_each_other_aligned_in_either_layout() {
        for (major, size) in [(Major::Twelve, SIZE_12), (Major::Thirteen, SIZE_13)] {
            let mut end = TOTAL_MEMORY + SIZE;
            for field in FIELDS {
                let (name, width, attributes, ..) = *field;
                let Some(at) = offset(field, major) else { continue };
                assert_eq!(at, end.next_multiple_of(width), "{name} of {major:?}");
                end = at + width * attributes.len();
            }
            assert!(end <= size && size.is_multiple_of(SIZE), "{major:?}");
        }
        let ends_11 = FIELDS.iter().find(|(name, ..)| *name == "reservedSharedMemPerBlock").map(|f| f.3 + SIZE);
        assert_eq!(ends_11, Some(SIZE_11));
    }
}
