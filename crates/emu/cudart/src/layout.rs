//! C structures that cross the edge. Sizes and offsets: C programs compiled against the headers of nvidia-cuda-runtime-cu12
//! 12.8.90 and nvidia-cuda-runtime 13.2.86; equal in both unless said.

use std::ffi::c_void;
use std::mem::{offset_of, size_of};
use std::ptr::null_mut;

/// `cudaIpcMemHandle_t`, `cudaIpcEventHandle_t`: the driver's, handed on as it is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IpcHandle([u8; 64]);

/// An opaque handle of the driver: context, event, library, kernel. Never dereferenced here.
pub type Handle = *mut c_void;

/// `cudaStream_t`, `CUstream`.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stream(Handle);

impl Stream {
    /// `CU_STREAM_PER_THREAD`.
    pub const PER_THREAD: Self = Self(2 as Handle);

    /// What stream 0 means to code compiled for per-thread default streams.
    pub fn per_thread(self) -> Self {
        if self.0.is_null() { Self::PER_THREAD } else { self }
    }

    /// The stream in a register that holds an integer or a stream, by version of the caller.
    pub fn from_register(register: u64) -> Self {
        Self(register as Handle)
    }
}

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dim3 {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

/// `cudaMemLocation`, `CUmemLocation`: eight bytes, which travel in one register.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    pub kind: i32,
    pub id: i32,
}
const _: () = assert!(size_of::<Location>() == 8);

impl Location {
    const DEVICE: i32 = 1;
    const HOST: i32 = 2;
    /// `cudaCpuDeviceId`: how CUDA 12 says "host" where it takes a device number.
    const CPU: i32 = -1;

    /// The location in a register, as CUDA 13 passes it: kind in the lower half, number in the upper.
    pub const fn from_register(register: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = register.to_le_bytes();
        Self { kind: i32::from_le_bytes([a, b, c, d]), id: i32::from_le_bytes([e, f, g, h]) }
    }

    /// What CUDA 12 means by a device number: the lower half of the register.
    pub const fn of_device(register: u64) -> Self {
        match Self::from_register(register).kind {
            Self::CPU => Self { kind: Self::HOST, id: 0 },
            id => Self { kind: Self::DEVICE, id },
        }
    }
}

/// `cudaLaunchConfig_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchConfig {
    pub grid: Dim3,
    pub block: Dim3,
    pub shared: usize,
    pub stream: Stream,
    /// `cudaLaunchAttribute`s, which are `CUlaunchAttribute`s (72 bytes each): same numbers, same values.
    pub attributes: *const c_void,
    pub attribute_count: u32,
}
const _: () = {
    assert!(size_of::<LaunchConfig>() == 56);
    assert!(offset_of!(LaunchConfig, shared) == 24 && offset_of!(LaunchConfig, stream) == 32);
    assert!(offset_of!(LaunchConfig, attributes) == 40 && offset_of!(LaunchConfig, attribute_count) == 48);
};

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DriverLaunchConfig {
    pub grid: Dim3,
    pub block: Dim3,
    pub shared: u32,
    pub stream: Stream,
    pub attributes: *const c_void,
    pub attribute_count: u32,
}
const _: () = {
    assert!(size_of::<DriverLaunchConfig>() == 56);
    assert!(offset_of!(DriverLaunchConfig, shared) == 24 && offset_of!(DriverLaunchConfig, stream) == 32);
    assert!(offset_of!(DriverLaunchConfig, attribute_count) == 48);
};

/// `cudaPointerAttributes` of CUDA 12; CUDA 13 appends eight reserved words.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PointerAttributes {
    /// `cudaMemoryType`: 0 unregistered, 1 host, 2 device, 3 managed.
    pub kind: i32,
    pub device: i32,
    pub device_pointer: *mut c_void,
    pub host_pointer: *mut c_void,
}
const _: () = assert!(size_of::<PointerAttributes>() == 24);

/// `cudaPointerAttributes` of CUDA 13.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PointerAttributes13 {
    pub common: PointerAttributes,
    pub reserved: [i64; 8],
}
const _: () = assert!(size_of::<PointerAttributes13>() == 88);

/// `cudaFuncAttributes`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct FunctionAttributes {
    pub sharedSizeBytes: usize,
    pub constSizeBytes: usize,
    pub localSizeBytes: usize,
    pub maxThreadsPerBlock: i32,
    pub numRegs: i32,
    pub ptxVersion: i32,
    pub binaryVersion: i32,
    pub cacheModeCA: i32,
    pub maxDynamicSharedSizeBytes: i32,
    pub preferredShmemCarveout: i32,
    pub clusterDimMustBeSet: i32,
    pub requiredClusterWidth: i32,
    pub requiredClusterHeight: i32,
    pub requiredClusterDepth: i32,
    pub clusterSchedulingPolicyPreference: i32,
    pub nonPortableClusterSizeAllowed: i32,
    pub reserved: [i32; 16],
}
const _: () = {
    assert!(size_of::<FunctionAttributes>() == 144);
    assert!(offset_of!(FunctionAttributes, maxThreadsPerBlock) == 24);
    assert!(offset_of!(FunctionAttributes, maxDynamicSharedSizeBytes) == 44);
    assert!(offset_of!(FunctionAttributes, nonPortableClusterSizeAllowed) == 72);
};

/// `cudaPitchedPtr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pitched {
    pub ptr: *mut c_void,
    pub pitch: usize,
    pub width: usize,
    pub height: usize,
}
const _: () = assert!(size_of::<Pitched>() == 32);

/// `cudaExtent`: width in bytes, height in rows, depth in slices.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}
const _: () = assert!(size_of::<Extent>() == 24);

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Copy2d {
    pub src: Copy2dSide,
    pub dst: Copy2dSide,
    pub width: usize,
    pub height: usize,
}

/// One side of a [`Copy2d`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Copy2dSide {
    x: usize,
    y: usize,
    kind: i32,
    host: *const c_void,
    device: *const c_void,
    array: Handle,
    pitch: usize,
}
const _: () = {
    assert!(size_of::<Copy2d>() == 128);
    assert!(offset_of!(Copy2d, dst) == 56 && offset_of!(Copy2d, width) == 112);
    assert!(offset_of!(Copy2dSide, kind) == 16 && offset_of!(Copy2dSide, host) == 24);
    assert!(offset_of!(Copy2dSide, device) == 32 && offset_of!(Copy2dSide, pitch) == 48);
};

impl Copy2dSide {
    /// `CU_MEMORYTYPE_HOST`.
    pub const HOST: i32 = 1;
    /// `CU_MEMORYTYPE_DEVICE`.
    pub const DEVICE: i32 = 2;
    /// `CU_MEMORYTYPE_UNIFIED`: the driver tells from the address, which lies in the device field.
    pub const UNIFIED: i32 = 4;

    /// Rows of `pitch` bytes at `at`, memory of `kind`.
    pub fn new(at: *const c_void, pitch: usize, kind: i32) -> Self {
        let (host, device) =
            if kind == Self::HOST { (at, null_mut::<c_void>().cast_const()) } else { (std::ptr::null(), at) };
        Self { x: 0, y: 0, kind, host, device, array: null_mut(), pitch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_is_read_by_the_version_of_the_caller() {
        // {kind = host, id = 3} in memory order.
        let register = u64::from_le_bytes([2, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(Location::from_register(register), Location { kind: 2, id: 3 });
        // An int argument leaves the upper half undefined.
        assert_eq!(Location::of_device(0xdead_beef_0000_0001), Location { kind: Location::DEVICE, id: 1 });
        assert_eq!(Location::of_device(0x0000_0001_ffff_ffff), Location { kind: Location::HOST, id: 0 });
    }

    #[test]
    fn only_stream_zero_becomes_the_threads_own() {
        assert_eq!(Stream(null_mut()).per_thread(), Stream::PER_THREAD);
        let other = Stream(0x40 as Handle);
        assert_eq!(other.per_thread(), other);
    }
}
