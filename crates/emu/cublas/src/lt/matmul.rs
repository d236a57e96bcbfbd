//! Heuristic and execution: from descriptors to an operand list.
//!
//! One algorithm is offered for every product that can be described: tiles of 128 × 128, no split of the inner dimension, no
//! workspace. 8-bit floating point needs compute capability 8.9 and is otherwise not supported, as in the real library.

use std::ffi::{c_int, c_void};

use deepum_emu_abi::client::Stream;
use deepum_emu_abi::kernels::GEMM;
use deepum_emu_abi::params::{Operand, Params, READ, WRITE};

use super::objects::{Layout, Operation, Preference};
use crate::edge::{Status, count, edge, put};
use crate::gemm::{Batch, Matrix, operand, tiles};
use crate::handle::Handle;

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

/// Where the matrices and scalars of a product are; all zero while only the shape is asked about.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    alpha: u64,
    beta: u64,
    reads_ab: bool,
    reads_c: bool,
}

/// A checked product, ready to launch.
struct Plan {
    grid: [u32; 3],
    params: Params<{ GEMM.operands }>,
}

fn matrix(layout: &Layout, at: u64, access: u32) -> Result<Operand, Status> {
    let batch = if layout.pointers { Batch::Pointers(layout.batch) } else { Batch::Strided(layout.batch) };
    // A row-major matrix is the column-major one of its transpose.
    let (rows, cols) = if layout.row_major { (layout.cols, layout.rows) } else { (layout.rows, layout.cols) };
    let at = std::ptr::without_provenance(usize::try_from(at).map_err(|_| Status::InvalidValue)?);
    operand(Matrix { at, elem: layout.elem, ld: layout.ld, stride: layout.stride }, rows, cols, batch, access)
}

fn plan(op: &Operation, layouts: [&Layout; 4], at: Places, capability: (i32, i32)) -> Result<Option<Plan>, Status> {
    let [la, lb, lc, ld] = layouts;
    if (la.elem.is_fp8() || lb.elem.is_fp8()) && capability < (8, 9) {
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
    let mut operands = vec![
        matrix(la, if at.reads_ab { at.a } else { 0 }, READ)?,
        matrix(lb, if at.reads_ab { at.b } else { 0 }, READ)?,
    ];
    if at.reads_c && at.c == at.d {
        operands.push(matrix(ld, at.d, READ | WRITE)?);
    } else {
        operands.push(matrix(lc, if at.reads_c { at.c } else { 0 }, READ)?);
        operands.push(matrix(ld, at.d, WRITE)?);
    }
    let scalar = |ptr| Operand::read(ptr, op.scale.bytes(), &[(1, 1)]);
    operands.extend([scalar(at.alpha), scalar(at.beta)]);
    // The bias of an 8-bit product is bf16 by default, otherwise of D's type.
    let bias_elem = op.bias_elem.unwrap_or(if ld.elem.is_fp8() { crate::types::Elem::Bf16 } else { ld.elem });
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
            let bytes = op.aux_elem.unwrap_or(ld.elem).bytes();
            (m, count(op.aux_ld)?, count(op.aux_batch_stride)?, bytes)
        };
        if aux_ld < rows {
            return Err(Status::InvalidValue);
        }
        let access = if written { WRITE } else { READ };
        operands.push(Operand::new(op.aux, bytes, &[(rows, 1), (n, aux_ld), (batch, stride)], access));
    }
    operands.extend(op.scales.map(|ptr| Operand::read(ptr, 4, &[(1, 1)])));
    operands.push(Operand::write(op.amax, 4, &[(1, 1)]));
    if m == 0 || n == 0 || batch == 0 {
        return Ok(None);
    }
    let per_element = if op.epilogue.has_activation() { 1.0 } else { 0.0 };
    let products = if at.reads_ab { la.elem.multiply_add() * k as f64 } else { 0.0 };
    let flops = (products + per_element) * m as f64 * n as f64 * batch as f64;
    let class = op.compute.class(la.elem, false, capability);
    let params = Params::new(flops, class, &operands).ok_or(Status::InternalError)?;
    Ok(Some(Plan { grid: tiles(m, n, batch), params }))
}

/// # Safety
/// Each pointer is null or points to a live object.
unsafe fn layouts<'a>(raw: [*const Layout; 4]) -> Result<[&'a Layout; 4], Status> {
    let mut found = Vec::with_capacity(4);
    for layout in raw {
        // SAFETY: the caller's promise.
        found.push(unsafe { layout.as_ref() }.ok_or(Status::InvalidValue)?);
    }
    found.try_into().map_err(|_| Status::InternalError)
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
    edge(|| {
        // SAFETY: the caller's promises.
        unsafe {
            put(returned, 0)?;
            let handle = Handle::get(handle)?;
            let operation = operation.as_ref().ok_or(Status::InvalidValue)?;
            if preference.is_null() || results.is_null() || requested < 1 {
                return Err(Status::InvalidValue);
            }
            plan(operation, layouts([a, b, c, d])?, Places::default(), handle.capability())?;
            put(
                results,
                HeuristicResult { algorithm: ALGORITHM, workspace: 0, state: 0, waves: 1.0, reserved: [0; 4] },
            )?;
            put(returned, 1)
        }
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
    edge(|| {
        // SAFETY: the caller's promises.
        unsafe {
            let handle = Handle::get(handle)?;
            let operation = operation.as_ref().ok_or(Status::InvalidValue)?;
            if alpha.is_null() || beta.is_null() || algorithm.as_ref().is_some_and(|a| *a != ALGORITHM) {
                return Err(Status::InvalidValue);
            }
            let address = |p: *const c_void| p.addr() as u64;
            let mut at = Places {
                a: address(a),
                b: address(b),
                c: address(c),
                d: address(d),
                reads_ab: true,
                reads_c: true,
                ..Places::default()
            };
            if operation.device_scalars {
                (at.alpha, at.beta) = (address(alpha), address(beta));
            } else {
                at.reads_ab = !operation.scale.is_zero(alpha);
                at.reads_c = !operation.scale.is_zero(beta);
            }
            let plan = plan(operation, layouts([a_layout, b_layout, c_layout, d_layout])?, at, handle.capability())?;
            plan.map_or(Ok(()), |plan| handle.launch_lt(GEMM, plan.grid, stream, &plan.params))
        }
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
    // SAFETY: the caller's promises; a preference is not looked into, so its stand-in may be any non-null pointer.
    unsafe {
        if algorithm.as_ref().is_none_or(|a| *a != ALGORITHM) {
            return Status::InvalidValue as c_int;
        }
        let (preference, mut returned) = (Preference, 0);
        cublasLtMatmulAlgoGetHeuristic(
            handle,
            operation,
            a,
            b,
            c,
            d,
            &raw const preference,
            1,
            result,
            &raw mut returned,
        )
    }
}
