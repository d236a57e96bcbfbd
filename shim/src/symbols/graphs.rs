//! CUDA graphs: when they are captured, become executable, change and go ([`crate::graph`]). Their launches are among the launches
//! ([`super`]).
//!
//! Both doors for what a program is likely to call itself. What the runtime has beside these (copies described in one dimension or by a symbol, the general
//! `cudaGraphExecNodeSetParams`) comes by the driver's door, where the structures are the driver's.

use super::GONE;
use crate::abi::{DriverCopy3d, KernelNode, KernelNode2, MemsetNode, NodeParams, Ptr, RuntimeCopy, Status};
use crate::interpose::interpose;
use crate::{graph, launch};
use std::ffi::c_int;

interpose! {
    // Capture: a launch into a stream being captured does not run, so it is not counted

    /// While any capture is in progress, launches ask whether their stream captures.
    watch Cudart 0 cudaStreamBeginCapture(stream: Ptr, mode: c_int) -> Status [GONE] => launch::Capture;
    /// As above, into an existing graph.
    watch Cudart 0 cudaStreamBeginCaptureToGraph(stream: Ptr, graph: Ptr, deps: Ptr, edges: Ptr, count: usize, mode: c_int) -> Status [GONE] => launch::CaptureToGraph;
    /// As above, driver door.
    watch Cuda 10010 cuStreamBeginCapture_v2(stream: Ptr, mode: c_int) -> Status [GONE] => launch::Capture;
    /// As above, driver door of CUDA 10.0.
    watch Cuda 10000 cuStreamBeginCapture(stream: Ptr) -> Status [GONE] => launch::CaptureAlone;
    /// As above, driver door, into an existing graph.
    watch Cuda 12030 cuStreamBeginCaptureToGraph(stream: Ptr, graph: Ptr, deps: Ptr, edges: Ptr, count: usize, mode: c_int) -> Status [GONE] => launch::CaptureToGraph;
    /// While any capture is in progress, launches ask whether their stream captures.
    watch Cudart 0 cudaStreamBeginCapture_ptsz(stream: Ptr, mode: c_int) -> Status [GONE] => launch::Capture;
    /// As above, into an existing graph.
    watch Cudart 0 cudaStreamBeginCaptureToGraph_ptsz(stream: Ptr, graph: Ptr, deps: Ptr, edges: Ptr, count: usize, mode: c_int) -> Status [GONE] => launch::CaptureToGraph;
    /// As above, driver door.
    watch Cuda 10010 cuStreamBeginCapture_v2_ptsz(stream: Ptr, mode: c_int) -> Status [GONE] => launch::Capture;
    /// As above, driver door of CUDA 10.0.
    watch Cuda 10000 cuStreamBeginCapture_ptsz(stream: Ptr) -> Status [GONE] => launch::CaptureAlone;
    /// As above, driver door, into an existing graph.
    watch Cuda 12030 cuStreamBeginCaptureToGraph_ptsz(stream: Ptr, graph: Ptr, deps: Ptr, edges: Ptr, count: usize, mode: c_int) -> Status [GONE] => launch::CaptureToGraph;
    /// Less of them.
    watch Cudart 0 cudaStreamEndCapture(stream: Ptr, graph: *mut Ptr) -> Status [GONE] => graph::CaptureEnd;
    /// Less of them, driver door.
    watch Cuda 10000 cuStreamEndCapture(stream: Ptr, graph: *mut Ptr) -> Status [GONE] => graph::CaptureEnd;
    /// Less of them.
    watch Cudart 0 cudaStreamEndCapture_ptsz(stream: Ptr, graph: *mut Ptr) -> Status [GONE] => graph::CaptureEnd;
    /// Less of them, driver door.
    watch Cuda 10000 cuStreamEndCapture_ptsz(stream: Ptr, graph: *mut Ptr) -> Status [GONE] => graph::CaptureEnd;

    // What an executable graph uses is read when it is made

    /// Flags since CUDA 12, three places for errors before.
    watch Cudart 0 cudaGraphInstantiate(out: *mut Ptr, graph: Ptr, third: Ptr, fourth: Ptr, fifth: usize) -> Status [GONE] => graph::Instantiate;
    /// With flags: PyTorch's.
    watch Cudart 0 cudaGraphInstantiateWithFlags(out: *mut Ptr, graph: Ptr, flags: u64) -> Status [GONE] => graph::InstantiateWithFlags;
    /// With a stream to upload in.
    watch Cudart 0 cudaGraphInstantiateWithParams(out: *mut Ptr, graph: Ptr, params: Ptr) -> Status [GONE] => graph::InstantiateWithParams;
    /// With a stream to upload in.
    watch Cudart 0 cudaGraphInstantiateWithParams_ptsz(out: *mut Ptr, graph: Ptr, params: Ptr) -> Status [GONE] => graph::InstantiateWithParams;
    /// As above, driver door, with places for errors.
    watch Cuda 10000 cuGraphInstantiate(out: *mut Ptr, graph: Ptr, node: Ptr, text: Ptr, room: usize) -> Status [GONE] => graph::Instantiate;
    /// As above, driver door of CUDA 11.
    watch Cuda 11000 cuGraphInstantiate_v2(out: *mut Ptr, graph: Ptr, node: Ptr, text: Ptr, room: usize) -> Status [GONE] => graph::Instantiate;
    /// As above, driver door, with flags: the runtime's.
    watch Cuda 11040 cuGraphInstantiateWithFlags(out: *mut Ptr, graph: Ptr, flags: u64) -> Status [GONE] => graph::InstantiateWithFlags;
    /// As above, driver door.
    watch Cuda 12000 cuGraphInstantiateWithParams(out: *mut Ptr, graph: Ptr, params: Ptr) -> Status [GONE] => graph::InstantiateWithParams;
    /// As above, driver door.
    watch Cuda 12000 cuGraphInstantiateWithParams_ptsz(out: *mut Ptr, graph: Ptr, params: Ptr) -> Status [GONE] => graph::InstantiateWithParams;

    // It may change afterwards

    /// All of it: one structure since CUDA 12, two places before.
    watch Cudart 0 cudaGraphExecUpdate(exec: Ptr, graph: Ptr, third: Ptr, fourth: Ptr) -> Status [GONE] => graph::Update;
    /// As above, driver door.
    watch Cuda 10020 cuGraphExecUpdate(exec: Ptr, graph: Ptr, node: Ptr, result: Ptr) -> Status [GONE] => graph::Update;
    /// As above, driver door of CUDA 12.
    watch Cuda 12000 cuGraphExecUpdate_v2(exec: Ptr, graph: Ptr, info: Ptr) -> Status [GONE] => graph::UpdateWithInfo;
    /// A kernel's arguments.
    watch Cudart 0 cudaGraphExecKernelNodeSetParams(exec: Ptr, node: Ptr, params: *const KernelNode) -> Status [GONE] => graph::RuntimeKernel;
    /// As above, driver door.
    watch Cuda 10010 cuGraphExecKernelNodeSetParams(exec: Ptr, node: Ptr, params: *const KernelNode) -> Status [GONE] => graph::Kernel;
    /// As above, driver door of CUDA 12.
    watch Cuda 12000 cuGraphExecKernelNodeSetParams_v2(exec: Ptr, node: Ptr, params: *const KernelNode2) -> Status [GONE] => graph::Kernel2;
    /// A copy's ends.
    watch Cudart 0 cudaGraphExecMemcpyNodeSetParams(exec: Ptr, node: Ptr, params: *const RuntimeCopy) -> Status [GONE] => graph::RuntimeMemcpy;
    /// As above, driver door.
    watch Cuda 10020 cuGraphExecMemcpyNodeSetParams(exec: Ptr, node: Ptr, params: *const DriverCopy3d, context: Ptr) -> Status [GONE] => graph::Memcpy;
    /// What a memset sets.
    watch Cudart 0 cudaGraphExecMemsetNodeSetParams(exec: Ptr, node: Ptr, params: *const MemsetNode) -> Status [GONE] => graph::RuntimeMemset;
    /// As above, driver door.
    watch Cuda 10020 cuGraphExecMemsetNodeSetParams(exec: Ptr, node: Ptr, params: *const MemsetNode, context: Ptr) -> Status [GONE] => graph::Memset;
    /// Any of these, driver door.
    watch Cuda 12020 cuGraphExecNodeSetParams(exec: Ptr, node: Ptr, params: *const NodeParams) -> Status [GONE] => graph::Any;
    /// A graph inside it.
    watch Cudart 0 cudaGraphExecChildGraphNodeSetParams(exec: Ptr, node: Ptr, graph: Ptr) -> Status [GONE] => graph::Child;
    /// As above, driver door.
    watch Cuda 11010 cuGraphExecChildGraphNodeSetParams(exec: Ptr, node: Ptr, graph: Ptr) -> Status [GONE] => graph::Child;

    // And goes

    /// Its handle may be given out again.
    watch Cudart 0 cudaGraphExecDestroy(exec: Ptr) -> Status [GONE] => graph::Destroy;
    /// As above, driver door.
    watch Cuda 10000 cuGraphExecDestroy(exec: Ptr) -> Status [GONE] => graph::Destroy;
    /// The graph's handle, too.
    watch Cudart 0 cudaGraphDestroy(graph: Ptr) -> Status [GONE] => graph::DestroyGraph;
    /// As above, driver door.
    watch Cuda 10000 cuGraphDestroy(graph: Ptr) -> Status [GONE] => graph::DestroyGraph;
}
