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

/// `CUmemPoolProps`; what follows is not read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolProperties {
    pub allocation: c_int,
    pub handles: c_int,
    /// Kind and number.
    pub location: [c_int; 2],
    pub security: Ptr,
    pub max: usize,
}

impl PoolProperties {
    /// Whether it is memory of one device, pinned there, that no other process can be given.
    pub fn is_plain(&self) -> bool {
        (self.allocation, self.handles, self.location[0]) == (1, 0, 1)
    }
}

/// `CUipcMemHandle`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct IpcHandle(pub [u8; 64]);

/// `CUlaunchParameter` tags of the `extra` argument of a driver launch.
pub const PARAM_END: usize = 0;
/// The next word is the address of the packed parameters.
pub const PARAM_BUFFER: usize = 1;
/// The next word is the address of their size.
pub const PARAM_BUFFER_SIZE: usize = 2;

/// An offset in three dimensions: `cudaPos`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pos {
    pub x: usize,
    pub y: usize,
    pub z: usize,
}

/// One end of a copy described to the runtime: an array, or else pitched memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RuntimeEnd {
    pub array: Ptr,
    pub pos: Pos,
    pub memory: PitchedPtr,
}

/// `cudaMemcpy3DParms`; the direction, which ends it, is not read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RuntimeCopy {
    pub src: RuntimeEnd,
    pub dst: RuntimeEnd,
    pub extent: Extent,
}

/// `cudaMemcpy3DPeerParms`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RuntimePeerCopy {
    pub src: RuntimeEnd,
    pub src_device: c_int,
    pub dst: RuntimeEnd,
    pub dst_device: c_int,
    pub extent: Extent,
}

/// What an end of a driver copy is: `CUmemorytype`.
pub const MEMORY_HOST: c_uint = 1;
/// Named by its device address.
pub const MEMORY_DEVICE: c_uint = 2;
/// Named by its device address, wherever it is.
pub const MEMORY_UNIFIED: c_uint = 4;

/// One end of a `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DriverEnd2d {
    pub x: usize,
    pub y: usize,
    pub kind: c_uint,
    pub host: DevPtr,
    pub device: DevPtr,
    pub array: Ptr,
    pub pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DriverCopy2d {
    pub src: DriverEnd2d,
    pub dst: DriverEnd2d,
    pub width: usize,
    pub height: usize,
}

/// One end of a `CUDA_MEMCPY3D` or `CUDA_MEMCPY3D_PEER`, whose word for a context is reserved in the other.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DriverEnd3d {
    pub x: usize,
    pub y: usize,
    pub z: usize,
    pub lod: usize,
    pub kind: c_uint,
    pub host: DevPtr,
    pub device: DevPtr,
    pub array: Ptr,
    pub context: Ptr,
    pub pitch: usize,
    pub height: usize,
}

/// `CUDA_MEMCPY3D`, `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DriverCopy3d {
    pub src: DriverEnd3d,
    pub dst: DriverEnd3d,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// One end of a box of a batch, the same in both APIs. What `kind` calls an array begins with its handle.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BoxEnd {
    pub kind: c_uint,
    pub address: DevPtr,
    /// In elements, which are bytes unless the other end is an array; 0 is "as the extent".
    pub row: usize,
    /// As above.
    pub layer: usize,
    pub hint: u64,
}

/// `cudaMemcpyOperandTypePointer`, `CU_MEMCPY_OPERAND_TYPE_POINTER`.
pub const BOX_POINTER: c_uint = 1;

/// `cudaMemcpy3DBatchOp`, `CUDA_MEMCPY3D_BATCH_OP`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BoxCopy {
    pub src: BoxEnd,
    pub dst: BoxEnd,
    pub extent: Extent,
    pub order: c_uint,
    pub flags: c_uint,
}

/// `CUDA_KERNEL_NODE_PARAMS_v1`; `cudaKernelNodeParams`, whose function is a host function.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelNode {
    pub function: Ptr,
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared: c_uint,
    pub params: *mut Ptr,
    pub extra: *mut Ptr,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2` and `_v3`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelNode2 {
    pub node: KernelNode,
    /// A `CUkernel`, where there is no function.
    pub kernel: Ptr,
    pub context: Ptr,
}

impl KernelNode2 {
    /// The older form, by whichever handle there is.
    pub const fn plain(self) -> KernelNode {
        let function = if self.node.function.is_null() { self.kernel } else { self.node.function };
        KernelNode { function, ..self.node }
    }
}

/// `CUDA_MEMSET_NODE_PARAMS_v1`, `cudaMemsetParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemsetNode {
    pub dst: DevPtr,
    pub pitch: usize,
    pub value: c_uint,
    pub element: c_uint,
    pub width: usize,
    pub height: usize,
}

/// `CUgraphNodeParams`: a kind of node, and its own parameters.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NodeParams {
    pub kind: c_int,
    pub reserved: [c_int; 3],
    pub of: [u64; 29],
    pub reserved_too: u64,
}

const _: () = {
    // As in the headers of `nvidia-cuda-runtime` 12.8.90 and 13.0.96.
    assert!(size_of::<RuntimeCopy>() == 152 && size_of::<RuntimePeerCopy>() == 168);
    assert!(size_of::<DriverCopy2d>() == 128 && size_of::<DriverCopy3d>() == 200);
    assert!(size_of::<KernelNode>() == 56 && size_of::<KernelNode2>() == 72);
    assert!(size_of::<MemsetNode>() == 40 && size_of::<NodeParams>() == 256);
    assert!(size_of::<BoxEnd>() == 40 && size_of::<BoxCopy>() == 112);
};
