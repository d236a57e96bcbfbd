//! The driver's functions, fetched the way the real runtime fetches them.
//!
//! `dlopen("libcuda.so.1")`, `dlsym("cuGetProcAddress_v2")`, then everything through that door: first `cuGetProcAddress` itself,
//! whose answer serves all further requests, then each function by name and the version of the interface wanted
//! (facts 20.3). All are asked for together at first use.
//!
//! A function the driver does not have is an ordinary condition: the runtime functions that need it are refused by its name.

use crate::error::{Error, Result, Status, check, say, unsupported};
use crate::layout::{Copy2d, DriverLaunchConfig, Handle, IpcHandle, Location, Stream};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// `cuGetProcAddress_v2`: name, where the address goes, CUDA version, flags, where the reason goes.
pub type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> Status;

macro_rules! driver_functions {
    ($($name:ident $version:literal ($($argument:ty),* $(,)?);)*) => {
        /// Every driver function the runtime uses; `None` where the driver has none.
        #[derive(Debug)]
        pub struct Driver {
            $(pub $name: Option<unsafe extern "C" fn($($argument),*) -> Status>,)*
            /// The door itself.
            pub door: GetProcAddress,
        }

        impl Driver {
            /// Asks `door` for every function.
            fn fetch(door: GetProcAddress) -> Self {
                Self {
                    $($name: ask_door(door, concat!(stringify!($name), "\0"), $version).map(|address| {
                        // SAFETY: the door answers a name and version with a function of that interface; the
                        // signature in the table is the one `cuda.h` gives it.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> Status>(address) }
                    }),)*
                    door,
                }
            }
        }
    };
}

// Name, CUDA version of the interface (as libcudart 13.2 asks, facts 20.3), arguments. Device addresses are `*mut c_void` here: a
// CUdeviceptr is an integer of the same size and class.
driver_functions! {
    cuInit 2000 (c_uint);
    cuDriverGetVersion 2020 (*mut c_int);

    cuDeviceGetCount 2000 (*mut c_int);
    cuDeviceGetName 2000 (*mut c_char, c_int, c_int);
    cuDeviceGetUuid 9020 (*mut c_void, c_int);
    cuDeviceTotalMem 3020 (*mut usize, c_int);
    cuDeviceGetAttribute 2000 (*mut c_int, c_int, c_int);
    cuDeviceGetPCIBusId 4010 (*mut c_char, c_int, c_int);
    cuDeviceGetByPCIBusId 4010 (*mut c_int, *const c_char);
    cuDeviceCanAccessPeer 4000 (*mut c_int, c_int, c_int);
    cuDeviceGetP2PAttribute 8000 (*mut c_int, c_int, c_int, c_int);

    cuDevicePrimaryCtxRetain 7000 (*mut Handle, c_int);
    cuDevicePrimaryCtxRelease 7000 (c_int);
    cuDevicePrimaryCtxReset 7000 (c_int);
    cuDevicePrimaryCtxSetFlags 11000 (c_int, c_uint);
    cuDevicePrimaryCtxGetState 7000 (c_int, *mut c_uint, *mut c_int);
    cuCtxGetCurrent 4000 (*mut Handle);
    cuCtxSetCurrent 4000 (Handle);
    cuCtxGetDevice 2000 (*mut c_int);
    cuCtxSynchronize 2000 ();
    cuCtxGetLimit 3010 (*mut usize, c_int);
    cuCtxSetLimit 3010 (c_int, usize);
    cuCtxGetCacheConfig 3020 (*mut c_int);
    cuCtxSetCacheConfig 3020 (c_int);
    cuCtxGetStreamPriorityRange 5050 (*mut c_int, *mut c_int);
    cuCtxEnablePeerAccess 4000 (Handle, c_uint);
    cuCtxDisablePeerAccess 4000 (Handle);

    cuMemGetInfo 3020 (*mut usize, *mut usize);
    cuMemAlloc 3020 (*mut *mut c_void, usize);
    cuMemAllocPitch 3020 (*mut *mut c_void, *mut usize, usize, usize, c_uint);
    cuMemAllocManaged 6000 (*mut *mut c_void, usize, c_uint);
    cuMemFree 3020 (*mut c_void);
    cuMemAllocAsync 11020 (*mut *mut c_void, usize, Stream);
    cuMemAllocFromPoolAsync 11020 (*mut *mut c_void, usize, Handle, Stream);
    cuMemFreeAsync 11020 (*mut c_void, Stream);
    cuMemPoolTrimTo 11020 (Handle, usize);
    cuMemPoolGetAttribute 11020 (Handle, c_int, *mut c_void);
    cuMemPoolSetAttribute 11020 (Handle, c_int, *mut c_void);
    cuMemPoolSetAccess 11020 (Handle, *const c_void, usize);
    cuMemPoolGetAccess 11020 (*mut c_int, Handle, *mut c_void);
    cuMemPoolCreate 11020 (*mut Handle, *const c_void);
    cuMemPoolDestroy 11020 (Handle);
    cuDeviceGetDefaultMemPool 11020 (*mut Handle, c_int);
    cuDeviceGetMemPool 11020 (*mut Handle, c_int);
    cuDeviceSetMemPool 11020 (c_int, Handle);
    cuDeviceGetGraphMemAttribute 11040 (c_int, c_int, *mut c_void);
    cuDeviceSetGraphMemAttribute 11040 (c_int, c_int, *mut c_void);
    cuMemHostAlloc 2020 (*mut *mut c_void, usize, c_uint);
    cuMemFreeHost 2000 (*mut c_void);
    cuMemHostRegister 6050 (*mut c_void, usize, c_uint);
    cuMemHostUnregister 4000 (*mut c_void);
    cuMemHostGetDevicePointer 3020 (*mut *mut c_void, *mut c_void, c_uint);
    cuMemHostGetFlags 2030 (*mut c_uint, *mut c_void);
    cuPointerGetAttributes 7000 (c_uint, *const c_int, *mut *mut c_void, *const c_void);

    cuMemcpy 4000 (*mut c_void, *const c_void, usize);
    cuMemcpyAsync 4000 (*mut c_void, *const c_void, usize, Stream);
    cuMemcpyHtoD 3020 (*mut c_void, *const c_void, usize);
    cuMemcpyDtoH 3020 (*mut c_void, *const c_void, usize);
    cuMemcpyDtoD 3020 (*mut c_void, *const c_void, usize);
    cuMemcpyHtoDAsync 3020 (*mut c_void, *const c_void, usize, Stream);
    cuMemcpyDtoHAsync 3020 (*mut c_void, *const c_void, usize, Stream);
    cuMemcpyDtoDAsync 3020 (*mut c_void, *const c_void, usize, Stream);
    cuMemcpyPeer 4000 (*mut c_void, Handle, *const c_void, Handle, usize);
    cuMemcpyPeerAsync 4000 (*mut c_void, Handle, *const c_void, Handle, usize, Stream);
    cuMemcpy2DUnaligned 3020 (*const Copy2d);
    cuMemcpy2DAsync 3020 (*const Copy2d, Stream);
    cuMemsetD8 3020 (*mut c_void, u8, usize);
    cuMemsetD8Async 3020 (*mut c_void, u8, usize, Stream);
    cuMemsetD2D8 3020 (*mut c_void, usize, u8, usize, usize);
    cuMemsetD2D8Async 3020 (*mut c_void, usize, u8, usize, usize, Stream);

    cuMemPrefetchAsync 12020 (*const c_void, usize, Location, c_uint, Stream);
    cuMemAdvise 12020 (*const c_void, usize, c_int, Location);
    cuMemRangeGetAttribute 8000 (*mut c_void, usize, c_int, *const c_void, usize);
    cuMemRangeGetAttributes 8000 (*mut *mut c_void, *mut usize, *const c_int, usize, *const c_void, usize);
    cuMemPrefetchBatchAsync 13000
        (*mut *mut c_void, *mut usize, usize, *mut Location, *mut usize, usize, u64, Stream);
    cuMemDiscardBatchAsync 13000 (*mut *mut c_void, *mut usize, usize, u64, Stream);
    cuMemDiscardAndPrefetchBatchAsync 13000
        (*mut *mut c_void, *mut usize, usize, *mut Location, *mut usize, usize, u64, Stream);

    cuStreamCreate 2000 (*mut Stream, c_uint);
    cuStreamCreateWithPriority 5050 (*mut Stream, c_uint, c_int);
    cuStreamDestroy 4000 (Stream);
    cuStreamQuery 2000 (Stream);
    cuStreamSynchronize 2000 (Stream);
    cuStreamWaitEvent 3020 (Stream, Handle, c_uint);
    cuStreamGetPriority 5050 (Stream, *mut c_int);
    cuStreamGetFlags 5050 (Stream, *mut c_uint);
    cuStreamGetId 12000 (Stream, *mut u64);
    cuStreamGetDevice 12080 (Stream, *mut c_int);
    cuStreamAddCallback 5000 (Stream, *const c_void, *mut c_void, c_uint);
    cuStreamAttachMemAsync 6000 (Stream, *mut c_void, usize, c_uint);

    cuStreamBeginCapture 10010 (Stream, c_int);
    cuStreamBeginCaptureToGraph 12030 (Stream, Handle, *const Handle, *const c_void, usize, c_int);
    cuStreamEndCapture 10000 (Stream, *mut Handle);
    cuStreamIsCapturing 10000 (Stream, *mut c_int);
    cuStreamGetCaptureInfo 12030 (
        Stream, *mut c_int, *mut u64, *mut Handle, *mut *const Handle, *mut *const c_void, *mut usize,
    );
    cuStreamUpdateCaptureDependencies 12030 (Stream, *const Handle, *const c_void, usize, c_uint);
    cuThreadExchangeStreamCaptureMode 10010 (*mut c_int);

    cuGraphAddEmptyNode 10000 (*mut Handle, Handle, *const Handle, usize);
    cuGraphDestroy 10000 (Handle);
    cuGraphGetNodes 10000 (Handle, *mut Handle, *mut usize);
    cuGraphNodeGetType 10000 (Handle, *mut c_int);
    cuGraphNodeGetDependencies 12030 (Handle, *mut Handle, *mut c_void, *mut usize);
    cuGraphInstantiateWithFlags 11040 (*mut Handle, Handle, u64);
    cuGraphLaunch 10000 (Handle, Stream);
    cuGraphExecDestroy 10000 (Handle);
    cuUserObjectCreate 11030 (*mut Handle, *mut c_void, *const c_void, c_uint, c_uint);
    cuUserObjectRelease 11030 (Handle, c_uint);
    cuGraphRetainUserObject 11030 (Handle, Handle, c_uint, c_uint);

    cuLaunchHostFunc 10000 (Stream, *const c_void, *mut c_void);

    cuIpcGetMemHandle 4010 (*mut c_void, *mut c_void);
    cuIpcOpenMemHandle 11000 (*mut *mut c_void, IpcHandle, c_uint);
    cuIpcCloseMemHandle 4010 (*mut c_void);
    cuIpcGetEventHandle 4010 (*mut c_void, Handle);
    cuIpcOpenEventHandle 4010 (*mut Handle, IpcHandle);

    cuEventCreate 2000 (*mut Handle, c_uint);
    cuEventDestroy 4000 (Handle);
    cuEventQuery 2000 (Handle);
    cuEventRecord 2000 (Handle, Stream);
    cuEventRecordWithFlags 11010 (Handle, Stream, c_uint);
    cuEventSynchronize 2000 (Handle);
    cuEventElapsedTime 2000 (*mut f32, Handle, Handle);

    cuLibraryLoadData 12000 (
        *mut Handle, *const c_void, *mut c_int, *mut *mut c_void, c_uint, *mut c_int, *mut *mut c_void, c_uint,
    );
    cuLibraryLoadFromFile 12000 (
        *mut Handle, *const c_char, *mut c_int, *mut *mut c_void, c_uint, *mut c_int, *mut *mut c_void, c_uint,
    );
    cuLibraryUnload 12000 (Handle);
    cuLibraryGetKernel 12000 (*mut Handle, Handle, *const c_char);
    cuLibraryGetKernelCount 12040 (*mut c_uint, Handle);
    cuLibraryEnumerateKernels 12040 (*mut Handle, c_uint, Handle);
    cuKernelGetFunction 12000 (*mut Handle, Handle);
    cuKernelGetName 12030 (*mut *const c_char, Handle);
    cuKernelGetAttribute 12000 (*mut c_int, c_int, Handle, c_int);
    cuKernelSetAttribute 12000 (c_int, c_int, Handle, c_int);
    cuKernelSetCacheConfig 12000 (Handle, c_int, c_int);
    cuKernelGetParamInfo 12040 (Handle, usize, *mut usize, *mut usize);
    cuKernelGetParamCount 13020 (Handle, *mut usize);

    cuLaunchKernel 4000 (
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Stream, *mut *mut c_void, *mut *mut c_void,
    );
    cuLaunchKernelEx 11060 (*const DriverLaunchConfig, Handle, *mut *mut c_void, *mut *mut c_void);
    cuLaunchCooperativeKernel 9000 (
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Stream, *mut *mut c_void,
    );
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags 7000 (*mut c_int, Handle, c_int, usize, c_uint);
    cuOccupancyAvailableDynamicSMemPerBlock 10020 (*mut usize, Handle, c_int, c_int);
}

/// Calls a driver function that needs no context. Only inside functions that return this crate's [`Result`], or as a value of it.
macro_rules! ask {
    ($name:ident($($argument:expr),* $(,)?)) => {
        $crate::driver::get().and_then(|driver| match driver.$name {
            // SAFETY: arguments are the program's own for the runtime function that the driver's stands for, which ask the
            // same of them, or addresses of locals that live until the call returns.
            Some(function) => $crate::error::check(unsafe { function($($argument),*) }),
            None => Err($crate::error::unsupported(stringify!($name))),
        })
    };
}
pub(crate) use ask;

/// Calls a driver function with a context current: the thread's, or the primary one of its device.
macro_rules! drive {
    ($($call:tt)*) => {
        $crate::context::ensure().and_then(|()| $crate::driver::ask!($($call)*))
    };
}
pub(crate) use drive;

/// The driver, opened and initialised at first use.
///
/// # Errors
/// What the first use met: no `libcuda.so.1`, a runtime of unknown version, or the driver's own refusal of `cuInit`.
pub fn get() -> Result<&'static Driver> {
    static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();
    let opened = DRIVER.get_or_init(|| {
        if crate::version::major().is_none() {
            return Err(Error::INSUFFICIENT_DRIVER);
        }
        let driver = Driver::fetch(open_door()?);
        let init = driver.cuInit.ok_or_else(|| unsupported("cuInit"))?;
        // SAFETY: cuInit takes no pointers.
        check(unsafe { init(0) })?;
        Ok(driver)
    });
    opened.as_ref().map_err(|error| *error)
}

/// `libcuda.so.1`'s `cuGetProcAddress`, as it answers for itself.
fn open_door() -> Result<GetProcAddress> {
    // SAFETY: a constant name; libraries are never closed again.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        say("the CUDA runtime needs libcuda.so.1, which is not found");
        return Err(Error::INSUFFICIENT_DRIVER);
    }
    // SAFETY: an open library and a constant name.
    let first = unsafe { libc::dlsym(library, c"cuGetProcAddress_v2".as_ptr()) };
    if first.is_null() {
        say("libcuda.so.1 has no cuGetProcAddress_v2; a driver of CUDA 12 or newer is needed");
        return Err(Error::INSUFFICIENT_DRIVER);
    }
    // SAFETY: the symbol of this name has this signature since CUDA 12.0.
    let first = unsafe { std::mem::transmute::<*mut c_void, GetProcAddress>(first) };
    match ask_door(first, "cuGetProcAddress\0", 12000) {
        // SAFETY: as above: that is what the name means at version 12000.
        Some(own) => Ok(unsafe { std::mem::transmute::<*mut c_void, GetProcAddress>(own) }),
        None => Ok(first),
    }
}

/// The driver's function of this name (NUL-terminated) and interface version, if it has one.
fn ask_door(door: GetProcAddress, name: &str, version: c_int) -> Option<*mut c_void> {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
    let (mut address, mut reason) = (null_mut(), 0);
    // SAFETY: a C string and two locals.
    let status = unsafe { door(name.as_ptr(), &raw mut address, version, 0, &raw mut reason) };
    (status == 0 && !address.is_null()).then_some(address)
}
