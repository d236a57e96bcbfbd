//! A descriptor: its kind, its attributes, and what finalising it adds.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Arc;

use deepum_emu_abi::edge::Failure;
use deepum_emu_abi::refused;

use super::graph::{Engine, Graph, Plan};
use super::names::{attr, kind, settable, ty};
use crate::handle::Handle;
use crate::status::{Outcome, Status};

/// The value of an attribute.
#[derive(Clone, Debug)]
pub enum Value {
    /// Elements of a plain type, as bytes.
    Plain(c_int, Vec<u8>),
    /// Other descriptors, as they were when set.
    Descriptors(Vec<Arc<Descriptor>>),
}

impl Value {
    /// Number of elements.
    pub fn count(&self) -> usize {
        match self {
            Self::Plain(kind, bytes) => ty::size(*kind).map_or(0, |size| bytes.len() / size),
            Self::Descriptors(nodes) => nodes.len(),
        }
    }
    fn longs(values: &[i64]) -> Self {
        Self::Plain(ty::INT64, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }
    fn ints(kind: c_int, values: &[c_int]) -> Self {
        Self::Plain(kind, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }
}

#[derive(Clone, Debug)]
pub struct Descriptor {
    kind: c_int,
    finalized: bool,
    attributes: BTreeMap<c_int, Value>,
    /// Of an execution plan, once finalised.
    plan: Option<Arc<Plan>>,
}

impl Descriptor {
    pub fn new(kind: c_int) -> Result<Self, Status> {
        if settable(kind).is_none() {
            return Err(refused!(Status::NotSupportedGraph, "cuDNN graph descriptor of kind {kind}"));
        }
        Ok(Self { kind, finalized: false, attributes: BTreeMap::new(), plan: None })
    }

    pub fn kind(&self) -> c_int {
        self.kind
    }

    pub fn expect_kind(&self, kind: c_int) -> Outcome {
        match (self.kind == kind, self.finalized) {
            (true, true) => Ok(()),
            (true, false) => Err(Status::NotFinalized),
            (false, _) => Err(Status::BadParam),
        }
    }

    pub fn set(&mut self, name: c_int, value: Value) -> Outcome {
        if self.finalized {
            return Err(Status::BadParam);
        }
        if let Value::Descriptors(nodes) = &value
            && nodes.iter().any(|node| !node.finalized)
        {
            return Err(Status::NotFinalized);
        }
        if !settable(self.kind).unwrap_or_default().iter().any(|range| range.contains(&name)) {
            return Err(refused!(Status::NotSupported, "cuDNN graph attribute {name} set for kind {}", self.kind));
        }
        self.attributes.insert(name, value);
        Ok(())
    }

    /// The attribute `name`, which must be of type `kind`.
    pub fn get(&self, name: c_int, kind: c_int) -> Result<&Value, Status> {
        if !self.finalized {
            return Err(Status::NotFinalized);
        }
        let Some(value) = self.attributes.get(&name) else {
            return Err(refused!(Status::NotSupported, "cuDNN graph attribute {name} asked of kind {}", self.kind));
        };
        let same = match value {
            Value::Plain(own, _) => *own == kind,
            Value::Descriptors(_) => kind == ty::DESCRIPTOR,
        };
        if same { Ok(value) } else { Err(Status::AttributeType) }
    }

    /// A descriptor attribute with one element.
    pub fn child(&self, name: c_int) -> Result<&Arc<Self>, Status> {
        match self.attributes.get(&name) {
            Some(Value::Descriptors(nodes)) if nodes.len() == 1 => Ok(&nodes[0]),
            _ => Err(Status::BadParam),
        }
    }

    /// A descriptor attribute with any number of elements.
    pub fn children(&self, name: c_int) -> Result<&[Arc<Self>], Status> {
        match self.attributes.get(&name) {
            Some(Value::Descriptors(nodes)) => Ok(nodes),
            _ => Err(Status::BadParam),
        }
    }

    /// An attribute of 8-byte elements.
    pub fn longs(&self, name: c_int) -> Result<Vec<i64>, Status> {
        match self.attributes.get(&name) {
            Some(Value::Plain(kind, bytes)) if ty::size(*kind)? == 8 => {
                Ok(bytes.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap_or_default())).collect())
            }
            _ => Err(Status::BadParam),
        }
    }

    /// The first element of an attribute of 4-byte elements.
    pub fn int(&self, name: c_int) -> Result<c_int, Status> {
        match self.attributes.get(&name) {
            Some(Value::Plain(_, bytes)) => {
                bytes.first_chunk().map(|b| c_int::from_le_bytes(*b)).ok_or(Status::BadParam)
            }
            _ => Err(Status::BadParam),
        }
    }

    /// Whether any byte of an attribute is set but for the sign of a float: a `bool` that is true, a scalar that is not zero.
    pub fn is_nonzero(&self, name: c_int) -> bool {
        match self.attributes.get(&name) {
            Some(Value::Plain(_, bytes)) => bytes
                .iter()
                .enumerate()
                .any(|(i, b)| if i > 0 && i + 1 == bytes.len() { b & 0x7f != 0 } else { *b != 0 }),
            _ => false,
        }
    }

    pub fn plan(&self) -> Result<&Plan, Status> {
        self.expect_kind(kind::PLAN)?;
        self.plan.as_deref().ok_or(Status::InternalError)
    }

    /// Checks the descriptor and adds what can be asked of it from now on.
    ///
    /// # Safety
    /// A handle set in an operation graph is live.
    pub unsafe fn finalize(&mut self) -> Outcome {
        let mut derived: Vec<(c_int, Value)> = Vec::new();
        match self.kind {
            kind::TENSOR => drop(super::graph::tensor(self)?),
            // The graph inside an attention operation has no handle, and is not run by itself.
            kind::GRAPH if !self.attributes.contains_key(&attr::GRAPH_HANDLE) => {
                Graph::new(self.children(attr::GRAPH_OPS)?, (0, 0))?;
            }
            kind::GRAPH => {
                // SAFETY: the caller's promise.
                let graph = unsafe { self.graph() }?;
                let engines = i64::try_from(graph.engines().len()).unwrap_or_default();
                derived.push((attr::GRAPH_ENGINE_COUNT, Value::longs(&[engines])));
            }
            kind::HEURISTIC => {
                let graph_node = self.child(attr::HEURISTIC_GRAPH)?;
                graph_node.expect_kind(kind::GRAPH)?;
                // SAFETY: the caller's promise.
                let engines = unsafe { graph_node.graph() }?.engines().into_iter();
                // SAFETY: the caller's promise.
                let offers = engines.map(|engine| unsafe { configuration(graph_node, engine) });
                derived.push((attr::HEURISTIC_RESULTS, Value::Descriptors(offers.collect::<Result<_, _>>()?)));
            }
            kind::ENGINE => {
                let engine = self.engine()?;
                let graph = self.child(attr::ENGINE_GRAPH)?;
                graph.expect_kind(kind::GRAPH)?;
                // SAFETY: the caller's promise.
                if !unsafe { graph.graph() }?.engines().contains(&engine) {
                    return Err(Status::NotSupported);
                }
                derived.extend([
                    (attr::ENGINE_NUMERICAL_NOTE, Value::ints(ty::NUMERICAL_NOTE, engine.numerical_notes())),
                    (attr::ENGINE_BEHAVIOR_NOTE, Value::ints(ty::BEHAVIOR_NOTE, &[])),
                    (attr::ENGINE_KNOB_INFO, Value::Descriptors(Vec::new())),
                    (attr::ENGINE_LAYOUT_INFO, Value::Descriptors(Vec::new())),
                ]);
            }
            kind::ENGINE_CONFIG => {
                self.child(attr::ENGINE_CONFIG_ENGINE)?.expect_kind(kind::ENGINE)?;
                derived.extend([
                    (attr::ENGINE_CONFIG_KNOB_CHOICES, Value::Descriptors(Vec::new())),
                    (attr::ENGINE_CONFIG_INTERMEDIATE_INFO, Value::Descriptors(Vec::new())),
                    (attr::ENGINE_CONFIG_WORKSPACE_SIZE, Value::longs(&[0])),
                    (attr::ENGINE_CONFIG_SHARED_MEMORY, Value::ints(ty::INT32, &[0])),
                ]);
            }
            kind::PLAN => {
                let configuration = self.child(attr::PLAN_ENGINE_CONFIG)?;
                configuration.expect_kind(kind::ENGINE_CONFIG)?;
                let engine = configuration.child(attr::ENGINE_CONFIG_ENGINE)?;
                // SAFETY: the caller's promise.
                let graph = unsafe { engine.child(attr::ENGINE_GRAPH)?.graph() }?;
                self.plan = Some(Arc::new(graph.plan(engine.engine()?)));
                derived.extend([
                    (attr::PLAN_WORKSPACE_SIZE, Value::longs(&[0])),
                    (attr::PLAN_COMPUTED_INTERMEDIATE_UIDS, Value::longs(&[])),
                ]);
            }
            _ => {}
        }
        for (name, value) in derived {
            self.attributes.entry(name).or_insert(value);
        }
        self.finalized = true;
        Ok(())
    }

    fn engine(&self) -> Result<Engine, Status> {
        let index = self.longs(attr::ENGINE_GLOBAL_INDEX)?;
        index.first().and_then(|i| Engine::new(*i)).ok_or(Status::NotSupported)
    }

    /// # Safety
    /// The handle set in this operation graph is live.
    unsafe fn graph(&self) -> Result<Graph, Status> {
        let handle = match self.attributes.get(&attr::GRAPH_HANDLE) {
            Some(Value::Plain(ty::HANDLE, bytes)) => {
                let address = usize::from_le_bytes(*bytes.first_chunk().ok_or(Status::BadParam)?);
                std::ptr::with_exposed_provenance::<Handle>(address)
            }
            _ => return Err(Status::BadParam),
        };
        // SAFETY: the caller's promise.
        let capability = unsafe { Status::get(handle) }?.capability;
        Graph::new(self.children(attr::GRAPH_OPS)?, capability)
    }
}

/// A finalised configuration of an engine for a graph.
///
/// # Safety
/// The handle set in the operation graph is live.
unsafe fn configuration(graph: &Arc<Descriptor>, engine: Engine) -> Result<Arc<Descriptor>, Status> {
    let mut node = Descriptor::new(kind::ENGINE)?;
    node.set(attr::ENGINE_GRAPH, Value::Descriptors(vec![graph.clone()]))?;
    node.set(attr::ENGINE_GLOBAL_INDEX, Value::longs(&[engine.index()]))?;
    // SAFETY: the caller's promise.
    unsafe { node.finalize() }?;
    let mut configuration = Descriptor::new(kind::ENGINE_CONFIG)?;
    configuration.set(attr::ENGINE_CONFIG_ENGINE, Value::Descriptors(vec![Arc::new(node)]))?;
    // SAFETY: the caller's promise.
    unsafe { configuration.finalize() }?;
    Ok(Arc::new(configuration))
}
