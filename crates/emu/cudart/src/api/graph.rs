//! Stream capture, and graphs: handles, node kinds and modes have the same numbers in both interfaces.
//!
//! Three names changed their arguments from CUDA 12 to CUDA 13, which took over what had the suffix `_v2` or `_v3` before (facts 21.5). Arguments
//! that the older form does not have are registers and stack that nobody looks at.
//!
//! A node added by `cudaGraphAddNode` is described in the runtime's own structures; it, and conditional nodes, are refused by name.

use super::export;
use crate::driver::{ask, drive};
use crate::error::{Error, Result};
use crate::layout::{Handle, Stream};
use crate::version::{Major, major};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

/// Whether the caller was compiled for CUDA 13.
fn thirteen() -> Result<bool> {
    Ok(major().ok_or(Error::INSUFFICIENT_DRIVER)? == Major::Thirteen)
}

export! {
    fn cudaStreamBeginCapture, cudaStreamBeginCapture_ptsz on stream (stream: Stream, mode: c_int) {
        drive!(cuStreamBeginCapture(stream, mode))
    }

    fn cudaStreamBeginCaptureToGraph, cudaStreamBeginCaptureToGraph_ptsz on stream (
        stream: Stream, graph: Handle, after: *const Handle, edges: *const c_void, count: usize, mode: c_int
    ) {
        drive!(cuStreamBeginCaptureToGraph(stream, graph, after, edges, count, mode))
    }

    fn cudaStreamEndCapture, cudaStreamEndCapture_ptsz on stream (stream: Stream, graph: *mut Handle) {
        drive!(cuStreamEndCapture(stream, graph))
    }

    fn cudaStreamIsCapturing, cudaStreamIsCapturing_ptsz on stream (stream: Stream, status: *mut c_int) {
        drive!(cuStreamIsCapturing(stream, status))
    }

    /// CUDA 12: stream, status, id. CUDA 13: as `_v3`.
    fn cudaStreamGetCaptureInfo, cudaStreamGetCaptureInfo_ptsz on stream (
        stream: Stream, status: *mut c_int, id: *mut u64, graph: *mut Handle, after: *mut *const Handle,
        edges: *mut *const c_void, count: *mut usize
    ) {
        if thirteen()? {
            return drive!(cuStreamGetCaptureInfo(stream, status, id, graph, after, edges, count));
        }
        drive!(cuStreamGetCaptureInfo(stream, status, id, null_mut(), null_mut(), null_mut(), null_mut()))
    }

    fn cudaStreamGetCaptureInfo_v2, cudaStreamGetCaptureInfo_v2_ptsz on stream (
        stream: Stream, status: *mut c_int, id: *mut u64, graph: *mut Handle, after: *mut *const Handle, count: *mut usize
    ) {
        drive!(cuStreamGetCaptureInfo(stream, status, id, graph, after, null_mut(), count))
    }

    fn cudaStreamGetCaptureInfo_v3, cudaStreamGetCaptureInfo_v3_ptsz on stream (
        stream: Stream, status: *mut c_int, id: *mut u64, graph: *mut Handle, after: *mut *const Handle,
        edges: *mut *const c_void, count: *mut usize
    ) {
        drive!(cuStreamGetCaptureInfo(stream, status, id, graph, after, edges, count))
    }

    /// CUDA 12: stream, nodes, how many, flags. CUDA 13: as `_v2`.
    fn cudaStreamUpdateCaptureDependencies, cudaStreamUpdateCaptureDependencies_ptsz on stream (
        stream: Stream, after: *const Handle, third: usize, fourth: usize, fifth: c_uint
    ) {
        if thirteen()? {
            let edges = std::ptr::with_exposed_provenance(third);
            return drive!(cuStreamUpdateCaptureDependencies(stream, after, edges, fourth, fifth));
        }
        let flags = c_uint::try_from(fourth & 0xffff_ffff).map_err(|_| Error::INVALID_VALUE)?;
        drive!(cuStreamUpdateCaptureDependencies(stream, after, std::ptr::null(), third, flags))
    }

    fn cudaStreamUpdateCaptureDependencies_v2, cudaStreamUpdateCaptureDependencies_v2_ptsz on stream (
        stream: Stream, after: *const Handle, edges: *const c_void, count: usize, flags: c_uint
    ) {
        drive!(cuStreamUpdateCaptureDependencies(stream, after, edges, count, flags))
    }

    fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_int) {
        ask!(cuThreadExchangeStreamCaptureMode(mode))
    }

    fn cudaGraphAddEmptyNode(node: *mut Handle, graph: Handle, after: *const Handle, count: usize) {
        drive!(cuGraphAddEmptyNode(node, graph, after, count))
    }

    fn cudaGraphDestroy(graph: Handle) {
        ask!(cuGraphDestroy(graph))
    }

    fn cudaGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize) {
        ask!(cuGraphGetNodes(graph, nodes, count))
    }

    fn cudaGraphNodeGetType(node: Handle, kind: *mut c_int) {
        ask!(cuGraphNodeGetType(node, kind))
    }

    /// CUDA 12: node, nodes, how many. CUDA 13: with the data of edges before the number.
    fn cudaGraphNodeGetDependencies(node: Handle, nodes: *mut Handle, third: *mut c_void, fourth: *mut usize) {
        if thirteen()? {
            return ask!(cuGraphNodeGetDependencies(node, nodes, third, fourth));
        }
        ask!(cuGraphNodeGetDependencies(node, nodes, null_mut(), third.cast()))
    }

    fn cudaGraphInstantiate(exec: *mut Handle, graph: Handle, flags: u64) {
        drive!(cuGraphInstantiateWithFlags(exec, graph, flags))
    }

    fn cudaGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, flags: u64) {
        drive!(cuGraphInstantiateWithFlags(exec, graph, flags))
    }

    fn cudaGraphLaunch, cudaGraphLaunch_ptsz on stream (exec: Handle, stream: Stream) {
        drive!(cuGraphLaunch(exec, stream))
    }

    fn cudaGraphExecDestroy(exec: Handle) {
        ask!(cuGraphExecDestroy(exec))
    }

    fn cudaUserObjectCreate(
        object: *mut Handle, argument: *mut c_void, destroy: *const c_void, count: c_uint, flags: c_uint
    ) {
        drive!(cuUserObjectCreate(object, argument, destroy, count, flags))
    }

    fn cudaUserObjectRelease(object: Handle, count: c_uint) {
        ask!(cuUserObjectRelease(object, count))
    }

    fn cudaGraphRetainUserObject(graph: Handle, object: Handle, count: c_uint, flags: c_uint) {
        ask!(cuGraphRetainUserObject(graph, object, count, flags))
    }
}
