//! A stand-in library as a client of the driver: how it finds `libcuda.so.1`, loads its kernels, and launches.
//!
//! The real libraries do not import the CUDA runtime: each opens `libcuda.so.1` itself. cuBLAS and cuDNN then take
//! `cuGetProcAddress_v2` by `dlsym`, ask it for `cuGetProcAddress`, and everything else from that answer; cuBLASLt takes
//! each function by plain `dlsym` (facts 20.3). Whoever watches one of these doors must see our
//! launches as it sees theirs, so both ways exist here: [`Via`].
//!
//! Invariants: a failure to find the driver is not remembered; a launch is exactly one driver call.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use crate::image;
use crate::kernels::{ALL, Kernel};
use crate::params::Params;

/// `CUresult`; 0 is success.
pub type CuResult = c_int;
/// `CUstream`.
pub type Stream = *mut c_void;
type Context = *mut c_void;
type Module = *mut c_void;
type Function = *mut c_void;

/// `CUDA_ERROR_NOT_INITIALIZED`: what every call answers while there is no driver.
pub const NOT_INITIALIZED: CuResult = 3;
/// `CUDA_ERROR_NOT_FOUND`.
const NOT_FOUND: CuResult = 500;
/// CUDA 12.0, the interface asked of `cuGetProcAddress`: the oldest version all functions below have had in this form.
const VERSION: c_int = 12_000;

/// How driver functions are found, and which launch function is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Via {
    /// As cuBLAS and cuDNN: through `cuGetProcAddress`; launches with `cuLaunchKernel`.
    ProcAddress,
    /// As cuBLASLt: by `dlsym`; launches with `cuLaunchKernelEx`.
    Dlsym,
}

/// `CUlaunchConfig` without attributes (CUDA driver API reference, 12.0).
#[repr(C)]
struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: Stream,
    attributes: *mut c_void,
    attribute_count: c_uint,
}
const _: () = assert!(size_of::<LaunchConfig>() == 56);

type ProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> CuResult;
type LaunchKernel = unsafe extern "C" fn(
    Function,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Stream,
    *mut *mut c_void,
    *mut *mut c_void,
) -> CuResult;

macro_rules! driver {
    ($($field:ident = $base:literal / $versioned:literal: $type:ty;)*) => {
        /// The driver functions a stand-in needs: base name for `cuGetProcAddress`, symbol name for `dlsym`.
        struct Functions { $($field: $type),* }
        impl Functions {
            fn find(mut look: impl FnMut(&CStr, &CStr) -> Option<*mut c_void>) -> Option<Self> {
                Some(Self { $($field: {
                    let found = look($base, $versioned)?;
                    // SAFETY: the driver documents this signature for this name at this version.
                    unsafe { std::mem::transmute::<*mut c_void, $type>(found) }
                }),* })
            }
        }
    };
}

driver! {
    init = c"cuInit" / c"cuInit": unsafe extern "C" fn(c_uint) -> CuResult;
    ctx_get_current = c"cuCtxGetCurrent" / c"cuCtxGetCurrent": unsafe extern "C" fn(*mut Context) -> CuResult;
    ctx_set_current = c"cuCtxSetCurrent" / c"cuCtxSetCurrent": unsafe extern "C" fn(Context) -> CuResult;
    ctx_get_device = c"cuCtxGetDevice" / c"cuCtxGetDevice": unsafe extern "C" fn(*mut c_int) -> CuResult;
    primary_retain = c"cuDevicePrimaryCtxRetain" / c"cuDevicePrimaryCtxRetain":
        unsafe extern "C" fn(*mut Context, c_int) -> CuResult;
    device_attribute = c"cuDeviceGetAttribute" / c"cuDeviceGetAttribute":
        unsafe extern "C" fn(*mut c_int, c_int, c_int) -> CuResult;
    module_load = c"cuModuleLoadData" / c"cuModuleLoadData":
        unsafe extern "C" fn(*mut Module, *const c_void) -> CuResult;
    module_unload = c"cuModuleUnload" / c"cuModuleUnload": unsafe extern "C" fn(Module) -> CuResult;
    module_function = c"cuModuleGetFunction" / c"cuModuleGetFunction":
        unsafe extern "C" fn(*mut Function, Module, *const c_char) -> CuResult;
    mem_alloc = c"cuMemAlloc" / c"cuMemAlloc_v2": unsafe extern "C" fn(*mut u64, usize) -> CuResult;
    mem_free = c"cuMemFree" / c"cuMemFree_v2": unsafe extern "C" fn(u64) -> CuResult;
    copy_to_host = c"cuMemcpyDtoHAsync" / c"cuMemcpyDtoHAsync_v2":
        unsafe extern "C" fn(*mut c_void, u64, usize, Stream) -> CuResult;
    stream_synchronize = c"cuStreamSynchronize" / c"cuStreamSynchronize": unsafe extern "C" fn(Stream) -> CuResult;
    launch_kernel = c"cuLaunchKernel" / c"cuLaunchKernel": LaunchKernel;
    launch_kernel_ex = c"cuLaunchKernelEx" / c"cuLaunchKernelEx":
        unsafe extern "C" fn(*const LaunchConfig, Function, *mut *mut c_void, *mut *mut c_void) -> CuResult;
}

/// The driver, as one library found it.
pub struct Driver {
    via: Via,
    functions: Functions,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("via", &self.via).finish_non_exhaustive()
    }
}

/// The kernels of the marker image, loaded into one context.
#[derive(Debug)]
pub struct Kernels {
    module: Module,
    handles: Vec<(Kernel, Function)>,
}
// SAFETY: module and function handles are plain names to the driver, valid on every thread.
unsafe impl Send for Kernels {}
// SAFETY: as above; nothing behind `&Kernels` changes.
unsafe impl Sync for Kernels {}

/// Where a launch goes and in what shape.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: u32,
    /// Stream.
    pub stream: Stream,
}

fn check(result: CuResult) -> Result<(), CuResult> {
    if result == 0 { Ok(()) } else { Err(result) }
}

/// An attempt to find the driver that is repeated until it succeeds, then kept.
#[derive(Debug)]
pub struct DriverSlot(OnceLock<Driver>, Via);

impl DriverSlot {
    /// Nothing found yet.
    #[must_use]
    pub const fn new(via: Via) -> Self {
        Self(OnceLock::new(), via)
    }
    /// The driver.
    ///
    /// # Errors
    /// [`NOT_INITIALIZED`] if there is no `libcuda.so.1`, or it lacks a function.
    pub fn get(&self) -> Result<&Driver, CuResult> {
        if self.0.get().is_none() {
            let _ = self.0.set(Driver::open(self.1).ok_or(NOT_INITIALIZED)?);
        }
        self.0.get().ok_or(NOT_INITIALIZED)
    }
}

impl Driver {
    fn open(via: Via) -> Option<Self> {
        // SAFETY: a constant name; running the driver library's constructors is what the caller wants.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY) };
        if library.is_null() {
            return None;
        }
        let symbol = |name: &CStr| {
            // SAFETY: an open library (never closed again) and a C string.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        let functions = match via {
            Via::Dlsym => Functions::find(|_, versioned| symbol(versioned))?,
            Via::ProcAddress => {
                let ask = |door: *mut c_void, name: &CStr| {
                    let (mut found, mut status) = (null_mut(), 0);
                    // SAFETY: `door` is cuGetProcAddress_v2, whose documented signature this is; the outputs live here.
                    let rc = unsafe {
                        std::mem::transmute::<*mut c_void, ProcAddress>(door)(
                            name.as_ptr(),
                            &raw mut found,
                            VERSION,
                            0,
                            &raw mut status,
                        )
                    };
                    (rc == 0 && !found.is_null()).then_some(found)
                };
                let door = ask(symbol(c"cuGetProcAddress_v2")?, c"cuGetProcAddress")?;
                Functions::find(|base, _| ask(door, base))?
            }
        };
        Some(Self { via, functions })
    }

    /// Makes the primary context of device 0 this thread's, if it has none: as creating a handle of the real libraries does.
    fn enter(&self) -> Result<(), CuResult> {
        let f = &self.functions;
        let mut context = null_mut();
        // SAFETY: outputs live here; the driver checks the rest.
        unsafe {
            check((f.init)(0))?;
            check((f.ctx_get_current)(&raw mut context))?;
            if context.is_null() {
                check((f.primary_retain)(&raw mut context, 0))?;
                check((f.ctx_set_current)(context))?;
            }
        }
        Ok(())
    }

    /// Loads the kernels into this thread's context, the primary one of device 0 if there is none.
    ///
    /// # Errors
    /// The driver's.
    pub fn load(&self) -> Result<Kernels, CuResult> {
        self.enter()?;
        let image = image::encode(ALL);
        let mut module = null_mut();
        // SAFETY: a whole marker image, alive during the call; the output lives here.
        check(unsafe { (self.functions.module_load)(&raw mut module, image.as_ptr().cast()) })?;
        let mut handles = Vec::with_capacity(ALL.len());
        for kernel in ALL {
            let name: Vec<u8> = kernel.name.bytes().chain([0]).collect();
            let mut function = null_mut();
            // SAFETY: a module just loaded, a NUL-terminated name, an output that lives here.
            check(unsafe { (self.functions.module_function)(&raw mut function, module, name.as_ptr().cast()) })?;
            handles.push((*kernel, function));
        }
        Ok(Kernels { module, handles })
    }

    /// Gives back what [`Driver::load`] gave.
    ///
    /// # Errors
    /// The driver's.
    pub fn unload(&self, kernels: &Kernels) -> Result<(), CuResult> {
        // SAFETY: a module handle to the driver, which checks it.
        check(unsafe { (self.functions.module_unload)(kernels.module) })
    }

    /// Launches `kernel`, one driver call. `N` is the room of its parameter.
    ///
    /// # Errors
    /// The driver's, or "not found" if `N` is not the room `kernel` has.
    pub fn launch<const N: usize>(
        &self,
        kernels: &Kernels,
        kernel: Kernel,
        shape: Shape,
        params: &Params<N>,
    ) -> Result<(), CuResult> {
        let handle = kernels.handles.iter().find(|(k, _)| *k == kernel && k.operands == N);
        let function = handle.ok_or(NOT_FOUND)?.1;
        let [gx, gy, gz] = shape.grid;
        let mut args = [(&raw const *params).cast_mut().cast::<c_void>()];
        // SAFETY: the kernel takes one parameter of the size of `Params<N>` (checked above against its room), which the
        // driver copies before it returns; a stream that is none is the driver's to refuse.
        check(unsafe {
            match self.via {
                Via::ProcAddress => (self.functions.launch_kernel)(
                    function,
                    gx,
                    gy,
                    gz,
                    shape.block,
                    1,
                    1,
                    0,
                    shape.stream,
                    args.as_mut_ptr(),
                    null_mut(),
                ),
                Via::Dlsym => {
                    let config = LaunchConfig {
                        grid: shape.grid,
                        block: [shape.block, 1, 1],
                        shared_bytes: 0,
                        stream: shape.stream,
                        attributes: null_mut(),
                        attribute_count: 0,
                    };
                    (self.functions.launch_kernel_ex)(&raw const config, function, args.as_mut_ptr(), null_mut())
                }
            }
        })
    }

    /// Device memory of the library's own.
    ///
    /// # Errors
    /// The driver's, out of memory among them.
    pub fn alloc(&self, bytes: usize) -> Result<u64, CuResult> {
        let mut ptr = 0;
        // SAFETY: the output lives here.
        check(unsafe { (self.functions.mem_alloc)(&raw mut ptr, bytes) })?;
        Ok(ptr)
    }

    /// Gives back what [`Driver::alloc`] gave.
    ///
    /// # Errors
    /// The driver's.
    pub fn free(&self, ptr: u64) -> Result<(), CuResult> {
        // SAFETY: an address to the driver, which checks it.
        check(unsafe { (self.functions.mem_free)(ptr) })
    }

    /// Copies device bytes to the host and waits for them, after everything issued to `stream`.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// `to` must be valid for writing `bytes` bytes.
    pub unsafe fn fetch(&self, to: *mut c_void, from: u64, bytes: usize, stream: Stream) -> Result<(), CuResult> {
        // SAFETY: the caller promises `to`; the copy has ended when synchronise returns.
        unsafe {
            check((self.functions.copy_to_host)(to, from, bytes, stream))?;
            check((self.functions.stream_synchronize)(stream))
        }
    }

    /// Compute capability of this thread's device.
    ///
    /// # Errors
    /// The driver's.
    pub fn capability(&self) -> Result<(i32, i32), CuResult> {
        /// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`; MINOR is the next.
        const MAJOR: c_int = 75;
        let (mut device, mut major, mut minor) = (0, 0, 0);
        // SAFETY: outputs live here.
        unsafe {
            check((self.functions.ctx_get_device)(&raw mut device))?;
            check((self.functions.device_attribute)(&raw mut major, MAJOR, device))?;
            check((self.functions.device_attribute)(&raw mut minor, MAJOR + 1, device))?;
        }
        Ok((major, minor))
    }
}

/// The null stream.
#[must_use]
pub const fn null_stream() -> Stream {
    null::<c_void>().cast_mut()
}
