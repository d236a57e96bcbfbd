//! Stream capture: beginning, end, and what is known in between. What a capture is and forbids: the device's `capture`.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};

use deepum_emu_device::capture::{self, Mode};
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::machine::{Cost, machine};
use deepum_emu_device::stream::StreamId;
use parking_lot::Mutex;

use crate::current;
use crate::edge::{In, Out, api, twins};
use crate::graph::{Edge, nodes, plain};
use crate::handle::{Graph, Node, Stream};

/// `CUstreamCaptureStatus`.
const NONE: c_int = 0;
const ACTIVE: c_int = 1;
const INVALIDATED: c_int = 2;

fn mode(number: c_int) -> CuResult<Mode> {
    match number {
        0 => Ok(Mode::Global),
        1 => Ok(Mode::ThreadLocal),
        2 => Ok(Mode::Relaxed),
        _ => Err(CuError::InvalidValue),
    }
}

fn number(mode: Mode) -> c_int {
    match mode {
        Mode::Global => 0,
        Mode::ThreadLocal => 1,
        Mode::Relaxed => 2,
    }
}

/// Lists lent to the program, which may read one until it uses the stream again or the capture ends (CUDA driver API reference,
/// `cuStreamGetCaptureInfo`): what it was told last of each stream.
static LENT: Mutex<BTreeMap<StreamId, Lent>> = Mutex::new(BTreeMap::new());

/// Nodes, and the data of the edges from them.
type Lent = (Vec<Node>, Vec<Edge>);

/// Where the parts of an answer about a capture go.
#[derive(Clone, Copy, Debug)]
struct Answer {
    status: Out<c_int>,
    id: Out<u64>,
    graph: Out<Graph>,
    dependencies: Out<*const Node>,
    edges: Out<*const Edge>,
    count: Out<usize>,
}

impl Answer {
    fn about(status: Out<c_int>) -> Self {
        let (id, graph, dependencies) = (Out::none(), Out::none(), Out::none());
        Self { status, id, graph, dependencies, edges: Out::none(), count: Out::none() }
    }

    fn give(self, stream: Stream) -> CuResult {
        let found = machine()?.call(Cost::Free, |call| {
            let id = current::stream(call, stream)?;
            if call.implicit(id) {
                return Err(CuError::CaptureImplicit);
            }
            let found = call.state.captures.of(id);
            Ok(found.map(|c| (id, c.invalid, c.id, c.graph, c.next_after(id).to_vec())))
        })?;
        let Some((stream, false, id, graph, after)) = found else {
            return self.status.put(if found.is_some() { INVALIDATED } else { NONE });
        };
        self.id.offer(id);
        self.graph.offer(Graph::of(graph));
        self.count.offer(after.len());
        let list: Vec<Node> = after.into_iter().map(Node::of).collect();
        let edges = vec![Edge::PLAIN; list.len()];
        self.dependencies.offer(list.as_ptr());
        self.edges.offer(edges.as_ptr());
        if !self.dependencies.is_none() || !self.edges.is_none() {
            LENT.lock().insert(stream, (list, edges));
        }
        self.status.put(ACTIVE)
    }
}

fn begin(stream: Stream, number: c_int, into: Option<(Graph, In<Node>, usize)>) -> CuResult {
    let mode = mode(number)?;
    let into = match into {
        Some((graph, after, count)) => Some((graph.get()?, nodes(after, count)?)),
        None => None,
    };
    machine()?.call(Cost::Call, |call| {
        let id = current::stream(call, stream)?;
        call.begin_capture(id, mode, into)
    })
}

fn come_after(stream: Stream, after: In<Node>, count: usize, flags: c_uint) -> CuResult {
    // CU_STREAM_ADD_CAPTURE_DEPENDENCIES, CU_STREAM_SET_CAPTURE_DEPENDENCIES.
    if flags > 1 {
        return Err(CuError::InvalidValue);
    }
    let after = nodes(after, count)?;
    machine()?.call(Cost::Call, |call| {
        let id = current::stream(call, stream)?;
        call.come_after(id, &after, flags == 1)
    })
}

api! {
    fn cuStreamBeginCapture(stream: Stream) {
        begin(stream, number(Mode::Global), None)
    }

    fn cuStreamBeginCapture_v2(stream: Stream, mode: c_int) {
        begin(stream, mode, None)
    }

    fn cuStreamBeginCaptureToGraph(
        stream: Stream, graph: Graph, after: In<Node>, edges: In<Edge>, count: usize, mode: c_int,
    ) {
        plain(edges, count)?;
        begin(stream, mode, Some((graph, after, count)))
    }

    fn cuStreamEndCapture(stream: Stream, out: Out<Graph>) {
        out.offer(Graph::NULL);
        let (id, ended) = machine()?.call(Cost::Call, |call| {
            let id = current::stream(call, stream)?;
            let ended = call.end_capture(id);
            Ok((id, ended))
        })?;
        LENT.lock().remove(&id);
        out.put(Graph::of(ended?))
    }

    fn cuStreamIsCapturing(stream: Stream, status: Out<c_int>) {
        Answer::about(status).give(stream)
    }

    fn cuStreamGetCaptureInfo(stream: Stream, status: Out<c_int>, id: Out<u64>) {
        Answer { id, ..Answer::about(status) }.give(stream)
    }

    fn cuStreamGetCaptureInfo_v2(
        stream: Stream, status: Out<c_int>, id: Out<u64>, graph: Out<Graph>, dependencies: Out<*const Node>, count: Out<usize>,
    ) {
        Answer { id, graph, dependencies, count, ..Answer::about(status) }.give(stream)
    }

    fn cuStreamGetCaptureInfo_v3(
        stream: Stream, status: Out<c_int>, id: Out<u64>, graph: Out<Graph>, dependencies: Out<*const Node>,
        edges: Out<*const Edge>, count: Out<usize>,
    ) {
        if dependencies.is_none() && !edges.is_none() {
            return Err(CuError::InvalidValue);
        }
        Answer { status, id, graph, dependencies, edges, count }.give(stream)
    }

    fn cuStreamUpdateCaptureDependencies(stream: Stream, after: In<Node>, count: usize, flags: c_uint) {
        come_after(stream, after, count, flags)
    }

    fn cuStreamUpdateCaptureDependencies_v2(
        stream: Stream, after: In<Node>, edges: In<Edge>, count: usize, flags: c_uint,
    ) {
        plain(edges, count)?;
        come_after(stream, after, count, flags)
    }

    fn cuThreadExchangeStreamCaptureMode(place: Out<c_int>) {
        machine()?;
        let new = mode(place.get()?)?;
        place.put(number(capture::exchange(new)))
    }
}

twins! {
    fn cuStreamBeginCapture_ptsz(s: Stream) = cuStreamBeginCapture(s.per_thread());
    fn cuStreamBeginCapture_v2_ptsz(s: Stream, mode: c_int) = cuStreamBeginCapture_v2(s.per_thread(), mode);
    fn cuStreamBeginCaptureToGraph_ptsz(
        s: Stream, graph: Graph, after: In<Node>, edges: In<Edge>, count: usize, mode: c_int,
    ) = cuStreamBeginCaptureToGraph(s.per_thread(), graph, after, edges, count, mode);
    fn cuStreamEndCapture_ptsz(s: Stream, out: Out<Graph>) = cuStreamEndCapture(s.per_thread(), out);
    fn cuStreamIsCapturing_ptsz(s: Stream, status: Out<c_int>) = cuStreamIsCapturing(s.per_thread(), status);
    fn cuStreamGetCaptureInfo_ptsz(s: Stream, status: Out<c_int>, id: Out<u64>)
        = cuStreamGetCaptureInfo(s.per_thread(), status, id);
    fn cuStreamGetCaptureInfo_v2_ptsz(
        s: Stream, status: Out<c_int>, id: Out<u64>, graph: Out<Graph>, dependencies: Out<*const Node>, count: Out<usize>,
    ) = cuStreamGetCaptureInfo_v2(s.per_thread(), status, id, graph, dependencies, count);
    fn cuStreamGetCaptureInfo_v3_ptsz(
        s: Stream, status: Out<c_int>, id: Out<u64>, graph: Out<Graph>, deps: Out<*const Node>, edges: Out<*const Edge>,
        n: Out<usize>,
    ) = cuStreamGetCaptureInfo_v3(s.per_thread(), status, id, graph, deps, edges, n);
    fn cuStreamUpdateCaptureDependencies_ptsz(s: Stream, after: In<Node>, count: usize, flags: c_uint)
        = cuStreamUpdateCaptureDependencies(s.per_thread(), after, count, flags);
    fn cuStreamUpdateCaptureDependencies_v2_ptsz(
        s: Stream, after: In<Node>, edges: In<Edge>, count: usize, flags: c_uint,
    ) = cuStreamUpdateCaptureDependencies_v2(s.per_thread(), after, edges, count, flags);
}
