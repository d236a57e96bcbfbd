//! Executable graphs: making, launching, changing and ending them.

use std::ffi::{c_char, c_int, c_uint};

use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::graph::{ExecId, Task};
use deepum_emu_device::machine::{Cost, machine};
use deepum_emu_device::run::Until;

use crate::copy::Copy3d;
use crate::edge::{In, Out, api, twins};
use crate::graph::node_id;
use crate::handle::{Context, Event, Exec, Graph, Node, Stream};
use crate::node::{Asked, Host, Kernel, Kernel2, Memset, Params};
use crate::{current, object};

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Instantiate {
    flags: u64,
    upload: Stream,
    failed: Node,
    result: c_int,
}
const _: () = assert!(size_of::<Instantiate>() == 32);

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Update {
    result: c_int,
    node: Node,
    from: Node,
}
const _: () = assert!(size_of::<Update>() == 24);

/// `CUgraphInstantiate_flags`.
const AUTO_FREE: u64 = 1;
const UPLOAD: u64 = 2;
const DEVICE_LAUNCH: u64 = 4;
const NODE_PRIORITY: u64 = 8;

/// `CUDA_GRAPH_INSTANTIATE_ERROR`.
const ERROR: c_int = 1;

fn exec_id(exec: Exec) -> CuResult<ExecId> {
    exec.get().map_err(|_| CuError::InvalidValue)
}

/// Nothing here allocates, so nothing is freed automatically; priorities of streams order nothing either.
fn instantiate(graph: Graph, flags: u64) -> CuResult<Exec> {
    match flags {
        _ if flags & !(AUTO_FREE | UPLOAD | DEVICE_LAUNCH | NODE_PRIORITY) != 0 => return Err(CuError::InvalidValue),
        _ if flags & DEVICE_LAUNCH != 0 => return Err(CuError::NotSupported),
        _ => {}
    }
    let graph = graph.get().map_err(|_| CuError::InvalidValue)?;
    machine()?.call(Cost::Call, |call| call.state.graphs.instantiate(graph, flags)).map(Exec::of)
}

fn update(exec: Exec, graph: Graph) -> CuResult<Update> {
    let exec = exec_id(exec)?;
    let graph = graph.get().map_err(|_| CuError::InvalidValue)?;
    let done = machine()?.call(Cost::Call, |call| call.state.graphs.update(exec, graph))?;
    Ok(match done {
        Ok(()) => Update { result: 0, node: Node::NULL, from: Node::NULL },
        Err(differs) => {
            Update { result: differs.result, node: differs.node.map_or(Node::NULL, Node::of), from: Node::NULL }
        }
    })
}

/// A node of an executable graph does something else of its kind.
fn set(exec: Exec, node: Node, asked: Asked) -> CuResult {
    let (exec, node) = (exec_id(exec)?, node_id(node)?);
    machine()?.call(Cost::Call, |call| {
        let task = asked.task(call)?;
        if let Task::Child(graph) = task {
            return call.state.graphs.update_child(exec, node, graph);
        }
        call.state.graphs.exec_mut(exec)?.set(node, task)
    })
}

api! {
    /// The error's node and text are of before CUDA 11.4; a circle has no one node.
    fn cuGraphInstantiate(out: Out<Exec>, graph: Graph, failed: Out<Node>, text: *mut c_char, room: usize) {
        failed.offer(Node::NULL);
        if !text.is_null() && room > 0 {
            // SAFETY: not null, so the caller promises `room` bytes, which are at least one.
            unsafe { text.write(0) };
        }
        out.put(instantiate(graph, 0)?)
    }

    fn cuGraphInstantiateWithFlags(out: Out<Exec>, graph: Graph, flags: u64) {
        if flags & UPLOAD != 0 {
            return Err(CuError::InvalidValue);
        }
        out.put(instantiate(graph, flags)?)
    }

    fn cuGraphInstantiateWithParams(out: Out<Exec>, graph: Graph, params: Out<Instantiate>) {
        let given = params.get()?;
        let made = instantiate(graph, given.flags);
        params.put(Instantiate { failed: Node::NULL, result: if made.is_ok() { 0 } else { ERROR }, ..given })?;
        out.put(made?)
    }

    fn cuGraphExecGetFlags(exec: Exec, flags: Out<u64>) {
        let exec = exec_id(exec)?;
        flags.put(machine()?.call(Cost::Free, |call| Ok(call.state.graphs.exec(exec)?.flags))?)
    }

    /// Nothing has to be brought to the device before a launch.
    fn cuGraphUpload(exec: Exec, stream: Stream) {
        let exec = exec_id(exec)?;
        machine()?.call(Cost::Call, |call| {
            let stream = current::stream(call, stream)?;
            call.state.graphs.exec(exec)?;
            call.not_captured(stream)
        })
    }

    fn cuGraphLaunch(exec: Exec, stream: Stream) {
        let exec = exec_id(exec)?;
        machine()?.call(Cost::Launch, |call| {
            let stream = current::stream(call, stream)?;
            call.launch_graph(stream, exec)
        })
    }

    /// Its launches go on; objects that it holds are given up when they are over, for which this waits.
    fn cuGraphExecDestroy(exec: Exec) {
        let exec = exec_id(exec)?;
        machine()?.call(Cost::Call, |call| match call.state.graphs.exec(exec)? {
            exec if exec.holds_objects() => exec.last.map_or(Ok(()), |last| call.run(Until::Reached(last))),
            _ => Ok(()),
        })?;
        object::ending(|state| state.graphs.end_exec(exec))
    }

    fn cuGraphExecUpdate(exec: Exec, graph: Graph, failed: Out<Node>, result: Out<c_int>) {
        let done = update(exec, graph)?;
        failed.offer(done.node);
        result.offer(done.result);
        if done.result == 0 { Ok(()) } else { Err(CuError::GraphUpdateFailure) }
    }

    fn cuGraphExecUpdate_v2(exec: Exec, graph: Graph, info: Out<Update>) {
        let done = update(exec, graph)?;
        info.offer(done);
        if done.result == 0 { Ok(()) } else { Err(CuError::GraphUpdateFailure) }
    }

    fn cuGraphExecKernelNodeSetParams(exec: Exec, node: Node, params: In<Kernel>) {
        set(exec, node, params.get()?.asked()?)
    }

    fn cuGraphExecKernelNodeSetParams_v2(exec: Exec, node: Node, params: In<Kernel2>) {
        set(exec, node, params.get()?.asked()?)
    }

    fn cuGraphExecMemcpyNodeSetParams(exec: Exec, node: Node, params: In<Copy3d>, _context: Context) {
        set(exec, node, params.get()?.into())
    }

    fn cuGraphExecMemsetNodeSetParams(exec: Exec, node: Node, params: In<Memset>, _context: Context) {
        set(exec, node, params.get()?.asked()?)
    }

    fn cuGraphExecHostNodeSetParams(exec: Exec, node: Node, params: In<Host>) {
        set(exec, node, params.get()?.asked()?)
    }

    fn cuGraphExecChildGraphNodeSetParams(exec: Exec, node: Node, child: Graph) {
        set(exec, node, Asked::child(child)?)
    }

    fn cuGraphExecEventRecordNodeSetEvent(exec: Exec, node: Node, event: Event) {
        set(exec, node, Asked::event(event, true)?)
    }

    fn cuGraphExecEventWaitNodeSetEvent(exec: Exec, node: Node, event: Event) {
        set(exec, node, Asked::event(event, false)?)
    }

    fn cuGraphExecNodeSetParams(exec: Exec, node: Node, params: In<Params>) {
        set(exec, node, params.get()?.asked()?)
    }

    /// Kernels, copies and memsets can do nothing for a while.
    fn cuGraphNodeSetEnabled(exec: Exec, node: Node, on: c_uint) {
        let (exec, node) = (exec_id(exec)?, node_id(node)?);
        machine()?.call(Cost::Call, |call| {
            let exec = call.state.graphs.exec_mut(exec)?;
            if exec.node_mut(node)?.task.kind() > 2 {
                return Err(CuError::InvalidValue);
            }
            if on == 0 { exec.disabled.insert(node) } else { exec.disabled.remove(&node) };
            Ok(())
        })
    }

    fn cuGraphNodeGetEnabled(exec: Exec, node: Node, on: Out<c_uint>) {
        let (exec, node) = (exec_id(exec)?, node_id(node)?);
        on.put(machine()?.call(Cost::Free, |call| {
            let exec = call.state.graphs.exec_mut(exec)?;
            exec.node_mut(node)?;
            Ok(c_uint::from(!exec.disabled.contains(&node)))
        })?)
    }
}

twins! {
    fn cuGraphInstantiate_v2(out: Out<Exec>, graph: Graph, failed: Out<Node>, text: *mut c_char, room: usize)
        = cuGraphInstantiate(out, graph, failed, text, room);
    fn cuGraphInstantiateWithParams_ptsz(out: Out<Exec>, graph: Graph, params: Out<Instantiate>)
        = cuGraphInstantiateWithParams(out, graph, params);
    fn cuGraphUpload_ptsz(exec: Exec, s: Stream) = cuGraphUpload(exec, s.per_thread());
    fn cuGraphLaunch_ptsz(exec: Exec, s: Stream) = cuGraphLaunch(exec, s.per_thread());
}
