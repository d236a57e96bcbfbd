//! Launches: every one becomes `cuLaunchKernel`, `cuLaunchKernelEx` or `cuLaunchCooperativeKernel`, once.

use super::export;
use super::function::{driver_config, kernel};
use crate::driver::{ask, drive};
use crate::error::{Error, Result};
use crate::layout::{Dim3, DriverLaunchConfig, Handle, LaunchConfig, Stream};
use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::ptr::null_mut;

/// What `<<<grid, block, shared, stream>>>` holds between its two calls.
type Configuration = (Dim3, Dim3, usize, Stream);

thread_local! {
    /// Configurations pushed and not popped yet. Arguments of a launch may launch themselves, so it is a stack. Exit handlers launch, too,
    /// when what has a destructor is gone; between launches there is nothing to destroy.
    static CONFIGURATIONS: ManuallyDrop<RefCell<Vec<Configuration>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

export! {
    fn cudaLaunchKernel, cudaLaunchKernel_ptsz on stream (
        function: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared: usize, stream: Stream
    ) {
        launch(kernel(function)?, grid, block, arguments, shared, stream)
    }

    /// What nvcc 13 emits for `<<<>>>`, with the kernel that [`__cudaGetKernel`] gave.
    fn __cudaLaunchKernel, __cudaLaunchKernel_ptsz on stream (
        kernel: Handle, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared: usize, stream: Stream
    ) {
        launch(kernel, grid, block, arguments, shared, stream)
    }

    /// What nvcc 13 emits once per call site.
    fn __cudaGetKernel(out: *mut Handle, function: *const c_void) {
        // SAFETY: the program's own result address.
        unsafe { super::put(out, kernel(function)?) }
    }

    fn cudaLaunchKernelExC(config: *const LaunchConfig, function: *const c_void, arguments: *mut *mut c_void) {
        // SAFETY: the program's own configuration.
        launch_configured(unsafe { driver_config(config) }?, function, arguments)
    }

    fn cudaLaunchKernelExC_ptsz(config: *const LaunchConfig, function: *const c_void, arguments: *mut *mut c_void) {
        // SAFETY: the program's own configuration.
        let mut config = unsafe { driver_config(config) }?;
        config.stream = config.stream.per_thread();
        launch_configured(config, function, arguments)
    }

    fn cudaLaunchCooperativeKernel, cudaLaunchCooperativeKernel_ptsz on stream (
        function: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared: usize, stream: Stream
    ) {
        let (kernel, shared) = (kernel(function)?, shared_bytes(shared)?);
        ask!(cuLaunchCooperativeKernel(
            kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, arguments
        ))
        .map_err(of_shape(grid, block))
    }

    fn __cudaPopCallConfiguration(grid: *mut Dim3, block: *mut Dim3, shared: *mut usize, stream: *mut Stream) {
        let last = CONFIGURATIONS.with(|stack| {
            let mut stack = stack.borrow_mut();
            let last = stack.pop();
            if stack.is_empty() {
                *stack = Vec::new();
            }
            last.ok_or(Error::MISSING_CONFIGURATION)
        })?;
        // SAFETY: the program's own result addresses.
        unsafe {
            super::put(grid, last.0)?;
            super::put(block, last.1)?;
            super::put(shared, last.2)?;
            super::put(stream, last.3)
        }
    }
}

/// Holds a configuration for the stub that pops it; 0 means it is held.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaPushCallConfiguration(grid: Dim3, block: Dim3, shared: usize, stream: Stream) -> c_uint {
    let held = crate::error::entry(|| {
        CONFIGURATIONS.with(|stack| stack.borrow_mut().push((grid, block, shared, stream)));
        Ok(())
    });
    c_int::cast_unsigned(held)
}

fn launch(
    kernel: Handle,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    shared: usize,
    stream: Stream,
) -> Result {
    let shared = shared_bytes(shared)?;
    drive!(cuLaunchKernel(
        kernel,
        grid.x,
        grid.y,
        grid.z,
        block.x,
        block.y,
        block.z,
        shared,
        stream,
        arguments,
        null_mut()
    ))
    .map_err(of_shape(grid, block))
}

fn launch_configured(config: DriverLaunchConfig, function: *const c_void, arguments: *mut *mut c_void) -> Result {
    let kernel = kernel(function)?;
    ask!(cuLaunchKernelEx(&raw const config, kernel, arguments, null_mut()))
        .map_err(of_shape(config.grid, config.block))
}

/// To the driver a shape that no device can launch is one more invalid value, to the runtime an invalid configuration. Limits:
/// CUDA programming guide, "Technical Specifications per Compute Capability", the same for all.
fn of_shape(grid: Dim3, block: Dim3) -> impl Fn(Error) -> Error {
    let threads = [block.x, block.y, block.z].into_iter().fold(1, u32::saturating_mul);
    let fits = (1..=1024).contains(&threads)
        && block.z <= 64
        && (1..=0x7fff_ffff).contains(&grid.x)
        && (1..=0xffff).contains(&grid.y)
        && (1..=0xffff).contains(&grid.z);
    move |error| if error == Error::INVALID_VALUE && !fits { Error::INVALID_CONFIGURATION } else { error }
}

/// Dynamic shared memory, which the driver counts in 32 bits.
fn shared_bytes(shared: usize) -> Result<c_uint> {
    c_uint::try_from(shared).map_err(|_| Error::INVALID_VALUE)
}
