//! The C types of the interposed functions: only what we read, by the names of CUDA's documentation.
//!
//! Handles stay bare pointers, because they are the program's and we only pass them on.

use std::ffi::{c_int, c_uint, c_void};

/// `cudaError_t` and `CUresult`: 0 is success in both.
pub type Status = c_int;
/// Success in every CUDA library.
pub const SUCCESS: Status = 0;
/// `cudaErrorMemoryAllocation`, `CUDA_ERROR_OUT_OF_MEMORY`: the same number.
pub const OUT_OF_MEMORY: Status = 2;

/// Any pointer or handle.
pub type Ptr = *mut c_void;
/// A device address: `CUdeviceptr`, and the `void *` of the runtime API that is one.
pub type DevPtr = u64;
/// `CUdevice`.
pub type Dev = c_int;

/// `dim3`: passed by value in two registers.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dim3 {
    pub x: c_uint,
    pub y: c_uint,
    pub z: c_uint,
}

/// The start of `cudaLaunchConfig_t`; what follows (attributes) is not read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RuntimeLaunchConfig {
    pub grid: Dim3,
    pub block: Dim3,
    pub shared: usize,
    pub stream: Ptr,
}

/// The start of `CUlaunchConfig`; what follows (attributes) is not read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DriverLaunchConfig {
    pub grid: Dim3,
    pub block: Dim3,
    pub shared: c_uint,
    pub stream: Ptr,
}

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(RuntimeLaunchConfig, shared) == 24 && offset_of!(RuntimeLaunchConfig, stream) == 32);
    assert!(offset_of!(DriverLaunchConfig, shared) == 24 && offset_of!(DriverLaunchConfig, stream) == 32);
};

/// `cudaExtent`: passed by value on the stack.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// `cudaPitchedPtr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PitchedPtr {
    pub ptr: Ptr,
    pub pitch: usize,
    pub xsize: usize,
    pub ysize: usize,
}

/// `c10::Device`: passed by value in one register.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TorchDevice {
    pub kind: i8,
    pub index: i8,
}

/// `CUlaunchParameter` tags of the `extra` argument of a driver launch.
pub const PARAM_END: usize = 0;
/// The next word is the address of the packed parameters.
pub const PARAM_BUFFER: usize = 1;
/// The next word is the address of their size.
pub const PARAM_BUFFER_SIZE: usize = 2;
