//! Heuristic and execution: from descriptors to an operand list.
//!
//! One algorithm is offered for every product that can be described: tiles of 128 × 128, no split of the inner dimension, no
//! workspace. 8-bit floating point needs compute capability 8.9 and is otherwise not supported, as in the real library.

use std::ffi::{c_int, c_void};
use std::ptr::null;

use deepum_emu_abi::client::Stream;
use deepum_emu_abi::edge::Failure;
use deepum_emu_abi::elem::Elem;
use deepum_emu_abi::kernels::GEMM;
use deepum_emu_abi::params::{Operand, Params, READ, WRITE};

use super::objects::{Layout, Operation, Preference};
use crate::gemm::{Batch, Matrix, operand, same_type, tiles};
use crate::handle::Handle;
use crate::status::{Outcome, Status, count};
use crate::types::Scalar;

/// `cublasLtMatmulAlgo_t`: 64 opaque bytes. Ours carry a mark, so that a foreign or uninitialised one is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Algorithm([u64; 8]);

const ALGORITHM: Algorithm = Algorithm([0x6d75_7065_6564_0001, 0, 0, 0, 0, 0, 0, 0]);

/// `cublasLtMatmulHeuristicResult_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HeuristicResult {
    algorithm: Algorithm,
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}
const _: () = assert!(size_of::<HeuristicResult>() == 96);

/// A checked product, ready to launch.
struct Plan {
    grid: [u32; 3],
    params: Params<{ GEMM.operands }>,
}

fn matrix(layout: &Layout, at: *const c_void, access: u32) -> Result<Operand, Status> {
    let batch = if layout.pointers { Batch::Pointers(layout.batch) } else { Batch::Strided(layout.batch) };
    // A row-major matrix is the column-major one of its transpose.
    let (rows, cols) = if layout.row_major { (layout.cols, layout.rows) } else { (layout.rows, layout.cols) };
    operand(Matrix { at, elem: layout.elem, ld: layout.ld, stride: layout.stride }, rows, cols, batch, access)
}

/// The product of A, B, C and D at `at`, where it is not empty. Where things are does not matter while only the shape is asked
/// about. The few operations an element of an epilogue are not counted.
fn plan(
    op: &Operation,
    layouts: [&Layout; 4],
    at: [*const c_void; 4],
    [alpha, beta]: [Scalar; 2],
    capability: (i32, i32),
) -> Result<Option<Plan>, Status> {
    let [la, lb, lc, ld] = layouts;
    same_type(la.elem, lb.elem)?;
    // As the real library: no algorithm is found.
    if la.elem == Elem::F8 && !la.elem.on_tensor_cores(capability) {
        return Err(Status::NotSupported);
    }
    let shape = |layout: &Layout, t: bool| if t { (layout.cols, layout.rows) } else { (layout.rows, layout.cols) };
    let (m, k) = shape(la, op.transposed[0]);
    let (inner, n) = shape(lb, op.transposed[1]);
    let consistent = inner == k
        && (lc.rows, lc.cols) == (m, n)
        && (ld.rows, ld.cols) == (m, n)
        && layouts.iter().all(|l| l.batch == ld.batch);
    if !consistent {
        return Err(Status::InvalidValue);
    }
    let batch = count(ld.batch)?;
    let in_place = at[2] == at[3];
    let mut operands = vec![
        alpha.times(matrix(la, at[0], READ)?),
        alpha.times(matrix(lb, at[1], READ)?),
        if in_place { Operand::default() } else { beta.times(matrix(lc, at[2], READ)?) },
        matrix(ld, at[3], if in_place { beta.blend() } else { WRITE })?,
        alpha.operand,
        beta.operand,
    ];
    operands.extend(epilogue(op, ld.elem, [m, n, batch])?);
    operands.extend(op.scales.map(|ptr| Operand::read(ptr, 4, &[(1, 1)])));
    operands.push(Operand::write(op.amax, 4, &[(1, 1)]));
    if m == 0 || n == 0 || batch == 0 {
        return Ok(None);
    }
    let per_result = if alpha.is_zero { 0.0 } else { la.elem.multiply_add() * k as f64 };
    let flops = per_result * m as f64 * n as f64 * batch as f64;
    let class = op.compute.class(la.elem, 0, capability);
    let params = Params::new(flops, class, &operands).ok_or(Status::InternalError)?;
    Ok(Some(Plan { grid: tiles(m, n, batch), params }))
}

/// What the epilogue reads and writes beside `m` × `n` results of type `elem`: bias or its gradient, and the auxiliary matrix.
fn epilogue(op: &Operation, elem: Elem, [m, n, batch]: [u64; 3]) -> Result<Vec<Operand>, Status> {
    let mut operands = Vec::new();
    // The bias of an 8-bit product is 16 bits wide by default, otherwise of D's type.
    let bias_elem = op.bias_elem.unwrap_or(if elem == Elem::F8 { Elem::Bf16 } else { elem });
    let vector = |len, access| -> Result<Operand, Status> {
        let shape = [(len, 1), (batch, count(op.bias_batch_stride)?)];
        Ok(Operand::new(op.bias, bias_elem.bytes(), &shape, access))
    };
    if op.epilogue.adds_bias() {
        operands.push(vector(m, READ)?);
    }
    if let Some(over_columns) = op.epilogue.bias_gradient() {
        operands.push(vector(if over_columns { n } else { m }, WRITE)?);
    }
    if let Some(written) = op.epilogue.auxiliary() {
        let (rows, aux_ld, stride, bytes) = if op.epilogue.auxiliary_is_mask() {
            // One bit per element; the leading dimension and the stride count elements.
            (m.div_ceil(8), count(op.aux_ld)? / 8, count(op.aux_batch_stride)? / 8, 1)
        } else {
            let bytes = op.aux_elem.unwrap_or(elem).bytes();
            (m, count(op.aux_ld)?, count(op.aux_batch_stride)?, bytes)
        };
        if aux_ld < rows {
            return Err(Status::InvalidValue);
        }
        let access = if written { WRITE } else { READ };
        operands.push(Operand::new(op.aux, bytes, &[(rows, 1), (n, aux_ld), (batch, stride)], access));
    }
    Ok(operands)
}

/// # Safety
/// Each pointer is null or points to a live object.
unsafe fn layouts<'a>(raw: [*const Layout; 4]) -> Result<[&'a Layout; 4], Status> {
    let [a, b, c, d] = raw;
    // SAFETY: the caller's promise.
    unsafe { Ok([Status::get(a)?, Status::get(b)?, Status::get(c)?, Status::get(d)?]) }
}

/// Offers the algorithm, if the product is one that can run.
///
/// # Safety
/// Pointers are null or live; `result` is null or valid for writing.
unsafe fn offer(
    handle: *const Handle,
    operation: *const Operation,
    raw: [*const Layout; 4],
    result: *mut HeuristicResult,
) -> Outcome {
    // SAFETY: the caller's promises.
    unsafe {
        let (handle, operation) = (Handle::get(handle)?, Status::get(operation)?);
        plan(operation, layouts(raw)?, [null(); 4], [Scalar::default(); 2], handle.capability())?;
        Status::put(
            result,
            HeuristicResult { algorithm: ALGORITHM, workspace: 0, state: 0, waves: 1.0, reserved: [0; 4] },
        )
    }
}

/// Offers the algorithm, if the product is one that can run.
///
/// # Safety
/// As documented by cuBLASLt: live objects, `results` with room for `requested`, a valid `returned`.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    handle: *mut Handle,
    operation: *const Operation,
    a: *const Layout,
    b: *const Layout,
    c: *const Layout,
    d: *const Layout,
    preference: *const Preference,
    requested: c_int,
    results: *mut HeuristicResult,
    returned: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promises.
    Status::edge(|| unsafe {
        Status::put(returned, 0)?;
        if preference.is_null() || requested < 1 {
            return Err(Status::InvalidValue);
        }
        offer(handle, operation, [a, b, c, d], results)?;
        Status::put(returned, 1)
    })
}

/// `D = epilogue(alpha op(A) op(B) + beta C)`. Without an algorithm the one there is runs.
///
/// # Safety
/// As documented by cuBLASLt: live objects; alpha and beta as the operation's pointer mode says.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cublasLtMatmul(
    handle: *mut Handle,
    operation: *const Operation,
    alpha: *const c_void,
    a: *const c_void,
    a_layout: *const Layout,
    b: *const c_void,
    b_layout: *const Layout,
    beta: *const c_void,
    c: *const c_void,
    c_layout: *const Layout,
    d: *mut c_void,
    d_layout: *const Layout,
    algorithm: *const Algorithm,
    _workspace: *mut c_void,
    _workspace_bytes: usize,
    stream: Stream,
) -> c_int {
    // SAFETY: the caller's promises.
    Status::edge(|| unsafe {
        let (handle, op) = (Handle::get(handle)?, Status::get(operation)?);
        if algorithm.as_ref().is_some_and(|a| *a != ALGORITHM) {
            return Err(Status::InvalidValue);
        }
        let layouts = layouts([a_layout, b_layout, c_layout, d_layout])?;
        let (alpha, beta) =
            (Scalar::new(op.pointer_mode, alpha, op.scale)?, Scalar::new(op.pointer_mode, beta, op.scale)?);
        let at = [a, b, c, d.cast_const()];
        let Some(plan) = plan(op, layouts, at, [alpha, beta], handle.capability())? else {
            return Ok(());
        };
        // Documented: invalid if anything is unexpectedly null.
        let absent = |i: usize| at[i].is_null() && layouts[i].rows > 0 && layouts[i].cols > 0;
        let missing = absent(3)
            || (!alpha.is_zero && (absent(0) || absent(1)))
            || (!beta.is_zero && absent(2))
            || (op.bias == 0 && (op.epilogue.adds_bias() || op.epilogue.bias_gradient().is_some()))
            || (op.aux == 0 && op.epilogue.auxiliary().is_some());
        if missing {
            return Err(Status::InvalidValue);
        }
        handle.launch_lt(GEMM, plan.grid, stream, &plan.params)
    })
}

/// Whether an algorithm fits a product; fills in what the heuristic would.
///
/// # Safety
/// As documented by cuBLASLt: live objects, a valid `result`.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cublasLtMatmulAlgoCheck(
    handle: *mut Handle,
    operation: *const Operation,
    a: *const Layout,
    b: *const Layout,
    c: *const Layout,
    d: *const Layout,
    algorithm: *const Algorithm,
    result: *mut HeuristicResult,
) -> c_int {
    // SAFETY: the caller's promises.
    Status::edge(|| unsafe {
        if *Status::get(algorithm)? != ALGORITHM {
            return Err(Status::InvalidValue);
        }
        offer(handle, operation, [a, b, c, d], result)
    })
}
