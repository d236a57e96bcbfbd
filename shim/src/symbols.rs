//! Everything we touch in a program, and why. One table answers every door: the link symbol, `dlsym`,
//! `cuGetProcAddress`, and `cudaGetDriverEntryPoint`.
//!
//! Copies and memsets are many, and have a file of their own ([`copies`]); so has what happens to CUDA graphs but their launches ([`graphs`]).
//!
//! The symbols exported beside these are `dlsym` itself (see [`crate::doors`]) and what programs may tell us ([`crate::record`]). A twin whose name ends in `_ptsz` is what code
//! compiled for per-thread default streams calls: stream 0 means another stream there.

use crate::abi::{
    Dev, DevPtr, Dim3, DriverLaunchConfig, Extent, IpcHandle, PitchedPtr, PoolProperties, Ptr, RuntimeLaunchConfig,
    Status, TorchDevice,
};
use crate::interpose::{Entry, interpose};
use crate::pools::hooks as pools;
use crate::{alloc, contexts, doors, idle, ipc, kept, launch, names, ops, pointers, pt, query, record};
use std::ffi::{c_char, c_int, c_uint, c_void};

pub mod copies;
pub mod graphs;

/// Every row.
pub fn rows() -> impl Iterator<Item = &'static Entry> {
    TABLE.iter().chain(copies::TABLE).chain(graphs::TABLE)
}

/// `cudaErrorSharedObjectSymbolNotFound`, the same number in the driver API: the library is not loaded.
const GONE: Status = 302;
/// `CUBLAS_STATUS_NOT_INITIALIZED`.
const NO_CUBLAS: Status = 1;
/// `CUDNN_STATUS_NOT_INITIALIZED` of cuDNN 9.
const NO_CUDNN: Status = 1001;

interpose! {
    // Launches, runtime door
    /// CUDA 12 `<<<>>>`: function, grid, block, arguments and stream of every launch.
    watch Cudart 0 cudaLaunchKernel(f: Ptr, grid: Dim3, block: Dim3, args: *mut Ptr, shared: usize, stream: Ptr) -> Status [GONE] => launch::Symbol<launch::Own>;
    /// CUDA 13 `<<<>>>`: the same, with a kernel handle in place of the host function.
    watch Cudart 0 __cudaLaunchKernel(f: Ptr, grid: Dim3, block: Dim3, args: *mut Ptr, shared: usize, stream: Ptr) -> Status [GONE] => launch::Handle<launch::Own>;
    /// Launches with attributes (clusters, programmatic dependence).
    watch Cudart 0 cudaLaunchKernelExC(config: *const RuntimeLaunchConfig, f: Ptr, args: *mut Ptr) -> Status [GONE] => launch::SymbolEx<launch::Own>;
    /// Cooperative launches.
    watch Cudart 0 cudaLaunchCooperativeKernel(f: Ptr, grid: Dim3, block: Dim3, args: *mut Ptr, shared: usize, stream: Ptr) -> Status [GONE] => launch::Symbol<launch::Own>;
    /// A captured graph is one launch.
    watch Cudart 0 cudaGraphLaunch(exec: Ptr, stream: Ptr) -> Status [GONE] => launch::Graph<launch::Own>;
    /// CUDA 12 `<<<>>>`: function, grid, block, arguments and stream of every launch.
    watch Cudart 0 cudaLaunchKernel_ptsz(f: Ptr, grid: Dim3, block: Dim3, args: *mut Ptr, shared: usize, stream: Ptr) -> Status [GONE] => launch::Symbol<launch::PerThread>;
    /// CUDA 13 `<<<>>>`: the same, with a kernel handle in place of the host function.
    watch Cudart 0 __cudaLaunchKernel_ptsz(f: Ptr, grid: Dim3, block: Dim3, args: *mut Ptr, shared: usize, stream: Ptr) -> Status [GONE] => launch::Handle<launch::PerThread>;
    /// Launches with attributes (clusters, programmatic dependence).
    watch Cudart 0 cudaLaunchKernelExC_ptsz(config: *const RuntimeLaunchConfig, f: Ptr, args: *mut Ptr) -> Status [GONE] => launch::SymbolEx<launch::PerThread>;
    /// Cooperative launches.
    watch Cudart 0 cudaLaunchCooperativeKernel_ptsz(f: Ptr, grid: Dim3, block: Dim3, args: *mut Ptr, shared: usize, stream: Ptr) -> Status [GONE] => launch::Symbol<launch::PerThread>;
    /// A captured graph is one launch.
    watch Cudart 0 cudaGraphLaunch_ptsz(exec: Ptr, stream: Ptr) -> Status [GONE] => launch::Graph<launch::PerThread>;

    // Launches, driver door: Triton, and the kernels inside cuBLAS and cuDNN

    /// Kernels of vendor libraries and JIT compilers.
    watch Cuda 4000 cuLaunchKernel(f: Ptr, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Ptr, params: *mut Ptr, extra: *mut Ptr) -> Status [GONE] => launch::Driver<launch::Own>;
    /// The same with attributes: Triton, cuBLASLt.
    watch Cuda 11060 cuLaunchKernelEx(config: *const DriverLaunchConfig, f: Ptr, params: *mut Ptr, extra: *mut Ptr) -> Status [GONE] => launch::DriverEx<launch::Own>;
    /// Cooperative launches.
    watch Cuda 9000 cuLaunchCooperativeKernel(f: Ptr, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Ptr, params: *mut Ptr) -> Status [GONE] => launch::DriverCooperative<launch::Own>;
    /// A captured graph is one launch.
    watch Cuda 10000 cuGraphLaunch(exec: Ptr, stream: Ptr) -> Status [GONE] => launch::Graph<launch::Own>;
    /// Kernels of vendor libraries and JIT compilers.
    watch Cuda 7000 cuLaunchKernel_ptsz(f: Ptr, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Ptr, params: *mut Ptr, extra: *mut Ptr) -> Status [GONE] => launch::Driver<launch::PerThread>;
    /// The same with attributes: Triton, cuBLASLt.
    watch Cuda 11060 cuLaunchKernelEx_ptsz(config: *const DriverLaunchConfig, f: Ptr, params: *mut Ptr, extra: *mut Ptr) -> Status [GONE] => launch::DriverEx<launch::PerThread>;
    /// Cooperative launches.
    watch Cuda 9000 cuLaunchCooperativeKernel_ptsz(f: Ptr, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Ptr, params: *mut Ptr) -> Status [GONE] => launch::DriverCooperative<launch::PerThread>;
    /// A captured graph is one launch.
    watch Cuda 10000 cuGraphLaunch_ptsz(exec: Ptr, stream: Ptr) -> Status [GONE] => launch::Graph<launch::PerThread>;

    // Device memory becomes managed memory, so that it can exceed the GPU

    /// PyTorch's caching allocator and nearly everybody else.
    replace_by_caller Cudart 0 cudaMalloc(out: *mut DevPtr, bytes: usize) -> Status [GONE], caller in "rdx" => alloc::Malloc<alloc::Runtime>;
    /// Rows padded to the texture pitch.
    replace_by_caller Cudart 0 cudaMallocPitch(out: *mut DevPtr, pitch: *mut usize, width: usize, height: usize) -> Status [GONE], caller in "r8" => alloc::MallocPitch;
    /// Boxes of padded rows.
    replace_by_caller Cudart 0 cudaMalloc3D(out: *mut PitchedPtr, extent: Extent) -> Status [GONE], caller in "rsi" => alloc::Malloc3D;
    /// The driver's `cudaMalloc`: Triton, JAX, libraries with their own runtime.
    replace_by_caller Cuda 3020 cuMemAlloc_v2(out: *mut DevPtr, bytes: usize) -> Status [GONE], caller in "rdx" => alloc::Malloc<alloc::Driver>;
    /// The driver's `cudaMallocPitch`.
    replace_by_caller Cuda 3020 cuMemAllocPitch_v2(out: *mut DevPtr, pitch: *mut usize, width: usize, height: usize, element: c_uint) -> Status [GONE], caller in "r9" => alloc::DriverAllocPitch;
    /// Memory that the program itself made managed is prefetched, too.
    watch Cudart 0 cudaMallocManaged(out: *mut DevPtr, bytes: usize, flags: c_uint) -> Status [GONE] => alloc::Managed;
    /// As above, driver door.
    watch Cuda 6000 cuMemAllocManaged(out: *mut DevPtr, bytes: usize, flags: c_uint) -> Status [GONE] => alloc::Managed;
    /// The end of an allocation.
    free Cudart 0 cudaFree(ptr: DevPtr) -> Status [GONE] => pools::Free;
    /// The end of an allocation.
    free Cuda 3020 cuMemFree_v2(ptr: DevPtr) -> Status [GONE] => pools::Free;
    /// In stream order; may end an allocation of `cudaMalloc`, too.
    free Cudart 0 cudaFreeAsync(ptr: DevPtr, stream: Ptr) -> Status [GONE] => pools::FreeAsync<launch::Own>;
    /// As above, driver door.
    free Cuda 11020 cuMemFreeAsync(ptr: DevPtr, stream: Ptr) -> Status [GONE] => pools::FreeAsync<launch::Own>;
    /// May end an allocation of `cudaMalloc`, too.
    free Cudart 0 cudaFreeAsync_ptsz(ptr: DevPtr, stream: Ptr) -> Status [GONE] => pools::FreeAsync<launch::PerThread>;
    /// As above, driver door.
    free Cuda 11020 cuMemFreeAsync_ptsz(ptr: DevPtr, stream: Ptr) -> Status [GONE] => pools::FreeAsync<launch::PerThread>;

    // Stream-ordered memory becomes blocks of managed memory

    /// Handed out by a pool of ours.
    replace_by_caller Cudart 0 cudaMallocAsync(out: *mut DevPtr, bytes: usize, stream: Ptr) -> Status [GONE], caller in "rcx" => pools::MallocAsync<alloc::Runtime, launch::Own>;
    /// Of a pool that the program names.
    replace_by_caller Cudart 0 cudaMallocFromPoolAsync(out: *mut DevPtr, bytes: usize, pool: Ptr, stream: Ptr) -> Status [GONE], caller in "r8" => pools::FromPool<alloc::Runtime, launch::Own>;
    /// Handed out by a pool of ours, driver door.
    replace_by_caller Cuda 11020 cuMemAllocAsync(out: *mut DevPtr, bytes: usize, stream: Ptr) -> Status [GONE], caller in "rcx" => pools::MallocAsync<alloc::Driver, launch::Own>;
    /// Of a pool that the program names, driver door.
    replace_by_caller Cuda 11020 cuMemAllocFromPoolAsync(out: *mut DevPtr, bytes: usize, pool: Ptr, stream: Ptr) -> Status [GONE], caller in "r8" => pools::FromPool<alloc::Driver, launch::Own>;
    /// Handed out by a pool of ours.
    replace_by_caller Cudart 0 cudaMallocAsync_ptsz(out: *mut DevPtr, bytes: usize, stream: Ptr) -> Status [GONE], caller in "rcx" => pools::MallocAsync<alloc::Runtime, launch::PerThread>;
    /// Of a pool that the program names.
    replace_by_caller Cudart 0 cudaMallocFromPoolAsync_ptsz(out: *mut DevPtr, bytes: usize, pool: Ptr, stream: Ptr) -> Status [GONE], caller in "r8" => pools::FromPool<alloc::Runtime, launch::PerThread>;
    /// Handed out by a pool of ours, driver door.
    replace_by_caller Cuda 11020 cuMemAllocAsync_ptsz(out: *mut DevPtr, bytes: usize, stream: Ptr) -> Status [GONE], caller in "rcx" => pools::MallocAsync<alloc::Driver, launch::PerThread>;
    /// Of a pool that the program names, driver door.
    replace_by_caller Cuda 11020 cuMemAllocFromPoolAsync_ptsz(out: *mut DevPtr, bytes: usize, pool: Ptr, stream: Ptr) -> Status [GONE], caller in "r8" => pools::FromPool<alloc::Driver, launch::PerThread>;
    /// Slabs go back, too. The runtime's functions of pools come through here (facts 20.3), as do all those below.
    watch Cuda 11020 cuMemPoolTrimTo(pool: Ptr, keep: usize) -> Status [GONE] => pools::Trim;
    /// What a pool has is what ours has.
    replace Cuda 11020 cuMemPoolGetAttribute(pool: Ptr, which: c_int, out: *mut c_void) -> Status [GONE] => pools::GetAttribute;
    /// What is set holds for ours.
    watch Cuda 11020 cuMemPoolSetAttribute(pool: Ptr, which: c_int, value: *mut c_void) -> Status [GONE] => pools::SetAttribute;
    /// Which pools are plain memory of one device.
    watch Cuda 11020 cuMemPoolCreate(out: *mut Ptr, properties: *const PoolProperties) -> Status [GONE] => pools::Create;
    /// A handle may be given out again.
    watch Cuda 11020 cuMemPoolDestroy(pool: Ptr) -> Status [GONE] => pools::Destroy;

    // Memory that stays device memory, which is said once

    /// Expandable segments: virtual memory management is never managed memory.
    watch Cuda 10020 cuMemCreate(out: *mut u64, bytes: usize, prop: Ptr, flags: u64) -> Status [GONE] => kept::Vmm;
    /// Takes all memory and every context away under us: the end of our help.
    watch Cudart 0 cudaDeviceReset() -> Status [GONE] => kept::Reset;
    /// As above, driver door.
    watch Cuda 11000 cuDevicePrimaryCtxReset_v2(device: Dev) -> Status [GONE] => kept::DriverReset;

    // Memory of other processes: managed memory cannot be exported. The runtime's functions come through here

    /// At its export managed memory becomes memory of its device.
    replace Cuda 4010 cuIpcGetMemHandle(handle: *mut IpcHandle, ptr: DevPtr) -> Status [GONE] => ipc::GetMemHandle;
    /// Handles of ours are opened by us.
    replace Cuda 4010 cuIpcOpenMemHandle(out: *mut DevPtr, handle: IpcHandle, flags: c_uint) -> Status [GONE] => ipc::OpenMemHandle;
    /// As above.
    replace Cuda 11000 cuIpcOpenMemHandle_v2(out: *mut DevPtr, handle: IpcHandle, flags: c_uint) -> Status [GONE] => ipc::OpenMemHandle;
    /// What was opened by us.
    free Cuda 4010 cuIpcCloseMemHandle(ptr: DevPtr) -> Status [GONE] => ipc::CloseMemHandle;

    // What the program is told about memory: one story

    /// Our memory is device memory to the program, whatever it is beneath.
    replace Cuda 4000 cuPointerGetAttribute(out: *mut c_void, which: c_int, at: DevPtr) -> Status [GONE] => pointers::Attribute;
    /// Several questions at once.
    replace Cuda 7000 cuPointerGetAttributes(count: c_uint, which: *const c_int, outs: *mut *mut c_void, at: DevPtr) -> Status [GONE] => pointers::Attributes;
    /// How large it is, is what was asked for.
    replace Cuda 3020 cuMemGetAddressRange_v2(base: *mut DevPtr, bytes: *mut usize, at: DevPtr) -> Status [GONE] => pointers::AddressRange;
    /// As above, runtime door.
    replace Cudart 0 cudaPointerGetAttributes(out: *mut pointers::Found, at: Ptr) -> Status [GONE] => pointers::Described;
    /// What there is, and what is free.
    replace Cudart 0 cudaMemGetInfo(free: *mut usize, total: *mut usize) -> Status [GONE] => query::MemGetInfo;
    /// As above, driver door.
    replace Cuda 3020 cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Status [GONE] => query::MemGetInfo;
    /// What there is.
    replace Cuda 3020 cuDeviceTotalMem_v2(bytes: *mut usize, device: Dev) -> Status [GONE] => query::DeviceTotalMem;
    /// What there is, among much else (CUDA 13, and the old layout of CUDA 12).
    replace Cudart 0 cudaGetDeviceProperties(props: *mut u8, device: c_int) -> Status [GONE] => query::DeviceProperties;
    /// What there is, among much else (CUDA 12).
    replace Cudart 0 cudaGetDeviceProperties_v2(props: *mut u8, device: c_int) -> Status [GONE] => query::DeviceProperties;

    // Handles that may come to mean something else

    /// A kernel handle may be reused after this.
    watch Cuda 2000 cuModuleUnload(module: Ptr) -> Status [GONE] => names::Unload;
    /// As above.
    watch Cuda 12000 cuLibraryUnload(library: Ptr) -> Status [GONE] => names::Unload;
    /// A context takes its modules with it.
    watch Cuda 4000 cuCtxDestroy_v2(context: Ptr) -> Status [GONE] => idle::Context;
    /// Perhaps the last that holds the context.
    watch Cuda 11000 cuDevicePrimaryCtxRelease_v2(device: Dev) -> Status [GONE] => idle::Primary;
    /// A context has a default stream of its own.
    watch Cuda 2000 cuCtxCreate(out: *mut Ptr, flags: c_uint, device: Dev) -> Status [GONE] => contexts::Create;
    /// As above.
    watch Cuda 3020 cuCtxCreate_v2(out: *mut Ptr, flags: c_uint, device: Dev) -> Status [GONE] => contexts::Create;
    /// As above.
    watch Cuda 11040 cuCtxCreate_v3(out: *mut Ptr, affinity: Ptr, count: c_int, flags: c_uint, device: Dev) -> Status [GONE] => contexts::CreateAffine;
    /// As above.
    watch Cuda 12050 cuCtxCreate_v4(out: *mut Ptr, parameters: Ptr, flags: c_uint, device: Dev) -> Status [GONE] => contexts::CreateWith;
    /// As above.
    watch Cuda 12040 cuCtxFromGreenCtx(out: *mut Ptr, green: Ptr) -> Status [GONE] => contexts::FromGreen;
    /// A handle may be given out again: a stream's.
    watch Cudart 0 cudaStreamDestroy(stream: Ptr) -> Status [GONE] => idle::Destroy;
    /// As above, driver door.
    watch Cuda 4000 cuStreamDestroy_v2(stream: Ptr) -> Status [GONE] => idle::Destroy;

    // Waits, where programs are recorded; the runtime's come through here, too. After those for all, pools give back

    /// For a stream.
    watch Cuda 2000 cuStreamSynchronize(stream: Ptr) -> Status [GONE] => record::Stream;
    /// For a stream.
    watch Cuda 7000 cuStreamSynchronize_ptsz(stream: Ptr) -> Status [GONE] => record::StreamPerThread;
    /// For an event.
    watch Cuda 2000 cuEventSynchronize(event: Ptr) -> Status [GONE] => record::Event;
    /// For all.
    watch Cuda 2000 cuCtxSynchronize() -> Status [GONE] => pools::Synchronize;
    /// For all of a context.
    watch Cuda 13000 cuCtxSynchronize_v2(context: Ptr) -> Status [GONE] => pools::SynchronizeOne;

    // PyTorch: which blocks of its caching allocator hold a tensor

    /// torch ≥ 2.0.
    watch C10 0 _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(ptr: Ptr, size: i64, allocated: usize, reserved: usize, device: TorchDevice) => pt::Report;
    /// torch 1.13.
    watch C10 0 _ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE(ptr: Ptr, size: i64, allocated: usize, reserved: usize, device: TorchDevice) => pt::Report;

    // Library operations: they name the kernels inside them

    /// Matrix product of any type.
    watch Cublas 0 cublasGemmEx(handle: Ptr, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: Ptr, a: Ptr, at: c_int, lda: c_int, b: Ptr, bt: c_int, ldb: c_int, beta: Ptr, c: Ptr, ct: c_int, ldc: c_int, compute: c_int, algo: c_int) -> Status [NO_CUBLAS] => ops::GemmEx;
    /// Batched matrix product of any type.
    watch Cublas 0 cublasGemmStridedBatchedEx(handle: Ptr, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: Ptr, a: Ptr, at: c_int, lda: c_int, sa: i64, b: Ptr, bt: c_int, ldb: c_int, sb: i64, beta: Ptr, c: Ptr, ct: c_int, ldc: c_int, sc: i64, count: c_int, compute: c_int, algo: c_int) -> Status [NO_CUBLAS] => ops::GemmStridedBatchedEx;
    /// Matrix product, single precision (torch ≤ 2.9).
    watch Cublas 0 cublasSgemm_v2(handle: Ptr, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: Ptr, a: Ptr, lda: c_int, b: Ptr, ldb: c_int, beta: Ptr, c: Ptr, ldc: c_int) -> Status [NO_CUBLAS] => ops::Sgemm;
    /// Matrix product, double precision.
    watch Cublas 0 cublasDgemm_v2(handle: Ptr, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: Ptr, a: Ptr, lda: c_int, b: Ptr, ldb: c_int, beta: Ptr, c: Ptr, ldc: c_int) -> Status [NO_CUBLAS] => ops::Dgemm;
    /// Matrix product with epilogue: `linear`.
    watch CublasLt 0 cublasLtMatmul(handle: Ptr, desc: Ptr, alpha: Ptr, a: Ptr, ad: Ptr, b: Ptr, bd: Ptr, beta: Ptr, c: Ptr, cd: Ptr, d: Ptr, dd: Ptr, algo: Ptr, workspace: Ptr, size: usize, stream: Ptr) -> Status [NO_CUBLAS] => ops::LtMatmul;
    /// A cuDNN operation graph: convolutions.
    watch Cudnn 0 cudnnBackendExecute(handle: Ptr, plan: Ptr, pack: Ptr) -> Status [NO_CUDNN] => ops::CudnnExecute;

    // The other doors: who asks for an address gets ours

    /// Look-up by name; answers for itself, too: libcudart asks for it and uses the answer from then on.
    look_up Cuda 11030 cuGetProcAddress(name: *const c_char, out: *mut Ptr, version: c_int, flags: u64) -> Status [GONE] => doors::GetProcAddress;
    /// As above, with a status.
    look_up Cuda 12000 cuGetProcAddress_v2(name: *const c_char, out: *mut Ptr, version: c_int, flags: u64, status: *mut c_int) -> Status [GONE] => doors::GetProcAddressV2;
    /// Look-up through the runtime, at the runtime's own version.
    look_up Cudart 0 cudaGetDriverEntryPoint(name: *const c_char, out: *mut Ptr, flags: u64, status: *mut c_int) -> Status [GONE] => doors::EntryPoint;
    /// Look-up through the runtime: torch's own driver functions.
    look_up Cudart 0 cudaGetDriverEntryPointByVersion(name: *const c_char, out: *mut Ptr, version: c_uint, flags: u64, status: *mut c_int) -> Status [GONE] => doors::EntryPointByVersion;
    /// Look-up through the runtime, at the runtime's own version.
    look_up Cudart 0 cudaGetDriverEntryPoint_ptsz(name: *const c_char, out: *mut Ptr, flags: u64, status: *mut c_int) -> Status [GONE] => doors::EntryPointPerThread;
    /// Look-up through the runtime: torch's own driver functions.
    look_up Cudart 0 cudaGetDriverEntryPointByVersion_ptsz(name: *const c_char, out: *mut Ptr, version: c_uint, flags: u64, status: *mut c_int) -> Status [GONE] => doors::EntryPointByVersionPerThread;
}
