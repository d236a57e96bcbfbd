//! Kernels as things: handles, names, attributes, parameters, occupancy. The driver takes a kernel wherever it takes a function
//! of a context (CUDA Driver API, `cuLaunchKernel`, `cuOccupancy*`), so none is looked up per context.

use super::{export, put};
use crate::context;
use crate::driver::{ask, drive};
use crate::error::{Error, Result};
use crate::layout::{DriverLaunchConfig, FunctionAttributes, Handle, LaunchConfig};
use crate::registry;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

export! {
    fn cudaGetKernel(out: *mut Handle, function: *const c_void) {
        // SAFETY: the program's own result address.
        unsafe { put(out, kernel(function)?) }
    }

    fn cudaGetFuncBySymbol(out: *mut Handle, function: *const c_void) {
        let (kernel, mut handle) = (kernel(function)?, null_mut());
        ask!(cuKernelGetFunction(&raw mut handle, kernel))?;
        registry::add_handle(handle, kernel);
        // SAFETY: the program's own result address.
        unsafe { put(out, handle) }
    }

    fn cudaFuncGetName(out: *mut *const c_char, function: *const c_void) {
        ask!(cuKernelGetName(out, kernel(function)?))
    }

    fn cudaFuncGetParamInfo(function: *const c_void, index: usize, offset: *mut usize, size: *mut usize) {
        ask!(cuKernelGetParamInfo(kernel(function)?, index, offset, size))
    }

    fn cudaFuncGetParamCount(function: *const c_void, out: *mut usize) {
        ask!(cuKernelGetParamCount(kernel(function)?, out))
    }

    fn cudaFuncGetAttributes(out: *mut FunctionAttributes, function: *const c_void) {
        let (kernel, device) = (kernel(function)?, context::device()?);
        // SAFETY: the program's own structure.
        unsafe { put(out, attributes(kernel, device)?) }
    }

    fn cudaFuncSetAttribute(function: *const c_void, attribute: c_int, value: c_int) {
        let (kernel, device) = (kernel(function)?, context::device()?);
        ask!(cuKernelSetAttribute(attribute, value, kernel, device))
    }

    fn cudaKernelSetAttributeForDevice(kernel: Handle, attribute: c_int, value: c_int, device: c_int) {
        ask!(cuKernelSetAttribute(attribute, value, kernel, device))
    }

    fn cudaFuncSetCacheConfig(function: *const c_void, config: c_int) {
        let (kernel, device) = (kernel(function)?, context::device()?);
        ask!(cuKernelSetCacheConfig(kernel, config, device))
    }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        out: *mut c_int, function: *const c_void, block: c_int, shared: usize
    ) {
        drive!(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, kernel(function)?, block, shared, 0))
    }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: *mut c_int, function: *const c_void, block: c_int, shared: usize, flags: c_uint
    ) {
        drive!(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, kernel(function)?, block, shared, flags))
    }

    fn cudaOccupancyAvailableDynamicSMemPerBlock(
        out: *mut usize, function: *const c_void, blocks: c_int, block: c_int
    ) {
        drive!(cuOccupancyAvailableDynamicSMemPerBlock(out, kernel(function)?, blocks, block))
    }
}

/// The kernel that `function` stands for, with a context current, as its image needs to be loaded.
pub(super) fn kernel(function: *const c_void) -> Result<Handle> {
    context::ensure()?;
    registry::kernel(function)
}

/// A launch configuration in the driver's words.
///
/// # Safety
/// `config` must be null or a `cudaLaunchConfig_t`.
pub(super) unsafe fn driver_config(config: *const LaunchConfig) -> Result<DriverLaunchConfig> {
    // SAFETY: the caller's promise.
    let config = unsafe { config.as_ref() }.ok_or(Error::INVALID_VALUE)?;
    Ok(DriverLaunchConfig {
        grid: config.grid,
        block: config.block,
        shared: c_uint::try_from(config.shared).map_err(|_| Error::INVALID_VALUE)?,
        stream: config.stream,
        attributes: config.attributes,
        attribute_count: config.attribute_count,
    })
}

/// Every attribute of a kernel on a device. Numbers: `CUfunction_attribute`.
fn attributes(kernel: Handle, device: c_int) -> Result<FunctionAttributes> {
    let read = |attribute: c_int| {
        let mut value = 0;
        match ask!(cuKernelGetAttribute(&raw mut value, attribute, kernel, device)) {
            Ok(()) => Ok(value),
            // A driver too old for the attribute: its absence means 0.
            Err(Error::INVALID_VALUE) => Ok(0),
            Err(error) => Err(error),
        }
    };
    let bytes = |attribute| Ok::<_, Error>(usize::try_from(read(attribute)?).unwrap_or(0));
    Ok(FunctionAttributes {
        maxThreadsPerBlock: read(0)?,
        sharedSizeBytes: bytes(1)?,
        constSizeBytes: bytes(2)?,
        localSizeBytes: bytes(3)?,
        numRegs: read(4)?,
        ptxVersion: read(5)?,
        binaryVersion: read(6)?,
        cacheModeCA: read(7)?,
        maxDynamicSharedSizeBytes: read(8)?,
        preferredShmemCarveout: read(9)?,
        clusterDimMustBeSet: read(10)?,
        requiredClusterWidth: read(11)?,
        requiredClusterHeight: read(12)?,
        requiredClusterDepth: read(13)?,
        nonPortableClusterSizeAllowed: read(14)?,
        clusterSchedulingPolicyPreference: read(15)?,
        reserved: [0; 16],
    })
}
