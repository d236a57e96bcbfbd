//! What nodes do: adding them to a graph, asking and changing their parameters, in the structures of the API.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use deepum_core::units::{Bytes, DevAddr};
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::graph::{NodeId, Task};
use deepum_emu_device::machine::{Call, Cost, machine};
use deepum_emu_device::work::{Fill, HostFn, Launch, Work};
use parking_lot::Mutex;

use crate::copy::{self, Copy3d};
use crate::edge::{In, Out, api, size};
use crate::graph::{Edge, node_id, nodes, plain};
use crate::handle::{Context, Event, Function, Graph, Node};
use crate::{current, launch};

/// `CUDA_KERNEL_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    function: Function,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    params: In<In<u8>>,
    extra: In<In<c_void>>,
}
const _: () = assert!(size_of::<Kernel>() == 56);

/// `CUDA_KERNEL_NODE_PARAMS_v2` and `_v3`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Kernel2 {
    kernel: Kernel,
    /// A `CUkernel`, which is looked at if there is no function.
    other: Function,
    context: Context,
}
const _: () = assert!(size_of::<Kernel2>() == 72);

/// `CUDA_MEMSET_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memset {
    dst: u64,
    pitch: usize,
    value: c_uint,
    element: c_uint,
    width: usize,
    height: usize,
}
const _: () = assert!(size_of::<Memset>() == 40);

/// `CUDA_HOST_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Host {
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
}
const _: () = assert!(size_of::<Host>() == 16);

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Memcpy {
    flags: c_int,
    reserved: c_int,
    context: Context,
    copy: Copy3d,
}

/// `CUgraphNodeParams`: a kind, and what belongs to it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Params {
    kind: c_int,
    reserved: [c_int; 3],
    of: [u64; 29],
    reserved_too: i64,
}
const _: () = assert!(size_of::<Params>() == 256);

/// What a node is to do, as far as that is known without looking at memory.
#[derive(Debug)]
pub enum Asked {
    /// A copy.
    Copy(Box<Copy3d>),
    /// A memset.
    Fill(Fill),
    /// Anything else.
    Other(Task),
}

impl Asked {
    /// The task, once its memory is looked at.
    pub fn task(self, call: &Call<'_>) -> CuResult<Task> {
        Ok(match self {
            Self::Copy(given) => Task::Work(Work::Copy(Box::new(copy::of_node(call, &given)?))),
            Self::Fill(fill) => Task::Work(Work::Fill(call.checked_fill(fill)?)),
            Self::Other(task) => task,
        })
    }

    /// An event is recorded, or waited for.
    pub fn event(event: Event, record: bool) -> CuResult<Self> {
        let id = event.get()?;
        Ok(Self::Other(if record { Task::Work(Work::Record(id)) } else { Task::Await(id) }))
    }

    /// All of another graph.
    pub fn child(graph: Graph) -> CuResult<Self> {
        Ok(Self::Other(Task::Child(graph.get().map_err(|_| CuError::InvalidValue)?)))
    }
}

impl From<Copy3d> for Asked {
    fn from(given: Copy3d) -> Self {
        Self::Copy(Box::new(given))
    }
}

impl Kernel {
    /// What such a node is to do.
    pub fn asked(self) -> CuResult<Asked> {
        let shape = launch::shape(self.grid, self.block, self.shared);
        let launch = launch::kernel(self.function, shape, self.params, self.extra)?;
        Ok(Asked::Other(Task::Work(Work::Launch(Box::new(launch)))))
    }

    #[expect(clippy::cast_possible_truncation, reason = "a launch has no more shared memory than 32 bits can say")]
    fn of(id: NodeId, launch: &Launch) -> Self {
        let function = Function::of(launch.kernel.id);
        let (grid, block, shared) = (launch.grid, launch.block, launch.shared.0 as c_uint);
        Self { function, grid, block, shared, params: lend(id, launch), extra: In::none() }
    }
}

impl Kernel2 {
    /// What such a node is to do.
    pub fn asked(self) -> CuResult<Asked> {
        let function = if self.kernel.function == Function::NULL { self.other } else { self.kernel.function };
        Kernel { function, ..self.kernel }.asked()
    }
}

impl Memset {
    /// What such a node is to do.
    pub fn asked(self) -> CuResult<Asked> {
        let unit = u8::try_from(self.element).ok().filter(|n| matches!(n, 1 | 2 | 4)).ok_or(CuError::InvalidValue)?;
        let width = (self.width as u64).checked_mul(u64::from(unit)).ok_or(CuError::InvalidValue)?;
        let (pitch, height) = (self.pitch as u64, self.height as u64);
        let fill = Fill { dst: DevAddr(self.dst), pitch, width, height, value: self.value, unit };
        if fill.target().is_empty() { Err(CuError::InvalidValue) } else { Ok(Asked::Fill(fill)) }
    }

    fn of(fill: &Fill) -> Self {
        let n = |n: u64| size(Bytes(n));
        let element = c_uint::from(fill.unit);
        let width = n(fill.width / u64::from(fill.unit));
        Self { dst: fill.dst.0, pitch: n(fill.pitch), value: fill.value, element, width, height: n(fill.height) }
    }
}

impl Host {
    /// What such a node is to do.
    pub fn asked(self) -> CuResult<Asked> {
        let function = self.function.ok_or(CuError::InvalidValue)?;
        Ok(Asked::Other(Task::Work(Work::Host(HostFn { function, argument: self.argument }))))
    }
}

impl Params {
    fn part<T: Copy>(&self) -> CuResult<T> {
        const { assert!(size_of::<T>() <= 232) };
        In::from(&self.of).cast::<T>().get()
    }

    /// What such a node is to do. Nodes that allocate, free, signal, wait for semaphores or decide are not supported.
    pub fn asked(&self) -> CuResult<Asked> {
        match self.kind {
            0 => self.part::<Kernel2>()?.asked(),
            1 => Ok(self.part::<Memcpy>()?.copy.into()),
            2 => self.part::<Memset>()?.asked(),
            3 => self.part::<Host>()?.asked(),
            4 => Asked::child(self.part()?),
            5 => Ok(Asked::Other(Task::Work(Work::Nothing))),
            6 => Asked::event(self.part()?, false),
            7 => Asked::event(self.part()?, true),
            8..=13 => Err(CuError::NotSupported),
            _ => Err(CuError::InvalidValue),
        }
    }
}

/// Arguments lent to the program: the packed ones, and the list of their addresses.
type Lent = (Arc<[u8]>, Vec<In<u8>>);

struct Lending(BTreeMap<NodeId, Lent>);
// SAFETY: the addresses in a list are into the packed arguments beside it, which live and stay as they are on whatever thread.
unsafe impl Send for Lending {}

/// The program may read what it was lent of a node until the node goes or changes (CUDA driver API reference,
/// `cuGraphKernelNodeGetParams`).
static LENT: Mutex<Lending> = Mutex::new(Lending(BTreeMap::new()));

fn lend(id: NodeId, launch: &Launch) -> In<In<u8>> {
    let params = &launch.kernel.info.params;
    if params.is_empty() {
        return In::none();
    }
    let mut lent = LENT.lock();
    let known = lent.0.get(&id).is_some_and(|(packed, _)| Arc::ptr_eq(packed, &launch.params));
    if !known {
        let list = params.iter().map(|param| In::from(&launch.params[param.offset as usize])).collect();
        lent.0.insert(id, (launch.params.clone(), list));
    }
    lent.0.get(&id).map_or_else(In::none, |(_, list)| In::from(&list[0]))
}

/// Nodes are gone: what was lent of them is, too.
pub fn forget(gone: &[NodeId]) {
    let mut lent = LENT.lock();
    for id in gone {
        lent.0.remove(id);
    }
}

/// Adds a node of the current device.
fn add(out: Out<Node>, graph: Graph, after: In<Node>, count: usize, asked: Asked) -> CuResult {
    let graph = graph.get().map_err(|_| CuError::InvalidValue)?;
    let after = nodes(after, count)?;
    out.put(Node::of(machine()?.call(Cost::Call, |call| {
        let device = current::device(call)?;
        let task = asked.task(call)?;
        call.state.graphs.add(graph, device, task, &after)
    })?))
}

/// Asks what a node does.
fn ask<R>(node: Node, f: impl FnOnce(&Call<'_>, NodeId, &Task) -> CuResult<R>) -> CuResult<R> {
    let id = node_id(node)?;
    machine()?.call(Cost::Free, |call| f(call, id, &call.state.graphs.node(id)?.task))
}

/// A node does something else of the same kind.
fn set(node: Node, asked: Asked) -> CuResult {
    let id = node_id(node)?;
    machine()?.call(Cost::Call, |call| {
        let task = asked.task(call)?;
        let node = call.state.graphs.node_mut(id)?;
        if node.task.kind() != task.kind() || matches!(task, Task::Child(_)) {
            return Err(CuError::InvalidValue);
        }
        node.task = task;
        Ok(())
    })
}

/// What a node of this kind does, or `InvalidValue`.
macro_rules! expect {
    ($task:expr, $what:pat => $found:expr) => {
        match $task {
            $what => $found,
            _ => return Err(CuError::InvalidValue),
        }
    };
}

api! {
    fn cuGraphAddKernelNode(out: Out<Node>, graph: Graph, after: In<Node>, count: usize, params: In<Kernel>) {
        add(out, graph, after, count, params.get()?.asked()?)
    }

    fn cuGraphAddKernelNode_v2(out: Out<Node>, graph: Graph, after: In<Node>, count: usize, params: In<Kernel2>) {
        add(out, graph, after, count, params.get()?.asked()?)
    }

    fn cuGraphAddMemcpyNode(
        out: Out<Node>, graph: Graph, after: In<Node>, count: usize, params: In<Copy3d>, _context: Context,
    ) {
        add(out, graph, after, count, params.get()?.into())
    }

    fn cuGraphAddMemsetNode(
        out: Out<Node>, graph: Graph, after: In<Node>, count: usize, params: In<Memset>, _context: Context,
    ) {
        add(out, graph, after, count, params.get()?.asked()?)
    }

    fn cuGraphAddHostNode(out: Out<Node>, graph: Graph, after: In<Node>, count: usize, params: In<Host>) {
        add(out, graph, after, count, params.get()?.asked()?)
    }

    fn cuGraphAddEmptyNode(out: Out<Node>, graph: Graph, after: In<Node>, count: usize) {
        add(out, graph, after, count, Asked::Other(Task::Work(Work::Nothing)))
    }

    fn cuGraphAddChildGraphNode(out: Out<Node>, graph: Graph, after: In<Node>, count: usize, child: Graph) {
        add(out, graph, after, count, Asked::child(child)?)
    }

    fn cuGraphAddEventRecordNode(out: Out<Node>, graph: Graph, after: In<Node>, count: usize, event: Event) {
        add(out, graph, after, count, Asked::event(event, true)?)
    }

    fn cuGraphAddEventWaitNode(out: Out<Node>, graph: Graph, after: In<Node>, count: usize, event: Event) {
        add(out, graph, after, count, Asked::event(event, false)?)
    }

    fn cuGraphAddNode(out: Out<Node>, graph: Graph, after: In<Node>, count: usize, params: In<Params>) {
        add(out, graph, after, count, params.get()?.asked()?)
    }

    fn cuGraphAddNode_v2(
        out: Out<Node>, graph: Graph, after: In<Node>, edges: In<Edge>, count: usize, params: In<Params>,
    ) {
        plain(edges, count)?;
        add(out, graph, after, count, params.get()?.asked()?)
    }

    fn cuGraphKernelNodeGetParams(node: Node, out: Out<Kernel>) {
        out.put(ask(node, |_, id, task| Ok(expect!(task, Task::Work(Work::Launch(l)) => Kernel::of(id, l))))?)
    }

    fn cuGraphKernelNodeGetParams_v2(node: Node, out: Out<Kernel2>) {
        out.put(ask(node, |call, id, task| {
            let kernel = expect!(task, Task::Work(Work::Launch(l)) => Kernel::of(id, l));
            let context = Context::of_device(call.state.graphs.node(id)?.device);
            Ok(Kernel2 { kernel, other: Function::NULL, context })
        })?)
    }

    fn cuGraphKernelNodeSetParams(node: Node, params: In<Kernel>) {
        set(node, params.get()?.asked()?)
    }

    fn cuGraphKernelNodeSetParams_v2(node: Node, params: In<Kernel2>) {
        set(node, params.get()?.asked()?)
    }

    fn cuGraphMemcpyNodeGetParams(node: Node, out: Out<Copy3d>) {
        out.put(ask(node, |call, _, task| Ok(expect!(task, Task::Work(Work::Copy(c)) => Copy3d::of(call, c))))?)
    }

    fn cuGraphMemcpyNodeSetParams(node: Node, params: In<Copy3d>) {
        set(node, params.get()?.into())
    }

    fn cuGraphMemsetNodeGetParams(node: Node, out: Out<Memset>) {
        out.put(ask(node, |_, _, task| Ok(expect!(task, Task::Work(Work::Fill(f)) => Memset::of(f))))?)
    }

    fn cuGraphMemsetNodeSetParams(node: Node, params: In<Memset>) {
        set(node, params.get()?.asked()?)
    }

    fn cuGraphHostNodeGetParams(node: Node, out: Out<Host>) {
        out.put(ask(node, |_, _, task| {
            let host = expect!(task, Task::Work(Work::Host(host)) => host);
            Ok(Host { function: Some(host.function), argument: host.argument })
        })?)
    }

    fn cuGraphHostNodeSetParams(node: Node, params: In<Host>) {
        set(node, params.get()?.asked()?)
    }

    fn cuGraphChildGraphNodeGetGraph(node: Node, out: Out<Graph>) {
        out.put(ask(node, |_, _, task| Ok(expect!(task, Task::Child(inner) => Graph::of(*inner))))?)
    }

    fn cuGraphEventRecordNodeGetEvent(node: Node, out: Out<Event>) {
        out.put(ask(node, |_, _, task| Ok(expect!(task, Task::Work(Work::Record(event)) => Event::of(*event))))?)
    }

    fn cuGraphEventRecordNodeSetEvent(node: Node, event: Event) {
        set(node, Asked::event(event, true)?)
    }

    fn cuGraphEventWaitNodeGetEvent(node: Node, out: Out<Event>) {
        out.put(ask(node, |_, _, task| Ok(expect!(task, Task::Await(event) => Event::of(*event))))?)
    }

    fn cuGraphEventWaitNodeSetEvent(node: Node, event: Event) {
        set(node, Asked::event(event, false)?)
    }

    fn cuGraphNodeSetParams(node: Node, params: In<Params>) {
        set(node, params.get()?.asked()?)
    }
}
