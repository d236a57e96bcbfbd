//! CUDA graphs: work with dependencies, made once and launched many times.
//!
//! A *graph* is a list of nodes, each with what it does and which nodes come before it. It is made node by node, or by
//! capturing what a stream is given ([`crate::capture`]). An *executable* graph ([`exec`]) is a copy of one, in an order in which its
//! nodes can run; launching it ([`launch`]) gives them to a stream.
//!
//! Invariants: a node's dependencies are nodes of its own graph; the graph inside a child node belongs to that node and goes
//! with it; handles are never used again, so a stale one is refused.
//!
//! Not here: nodes that allocate, free, signal semaphores or decide: the driver API refuses them by name.

pub mod exec;
pub mod launch;
pub mod objects;

use std::collections::{BTreeSet, HashMap};

use deepum_core::units::DeviceId;

use crate::error::{CuError, CuResult};
use crate::work::Work;
use exec::Exec;
use objects::{Held, Objects};

/// A graph of the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct GraphId(pub u32);

/// A node of some graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NodeId(pub u32);

/// An executable graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ExecId(pub u32);

/// What a node does.
#[derive(Clone, Debug)]
pub enum Task {
    /// What a stream can be given; [`Work::Nothing`] is an empty node.
    Work(Work),
    /// Waits for an event that is recorded outside of the graph.
    Await(u32),
    /// All of another graph.
    Child(GraphId),
}

impl Task {
    /// Its `CUgraphNodeType` (CUDA driver API reference).
    #[must_use]
    pub const fn kind(&self) -> i32 {
        match self {
            Self::Work(Work::Launch(_)) => 0,
            Self::Work(Work::Copy(_)) => 1,
            Self::Work(Work::Fill(_)) => 2,
            Self::Work(Work::Host(_)) => 3,
            Self::Child(_) => 4,
            Self::Await(_) => 6,
            Self::Work(Work::Record(_)) => 7,
            Self::Work(Work::Write(_) | Work::Wait(..)) => 12,
            // Only an empty node is left: `Call::give` lets nothing else become one.
            Self::Work(_) => 5,
        }
    }
}

/// One node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its handle.
    pub id: NodeId,
    /// Where it runs.
    pub device: DeviceId,
    /// What it does.
    pub task: Task,
    /// What comes before it, in the order in which it was said.
    pub after: Vec<NodeId>,
}

/// One graph.
#[derive(Debug, Default)]
pub struct Graph {
    /// Its nodes, in the order in which they were added.
    pub nodes: Vec<Node>,
    /// For a copy: its node for each node of the original.
    pub copied: HashMap<NodeId, NodeId>,
    /// Objects of the program that live as long as it does.
    pub held: Held,
    /// The child node it belongs to.
    inside: Option<NodeId>,
    /// Captures in progress that add to it.
    pub capturing: u32,
}

impl Graph {
    /// Pairs of nodes of which the first comes before the second.
    pub fn edges(&self) -> impl Iterator<Item = (NodeId, NodeId)> {
        self.nodes.iter().flat_map(|node| node.after.iter().map(|&before| (before, node.id)))
    }

    /// Every node that comes before one of `last`, and those themselves.
    #[must_use]
    pub fn before(&self, last: &[NodeId]) -> BTreeSet<NodeId> {
        let after: HashMap<NodeId, &[NodeId]> = self.nodes.iter().map(|n| (n.id, n.after.as_slice())).collect();
        let (mut found, mut left) = (BTreeSet::new(), last.to_vec());
        while let Some(id) = left.pop() {
            if found.insert(id) {
                left.extend(after.get(&id).copied().unwrap_or_default());
            }
        }
        found
    }
}

/// Every graph of the process.
#[derive(Debug, Default)]
pub struct Graphs {
    next: u32,
    all: HashMap<GraphId, Graph>,
    /// Which graph a node is of.
    home: HashMap<NodeId, GraphId>,
    execs: HashMap<ExecId, Exec>,
    /// Objects of the program.
    pub objects: Objects,
}

impl Graphs {
    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// A new graph without nodes.
    pub fn create(&mut self) -> GraphId {
        let id = GraphId(self.number());
        self.all.insert(id, Graph::default());
        id
    }

    /// A graph.
    ///
    /// # Errors
    /// `InvalidValue`: the API has no other for what is no graph.
    pub fn graph(&self, id: GraphId) -> CuResult<&Graph> {
        self.all.get(&id).ok_or(CuError::InvalidValue)
    }

    /// A graph, to be changed.
    ///
    /// # Errors
    /// As for [`Self::graph`].
    pub fn graph_mut(&mut self, id: GraphId) -> CuResult<&mut Graph> {
        self.all.get_mut(&id).ok_or(CuError::InvalidValue)
    }

    /// The graph that a node is of.
    ///
    /// # Errors
    /// `InvalidValue`.
    pub fn home(&self, node: NodeId) -> CuResult<GraphId> {
        self.home.get(&node).copied().ok_or(CuError::InvalidValue)
    }

    /// A node.
    ///
    /// # Errors
    /// `InvalidValue`.
    pub fn node(&self, id: NodeId) -> CuResult<&Node> {
        let nodes = &self.graph(self.home(id)?)?.nodes;
        nodes.binary_search_by_key(&id, |node| node.id).map(|n| &nodes[n]).map_err(|_| CuError::InvalidValue)
    }

    /// A node, to be changed.
    ///
    /// # Errors
    /// `InvalidValue`.
    pub fn node_mut(&mut self, id: NodeId) -> CuResult<&mut Node> {
        let home = self.home(id)?;
        let nodes = &mut self.graph_mut(home)?.nodes;
        let found = nodes.binary_search_by_key(&id, |node| node.id).map_err(|_| CuError::InvalidValue)?;
        nodes.get_mut(found).ok_or(CuError::InvalidValue)
    }

    /// Adds a node. The graph in a child node is copied.
    ///
    /// # Errors
    /// `InvalidValue` for dependencies that are of another graph or named twice.
    pub fn add(&mut self, to: GraphId, device: DeviceId, task: Task, after: &[NodeId]) -> CuResult<NodeId> {
        self.graph(to)?;
        let strange = |node: &NodeId| self.home.get(node) != Some(&to);
        if after.iter().any(strange) || after.iter().collect::<BTreeSet<_>>().len() < after.len() {
            return Err(CuError::InvalidValue);
        }
        let task = match task {
            Task::Child(given) => Task::Child(self.copy_of(given)?),
            task => task,
        };
        let id = NodeId(self.number());
        if let Task::Child(inner) = task {
            self.graph_mut(inner)?.inside = Some(id);
        }
        self.home.insert(id, to);
        self.graph_mut(to)?.nodes.push(Node { id, device, task, after: after.to_vec() });
        Ok(id)
    }

    /// One node comes before another from now on, or no longer.
    ///
    /// # Errors
    /// `InvalidValue` for nodes of another graph, for a dependency that is there already, and for the end of one that is not.
    pub fn connect(&mut self, graph: GraphId, from: NodeId, to: NodeId, on: bool) -> CuResult {
        if self.home(from)? != graph || self.home(to)? != graph || from == to {
            return Err(CuError::InvalidValue);
        }
        let after = &mut self.node_mut(to)?.after;
        let known = after.iter().position(|node| *node == from);
        match (known, on) {
            (None, true) => after.push(from),
            (Some(n), false) => drop(after.remove(n)),
            _ => return Err(CuError::InvalidValue),
        }
        Ok(())
    }

    /// A copy of a graph, with nodes of its own.
    ///
    /// # Errors
    /// `InvalidValue`.
    pub fn copy_of(&mut self, original: GraphId) -> CuResult<GraphId> {
        let nodes = self.graph(original)?.nodes.clone();
        let held = self.graph(original)?.held.clone();
        self.objects.share(&held);
        let copy = self.create();
        let mut copied: HashMap<NodeId, NodeId> = HashMap::new();
        for node in &nodes {
            // Dependencies may be on nodes that were added later; they follow when all are there.
            copied.insert(node.id, self.add(copy, node.device, node.task.clone(), &[])?);
        }
        for node in &nodes {
            let after = node.after.iter().filter_map(|before| copied.get(before).copied()).collect();
            self.node_mut(copied[&node.id])?.after = after;
        }
        let made = self.graph_mut(copy)?;
        (made.copied, made.held) = (copied, held);
        Ok(copy)
    }

    /// Ends a graph of the program's own. Answers the nodes that are gone; objects nobody holds any more are in [`Objects::take_dead`].
    ///
    /// # Errors
    /// `InvalidValue` for a graph inside a node, and for one that is being captured.
    pub fn destroy(&mut self, id: GraphId) -> CuResult<Vec<NodeId>> {
        let graph = self.graph(id)?;
        if graph.inside.is_some() || graph.capturing > 0 {
            return Err(CuError::InvalidValue);
        }
        let mut gone = Vec::new();
        self.end(id, &mut gone);
        Ok(gone)
    }

    fn end(&mut self, id: GraphId, gone: &mut Vec<NodeId>) {
        let Some(graph) = self.all.remove(&id) else { return };
        self.objects.release_all(&graph.held);
        for node in graph.nodes {
            self.home.remove(&node.id);
            gone.push(node.id);
            if let Task::Child(inner) = node.task {
                self.end(inner, gone);
            }
        }
    }

    /// Ends a node, and the dependencies on it. Answers the nodes that are gone.
    ///
    /// # Errors
    /// `InvalidValue`.
    pub fn destroy_node(&mut self, id: NodeId) -> CuResult<Vec<NodeId>> {
        let home = self.home(id)?;
        if self.graph(home)?.capturing > 0 {
            return Err(CuError::InvalidValue);
        }
        let task = self.node(id)?.task.clone();
        let graph = self.graph_mut(home)?;
        graph.nodes.retain(|node| node.id != id);
        graph.nodes.iter_mut().for_each(|node| node.after.retain(|before| *before != id));
        self.home.remove(&id);
        let mut gone = vec![id];
        if let Task::Child(inner) = task {
            self.end(inner, &mut gone);
        }
        Ok(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: DeviceId = DeviceId(0);

    fn empty() -> Task {
        Task::Work(Work::Nothing)
    }

    #[test]
    fn a_copy_has_its_own_nodes_in_the_same_relations() {
        let mut graphs = Graphs::default();
        let g = graphs.create();
        let a = graphs.add(g, GPU, empty(), &[]).unwrap();
        let b = graphs.add(g, GPU, empty(), &[]).unwrap();
        // Against the order in which they were added.
        graphs.connect(g, b, a, true).unwrap();
        let inner = graphs.create();
        graphs.add(inner, GPU, empty(), &[]).unwrap();
        let c = graphs.add(g, GPU, Task::Child(inner), &[a]).unwrap();
        let copy = graphs.copy_of(g).unwrap();
        let of = graphs.graph(copy).unwrap().copied.clone();
        let edges: Vec<_> = graphs.graph(copy).unwrap().edges().collect();
        assert_eq!(edges, [(of[&b], of[&a]), (of[&a], of[&c])]);
        let Task::Child(own) = graphs.node(of[&c]).unwrap().task else { panic!("a child") };
        let Task::Child(first) = graphs.node(c).unwrap().task else { panic!("a child") };
        assert!(own != first && first != inner && graphs.destroy(own) == Err(CuError::InvalidValue));
        let gone = graphs.destroy(g).unwrap();
        assert_eq!(gone.len(), 4, "{gone:?}");
        assert!(graphs.node(a).is_err() && graphs.graph(first).is_err() && graphs.node(of[&c]).is_ok());
    }

    #[test]
    fn dependencies_are_within_one_graph_and_said_once() {
        let mut graphs = Graphs::default();
        let (g, other) = (graphs.create(), graphs.create());
        let a = graphs.add(g, GPU, empty(), &[]).unwrap();
        let b = graphs.add(g, GPU, empty(), &[a]).unwrap();
        assert!(graphs.add(other, GPU, empty(), &[a]).is_err());
        assert!(graphs.add(g, GPU, empty(), &[a, a]).is_err());
        assert!(graphs.connect(g, a, b, true).is_err() && graphs.connect(g, a, a, true).is_err());
        graphs.connect(g, a, b, false).unwrap();
        assert!(graphs.connect(g, a, b, false).is_err());
        graphs.connect(g, a, b, true).unwrap();
        assert_eq!(graphs.graph(g).unwrap().before(&[b]).len(), 2);
        assert_eq!(graphs.destroy_node(a), Ok(vec![a]));
        assert!(graphs.node(b).unwrap().after.is_empty());
    }
}
