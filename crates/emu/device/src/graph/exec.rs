//! Executable graphs: a graph as it was when it was instantiated, and what of it may be changed afterwards.
//!
//! An executable graph keeps the handles of the nodes it was made from: by them the program names what it changes (CUDA driver API,
//! `cuGraphExecKernelNodeSetParams`). Its nodes lie in an order in which they can run, which is the same for graphs of the same
//! structure; so two graphs have the same structure if they agree place by place.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::objects::Held;
use super::{ExecId, GraphId, Graphs, Node, NodeId, Task};
use crate::error::{CuError, CuResult};
use crate::stream::Mark;
use crate::work::Work;

/// One executable graph.
#[derive(Debug)]
pub struct Exec {
    /// The graph it was made from.
    pub top: GraphId,
    /// The nodes of that and of each graph inside it, each before those that come after it.
    levels: HashMap<GraphId, Vec<Node>>,
    /// Flags as given.
    pub flags: u64,
    /// Objects of the program that live as long as it does.
    held: Held,
    /// Nodes that do nothing for now.
    pub disabled: BTreeSet<NodeId>,
    /// The end of its last launch: it never runs beside itself.
    pub last: Option<Mark>,
}

/// Why an executable graph cannot become another one (`CUgraphExecUpdateResult`), and at which node of the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Differs {
    /// `CUgraphExecUpdateResult`.
    pub result: i32,
    /// The node, if it is one.
    pub node: Option<NodeId>,
}

const TOPOLOGY_CHANGED: i32 = 2;
const TYPE_CHANGED: i32 = 3;
const PARAMETERS_CHANGED: i32 = 5;

/// In an order in which they can run: those first whose dependencies are met first, then as they were added.
fn in_order(nodes: &[Node]) -> CuResult<Vec<Node>> {
    let place: HashMap<NodeId, usize> = nodes.iter().enumerate().map(|(n, node)| (node.id, n)).collect();
    let mut open: Vec<usize> = nodes.iter().map(|node| node.after.len()).collect();
    let mut then: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (n, node) in nodes.iter().enumerate() {
        node.after.iter().for_each(|before| then[place[before]].push(n));
    }
    let mut ready: VecDeque<usize> = (0..nodes.len()).filter(|n| open[*n] == 0).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(n) = ready.pop_front() {
        order.push(nodes[n].clone());
        for &next in &then[n] {
            open[next] -= 1;
            if open[next] == 0 {
                ready.push_back(next);
            }
        }
    }
    // A circle.
    if order.len() == nodes.len() { Ok(order) } else { Err(CuError::InvalidValue) }
}

/// Whether a node may take over what another one of its kind does.
fn may_become(old: &Task, new: &Task) -> bool {
    match (old, new) {
        (Task::Work(Work::Copy(old)), Task::Work(Work::Copy(new))) => old.direction == new.direction,
        _ => old.kind() == new.kind(),
    }
}

impl Graphs {
    /// The levels of a graph.
    fn levels(&self, top: GraphId) -> CuResult<HashMap<GraphId, Vec<Node>>> {
        let (mut levels, mut left) = (HashMap::new(), vec![top]);
        while let Some(id) = left.pop() {
            let nodes = in_order(&self.graph(id)?.nodes)?;
            left.extend(nodes.iter().filter_map(|node| match node.task {
                Task::Child(inner) => Some(inner),
                _ => None,
            }));
            levels.insert(id, nodes);
        }
        Ok(levels)
    }

    /// Makes a graph executable.
    ///
    /// # Errors
    /// `InvalidValue` if its dependencies go in a circle, or it is being captured.
    pub fn instantiate(&mut self, top: GraphId, flags: u64) -> CuResult<ExecId> {
        if self.graph(top)?.capturing > 0 {
            return Err(CuError::InvalidValue);
        }
        let levels = self.levels(top)?;
        let mut held = Held::new();
        for (object, count) in levels.keys().filter_map(|id| self.graph(*id).ok()).flat_map(|graph| &graph.held) {
            *held.entry(*object).or_default() += count;
        }
        self.objects.share(&held);
        let id = ExecId(self.number());
        self.execs.insert(id, Exec { top, levels, flags, held, disabled: BTreeSet::new(), last: None });
        Ok(id)
    }

    /// An executable graph.
    ///
    /// # Errors
    /// `InvalidValue`.
    pub fn exec(&self, id: ExecId) -> CuResult<&Exec> {
        self.execs.get(&id).ok_or(CuError::InvalidValue)
    }

    /// An executable graph, to be changed.
    ///
    /// # Errors
    /// `InvalidValue`.
    pub fn exec_mut(&mut self, id: ExecId) -> CuResult<&mut Exec> {
        self.execs.get_mut(&id).ok_or(CuError::InvalidValue)
    }

    /// Ends an executable graph.
    ///
    /// # Errors
    /// `InvalidValue`.
    pub fn end_exec(&mut self, id: ExecId) -> CuResult {
        let gone = self.execs.remove(&id).ok_or(CuError::InvalidValue)?;
        self.objects.release_all(&gone.held);
        Ok(())
    }

    /// An executable graph does from now on what `graph` does, if their structure is the same.
    ///
    /// # Errors
    /// `InvalidValue` if one of them is none; what differs is the inner error.
    pub fn update(&mut self, id: ExecId, graph: GraphId) -> CuResult<Result<(), Differs>> {
        let levels = self.levels(graph)?;
        let exec = self.exec_mut(id)?;
        let top = exec.top;
        Ok(exec.differs(top, &levels, graph).map_or_else(
            || {
                exec.take_over(top, &levels, graph);
                Ok(())
            },
            Err,
        ))
    }

    /// A child node of an executable graph does from now on what `graph` does, if their structure is the same.
    ///
    /// # Errors
    /// `InvalidValue` if one of them is none, or differs.
    pub fn update_child(&mut self, id: ExecId, node: NodeId, graph: GraphId) -> CuResult {
        let levels = self.levels(graph)?;
        let exec = self.exec_mut(id)?;
        let Task::Child(inner) = exec.node_mut(node)?.task else { return Err(CuError::InvalidValue) };
        if exec.differs(inner, &levels, graph).is_some() {
            return Err(CuError::InvalidValue);
        }
        exec.take_over(inner, &levels, graph);
        Ok(())
    }

    /// A graph that does what an executable one does.
    ///
    /// # Errors
    /// `InvalidValue`.
    pub fn graph_of(&mut self, id: ExecId) -> CuResult<GraphId> {
        let steps: Vec<Node> = self.exec(id)?.steps().cloned().collect();
        let graph = self.create();
        let mut last = None;
        for step in steps {
            last = Some(self.add(graph, step.device, step.task, last.as_slice())?);
        }
        Ok(graph)
    }
}

impl Exec {
    /// Whether objects of the program live by it.
    #[must_use]
    pub fn holds_objects(&self) -> bool {
        !self.held.is_empty()
    }

    /// What runs, one after the other: the nodes of all levels that are not disabled.
    pub fn steps(&self) -> impl Iterator<Item = &Node> {
        let mut left: Vec<std::slice::Iter<'_, Node>> = vec![self.level(self.top).iter()];
        std::iter::from_fn(move || {
            loop {
                let Some(node) = left.last_mut()?.next() else {
                    left.pop();
                    continue;
                };
                match node.task {
                    _ if self.disabled.contains(&node.id) => {}
                    Task::Child(inner) => left.push(self.level(inner).iter()),
                    _ => return Some(node),
                }
            }
        })
    }

    fn level(&self, graph: GraphId) -> &[Node] {
        self.levels.get(&graph).map_or(&[], Vec::as_slice)
    }

    /// A node, by its handle in the graph it was made from.
    ///
    /// # Errors
    /// `InvalidValue`.
    pub fn node_mut(&mut self, id: NodeId) -> CuResult<&mut Node> {
        self.levels.values_mut().flatten().find(|node| node.id == id).ok_or(CuError::InvalidValue)
    }

    /// A node does something else of the same kind from now on.
    ///
    /// # Errors
    /// `InvalidValue` for no node, or another kind.
    pub fn set(&mut self, id: NodeId, task: Task) -> CuResult {
        let node = self.node_mut(id)?;
        if !may_become(&node.task, &task) {
            return Err(CuError::InvalidValue);
        }
        node.task = task;
        Ok(())
    }

    /// Where `other` is of another structure than the level `mine`.
    fn differs(&self, mine: GraphId, levels: &HashMap<GraphId, Vec<Node>>, other: GraphId) -> Option<Differs> {
        let (old, new) = (self.level(mine), levels.get(&other).map_or(&[][..], Vec::as_slice));
        if old.len() != new.len() {
            return Some(Differs { result: TOPOLOGY_CHANGED, node: None });
        }
        let places = |nodes: &[Node]| -> HashMap<NodeId, usize> {
            nodes.iter().enumerate().map(|(n, node)| (node.id, n)).collect()
        };
        let (old_places, new_places) = (places(old), places(new));
        old.iter().zip(new).find_map(|(a, b)| {
            let differs = |result| Some(Differs { result, node: Some(b.id) });
            let before = |node: &Node, places: &HashMap<NodeId, usize>| -> BTreeSet<usize> {
                node.after.iter().map(|id| places[id]).collect()
            };
            if before(a, &old_places) != before(b, &new_places) {
                return differs(TOPOLOGY_CHANGED);
            }
            match (&a.task, &b.task) {
                (Task::Child(mine), Task::Child(other)) => self.differs(*mine, levels, *other),
                (a, b) if a.kind() != b.kind() => differs(TYPE_CHANGED),
                (a, b) if !may_become(a, b) => differs(PARAMETERS_CHANGED),
                _ => None,
            }
        })
    }

    /// Level `mine` does what `other` does, which is of the same structure.
    fn take_over(&mut self, mine: GraphId, levels: &HashMap<GraphId, Vec<Node>>, other: GraphId) {
        let mut children = Vec::new();
        let new = levels.get(&other).into_iter().flatten();
        for (a, b) in self.levels.get_mut(&mine).into_iter().flatten().zip(new) {
            match (&mut a.task, &b.task) {
                (Task::Child(mine), Task::Child(other)) => children.push((*mine, *other)),
                (task, other) => *task = other.clone(),
            }
        }
        for (mine, other) in children {
            self.take_over(mine, levels, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Fill;
    use deepum_core::units::{DevAddr, DeviceId};

    const GPU: DeviceId = DeviceId(0);

    fn fill(at: u64) -> Task {
        Task::Work(Work::Fill(Fill { dst: DevAddr(at), pitch: 0, width: 1, height: 1, value: 0, unit: 1 }))
    }

    fn runs(graphs: &Graphs, exec: ExecId) -> Vec<u64> {
        let at = |node: &Node| match &node.task {
            Task::Work(Work::Fill(fill)) => fill.dst.0,
            _ => panic!("only memsets here"),
        };
        graphs.exec(exec).unwrap().steps().map(at).collect()
    }

    /// 3 before 1, and 2, whose child holds 10 and 11, between them.
    fn graph(graphs: &mut Graphs, plus: u64) -> (GraphId, [NodeId; 3]) {
        let (g, inner) = (graphs.create(), graphs.create());
        graphs.add(inner, GPU, fill(10 + plus), &[]).unwrap();
        graphs.add(inner, GPU, fill(11 + plus), &[]).unwrap();
        let last = graphs.add(g, GPU, fill(1 + plus), &[]).unwrap();
        let child = graphs.add(g, GPU, Task::Child(inner), &[]).unwrap();
        let first = graphs.add(g, GPU, fill(3 + plus), &[]).unwrap();
        graphs.connect(g, first, child, true).unwrap();
        graphs.connect(g, child, last, true).unwrap();
        (g, [first, child, last])
    }

    #[test]
    fn what_runs_is_in_the_order_of_dependencies_and_as_it_was_when_instantiated() {
        let mut graphs = Graphs::default();
        let (g, [first, child, last]) = graph(&mut graphs, 0);
        let exec = graphs.instantiate(g, 0).unwrap();
        graphs.node_mut(first).unwrap().task = fill(99);
        assert_eq!(runs(&graphs, exec), [3, 10, 11, 1]);
        graphs.exec_mut(exec).unwrap().disabled.insert(child);
        assert_eq!(runs(&graphs, exec), [3, 1]);
        graphs.connect(g, last, first, true).unwrap();
        assert_eq!(graphs.instantiate(g, 0), Err(CuError::InvalidValue), "in a circle");
        graphs.destroy(g).unwrap();
        assert_eq!(runs(&graphs, exec), [3, 1], "it outlives its graph");
        graphs.end_exec(exec).unwrap();
        assert!(graphs.exec(exec).is_err());
    }

    #[test]
    fn an_update_needs_the_same_structure_and_keeps_the_handles() {
        let mut graphs = Graphs::default();
        let (g, [first, ..]) = graph(&mut graphs, 0);
        let exec = graphs.instantiate(g, 0).unwrap();
        let (other, [_, _, last]) = graph(&mut graphs, 100);
        assert_eq!(graphs.update(exec, other), Ok(Ok(())));
        assert_eq!(runs(&graphs, exec), [103, 110, 111, 101]);
        graphs.exec_mut(exec).unwrap().set(first, fill(7)).unwrap();
        assert_eq!(runs(&graphs, exec), [7, 110, 111, 101]);
        assert!(graphs.exec_mut(exec).unwrap().set(first, Task::Work(Work::Nothing)).is_err());

        graphs.node_mut(last).unwrap().task = Task::Work(Work::Nothing);
        assert_eq!(graphs.update(exec, other), Ok(Err(Differs { result: TYPE_CHANGED, node: Some(last) })));
        graphs.node_mut(last).unwrap().task = fill(1);
        graphs.node_mut(last).unwrap().after.clear();
        assert_eq!(graphs.update(exec, other).unwrap().unwrap_err().result, TOPOLOGY_CHANGED);
        let fewer = graphs.create();
        assert_eq!(graphs.update(exec, fewer), Ok(Err(Differs { result: TOPOLOGY_CHANGED, node: None })));
        assert_eq!(runs(&graphs, exec), [7, 110, 111, 101], "nothing changed");
    }
}
