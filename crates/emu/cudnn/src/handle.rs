//! The handle: a context with its kernels, and the stream of the calls that follow.

use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use deepum_emu_abi::client::{DriverSlot, Kernels, Shape, Stream, Via, null_stream};
use deepum_emu_abi::edge::Failure;
use deepum_emu_abi::elem::Elem;
use deepum_emu_abi::kernels::Kernel;
use deepum_emu_abi::params::{Class, Operand, Params};

use crate::status::{Outcome, Status};

static DRIVER: DriverSlot = DriverSlot::new(Via::ProcAddress);

#[derive(Clone, Copy, Debug)]
struct Current(Stream);
// SAFETY: a stream handle is a name to the driver, valid on every thread.
unsafe impl Send for Current {}

/// What `cudnnHandle_t` points to.
#[derive(Debug)]
pub struct Handle {
    kernels: Kernels,
    /// Compute capability of the device.
    pub capability: (i32, i32),
    stream: Mutex<Current>,
}

impl Handle {
    fn create() -> Result<Self, Status> {
        let driver = DRIVER.get()?;
        let kernels = driver.load()?;
        Ok(Self { kernels, capability: driver.capability()?, stream: Mutex::new(Current(null_stream())) })
    }

    fn stream(&self) -> MutexGuard<'_, Current> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The units for products of this type under a `cudnnMathType_t`: tensor cores where there are some for it, but with FMA (3)
    /// nowhere, and with the default (0) not before compute capability 8.0.
    pub fn class(&self, elem: Elem, math_type: c_int) -> Class {
        let allowed = match math_type {
            0 => self.capability >= (8, 0),
            math_type => math_type != 3,
        };
        elem.class(allowed && elem.on_tensor_cores(self.capability))
    }

    /// Launches a kernel on the handle's stream, with blocks for `elements` results.
    pub fn launch<const N: usize>(
        &self,
        kernel: Kernel,
        elements: u64,
        flops: f64,
        class: Class,
        operands: &[Operand],
    ) -> Outcome {
        let params = Params::<N>::new(flops, class, operands).ok_or(Status::InternalError)?;
        // 256 threads, 64 results each: the 128 × 128 tile of a matrix product.
        let blocks = u32::try_from(elements.div_ceil(128 * 128)).unwrap_or(u32::MAX >> 1).clamp(1, u32::MAX >> 1);
        let stream = self.stream().0;
        Ok(DRIVER.get()?.launch(&self.kernels, kernel, Shape { grid: [blocks, 1, 1], block: 256, stream }, &params)?)
    }
}

/// `cudnnCreate`: takes the current context (the primary one of device 0 if there is none) and loads the kernels into it.
///
/// # Safety
/// `out` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnCreate(out: *mut *mut Handle) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| unsafe { Status::create(out, Handle::create) })
}

/// `cudnnDestroy`.
///
/// # Safety
/// `handle` is null or live, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnDestroy(handle: *mut Handle) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| unsafe {
        if let Some(handle) = handle.as_ref() {
            // At exit the context may be gone already, and its modules with it: nothing to report then.
            let _ = DRIVER.get()?.unload(&handle.kernels);
        }
        Status::destroy(handle)
    })
}

/// `cudnnSetStream`.
///
/// # Safety
/// `handle` is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetStream(handle: *mut Handle, stream: Stream) -> c_int {
    Status::edge(|| {
        // SAFETY: the caller's promise.
        unsafe { Status::get(handle) }?.stream().0 = stream;
        Ok(())
    })
}

/// `cudnnGetStream`.
///
/// # Safety
/// `handle` is null or live; `out` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetStream(handle: *mut Handle, out: *mut Stream) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| unsafe {
        let stream = Status::get(handle)?.stream().0;
        Status::put(out, stream)
    })
}
