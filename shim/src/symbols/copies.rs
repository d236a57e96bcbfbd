//! Every function that copies or sets memory, and how its arguments say which ([`crate::extent`]).
//!
//! A row names a function and its twin for per-thread default streams (`_ptds` where there is no stream argument, `_ptsz` where there is),
//! the stream it uses, and the description. All of them for one reason: who uses a block's contents must be known before they may be given
//! up ([`crate::copy`]). So a row says only which copies come by it.
//!
//! Left out: copies between two arrays, which are no managed memory; the driver functions of CUDA before 3.2, whose addresses have 32 bits;
//! nodes of graphs, which the graph's launch runs.

use super::GONE;
use crate::abi::{
    BoxCopy, DevPtr, DriverCopy2d, DriverCopy3d, Extent, PitchedPtr, Ptr, RuntimeCopy, RuntimePeerCopy, Status,
};
use crate::copy::Note;
use crate::doors::runtime_version;
use crate::interpose::{interpose, interpose_copies, twin_since};
use std::ffi::{c_int, c_uint, c_ushort};

/// The default stream, which a call without a stream uses.
const DEFAULT: Ptr = std::ptr::null_mut();

/// The stream of a batch through the runtime: CUDA 12 has a place for the number of the copy that failed in front of it, CUDA 13 has not
/// (headers of `nvidia-cuda-runtime` 12.8.90 and 13.0.96). What comes behind the arguments of CUDA 13 is passed on unread.
fn behind_failure(cuda_13: Ptr, cuda_12: Ptr) -> Ptr {
    if runtime_version() < 13_000 { cuda_12 } else { cuda_13 }
}

interpose_copies! {
    // Runtime

    /// Between any two addresses: PyTorch's.
    copy Cudart 0 [cudaMemcpyAsync, cudaMemcpyAsync_ptsz](dst: DevPtr, src: DevPtr, bytes: usize, kind: c_int, stream: Ptr) => stream, linear(dst, src, bytes);
    /// Between any two addresses.
    copy Cudart 0 [cudaMemcpy, cudaMemcpy_ptds](dst: DevPtr, src: DevPtr, bytes: usize, kind: c_int) => DEFAULT, linear(dst, src, bytes);
    /// Rows.
    copy Cudart 0 [cudaMemcpy2DAsync, cudaMemcpy2DAsync_ptsz](dst: DevPtr, to: usize, src: DevPtr, from: usize, width: usize, height: usize, kind: c_int, stream: Ptr) => stream, rows(dst, to, src, from, width, height);
    /// Rows.
    copy Cudart 0 [cudaMemcpy2D, cudaMemcpy2D_ptds](dst: DevPtr, to: usize, src: DevPtr, from: usize, width: usize, height: usize, kind: c_int) => DEFAULT, rows(dst, to, src, from, width, height);
    /// Boxes.
    copy Cudart 0 [cudaMemcpy3DAsync, cudaMemcpy3DAsync_ptsz](copy: *const RuntimeCopy, stream: Ptr) => stream, runtime(copy);
    /// Boxes.
    copy Cudart 0 [cudaMemcpy3D, cudaMemcpy3D_ptds](copy: *const RuntimeCopy) => DEFAULT, runtime(copy);
    /// Between GPUs: PyTorch's where peers have no access. There is no twin.
    copy Cudart 0 [cudaMemcpyPeerAsync](dst: DevPtr, to: c_int, src: DevPtr, from: c_int, bytes: usize, stream: Ptr) => stream, linear(dst, src, bytes);
    /// Between GPUs.
    copy Cudart 0 [cudaMemcpyPeer](dst: DevPtr, to: c_int, src: DevPtr, from: c_int, bytes: usize) => DEFAULT, linear(dst, src, bytes);
    /// Boxes between GPUs.
    copy Cudart 0 [cudaMemcpy3DPeerAsync, cudaMemcpy3DPeerAsync_ptsz](copy: *const RuntimePeerCopy, stream: Ptr) => stream, runtime_peer(copy);
    /// Boxes between GPUs.
    copy Cudart 0 [cudaMemcpy3DPeer, cudaMemcpy3DPeer_ptds](copy: *const RuntimePeerCopy) => DEFAULT, runtime_peer(copy);
    /// A list (CUDA 12.8).
    copy Cudart 0 [cudaMemcpyBatchAsync, cudaMemcpyBatchAsync_ptsz](dsts: *const DevPtr, srcs: *const DevPtr, sizes: *const usize, count: usize, attrs: Ptr, starts: Ptr, kinds: usize, eighth: Ptr, ninth: Ptr) => behind_failure(eighth, ninth), batch(dsts, srcs, sizes, count);
    /// A list of boxes (CUDA 12.8).
    copy Cudart 0 [cudaMemcpy3DBatchAsync, cudaMemcpy3DBatchAsync_ptsz](count: usize, list: *const BoxCopy, third: Ptr, fourth: Ptr, fifth: Ptr) => behind_failure(fourth, fifth), boxes(list, count);
    /// With a hint of where its ends are (CUDA 13.2).
    copy Cudart 0 [cudaMemcpyWithAttributesAsync, cudaMemcpyWithAttributesAsync_ptsz](dst: DevPtr, src: DevPtr, bytes: usize, attrs: Ptr, stream: Ptr) => stream, linear(dst, src, bytes);
    /// A box with such a hint (CUDA 13.2).
    copy Cudart 0 [cudaMemcpy3DWithAttributesAsync, cudaMemcpy3DWithAttributesAsync_ptsz](copy: *const BoxCopy, flags: u64, stream: Ptr) => stream, boxes(copy, 1);
    /// From memory to a `__device__` variable.
    copy Cudart 0 [cudaMemcpyToSymbolAsync, cudaMemcpyToSymbolAsync_ptsz](symbol: Ptr, src: DevPtr, bytes: usize, offset: usize, kind: c_int, stream: Ptr) => stream, from(src, bytes);
    /// From memory to a `__device__` variable.
    copy Cudart 0 [cudaMemcpyToSymbol, cudaMemcpyToSymbol_ptds](symbol: Ptr, src: DevPtr, bytes: usize, offset: usize, kind: c_int) => DEFAULT, from(src, bytes);
    /// From a `__device__` variable to memory.
    copy Cudart 0 [cudaMemcpyFromSymbolAsync, cudaMemcpyFromSymbolAsync_ptsz](dst: DevPtr, symbol: Ptr, bytes: usize, offset: usize, kind: c_int, stream: Ptr) => stream, to(dst, bytes);
    /// From a `__device__` variable to memory.
    copy Cudart 0 [cudaMemcpyFromSymbol, cudaMemcpyFromSymbol_ptds](dst: DevPtr, symbol: Ptr, bytes: usize, offset: usize, kind: c_int) => DEFAULT, to(dst, bytes);
    /// From memory to an array.
    copy Cudart 0 [cudaMemcpyToArrayAsync, cudaMemcpyToArrayAsync_ptsz](array: Ptr, x: usize, y: usize, src: DevPtr, bytes: usize, kind: c_int, stream: Ptr) => stream, from(src, bytes);
    /// From memory to an array.
    copy Cudart 0 [cudaMemcpyToArray, cudaMemcpyToArray_ptds](array: Ptr, x: usize, y: usize, src: DevPtr, bytes: usize, kind: c_int) => DEFAULT, from(src, bytes);
    /// From an array to memory.
    copy Cudart 0 [cudaMemcpyFromArrayAsync, cudaMemcpyFromArrayAsync_ptsz](dst: DevPtr, array: Ptr, x: usize, y: usize, bytes: usize, kind: c_int, stream: Ptr) => stream, to(dst, bytes);
    /// From an array to memory.
    copy Cudart 0 [cudaMemcpyFromArray, cudaMemcpyFromArray_ptds](dst: DevPtr, array: Ptr, x: usize, y: usize, bytes: usize, kind: c_int) => DEFAULT, to(dst, bytes);
    /// From rows of memory to an array.
    copy Cudart 0 [cudaMemcpy2DToArrayAsync, cudaMemcpy2DToArrayAsync_ptsz](array: Ptr, x: usize, y: usize, src: DevPtr, pitch: usize, width: usize, height: usize, kind: c_int, stream: Ptr) => stream, rows_from(src, pitch, width, height);
    /// From rows of memory to an array.
    copy Cudart 0 [cudaMemcpy2DToArray, cudaMemcpy2DToArray_ptds](array: Ptr, x: usize, y: usize, src: DevPtr, pitch: usize, width: usize, height: usize, kind: c_int) => DEFAULT, rows_from(src, pitch, width, height);
    /// From an array to rows of memory.
    copy Cudart 0 [cudaMemcpy2DFromArrayAsync, cudaMemcpy2DFromArrayAsync_ptsz](dst: DevPtr, pitch: usize, array: Ptr, x: usize, y: usize, width: usize, height: usize, kind: c_int, stream: Ptr) => stream, rows_to(dst, pitch, width, height);
    /// From an array to rows of memory.
    copy Cudart 0 [cudaMemcpy2DFromArray, cudaMemcpy2DFromArray_ptds](dst: DevPtr, pitch: usize, array: Ptr, x: usize, y: usize, width: usize, height: usize, kind: c_int) => DEFAULT, rows_to(dst, pitch, width, height);
    /// Bytes: PyTorch's for zeroing.
    copy Cudart 0 [cudaMemsetAsync, cudaMemsetAsync_ptsz](dst: DevPtr, value: c_int, bytes: usize, stream: Ptr) => stream, fill(dst, bytes);
    /// Bytes.
    copy Cudart 0 [cudaMemset, cudaMemset_ptds](dst: DevPtr, value: c_int, bytes: usize) => DEFAULT, fill(dst, bytes);
    /// Rows of bytes.
    copy Cudart 0 [cudaMemset2DAsync, cudaMemset2DAsync_ptsz](dst: DevPtr, pitch: usize, value: c_int, width: usize, height: usize, stream: Ptr) => stream, fill_rows(dst, pitch, width, height);
    /// Rows of bytes.
    copy Cudart 0 [cudaMemset2D, cudaMemset2D_ptds](dst: DevPtr, pitch: usize, value: c_int, width: usize, height: usize) => DEFAULT, fill_rows(dst, pitch, width, height);
    /// Boxes of bytes.
    copy Cudart 0 [cudaMemset3DAsync, cudaMemset3DAsync_ptsz](dst: PitchedPtr, value: c_int, extent: Extent, stream: Ptr) => stream, fill_box(dst, extent);
    /// Boxes of bytes.
    copy Cudart 0 [cudaMemset3D, cudaMemset3D_ptds](dst: PitchedPtr, value: c_int, extent: Extent) => DEFAULT, fill_box(dst, extent);

    // Driver: Triton, JAX, libraries with their own runtime; and the runtime itself, whose copies are counted at its own door

    /// Between any two addresses.
    copy Cuda 4000 [cuMemcpyAsync, cuMemcpyAsync_ptsz](dst: DevPtr, src: DevPtr, bytes: usize, stream: Ptr) => stream, linear(dst, src, bytes);
    /// Between any two addresses.
    copy Cuda 4000 [cuMemcpy, cuMemcpy_ptds](dst: DevPtr, src: DevPtr, bytes: usize) => DEFAULT, linear(dst, src, bytes);
    /// From the host, as which managed memory may be named, too.
    copy Cuda 3020 [cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz](dst: DevPtr, src: DevPtr, bytes: usize, stream: Ptr) => stream, linear(dst, src, bytes);
    /// From the host, as which managed memory may be named, too.
    copy Cuda 3020 [cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds](dst: DevPtr, src: DevPtr, bytes: usize) => DEFAULT, linear(dst, src, bytes);
    /// To the host.
    copy Cuda 3020 [cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz](dst: DevPtr, src: DevPtr, bytes: usize, stream: Ptr) => stream, linear(dst, src, bytes);
    /// To the host.
    copy Cuda 3020 [cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds](dst: DevPtr, src: DevPtr, bytes: usize) => DEFAULT, linear(dst, src, bytes);
    /// On the GPU.
    copy Cuda 3020 [cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz](dst: DevPtr, src: DevPtr, bytes: usize, stream: Ptr) => stream, linear(dst, src, bytes);
    /// On the GPU.
    copy Cuda 3020 [cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds](dst: DevPtr, src: DevPtr, bytes: usize) => DEFAULT, linear(dst, src, bytes);
    /// Between GPUs.
    copy Cuda 4000 [cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz](dst: DevPtr, to: Ptr, src: DevPtr, from: Ptr, bytes: usize, stream: Ptr) => stream, linear(dst, src, bytes);
    /// Between GPUs.
    copy Cuda 4000 [cuMemcpyPeer, cuMemcpyPeer_ptds](dst: DevPtr, to: Ptr, src: DevPtr, from: Ptr, bytes: usize) => DEFAULT, linear(dst, src, bytes);
    /// From memory to an array.
    copy Cuda 3020 [cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds](array: Ptr, offset: usize, src: DevPtr, bytes: usize) => DEFAULT, from(src, bytes);
    /// From an array to memory.
    copy Cuda 3020 [cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds](dst: DevPtr, array: Ptr, offset: usize, bytes: usize) => DEFAULT, to(dst, bytes);
    /// From memory to an array.
    copy Cuda 3020 [cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz](array: Ptr, offset: usize, src: DevPtr, bytes: usize, stream: Ptr) => stream, from(src, bytes);
    /// From memory to an array.
    copy Cuda 3020 [cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds](array: Ptr, offset: usize, src: DevPtr, bytes: usize) => DEFAULT, from(src, bytes);
    /// From an array to memory.
    copy Cuda 3020 [cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz](dst: DevPtr, array: Ptr, offset: usize, bytes: usize, stream: Ptr) => stream, to(dst, bytes);
    /// From an array to memory.
    copy Cuda 3020 [cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds](dst: DevPtr, array: Ptr, offset: usize, bytes: usize) => DEFAULT, to(dst, bytes);
    /// Rows.
    copy Cuda 3020 [cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz](copy: *const DriverCopy2d, stream: Ptr) => stream, driver_2d(copy);
    /// Rows.
    copy Cuda 3020 [cuMemcpy2D_v2, cuMemcpy2D_v2_ptds](copy: *const DriverCopy2d) => DEFAULT, driver_2d(copy);
    /// Rows of any pitch.
    copy Cuda 3020 [cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds](copy: *const DriverCopy2d) => DEFAULT, driver_2d(copy);
    /// Boxes.
    copy Cuda 3020 [cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz](copy: *const DriverCopy3d, stream: Ptr) => stream, driver_3d(copy);
    /// Boxes.
    copy Cuda 3020 [cuMemcpy3D_v2, cuMemcpy3D_v2_ptds](copy: *const DriverCopy3d) => DEFAULT, driver_3d(copy);
    /// Boxes between GPUs.
    copy Cuda 4000 [cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz](copy: *const DriverCopy3d, stream: Ptr) => stream, driver_3d(copy);
    /// Boxes between GPUs.
    copy Cuda 4000 [cuMemcpy3DPeer, cuMemcpy3DPeer_ptds](copy: *const DriverCopy3d) => DEFAULT, driver_3d(copy);
    /// A list.
    copy Cuda 13000 [cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz](dsts: *const DevPtr, srcs: *const DevPtr, sizes: *const usize, count: usize, attrs: Ptr, starts: Ptr, kinds: usize, stream: Ptr) => stream, batch(dsts, srcs, sizes, count);
    /// A list, of which one may fail by its number.
    copy Cuda 12080 [cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz](dsts: *const DevPtr, srcs: *const DevPtr, sizes: *const usize, count: usize, attrs: Ptr, starts: Ptr, kinds: usize, failed: *mut usize, stream: Ptr) => stream, batch(dsts, srcs, sizes, count);
    /// A list of boxes.
    copy Cuda 13000 [cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync_v2_ptsz](count: usize, list: *const BoxCopy, flags: u64, stream: Ptr) => stream, boxes(list, count);
    /// A list of boxes, of which one may fail by its number.
    copy Cuda 12080 [cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_ptsz](count: usize, list: *const BoxCopy, failed: *mut usize, flags: u64, stream: Ptr) => stream, boxes(list, count);
    /// With a hint of where its ends are.
    copy Cuda 13020 [cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync_ptsz](dst: DevPtr, src: DevPtr, bytes: usize, attrs: Ptr, stream: Ptr) => stream, linear(dst, src, bytes);
    /// A box with such a hint.
    copy Cuda 13020 [cuMemcpy3DWithAttributesAsync, cuMemcpy3DWithAttributesAsync_ptsz](copy: *const BoxCopy, flags: u64, stream: Ptr) => stream, boxes(copy, 1);
    /// Bytes.
    copy Cuda 3020 [cuMemsetD8Async, cuMemsetD8Async_ptsz](dst: DevPtr, value: u8, count: usize, stream: Ptr) => stream, values(dst, count, 1);
    /// Bytes.
    copy Cuda 3020 [cuMemsetD8_v2, cuMemsetD8_v2_ptds](dst: DevPtr, value: u8, count: usize) => DEFAULT, values(dst, count, 1);
    /// Rows of bytes.
    copy Cuda 3020 [cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz](dst: DevPtr, pitch: usize, value: u8, width: usize, height: usize, stream: Ptr) => stream, rows_of_values(dst, pitch, width, 1, height);
    /// Rows of bytes.
    copy Cuda 3020 [cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds](dst: DevPtr, pitch: usize, value: u8, width: usize, height: usize) => DEFAULT, rows_of_values(dst, pitch, width, 1, height);
    /// 16-bit words.
    copy Cuda 3020 [cuMemsetD16Async, cuMemsetD16Async_ptsz](dst: DevPtr, value: c_ushort, count: usize, stream: Ptr) => stream, values(dst, count, 2);
    /// 16-bit words.
    copy Cuda 3020 [cuMemsetD16_v2, cuMemsetD16_v2_ptds](dst: DevPtr, value: c_ushort, count: usize) => DEFAULT, values(dst, count, 2);
    /// Rows of 16-bit words.
    copy Cuda 3020 [cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz](dst: DevPtr, pitch: usize, value: c_ushort, width: usize, height: usize, stream: Ptr) => stream, rows_of_values(dst, pitch, width, 2, height);
    /// Rows of 16-bit words.
    copy Cuda 3020 [cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds](dst: DevPtr, pitch: usize, value: c_ushort, width: usize, height: usize) => DEFAULT, rows_of_values(dst, pitch, width, 2, height);
    /// 32-bit words.
    copy Cuda 3020 [cuMemsetD32Async, cuMemsetD32Async_ptsz](dst: DevPtr, value: c_uint, count: usize, stream: Ptr) => stream, values(dst, count, 4);
    /// 32-bit words.
    copy Cuda 3020 [cuMemsetD32_v2, cuMemsetD32_v2_ptds](dst: DevPtr, value: c_uint, count: usize) => DEFAULT, values(dst, count, 4);
    /// Rows of 32-bit words.
    copy Cuda 3020 [cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz](dst: DevPtr, pitch: usize, value: c_uint, width: usize, height: usize, stream: Ptr) => stream, rows_of_values(dst, pitch, width, 4, height);
    /// Rows of 32-bit words.
    copy Cuda 3020 [cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds](dst: DevPtr, pitch: usize, value: c_uint, width: usize, height: usize) => DEFAULT, rows_of_values(dst, pitch, width, 4, height);
}
