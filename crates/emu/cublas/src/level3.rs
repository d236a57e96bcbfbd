//! Operations with a triangular or symmetric matrix (BLAS level 3): solves, products, rank-k updates.
//!
//! Of a triangular or symmetric n × n matrix only one triangle is stored; the operand is the whole square, as the columns of
//! a triangle cover its pages but for less than one column at each step. The difference is stated here because it is the one
//! place where an operand of this library is larger than what is read.

use std::ffi::{c_int, c_void};

use deepum_emu_abi::kernels::{LEVEL3, TRSM};
use deepum_emu_abi::params::{Operand, READ, WRITE};

use crate::edge::{Outcome, Status, count, edge};
use crate::gemm::{Batch, Matrix, operand, tiles};
use crate::handle::{Handle, PointerMode};
use crate::types::{Elem, left, transposed};

fn single(at: *const c_void, elem: Elem, ld: c_int) -> Matrix {
    Matrix { at, elem, ld: ld.into(), stride: 0 }
}

/// Alpha or beta, where the kernel reads it from device memory.
fn device_scalar(handle: &Handle, at: *const c_void, elem: Elem) -> Result<Operand, Status> {
    if at.is_null() {
        return Err(Status::InvalidValue);
    }
    let device = handle.settings().pointer_mode == PointerMode::Device;
    Ok(Operand::read(if device { at.addr() as u64 } else { 0 }, elem.bytes(), &[(1, 1)]))
}

/// Whether beta says that C is only written.
///
/// # Safety
/// In host pointer mode `beta` points to a host scalar of type `elem`.
unsafe fn overwrites(handle: &Handle, beta: *const c_void, elem: Elem) -> u32 {
    // SAFETY: the caller's promise.
    let zero = handle.settings().pointer_mode == PointerMode::Host && unsafe { elem.is_zero(beta) };
    if zero { WRITE } else { READ | WRITE }
}

/// `B = alpha op(A)^-1 B` or `B op(A)^-1`: A is triangular, of the side B is multiplied from.
///
/// # Safety
/// `handle` is null or live.
#[allow(clippy::too_many_arguments, reason = "the vendor's arguments, in the vendor's order")]
unsafe fn solve(
    handle: *const Handle,
    elem: Elem,
    side: c_int,
    m: c_int,
    n: c_int,
    alpha: *const c_void,
    a: (*const c_void, c_int),
    b: (*const c_void, c_int),
    batch: Batch,
) -> Outcome {
    // SAFETY: the caller's promise.
    let handle = unsafe { Handle::get(handle) }?;
    let (m, n) = (count(m)?, count(n)?);
    let order = if left(side)? { m } else { n };
    let many = if let Batch::Strided(n) | Batch::Pointers(n) = batch { count(n)? } else { 1 };
    let operands = [
        operand(single(a.0, elem, a.1), order, order, batch, READ)?,
        operand(single(b.0, elem, b.1), m, n, batch, READ | WRITE)?,
        device_scalar(handle, alpha, elem)?,
    ];
    if m == 0 || n == 0 || many == 0 {
        return Ok(());
    }
    // Half of a full product's multiply-adds: the matrix is triangular.
    let flops = elem.multiply_add() / 2.0 * m as f64 * n as f64 * order as f64 * many as f64;
    handle.launch::<{ TRSM.operands }>(TRSM, tiles(m, n, many), flops, elem.class(), &operands)
}

macro_rules! triangular {
    ($($elem:ident: fn $trsm:ident, fn $batched:ident, fn $trmm:ident;)*) => {$(
        /// Triangular solve with many right-hand sides.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
        pub unsafe extern "C" fn $trsm(
            handle: *mut Handle, side: c_int, _uplo: c_int, _trans: c_int, _diag: c_int, m: c_int, n: c_int,
            alpha: *const c_void, a: *const c_void, lda: c_int, b: *mut c_void, ldb: c_int,
        ) -> c_int {
            // SAFETY: the caller's promise.
            edge(|| unsafe { solve(handle, Elem::$elem, side, m, n, alpha, (a, lda), (b, ldb), Batch::Single) })
        }
        /// The same for matrices behind pointer arrays in device memory.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
        pub unsafe extern "C" fn $batched(
            handle: *mut Handle, side: c_int, _uplo: c_int, _trans: c_int, _diag: c_int, m: c_int, n: c_int,
            alpha: *const c_void, a: *const c_void, lda: c_int, b: *const c_void, ldb: c_int, batch: c_int,
        ) -> c_int {
            let batch = Batch::Pointers(batch);
            // SAFETY: the caller's promise.
            edge(|| unsafe { solve(handle, Elem::$elem, side, m, n, alpha, (a, lda), (b, ldb), batch) })
        }
        /// `C = alpha op(A) B` with A triangular.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
        pub unsafe extern "C" fn $trmm(
            handle: *mut Handle, side: c_int, _uplo: c_int, _trans: c_int, _diag: c_int, m: c_int, n: c_int,
            alpha: *const c_void, a: *const c_void, lda: c_int, b: *const c_void, ldb: c_int, c: *mut c_void, ldc: c_int,
        ) -> c_int {
            edge(|| {
                let elem = Elem::$elem;
                // SAFETY: the caller's promise.
                let handle = unsafe { Handle::get(handle) }?;
                let (m, n) = (count(m)?, count(n)?);
                let order = if left(side)? { m } else { n };
                let operands = [
                    operand(single(a, elem, lda), order, order, Batch::Single, READ)?,
                    operand(single(b, elem, ldb), m, n, Batch::Single, READ)?,
                    operand(single(c, elem, ldc), m, n, Batch::Single, WRITE)?,
                    device_scalar(handle, alpha, elem)?,
                ];
                if m == 0 || n == 0 {
                    return Ok(());
                }
                let flops = elem.multiply_add() / 2.0 * m as f64 * n as f64 * order as f64;
                handle.launch::<{ LEVEL3.operands }>(LEVEL3, tiles(m, n, 1), flops, elem.class(), &operands)
            })
        }
    )*};
}

triangular! {
    F32: fn cublasStrsm_v2, fn cublasStrsmBatched, fn cublasStrmm_v2;
    F64: fn cublasDtrsm_v2, fn cublasDtrsmBatched, fn cublasDtrmm_v2;
    C32: fn cublasCtrsm_v2, fn cublasCtrsmBatched, fn cublasCtrmm_v2;
    C64: fn cublasZtrsm_v2, fn cublasZtrsmBatched, fn cublasZtrmm_v2;
}

macro_rules! symmetric {
    ($($elem:ident: $(product fn $symm:ident)* $(update fn $syrk:ident)* $(update2 fn $syr2k:ident)*;)*) => {$(
        $(
            /// `C = alpha A B + beta C` with A symmetric or Hermitian.
            ///
            /// # Safety
            /// As documented by cuBLAS.
            #[unsafe(no_mangle)]
            #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
            pub unsafe extern "C" fn $symm(
                handle: *mut Handle, side: c_int, _uplo: c_int, m: c_int, n: c_int, alpha: *const c_void,
                a: *const c_void, lda: c_int, b: *const c_void, ldb: c_int, beta: *const c_void, c: *mut c_void, ldc: c_int,
            ) -> c_int {
                edge(|| {
                    let elem = Elem::$elem;
                    // SAFETY: the caller's promise.
                    let handle = unsafe { Handle::get(handle) }?;
                    let (m, n) = (count(m)?, count(n)?);
                    let order = if left(side)? { m } else { n };
                    let scalars = [device_scalar(handle, alpha, elem)?, device_scalar(handle, beta, elem)?];
                    // SAFETY: the caller's promise.
                    let access = unsafe { overwrites(handle, beta, elem) };
                    let operands = [
                        operand(single(a, elem, lda), order, order, Batch::Single, READ)?,
                        operand(single(b, elem, ldb), m, n, Batch::Single, READ)?,
                        operand(single(c, elem, ldc), m, n, Batch::Single, access)?,
                        scalars[0],
                        scalars[1],
                    ];
                    if m == 0 || n == 0 {
                        return Ok(());
                    }
                    let flops = elem.multiply_add() * m as f64 * n as f64 * order as f64;
                    handle.launch::<{ LEVEL3.operands }>(LEVEL3, tiles(m, n, 1), flops, elem.class(), &operands)
                })
            }
        )*
        $(
            /// `C = alpha op(A) op(A)' + beta C`, one triangle of C.
            ///
            /// # Safety
            /// As documented by cuBLAS.
            #[unsafe(no_mangle)]
            #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
            pub unsafe extern "C" fn $syrk(
                handle: *mut Handle, _uplo: c_int, trans: c_int, n: c_int, k: c_int, alpha: *const c_void,
                a: *const c_void, lda: c_int, beta: *const c_void, c: *mut c_void, ldc: c_int,
            ) -> c_int {
                // SAFETY: the caller's promise.
                edge(|| unsafe { update(handle, Elem::$elem, trans, n, k, alpha, &[(a, lda)], beta, (c, ldc)) })
            }
        )*
        $(
            /// `C = alpha (op(A) op(B)' + op(B) op(A)') + beta C`, one triangle of C.
            ///
            /// # Safety
            /// As documented by cuBLAS.
            #[unsafe(no_mangle)]
            #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
            pub unsafe extern "C" fn $syr2k(
                handle: *mut Handle, _uplo: c_int, trans: c_int, n: c_int, k: c_int, alpha: *const c_void,
                a: *const c_void, lda: c_int, b: *const c_void, ldb: c_int, beta: *const c_void, c: *mut c_void, ldc: c_int,
            ) -> c_int {
                let factors = [(a, lda), (b, ldb)];
                // SAFETY: the caller's promise.
                edge(|| unsafe { update(handle, Elem::$elem, trans, n, k, alpha, &factors, beta, (c, ldc)) })
            }
        )*
    )*};
}

/// A rank-k or rank-2k update.
///
/// # Safety
/// `handle` is null or live; in host pointer mode `beta` points to a host scalar (real for the Hermitian forms, of which the
/// real part is all that is looked at).
#[allow(clippy::too_many_arguments, reason = "the vendor's arguments, in the vendor's order")]
unsafe fn update(
    handle: *const Handle,
    elem: Elem,
    trans: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    factors: &[(*const c_void, c_int)],
    beta: *const c_void,
    c: (*mut c_void, c_int),
) -> Outcome {
    // SAFETY: the caller's promise.
    let handle = unsafe { Handle::get(handle) }?;
    let (n, k) = (count(n)?, count(k)?);
    let (rows, cols) = if transposed(trans)? { (k, n) } else { (n, k) };
    let mut operands = vec![device_scalar(handle, alpha, elem)?, device_scalar(handle, beta, elem)?];
    let real = if elem == Elem::C64 {
        Elem::F64
    } else if elem == Elem::C32 {
        Elem::F32
    } else {
        elem
    };
    // SAFETY: the caller's promise; a complex beta with a zero real part counts as "not read", which no BLAS user writes.
    let access = unsafe { overwrites(handle, beta, real) };
    for &(at, ld) in factors {
        operands.push(operand(single(at, elem, ld), rows, cols, Batch::Single, READ)?);
    }
    operands.push(operand(single(c.0, elem, c.1), n, n, Batch::Single, access)?);
    if n == 0 {
        return Ok(());
    }
    let flops = elem.multiply_add() / 2.0 * factors.len() as f64 * n as f64 * n as f64 * k as f64;
    handle.launch::<{ LEVEL3.operands }>(LEVEL3, tiles(n, n, 1), flops, elem.class(), &operands)
}

symmetric! {
    F32: product fn cublasSsymm_v2 update fn cublasSsyrk_v2 update2 fn cublasSsyr2k_v2;
    F64: product fn cublasDsymm_v2 update fn cublasDsyrk_v2 update2 fn cublasDsyr2k_v2;
    C32: product fn cublasCsymm_v2 product fn cublasChemm_v2 update fn cublasCsyrk_v2 update fn cublasCherk_v2
        update2 fn cublasCsyr2k_v2 update2 fn cublasCher2k_v2;
    C64: product fn cublasZsymm_v2 product fn cublasZhemm_v2 update fn cublasZsyrk_v2 update fn cublasZherk_v2
        update2 fn cublasZsyr2k_v2 update2 fn cublasZher2k_v2;
}
