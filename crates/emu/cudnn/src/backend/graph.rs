//! An operation graph, read: what memory it reads and writes, how much arithmetic it is, which engines can run it.
//!
//! A graph runs as one kernel. Tensors marked virtual live in registers; what remains is read or written once. A tensor that
//! one operation writes and another reads is, for memory, written only. The arithmetic is that of convolutions, matrix products and
//! attention; the few operations an element of the others are not counted.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use deepum_emu_abi::elem::Elem;
use deepum_emu_abi::kernels::{CONV_DGRAD, CONV_FWD, CONV_WGRAD, GRAPH, Kernel};
use deepum_emu_abi::params::{READ, WRITE};
use deepum_emu_abi::refused;

use super::descriptor::Descriptor;
use super::names::{attr, kind};
use crate::handle::Handle;
use crate::status::{Outcome, Status};
use crate::tensor::{Tensor, convolution_flops, elem};

/// A way to run a graph. cuDNN's engine numbers mean nothing across versions; ours are 0 and 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// Engine 0: matrix products on tensor cores; fp32 rounds to TF32.
    TensorCores,
    /// Engine 1: ordinary cores.
    Cores,
}

impl Engine {
    pub fn new(index: i64) -> Option<Self> {
        match index {
            0 => Some(Self::TensorCores),
            1 => Some(Self::Cores),
            _ => None,
        }
    }
    pub fn index(self) -> i64 {
        self as i64
    }
    /// `CUDNN_NUMERICAL_NOTE_TENSOR_CORE` (0), by which PyTorch keeps fp32 away from TF32 when told to.
    pub fn numerical_notes(self) -> &'static [c_int] {
        match self {
            Self::TensorCores => &[0],
            Self::Cores => &[],
        }
    }
}

/// A tensor of the graph that lies in device memory.
#[derive(Clone, Debug)]
struct Touched {
    uid: i64,
    tensor: Tensor,
    access: u32,
}

/// The whole graph.
#[derive(Clone, Debug)]
pub struct Graph {
    kernel: Kernel,
    /// Type of the operands of its convolution or matrix product, if there is one.
    product: Option<Elem>,
    flops: f64,
    touched: Vec<Touched>,
    capability: (i32, i32),
    results: u64,
}

/// A graph with an engine chosen.
#[derive(Clone, Debug)]
pub struct Plan {
    graph: Graph,
    engine: Engine,
}

/// The shape of a tensor descriptor. Vectorised layouts are not supported.
pub fn tensor(node: &Descriptor) -> Result<Tensor, Status> {
    if node.longs(attr::TENSOR_VECTOR_COUNT).is_ok_and(|v| v.first().is_some_and(|n| *n != 1)) {
        return Err(refused!(Status::NotSupported, "cuDNN graph with vectorised tensors"));
    }
    node.longs(attr::TENSOR_UNIQUE_ID)?;
    Tensor::new(
        elem(node.int(attr::TENSOR_DATA_TYPE)?)?,
        &node.longs(attr::TENSOR_DIMENSIONS)?,
        &node.longs(attr::TENSOR_STRIDES)?,
    )
}

impl Graph {
    pub fn new(operations: &[Arc<Descriptor>], capability: (i32, i32)) -> Result<Self, Status> {
        let mut graph = Self { kernel: GRAPH, product: None, flops: 0.0, touched: Vec::new(), capability, results: 0 };
        if operations.is_empty() {
            return Err(Status::BadParam);
        }
        for operation in operations {
            graph.add(operation)?;
        }
        let (tensors, room) = (graph.touched.len(), graph.kernel.operands);
        if tensors > room {
            return Err(refused!(Status::NotSupportedGraph, "cuDNN graph of {tensors} tensors, more than {room},"));
        }
        Ok(graph)
    }

    fn add(&mut self, op: &Descriptor) -> Outcome {
        use attr::*;
        match op.kind() {
            kind::CONV_FORWARD => {
                let names = [CONV_FORWARD_X, CONV_FORWARD_W, CONV_FORWARD_Y, CONV_FORWARD_BETA];
                let [_, w, y] = self.convolution(op, names, CONV_FWD)?;
                self.flops += convolution_flops(&w, &y);
            }
            kind::CONV_BACKWARD_DATA => {
                let names =
                    [CONV_BACKWARD_DATA_DY, CONV_BACKWARD_DATA_W, CONV_BACKWARD_DATA_DX, CONV_BACKWARD_DATA_BETA];
                let [dy, w, _] = self.convolution(op, names, CONV_DGRAD)?;
                self.flops += convolution_flops(&w, &dy);
            }
            kind::CONV_BACKWARD_FILTER => {
                let names = [
                    CONV_BACKWARD_FILTER_X,
                    CONV_BACKWARD_FILTER_DY,
                    CONV_BACKWARD_FILTER_DW,
                    CONV_BACKWARD_FILTER_BETA,
                ];
                let [_, dy, dw] = self.convolution(op, names, CONV_WGRAD)?;
                self.flops += convolution_flops(&dw, &dy);
            }
            kind::OP_MATMUL => {
                let a = self.touch(op.child(MATMUL_A)?, READ)?;
                self.touch(op.child(MATMUL_B)?, READ)?;
                let c = self.touch(op.child(MATMUL_C)?, WRITE)?;
                self.product = Some(a.elem);
                self.flops += 2.0 * c.elements() as f64 * a.dims.last().copied().unwrap_or(1) as f64;
            }
            kind::OP_POINTWISE => self.elementwise(
                op,
                &[POINTWISE_X, POINTWISE_B, POINTWISE_T, POINTWISE_DY],
                &[POINTWISE_Y, POINTWISE_DX],
            )?,
            kind::OP_REDUCTION => self.elementwise(op, &[REDUCTION_X], &[REDUCTION_Y])?,
            kind::OP_RESHAPE => self.elementwise(op, &[RESHAPE_X], &[RESHAPE_Y])?,
            kind::OP_RNG => self.elementwise(op, &[RNG_SEED, RNG_OFFSET], &[RNG_Y])?,
            kind::OP_SOFTMAX => {
                self.elementwise(op, &[SOFTMAX_X], &[SOFTMAX_Y, SOFTMAX_STATS, SOFTMAX_MAX, SOFTMAX_SUM_EXP])?;
            }
            kind::OP_BAND_MASK => self.elementwise(
                op,
                &[
                    BAND_MASK_X,
                    BAND_MASK_B,
                    BAND_MASK_SEQ_LEN_KV,
                    BAND_MASK_SEQ_LEN_Q,
                    BAND_MASK_LEFT,
                    BAND_MASK_SHIFT_RIGHT,
                ],
                &[BAND_MASK_Y],
            )?,
            kind::SDPA_FORWARD => self.attention(op)?,
            _ => return Err(Status::BadParam),
        }
        Ok(())
    }

    /// Two inputs and one output, the output blended with `beta`.
    fn convolution(&mut self, op: &Descriptor, names: [c_int; 4], kernel: Kernel) -> Result<[Tensor; 3], Status> {
        let [first, second, result, beta] = names;
        let access = if op.is_nonzero(beta) { READ | WRITE } else { WRITE };
        let shapes = [
            self.touch(op.child(first)?, READ)?,
            self.touch(op.child(second)?, READ)?,
            self.touch(op.child(result)?, access)?,
        ];
        self.kernel = kernel;
        self.product = Some(shapes[0].elem);
        Ok(shapes)
    }

    /// An operation whose arithmetic is not counted, of which those tensors count that are there.
    fn elementwise(&mut self, op: &Descriptor, inputs: &[c_int], outputs: &[c_int]) -> Outcome {
        let inputs = inputs.iter().map(|name| (*name, READ));
        for (name, access) in inputs.chain(outputs.iter().map(|name| (*name, WRITE))) {
            if let Ok(node) = op.child(name) {
                self.touch(node, access)?;
            }
        }
        Ok(())
    }

    /// Attention in one operation: two products with the scores between them, which never leave the chip. A subgraph (masks,
    /// bias) works on the scores. A causal mask is counted as full work: how much is skipped is not said in one place.
    fn attention(&mut self, op: &Descriptor) -> Outcome {
        use attr::*;
        let q = self.touch(op.child(SDPA_Q)?, READ)?;
        let k = self.touch(op.child(SDPA_K)?, READ)?;
        self.touch(op.child(SDPA_V)?, READ)?;
        let o = self.touch(op.child(SDPA_O)?, WRITE)?;
        let inputs = [SDPA_SCALE, SDPA_SEQ_LEN_Q, SDPA_SEQ_LEN_KV, SDPA_DROPOUT_SEED, SDPA_DROPOUT_OFFSET];
        self.elementwise(op, &inputs, &[SDPA_STATS])?;
        for softmax in op.children(SDPA_SOFTMAX).unwrap_or_default() {
            self.add(softmax)?;
        }
        for subgraph in op.children(SDPA_SUBGRAPH).unwrap_or_default() {
            for inner in subgraph.children(GRAPH_OPS)? {
                self.add(inner)?;
            }
        }
        let [.., keys, _] = k.dims[..] else {
            return Err(Status::BadParam);
        };
        self.product = Some(q.elem);
        self.flops += 2.0 * (q.elements() + o.elements()) as f64 * keys as f64;
        Ok(())
    }

    /// Notes that an operation reads or writes a tensor.
    fn touch(&mut self, node: &Descriptor, access: u32) -> Result<Tensor, Status> {
        let shape = tensor(node)?;
        if access & WRITE != 0 {
            self.results = self.results.max(shape.elements());
        }
        if node.is_nonzero(attr::TENSOR_IS_VIRTUAL) || node.is_nonzero(attr::TENSOR_IS_BY_VALUE) {
            return Ok(shape);
        }
        let uid = *node.longs(attr::TENSOR_UNIQUE_ID)?.first().ok_or(Status::BadParam)?;
        match self.touched.iter_mut().find(|t| t.uid == uid) {
            // Read after it was written: from registers.
            Some(known) if known.access & WRITE != 0 => {}
            Some(known) => known.access |= access,
            None => self.touched.push(Touched { uid, tensor: shape.clone(), access }),
        }
        Ok(shape)
    }

    /// Engines that can run it, the fastest first. Products of bf16 have none before compute capability 8.0, as in the real
    /// library ("unable to find an engine" is what PyTorch then reports).
    pub fn engines(&self) -> Vec<Engine> {
        match self.product {
            Some(elem) if elem.on_tensor_cores(self.capability) => vec![Engine::TensorCores, Engine::Cores],
            Some(Elem::Bf16 | Elem::F8) => Vec::new(),
            _ => vec![Engine::Cores],
        }
    }

    pub fn plan(self, engine: Engine) -> Plan {
        Plan { graph: self, engine }
    }
}

impl Plan {
    /// Launches it. `pointer` gives the device address of a tensor by its number.
    pub fn run(&self, handle: &Handle, pointer: impl Fn(i64) -> Option<*const c_void>) -> Outcome {
        let graph = &self.graph;
        let mut operands = Vec::with_capacity(graph.touched.len());
        for touched in &graph.touched {
            let at = pointer(touched.uid).filter(|at| !at.is_null()).ok_or(Status::BadParam)?;
            operands.push(touched.tensor.operand(at, touched.access));
        }
        let class = graph.product.unwrap_or(Elem::F32).class(self.engine == Engine::TensorCores);
        if graph.kernel == GRAPH {
            return handle.launch::<{ GRAPH.operands }>(GRAPH, graph.results, graph.flops, class, &operands);
        }
        const { assert!(CONV_FWD.operands == CONV_DGRAD.operands && CONV_FWD.operands == CONV_WGRAD.operands) };
        handle.launch::<{ CONV_FWD.operands }>(graph.kernel, graph.results, graph.flops, class, &operands)
    }
}
