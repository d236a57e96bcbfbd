//! `cuGetProcAddress`: a base name and an interface version become an address.
//!
//! A function keeps its base name when its form changes: `cuMemAlloc` asked for at version 3020 or later is `cuMemAlloc_v2`.
//! [`SINCE`] says from which version each suffixed form is meant (CUDA headers 12.8 and 13.2, `cudaTypedefs.h`); with the
//! per-thread flag the `_ptsz` or `_ptds` twin of that form is meant, if there is one.

use std::ffi::{c_int, c_void};

use deepum_emu_device::error::{CuError, CuResult};

use crate::edge::{Out, Text, api};

/// The address of a function.
#[derive(Clone, Copy, Debug)]
pub struct Address(pub *const ());
// SAFETY: the address of code is valid and the same on every thread.
unsafe impl Sync for Address {}

/// From which interface version a suffixed form is meant by its base name.
const SINCE: &[(&str, i32)] = &[
    ("cuCtxCreate_v2", 3020),
    ("cuCtxCreate_v4", 12_050),
    ("cuCtxDestroy_v2", 4000),
    ("cuCtxGetDevice_v2", 13_000),
    ("cuCtxPopCurrent_v2", 4000),
    ("cuCtxPushCurrent_v2", 4000),
    ("cuCtxSynchronize_v2", 13_000),
    ("cuDeviceGetUuid_v2", 11_040),
    ("cuDevicePrimaryCtxRelease_v2", 11_000),
    ("cuDevicePrimaryCtxReset_v2", 11_000),
    ("cuDevicePrimaryCtxSetFlags_v2", 11_000),
    ("cuDeviceTotalMem_v2", 3020),
    ("cuEventDestroy_v2", 4000),
    ("cuEventElapsedTime_v2", 12_080),
    ("cuGetProcAddress_v2", 12_000),
    ("cuGraphAddDependencies_v2", 12_030),
    ("cuGraphAddKernelNode_v2", 12_000),
    ("cuGraphAddNode_v2", 12_030),
    ("cuGraphExecKernelNodeSetParams_v2", 12_000),
    ("cuGraphExecUpdate_v2", 12_000),
    ("cuGraphGetEdges_v2", 12_030),
    ("cuGraphInstantiate_v2", 11_000),
    ("cuGraphKernelNodeGetParams_v2", 12_000),
    ("cuGraphKernelNodeSetParams_v2", 12_000),
    ("cuGraphNodeGetDependencies_v2", 12_030),
    ("cuGraphNodeGetDependentNodes_v2", 12_030),
    ("cuGraphRemoveDependencies_v2", 12_030),
    ("cuIpcOpenMemHandle_v2", 11_000),
    ("cuLinkAddData_v2", 6050),
    ("cuLinkAddFile_v2", 6050),
    ("cuLinkCreate_v2", 6050),
    ("cuMemAdvise_v2", 12_020),
    ("cuMemAllocHost_v2", 3020),
    ("cuMemAllocPitch_v2", 3020),
    ("cuMemAlloc_v2", 3020),
    ("cuMemFree_v2", 3020),
    ("cuMemGetAddressRange_v2", 3020),
    ("cuMemGetInfo_v2", 3020),
    ("cuMemHostGetDevicePointer_v2", 3020),
    ("cuMemHostRegister_v2", 6050),
    ("cuMemPrefetchAsync_v2", 12_020),
    ("cuMemcpy2DAsync_v2", 3020),
    ("cuMemcpy2DUnaligned_v2", 3020),
    ("cuMemcpy2D_v2", 3020),
    ("cuMemcpy3DAsync_v2", 3020),
    ("cuMemcpy3D_v2", 3020),
    ("cuMemcpyDtoDAsync_v2", 3020),
    ("cuMemcpyDtoD_v2", 3020),
    ("cuMemcpyDtoHAsync_v2", 3020),
    ("cuMemcpyDtoH_v2", 3020),
    ("cuMemcpyHtoDAsync_v2", 3020),
    ("cuMemcpyHtoD_v2", 3020),
    ("cuMemsetD16_v2", 3020),
    ("cuMemsetD2D16_v2", 3020),
    ("cuMemsetD2D32_v2", 3020),
    ("cuMemsetD2D8_v2", 3020),
    ("cuMemsetD32_v2", 3020),
    ("cuMemsetD8_v2", 3020),
    ("cuModuleGetGlobal_v2", 3020),
    ("cuStreamBatchMemOp_v2", 11_070),
    ("cuStreamBeginCapture_v2", 10_010),
    ("cuStreamDestroy_v2", 4000),
    ("cuStreamGetCaptureInfo_v2", 11_030),
    ("cuStreamGetCaptureInfo_v3", 12_030),
    ("cuStreamGetCtx_v2", 12_050),
    ("cuStreamUpdateCaptureDependencies_v2", 12_030),
    ("cuStreamWaitValue32_v2", 11_070),
    ("cuStreamWaitValue64_v2", 11_070),
    ("cuStreamWriteValue32_v2", 11_070),
    ("cuStreamWriteValue64_v2", 11_070),
];

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: u64 = 2;

/// `CUdriverProcAddressQueryResult`.
const FOUND: c_int = 0;
const NO_SYMBOL: c_int = 1;
const VERSION_NOT_SUFFICIENT: c_int = 2;

/// The exported name that `base` means at `version`.
fn form(base: &str, version: i32) -> &str {
    let suffixed =
        SINCE.iter().filter(|(name, since)| *since <= version && name.strip_prefix(base).is_some_and(is_suffix));
    suffixed.max_by_key(|(_, since)| *since).map_or(base, |(name, _)| name)
}

fn is_suffix(rest: &str) -> bool {
    matches!(rest, "_v2" | "_v3" | "_v4")
}

fn find(name: &str) -> Option<*const ()> {
    let table = crate::TABLE;
    table.binary_search_by_key(&name, |(known, _)| *known).ok().map(|n| table[n].1.0)
}

fn resolve(base: &str, version: i32, flags: u64) -> Option<*const ()> {
    let name = form(base, version);
    if flags & PER_THREAD != 0 {
        let twin = ["_ptsz", "_ptds"].into_iter().find_map(|suffix| find(&format!("{name}{suffix}")));
        if twin.is_some() {
            return twin;
        }
    }
    find(name)
}

fn answer(symbol: Text, out: Out<*const c_void>, version: c_int, flags: u64, status: Out<c_int>) -> CuResult {
    if flags & !3 != 0 {
        return Err(CuError::InvalidValue);
    }
    let base = symbol.get()?;
    let found = resolve(base, version, flags);
    status.offer(match found {
        Some(_) => FOUND,
        None if form(base, c_int::MAX) != base => VERSION_NOT_SUFFICIENT,
        None => NO_SYMBOL,
    });
    out.put(found.map_or(std::ptr::null(), <*const ()>::cast))?;
    found.map(drop).ok_or(CuError::NotFound)
}

api! {
    fn cuGetProcAddress(symbol: Text, out: Out<*const c_void>, version: c_int, flags: u64) {
        answer(symbol, out, version, flags, Out::none())
    }

    fn cuGetProcAddress_v2(symbol: Text, out: Out<*const c_void>, version: c_int, flags: u64, status: Out<c_int>) {
        answer(symbol, out, version, flags, status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_every_form_is_in_it() {
        assert!(crate::TABLE.is_sorted_by_key(|(name, _)| *name));
        for (name, _) in SINCE {
            assert!(find(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_base_name_means_the_form_of_its_version() {
        assert_eq!(form("cuMemAlloc", 2000), "cuMemAlloc");
        assert_eq!(form("cuMemAlloc", 3020), "cuMemAlloc_v2");
        assert_eq!(form("cuCtxCreate", 11_040), "cuCtxCreate_v2");
        assert_eq!(form("cuCtxCreate", 13_000), "cuCtxCreate_v4");
        assert_eq!(form("cuMemcpyDtoH", 12_000), "cuMemcpyDtoH_v2", "not its Async namesake");
        assert_eq!(form("cuLaunchKernel", 12_000), "cuLaunchKernel");
    }

    #[test]
    fn the_per_thread_twin_is_another_function_where_there_is_one() {
        assert_ne!(resolve("cuLaunchKernel", 7000, 0), resolve("cuLaunchKernel", 7000, 2));
        assert_ne!(resolve("cuMemcpyDtoH", 7000, 0), resolve("cuMemcpyDtoH", 7000, 2));
        assert_eq!(resolve("cuMemAlloc", 7000, 0), resolve("cuMemAlloc", 7000, 2));
        assert_eq!(resolve("cuNoSuchThing", 12_000, 0), None);
    }
}
