//! The handle: a context, its loaded kernels, and the settings of the calls that follow.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use deepum_emu_abi::client::{DriverSlot, Kernels, Shape, Stream, Via, null_stream};
use deepum_emu_abi::edge::Failure;
use deepum_emu_abi::elem::Elem;
use deepum_emu_abi::kernels::Kernel;
use deepum_emu_abi::params::{Class, Operand, Params};

use crate::status::{Outcome, Status, count};
use crate::types::{PointerMode, Scalar, math_mode};

static CUBLAS: DriverSlot = DriverSlot::new(Via::ProcAddress);
static CUBLAS_LT: DriverSlot = DriverSlot::new(Via::Dlsym);

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub stream: Stream,
    pub math_mode: c_int,
    pub pointer_mode: PointerMode,
}
// SAFETY: a stream handle is a name to the driver, valid on every thread.
unsafe impl Send for Settings {}

/// What `cublasHandle_t` and `cublasLtHandle_t` point to.
#[derive(Debug)]
pub struct Handle {
    kernels: Kernels,
    lt_kernels: OnceLock<Kernels>,
    /// The library's own workspace, used for results on their way to the host.
    workspace: u64,
    capability: (i32, i32),
    settings: Mutex<Settings>,
}

impl Handle {
    fn create() -> Result<Self, Status> {
        let driver = CUBLAS.get()?;
        let kernels = driver.load()?;
        // cuBLAS documentation, cublasSetWorkspace: 32 MiB on compute capability 9.x, 4 MiB on others.
        let capability = driver.capability()?;
        let bytes = if capability.0 == 9 { 32 << 20 } else { 4 << 20 };
        let workspace = driver.alloc(bytes).inspect_err(|_| {
            let _ = driver.unload(&kernels);
        })?;
        Ok(Self {
            kernels,
            lt_kernels: OnceLock::new(),
            workspace,
            capability,
            settings: Mutex::new(Settings { stream: null_stream(), math_mode: 0, pointer_mode: PointerMode::Host }),
        })
    }

    /// The handle behind a C pointer.
    ///
    /// # Safety
    /// `raw` is null or came from a `Create` of this library and was not destroyed.
    pub unsafe fn get<'a>(raw: *const Self) -> Result<&'a Self, Status> {
        // SAFETY: as promised; handles are only ever shared, never borrowed mutably.
        unsafe { raw.as_ref() }.ok_or(Status::NotInitialized)
    }

    pub fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Alpha or beta of a call.
    ///
    /// # Safety
    /// `at` is null or, in host pointer mode, points to a value of type `elem`.
    pub unsafe fn scalar(&self, at: *const c_void, elem: Elem) -> Result<Scalar, Status> {
        // SAFETY: the caller's promise.
        unsafe { Scalar::new(self.settings().pointer_mode, at, elem) }
    }

    pub fn workspace(&self) -> u64 {
        self.workspace
    }

    /// Launches a cuBLAS kernel on the handle's stream.
    pub fn launch<const N: usize>(
        &self,
        kernel: Kernel,
        grid: [u32; 3],
        flops: f64,
        class: Class,
        operands: &[Operand],
    ) -> Outcome {
        let params = Params::<N>::new(flops, class, operands).ok_or(Status::InternalError)?;
        let stream = self.settings().stream;
        Ok(CUBLAS.get()?.launch(&self.kernels, kernel, Shape { grid, block: 256, stream }, &params)?)
    }

    /// Launches a cuBLASLt kernel on `stream`.
    pub fn launch_lt<const N: usize>(
        &self,
        kernel: Kernel,
        grid: [u32; 3],
        stream: Stream,
        params: &Params<N>,
    ) -> Outcome {
        let driver = CUBLAS_LT.get()?;
        let kernels = match self.lt_kernels.get() {
            Some(kernels) => kernels,
            None => {
                let _ = self.lt_kernels.set(driver.load()?);
                self.lt_kernels.get().ok_or(Status::InternalError)?
            }
        };
        Ok(driver.launch(kernels, kernel, Shape { grid, block: 256, stream }, params)?)
    }

    /// Copies a result from the workspace to the program's host memory, and waits, as host pointer mode does.
    ///
    /// # Safety
    /// `to` is valid for writing `bytes` bytes.
    pub unsafe fn fetch(&self, to: *mut c_void, bytes: usize) -> Outcome {
        let stream = self.settings().stream;
        // SAFETY: as promised by the caller.
        Ok(unsafe { CUBLAS.get()?.fetch(to, self.workspace, bytes, stream) }?)
    }

    /// Compute capability of the handle's device.
    pub fn capability(&self) -> (i32, i32) {
        self.capability
    }
}

/// `cublasCreate`: takes the current context (the primary one of device 0 if there is none), loads the kernels into it, allocates
/// the workspace.
///
/// # Safety
/// `out` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasCreate_v2(out: *mut *mut Handle) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| unsafe { Status::create(out, Handle::create) })
}

/// `cublasDestroy`.
///
/// # Safety
/// `handle` is null or a live handle that no other thread is using.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasDestroy_v2(handle: *mut Handle) -> c_int {
    Status::edge(|| {
        // SAFETY: the caller's promise.
        let owned = unsafe { Handle::get(handle) }?;
        // At exit the context may be gone already, and all of this with it: nothing to report then.
        let _ = CUBLAS.get()?.free(owned.workspace);
        let _ = CUBLAS.get()?.unload(&owned.kernels);
        if let Some(kernels) = owned.lt_kernels.get() {
            let _ = CUBLAS_LT.get()?.unload(kernels);
        }
        // SAFETY: the caller's promise; made by a `Create`.
        unsafe { Status::destroy(handle) }
    })
}

/// `cublasLtCreate`: the same kind of handle.
///
/// # Safety
/// As [`cublasCreate_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtCreate(out: *mut *mut Handle) -> c_int {
    // SAFETY: the same contract.
    unsafe { cublasCreate_v2(out) }
}

/// `cublasLtDestroy`.
///
/// # Safety
/// As [`cublasDestroy_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtDestroy(handle: *mut Handle) -> c_int {
    // SAFETY: the same contract.
    unsafe { cublasDestroy_v2(handle) }
}

/// Setter and getter of one setting: conversion from C may refuse.
macro_rules! settings {
    ($(fn $set:ident / fn $get:ident: $field:ident as $c:ty, $from:expr, $to:expr;)*) => {$(
        /// Sets one of the handle's settings.
        ///
        /// # Safety
        /// `handle` is null or a live handle.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(handle: *mut Handle, value: $c) -> c_int {
            Status::edge(|| {
                // SAFETY: the caller's promise.
                let handle = unsafe { Handle::get(handle) }?;
                let from: fn($c) -> Result<_, Status> = $from;
                handle.settings().$field = from(value)?;
                Ok(())
            })
        }
        /// Gets one of the handle's settings.
        ///
        /// # Safety
        /// `handle` is null or a live handle; `out` is null or valid for writing.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(handle: *mut Handle, out: *mut $c) -> c_int {
            Status::edge(|| {
                // SAFETY: the caller's promise.
                unsafe {
                    let value = Handle::get(handle)?.settings().$field;
                    #[allow(clippy::redundant_closure_call, reason = "one macro for settings with and without conversion")]
                    Status::put(out, ($to)(value))
                }
            })
        }
    )*};
}

settings! {
    fn cublasSetStream_v2 / fn cublasGetStream_v2: stream as Stream, Ok, |s| s;
    fn cublasSetMathMode / fn cublasGetMathMode: math_mode as c_int, math_mode, |m| m;
    fn cublasSetPointerMode_v2 / fn cublasGetPointerMode_v2: pointer_mode as c_int, PointerMode::new, |m| m as c_int;
}

/// `cublasSetSmCountTarget`: accepted if it is one. It is to leave room for kernels beside ours, and one kernel at a time is on the
/// emulated device.
///
/// # Safety
/// `handle` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasSetSmCountTarget(handle: *mut Handle, target: c_int) -> c_int {
    Status::edge(|| {
        // SAFETY: the caller's promise.
        unsafe { Handle::get(handle) }?;
        count(target)?;
        Ok(())
    })
}

/// `cublasSetWorkspace`: accepted if it is one. Our products never split the inner dimension, so none of it is touched.
///
/// # Safety
/// `handle` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasSetWorkspace_v2(handle: *mut Handle, workspace: *mut c_void, bytes: usize) -> c_int {
    Status::edge(|| {
        // SAFETY: the caller's promise.
        unsafe { Handle::get(handle) }?;
        // Documented: 256-byte alignment, and an address if there is a size.
        if !workspace.addr().is_multiple_of(256) || (workspace.is_null() && bytes != 0) {
            return Err(Status::InvalidValue);
        }
        Ok(())
    })
}

/// Whether the process runs on CUDA 13: told by the name this library was loaded under.
fn cuda_13() -> bool {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: an address inside this library; the output lives here.
    let found = unsafe { libc::dladdr((cublasLtGetVersion as *const ()).cast(), &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return true;
    }
    // SAFETY: dladdr gave a C string that lives as long as the library.
    let name: &[u8] = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) }.to_bytes();
    !name.ends_with(b".so.12")
}

/// `cublasLtGetVersion`: 12.8.4 or 13.4.0: what the torch 2.9.1 wheel is built against, and the cuBLASLt of CUDA 13 of facts 20.3.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetVersion() -> usize {
    if cuda_13() { 130_400 } else { 120_804 }
}
