//! Names and messages of the runtime's errors.
//!
//! Names and numbers are those of CUDA 12.8 and 13.2 together (`cudaError_t`). A message that programs are known to look for
//! ("out of memory", "an illegal memory access was encountered") reads as the vendor's; the others are the name in words.

use std::ffi::CStr;

/// Number, name, message; by rising number.
#[rustfmt::skip]
const ERRORS: &[(i32, &CStr, &CStr)] = &[
    (0, c"cudaSuccess", c"no error"),
    (1, c"cudaErrorInvalidValue", c"invalid argument"),
    (2, c"cudaErrorMemoryAllocation", c"out of memory"),
    (3, c"cudaErrorInitializationError", c"initialization error"),
    (4, c"cudaErrorCudartUnloading", c"driver shutting down"),
    (5, c"cudaErrorProfilerDisabled", c"profiler disabled"),
    (6, c"cudaErrorProfilerNotInitialized", c"profiler not initialized"),
    (7, c"cudaErrorProfilerAlreadyStarted", c"profiler already started"),
    (8, c"cudaErrorProfilerAlreadyStopped", c"profiler already stopped"),
    (9, c"cudaErrorInvalidConfiguration", c"invalid configuration argument"),
    (10, c"cudaErrorVersionTranslation", c"driver returned values this runtime cannot translate"),
    (12, c"cudaErrorInvalidPitchValue", c"invalid pitch argument"),
    (13, c"cudaErrorInvalidSymbol", c"invalid device symbol"),
    (16, c"cudaErrorInvalidHostPointer", c"invalid host pointer"),
    (17, c"cudaErrorInvalidDevicePointer", c"invalid device pointer"),
    (18, c"cudaErrorInvalidTexture", c"invalid texture reference"),
    (19, c"cudaErrorInvalidTextureBinding", c"invalid texture binding"),
    (20, c"cudaErrorInvalidChannelDescriptor", c"invalid channel descriptor"),
    (21, c"cudaErrorInvalidMemcpyDirection", c"invalid copy direction for memcpy"),
    (22, c"cudaErrorAddressOfConstant", c"invalid address of constant"),
    (23, c"cudaErrorTextureFetchFailed", c"texture fetch failed"),
    (24, c"cudaErrorTextureNotBound", c"texture not bound"),
    (25, c"cudaErrorSynchronizationError", c"synchronization error"),
    (26, c"cudaErrorInvalidFilterSetting", c"invalid filter setting"),
    (27, c"cudaErrorInvalidNormSetting", c"invalid norm setting"),
    (28, c"cudaErrorMixedDeviceExecution", c"mixed device execution"),
    (31, c"cudaErrorNotYetImplemented", c"feature not yet implemented"),
    (32, c"cudaErrorMemoryValueTooLarge", c"memory value too large"),
    (34, c"cudaErrorStubLibrary", c"CUDA driver is a stub library"),
    (35, c"cudaErrorInsufficientDriver", c"CUDA driver version is insufficient for CUDA runtime version"),
    (36, c"cudaErrorCallRequiresNewerDriver", c"call requires a newer CUDA driver"),
    (37, c"cudaErrorInvalidSurface", c"invalid surface reference"),
    (43, c"cudaErrorDuplicateVariableName", c"duplicate variable name"),
    (44, c"cudaErrorDuplicateTextureName", c"duplicate texture name"),
    (45, c"cudaErrorDuplicateSurfaceName", c"duplicate surface name"),
    (46, c"cudaErrorDevicesUnavailable", c"CUDA-capable device(s) is/are busy or unavailable"),
    (49, c"cudaErrorIncompatibleDriverContext", c"incompatible driver context"),
    (52, c"cudaErrorMissingConfiguration", c"kernel call is not configured"),
    (53, c"cudaErrorPriorLaunchFailure", c"prior launch failure"),
    (65, c"cudaErrorLaunchMaxDepthExceeded", c"launch exceeds the maximum depth of nested launches"),
    (66, c"cudaErrorLaunchFileScopedTex", c"launch uses file-scoped textures"),
    (67, c"cudaErrorLaunchFileScopedSurf", c"launch uses file-scoped surfaces"),
    (68, c"cudaErrorSyncDepthExceeded", c"synchronization depth exceeded"),
    (69, c"cudaErrorLaunchPendingCountExceeded", c"pending launch count exceeded"),
    (98, c"cudaErrorInvalidDeviceFunction", c"invalid device function"),
    (100, c"cudaErrorNoDevice", c"no CUDA-capable device is detected"),
    (101, c"cudaErrorInvalidDevice", c"invalid device ordinal"),
    (102, c"cudaErrorDeviceNotLicensed", c"device not licensed"),
    (103, c"cudaErrorSoftwareValidityNotEstablished", c"software validity not established"),
    (127, c"cudaErrorStartupFailure", c"startup failure in cuda runtime"),
    (200, c"cudaErrorInvalidKernelImage", c"device kernel image is invalid"),
    (201, c"cudaErrorDeviceUninitialized", c"invalid device context"),
    (205, c"cudaErrorMapBufferObjectFailed", c"mapping of buffer object failed"),
    (206, c"cudaErrorUnmapBufferObjectFailed", c"unmapping of buffer object failed"),
    (207, c"cudaErrorArrayIsMapped", c"array is mapped"),
    (208, c"cudaErrorAlreadyMapped", c"resource already mapped"),
    (209, c"cudaErrorNoKernelImageForDevice", c"no kernel image is available for execution on the device"),
    (210, c"cudaErrorAlreadyAcquired", c"resource already acquired"),
    (211, c"cudaErrorNotMapped", c"resource not mapped"),
    (212, c"cudaErrorNotMappedAsArray", c"resource not mapped as array"),
    (213, c"cudaErrorNotMappedAsPointer", c"resource not mapped as pointer"),
    (214, c"cudaErrorECCUncorrectable", c"uncorrectable ECC error encountered"),
    (215, c"cudaErrorUnsupportedLimit", c"limit is not supported"),
    (216, c"cudaErrorDeviceAlreadyInUse", c"device already in use"),
    (217, c"cudaErrorPeerAccessUnsupported", c"peer access is not supported between these two devices"),
    (218, c"cudaErrorInvalidPtx", c"invalid PTX"),
    (219, c"cudaErrorInvalidGraphicsContext", c"invalid graphics context"),
    (220, c"cudaErrorNvlinkUncorrectable", c"uncorrectable NVLink error"),
    (221, c"cudaErrorJitCompilerNotFound", c"PTX JIT compiler not found"),
    (222, c"cudaErrorUnsupportedPtxVersion", c"unsupported PTX version"),
    (223, c"cudaErrorJitCompilationDisabled", c"PTX JIT compilation was disabled"),
    (224, c"cudaErrorUnsupportedExecAffinity", c"unsupported execution affinity"),
    (225, c"cudaErrorUnsupportedDevSideSync", c"unsupported device-side synchronization"),
    (226, c"cudaErrorContained", c"contained memory error"),
    (300, c"cudaErrorInvalidSource", c"invalid kernel source"),
    (301, c"cudaErrorFileNotFound", c"file not found"),
    (302, c"cudaErrorSharedObjectSymbolNotFound", c"shared object symbol not found"),
    (303, c"cudaErrorSharedObjectInitFailed", c"shared object initialization failed"),
    (304, c"cudaErrorOperatingSystem", c"operating system call failed"),
    (400, c"cudaErrorInvalidResourceHandle", c"invalid resource handle"),
    (401, c"cudaErrorIllegalState", c"illegal state"),
    (402, c"cudaErrorLossyQuery", c"lossy query"),
    (500, c"cudaErrorSymbolNotFound", c"named symbol not found"),
    (600, c"cudaErrorNotReady", c"device not ready"),
    (700, c"cudaErrorIllegalAddress", c"an illegal memory access was encountered"),
    (701, c"cudaErrorLaunchOutOfResources", c"too many resources requested for launch"),
    (702, c"cudaErrorLaunchTimeout", c"the launch timed out and was terminated"),
    (703, c"cudaErrorLaunchIncompatibleTexturing", c"launch with incompatible texturing"),
    (704, c"cudaErrorPeerAccessAlreadyEnabled", c"peer access is already enabled"),
    (705, c"cudaErrorPeerAccessNotEnabled", c"peer access has not been enabled"),
    (708, c"cudaErrorSetOnActiveProcess", c"cannot set while device is active in this process"),
    (709, c"cudaErrorContextIsDestroyed", c"context is destroyed"),
    (710, c"cudaErrorAssert", c"device-side assert triggered"),
    (711, c"cudaErrorTooManyPeers", c"too many peers"),
    (712, c"cudaErrorHostMemoryAlreadyRegistered", c"host memory is already registered"),
    (713, c"cudaErrorHostMemoryNotRegistered", c"host memory is not registered"),
    (714, c"cudaErrorHardwareStackError", c"hardware stack error"),
    (715, c"cudaErrorIllegalInstruction", c"an illegal instruction was encountered"),
    (716, c"cudaErrorMisalignedAddress", c"misaligned address"),
    (717, c"cudaErrorInvalidAddressSpace", c"invalid address space"),
    (718, c"cudaErrorInvalidPc", c"invalid program counter"),
    (719, c"cudaErrorLaunchFailure", c"unspecified launch failure"),
    (720, c"cudaErrorCooperativeLaunchTooLarge", c"too many blocks in cooperative launch"),
    (721, c"cudaErrorTensorMemoryLeak", c"tensor memory leak"),
    (800, c"cudaErrorNotPermitted", c"operation not permitted"),
    (801, c"cudaErrorNotSupported", c"operation not supported"),
    (802, c"cudaErrorSystemNotReady", c"system not yet initialized"),
    (803, c"cudaErrorSystemDriverMismatch", c"system driver mismatch"),
    (804, c"cudaErrorCompatNotSupportedOnDevice", c"forward compatibility not supported on device"),
    (805, c"cudaErrorMpsConnectionFailed", c"MPS connection failed"),
    (806, c"cudaErrorMpsRpcFailure", c"MPS remote procedure call failed"),
    (807, c"cudaErrorMpsServerNotReady", c"MPS server is not ready"),
    (808, c"cudaErrorMpsMaxClientsReached", c"MPS maximum of clients reached"),
    (809, c"cudaErrorMpsMaxConnectionsReached", c"MPS maximum of connections reached"),
    (810, c"cudaErrorMpsClientTerminated", c"MPS client terminated"),
    (811, c"cudaErrorCdpNotSupported", c"dynamic parallelism not supported"),
    (812, c"cudaErrorCdpVersionMismatch", c"dynamic parallelism version mismatch"),
    (900, c"cudaErrorStreamCaptureUnsupported", c"operation not permitted when stream is capturing"),
    (901, c"cudaErrorStreamCaptureInvalidated", c"stream capture invalidated"),
    (902, c"cudaErrorStreamCaptureMerge", c"stream capture would merge separate captures"),
    (903, c"cudaErrorStreamCaptureUnmatched", c"stream capture was not begun in this stream"),
    (904, c"cudaErrorStreamCaptureUnjoined", c"stream capture has unjoined work"),
    (905, c"cudaErrorStreamCaptureIsolation", c"stream capture depends on work outside of it"),
    (906, c"cudaErrorStreamCaptureImplicit", c"stream capture would depend on the legacy stream"),
    (907, c"cudaErrorCapturedEvent", c"event was recorded in a capturing stream"),
    (908, c"cudaErrorStreamCaptureWrongThread", c"stream capture belongs to another thread"),
    (909, c"cudaErrorTimeout", c"wait operation timed out"),
    (910, c"cudaErrorGraphExecUpdateFailure", c"graph update was not performed"),
    (911, c"cudaErrorExternalDevice", c"external device error"),
    (912, c"cudaErrorInvalidClusterSize", c"invalid cluster size"),
    (913, c"cudaErrorFunctionNotLoaded", c"function is not loaded"),
    (914, c"cudaErrorInvalidResourceType", c"invalid resource type"),
    (915, c"cudaErrorInvalidResourceConfiguration", c"invalid resource configuration"),
    (917, c"cudaErrorStreamDetached", c"stream is detached from its context"),
    (999, c"cudaErrorUnknown", c"unknown error"),
    (10000, c"cudaErrorApiFailureBase", c"API failure base"),
];

/// What both queries say to a number that is no error.
const UNKNOWN: &CStr = c"unrecognized error code";

fn row(status: i32) -> Option<&'static (i32, &'static CStr, &'static CStr)> {
    ERRORS.binary_search_by_key(&status, |row| row.0).ok().map(|at| &ERRORS[at])
}

/// `cudaErrorMemoryAllocation`
pub fn name(status: i32) -> &'static CStr {
    row(status).map_or(UNKNOWN, |row| row.1)
}

/// `out of memory`
pub fn message(status: i32) -> &'static CStr {
    row(status).map_or(UNKNOWN, |row| row.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_and_others_are_not() {
        assert!(ERRORS.is_sorted_by(|a, b| a.0 < b.0), "binary search needs rising numbers");
        for (status, name_, message_) in ERRORS {
            assert_eq!((name(*status), message(*status)), (*name_, *message_));
        }
        assert_eq!(name(11), UNKNOWN);
        assert_eq!(message(-1), UNKNOWN);
    }
}
