//! Graphs as structures: making, copying and ending them, their nodes' kinds, and what comes before what. What nodes do: `node`.
//!
//! Edges carry no data here: all of a node comes after all of those before it. Data that says otherwise is refused.

use std::ffi::{c_int, c_uint};

use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::graph::{GraphId, NodeId};
use deepum_emu_device::machine::{Cost, machine};
use deepum_emu_device::state::State;

use crate::edge::{In, Out, api};
use crate::handle::{Graph, Node};
use crate::{node, object};

/// `CUgraphEdgeData`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge([u8; 8]);

impl Edge {
    /// After all of it.
    pub const PLAIN: Self = Self([0; 8]);
}

/// Checks that edges, if they are given data, are plain ones.
pub fn plain(edges: In<Edge>, count: usize) -> CuResult {
    let told = if edges.is_null() { 0 } else { count };
    let all = edges.array(told)?.into_iter().all(|edge| edge == Edge::PLAIN);
    if all { Ok(()) } else { Err(CuError::NotSupported) }
}

/// A list of nodes of the caller's.
pub fn nodes(list: In<Node>, count: usize) -> CuResult<Vec<NodeId>> {
    list.array(count)?.into_iter().map(node_id).collect()
}

/// To the API what is no node, graph or executable graph is an invalid value.
pub fn node_id(node: Node) -> CuResult<NodeId> {
    node.get().map_err(|_| CuError::InvalidValue)
}

fn graph_id(graph: Graph) -> CuResult<GraphId> {
    graph.get().map_err(|_| CuError::InvalidValue)
}

/// Looks at graphs.
fn look<R>(f: impl FnOnce(&mut State) -> CuResult<R>) -> CuResult<R> {
    machine()?.call(Cost::Free, |call| f(&mut call.state))
}

/// Changes them.
fn change<R>(f: impl FnOnce(&mut State) -> CuResult<R>) -> CuResult<R> {
    machine()?.call(Cost::Call, |call| f(&mut call.state))
}

/// Lists of `count` places each, for what there is; what is left of a list is null. Without lists, how many there are.
fn put_lists<const N: usize>(lists: [Out<Node>; N], count: Out<usize>, found: &[[NodeId; N]]) -> CuResult {
    if lists.iter().all(|list| list.is_none()) {
        return count.put(found.len());
    }
    let room = count.get()?;
    for n in 0..room {
        for (which, list) in lists.iter().enumerate() {
            list.at(n).put(found.get(n).map_or(Node::NULL, |row| Node::of(row[which])))?;
        }
    }
    count.put(found.len().min(room))
}

fn put_edges(edges: Out<Edge>, count: Out<usize>) -> CuResult {
    if edges.is_none() {
        return Ok(());
    }
    (0..count.get()?).try_for_each(|n| edges.at(n).put(Edge::PLAIN))
}

fn get_edges(graph: Graph, from: Out<Node>, to: Out<Node>, count: Out<usize>) -> CuResult {
    let graph = graph_id(graph)?;
    let found: Vec<_> = look(|state| Ok(state.graphs.graph(graph)?.edges().map(|(a, b)| [a, b]).collect()))?;
    put_lists([from, to], count, &found)
}

fn get_before(node: Node, list: Out<Node>, count: Out<usize>) -> CuResult {
    let node = node_id(node)?;
    let found: Vec<_> = look(|state| Ok(state.graphs.node(node)?.after.iter().map(|&id| [id]).collect()))?;
    put_lists([list], count, &found)
}

fn get_after(node: Node, list: Out<Node>, count: Out<usize>) -> CuResult {
    let node = node_id(node)?;
    let found: Vec<_> = look(|state| {
        let graph = state.graphs.graph(state.graphs.home(node)?)?;
        Ok(graph.edges().filter(|(from, _)| *from == node).map(|(_, to)| [to]).collect())
    })?;
    put_lists([list], count, &found)
}

fn connect(graph: Graph, from: In<Node>, to: In<Node>, count: usize, on: bool) -> CuResult {
    let graph = graph_id(graph)?;
    let (from, to) = (nodes(from, count)?, nodes(to, count)?);
    change(|state| from.iter().zip(&to).try_for_each(|(&from, &to)| state.graphs.connect(graph, from, to, on)))
}

api! {
    fn cuGraphCreate(out: Out<Graph>, flags: c_uint) {
        if flags != 0 {
            return Err(CuError::InvalidValue);
        }
        out.put(Graph::of(change(|state| Ok(state.graphs.create()))?))
    }

    fn cuGraphDestroy(graph: Graph) {
        let graph = graph_id(graph)?;
        object::ending(|state| {
            let gone = state.graphs.destroy(graph)?;
            node::forget(&gone);
            Ok(())
        })
    }

    fn cuGraphClone(out: Out<Graph>, graph: Graph) {
        let graph = graph_id(graph)?;
        out.put(Graph::of(change(|state| state.graphs.copy_of(graph))?))
    }

    fn cuGraphNodeFindInClone(out: Out<Node>, original: Node, copy: Graph) {
        let (original, copy) = (node_id(original)?, graph_id(copy)?);
        let found = look(|state| Ok(state.graphs.graph(copy)?.copied.get(&original).copied()))?;
        out.put(Node::of(found.ok_or(CuError::InvalidValue)?))
    }

    fn cuGraphDestroyNode(node: Node) {
        let node = node_id(node)?;
        object::ending(|state| {
            let gone = state.graphs.destroy_node(node)?;
            node::forget(&gone);
            Ok(())
        })
    }

    fn cuGraphNodeGetType(node: Node, out: Out<c_int>) {
        let node = node_id(node)?;
        out.put(look(|state| Ok(state.graphs.node(node)?.task.kind()))?)
    }

    fn cuGraphNodeGetContainingGraph(node: Node, out: Out<Graph>) {
        let node = node_id(node)?;
        out.put(Graph::of(look(|state| state.graphs.home(node))?))
    }

    fn cuGraphGetNodes(graph: Graph, list: Out<Node>, count: Out<usize>) {
        let graph = graph_id(graph)?;
        let found: Vec<_> = look(|state| Ok(state.graphs.graph(graph)?.nodes.iter().map(|node| [node.id]).collect()))?;
        put_lists([list], count, &found)
    }

    fn cuGraphGetRootNodes(graph: Graph, list: Out<Node>, count: Out<usize>) {
        let graph = graph_id(graph)?;
        let found: Vec<_> = look(|state| {
            let roots = state.graphs.graph(graph)?.nodes.iter().filter(|node| node.after.is_empty());
            Ok(roots.map(|node| [node.id]).collect())
        })?;
        put_lists([list], count, &found)
    }

    fn cuGraphGetEdges(graph: Graph, from: Out<Node>, to: Out<Node>, count: Out<usize>) {
        get_edges(graph, from, to, count)
    }

    fn cuGraphGetEdges_v2(graph: Graph, from: Out<Node>, to: Out<Node>, edges: Out<Edge>, count: Out<usize>) {
        put_edges(edges, count)?;
        get_edges(graph, from, to, count)
    }

    fn cuGraphNodeGetDependencies(node: Node, list: Out<Node>, count: Out<usize>) {
        get_before(node, list, count)
    }

    fn cuGraphNodeGetDependencies_v2(node: Node, list: Out<Node>, edges: Out<Edge>, count: Out<usize>) {
        put_edges(edges, count)?;
        get_before(node, list, count)
    }

    fn cuGraphNodeGetDependentNodes(node: Node, list: Out<Node>, count: Out<usize>) {
        get_after(node, list, count)
    }

    fn cuGraphNodeGetDependentNodes_v2(node: Node, list: Out<Node>, edges: Out<Edge>, count: Out<usize>) {
        put_edges(edges, count)?;
        get_after(node, list, count)
    }

    fn cuGraphAddDependencies(graph: Graph, from: In<Node>, to: In<Node>, count: usize) {
        connect(graph, from, to, count, true)
    }

    fn cuGraphAddDependencies_v2(graph: Graph, from: In<Node>, to: In<Node>, edges: In<Edge>, count: usize) {
        plain(edges, count)?;
        connect(graph, from, to, count, true)
    }

    fn cuGraphRemoveDependencies(graph: Graph, from: In<Node>, to: In<Node>, count: usize) {
        connect(graph, from, to, count, false)
    }

    fn cuGraphRemoveDependencies_v2(graph: Graph, from: In<Node>, to: In<Node>, edges: In<Edge>, count: usize) {
        plain(edges, count)?;
        connect(graph, from, to, count, false)
    }
}
